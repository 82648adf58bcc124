"""A figure's working: its formula, the formula with the numbers, what each symbol is, the source."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ..quantity import Symbol
from .report import Figure, Report

Said = dict[str, Symbol | None]
"""What needs no line any more: each symbol by its name, and each source."""


def workings(report: Report, width: int = 80) -> list[list[str]]:
    """The working of every figure of `report`; what a symbol is and a source are said once."""
    said: Said = {}
    return [working(figure, width, said) for figure in report.workings]


def working(figure: Figure, width: int = 80, said: Said | None = None) -> list[str]:
    """The lines that explain `figure`, no wider than `width` where a name allows it.

    said: what needs no line; what `figure` says is added. A symbol that has another value now (the
    layers of another group) is said again.
    """
    said = {} if said is None else said
    of = f", {figure.of}" if figure.of else ""
    rounded = f" = {figure.human}" if figure.human != figure.exact else ""
    lines = textwrap.wrap(
        f"{figure.label}{of} = {figure.exact}{rounded}", width, initial_indent="  ", subsequent_indent="    "
    )
    lines += aligned(figure.formula.cells, width - 4, "    ")
    lines += _legend([s for s in figure.formula.symbols if said.get(s.name) != s], width)
    if figure.source and figure.source not in said:
        source = f"source: {figure.source}"
        lines += textwrap.wrap(source, width, initial_indent="    ", subsequent_indent="      ")
    said.update({s.name: s for s in figure.formula.symbols}, **{figure.source: None})
    return lines


def aligned(cells: list[tuple[str, str]], width: int, indent: str) -> list[str]:
    """The formula over its numbers, symbol above number, folded in pairs of lines."""
    lines: list[str] = []
    above, below = "", ""
    for symbol, number in cells:
        wide = max(len(symbol), len(number))
        if above and len(above) + 1 + wide > width:
            lines += _pair(indent, above, below)
            above, below = "  ", "  "
        gap = " " if above.strip() else ""
        above += gap + symbol.ljust(wide)
        below += gap + number.ljust(wide)
    return [*lines, *_pair(indent, above, below)]


def _pair(indent: str, above: str, below: str) -> list[str]:
    above, below = indent + above.rstrip(), indent + below.rstrip()
    return [above] if above == below else [above, below]


def _legend(symbols: Sequence[Symbol], width: int) -> list[str]:
    name_width = max((len(s.name) for s in symbols), default=0)
    lines: list[str] = []
    for s in symbols:
        start = f"    {s.name:<{name_width}}  "
        lines += textwrap.wrap(
            f"{s.value:,} {s.meaning}", width, initial_indent=start, subsequent_indent=" " * len(start)
        )
    return lines
