"""A report on a terminal: the lines of the plain text, with emphasis."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from .bar import Kind, printable
from .explain import explain_figures
from .notes import WARNING
from .report import Report, Table
from .text import WIDTH, table_lines, wrapped

_VERDICT_STYLES = {None: "bold", "fits": "bold green", "may_not_fit": "bold yellow", "does_not_fit": "bold red"}
_BAR_STYLES: dict[Kind | None, str] = {
    None: "",
    "weights": "blue",
    "runtime": "yellow",
    "range": "yellow",
    "cache": "green",
    "outside": "",
}


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
    for notes in report.note_blocks:
        console.print()
        for note in notes:
            for line in wrapped(note):
                console.print(Text(line, style="yellow" if note.startswith(WARNING) else ""))
    for table in report.footer:
        console.print()
        _print_table(console, table)


def _print_heading(console: Console, report: Report) -> None:
    """Print the heading, with its first words in bold, and the bar."""
    title, *facts = report.heading
    name = title.partition(":" if report.verdict else "  ")[0]
    first, *others = wrapped(title)
    console.print(Text.assemble((first[: len(name)], _VERDICT_STYLES[report.verdict]), first[len(name) :]))
    for line in (*others, *(line for fact in facts for line in wrapped(fact))):
        console.print(Text(line, style="dim"))
    for pieces in report.bar.lines() if report.bar else ():
        texts = ((printable(piece.text, console.encoding), _BAR_STYLES[piece.kind]) for piece in pieces)
        console.print(Text.assemble("  ", *texts))
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
