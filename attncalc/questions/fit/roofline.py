"""The roofline as a section of other reports: figures, tables, notes, and the same model with other
attention.

Every label names the figure as a bound.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

from ...errors import AttncalcError
from ...hardware import MATMUL_DTYPES
from ...model import ModelSpec, plural
from ...serving.answer import Answer
from ...serving.request import file_type
from ...serving.roofline import HostRead, Roofline, Step, roofline
from ...serving.weights_read import bytes_read
from ...show.figures import FigureRow, FigureRows, ratio_row
from ...show.report import (
    Column,
    Figure,
    Report,
    Section,
    Table,
    context_fact,
    heading,
    number,
    workload_facts,
)
from ...units import BYTES, FLOP, NO_UNIT, PER_SECOND, SECONDS, count, human, quotient
from ...workload import Workload

_WILLIAMS = (
    "Williams et al. 2009, doi:10.1145/1498765.1498785: the longer of FLOP / peak and bytes / "
    "bandwidth"
)
# Width of MLA's latent divided by that of a head: 512 / 128. DeepSeek-V2, arXiv:2405.04434, 3.1.2.
_LATENT_HEADS = 4
NO_EXPERTS = "without experts"
# The bounds of time of an attention variant.
FIGURES = FigureRows(
    prefill_time_bound=ratio_row(
        "prefill takes at least",
        "the shortest possible time of a prefill",
        unit=SECONDS,
        title="Lower bound of the time of a prefill",
    ),
    decode_time_bound=ratio_row(
        "a decode step takes at least",
        "the shortest possible time of a decode step",
        unit=SECONDS,
        title="Lower bound of the time of a decode step",
    ),
    decode_tokens_per_second_bound=ratio_row(
        "at most, of the batch",
        "the highest possible rate of the batch",
        "with drafted tokens",
        unit=PER_SECOND,
        title="Upper bound of the speed of the batch",
    ),
    prefill_time_expected_experts=ratio_row(
        "prefill with the expected experts",
        "the time of a prefill with the expected experts, which is no bound",
        NO_EXPERTS,
        unit=SECONDS,
    ),
    decode_time_expected_experts=ratio_row(
        "decode step with the expected experts",
        "the time of a decode step with the expected experts, which is no bound",
        NO_EXPERTS,
        unit=SECONDS,
    ),
    decode_tokens_per_second_expected_experts=ratio_row(
        "of the batch, with the expected experts",
        "the rate of the batch with the expected experts",
        f"{NO_EXPERTS}, with drafted tokens",
        unit=PER_SECOND,
    ),
    decode_compute_bound_batch=FigureRow(
        "compute-bound from batch",
        NO_UNIT,
        "the batch from which decode is compute-bound, with the expected experts",
        "if it never is, with layers on the host",
    ),
    ridge_flop_per_byte=ratio_row(
        "FLOP per byte of the GPU (its ridge)",
        "the FLOP per byte from which a step is compute-bound on this GPU",
    ),
    prefill_flop_per_byte=ratio_row(
        "FLOP per byte of the prefill", "FLOP per byte of the prefill, with the expected experts"
    ),
    decode_flop_per_byte=ratio_row(
        "FLOP per byte of a decode step",
        "FLOP per byte of a decode step, with the expected experts",
    ),
    decode_flop_per_byte_limit=ratio_row(
        "upper bound of FLOP per byte, of any batch",
        "what decode_flop_per_byte approaches in growing batches",
        "with layers on the host",
    ),
)
# The same of `fit`.
IN_FIT = {
    name: row._replace(null_if=", and ".join(filter(None, (row.null_if, "without a roofline"))))
    for name, row in FIGURES.items()
}


def roofline_section(answer: Answer, *, with_variants: bool = True) -> Section:
    """Return the bounds on the request's GPU. Without a GPU, or without its FLOP/s, figures have no
    numbers.

    The bounds of attention variants take as long as all other figures together.
    """
    bounds, reason = answer.bounds
    resolved = answer.resolved
    if bounds is None:
        return Section(roofline_figures(None), notes=(f"No roofline: {reason}.",) if reason else ())
    section = _section(resolved.model, bounds.workload, bounds)
    tables: tuple[Table, ...] = ()
    layers: Variants = ()
    if with_variants and bounds.host is None:
        tables, layers = roofline_variants(
            resolved.model, bounds.workload, bounds, resolved.weights_dtype
        )
    notes = section.notes
    if tables:
        legend = "* the model itself; the others are what-ifs: the same model with other attention."
        notes = (*notes, legend)
    variants = [
        {**facts, **{figure.name: figure.value for figure in figures}} for facts, figures in layers
    ]
    return section._replace(
        tables=(*section.tables, *tables),
        notes=notes,
        extra={**roofline_facts(bounds), "variants": variants},
    )


def roofline_report(model: ModelSpec, workload: Workload, bounds: Roofline) -> Report:
    """Return the bounds as a report of their own; `model` is one device's share."""
    facts = (bounds.gpu.title, f"batch {count(workload.batch)}", context_fact(workload))
    section = _section(model, workload, bounds)
    return Report(
        "fit",
        heading(model, *facts),
        model.facts(),
        workload_facts(model, workload),
        section.figures,
        tables=section.tables,
        notes=section.notes,
        terms=section.terms,
        extra=roofline_facts(bounds),
        has_fail_if=True,
    )


