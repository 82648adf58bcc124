"""The report of `attncalc compare`: one model's attention as every kind, or several models."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..attention import Grouped, Latent
from ..cost.cache import kv_cache
from ..cost.flops import flops
from ..cost.intensity import decode_intensity
from ..cost.params import params
from ..errors import AttncalcError
from ..model import ModelSpec
from ..quantity import named, quantity, ratio
from ..units import BYTES, FLOP, NO_UNIT, PARAMS, count
from ..workload import Workload
from .layers import attention_source
from .notes import compare_notes
from .report import Column, Figure, Report, Table, heading, unit_column, workload_facts

Variant = tuple[str, ModelSpec]
"""A row of the table: its name and the model it stands for."""


def variants(model: ModelSpec, latents: Sequence[str] = ()) -> list[Variant]:
    """`model` as MHA, every GQA that divides its heads, MQA, each of `latents` ('mla:512'), and as it is.

    A number of KV heads that cannot be split over the model's devices is left out.

    AttncalcError: one of `latents` is not a variant.
    """
    heads = int(model.main.layers[0].attention.widths().n_heads)
    found = []
    for n in (n for n in range(heads, 0, -1) if heads % n == 0):
        name = "MHA" if n == heads else "MQA" if n == 1 else f"GQA-{n}"
        try:
            found.append((name, model.with_attention(f"gqa:{n}").shard(model.tp)))
        except AttncalcError:  # n does not divide another layer's heads, or the devices
            continue
    for text in latents:
        found.append((text.upper().replace(":", "-"), model.with_attention(text).shard(model.tp)))
    if not any(_same(variant, model) for _, variant in found):
        found.append((_name(model), model))
    return found


def _same(a: ModelSpec, b: ModelSpec) -> bool:
    return a.stacks == b.stacks


def _name(model: ModelSpec) -> str:
    attention = model.main.layers[0].attention
    if isinstance(attention, Latent):
        return f"MLA-{attention.kv_lora_rank}"
    kv_heads = attention.widths().n_kv_heads
    return f"{attention.label}-{kv_heads}" if isinstance(attention, Grouped) else attention.label


def compare_variants(model: ModelSpec, workload: Workload, latents: Sequence[str] = ()) -> Report:
    """One model's attention as MHA, every GQA, MQA and each of `latents`; as released marked."""
    rows = variants(model, latents)
    measured = [(name, _measure(variant, workload, name, against=rows[0][1])) for name, variant in rows]
    released = next(i for i, (_, variant) in enumerate(rows) if _same(variant, model))
    facts = [
        {"name": name, "released": i == released, "attention": variant.main.layers[0].attention.facts()}
        for i, (name, variant) in enumerate(rows)
    ]
    return Report(
        "compare",
        heading(model, *_asked(workload)),
        model.facts(),
        workload_facts(model, workload),
        measured[released][1],
        tuple((fact, figures) for fact, (_, figures) in zip(facts, measured, strict=True)),
        (_variant_table(measured, released),),
        compare_notes([(variant, workload) for _, variant in [("", model), *rows]], variants=True),
    )


def compare_models(models: Sequence[ModelSpec], workloads: Sequence[Workload]) -> Report:
    """Several models side by side, each with its own workload; ratios are to the first."""
    first = kv_cache(models[0], workloads[0]).total
    measured = [
        (model.name, _measure(model, workload, model.name, first=int(first)))
        for model, workload in zip(models, workloads, strict=True)
    ]
    title = ", ".join(model.title for model in models)
    return Report(
        "compare",
        (f"{title}  side by side", ", ".join(fact for fact in _asked(workloads[0]) if fact)),
        models[0].facts(),
        workload_facts(models[0], workloads[0]),
        measured[0][1],
        tuple((model.facts(), figures) for model, (_, figures) in zip(models, measured, strict=True)),
        tuple(_model_table(models, measured, start) for start in range(0, len(models), 3)),
        compare_notes(list(zip(models, workloads, strict=True)), variants=False),
    )


def _asked(workload: Workload) -> list[str]:
    return [
        f"batch {count(workload.batch)}",
        f"context {count(workload.context)}",
        f"source {count(workload.source)}" if workload.source else "",
        "prefill of all of it, decode of one token at it",
    ]


