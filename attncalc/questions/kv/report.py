"""The report of `attncalc kv`: the KV cache in total, per sequence and per token."""

from ...cost.cache import KVCache, LayerCache, kv_cache
from ...cost.common import cache_dtype
from ...cost.crossover import MAX_CONTEXT as LONGEST
from ...cost.params import params
from ...engines import per_layer_engine
from ...model import ModelSpec
from ...quantity import ratio
from ...search import first_true
from ...show.checkpoint import stored_notes
from ...show.layers import group_columns, is_hybrid, layers_with_figures
from ...show.notes import context_notes, device_notes, model_notes, shape_notes
from ...show.report import (
    LABEL,
    Column,
    Figure,
    Report,
    Table,
    column_table,
    context_fact,
    figure_rows,
    heading,
    times,
    unit_column,
    workload_facts,
)
from ...units import BYTES, count, human
from ...workload import Workload
from .figures import OF_LAYERS, kv_figures

# The growth of most caches with twice the context, which goes without saying.
_TWICE = "2.0 x as much"
_NO_CACHE = "An encoder processes all tokens in one pass: it has no KV cache."


def kv_report(model: ModelSpec, workload: Workload, engine: str = "ideal") -> Report:
    """Return the KV cache of `model`: in total, per sequence, per token, and what MHA would need.

    Raises AttncalcError if the engine or the dtype of the cache is unknown.
    """
    cache = kv_cache(model, workload, engine_name=engine)
    figures = kv_figures(model, workload, cache)
    return Report(
        "kv",
        heading(model, *_workload_line(model, workload, engine)),
        model.facts(),
        workload_facts(model, workload, engine),
        figures,
        layers_with_figures(model, map(_group_figures, cache.groups)),
        _tables(model, workload, figures, cache, engine),
        _notes(model, workload, cache, engine),
        answer="" if cache.total else _NO_CACHE,
        unexplained=_unexplained(cache),
        has_fail_if=True,
    )


def _unexplained(cache: KVCache) -> frozenset[str]:
    """Return the figures that equal the cache, whose formula --explain shows once."""
    names: list[str] = []
    if cache.if_mha == cache.total:
        names += ["kv_cache_if_mha", "kv_cache_ratio_if_mha"]
    if cache.per_sequence == cache.total:
        names.append("kv_cache_per_sequence")
    return frozenset(names)


def _workload_line(model: ModelSpec, workload: Workload, engine: str) -> list[str]:
    stored = cache_dtype(model, workload)
    return [
        f"batch {count(workload.batch)}",
        context_fact(workload),
        f"source {count(workload.source)}" if workload.source else "",
        f"cache in {stored.name} ({stored.note})",
        f"engine {engine}" if engine != "ideal" else "",
    ]


def _group_figures(group: LayerCache) -> tuple[Figure, ...]:
    return OF_LAYERS.filled(
        group.layers.attention.source,
        group.group,
        kv_cache=group.total,
        kv_cache_per_layer=group.per_layer,
        kv_cache_per_token_per_layer=group.per_token_per_layer,
    )


def _tables(
    model: ModelSpec, workload: Workload, figures: tuple[Figure, ...], cache: KVCache, engine: str
) -> tuple[Table, ...]:
    by_name = {f.name: f for f in figures}
    per_token = by_name["kv_cache_per_token"]
    per_token_max = by_name["kv_cache_per_token_max"]
    fills_windows = per_token.value != per_token_max.value
    rows = [("KV cache", by_name["kv_cache"])]
    if workload.batch > 1 or workload.lengths:
        rows.append(
            (f"  {by_name['kv_cache_per_sequence'].label}", by_name["kv_cache_per_sequence"])
        )
    if fills_windows:
        rows += [(f"  {figure.label}", figure) for figure in (per_token, per_token_max)]
    else:
        rows.append(("  per token", per_token))
    if not is_hybrid(model) and not model.main.layers[0].cross and per_token.value:
        rows.append(("  per token and layer", _group_figures(cache.groups[0])[2]))
    for name in ("recurrent_state", "cross_attention_cache"):
        if by_name[name].value:
            rows.append((f"  of which {by_name[name].label}", by_name[name]))
    if model.tp > 1:
        rows.append((by_name["kv_cache_all_devices"].label, by_name["kv_cache_all_devices"]))
    columns = (LABEL, Column(), Column())
    tables = [Table(columns, figure_rows(rows), strong=frozenset({0}))]
    if is_hybrid(model) and cache.total:
        tables.append(_group_table(cache, fills_windows))
    rows_of_others = _comparison_rows(model, workload, by_name, cache, engine)
    if rows_of_others:
        tables.append(Table(columns, tuple(rows_of_others)))
    return tuple(tables)


