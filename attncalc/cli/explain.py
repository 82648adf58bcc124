"""`attncalc explain`: a term of the field on one screen."""

from __future__ import annotations

from typing import Annotated

import typer

from ..report.glossary import find_term, term_report, terms_report
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
    output.write(render(term_report(find_term(" ".join(words))) if words else terms_report()))
