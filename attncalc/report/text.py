"""A report as plain text, for pipes and files; terminal.py uses the same table layout."""

from __future__ import annotations

import textwrap

from .explain import explain_figures
from .report import Report, Table

WIDTH = 80


def render(report: Report, *, explain: bool = False) -> str:
    """Return the report in lines of at most 80 columns; only a longer word makes a longer line."""
    blocks = ["\n".join((*(line for text in report.heading for line in wrapped(text)), *bar_lines(report)))]
    if report.answer:
        blocks.append("\n".join(wrapped(report.answer)))
    if explain:
        blocks += ["\n".join(lines) for lines in explain_figures(report, WIDTH)]
    else:
        blocks += ["\n".join(table_lines(table)) for table in report.tables]
    blocks += ["\n".join(line for note in notes for line in wrapped(note)) for notes in report.note_blocks]
    blocks += ["\n".join(table_lines(table)) for table in report.footer]
    return "\n\n".join(blocks) + "\n"


def height(report: Report) -> int:
    """Return the number of lines that `render` returns, without the formulas."""
    heading = [len(wrapped(text)) for text in report.heading]
    bar = report.bar.lines() if report.bar else ()
    blocks = [sum(heading) + len(bar), *([len(wrapped(report.answer))] if report.answer else [])]
    blocks += [table.height for table in (*report.tables, *report.footer)]
    blocks += [sum(len(wrapped(note)) for note in notes) for notes in report.note_blocks]
    return sum(blocks) + len(blocks) - 1  # an empty line between two blocks


def bar_lines(report: Report) -> list[str]:
    """Return the bar and its legend, indented; none without a bar."""
    return ["  " + "".join(piece.text for piece in line) for line in report.bar.lines()] if report.bar else []


def wrapped(text: str, hanging: str = "  ", width: int = WIDTH) -> list[str]:
    """Return `text` in lines of at most `width` columns, indented by `hanging` after the first."""
    return textwrap.wrap(text, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)


def table_lines(table: Table) -> list[str]:
    """Return the lines of a table: two spaces between columns, numbers to the right, no rules."""
    rows = [*table.header_rows, *table.rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column.align == "left" else cell.rjust(width)
            for cell, width, column in zip(row, widths, table.columns, strict=True)
        ]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines
