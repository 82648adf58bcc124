"""JSON lines: an object per row, with the names as keys; a missing figure is null."""

import json
from typing import IO

from .characters import printable
from .formats import Rows
from .report import Report

_encode = json.JSONEncoder(ensure_ascii=False).encode


def render(report: Report, *, explain: bool = False) -> str:
    """Return a line per row of a list, or one with the figures of the whole model. `explain` has no
    effect.
    """
    return "".join(f"{_encode(dict(row))}\n" for row in report.flat)


def write(rows: Rows, file: IO[str]) -> None:
    for row in rows.rows:
        file.write(_encode(dict(zip(rows.names, row, strict=True))) + "\n")


def escape(text: str) -> str:
    """Return a text without control characters; JSON's own quoting does the rest."""
    return printable(text, "utf-8")
