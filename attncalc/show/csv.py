"""CSV for a spreadsheet or a script: a row per item of a list, or per figure of another report."""

import csv
import io
from typing import IO, Any

from .characters import printable
from .formats import Rows
from .report import Report

_COLUMNS = ("of", "name", "value", "unit", "formula", "substituted", "assumed")
_CHECK_COLUMNS = ("of", "name", "predicted", "measured", "difference", "tolerance", "unit", "ok")
# a spreadsheet computes a cell that starts with one of these
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def render(report: Report, *, explain: bool = False) -> str:
    """Return the rows of the report, with commas between cells.

    `explain` has no effect: every row has its formula.
    """
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(cells(report))
    return out.getvalue()


def write(rows: Rows, file: IO[str], dialect: str = "excel") -> None:
    """Write a header with the names, then a line per row; a missing figure is an empty cell."""
    writer = csv.writer(file, dialect, lineterminator="\n")
    writer.writerow(rows.names)
    writer.writerows(rows.rows)


def cells(report: Report) -> list[tuple[Any, ...]]:
    """Return the rows of `table_of`, with texts that no spreadsheet computes."""
    return [tuple(map(_safe, row)) for row in table_of(report)]


def _safe(cell: Any) -> Any:
    if isinstance(cell, str):
        return _not_computed(cell)
    return cell


def table_of(report: Report) -> list[tuple[Any, ...]]:
    """Return a header and the rows of a list, or else one row per check or figure.

    The column `of` names a layer group or a variant; it is empty for a figure of the whole model.
    """
    if report.rows:
        return [tuple(report.rows[0]), *(tuple(row.values()) for row in report.rows)]
    rows: list[tuple[Any, ...]] = []
    if report.checks:
        rows.append(_CHECK_COLUMNS)
        for check in report.checks:
            facts = check.facts()
            rows.append(tuple(facts[name] for name in _CHECK_COLUMNS))
        return rows
    assumed = "yes" if report.model.get("assumed") else ""
    rows.append(_COLUMNS)
    for figure in report.all_figures:
        formula = figure.formula
        named = (figure.of, figure.name, figure.value, figure.unit)
        rows.append((*named, formula.text, formula.substituted, assumed))
    return rows


def escape(text: str) -> str:
    """Return a text without control characters, and so that no spreadsheet computes it."""
    return _not_computed(printable(text, "utf-8"))


def _not_computed(text: str) -> str:
    """Return a text as a cell that no spreadsheet computes: '=cmd' becomes "'=cmd".

    Source: OWASP, CSV Injection.
    """
    if text.startswith(_FORMULA):
        return f"'{text}"
    return text
