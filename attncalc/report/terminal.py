"""A report on a terminal: the lines of the plain text, with emphasis."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from .explain import explain_figures
from .notes import WARNING
from .report import Report, Table
from .text import WIDTH, table_lines, wrapped


def print_report(report: Report, *, explain: bool = False) -> None:
    """Print the report to the terminal; rich respects NO_COLOR and TERM=dumb."""
    console = Console(highlight=False, soft_wrap=True)
    _print_heading(console, report)
    if explain:
        for label, *lines in explain_figures(report, max(WIDTH, min(console.width, 120))):
            console.print()
            console.print(Text(label, style="bold"))
            for line in lines:
                console.print(Text(line))
    else:
        for table in report.tables:
            console.print()
            _print_table(console, table)
    for note in report.notes:
        console.print()
        for line in wrapped(note):
            console.print(Text(line, style="yellow" if note.startswith(WARNING) else ""))
    for table in report.footer:
        console.print()
        _print_table(console, table)


def _print_heading(console: Console, report: Report) -> None:
    """Print the heading, and the answer if the report has one."""
    title, *facts = report.heading
    name, gap, rest = title.partition("  ")
    first, *others = wrapped(name + gap + rest)
    console.print(Text.assemble((first[: len(name)], "bold"), first[len(name) :]))
    for line in (*others, *(line for fact in facts for line in wrapped(fact))):
        console.print(Text(line, style="dim"))
    if report.answer:
        console.print()
        for line in wrapped(report.answer):
            console.print(Text(line, style="bold"))


def _print_table(console: Console, table: Table) -> None:
    lines = table_lines(table)
    n_headers = len(lines) - len(table.rows)
    for i, line in enumerate(lines):
        style = "dim" if i < n_headers else "bold" if i - n_headers in table.strong else ""
        console.print(Text(line, style=style))