def _section(model: ModelSpec, workload: Workload, bounds: Roofline) -> Section:
    return Section(
        roofline_figures(bounds),
        roofline_terms(bounds),
        roofline_tables(bounds, workload),
        roofline_notes(model, workload, bounds),
    )


def roofline_figures(bounds: Roofline | None, of: str = "") -> tuple[Figure, ...]:
    """Return the bounds, whose names scripts rely on. A figure that does not apply has no
    number.
    """
    prefill = bounds and bounds.prefill
    decode = bounds and bounds.decode
    prefill_expected = bounds and bounds.prefill_expected
    decode_expected = bounds and bounds.decode_expected
    prefill_step = prefill_expected or prefill
    decode_step = decode_expected or decode
    return FIGURES.filled(
        _WILLIAMS if bounds else "",
        of,
        prefill_time_bound=prefill and prefill.seconds,
        decode_time_bound=decode and decode.seconds,
        decode_tokens_per_second_bound=bounds and bounds.tokens_per_second,
        prefill_time_expected_experts=prefill_expected and prefill_expected.seconds,
        decode_time_expected_experts=decode_expected and decode_expected.seconds,
        decode_tokens_per_second_expected_experts=bounds and bounds.tokens_per_second_expected,
        decode_compute_bound_batch=bounds and bounds.compute_bound_batch,
        ridge_flop_per_byte=bounds and bounds.ridge,
        prefill_flop_per_byte=prefill_step and prefill_step.intensity,
        decode_flop_per_byte=decode_step and decode_step.intensity,
        decode_flop_per_byte_limit=bounds and bounds.limit,
    )


def roofline_terms(bounds: Roofline) -> tuple[Figure, ...]:
    """Return the terms of the figures' formulas that have a formula themselves, for --explain."""
    steps = (
        ("prefill", "prefill", bounds.prefill),
        ("decode", "decode", bounds.decode),
        ("prefill_expected", "prefill with the expected experts", bounds.prefill_expected),
        ("decode_expected", "decode with the expected experts", bounds.decode_expected),
    )
    terms: list[Figure] = []
    for name, label, step in steps:
        if step is None:
            continue
        for part, words, quantity, unit in (
            ("flops", "FLOP", step.flops, FLOP),
            ("weights_read", "weights read", step.weights, BYTES),
            ("cache_read", "cache read or written", step.cache, BYTES),
            ("compute_time", "at the peak", step.by_compute, SECONDS),
            ("memory_time", "at the bandwidth", step.by_memory, SECONDS),
        ):
            terms.append(Figure(f"{name}_{part}", f"{label}: {words}", quantity, unit, _WILLIAMS))
    return tuple(terms)


