"""Rows as CSV: a header with the names, then a line per row; a missing figure is an empty cell."""

from __future__ import annotations

import csv
from typing import IO

from ..characters import printable
from ..csv import escape as escape_formula
from . import Rows


def write(rows: Rows, file: IO[str]) -> None:
    """Write the rows."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(rows.names)
    writer.writerows(rows.rows)


def escape(text: str) -> str:
    """Return a text without control characters, and so that no spreadsheet computes it."""
    return escape_formula(printable(text, "utf-8"))
