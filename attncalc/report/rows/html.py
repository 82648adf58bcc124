"""Rows as an HTML page with one table."""

from __future__ import annotations

from typing import IO

from ..html import escape
from . import Rows

__all__ = ["escape", "write"]


def write(rows: Rows, file: IO[str]) -> None:
    """Write the page."""
    file.write('<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>attncalc sweep</title>\n')
    file.write("<style>td, th { padding: 0 0.5em; } .number { text-align: right; }</style>\n</head>\n<body>\n<table>\n")
    classes = ["" if unit is None else ' class="number"' for unit in rows.units]
    headers = (f"<th{kind}>{escape(name)}</th>" for kind, name in zip(classes, rows.names, strict=True))
    file.write(f"<thead><tr>{''.join(headers)}</tr></thead>\n<tbody>\n")
    for row in rows.rows:
        cells = (f"<td{kind}>{'' if cell is None else cell}</td>" for kind, cell in zip(classes, row, strict=True))
        file.write(f"<tr>{''.join(cells)}</tr>\n")
    file.write("</tbody>\n</table>\n</body>\n</html>\n")
