"""Rows as JSON lines: an object per line, with the names as keys; a missing figure is null."""

from __future__ import annotations

import json
from typing import IO

from .characters import printable
from .formats import Rows


def write(rows: Rows, file: IO[str]) -> None:
    encode = json.JSONEncoder(ensure_ascii=False).encode
    for row in rows.rows:
        file.write(encode(dict(zip(rows.names, row, strict=True))) + "\n")


def escape(text: str) -> str:
    """Return a text without control characters; JSON's own quoting does the rest."""
    return printable(text, "utf-8")
