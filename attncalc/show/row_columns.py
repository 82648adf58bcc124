"""The rows of a sweep as the columns of a table for a paper or a wiki."""

from collections.abc import Callable, Sequence
from typing import Literal

from ..records import NamedTuple
from ..units import SCALES, column, count
from .formats import Rows
from .report import number


class RowColumn(NamedTuple):
    """A column of a table of rows for a paper or a wiki, in one unit."""

    header: str  # its title and its unit: 'KV cache, GiB'
    align: Literal["left", "right"]
    cells: list[str]


def in_columns(
    rows: Rows, escape: Callable[[str], str], verdict: Callable[[str], str] = str
) -> list[RowColumn]:
    """Return the columns of rows with people's names, without those that have no cell.

    `escape` is that of the format, which texts of the rows have passed; `verdict` does the same
    with a verdict.
    """
    titles = {escape(name): escape(title) for name, title in rows.titles.items()}
    columns = []
    for name, unit, cells in zip(rows.names, rows.units, zip(*rows.rows, strict=True), strict=True):
        if not {*cells} - {None}:
            continue
        named = cells
        if name == "model":
            named = tuple(titles.get(model, model) for model in cells)
        header = titles.get(escape(name), escape(name))
        scaled, texts = _in_one_unit(unit, named, verdict)
        if scaled:
            header = f"{header}, {escape(scaled)}"
        columns.append(RowColumn(header, "left" if unit is None else "right", texts))
    return columns


def _in_one_unit(
    unit: str | None, cells: Sequence[object], verdict: Callable[[str], str]
) -> tuple[str, list[str]]:
    """Return the unit of a column, '' for none, and its cells."""
    numbers = [cell for cell in cells if isinstance(cell, int)]
    if unit not in SCALES or len(numbers) + cells.count(None) < len(cells):
        return "", [_figure(cell, verdict) for cell in cells]
    scaled, texts = column(numbers, unit)
    in_order = iter(texts)
    return scaled, ["" if cell is None else next(in_order) for cell in cells]


def _figure(cell: object, verdict: Callable[[str], str]) -> str:
    if cell is None:
        return ""
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        return count(cell) if isinstance(cell, int) else number(cell)
    return verdict(str(cell))
