"""The report of `attncalc kv`."""

from __future__ import annotations

from ..attention import Variant
from ..cost.cache import KVCache, LayerCache, kv_cache
from ..cost.common import cache_dtype, compute_dtype
from ..cost.params import params
from ..model import ModelSpec
from ..quantity import named, quantity, ratio, symbol
from ..units import BYTES, NO_UNIT, count
from ..workload import Workload
from .checkpoint import stored_figure
from .layers import attention_source, is_hybrid, layer_facts, spans
from .notes import kv_notes
from .report import (
    LABEL,
    QUOTIENT,
    SUM,
    Column,
    Figure,
    Report,
    Table,
    figure_rows,
    heading,
    times,
    tokens_asked,
    unit_column,
    workload_facts,
)


def kv_report(model: ModelSpec, workload: Workload, engine: str = "ideal") -> Report:
    """The KV cache of `model`: in all, of a sequence, of a token, and what MHA would keep."""
    cache = kv_cache(model, workload, engine_name=engine)
    figures = _figures(model, workload, cache)
    groups = tuple(
        (facts, _group_figures(group)) for facts, group in zip(layer_facts(model), cache.groups, strict=True)
    )
    return Report(
        "kv",
        heading(model, *_asked(model, workload, engine)),
        model.facts(),
        workload_facts(model, workload, engine),
        figures,
        groups,
        _tables(model, workload, figures, cache),
        kv_notes(model, workload, cache, engine),
    )


def _asked(model: ModelSpec, workload: Workload, engine: str) -> list[str]:
    stored = cache_dtype(model, workload)
    return [
        f"batch {count(workload.batch)}",
        tokens_asked(workload),
        f"source {count(workload.source)}" if workload.source else "",
        f"cache in {stored.name} ({stored.note})",
        f"engine {engine}" if engine != "ideal" else "",
    ]


def _figures(model: ModelSpec, workload: Workload, cache: KVCache) -> tuple[Figure, ...]:
    source = attention_source(model)
    in_dtype = compute_dtype(model, workload)
    weight = symbol("bytes", in_dtype.bits // 8, f"bytes of a weight in {in_dtype.name}")
    held = named(params(model).total, "params_total", "parameters on the device")
    mha = model.symbolic().with_variant(Variant("mha")).main.leading.widths()
    exchanged = any(Variant("mha").applies_to(kind) for _, layers in model.groups() for kind in layers.attentions)
    if_mha = cache.if_mha if exchanged else None
    tp = symbol("tp", model.tp, "tensor-parallel devices")
    alone = "the longest sequence" if workload.lengths else "one sequence"
    return (
        Figure("kv_cache", "KV cache", cache.total, BYTES, source),
        Figure("kv_cache_per_sequence", alone, cache.per_sequence, BYTES, source),
        Figure("kv_cache_per_token", "one more token", cache.per_token, BYTES, source),
        Figure(
            "kv_cache_if_mha",
            f"with MHA ({int(mha.n_kv_heads)} KV heads{' a device' if model.tp > 1 else ''})",
            if_mha,
            BYTES,
            source,
        ),
        Figure("recurrent_state", "states that do not grow", cache.recurrent_state, BYTES, source),
        Figure("cross_attention_cache", "kept of the source", cache.cross_attention_cache, BYTES, source),
        Figure(
            "kv_cache_all_devices",
            "on all devices together",
            quantity(tp * named(cache.total, "kv_cache", "bytes of the cache on one device"))
            if model.tp > 1
            else cache.total,
            BYTES,
            "what tensor parallelism replicates is counted on every device",
        ),
        Figure(
            "kv_cache_ratio_if_mha",
            "MHA's cache over this",
            None
            if if_mha is None
            else ratio(
                named(if_mha, "kv_cache_if_mha", "bytes with MHA"),
                named(cache.total, "kv_cache", "bytes of the cache"),
            ),
            NO_UNIT,
            QUOTIENT,
        ),
        Figure("weights", f"weights in {in_dtype.name}, for scale", quantity(held * weight), BYTES, SUM),
        stored_figure(model),
    )


def _group_figures(group: LayerCache) -> tuple[Figure, ...]:
    source = group.layers.attention.source
    return (
        Figure("kv_cache", "KV cache", group.total, BYTES, source, group.group),
        Figure("kv_cache_per_layer", "KV cache of one layer", group.one_layer, BYTES, source, group.group),
        Figure(
            "kv_cache_per_token_per_layer",
            "one more token, one layer",
            group.one_token,
            BYTES,
            source,
            group.group,
        ),
    )


def _tables(model: ModelSpec, workload: Workload, figures: tuple[Figure, ...], cache: KVCache) -> tuple[Table, ...]:
    by_name = {f.name: f for f in figures}
    shown = [("KV cache", by_name["kv_cache"])]
    if workload.batch > 1 or workload.lengths:
        shown.append((f"  {by_name['kv_cache_per_sequence'].label}", by_name["kv_cache_per_sequence"]))
    shown.append(("  one more token", by_name["kv_cache_per_token"]))
    if not is_hybrid(model) and not model.main.layers[0].cross and cache.total:
        one = _group_figures(cache.groups[0])[2]
        shown.append(("  one more token, one layer", one))
    for name in ("recurrent_state", "cross_attention_cache"):
        if by_name[name].value:
            shown.append((f"  of it {by_name[name].label}", by_name[name]))
    if model.tp > 1:
        shown.append(("on all devices together", by_name["kv_cache_all_devices"]))
    columns = (LABEL, Column(), Column())
    tables = [Table(columns, figure_rows(shown), strong=frozenset({0}))]
    if is_hybrid(model) and cache.total:
        tables.append(_group_table(cache))
    scale = []
    for name in ("kv_cache_if_mha", "weights", "weights_stored"):
        figure = by_name[name]
        if figure.quantity is None or (name == "kv_cache_if_mha" and cache.if_mha == cache.total):
            continue
        one_device = model.tp == 1 or name != "weights_stored"
        more = f"{times(ratio(figure.whole, cache.total))} as much" if cache.total and one_device else ""
        scale.append((figure.label, figure.human, more))
    return (*tables, Table(columns, tuple(scale)))


def _group_table(cache: KVCache) -> Table:
    groups = [g for g in cache.groups if g.total]
    token, of_token = unit_column("one more token,\none layer", [g.one_token for g in groups], BYTES)
    layer, of_layer = unit_column("one\nlayer", [g.one_layer for g in groups], BYTES)
    whole, of_whole = unit_column("all of\nthem", [g.total for g in groups], BYTES)
    columns = (Column("layers", "left"), Column(), Column("span", "left"), token, layer, whole)
    names = [(g.group, count(g.layers.count), spans(g.layers)) for g in groups]
    return Table(columns, tuple(zip(*zip(*names, strict=True), of_token, of_layer, of_whole, strict=True)))