def roofline_facts(bounds: Roofline) -> dict[str, Any]:
    """Return the keys of JSON besides the figures."""
    return {
        "gpu": bounds.gpu.name,
        "prefill_batch": int(bounds.prompt.batch),
        "prefill_context": int(bounds.prompt.context),
        "decode_batch": int(bounds.workload.batch),
        "decode_context": int(bounds.workload.context),
        "weights_dtype": bounds.weights_dtype.name,
        "math_dtype": bounds.math.dtype,
        "prefill_bound_by": bounds.prefill.bound_by,
        "decode_bound_by": bounds.decode and bounds.decode.bound_by,
        "prefill_expected_experts_bound_by": bounds.prefill_expected
        and bounds.prefill_expected.bound_by,
        "decode_expected_experts_bound_by": bounds.decode_expected
        and bounds.decode_expected.bound_by,
    }


def roofline_tables(bounds: Roofline, workload: Workload) -> tuple[Table, ...]:
    """Return the prefill and the decode step: time, what bounds it, compute and memory time.

    The first table has lower bounds; a mixture has a second one, with the expected experts.
    """
    lower = _steps_table(
        "lower bound", "at most\ntokens/s", bounds, workload, bounds.prefill, bounds.decode
    )
    if bounds.prefill_expected is None:
        return (lower,)
    expected = bounds.prefill_expected, bounds.decode_expected
    return lower, _steps_table("expected\nexperts", "tokens/s", bounds, workload, *expected)


def _steps_table(
    title: str, rate: str, bounds: Roofline, workload: Workload, prefill: Step, decode: Step | None
) -> Table:
    columns = (
        Column(title, "left"),
        Column("time"),
        Column("bound by", "left"),
        Column("compute", drop=2),
        Column("memory", drop=3),
        Column("FLOP\n/byte", drop=1),
        Column(rate),
    )
    prompt = bounds.prompt
    steps: list[tuple[str, Step | None, int]] = [
        ("prefill", prefill, prompt.batch * prompt.context)
    ]
    steps += [("decode", decode, 0 if bounds.config.drafts else workload.batch)]
    rows = [
        (
            name,
            quotient(step.seconds, SECONDS),
            step.bound_by,
            quotient(step.by_compute, SECONDS),
            quotient(step.by_memory, SECONDS),
            number(float(step.intensity)),
            f"{int(tokens) * step.seconds.denominator / step.seconds.numerator:,.0f}"
            if tokens
            else "-",
        )
        for name, step, tokens in steps
        if step
    ]
    return Table(columns, tuple(rows))


def bounds_text(bounds: Roofline, of_most: Roofline | None) -> str:
    """Return the answer: 'At most 68 tokens/s for one request, 994 in total for 40 requests. A
    decode step ...'.

    `of_most` has as many requests as fit.
    """
    batch = bounds.workload.batch
    rate = float(bounds.tokens_per_second or 0)
    answer = []
    if rate:
        of_all = f"of {plural(batch, 'request')}" if batch > 1 else "for one request"
        if of_most and of_most.tokens_per_second:
            total = f"{float(of_most.tokens_per_second):,.0f} in total"
            of_all += f", {total} for {plural(of_most.workload.batch, 'request')}"
        answer.append(f"At most {rate:,.{1 if rate < 10 else 0}f} tokens/s {of_all}.")
    if bounds.compute_bound_batch is None:
        larger = ""
    else:
        larger = f" below batch {count(bounds.compute_bound_batch)}"
    larger = "" if bounds.host else larger or " at every batch"
    decode = f"A decode step at context {count(bounds.workload.context)}"
    for name, step in ((decode, bounds.decode), ("A prefill", bounds.prefill)):
        if step is None:
            continue
        time = f"{name} takes at least {quotient(step.seconds, SECONDS)}, {step.bound_by}-bound"
        if step is bounds.decode and step.bound_by == "memory":
            time += larger
        answer.append(f"{time}.")
    return " ".join(answer)


