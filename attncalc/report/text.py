"""A report as plain text: what goes into a pipe, and the layout that a terminal's table has too."""

from __future__ import annotations

import textwrap

from .explain import workings
from .report import Report, Table

WIDTH = 80


def render(report: Report, *, explain: bool = False) -> str:
    """The report in lines of at most 80 columns where its words allow it."""
    blocks = ["\n".join(line for text in report.heading for line in wrapped(text))]
    if explain:
        blocks += ["\n".join(lines) for lines in workings(report, WIDTH)]
    else:
        blocks += ["\n".join(table_lines(table)) for table in report.tables]
    blocks += ["\n".join(wrapped(note, "  ")) for note in report.notes]
    blocks += ["\n".join(table_lines(table)) for table in report.footer]
    return "\n\n".join(blocks) + "\n"


def wrapped(text: str, hanging: str = "  ", width: int = WIDTH) -> list[str]:
    """`text` in lines of at most `width` columns, those after the first indented."""
    return textwrap.wrap(text, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)


def table_lines(table: Table) -> list[str]:
    """The table with two spaces between columns, numbers to the right, no rules."""
    headers = [column.header.split("\n") for column in table.columns]
    height = max(map(len, headers))
    head = [tuple(h[i - height + len(h)] if i >= height - len(h) else "" for h in headers) for i in range(height)]
    rows = [*(row for row in head if any(row)), *table.rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column.align == "left" else cell.rjust(width)
            for cell, width, column in zip(row, widths, table.columns, strict=True)
        ]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines
