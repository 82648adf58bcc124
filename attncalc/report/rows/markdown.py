"""Rows as a Markdown table."""

from __future__ import annotations

from typing import IO

from ..characters import printable
from ..markdown import escape as escape_marks
from . import Rows


def write(rows: Rows, file: IO[str]) -> None:
    """Write the table; numbers are aligned to the right."""
    file.write(f"| {' | '.join(map(escape, rows.names))} |\n")
    file.write(f"| {' | '.join('---' if unit is None else '---:' for unit in rows.units)} |\n")
    for row in rows.rows:
        file.write(f"| {' | '.join('' if cell is None else str(cell) for cell in row)} |\n")


def escape(text: str) -> str:
    """Return a text on one line with the marks of Markdown escaped."""
    return escape_marks(printable(text, "utf-8").replace("\n", " "))
