"""A report as Markdown: the tables of the screen, to paste into a review or a wiki."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .explain import explain_figures
from .report import Report, Table
from .text import bar_lines

_MARK = re.compile(r"[\\|*_`<\[&~$]")


def render(report: Report, *, explain: bool = False) -> str:
    """Return the report as Markdown; `explain` adds a code block with the formula of each figure."""
    title, *facts = report.heading
    name, _, attention = title.partition("  ")
    blocks = [f"**{escape(name)}** {escape(attention)}".rstrip(), *(escape(fact) for fact in facts)]
    if report.bar:
        blocks.append(_code("text", bar_lines(report)))
    blocks += [f"**{escape(report.answer)}**"] if report.answer else []
    blocks += [_table(table) for table in report.tables]
    if explain:
        blocks += [_code("text", lines) for lines in explain_figures(report)]
    blocks += [f"> {escape(note)}" for notes in report.note_blocks for note in notes]
    blocks += [_table(table) for table in report.footer]
    return "\n\n".join(blocks) + "\n"


def _code(language: str, lines: Iterable[str]) -> str:
    return "\n".join((f"```{language}", *lines, "```"))


def _table(table: Table) -> str:
    if table.code:
        title = [f"{escape(column.header)}\n\n" for column in table.columns if column.header]
        return "".join(title) + _code("sh", (line for (line,) in table.rows))
    marks = ["---" if column.align == "left" else "---:" for column in table.columns]
    header = [escape(column.header.replace("\n", " ")) for column in table.columns]
    rows = [header, marks, *([_cell(cell) for cell in row] for row in table.rows)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def _cell(text: str) -> str:
    indent = len(text) - len(text.lstrip())
    return "&nbsp;" * indent * (2 if indent and text.strip()[:1].isalpha() else 0) + escape(text.strip())


def escape(text: str) -> str:
    """Return `text` on one line with the marks of Markdown escaped, those of GitHub's math and strikethrough too."""
    return _MARK.sub(r"\\\g<0>", text.replace("\n", " "))
