"""Rows as a LaTeX tabular, for the body of a paper that uses the package booktabs."""

from __future__ import annotations

from typing import IO

from ..latex import escape
from . import Rows

__all__ = ["escape", "write"]


def write(rows: Rows, file: IO[str]) -> None:
    """Write the tabular; numbers are aligned to the right."""
    align = "".join("l" if unit is None else "r" for unit in rows.units)
    file.write("% Load \\usepackage{booktabs} in the preamble.\n")
    file.write(f"\\begin{{tabular}}{{{align}}}\n\\toprule\n")
    file.write(f"{' & '.join(map(escape, rows.names))} \\\\\n\\midrule\n")
    for row in rows.rows:
        file.write(f"{' & '.join('' if cell is None else _cell(cell) for cell in row)} \\\\\n")
    file.write("\\bottomrule\n\\end{tabular}\n")


def _cell(cell: object) -> str:
    return str(cell).replace("_", r"\_") if cell in ("may_not_fit", "does_not_fit") else str(cell)
