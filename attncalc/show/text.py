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
    lines: list[str] = []
    for block in layout(report, explain=explain, width=width, plain=plain, rows=rows):
        lines += [*map(as_text, block), ""]
    return "\n".join(lines)


def height(report: Report) -> int:
    """Return the number of lines of a terminal of WIDTH columns, without formulas."""
    return _height(layout(report, with_bar=True))


def _height(blocks: Sequence[Sequence[Line]]) -> int:
    return sum(map(len, blocks)) + len(blocks) - 1  # an empty line between two blocks


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
    blocks: list[Sequence[Line]] = [_heading_lines(report, text_width, with_bar)]
    if report.answer:
        answer = _wrapped_all(report.answer.split("\n"), text_width)
        blocks.append(_lines(answer, "strong"))
    if explain:
        in_words = plain or width < WIDTH
        figures = report.figures_to_explain
        for label, *lines in explain_figures(figures, min(width, 120), in_words=in_words):
            blocks.append([*_lines([label], "strong"), *_lines(lines)])
    else:
        for table in report.tables:
            parts = [table] if plain else divided(table, width)
            blocks += [_table_lines(part, width, plain) for part in parts]
    notes = report.screen_notes
    if report.short_notes is not None and not explain:
        notes = report.short_notes
    if notes:
        lines_of_notes: list[Line] = []
        for note in notes:
            kind: Kind | None = "alert" if note.startswith(ALERTS) else None
            lines_of_notes += _lines(wrapped(note, width=text_width), kind)
        blocks.append(lines_of_notes)
    blocks += [_table_lines(table, width, plain) for table in report.footer]
    if rows and report.verdict and _height(blocks) > rows:
        verdict = _wrapped_all(_first_sentences(report.heading), text_width)
        blocks.append(_lines(verdict, report.verdict))
    return blocks


def _first_sentences(heading: Sequence[str]) -> list[str]:
    """Return the first sentence of the heading, and that of its second line if it is a verdict
    below times.
    """
    first = [re.split(r"(?<=\.) (?=[A-Z0-9])", line)[0] for line in heading[:2]]
    if re.match("([A-Z ]{4,}|Price):", first[-1]):
        return first
    return first[:1]


def _wrapped_all(texts: Iterable[str], width: int) -> list[str]:
    """Return texts in lines of at most `width` columns; each starts a line."""
    lines: list[str] = []
    for text in texts:
        lines += wrapped(text, width=width)
    return lines


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
    lines = [start, *_lines(others), *_lines(_wrapped_all(facts, width))]
    if report.bar:
        lines += _bar_lines(report.bar, width, with_bar)
    return lines


def _bar_lines(bar: Bar, width: int, with_bar: bool) -> list[Line]:
    if with_bar and width >= WIDTH and not bar.in_words:
        return [(Piece("  "), *line) for line in bar.lines()]
    parts, limits = bar.words()
    return _lines([*wrapped(f"  {parts}", "    ", width), *wrapped(f"  {limits}", "    ", width)])


def narrowed(table: Table, width: int) -> tuple[Table, list[str]]:
    """Return a table without the columns for which a screen has no room, and their names; the whole
    table if that is not enough.
    """
    columns = table.columns
    order = sorted((column.drop, i) for i, column in enumerate(columns) if column.drop)
    left_out: list[int] = []
    shown = table
    for _, index in order:
        if _width(shown) <= width:
            break
        left_out.append(index)
        kept = [i for i in range(len(columns)) if i not in left_out]
        shown = table._replace(
            columns=tuple(columns[i] for i in kept),
            rows=tuple(tuple(row[i] for i in kept) for row in table.rows),
        )
    if _width(shown) > width:
        return table, []
    return shown, [_in_one_line(columns[i].header) for i in left_out]


def _in_one_line(header: str) -> str:
    """Return a header: 'replicas' of two lines with a hyphen, 'FLOP/byte', 'KV cache GiB'."""
    return header.replace("-\n", "").replace("\n/", "/").replace("\n", " ")


def _width(table: Table) -> int:
    return max(map(len, table_lines(table)), default=0)


def _table_lines(table: Table, width: int, plain: bool) -> list[Line]:
    left_out: list[str] = []
    if not plain:
        table, left_out = narrowed(table, width)
    lines = table_lines(table)
    if plain or max(map(len, lines), default=0) > width:
        is_strong = len(table.strong) == len(table.rows)
        return _lines(list_lines(table, width), "strong" if is_strong else None)
    headers = len(table.header_rows)
    found = _lines(lines[:headers])
    for i, line in enumerate(lines[headers:]):
        found += _lines([line], "strong" if i in table.strong else None)
    if left_out:
        text = f"  Left out at {width} columns: {'; '.join(left_out)}."
        found += _lines(wrapped(text, "    ", width))
    return found


def table_lines(table: Table) -> list[str]:
    """Return the lines of a table: two spaces between columns, numbers to the right, no rules."""
    rows = [*table.header_rows, *table.rows]
    if not rows:
        return []
    padded = []
    for column, cells in zip(table.columns, zip(*rows, strict=True), strict=True):
        width = max(map(len, cells))
        if column.align == "left":
            padded.append([cell.ljust(width) for cell in cells])
        else:
            padded.append([cell.rjust(width) for cell in cells])
    return [f"  {'  '.join(cells)}".rstrip() for cells in zip(*padded, strict=True)]
