"""A report as plain text, for pipes and files. A terminal shows the same lines with emphasis, in
its own width.
"""

import re
from collections.abc import Iterable, Sequence

from .bar import Bar, Kind, Line, Piece
from .formulas import explain_figures
from .lists import WIDTH, divided, list_lines, wrapped
from .notes import ALERTS
from .report import Report, Table

# Lines of a default screen: those of a terminal of 24, less one for the prompt.
HEIGHT = 23


def render(
    report: Report, *, explain: bool = False, width: int = WIDTH, plain: bool = False, rows: int = 0
) -> str:
    """Return the report in lines of at most `width` columns; only a longer word makes a longer
    line.

    `plain` shows tables as lists, in which each number comes after its name: a screen reader reads
    them so.
    """
    blocks = layout(report, explain=explain, width=width, plain=plain, rows=rows)
    return "\n\n".join("\n".join(map(as_text, block)) for block in blocks) + "\n"


def height(report: Report) -> int:
    """Return the number of lines of a terminal of WIDTH columns, without formulas."""
    return _height(layout(report, with_bar=True))


def _height(blocks: Sequence[Sequence[Line]]) -> int:
    return sum(map(len, blocks)) + len(blocks) - 1  # an empty line between two blocks


def first_that_fits(screens: Iterable[Report]) -> Report:
    """Return the first of these screens, which get shorter, that has at most HEIGHT lines; or else
    the last one.
    """
    for screen in screens:
        if height(screen) <= HEIGHT:
            break
    return screen


def layout(
    report: Report,
    *,
    explain: bool = False,
    width: int = WIDTH,
    with_bar: bool = False,
    plain: bool = False,
    rows: int = 0,
) -> list[Sequence[Line]]:
    """Return the blocks of lines of a screen, between which a line is empty.

    `width` is that of a table; a formula has at most 120 columns, and text at most WIDTH.
    `with_bar` shows the memory as a bar of block characters, and not only in words. A screen of
    more than `rows` lines ends with the first sentence of the verdict, which scrolls away.
    """
    text_width = min(width, WIDTH)
    blocks = [_heading_lines(report, text_width, with_bar)]
    if report.answer:
        answers = (wrapped(line, width=text_width) for line in report.answer.split("\n"))
        blocks.append(_lines((line for lines in answers for line in lines), "strong"))
    if explain:
        in_words = plain or width < WIDTH
        explained = explain_figures(report.figures_to_explain, min(width, 120), in_words=in_words)
        blocks += [(*_lines([label], "strong"), *_lines(lines)) for label, *lines in explained]
    else:
        parts = (
            part
            for table in report.tables
            for part in ([table] if plain else divided(table, width))
        )
        blocks += [_table_lines(part, width, plain) for part in parts]
    notes = report.screen_notes
    if report.short_notes is not None and not explain:
        notes = report.short_notes
    if notes:
        blocks.append([line for note in notes for line in _note_lines(note, text_width)])
    blocks += [_table_lines(table, width, plain) for table in report.footer]
    if rows and report.verdict and _height(blocks) > rows:
        first = [re.split(r"(?<=\.) (?=[A-Z0-9])", line)[0] for line in report.heading]
        # the verdict below times
        number = 2 if re.match("([A-Z ]{4,}|Price):", "".join(first[1:2])) else 1
        blocks.append(
            _lines(
                (line for text in first[:number] for line in wrapped(text, width=text_width)),
                report.verdict,
            )
        )
    return blocks


def as_text(line: Line) -> str:
    return "".join(piece.text for piece in line)


def _lines(texts: Iterable[str], kind: Kind | None = None) -> list[Line]:
    return [(Piece(text, kind),) for text in texts]


def _heading_lines(report: Report, width: int, with_bar: bool) -> Sequence[Line]:
    """Return the heading, with its first words and other lines of different kinds, and the bar or
    its words.
    """
    title, *facts = report.heading
    name = title.partition(":" if report.verdict else "  ")[0]
    first, *others = wrapped(title, width=width)
    start = (Piece(first[: len(name)], report.verdict or "strong"), Piece(first[len(name) :]))
    facts = [*others, *(line for fact in facts for line in wrapped(fact, width=width))]
    return [start, *_lines(facts), *(_bar_lines(report.bar, width, with_bar) if report.bar else [])]


def _bar_lines(bar: Bar, width: int, with_bar: bool) -> list[Line]:
    if with_bar and width >= WIDTH and not bar.in_words:
        return [(Piece("  "), *line) for line in bar.lines()]
    return _lines(line for words in bar.words() for line in wrapped(f"  {words}", "    ", width))


def _note_lines(note: str, width: int) -> list[Line]:
    return _lines(wrapped(note, width=width), "alert" if note.startswith(ALERTS) else None)


def _table_lines(table: Table, width: int, plain: bool) -> list[Line]:
    headers = len(table.header_rows)
    lines = table_lines(table)
    if plain or max(map(len, lines), default=0) > width:
        return _lines(
            list_lines(table, width), "strong" if len(table.strong) == len(table.rows) else None
        )
    rows = [
        (Piece(line, "strong" if i in table.strong else None),)
        for i, line in enumerate(lines[headers:])
    ]
    return [*_lines(lines[:headers]), *rows]


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
