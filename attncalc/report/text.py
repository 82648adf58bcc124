"""A report as plain text, for pipes and files. A terminal shows the same lines with emphasis."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from .bar import Kind, Line, Piece
from .explain import explain_figures
from .notes import ALERTS
from .report import Report, Table

WIDTH = 80


def render(report: Report, *, explain: bool = False) -> str:
    """Return the report in lines of at most 80 columns; only a longer word makes a longer line."""
    blocks = ("\n".join(map(as_text, block)) for block in layout(report, explain=explain))
    return "\n\n".join(blocks) + "\n"


def height(report: Report) -> int:
    """Return the number of lines that `render` returns, without formulas."""
    blocks = layout(report)
    return sum(map(len, blocks)) + len(blocks) - 1  # an empty line between two blocks


def layout(report: Report, *, explain: bool = False, width: int = WIDTH) -> list[Sequence[Line]]:
    """Return the blocks of lines of a screen, between which a line is empty.

    Args:
        report: The report.
        explain: Whether formulas replace the tables.
        width: Columns of a formula; other lines have at most WIDTH.
    """
    blocks = [_heading_lines(report)]
    if report.answer:
        blocks.append(_lines(wrapped(report.answer), "strong"))
    if explain:
        blocks += [
            (*_lines([label], "strong"), *_lines(lines))
            for label, *lines in explain_figures(report.figures_to_explain, width)
        ]
    else:
        blocks += map(_table_lines, report.tables)
    blocks += [[line for note in notes for line in _note_lines(note)] for notes in report.note_blocks]
    return [*blocks, *map(_table_lines, report.footer)]


def as_text(line: Line) -> str:
    """Return a line without its kinds."""
    return "".join(piece.text for piece in line)


def bar_lines(report: Report) -> list[str]:
    """Return the bar and its legend, indented; none without a bar."""
    return [as_text(line) for line in _bar_lines(report)]


def _lines(texts: Iterable[str], kind: Kind | None = None) -> list[Line]:
    return [(Piece(text, kind),) for text in texts]


def _heading_lines(report: Report) -> Sequence[Line]:
    """Return the heading, with its first words and other lines of different kinds, and the bar."""
    title, *facts = report.heading
    name = title.partition(":" if report.verdict else "  ")[0]
    first, *others = wrapped(title)
    start = (Piece(first[: len(name)], report.verdict or "strong"), Piece(first[len(name) :]))
    facts = [*others, *(line for fact in facts for line in wrapped(fact))]
    return [start, *_lines(facts, "dim"), *_bar_lines(report)]


def _bar_lines(report: Report) -> list[Line]:
    return [(Piece("  "), *line) for line in report.bar.lines()] if report.bar else []


def _note_lines(note: str) -> list[Line]:
    return _lines(wrapped(note), "alert" if note.startswith(ALERTS) else None)


def _table_lines(table: Table) -> list[Line]:
    headers, lines = len(table.header_rows), table_lines(table)
    rows = [(Piece(line, "strong" if i in table.strong else None),) for i, line in enumerate(lines[headers:])]
    return [*_lines(lines[:headers], "dim"), *rows]


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
