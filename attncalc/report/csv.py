"""A report as CSV: a row a figure, for a spreadsheet or a script."""

from __future__ import annotations

import csv
import io

from .report import Report

COLUMNS = ("of", "name", "value", "unit", "formula", "substituted")


def render(report: Report) -> str:
    """Rows of COLUMNS with a header; `of` is empty for the whole model, else a layer group or variant."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for f in report.all_figures:
        writer.writerow((f.of, f.name, f.value, f.unit, f.formula.text, f.formula.substituted))
    return out.getvalue()
