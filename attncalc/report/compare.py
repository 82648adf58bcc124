"""The report of `attncalc compare`: variants of one model's attention, or several models."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from ..cost.cache import kv_cache
from ..cost.flops import flops
from ..cost.intensity import decode_intensity
from ..cost.params import params
from ..cost.windows import without_windows
from ..errors import AttncalcError
from ..model import ModelSpec
from ..quantity import Quantity, Ratio, named, quantity, ratio
from ..units import BYTES, FLOP, NO_UNIT, PARAMS, column, count
from ..workload import Workload
from .charts.compare import compare_picture
from .layers import attention_source, kv_heads
from .notes import WARNING, context_notes, device_notes, kind_notes, model_notes
from .per_token import AT_CONTEXT, NO_WINDOW_FULL, at_context, no_window_full
from .report import Column, Figure, Report, Table, heading, unit_column, workload_facts
from .text import WIDTH

MAX_HEADS = 10**12
"""Query heads of which the divisors are searched, up to the square root."""

Row = tuple[str, ModelSpec, dict[str, Figure]]
"""A row of the comparison: its name, the model, and its figures by name."""


def variants(model: ModelSpec, further: Sequence[str] = ()) -> dict[str, ModelSpec]:
    """Return `model` as MHA, every GQA, MQA, each of `further` ('mla:512') and as released, by name.

    A number of KV heads that does not divide the query heads, or cannot be split over the devices, is left out.

    Raises AttncalcError if one of `further` is not a variant.
    """
    heads = int(model.main.leading.widths().n_heads)
    by_name = {}
    for n in _divisors(heads):
        try:
            variant = model.with_attention(f"gqa:{n}").shard(model.tp)
        except AttncalcError:  # n does not divide another layer's heads, or the devices
            continue
        by_name["MHA" if n == heads else "MQA" if n == 1 else f"GQA-{n}"] = variant
    for text in further:
        variant = model.with_attention(text).shard(model.tp)
        if variant.stacks not in [known.stacks for known in by_name.values()]:
            by_name[text.upper().replace(":", "-")] = variant
    if model.stacks not in [known.stacks for known in by_name.values()]:
        by_name[_name(model)] = model
    return by_name


def _divisors(number: int) -> list[int]:
    """Return the divisors, the largest first: 6, 3, 2, 1. Raises AttncalcError for a number above MAX_HEADS."""
    if number > MAX_HEADS:
        raise AttncalcError(f"compare: n_heads: {count(number)} is more than {count(MAX_HEADS)}", "correct n_heads")
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)}, reverse=True)


def _name(model: ModelSpec) -> str:
    """Return the name of the released variant: 'MLA-512', or 'MLA-512/GQA-8' if layers differ."""
    return "/".join(dict.fromkeys(layers.attention.tag for layers in model.main.layers))


def compare_variants(model: ModelSpec, workload: Workload, further: Sequence[str] = ()) -> Report:
    """Return one model's attention as MHA, every GQA, MQA and each of `further`; the released one is marked."""
    by_name = variants(model, further)
    base_bytes = int(kv_cache(next(iter(by_name.values())), workload).total)
    rows: list[Row] = [
        (name, variant, _figures(variant, workload, name, base_bytes)) for name, variant in by_name.items()
    ]
    released = next(i for i, (_, variant, _) in enumerate(rows) if variant.stacks == model.stacks)
    lines = heading(model, *_workload_line(model, workload))
    return Report(
        "compare",
        lines,
        model.facts(),
        workload_facts(model, workload),
        tuple(rows[released][2].values()),
        tuple((_facts(row, i == released), tuple(row[2].values())) for i, row in enumerate(rows)),
        (_variant_table(rows, released),),
        _variant_notes(model, workload, [variant for _, variant, _ in rows]),
        picture=compare_picture(_named(rows), lines, [workload_facts(model, workload)], released),
    )


def compare_models(models: Sequence[ModelSpec], workloads: Sequence[Workload]) -> Report:
    """Return several models side by side, each with its own workload; ratios are to the first model."""
    base_bytes = int(kv_cache(models[0], workloads[0]).total)
    pairs = zip(models, workloads, strict=True)
    rows: list[Row] = [(m.name, m, _figures(m, w, m.name, base_bytes)) for m, w in pairs]
    title = ", ".join(model.title for model in models)
    lines = (f"{title}  side by side", ", ".join(fact for fact in _workload_line(models[0], workloads[0]) if fact))
    facts = [workload_facts(model, workload) for model, workload in zip(models, workloads, strict=True)]
    return Report(
        "compare",
        lines,
        models[0].facts(),
        facts[0],
        tuple(rows[0][2].values()),
        tuple((_facts(row, True), tuple(row[2].values())) for row in rows),
        _model_tables(rows),
        _model_notes(models, workloads),
        picture=compare_picture(_named(rows), lines, facts),
    )


