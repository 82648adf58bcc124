"""A report on a terminal: the lines of the plain text, with emphasis."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from .bar import Kind
from .characters import printable
from .explain import explain_figures
from .notes import ALERTS
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
    if console.width < 1:  # COLUMNS=0, with which rich prints nothing
        console.width = WIDTH
    _print_heading(console, report)
    if explain:
        for label, *lines in explain_figures(report, max(WIDTH, min(console.width, 120))):
            console.print()
            _print(console, label, "bold")
            for line in lines:
                _print(console, line)
    else:
        for table in report.tables:
            console.print()
            _print_table(console, table)
    for notes in report.note_blocks:
        console.print()
        for note in notes:
            for line in wrapped(note):
                _print(console, line, "yellow" if note.startswith(ALERTS) else "")
    for table in report.footer:
        console.print()
        _print_table(console, table)


def _print_heading(console: Console, report: Report) -> None:
    """Print the heading, with its first words in bold, and the bar."""
    title, *facts = report.heading
    name = title.partition(":" if report.verdict else "  ")[0]
    first, *others = wrapped(title)
    _print_pieces(console, (first[: len(name)], _VERDICT_STYLES[report.verdict]), (first[len(name) :], ""))
    for line in (*others, *(line for fact in facts for line in wrapped(fact))):
        _print(console, line, "dim")
    for pieces in report.bar.lines() if report.bar else ():
        _print_pieces(console, ("  ", ""), *((piece.text, _BAR_STYLES[piece.kind]) for piece in pieces))
    if report.answer:
        console.print()
        for line in wrapped(report.answer):
            _print(console, line, "bold")


def _print_table(console: Console, table: Table) -> None:
    lines = table_lines(table)
    n_headers = len(lines) - len(table.rows)
    for i, line in enumerate(lines):
        style = "dim" if i < n_headers else "bold" if i - n_headers in table.strong else ""
        _print(console, line, style)


def _print(console: Console, line: str, style: str = "") -> None:
    _print_pieces(console, (line, style))


def _print_pieces(console: Console, *pieces: tuple[str, str]) -> None:
    """Print one line of `pieces`, each a text and its style."""
    console.print(Text.assemble(*((printable(text, console.encoding), style) for text, style in pieces)))
