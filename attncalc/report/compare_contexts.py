"""Tables of `attncalc compare` at several contexts: models or variants down, contexts across."""

from __future__ import annotations

from collections.abc import Sequence

from ..units import NO_UNIT, column, count
from .compare_rows import ACROSS, CONSTANT, Row, attention_of, ratio_cells, split_table
from .report import Column, Figure, Table, unit_column


def context_tables(rows: Sequence[Sequence[Row]], released: int | None = None) -> tuple[Table, ...]:
    """Return a table per figure with a column per context, and a table of what no context changes.

    Args:
        rows: The rows of each model, one per context.
        released: The index of the released variant, which is marked; None if all are models.
    """
    strong = frozenset() if released is None else frozenset({released})
    names = [f"{row[0].name} *" if i == released else row[0].name for i, row in enumerate(rows)]
    contexts = [count(row.workload.context) for row in rows[0]]
    tables: list[Table] = []
    for key in ACROSS:
        figures = [row.figures[key] for at_contexts in rows for row in at_contexts]
        if any(figure.quantity for figure in figures):  # an encoder has no cache and no decode step
            unit, cells = _cells(figures)
            by_model = [cells[i : i + len(contexts)] for i in range(0, len(cells), len(contexts))]
            title = f"{figures[0].label}, {unit}" if unit else figures[0].label
            lines = [(title, *contexts), *((name, *own) for name, own in zip(names, by_model, strict=True))]
            tables += split_table(lines, strong)
    return (*tables, _constants(rows, names, strong))


def _constants(rows: Sequence[Sequence[Row]], names: Sequence[str], strong: frozenset[int]) -> Table:
    """Return the figures that are the same at all contexts."""
    columns = [Column("at every\ncontext", "left"), Column("attention", "left")]
    cells = [list(names), [attention_of(own[0].model) for own in rows]]
    for key, header in CONSTANT.items():
        figures = [own[0].figures[key] for own in rows]
        differ = any(row.figures[key].value != own[0].figures[key].value for own in rows for row in own)
        if differ or not any(figure.quantity for figure in figures):
            continue
        if figures[0].unit == NO_UNIT:
            column, column_cells = Column(header), [figure.human for figure in figures]
        else:
            column, column_cells = unit_column(header, [figure.whole for figure in figures], figures[0].unit)
        columns.append(column)
        cells.append(column_cells)
    return Table(tuple(columns), tuple(zip(*cells, strict=True)), strong)


def _cells(figures: Sequence[Figure]) -> tuple[str, list[str]]:
    """Return one unit for all figures, '' for ratios, and their cells; '-' for a figure that does not apply."""
    if figures[0].unit == NO_UNIT:
        unit, cells = "", ratio_cells([figure.quantity for figure in figures])
    else:
        unit, cells = column([figure.whole for figure in figures], figures[0].unit)
    return unit, [cell if figure.quantity is not None else "-" for cell, figure in zip(cells, figures, strict=True)]
