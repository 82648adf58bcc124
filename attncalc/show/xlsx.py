"""Spreadsheets: a report or the rows of a sweep as .xlsx, with one sheet per model; XlsxWriter
writes them.
"""

import io
import itertools
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import IO, Any

from ..errors import AttncalcError, CannotCheckError
from ..units import BYTES, FLOP, PARAMS, PER_SECOND, SECONDS
from .characters import printable
from .csv import table_of
from .formats import Row, Rows
from .report import Report

# Rows of a sheet.
MOST_ROWS = 1_048_576
# Characters of the widest column.
_WIDEST = 40
# Integers up to this are exact in a cell; larger ones are written as text.
_EXACT = 2**53
_FORMATS = {
    SECONDS: "0.0000",
    PER_SECOND: "#,##0.0",
    **dict.fromkeys((BYTES, FLOP, PARAMS), "#,##0"),
}


def need() -> None:
    """Raise CannotCheckError if XlsxWriter is not installed."""
    try:
        import xlsxwriter  # noqa: F401
    except ImportError:
        command = 'pip install "attncalc[xlsx]", or pip install xlsxwriter'
        raise CannotCheckError(
            ".xlsx is written by XlsxWriter, which is not installed", command
        ) from None


def render(report: Report, *, explain: bool = False) -> bytes:
    """Return the report as a file. `explain` has no effect: every figure has its formula."""
    names, *rows = table_of(report)
    units = {figure.name: figure.unit for figure in report.all_figures}
    file = io.BytesIO()
    write(Rows(names, [units.get(name) for name in names], rows, {}), file, report.command)
    return file.getvalue()


def write(rows: Rows, file: IO[bytes], title: str = "sweep") -> None:
    """Write the rows: a sheet for each value of the column `model`, or one with the title.

    Raises CannotCheckError without XlsxWriter, and AttncalcError if a sheet has too many rows.
    """
    need()
    import xlsxwriter

    place = rows.names.index("model") if "model" in rows.names else None
    sheets: dict[str, list[Row]] = {} if place is not None else {title: []}
    for row in rows.rows:
        sheets.setdefault(title if place is None else str(row[place] or title), []).append(row)
    with xlsxwriter.Workbook(file, {"in_memory": True}) as book:
        book.set_properties({"created": datetime(2000, 1, 1)})  # equal rows are equal files
        for name, of_sheet in zip(_sheet_names(sheets), sheets.values(), strict=True):
            if len(of_sheet) >= MOST_ROWS:
                raise AttncalcError(
                    "a sheet of .xlsx has at most 1,048,576 rows", "write .csv or .parquet"
                )
            _fill(book, book.add_worksheet(name), rows, of_sheet)


def _fill(book: Any, sheet: Any, rows: Rows, of_sheet: Sequence[Row]) -> None:
    header = book.add_format({"bold": True, "text_wrap": True, "valign": "top"})
    titles = [
        f"{name} ({unit})" if unit else name
        for name, unit in zip(rows.names, rows.units, strict=True)
    ]
    sheet.write_row(0, 0, titles, header)
    sheet.freeze_panes(1, 0)
    for i, (name, unit) in enumerate(zip(rows.names, rows.units, strict=True)):
        column = [row[i] for row in of_sheet]
        is_whole = all(isinstance(cell, int) for cell in column if cell is not None)
        number = book.add_format(
            {"num_format": "#,##0" if is_whole else _FORMATS.get(unit or "", "#,##0.000")}
        )
        for j, cell in enumerate(column, start=1):
            _write_cell(sheet, j, i, cell, number)
        longest = max((len(str(cell)) for cell in column if not isinstance(cell, float)), default=0)
        sheet.set_column(
            i, i, min(_WIDEST, max(longest + 2, max(map(len, re.split(r"[ _]", name))) + 4, 10))
        )


def _write_cell(sheet: Any, row: int, column: int, cell: Any, number: Any) -> None:
    if cell is None:
        return
    if isinstance(cell, bool):
        sheet.write_boolean(row, column, cell)
    elif isinstance(cell, int | float) and abs(cell) <= _EXACT:
        sheet.write_number(row, column, cell, number)
    else:
        sheet.write_string(row, column, printable(str(cell), "utf-8"))  # a text is never computed


def _sheet_names(names: Iterable[str]) -> list[str]:
    """Return names of sheets: at most 31 characters, each once, without those that Excel does not
    allow.
    """
    found: list[str] = []
    for name in names:
        plain = re.sub(r"[][:*?/\\]", "-", printable(name, "utf-8")).strip("'")[:31] or "model"
        numbered = itertools.chain([plain], (f"{plain[:27]}-{i}" for i in itertools.count(2)))
        taken = {each.lower() for each in found}
        found.append(next(each for each in numbered if each.lower() not in taken))
    return found


def escape(text: str) -> str:
    """Return the text as it is: a cell stores any."""
    return text
