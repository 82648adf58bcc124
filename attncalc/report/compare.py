"""The report of `attncalc compare`: one model's attention as every kind, or several models."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..cost.cache import kv_cache
from ..cost.flops import flops
from ..cost.intensity import decode_intensity
from ..cost.params import params
from ..errors import AttncalcError
from ..model import ModelSpec
from ..quantity import Quantity, Ratio, named, quantity, ratio
from ..units import BYTES, FLOP, NO_UNIT, PARAMS, column, count
from ..workload import Workload
from .layers import attention_source, kv_heads
from .notes import compare_notes
from .report import Column, Figure, Report, Table, heading, unit_column, workload_facts
from .text import WIDTH

Row = tuple[str, ModelSpec, dict[str, Figure]]
"""What is compared: its name, the model and its figures by name."""


def variants(model: ModelSpec, more: Sequence[str] = ()) -> dict[str, ModelSpec]:
    """`model` as MHA, every GQA that divides its heads, MQA, each of `more` ('mla:512'), and as it is.

    A number of KV heads that cannot be split over the model's devices is left out.
    AttncalcError: one of `more` is not a variant.
    """
    heads = int(model.main.leading.widths().n_heads)
    found = {}
    for n in (n for n in range(heads, 0, -1) if heads % n == 0):
        try:
            variant = model.with_attention(f"gqa:{n}").shard(model.tp)
        except AttncalcError:  # n does not divide another layer's heads, or the devices
            continue
        found["MHA" if n == heads else "MQA" if n == 1 else f"GQA-{n}"] = variant
    for text in more:
        variant = model.with_attention(text).shard(model.tp)
        if variant.stacks not in [known.stacks for known in found.values()]:
            found[text.upper().replace(":", "-")] = variant
    if model.stacks not in [known.stacks for known in found.values()]:
        found[_name(model)] = model
    return found


def _name(model: ModelSpec) -> str:
    """'MLA-512', 'MLA-512/GQA-8' where layers differ."""
    return "/".join(dict.fromkeys(layers.attention.tag for layers in model.main.layers))


def compare_variants(model: ModelSpec, workload: Workload, more: Sequence[str] = ()) -> Report:
    """One model's attention as MHA, every GQA, MQA and each of `more`; as released marked."""
    named_models = variants(model, more)
    base = int(kv_cache(next(iter(named_models.values())), workload).total)
    rows: list[Row] = [(name, each, _figures(each, workload, name, base)) for name, each in named_models.items()]
    released = next(i for i, (_, each, _) in enumerate(rows) if each.stacks == model.stacks)
    return Report(
        "compare",
        heading(model, *_asked(model, workload)),
        model.facts(),
        workload_facts(model, workload),
        tuple(rows[released][2].values()),
        tuple((_facts(row, i == released), tuple(row[2].values())) for i, row in enumerate(rows)),
        (_variant_table(rows, released),),
        compare_notes([(model, workload), *((each, workload) for _, each, _ in rows)], variants=True),
    )


def compare_models(models: Sequence[ModelSpec], workloads: Sequence[Workload]) -> Report:
    """Several models side by side, each with its own workload; ratios are to the first."""
    asked = list(zip(models, workloads, strict=True))
    base = int(kv_cache(*asked[0]).total)
    rows: list[Row] = [(m.name, m, _figures(m, w, m.name, base)) for m, w in asked]
    title = ", ".join(model.title for model in models)
    return Report(
        "compare",
        (f"{title}  side by side", ", ".join(fact for fact in _asked(models[0], workloads[0]) if fact)),
        models[0].facts(),
        workload_facts(models[0], workloads[0]),
        tuple(rows[0][2].values()),
        tuple((_facts(row, True), tuple(row[2].values())) for row in rows),
        _model_tables(rows),
        compare_notes(asked, variants=False),
    )


def _asked(model: ModelSpec, workload: Workload) -> list[str]:
    source = f"source {count(workload.source)}" if workload.source else ""
    steps = "prefill of all of it" + (", decode of one token at it" if model.main.has_cache else "")
    return [f"batch {count(workload.batch)}", f"context {count(workload.context)}", source, steps]


def _facts(row: Row, released: bool) -> dict[str, Any]:
    name, model, _ = row
    return {**model.facts(), "name": name, "released": released, "attention": model.main.leading.facts()}


