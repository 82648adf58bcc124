"""A report as TSV: the rows of CSV with tabs between the cells, to paste into a spreadsheet."""

from __future__ import annotations

import csv
import io

from . import csv as comma_separated
from .report import Report


def render(report: Report, *, explain: bool = False) -> str:
    """Return the rows of the report's CSV with tabs between cells; a line is always one row.

    `explain` has no effect: every row has its formula.
    """
    out = io.StringIO()
    writer = csv.writer(out, "excel-tab", lineterminator="\n")
    for row in comma_separated.rows(report):
        writer.writerow(one_line(cell) if isinstance(cell, str) else cell for cell in row)
    return out.getvalue()


def one_line(cell: str) -> str:
    r"""Return a cell without tabs and line feeds, which many programs take for the end of a cell even in quotes.

    They are written as other control characters are: `\u0009`, `\u000a`.
    """
    return cell.replace("\t", r"\u0009").replace("\n", r"\u000a")
