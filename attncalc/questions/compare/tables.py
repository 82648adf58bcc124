"""Tables of `attncalc compare`: variants or models at one context, or at several."""

from collections.abc import Iterator, Mapping, Sequence

from ...show.figures import AT_CONTEXT, NO_WINDOW_FULL, PER_TOKEN
from ...show.report import Column, Figure, Table, column_table, unit_column
from ...units import NO_UNIT, PARAMS, column, count
from .figures import FIGURES, Row, attention_of

# Headers of the figures of variants.
_VARIANT_COLUMNS = {
    "n_kv_heads": "KV\nheads",
    "params_attention": "attn.",
    NO_WINDOW_FULL: "KV per\ntoken",
    "kv_cache": "KV cache",
    "kv_cache_ratio": "of\nMHA",
    "flops_prefill": "prefill",
    "flops_decode": "decode",
    "decode_flop_per_byte": "decode\nFLOP\n/byte",
}
# The order in which a narrow screen leaves figures out: what it has last is read most.
_DROP = {
    "kv_cache_ratio": 1,
    "decode_flop_per_byte": 2,
    "flops_prefill": 3,
    NO_WINDOW_FULL: 4,
    "params_attention": 5,
}
# The figures that depend on the context: one table each, if there are several contexts.
_ACROSS = ("kv_cache", "flops_prefill", "flops_decode", "decode_flop_per_byte")
# Headers of the figures that do not, or only in models with windows.
_CONSTANT = {
    "n_kv_heads": "KV\nheads",
    "params_total": "parameters",
    "params_attention": "attn.",
    AT_CONTEXT: "KV per\ntoken",
}


def variant_table(rows: Sequence[Row], released: int) -> Table:
    """Return a row per variant; the released one is marked."""
    headers = dict(_VARIANT_COLUMNS)
    if rows[0].name != "MHA":  # this model has no MHA variant
        del headers["kv_cache_ratio"]
    if _per_token_differ(rows):
        headers[NO_WINDOW_FULL] = "KV per\ntoken, no\nwindow\nfull"
    names = [row.name for row in rows]
    if len(names[released]) > len("MLA-512"):  # it would leave no room for the figures
        names[released] = "released"
    names[released] = f"{names[released]} *"
    columns = list(_columns(rows, headers))
    widths = [_widths_of_mlps(row) for row in rows]
    if len({*widths}) > 1:  # --same-params
        columns[0] = (Column("d_ff"), widths)  # in place of the KV heads, which the names have
    return column_table([(Column("", "left"), names), *columns], frozenset({released}))


def _widths_of_mlps(row: Row) -> str:
    """Return the d_ff of the MLPs, each once: '14,336', or '18,432/2,048'."""
    mlps = [layers.mlp for layers in row.model.main.layers if layers.mlp]
    return "/".join(dict.fromkeys(count(mlp.d_ff) for mlp in mlps))


def model_table(rows: Sequence[Row]) -> Table:
    """Return one line per figure: its label with its unit, and a cell for each model; the first has
    their names.
    """
    lines = [
        ("", *(row.name for row in rows)),
        ("attention", *(attention_of(row.model) for row in rows)),
        ("layers", *(count(row.model.main.n_layers) for row in rows)),
    ]
    per_token = {AT_CONTEXT: "  per token"}
    if _per_token_differ(rows):
        per_token = {name: f"  {row.label}" for name, row in PER_TOKEN.items()}
    left_out = {"decode_flop_per_cache_byte"}
    if NO_WINDOW_FULL not in per_token:
        left_out.add(NO_WINDOW_FULL)
    if all(row.figures["params_active"].value == row.figures["params_total"].value for row in rows):
        left_out.add("params_active")
    keys = [key for key in rows[0].figures if key not in left_out]
    parameters = _in_one_unit(rows, [key for key in keys if FIGURES[key].unit == PARAMS])
    for key in keys:
        figures = [row.figures[key] for row in rows]
        label = per_token.get(key, figures[0].label)
        if figures[0].unit == NO_UNIT:
            lines.append((label, *(figure.human for figure in figures)))
        else:
            unit, cells = parameters[key] if key in parameters else _cells(figures)
            lines.append((f"{label}, {unit}", *cells))
    return _by_model(lines)


def _in_one_unit(rows: Sequence[Row], keys: Sequence[str]) -> dict[str, tuple[str, list[str]]]:
    """Return {figure: its unit and the cell of each model}, with one unit for all these figures."""
    unit, cells = _cells([row.figures[key] for key in keys for row in rows])
    return {key: (unit, cells[i * len(rows) : (i + 1) * len(rows)]) for i, key in enumerate(keys)}


