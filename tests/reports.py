"""Every report there is, for every preset: what the tests of screens and formulas walk over."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attncalc import ModelSpec, Workload, load, preset_names
from attncalc.report.compare import compare_models, compare_variants
from attncalc.report.flops import flops_report
from attncalc.report.kv import kv_report
from attncalc.report.memory import memory_report
from attncalc.report.params import params_report
from attncalc.report.presets import presets_report
from attncalc.report.report import Report

CONTEXT = 512


def workload(make: Callable[..., Workload], model: ModelSpec, context: int = 0, **given: object) -> Workload:
    """A workload that the model can have: with a source where it has an encoder."""
    source = (model.encoder.max_context or CONTEXT) if model.encoder else None
    return make(2, context or model.max_context or CONTEXT, source=source, **given)


def reports_of(model: ModelSpec) -> Iterator[Report]:
    """Every command's report on `model`."""
    encoder_only = not model.main.keeps_cache
    yield kv_report(model, workload(Workload.decode, model, 100_000))
    yield kv_report(model, workload(Workload.decode, model, kv_dtype="int4"))
    yield params_report(model)
    makers = [Workload.prefill, Workload.train] if encoder_only else [Workload.prefill, Workload.decode, Workload.train]
    for make in makers:
        yield flops_report(model, workload(make, model))
        yield memory_report(model, workload(make, model))
    if not encoder_only:
        yield flops_report(model, workload(Workload.prefill, model, 300, past=100))
        yield flops_report(model, Workload.prefill(lengths=(9, 9, 4), source=7 if model.encoder else None))
    yield compare_variants(model, workload(Workload.decode, model, 4096), () if encoder_only else ("mla:64",))


def all_reports() -> Iterator[Report]:
    """Every command's report on every preset, and on models exchanged and sharded."""
    for name in preset_names():
        yield from reports_of(load(name))
    for name in ("llama2-70b", "gemma3-27b", "t5-base", "deepseek-v3"):
        yield from reports_of(load(name).shard(4))
        yield from reports_of(load(name).with_attention("mla:64" if name != "deepseek-v3" else "mqa"))
    yield from reports_of(load("llama2-70b").shard(16))
    models = [load(name) for name in ("llama2-70b", "gemma3-27b", "deepseek-v3", "gpt-oss-20b")]
    yield compare_models(models, [Workload.decode(1, 4096)] * 4)
    yield presets_report([load(name) for name in preset_names()])
