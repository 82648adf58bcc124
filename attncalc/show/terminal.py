"""A report on a terminal: the lines of the plain text, with emphasis."""

import sys

from rich.console import Console
from rich.text import Text

from .bar import Kind
from .characters import printable
from .lists import screen_rows, screen_width
from .report import Report
from .text import layout

_STYLES: dict[Kind | None, str] = {
    "strong": "bold",
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
    """Print the report to the terminal. With NO_COLOR or TERM=dumb there is neither emphasis nor a
    bar.
    """
    width = screen_width(sys.stdout)
    console = Console(highlight=False, soft_wrap=True, width=width)
    is_styled = not (console.no_color or console.is_dumb_terminal)
    styles = _STYLES if is_styled else {}
    rows = screen_rows(sys.stdout)
    for i, block in enumerate(
        layout(report, explain=explain, width=width, with_bar=is_styled, rows=rows)
    ):
        if i:
            console.print()
        for line in block:
            pieces = (
                (printable(piece.text, console.encoding), styles.get(piece.kind, ""))
                for piece in line
            )
            console.print(Text.assemble(*pieces))