def _named(rows: Sequence[Row]) -> list[tuple[str, dict[str, Figure]]]:
    return [(name, figures) for name, _, figures in rows]


def _workload_line(model: ModelSpec, workload: Workload) -> list[str]:
    source = f"source {count(workload.source)}" if workload.source else ""
    steps = "prefill and one decode step" if model.main.has_cache else "prefill"
    return [f"batch {count(workload.batch)}", f"context {count(workload.context)}", source, steps]


def _facts(row: Row, released: bool) -> dict[str, Any]:
    name, model, _ = row
    return {**model.facts(), "name": name, "released": released, "attention": model.main.leading.facts()}


def _figures(model: ModelSpec, workload: Workload, name: str, base_bytes: int) -> dict[str, Figure]:
    """Return the figures of one row; kv_cache_ratio is the cache divided by `base_bytes`, the first row's."""
    prefill = dataclasses.replace(workload, phase="prefill", new=workload.context)
    decode = dataclasses.replace(workload, phase="decode", new=1)
    cache, source = kv_cache(model, workload), attention_source(model)
    decodes = model.main.has_cache
    read = decode_intensity(model, decode) if decodes else None
    counted = params(model)
    to_first = (
        named(cache.total, "kv_cache", "bytes of the cache"),
        named(base_bytes, "kv_cache_first", "bytes of the first row's cache"),
    )

    def figure(key: str, label: str, value: Quantity | Ratio | None, unit: str) -> Figure:
        return Figure(key, label, value, unit, source, name)

    figures = (
        figure("n_kv_heads", "KV heads", quantity(kv_heads(model.symbolic().main.leading)), NO_UNIT),
        figure("params_total", "parameters", counted.total, PARAMS),
        figure("params_attention", "attention parameters", counted.attention, PARAMS),
        figure("kv_cache", "KV cache", cache.total, BYTES),
        at_context(cache.per_token, source, name),
        no_window_full(without_windows(model, workload).per_token, source, name),
        figure("kv_cache_ratio", "KV cache / the first's", ratio(*to_first) if base_bytes else None, NO_UNIT),
        figure("flops_prefill", "prefill", flops(model, prefill).total, FLOP),
        figure("flops_decode", "one decode step", flops(model, decode).total if decodes else None, FLOP),
        figure("decode_flop_per_byte", "decode FLOP per byte read", read and read.per_byte, NO_UNIT),
        figure("decode_flop_per_cache_byte", "score FLOP per cache byte", read and read.per_cache_byte, NO_UNIT),
    )
    return {known.name: known for known in figures}


_PER_TOKEN = "kv_cache_per_token_max"
_COLUMNS = (
    ("params_attention", "attn."),
    (_PER_TOKEN, "KV per\ntoken"),
    ("kv_cache", "KV cache"),
    ("kv_cache_ratio", "of\nMHA"),
    ("flops_prefill", "prefill"),
    ("flops_decode", "decode"),
    ("decode_flop_per_byte", "FLOP\n/byte"),
)


def _variant_table(rows: Sequence[Row], released: int) -> Table:
    columns = [Column("", "left"), Column("KV\nheads")]
    cells = [
        [f"{_short(name)} *" if i == released else name for i, (name, _, _) in enumerate(rows)],
        [figures["n_kv_heads"].human for _, _, figures in rows],
    ]
    for key, header in _COLUMNS:
        if key == "kv_cache_ratio" and rows[0][0] != "MHA":  # this model has no MHA variant
            continue
        figures = [by_key[key] for _, _, by_key in rows]
        if not any(figure.quantity for figure in figures):  # an encoder has no cache and no decode step
            continue
        if figures[0].unit == NO_UNIT:
            column, column_cells = Column(header), _ratios([figure.quantity for figure in figures])
        else:
            qualified = key == _PER_TOKEN and _per_token_differ(rows)
            name = "KV per\ntoken, no\nwindow\nfull" if qualified else header
            column, column_cells = unit_column(name, [figure.whole for figure in figures], figures[0].unit)
        columns.append(column)
        cells.append(column_cells)
    return Table(tuple(columns), tuple(zip(*cells, strict=True)), strong=frozenset({released}))


