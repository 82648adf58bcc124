"""A report as Markdown: the tables of the screen, to paste into a review or a wiki."""

from __future__ import annotations

from .explain import explain_figures
from .report import Report, Table


def render(report: Report, *, explain: bool = False) -> str:
    """Return the report as Markdown; `explain` adds a code block with the formula of each figure."""
    title, *facts = report.heading
    name, _, attention = title.partition("  ")
    blocks = [f"**{_escaped(name)}** {_escaped(attention)}", *(_escaped(fact) for fact in facts)]
    blocks += [f"**{_escaped(report.answer)}**"] if report.answer else []
    blocks += [_table(table) for table in report.tables]
    if explain:
        blocks += ["\n".join(("```text", *lines, "```")) for lines in explain_figures(report)]
    blocks += [f"> {_escaped(note)}" for note in report.notes]
    blocks += [_table(table) for table in report.footer]
    return "\n\n".join(blocks) + "\n"


def _table(table: Table) -> str:
    marks = ["---" if column.align == "left" else "---:" for column in table.columns]
    header = [_escaped(column.header.replace("\n", " ")) for column in table.columns]
    rows = [header, marks, *([_cell(cell) for cell in row] for row in table.rows)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def _cell(text: str) -> str:
    indent = len(text) - len(text.lstrip())
    return "&nbsp;" * indent * (2 if indent and text.strip()[:1].isalpha() else 0) + _escaped(text.strip())


def _escaped(text: str) -> str:
    for mark in ("\\", "|", "*", "_", "`", "<"):
        text = text.replace(mark, f"\\{mark}")
    return text