def _comparison_rows(
    model: ModelSpec, workload: Workload, by_name: dict[str, Figure], cache: KVCache, engine: str
) -> list[tuple[str, str, str]]:
    """Return the rows of twice the context, if the cache does not just double, of what MHA would
    need, and of the weights.
    """
    rows = []
    if cache.total:
        doubled = kv_cache(model, workload.doubled(), engine_name=engine).total
        factor = _as_much(doubled, cache)
        if factor != _TWICE:
            rows.append(("twice the context", human(doubled, BYTES), factor))
    if_mha = by_name["kv_cache_if_mha"]
    if if_mha.quantity is not None and cache.if_mha != cache.total:
        rows.append((if_mha.label, if_mha.human, _as_much(if_mha.whole, cache)))
    weights = by_name["weights"]
    stored = by_name["weights_stored"]
    if weights.quantity is not None:
        context = 0
        if cache.total:
            context = _context_of(model, workload, weights.whole, engine)
        same = f"the cache at context {count(context)}" if context else ""
        rows.append((weights.label, weights.human, same))
    if stored.quantity is not None and stored.quantity != weights.quantity:
        rows.append((stored.label, stored.human, ""))
    return rows


def _as_much(size: int, cache: KVCache) -> str:
    """Return how many times the cache a size is; '' without a cache."""
    if not cache.total:
        return ""
    return f"{times(ratio(size, cache.total))} as much"


def _context_of(model: ModelSpec, workload: Workload, size: int, engine: str) -> int:
    """Return the shortest context at which the cache has so many bytes; 0 if it stays smaller."""

    def is_reached(context: int) -> bool:
        return kv_cache(model, workload.at(context), engine_name=engine).total >= size

    if is_reached(LONGEST):
        return first_true(is_reached, 0, LONGEST)
    return 0


def _group_table(cache: KVCache, fills_windows: bool) -> Table:
    groups = [g for g in cache.groups if g.total]
    if fills_windows:
        per_token_header = "per token\nand layer,\nat this\ncontext"
    else:
        per_token_header = "per token\nand layer"
    columns = (
        *group_columns([(g.group, g.layers) for g in groups]),
        unit_column(per_token_header, [g.per_token_per_layer for g in groups], BYTES),
        unit_column("per\nlayer", [g.per_layer for g in groups], BYTES),
        unit_column("all\nlayers", [g.total for g in groups], BYTES),
    )
    return column_table(columns)


def _notes(model: ModelSpec, workload: Workload, cache: KVCache, engine: str) -> tuple[str, ...]:
    notes = context_notes(model, workload)
    notes += _window_notes(model, cache)
    notes += _storage_notes(model, engine)
    if model.encoder:
        notes.append(
            "Only the decoder has a cache. Its cross-attention caches K and V of the source "
            "tokens, computed once."
        )
    stored = cache_dtype(model, workload)
    if stored.group is not None:
        notes.append(f"{stored.name}: {stored.meaning}. Scales are included.")
    elif stored.name == "fp8":
        notes.append(f"fp8: {stored.meaning}.")
    if workload.kv_dtype is None and model.kv_dtype not in (None, stored.name):
        notes.append(
            f"The checkpoint asks for a cache in {model.kv_dtype}. 'fit' follows it where the "
            f"engine does; here --kv-dtype {model.kv_dtype} does."
        )
    if model.stored is not None:
        notes += stored_notes(model, params(model).total)
    return (*notes, *device_notes(model), *shape_notes(model), *model_notes(model))


def _window_notes(model: ModelSpec, cache: KVCache) -> list[str]:
    """Return a note on what windows and chunks save, or none if no layer has one or none is
    full.
    """
    with_windows = [g for g in model.main.distinct() if g.attention.span.reach is not None]
    windowed = [g for g in with_windows if g.attention.cache()]
    if not windowed or not cache.total or cache.without_windows == cache.total:
        return []
    n_windowed = sum(int(g.count) for g in windowed)
    spans = " or ".join(dict.fromkeys(g.attention.span.description for g in windowed))
    note = (
        f"{n_windowed} of {model.main.n_layers} layers attend to {spans} and cache no more than "
        "that. With full "
        f"attention in all layers, the cache would be {human(cache.without_windows, BYTES)}, "
        f"{times(ratio(cache.without_windows, cache.total))} as much."
    )
    if not cache.per_token:
        note += " The next token adds no bytes: it takes the place of the oldest."
    return [note]


def _storage_notes(model: ModelSpec, engine: str) -> list[str]:
    """Return notes on layers that store nothing, or store other heads or another dtype than the
    heading has.
    """
    notes = []
    layers = model.main.distinct()
    sharing = 0
    for group in layers:
        if group.attention.widths().n_heads and not group.attention.cache():
            sharing += int(group.count)
    if sharing and model.main.has_cache:
        notes.append(
            f"{sharing} of {model.main.n_layers} layers reuse the K and V of an earlier layer."
        )
    specs = [spec for g in layers for spec in g.cache()]
    of_states = [spec for spec in specs if spec.per == "sequence"]
    state_dtypes = dict.fromkeys(spec.dtype for spec in of_states if spec.dtype)
    if state_dtypes:
        notes.append(
            f"Recurrent states are stored in {' and '.join(state_dtypes)}, whatever the cache's "
            "dtype."
        )
    notes += per_layer_engine(engine).storage_notes(specs)
    return notes
