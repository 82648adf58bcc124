"""The explanation of a figure: its formula in symbols and in numbers, the meaning of each symbol, the source."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ..quantity import Symbol
from .report import Figure, Report

Explained = dict[str, Symbol | None]
"""The symbols (by name) and sources (with None) that were explained for earlier figures."""


def explain_figures(report: Report, width: int = 80) -> list[list[str]]:
    """Return the lines that explain each figure of `report`; a symbol or source is explained only once."""
    explained: Explained = {}
    return [explain_figure(figure, width, explained) for figure in report.figures_to_explain]


def explain_figure(figure: Figure, width: int = 80, explained: Explained | None = None) -> list[str]:
    """Return the lines that explain `figure`, no wider than `width` unless a single name is.

    Args:
        figure: The figure to explain.
        width: Columns of a line.
        explained: The symbols and sources that need no line; those of `figure` are added. A symbol is explained
            again if its value differs: L may be the layers of another group.
    """
    explained = {} if explained is None else explained
    of = f", {figure.of}" if figure.of else ""
    rounded = f" = {figure.human}" if figure.human != figure.exact else ""
    lines = textwrap.wrap(
        f"{figure.label}{of} = {figure.exact}{rounded}", width, initial_indent="  ", subsequent_indent="    "
    )
    lines += align_formula(figure.formula.cells, width - 4, "    ")
    lines += _legend([s for s in figure.formula.symbols if explained.get(s.name) != s], width)
    if figure.source and figure.source not in explained:
        source = f"source: {figure.source}"
        lines += textwrap.wrap(source, width, initial_indent="    ", subsequent_indent="      ")
    explained.update({s.name: s for s in figure.formula.symbols}, **{figure.source: None})
    return lines


def align_formula(cells: list[tuple[str, str]], width: int, indent: str) -> list[str]:
    """Return the formula with each symbol above its number; a long formula is folded into several pairs of lines."""
    lines: list[str] = []
    symbols_line, numbers_line = "", ""
    for symbol, number in cells:
        cell_width = max(len(symbol), len(number))
        if symbols_line and len(symbols_line) + 1 + cell_width > width:
            lines += _pair(indent, symbols_line, numbers_line)
            symbols_line, numbers_line = "  ", "  "
        gap = " " if symbols_line.strip() else ""
        symbols_line += gap + symbol.ljust(cell_width)
        numbers_line += gap + number.ljust(cell_width)
    return [*lines, *_pair(indent, symbols_line, numbers_line)]


def _pair(indent: str, above: str, below: str) -> list[str]:
    above, below = indent + above.rstrip(), indent + below.rstrip()
    return [above] if above == below else [above, below]


def _legend(symbols: Sequence[Symbol], width: int) -> list[str]:
    """Return one line per symbol: its name, value and meaning."""
    name_width = max((len(s.name) for s in symbols), default=0)
    lines: list[str] = []
    for s in symbols:
        start = f"    {s.name:<{name_width}}  "
        lines += textwrap.wrap(
            f"{s.value:,} {s.meaning}", width, initial_indent=start, subsequent_indent=" " * len(start)
        )
    return lines
