"""Rows as TSV: as CSV, with tabs between the cells."""

from __future__ import annotations

import csv
from typing import IO

from ..tsv import one_line
from . import Rows
from .csv import escape as escape_cell


def write(rows: Rows, file: IO[str]) -> None:
    """Write the rows."""
    writer = csv.writer(file, "excel-tab", lineterminator="\n")
    writer.writerow(rows.names)
    writer.writerows(rows.rows)


def escape(text: str) -> str:
    """Return a text on one line without tabs, and so that no spreadsheet computes it."""
    return one_line(escape_cell(text))
