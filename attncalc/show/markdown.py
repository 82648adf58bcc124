"""Markdown to paste into a review or a wiki: the tables of a report, and the rows of a sweep."""

import re
from collections.abc import Iterable
from typing import IO

from .characters import printable
from .formats import Rows
from .formulas import explain_figures
from .report import Report, Table

_MARK = re.compile(r"[\\|*_`<\[&~$]")


def render(report: Report, *, explain: bool = False) -> str:
    """Return the report as Markdown; `explain` adds a code block with the formula of each
    figure.
    """
    title, *facts = report.heading
    name, _, attention = title.partition("  ")
    blocks = [
        f"**{_escaped(name)}** {_escaped(attention)}".rstrip(),
        *(_escaped(fact) for fact in facts),
    ]
    blocks += [_escaped("; ".join(report.bar.words()))] if report.bar else []
    blocks += [f"**{_escaped(report.answer)}**"] if report.answer else []
    blocks += [_table(table) for table in report.tables]
    if explain:
        blocks += [_code("text", lines) for lines in explain_figures(report.figures_to_explain)]
    blocks += [f"> {_escaped(note)}" for note in report.screen_notes]
    blocks += [_table(table) for table in report.footer]
    return "\n\n".join(blocks) + "\n"


def _code(language: str, lines: Iterable[str]) -> str:
    return "\n".join((f"```{language}", *lines, "```"))


def _table(table: Table) -> str:
    if table.code:
        title = [f"{_escaped(column.header)}\n\n" for column in table.columns if column.header]
        return "".join(title) + _code("sh", (line for (line,) in table.rows))
    marks = ["---" if column.align == "left" else "---:" for column in table.columns]
    header = [_escaped(column.header.replace("\n", " ")) for column in table.columns]
    rows = [header, marks, *([_cell(cell) for cell in row] for row in table.rows)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def _cell(text: str) -> str:
    indent = len(text) - len(text.lstrip())
    return "&nbsp;" * indent * (2 if indent and text.strip()[:1].isalpha() else 0) + _escaped(
        text.strip()
    )


def write(rows: Rows, file: IO[str]) -> None:
    """Write the rows of a sweep as a table; numbers are aligned to the right."""
    file.write(f"| {' | '.join(map(escape, rows.names))} |\n")
    file.write(f"| {' | '.join('---' if unit is None else '---:' for unit in rows.units)} |\n")
    for row in rows.rows:
        file.write(f"| {' | '.join('' if cell is None else str(cell) for cell in row)} |\n")


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