def _per_token_differ(rows: Sequence[Row]) -> bool:
    """Return whether the two figures per token differ in a row: at this context, a window is full."""
    return any(f["kv_cache_per_token"].value != f[_PER_TOKEN].value for _, _, f in rows)


def _short(name: str) -> str:
    """Return the row's name, or 'released' if it is too long to leave room for the figures."""
    return name if len(name) <= len("MLA-512") else "released"


def _ratios(values: Sequence[Quantity | Ratio | None]) -> list[str]:
    """Return ratios with the same number of decimals: three if all are at most 1, else two."""
    numbers = [float(value or 0) for value in values]
    digits = 3 if max(numbers) <= 1 else 2
    return [f"{value:,.{digits}f}" for value in numbers]


def _model_tables(rows: Sequence[Row]) -> tuple[Table, ...]:
    """Return the models as columns, as many per table as fit the width."""
    labels, *columns = zip(*_model_lines(rows), strict=True)
    room = WIDTH - 2 - max(map(len, labels))
    column_width = 2 + max(len(cell) for cells in columns for cell in cells)
    per_table = max(1, room // column_width)
    tables = []
    for start in range(0, len(columns), per_table):
        header, *body = zip(labels, *columns[start : start + per_table], strict=True)
        tables.append(Table((Column("", "left"), *(Column(name) for name in header[1:])), tuple(body)))
    return tuple(tables)


def _model_lines(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return one line per figure: its label with its unit, and a cell for each model; the first has their names."""
    kinds = ["/".join(dict.fromkeys(g.attention.label for g in model.main.layers)) for _, model, _ in rows]
    lines = [
        ("", *(name for name, _, _ in rows)),
        ("attention", *kinds),
        ("layers", *(count(model.main.n_layers) for _, model, _ in rows)),
    ]
    per_token = {"kv_cache_per_token": "  per token"}
    if _per_token_differ(rows):
        per_token = {"kv_cache_per_token": f"  {AT_CONTEXT}", _PER_TOKEN: f"  {NO_WINDOW_FULL}"}
    for key, first in rows[0][2].items():
        if key == _PER_TOKEN and key not in per_token:
            continue
        figures = [by_key[key] for _, _, by_key in rows]
        label = per_token.get(key, first.label)
        if first.unit == NO_UNIT:
            lines.append((label, *(figure.human for figure in figures)))
            continue
        unit, cells = column([figure.whole for figure in figures], first.unit)
        shown = (cell if figure.quantity is not None else "-" for cell, figure in zip(cells, figures, strict=True))
        lines.append((f"{label}, {unit}", *shown))
    return lines


def _variant_notes(model: ModelSpec, workload: Workload, compared: Sequence[ModelSpec]) -> tuple[str, ...]:
    legend = "* as released. attn.: parameters of attention."
    if model.main.has_cache:
        legend += " FLOP/byte: of a decode step, per byte of weights and cache."
    notes = [*context_notes(model, workload), legend, *_decode_notes([model, *compared])]
    notes += [note for variant in (model, *compared) for note in model_notes(variant)]
    if any(device_notes(variant) for variant in compared):
        notes.append(
            f"With {model.tp} devices, several devices store the same KV head if there are fewer than {model.tp}, and "
            "every device stores MLA's latent."
        )
    return tuple(dict.fromkeys(notes))


def _model_notes(models: Sequence[ModelSpec], workloads: Sequence[Workload]) -> tuple[str, ...]:
    notes = [
        _of(model, note)
        for model, workload in zip(models, workloads, strict=True)
        for note in context_notes(model, workload)
    ]
    notes += _decode_notes(models)
    notes += [_of(model, note) for model in models for note in (*device_notes(model), *model_notes(model))]
    return tuple(dict.fromkeys(notes))


def _decode_notes(models: Sequence[ModelSpec]) -> list[str]:
    notes = [f"Decode: {note}" for model in models for note in kind_notes(model, past=True)]
    if any(group.mlp and group.mlp.n_experts for model in models for group in model.main.layers):
        notes.append("A decode step reads at most min(n_experts, B * n_experts_per_token) experts per layer.")
    return notes


def _of(model: ModelSpec, note: str) -> str:
    """Return a note with the model's title before it; a warning still starts with 'warning: '."""
    text = note.removeprefix(WARNING)
    return f"{WARNING if text != note else ''}{model.title}: {text}"
