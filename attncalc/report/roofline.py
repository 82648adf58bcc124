"""The roofline's pieces for a screen and for JSON: figures, table rows, notes, and attention variants compared.

Another report places them; every label says that the figure is a bound.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ..attention.span import Pools
from ..errors import AttncalcError
from ..hardware import RUNS_IN, Gpu
from ..model import ModelSpec, plural
from ..quantity import Quantity, Ratio
from ..serving.config import ALONE, ServingConfig
from ..serving.roofline import Roofline, Step, roofline
from ..serving.weights import bytes_read
from ..units import BYTES, FLOP, NO_UNIT, PER_SECOND, SECONDS, count
from ..workload import Workload
from .compare import variants
from .report import Column, Figure, Table, number

WILLIAMS = "Williams et al. 2009, doi:10.1145/1498765.1498785: the longer of FLOP / peak and bytes / bandwidth"
DEEPSEEK = 4
"""MLA's latent in widths of a head: 512 for heads of 128. DeepSeek-V2, arXiv:2405.04434, 3.1.2."""


def roofline_figures(found: Roofline | None, of: str = "") -> tuple[Figure, ...]:
    """The bounds as figures, by the names that scripts rely on; None for no such step or batch, and without a GPU."""
    prefill, decode = (found.prefill, found.decode) if found else (None, None)
    rows: list[tuple[str, str, Quantity | Ratio | None, str]] = [
        ("prefill_time_bound", "prefill takes at least", prefill and prefill.seconds, SECONDS),
        ("decode_time_bound", "a decode step takes at least", decode and decode.seconds, SECONDS),
        ("decode_tokens_per_second_bound", "at best, of the batch", found and found.tokens_per_second, PER_SECOND),
        ("decode_compute_bound_batch", "least batch not bound by memory", found and found.compute_bound_batch, NO_UNIT),
        ("ridge_flop_per_byte", "FLOP per byte at the GPU's ridge", found and found.ridge, NO_UNIT),
        ("prefill_flop_per_byte", "FLOP per byte of the prefill", prefill and prefill.intensity, NO_UNIT),
        ("decode_flop_per_byte", "FLOP per byte of a decode step", decode and decode.intensity, NO_UNIT),
        ("decode_flop_per_byte_limit", "FLOP per byte that ever larger batches near", found and found.limit, NO_UNIT),
    ]
    return tuple(Figure(key, label, value, unit, WILLIAMS if found else "", of) for key, label, value, unit in rows)


def roofline_parts(found: Roofline) -> tuple[Figure, ...]:
    """What the figures' formulas name, for an explanation."""
    steps = [("prefill", found.prefill), ("decode", found.decode)]
    return tuple(
        figure
        for name, step in steps
        if step
        for figure in (
            Figure(f"{name}_flops", f"{name}: FLOP", step.flops, FLOP),
            Figure(f"{name}_weights_read", f"{name}: weights read", step.weights, BYTES),
            Figure(f"{name}_cache_read", f"{name}: cache read or written", step.cache, BYTES),
            Figure(f"{name}_compute_time", f"{name}: at the peak", step.by_compute, SECONDS),
            Figure(f"{name}_memory_time", f"{name}: at the bandwidth", step.by_memory, SECONDS),
        )
    )


def roofline_more(found: Roofline) -> dict[str, Any]:
    """What JSON says of it in words."""
    return {
        "gpu": found.gpu.name,
        "weights_dtype": found.weights_dtype.name,
        "math_dtype": found.math.dtype,
        "prefill_bound_by": found.prefill.bound_by,
        "decode_bound_by": found.decode and found.decode.bound_by,
    }


def roofline_tables(found: Roofline, workload: Workload) -> tuple[Table, ...]:
    """Both steps side by side: the least time, what bounds it, and each resource's own time."""
    steps = [("prefill", found.prefill, workload.context), ("decode", found.decode, 0 if found.served.drafts else 1)]
    columns = (
        Column("at least", "left"),
        Column("time"),
        Column("bound by", "left"),
        Column("compute"),
        Column("memory"),
        Column("FLOP\n/byte"),
        Column("at best\ntokens/s"),
    )
    rows = tuple(
        (name, *_step_cells(step), _per_second(step, workload.batch * tokens)) for name, step, tokens in steps if step
    )
    return (Table(columns, rows),)


def _step_cells(step: Step) -> tuple[str, ...]:
    times = [Figure("", "", time, SECONDS).human for time in (step.seconds, step.by_compute, step.by_memory)]
    return (times[0], step.bound_by, times[1], times[2], number(float(step.intensity)))


def _per_second(step: Step, tokens: int) -> str:
    """'-' where nothing says how many tokens it makes."""
    return f"{int(tokens) * step.seconds.denominator / step.seconds.numerator:,.0f}" if tokens else "-"