def roofline_notes(model: ModelSpec, workload: Workload, bounds: Roofline) -> tuple[str, ...]:
    """Return the notes. The first one says what the bounds assume; the others are details."""
    math = bounds.math.dtype
    stored = bounds.weights_dtype.name
    if model.tp > 1:
        devices = f", without the communication between the {model.tp} devices"
    else:
        devices = ""
    assumed = [
        f"Bounds, not estimates: the dense {math} peak and the bandwidth of {bounds.gpu.title}, "
        f"with weights and cache read once{devices}. Real software takes longer."
    ]
    if bounds.prompt != bounds.workload:
        prompt = count(bounds.prompt.context)
        length = count(workload.context)
        assumed.append(
            f"The prefill is that of one prompt of {prompt} tokens without a cached prefix, and "
            "a decode step has "
            f"{plural(workload.batch, 'request')} of {length} tokens, their average length."
        )
    if bounds.config.drafts:
        assumed.append(
            "Tokens per second have no bound here: a step verifies "
            f"{plural(bounds.config.drafts, 'drafted token')} "
            "per sequence, and how many it accepts is unknown."
        )
    if bounds.decode and bounds.host:
        assumed.append(_host_note(bounds.host))
    if workload.lengths:
        assumed.append("All sequences are assumed to be as long as the longest.")
    notes = [" ".join(assumed), *_math_notes(bounds, math, file_type(model) or stored)]
    if (stages := bounds.config.stages) > 1:
        notes.append(
            f"{count(stages)} stages: a decode step is split into as many micro-batches, of "
            f"{plural(bounds.micro_batch, 'sequence')} each, and a prefill so that all stages "
            "work in parallel."
        )
    if bounds.decode:
        notes += [] if bounds.host else [_batch_note(bounds)]
        notes.append("Prefill computes logits only for the last token of each sequence.")
    if bounds.prefill_expected:
        notes += _expert_notes(model)
    cached = [spec for layers in model.main.layers for spec in layers.cache()]
    if any(spec.span.label == "pools" for spec in cached):
        notes.append(
            "Pooled tokens are all read; if an indexer picks some of them, a step may be faster."
        )
    return tuple(notes)


def _expert_notes(model: ModelSpec) -> Iterator[str]:
    """Yield which experts a step reads, and whose tokens they compute."""
    mlps = [layers.mlp for _, layers in model.groups() if layers.mlp]
    devices = max(int(mlp.devices) for mlp in mlps)
    ranks = max(int(mlp.ranks) for mlp in mlps)
    fewest = "n_experts_per_token routed experts per layer"
    if devices > 1:
        fewest = f"n_experts_per_token / {devices} routed experts per layer of a device, rounded up"
    yield (
        f"Experts: the lower bounds read {fewest}, as if all tokens picked the same ones. The "
        "expected number, "
        "E (1 - (1 - k / E)^B) of B tokens that pick k of E at random, is no bound."
    )
    if ranks > 1:
        yield (
            f"Tokens per second are those of one of {ranks} data-parallel ranks; the experts "
            "compute the tokens of all ranks."
        )


def _math_notes(bounds: Roofline, math: str, stored: str) -> list[str]:
    """Return a note on the dtype in which narrow weights, which are stored in another, are
    multiplied.
    """
    bits = bounds.weights_dtype.bits
    if bits >= 16:
        return []
    if math == stored:
        return [
            f"{stored} weights are multiplied in {math} with activations in {math} "
            f"(W{bits}A{bits})."
        ]
    native = MATMUL_DTYPES[bounds.weights_dtype.name][0]
    if native in ("bf16", "fp16"):
        return [f"{stored} weights are converted and multiplied in {math} (W{bits}A16)."]
    if math == native:
        return [
            f"{stored} weights are multiplied in {math} with activations in {math}, as in "
            "llama.cpp."
        ]
    return [
        f"{stored} weights are multiplied in {math}: {bounds.gpu.title} has no FLOP/s for {native}."
    ]


def _host_note(host: HostRead) -> str:
    speed = (
        f"{host.bandwidth / 10**9:,.1f} "
        f"GB/s{', assumed (--ram-bandwidth)' if host.is_assumed else ''}"
    )
    return (
        f"A decode step reads {human(host.size, BYTES)} in host memory at {speed}. The prefill's "
        "bound is that of all layers on GPUs."
    )


