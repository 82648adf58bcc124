"""Rows as one JSON document: the sweep's facts, and a list of rows with one object per line."""

from __future__ import annotations

import json
from typing import IO

from . import Rows
from .jsonl import escape

__all__ = ["escape", "write"]


def write(rows: Rows, file: IO[str]) -> None:
    """Write the document."""
    encode = json.JSONEncoder(ensure_ascii=False).encode
    columns = [{"name": name, "unit": unit} for name, unit in zip(rows.names, rows.units, strict=True)]
    for name, value in {**rows.facts, "columns": columns}.items():
        file.write(f"{',' if name != 'schema' else '{'}\n  {encode(name)}: {encode(value)}")
    file.write(',\n  "rows": [')
    separator = "\n    "
    for row in rows.rows:
        file.write(separator + encode(dict(zip(rows.names, row, strict=True))))
        separator = ",\n    "
    file.write("\n  ]\n}\n")