def _measure(
    model: ModelSpec, workload: Workload, name: str, *, against: ModelSpec | None = None, first: int = 0
) -> tuple[Figure, ...]:
    prefill = dataclasses.replace(workload, phase="prefill", new=workload.context)
    decode = dataclasses.replace(workload, phase="decode", new=1)
    cache = kv_cache(model, workload)
    base = int(kv_cache(against, workload).total) if against else first
    counted, source = params(model), attention_source(model)
    encoder = not model.main.keeps_cache
    figures = [
        Figure("n_kv_heads", "KV heads", quantity(_kv_heads(model)), NO_UNIT),
        Figure("params_total", "parameters", counted.total, PARAMS),
        Figure("params_attention", "attention parameters", counted.attention, PARAMS, source),
        Figure("kv_cache_per_token", "KV of one more token", cache.per_token, BYTES, source),
        Figure("kv_cache", "KV cache", cache.total, BYTES, source),
        Figure(
            "kv_cache_ratio",
            "KV cache over the first's",
            ratio(
                named(cache.total, "kv_cache", "bytes"), named(base, "kv_cache_first", "bytes of the first")
            ),
            NO_UNIT,
        ),
        Figure("flops_prefill", "prefill", flops(model, prefill).total, FLOP),
    ]
    if not encoder:
        read = decode_intensity(model, decode)
        figures += [
            Figure("flops_decode", "one decode step", flops(model, decode).total, FLOP),
            Figure("decode_flop_per_byte", "FLOP per byte read in decode", read.per_byte, NO_UNIT),
            Figure(
                "decode_flop_per_cache_byte", "FLOP of scores per byte of cache", read.per_cache_byte, NO_UNIT
            ),
        ]
    return tuple(f._replace(of=name) for f in figures)


def _kv_heads(model: ModelSpec) -> int:
    """KV heads whose K and V are kept; MLA keeps one latent for all."""
    attention = model.symbolic().main.layers[0].attention
    return 1 if isinstance(attention, Latent) else attention.widths().n_kv_heads


_COLUMNS = (
    ("params_attention", "attn.", PARAMS),
    ("kv_cache_per_token", "KV/token", BYTES),
    ("kv_cache", "KV cache", BYTES),
    ("kv_cache_ratio", "of\nMHA", NO_UNIT),
    ("flops_prefill", "prefill", FLOP),
    ("flops_decode", "decode", FLOP),
    ("decode_flop_per_byte", "FLOP\n/byte", NO_UNIT),
)


def _variant_table(measured: Sequence[tuple[str, tuple[Figure, ...]]], released: int) -> Table:
    columns = [Column("", "left"), Column("KV\nheads")]
    cells = [
        [f"{name}{' *' if i == released else ''}" for i, (name, _) in enumerate(measured)],
        [count(int(_of(figures, "n_kv_heads").value)) for _, figures in measured],  # type: ignore[union-attr]
    ]
    for name, header, unit in _COLUMNS:
        found = [_of(figures, name) for _, figures in measured]
        if not all(found):
            continue
        if unit == NO_UNIT:
            columns.append(Column(header))
            cells.append([_short(f.value) for f in found if f])
        else:
            column, shown = unit_column(header, [int(f.value) for f in found if f], unit)
            columns.append(column)
            cells.append(shown)
    return Table(tuple(columns), tuple(zip(*cells, strict=True)), strong=frozenset({released}))


def _of(figures: Sequence[Figure], name: str) -> Figure | None:
    return next((f for f in figures if f.name == name), None)


def _short(value: float) -> str:
    """A ratio in at most three digits behind the point: '0.125', '8', '36.1'."""
    if value == int(value):
        return count(int(value))
    return f"{value:.3f}".rstrip("0") if value < 1 else f"{value:,.1f}"


def _model_table(
    models: Sequence[ModelSpec], measured: Sequence[tuple[str, tuple[Figure, ...]]], start: int
) -> Table:
    shown = list(zip(models, measured, strict=True))[start : start + 3]
    columns = (Column("", "left"), *(Column(model.name) for model, _ in shown))
    rows = [("attention", *(model.main.layers[0].attention.label for model, _ in shown))]
    rows.append(("layers", *(count(model.main.n_layers) for model, _ in shown)))
    labels = dict.fromkeys((f.name, f.label) for _, (_, figures) in shown for f in figures)
    for name, label in labels:
        found = [_of(figures, name) for _, (_, figures) in shown]
        cells = [_short(f.value) if f and f.unit == NO_UNIT else f.human if f else "-" for f in found]
        rows.append((label, *cells))
    return Table(columns, tuple(rows))
