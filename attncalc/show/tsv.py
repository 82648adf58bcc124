"""TSV to paste into a spreadsheet: as CSV, with tabs between the cells."""

import csv
import io
from typing import IO

from . import csv as comma_separated
from .formats import Rows
from .report import Report


def render(report: Report, *, explain: bool = False) -> str:
    """Return the rows of the report's CSV with tabs between cells; a line is always one row.

    `explain` has no effect: every row has its formula.
    """
    out = io.StringIO()
    writer = csv.writer(out, "excel-tab", lineterminator="\n")
    for row in comma_separated.cells(report):
        writer.writerow(_one_line(cell) if isinstance(cell, str) else cell for cell in row)
    return out.getvalue()


def write(rows: Rows, file: IO[str]) -> None:
    comma_separated.write(rows, file, "excel-tab")


def escape(text: str) -> str:
    """Return a text on one line without tabs, and so that no spreadsheet computes it."""
    return _one_line(comma_separated.escape(text))


def _one_line(cell: str) -> str:
    r"""Return a cell without tabs and line feeds, which many programs take for the end of a cell
    even in quotes.

    They are written as other control characters are: `\u0009`, `\u000a`.
    """
    return cell.replace("\t", r"\u0009").replace("\n", r"\u000a")
