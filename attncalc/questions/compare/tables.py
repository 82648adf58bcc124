"""Tables of `attncalc compare`: variants or models at one context, or at several."""

from collections.abc import Iterator, Mapping, Sequence

from ...show.figures import AT_CONTEXT, NO_WINDOW_FULL, PER_TOKEN
from ...show.report import Column, Figure, Table, column_table, unit_column
from ...units import NO_UNIT, column, count
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
    "decode_flop_per_byte": "FLOP\n/byte",
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
    # a name that leaves no room for the figures is 'released'
    if len(rows[released].name) <= len("MLA-512"):
        name = rows[released].name
    else:
        name = "released"
    names = [f"{name} *" if i == released else row.name for i, row in enumerate(rows)]
    columns = list(_columns(rows, headers))
    mlps = ([layers.mlp for layers in row.model.main.layers if layers.mlp] for row in rows)
    widths = ["/".join(dict.fromkeys(count(mlp.d_ff) for mlp in of_row)) for of_row in mlps]
    if len({*widths}) > 1:  # --same-params
        columns[0] = (Column("d_ff"), widths)  # in place of the KV heads, which the names have
    return column_table([(Column("", "left"), names), *columns], frozenset({released}))


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
    for key, first in rows[0].figures.items():
        figures = [row.figures[key] for row in rows]
        is_dense = key == "params_active" and all(
            each.value == row.figures["params_total"].value
            for each, row in zip(figures, rows, strict=True)
        )
        if is_dense or (key == NO_WINDOW_FULL and key not in per_token):
            continue
        label = per_token.get(key, first.label)
        if first.unit == NO_UNIT:
            lines.append((label, *(figure.human for figure in figures)))
        else:
            unit, cells = _cells(figures)
            lines.append((f"{label}, {unit}", *cells))
    return _by_model(lines)


def context_tables(rows: Sequence[Sequence[Row]], released: int | None = None) -> tuple[Table, ...]:
    """Return a table per figure with a column per context, and a table of what no context changes.

    `rows` has a row per context for each model. The `released` variant is marked; None if all are
    models.
    """
    strong = frozenset() if released is None else frozenset({released})
    names = [f"{own[0].name} *" if i == released else own[0].name for i, own in enumerate(rows)]
    contexts = [count(row.workload.context) for row in rows[0]]
    tables: list[Table] = []
    for key in _ACROSS:
        figures = [row.figures[key] for own in rows for row in own]
        if any(figure.quantity for figure in figures):  # an encoder has no cache and no decode step
            unit, cells = _cells(figures)
            by_model = [cells[i : i + len(contexts)] for i in range(0, len(cells), len(contexts))]
            title = f"{figures[0].label}, {unit}" if unit else figures[0].label
            lines = [
                (title, *contexts),
                *((name, *own) for name, own in zip(names, by_model, strict=True)),
            ]
            tables.append(_by_model(lines, strong, above="context"))
    constant = {
        key: header
        for key, header in _CONSTANT.items()
        if all(row.figures[key].value == own[0].figures[key].value for own in rows for row in own)
    }
    firsts = [own[0] for own in rows]
    columns = (
        (Column("at every\ncontext", "left"), names),
        (Column("attention", "left"), [attention_of(row.model) for row in firsts]),
        *_columns(firsts, constant),
    )
    return (*tables, column_table(columns, strong))


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
            yield Column(header), _ratio_cells(figures)
        elif figures[0].unit == NO_UNIT:
            yield Column(header), [figure.human for figure in figures]
        else:
            yield unit_column(header, [figure.whole for figure in figures], figures[0].unit)


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
