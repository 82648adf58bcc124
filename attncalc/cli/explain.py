"""`attncalc explain`: a term of the field on one screen."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ..report.glossary import find_terms, term_report, terms_report
from ..report.lists import screen_width
from ..report.text import render
from . import COMMANDS
from . import options as o
from .command import command_app

app = command_app()


@app.command(help=COMMANDS["explain"], epilog="For example: attncalc explain kv-cache")
def explain(
    output: o.PlainOutputOptions,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[TERM]", help="A term, as gqa or roofline. Default: list all.")
    ] = None,
) -> None:
    reports = [term_report(name) for name in find_terms(" ".join(words))] if words else [terms_report()]
    width = screen_width(sys.stdout)
    output.write("\n".join(render(report, width=width) for report in reports))