def _batch_note(bounds: Roofline) -> str:
    ridge = number(float(bounds.ridge))
    limit = number(float(bounds.limit or 0))
    if bounds.compute_bound_batch is not None:
        experts = ", with the expected experts" if bounds.decode_expected else ""
        return f"Decode is compute-bound from batch {count(bounds.compute_bound_batch)}{experts}."
    return (
        f"At a context of {count(bounds.workload.context)} tokens decode is memory-bound at "
        "every batch, since each "
        f"sequence has its own cache: it reaches at most {limit} FLOP/byte, and this GPU needs "
        f"{ridge}. A shorter context has a smaller cache."
    )


# Each variant's facts and figures, as a report's layers.
Variants = tuple[tuple[dict[str, Any], tuple[Figure, ...]], ...]


def roofline_variants(
    model: ModelSpec, workload: Workload, bounds: Roofline, weights_dtype: str | None = None
) -> tuple[tuple[Table, ...], Variants]:
    """Return the table, facts and figures of a decode step with MHA, the model's own GQA, MQA and
    MLA.

    The MLA has DeepSeek's shape, a latent as wide as 4 heads. The result is empty for an encoder,
    for a single variant, and for a model whose files hold quantized weights, because a variant has
    no files to compare with. `model` is one device's share, and `bounds` are its own.
    """
    by_name = _variants(model, workload, weights_dtype)
    if len(by_name) < 2:
        return (), ()
    rows = []
    layers = []
    strong = 0
    for i, (name, variant) in enumerate(by_name.items()):
        released = variant.stacks == model.stacks
        strong = i if released else strong
        bound = bounds
        if not released or model.stored is not None:
            bound = roofline(
                variant, workload, bounds.gpu, weights_dtype=weights_dtype, config=bounds.config
            )
        rows.append(_variant_row(f"{name} *" if released else name, bound))
        layers.append(
            (
                {"name": name, "released": released, **roofline_facts(bound)},
                roofline_figures(bound, name),
            )
        )
    columns = (
        Column("decode", "left"),
        Column("a step,\nat least"),
        Column("at most\ntokens/s"),
        Column("bound by", "left"),
        Column("compute-bound\nfrom", drop=2),
        Column("FLOP\n/byte", drop=1),
    )
    return (Table(columns, tuple(rows), strong=frozenset({strong})),), tuple(layers)


def _variants(
    model: ModelSpec, workload: Workload, weights_dtype: str | None
) -> dict[str, ModelSpec]:
    """Return the attention variants without files, by name; {} if the model cannot be compared with
    them.
    """
    from ..compare.variants import variants

    full = dataclasses.replace(workload, lengths=None)
    without_files = dataclasses.replace(model, stored=None)
    read, read_without = (
        bytes_read(each, full, weights_dtype=weights_dtype) for each in (model, without_files)
    )
    if not model.main.has_cache or read != read_without:
        return {}
    try:
        by_name = variants(without_files, _latent(model))
    except AttncalcError:
        by_name = variants(without_files)
    shown: dict[str, ModelSpec] = {}
    for name, variant in by_name.items():
        if not name.startswith("GQA") or variant.stacks == model.stacks:
            shown[name] = variant
    return shown


def _latent(model: ModelSpec) -> tuple[str, ...]:
    """Return the MLA to compare with; none if the model has MLA itself, or no heads."""
    widths = model.main.leading.widths()
    has_latent = any(
        cached.role == "latent" for layers in model.main.layers for cached in layers.cache()
    )
    if widths.n_heads and not has_latent:
        return (f"mla:{_LATENT_HEADS * int(widths.d_qk)}",)
    return ()


def _variant_row(name: str, bounds: Roofline) -> tuple[str, ...]:
    step = bounds.decode
    if step is None:
        return (name, "-", "-", "-", "-", "-")
    if bounds.compute_bound_batch is None:
        batch = "never"
    else:
        batch = f"batch {count(bounds.compute_bound_batch)}"
    if bounds.tokens_per_second:
        speed = f"{float(bounds.tokens_per_second):,.0f}"
    else:
        speed = "-"
    intensity = (bounds.decode_expected or step).intensity
    return (
        name,
        quotient(step.seconds, SECONDS),
        speed,
        step.bound_by,
        batch,
        number(float(intensity)),
    )
