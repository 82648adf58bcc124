"""Markdown to paste into a review or a wiki: the tables of a report, and the rows of a sweep."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import IO

from .characters import printable
from .formats import Rows
from .formulas import explain_figures
from .report import Report, Table
from .row_columns import in_columns

_MARK = re.compile(r"[\\|*_`<\[&~$]")


def render(report: Report, *, explain: bool = False) -> str:
    """Return the report as Markdown; `explain` adds a code block with the formula of each
    figure.
    """
    title, *facts = report.heading
    name, _, attention = title.partition("  ")
    blocks = [f"**{_escaped(name)}** {_escaped(attention)}".rstrip(), *map(_escaped, facts)]
    if report.bar:
        blocks.append(_escaped("; ".join(report.bar.words())))
    if report.answer:
        blocks.append(f"**{_escaped(report.answer)}**")
    blocks += [_table(table, report.titles) for table in report.tables]
    if explain:
        blocks += [_code("text", lines) for lines in explain_figures(report.figures_to_explain)]
    blocks += [f"> {_escaped(note)}" for note in report.screen_notes]
    blocks += map(_table, report.footer)
    return "\n\n".join(blocks) + "\n"


def _code(language: str, lines: Iterable[str]) -> str:
    return "\n".join((f"```{language}", *lines, "```"))


def _table(table: Table, titles: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a table; `titles` are those of models, which replace their names."""
    if table.code:
        code = _code("sh", (line for (line,) in table.rows))
        return "\n\n".join([*map(_escaped, table.headers), code])
    headers = [_escaped(titles.get(column.header, column.header)) for column in table.columns]
    lines = [_line(headers), _marks(column.align == "right" for column in table.columns)]
    for row in table.rows:
        lines.append(_line(_cell(titles.get(cell, cell)) for cell in row))
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _marks(are_numbers: Iterable[bool]) -> str:
    """Return the line below the headers, which aligns numbers to the right."""
    return _line("---:" if is_number else "---" for is_number in are_numbers)


def _cell(text: str) -> str:
    """Return a cell; words that are indented, as a part of the row above, keep their indent."""
    words = text.strip()
    if not words[:1].isalpha():
        return _escaped(words)
    indent = len(text) - len(text.lstrip())
    return "&nbsp;" * 2 * indent + _escaped(words)


def write(rows: Rows, file: IO[str]) -> None:
    """Write the rows of a sweep as a table with people's names; a column has one unit, and one
    without any cell is left out.
    """
    columns = in_columns(rows, escape)
    file.write(f"{_line(column.header for column in columns)}\n")
    file.write(f"{_marks(column.align == 'right' for column in columns)}\n")
    for cells in zip(*(column.cells for column in columns), strict=True):
        file.write(f"{_line(cells)}\n")


def escape(text: str) -> str:
    """Return a text without control characters, on one line and with the marks of Markdown
    escaped.
    """
    return _escaped(printable(text, "utf-8"))


def _escaped(text: str) -> str:
    """Return `text` on one line with the marks of Markdown escaped, those of GitHub's math and
    strikethrough too.
    """
    return _MARK.sub(r"\\\g<0>", text.replace("\n", " "))
