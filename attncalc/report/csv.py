"""A report as CSV: one row per figure, for a spreadsheet or a script."""

from __future__ import annotations

import csv
import io

from .report import Report

COLUMNS = ("of", "name", "value", "unit", "formula", "substituted", "assumed")
CHECK_COLUMNS = ("of", "name", "predicted", "measured", "difference", "tolerance", "unit", "ok")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # a spreadsheet computes a cell that starts with one of these


def render(report: Report, *, explain: bool = False) -> str:
    """Return a header and one row per figure, or one row per check if the report has checks.

    The column `of` names a layer group or a variant; it is empty for a figure of the whole model. `explain`
    has no effect: every row has its formula.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if report.checks:
        writer.writerow(CHECK_COLUMNS)
        writer.writerows(
            tuple({**check.facts(), "of": escape(check.of)}[name] for name in CHECK_COLUMNS) for check in report.checks
        )
        return out.getvalue()
    writer.writerow(COLUMNS)
    assumed = "yes" if report.model.get("assumed") else ""
    for f in report.all_figures:
        writer.writerow((escape(f.of), f.name, f.value, f.unit, f.formula.text, f.formula.substituted, assumed))
    return out.getvalue()


def escape(text: str) -> str:
    """Return a text as a cell that no spreadsheet computes: '=cmd' becomes "'=cmd".

    Source: OWASP, CSV Injection.
    """
    return f"'{text}" if text.startswith(_FORMULA) else text