def roofline_notes(model: ModelSpec, workload: Workload, found: Roofline) -> tuple[str, ...]:
    """What a reader must know of the bounds."""
    math, stored = found.math.dtype, found.weights_dtype.name
    notes = [
        f"Bounds, not estimates: {found.gpu.title}'s dense peak in {math} and its bandwidth, weights and cache read "
        "once. Real software takes longer."
    ]
    notes += _math_notes(found, math, stored)
    if model.tp > 1:
        notes.append(f"One of {model.tp} devices: what they send each other is not counted.")
    served = found.served
    if served.stages > 1:
        notes.append(
            f"{count(served.stages)} stages: a decode step is at best one of as many micro-batches, of "
            f"{plural(found.micro_batch, 'sequence')}, and a prefill is cut so that all work at once."
        )
    if served.drafts:
        notes.append(
            f"Tokens per second have no bound here: a step checks {plural(served.drafts, 'drafted token')} of each "
            "sequence, and nothing says how many it takes."
        )
    if found.decode:
        notes.append(_batch_note(found))
        notes.append("Of a prefill's logits those of the last token are counted, of each sequence.")
    if any(layers.mlp and layers.mlp.n_experts for layers in model.main.layers):
        notes.append(
            "Experts: as many are read as tokens can pick, min(n_experts, tokens * n_experts_per_token) a layer; "
            "where tokens pick the same ones, a step may be faster."
        )
    kept = [cached for layers in model.main.layers for cached in layers.cache()]
    if any(isinstance(cached.span, Pools) for cached in kept):
        notes.append("Pooled tokens are taken as read whole: where an indexer picks some, a step may be faster.")
    if workload.lengths:
        notes.append("All sequences are taken as long as the longest.")
    return tuple(notes)


def _math_notes(found: Roofline, math: str, stored: str) -> list[str]:
    """In what narrow weights are multiplied, and why."""
    bits = found.weights_dtype.bits
    if bits >= 16:
        return []
    if math == stored:
        return [f"{stored} weights are multiplied in {math}, activations made as narrow (W{bits}A{bits})."]
    own = RUNS_IN[stored][0]
    if own in ("bf16", "fp16"):
        return [f"{stored} weights are only stored so, and multiplied in {math} (W{bits}A16)."]
    if math == own:
        return [f"{stored} weights are multiplied in {math}, activations made as narrow, as llama.cpp does."]
    return [f"{stored} weights are multiplied in {math}: {found.gpu.title} has no FLOP/s for {own}."]


def _batch_note(found: Roofline) -> str:
    ridge, limit = number(float(found.ridge)), number(float(found.limit or 0))
    if found.compute_bound_batch is not None:
        return f"From batch {count(found.compute_bound_batch)} on a decode step is not bound by memory any more."
    return (
        f"A decode step is bound by memory at every batch: each sequence brings its own cache, so larger batches near "
        f"{limit} FLOP per byte, below the {ridge} of this GPU."
    )


Compared = tuple[tuple[dict[str, Any], tuple[Figure, ...]], ...]
"""Each variant's facts and figures, as a report's layers."""


def roofline_variants(
    model: ModelSpec,
    workload: Workload,
    gpu: Gpu,
    *,
    weights_dtype: str | None = None,
    served: ServingConfig = ALONE,
) -> tuple[tuple[Table, ...], Compared]:
    """A decode step of the model as MHA, GQA as released, MQA and MLA on that GPU; as released marked.

    The MLA is of DeepSeek's shape, a latent as wide as 4 heads. No table for an encoder, where there is nothing
    to compare, or where its files hold quantised weights: other attention has no files.
    """
    asked = dataclasses.replace(workload, lengths=None)
    read = [bytes_read(each, asked, weights_dtype=weights_dtype) for each in (model, _without_files(model))]
    if not model.main.has_cache or read[0] != read[1]:
        return (), ()
    try:
        named = variants(model, _latent(model))
    except AttncalcError:
        named = variants(model)
    named = {n: each for n, each in named.items() if not n.startswith("GQA") or each.stacks == model.stacks}
    if len(named) < 2:
        return (), ()
    bounds = {
        name: roofline(_without_files(each), workload, gpu, weights_dtype=weights_dtype, served=served)
        for name, each in named.items()
    }
    released = next(i for i, each in enumerate(named.values()) if each.stacks == model.stacks)
    columns = (
        Column("decode", "left"),
        Column("a step,\nat least"),
        Column("at best\ntokens/s"),
        Column("bound by", "left"),
        Column("not bound by\nmemory from"),
        Column("FLOP\n/byte"),
    )
    rows = tuple(
        _variant_row(f"{name} *" if i == released else name, found) for i, (name, found) in enumerate(bounds.items())
    )
    layers = tuple(
        ({"name": name, "released": i == released, **roofline_more(found)}, roofline_figures(found, name))
        for i, (name, found) in enumerate(bounds.items())
    )
    return (Table(columns, rows, strong=frozenset({released})),), layers


def _without_files(model: ModelSpec) -> ModelSpec:
    return dataclasses.replace(model, stored=None)


def _latent(model: ModelSpec) -> tuple[str, ...]:
    """The MLA to compare with; none where the model has one of its own, or no heads."""
    around = model.main.leading.widths()
    own = any(cached.role == "latent" for layers in model.main.layers for cached in layers.cache())
    return (f"mla:{DEEPSEEK * int(around.d_qk)}",) if around.n_heads and not own else ()


def _variant_row(name: str, found: Roofline) -> tuple[str, ...]:
    step = found.decode
    if step is None:
        return (name, "-", "-", "-", "-", "-")
    batch = "never" if found.compute_bound_batch is None else f"batch {count(found.compute_bound_batch)}"
    speed = f"{float(found.tokens_per_second):,.0f}" if found.tokens_per_second else "-"
    time = Figure("", "", step.seconds, SECONDS).human
    return (name, time, speed, step.bound_by, batch, number(float(step.intensity)))
