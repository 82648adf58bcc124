"""`attncalc explain`: a term of the field on one screen."""

import sys
from typing import Annotated

import typer

from ...cli import options as o
from ...cli.command import command
from ...show.lists import screen_width
from ...show.text import render
from .glossary import TERMS, find_terms, term_report, terms_report


@command(values={"TERM": lambda: TERMS})
def explain(
    output: o.AnswerOptions,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TERM]", help="A term, as gqa or roofline. Default: list all."),
    ] = None,
) -> None:
    names = find_terms(words) if words else [*TERMS]
    if len(names) == 1:
        output.show(term_report(names[0]))
    elif words and output.chosen.name == "table":
        width = screen_width(sys.stdout)
        output.write("\n".join(render(term_report(name), width=width) for name in names))
    else:
        output.show(terms_report(names))
