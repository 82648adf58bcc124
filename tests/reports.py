"""The reports of presets, for the tests of screens and formulas."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from attncalc import AttncalcError, ModelSpec, Workload, load, preset_names
from attncalc.config.gpus import gpu
from attncalc.config.presets import presets
from attncalc.engines import ENGINES
from attncalc.questions.compare.report import compare_models, compare_variants
from attncalc.questions.fit.all_report import fit_all_report
from attncalc.questions.fit.report import fit_report
from attncalc.questions.flops.report import flops_report
from attncalc.questions.kv.report import kv_report
from attncalc.questions.memory.report import memory_report
from attncalc.questions.params.report import params_report
from attncalc.questions.presets.report import Listed, presets_report
from attncalc.questions.verify.catalogue import CATALOGUE
from attncalc.serving.request import FitRequest
from attncalc.show.report import Report

CONTEXT = 512


def one_per_structure(names: Iterable[str]) -> list[str]:
    """Return the first preset of each structure: models that differ in their sizes only take the
    same code.
    """
    found: dict[object, str] = {}
    for name in names:
        model = load(name)
        layers = frozenset(
            (
                kind.label,
                type(kind.span),
                group.mlp and (bool(group.mlp.n_experts), bool(group.mlp.n_shared_experts)),
            )
            for _, group in model.groups()
            for kind in group.attentions
        )
        found.setdefault(
            (layers, bool(model.towers), model.weights_dtype, model.experts_dtype), name
        )
    return list(found.values())


def workload(
    make: Callable[..., Workload], model: ModelSpec, context: int = 0, **options: object
) -> Workload:
    """Return a workload that the model can run: with a source if it has an encoder."""
    source = (model.encoder.max_context or CONTEXT) if model.encoder else None
    return make(2, context or model.max_context or CONTEXT, source=source, **options)


def reports_of(model: ModelSpec) -> Iterator[Report]:
    """Yield the report of every command on `model`, except fit."""
    encoder_only = not model.main.has_cache
    yield kv_report(model, workload(Workload.decode, model, 100_000))
    yield kv_report(model, workload(Workload.decode, model, kv_dtype="int4"))
    yield params_report(model)
    makers = (
        [Workload.prefill, Workload.train]
        if encoder_only
        else [Workload.prefill, Workload.decode, Workload.train]
    )
    for make in makers:
        yield flops_report(model, workload(make, model))
        if make != Workload.train:
            yield memory_report(model, workload(make, model))
    if not encoder_only:
        yield flops_report(model, workload(Workload.prefill, model, 300, past=100))
        yield flops_report(
            model, Workload.prefill(lengths=(9, 9, 4), source=7 if model.encoder else None)
        )
    yield compare_variants(
        model, workload(Workload.decode, model, 4096), () if encoder_only else ("mla:64",)
    )


def fit_request(model: ModelSpec, engine: str, **options: Any) -> FitRequest:
    """Return a request for three sequences of the model's maximum context, by default in 6 GiB."""
    source = (model.encoder.max_context or CONTEXT) if model.encoder else None
    workload = Workload.decode(3, model.max_context or CONTEXT, source=source, kv_dtype=model.dtype)
    memory = options if "gpu" in options else {"kv_memory": 6 * 2**30, **options}
    return FitRequest(model, workload, engine, **memory)


def fits_of(model: ModelSpec, turn: int) -> Iterator[Report]:
    """Yield the fit reports on `model` of every engine that supports it.

    Args:
        model: The model.
        turn: Counts the models: engines take turns with a memory and with a GPU, and two of three
            have no --engine all.
    """
    n_reports = 0
    for number, engine in enumerate(ENGINES):
        on_gpu = (turn + number) % 2 == 1
        options = {"gpu": gpu("t4"), "weights_dtype": "int4"} if on_gpu else {}
        try:
            yield fit_report(fit_request(model, engine, **options), full=True, roofline=on_gpu)
            n_reports += 1
        except AttncalcError:  # an encoder has no cache, and not every engine supports every model
            continue
    if n_reports and turn % 3 == 0:
        yield fit_all_report(
            fit_request(model, "vllm", gpu=gpu("h100-80gb")), full=True, roofline=True
        )


def all_reports() -> Iterator[Report]:
    """Yield every command's report on presets, two on every preset, and some with other attention
    or sharded.
    """
    for turn, name in enumerate(one_per_structure(CATALOGUE)):
        yield from reports_of(load(name))
        yield from fits_of(load(name), turn)
    for name in preset_names():
        yield kv_report(load(name), workload(Workload.decode, load(name)))
        yield params_report(load(name))
    for name in ("llama2-70b", "gemma3-27b", "t5-base", "deepseek-v3"):
        yield from reports_of(load(name).shard(4))
        yield from reports_of(
            load(name).with_attention("mla:64" if name != "deepseek-v3" else "mqa")
        )
    yield from reports_of(load("llama2-70b").shard(16))
    models = [load(name) for name in ("llama2-70b", "gemma3-27b", "deepseek-v3", "gpt-oss-20b")]
    yield compare_models(models, [Workload.decode(1, 4096)] * 4)
    listed = [Listed(load(preset.name), preset.family, preset.repositories) for preset in presets()]
    yield presets_report(listed)
    yield presets_report(listed, names_only=True)
