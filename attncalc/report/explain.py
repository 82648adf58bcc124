"""The explanation of a figure: its formula in symbols and in numbers, the meaning of each symbol, the source."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from ..quantity import Symbol
from .report import Figure

_NARROWEST = 16
"""Columns of the narrowest column of meanings; with less, they go on below the symbol."""


def explain_figures(figures: Iterable[Figure], width: int = 80) -> list[list[str]]:
    """Return the lines that explain each figure, no wider than `width` unless a single name is.

    A source and a constant are explained once. A symbol is explained again if its value differs: L may be the layers of
    another group. One that is a figure has its own lines.
    """
    figures = tuple(figures)
    explained: dict[str, Symbol] = {}
    names = {figure.name for figure in figures}
    constants: set[tuple[str, str]] = set()
    sources = {""}
    blocks = []
    for figure in figures:
        of = f", {figure.of}" if figure.of else ""
        rounded = f" = {figure.human}" if figure.human != figure.exact else ""
        lines = _wrapped(f"  {figure.label}{of} = {figure.exact}{rounded}", width, "    ")
        lines += align_formula(figure.formula.cells, width - 4, "    ")
        symbols = [s for s in figure.formula.symbols if s.name not in names and explained.get(s.name) != s]
        legend = [(s.name, f"{s.value:,}", s.meaning) for s in symbols]
        legend += [
            (name, "", meaning) for name, meaning in figure.formula.constants if (name, meaning) not in constants
        ]
        lines += _legend(legend, width)
        if figure.source not in sources:
            lines += _wrapped(f"    source: {figure.source}", width, "      ")
        explained |= {s.name: s for s in figure.formula.symbols}
        constants |= set(figure.formula.constants)
        sources.add(figure.source)
        blocks.append(lines)
    return blocks


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=indent)


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


def _legend(entries: Sequence[tuple[str, str, str]], width: int) -> list[str]:
    """Return one line per symbol or constant: its name, its value and its meaning below each other."""
    names, values = (max((len(entry[i]) for entry in entries), default=0) for i in (0, 1))
    lines: list[str] = []
    for name, value, meaning in entries:
        start = f"    {name:<{names}}  {value:>{values}}  " if values else f"    {name:<{names}}  "
        hanging = len(start) if len(start) + _NARROWEST <= width else 6
        lines += _wrapped(f"{start}{meaning}", width, " " * hanging)
    return lines
