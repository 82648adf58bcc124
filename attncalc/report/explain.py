"""A figure's working: its formula, the formula with the numbers, what each symbol is, the source."""

from __future__ import annotations

import textwrap

from .report import Figure


def working(figure: Figure, width: int = 80) -> list[str]:
    """The lines that explain `figure`, no wider than `width` where a name allows it."""
    of = f", {figure.of}" if figure.of else ""
    rounded = f" = {figure.human}" if figure.human != figure.exact else ""
    lines = [f"  {figure.label}{of} = {figure.exact}{rounded}"]
    lines += aligned(figure.formula.cells, width - 4, "    ")
    lines += _legend(figure, width)
    if figure.source:
        lines += textwrap.wrap(
            f"source: {figure.source}", width, initial_indent="    ", subsequent_indent="      "
        )
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


def _legend(figure: Figure, width: int) -> list[str]:
    symbols = figure.formula.symbols
    if not symbols:
        return []
    name_width = max(len(s.name) for s in symbols)
    lines: list[str] = []
    for s in symbols:
        start = f"    {s.name:<{name_width}}  "
        lines += textwrap.wrap(
            f"{s.value:,} {s.meaning}", width, initial_indent=start, subsequent_indent=" " * len(start)
        )
    return lines