def _figures(model: ModelSpec, workload: Workload, name: str, base: int) -> dict[str, Figure]:
    """The figures of one row; the cache's ratio is to `base` bytes."""
    prefill = dataclasses.replace(workload, phase="prefill", new=workload.context)
    decode = dataclasses.replace(workload, phase="decode", new=1)
    cache, source = kv_cache(model, workload), attention_source(model)
    decodes = model.main.has_cache
    read = decode_intensity(model, decode) if decodes else None
    counted = params(model)
    over = named(cache.total, "kv_cache", "bytes of cache"), named(base, "kv_cache_first", "bytes of the first's")
    found: list[tuple[str, str, Quantity | Ratio | None, str]] = [
        ("n_kv_heads", "KV heads", quantity(kv_heads(model.symbolic().main.leading)), NO_UNIT),
        ("params_total", "parameters", counted.total, PARAMS),
        ("params_attention", "attention parameters", counted.attention, PARAMS),
        ("kv_cache_per_token", "KV of one more token", cache.per_token, BYTES),
        ("kv_cache", "KV cache", cache.total, BYTES),
        ("kv_cache_ratio", "KV cache over the first's", ratio(*over) if base else None, NO_UNIT),
        ("flops_prefill", "prefill", flops(model, prefill).total, FLOP),
        ("flops_decode", "one decode step", flops(model, decode).total if decodes else None, FLOP),
        ("decode_flop_per_byte", "FLOP per byte read in decode", read and read.per_byte, NO_UNIT),
        ("decode_flop_per_cache_byte", "scores' FLOP per cache byte", read and read.per_cache_byte, NO_UNIT),
    ]
    return {key: Figure(key, label, value, unit, source, name) for key, label, value, unit in found}


_COLUMNS = (
    ("params_attention", "attn."),
    ("kv_cache_per_token", "KV/token"),
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
        if key == "kv_cache_ratio" and rows[0][0] != "MHA":  # nothing here could be MHA
            continue
        found = [figures[key] for _, _, figures in rows]
        if not any(figure.quantity for figure in found):  # an encoder has no cache and no decode step
            continue
        if found[0].unit == NO_UNIT:
            column, shown = Column(header), _ratios([figure.quantity for figure in found])
        else:
            column, shown = unit_column(header, [figure.whole for figure in found], found[0].unit)
        columns.append(column)
        cells.append(shown)
    return Table(tuple(columns), tuple(zip(*cells, strict=True)), strong=frozenset({released}))


def _short(name: str) -> str:
    """A row's name, where it leaves room for the figures."""
    return name if len(name) <= len("MLA-512") else "released"


def _ratios(values: Sequence[Quantity | Ratio | None]) -> list[str]:
    """A column of ratios with the same digits behind the point: three where all are at most 1, else two."""
    numbers = [float(value or 0) for value in values]
    digits = 3 if max(numbers) <= 1 else 2
    return [f"{value:,.{digits}f}" for value in numbers]


def _model_tables(rows: Sequence[Row]) -> tuple[Table, ...]:
    """The models as columns, as many in a table as fit the width; one unit a row."""
    kinds = ["/".join(dict.fromkeys(g.attention.label for g in model.main.layers)) for _, model, _ in rows]
    lines = [
        ("", *(name for name, _, _ in rows)),
        ("attention", *kinds),
        ("layers", *(count(model.main.n_layers) for _, model, _ in rows)),
    ]
    for key, first in rows[0][2].items():
        found = [figures[key] for _, _, figures in rows]
        if first.unit == NO_UNIT:
            lines.append((first.label, *(figure.human for figure in found)))
            continue
        unit, cells = column([figure.whole for figure in found], first.unit)
        shown = (cell if figure.quantity is not None else "-" for cell, figure in zip(cells, found, strict=True))
        lines.append((f"{first.label}, {unit}", *shown))
    labels, *columns = zip(*lines, strict=True)
    room = WIDTH - 2 - max(map(len, labels))
    each = max(1, room // (2 + max(len(cell) for column_cells in columns for cell in column_cells)))
    tables = []
    for start in range(0, len(columns), each):
        header, *body = zip(labels, *columns[start : start + each], strict=True)
        tables.append(Table((Column("", "left"), *(Column(name) for name in header[1:])), tuple(body)))
    return tuple(tables)