def context_tables(rows: Sequence[Sequence[Row]], released: int | None = None) -> tuple[Table, ...]:
    """Return a table per figure with a column per context, and a table of what no context changes.

    `rows` has a row per context for each model. The `released` variant is marked; None if all are
    models.
    """
    names = [of_model[0].name for of_model in rows]
    strong: frozenset[int] = frozenset()
    if released is not None:
        names[released] = f"{names[released]} *"
        strong = frozenset({released})
    tables = []
    for key in _ACROSS:
        figures = [[row.figures[key] for row in of_model] for of_model in rows]
        # an encoder has no cache and no decode step
        if any(figure.quantity for of_model in figures for figure in of_model):
            contexts = [count(row.workload.context) for row in rows[0]]
            tables.append(_context_table(figures, names, contexts, strong))
    firsts = [of_model[0] for of_model in rows]
    constant = {key: header for key, header in _CONSTANT.items() if _is_constant(key, rows)}
    columns = (
        (Column("at every\ncontext", "left"), names),
        (Column("attention", "left"), [attention_of(row.model) for row in firsts]),
        *_columns(firsts, constant),
    )
    return (*tables, column_table(columns, strong))


def _context_table(
    figures: Sequence[Sequence[Figure]],
    names: Sequence[str],
    contexts: Sequence[str],
    strong: frozenset[int],
) -> Table:
    """Return one figure of each model, at each context."""
    unit, cells = _cells([figure for of_model in figures for figure in of_model])
    title = figures[0][0].label
    if unit:
        title = f"{title}, {unit}"
    lines = [(title, *contexts)]
    for i, name in enumerate(names):
        start = i * len(contexts)
        lines.append((name, *cells[start : start + len(contexts)]))
    return _by_model(lines, strong, above="context")


def _is_constant(key: str, rows: Sequence[Sequence[Row]]) -> bool:
    """Return whether no context changes a figure of any model."""
    return all(len({row.figures[key].value for row in of_model}) == 1 for of_model in rows)


def _per_token_differ(rows: Sequence[Row]) -> bool:
    """Return whether the two figures per token differ in a row: at this context, a window is
    full.
    """
    return any(row.figures[AT_CONTEXT].value != row.figures[NO_WINDOW_FULL].value for row in rows)


def _columns(rows: Sequence[Row], headers: Mapping[str, str]) -> Iterator[tuple[Column, list[str]]]:
    """Yield a column for each of the figures that has a number in a row."""
    for key, header in headers.items():
        figures = [row.figures[key] for row in rows]
        # an encoder has no cache and no decode step
        if not any(figure.quantity for figure in figures):
            continue
        if FIGURES[key].ratio:
            yield Column(header, drop=_DROP.get(key, 0)), _ratio_cells(figures)
        elif figures[0].unit == NO_UNIT:
            yield Column(header), [figure.human for figure in figures]
        else:
            sizes = [figure.whole for figure in figures]
            yield unit_column(header, sizes, figures[0].unit, _DROP.get(key, 0))


def _cells(figures: Sequence[Figure]) -> tuple[str, list[str]]:
    """Return one unit for all figures, '' for ratios, and their cells; '-' for a figure that does
    not apply.
    """
    if figures[0].unit == NO_UNIT:
        unit = ""
        cells = _ratio_cells(figures)
    else:
        unit, cells = column([figure.whole for figure in figures], figures[0].unit)
    return unit, [
        cell if figure.quantity is not None else "-"
        for cell, figure in zip(cells, figures, strict=True)
    ]


def _ratio_cells(figures: Sequence[Figure]) -> list[str]:
    """Return ratios with the same number of decimals: three if all are at most 1, else two."""
    numbers = [float(figure.quantity or 0) for figure in figures]
    digits = 3 if max(numbers) <= 1 else 2
    return [f"{value:,.{digits}f}" for value in numbers]


def _by_model(
    lines: Sequence[Sequence[str]], strong: frozenset[int] = frozenset(), above: str = ""
) -> Table:
    """Return the lines, of which the first is the header, as a table that a narrow screen may
    divide.
    """
    (first, *others), *body = map(tuple, lines)
    return Table(
        (Column(first, "left"), *map(Column, others)),
        tuple(body),
        strong,
        above=above,
        is_divisible=True,
    )
