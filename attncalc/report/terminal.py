"""A report on a terminal: the lines of the plain text, with emphasis."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from .bar import Kind
from .characters import printable
from .report import Report
from .text import WIDTH, layout

_STYLES: dict[Kind | None, str] = {
    "strong": "bold",
    "dim": "dim",
    "alert": "yellow",
    "fits": "bold green",
    "may_not_fit": "bold yellow",
    "does_not_fit": "bold red",
    "weights": "blue",
    "runtime": "yellow",
    "range": "yellow",
    "cache": "green",
}


def print_report(report: Report, *, explain: bool = False) -> None:
    """Print the report to the terminal; rich respects NO_COLOR and TERM=dumb."""
    console = Console(highlight=False, soft_wrap=True)
    if console.width < 1:  # COLUMNS=0, with which rich prints nothing
        console.width = WIDTH
    for i, block in enumerate(layout(report, explain=explain, width=max(WIDTH, min(console.width, 120)))):
        if i:
            console.print()
        for line in block:
            pieces = ((printable(piece.text, console.encoding), _STYLES.get(piece.kind, "")) for piece in line)
            console.print(Text.assemble(*pieces))
