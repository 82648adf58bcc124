"""The explanation of a figure: its formula in symbols and in numbers, the meaning of each symbol,
the source.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..quantity import Formula
from ..records import NamedTuple
from .lists import packed, wrapped
from .report import Figure

# The name of a symbol, its value, its meaning; a constant, '' and its meaning.
_Entry = tuple[str, str, str]
# Columns of the narrowest column of meanings; with less, they go on below the symbol.
_NARROWEST = 24


class Explanation(NamedTuple):
    """What explains a figure besides its formula, without what an earlier figure has explained."""

    figure: Figure
    symbols: list[_Entry]  # the symbols and the constants of its formula, the new ones
    source: str  # '' if an earlier figure has it


def explanations(figures: Iterable[Figure]) -> Iterator[Explanation]:
    """Yield the explanation of each figure.

    A source and a constant are explained once. A symbol is explained again if its value differs: L
    may be the layers of another group. One that is a figure has its own explanation.
    """
    figures = tuple(figures)
    labels = {figure.name for figure in figures}
    explained: dict[str, _Entry] = {}
    sources = {""}
    for figure in figures:
        formula = figure.formula
        entries = [
            (s.name, f"{s.value:,}", s.meaning) for s in formula.symbols if s.name not in labels
        ]
        entries += [(name, "", meaning) for name, meaning in formula.constants]
        new = [entry for entry in entries if entry not in explained.values()]
        yield Explanation(figure, new, "" if figure.source in sources else figure.source)
        # a 2 has several meanings
        explained |= {entry[0] if entry[1] else entry[2]: entry for entry in entries}
        sources.add(figure.source)


def explain_figures(
    figures: Iterable[Figure], width: int = 80, *, in_words: bool = False
) -> list[list[str]]:
    """Return the lines that explain each figure, no wider than `width` unless a single name is.

    With `in_words` the meaning of a number follows it, '80 (layers) * 2 (...)', and nothing is
    aligned: a narrow screen and a screen reader show the same.
    """
    figures = tuple(figures)
    labels = {figure.name: figure.label.strip() for figure in figures}
    blocks = []
    for figure, symbols, source in explanations(figures):
        formula = figure.formula
        of = f", {figure.of}" if figure.of else ""
        rounded = f" = {figure.human}" if figure.human != figure.exact else ""
        lines = wrapped(f"  {figure.label}{of} = {figure.exact}{rounded}", "    ", width)
        if in_words:
            lines += packed(_terms(formula, labels), "    ", width)
            lines += wrapped(f"    formula: {formula.text}", "      ", width)
        else:
            lines += align_formula(formula.cells, width - 4, "    ")
            lines += _legend(symbols, width)
        if source:
            lines += wrapped(f"    source: {source}", "      ", width)
        blocks.append(lines)
    return blocks


def _terms(formula: Formula, labels: Mapping[str, str]) -> list[str]:
    """Return the numbers of a formula with their meanings, each after its operator: "= 80
    (layers)", "* 2 (...)".

    A symbol that comes again is explained at its first number, and named at the others: 'T,
    tokens', then 'T'.
    """
    named = Counter(symbol.rpartition("(")[2].rstrip("),") for symbol, *_ in formula.cells)
    explained = set()
    terms = ["="]
    for symbol, number, meaning in formula.cells:
        opening = number[: number.rfind("(") + 1]
        closing = number[len(number.rstrip("),")) :]
        name, digits = (text[len(opening) : len(text) - len(closing)] for text in (symbol, number))
        words = labels.get(name, meaning)
        if words and named[name] > 1 and not name.isdigit():
            words = name if name in explained else f"{name}, {words}"
        explained.add(name)
        value = f"{int(digits):,}" if digits.isdigit() else digits
        if words:
            text = f"{opening}{value} ({words}){closing}"
        else:
            text = f"{opening}{value}{closing}"
        if words or digits.isdigit():
            terms[-1] += f" {text}"
        else:
            terms.append(text)
    return terms


def align_formula(cells: list[tuple[str, str, str]], width: int, indent: str) -> list[str]:
    """Return the formula with each symbol above its number; a long formula is folded into several
    pairs of lines.
    """
    lines: list[str] = []
    symbols_line = ""
    numbers_line = ""
    for symbol, number, _ in cells:
        cell_width = max(len(symbol), len(number))
        if symbols_line and len(symbols_line) + 1 + cell_width > width:
            lines += _pair(indent, symbols_line, numbers_line)
            symbols_line = "  "
            numbers_line = "  "
        gap = " " if symbols_line.strip() else ""
        symbols_line += gap + symbol.ljust(cell_width)
        numbers_line += gap + number.ljust(cell_width)
    return [*lines, *_pair(indent, symbols_line, numbers_line)]


def _pair(indent: str, above: str, below: str) -> list[str]:
    above = indent + above.rstrip()
    below = indent + below.rstrip()
    if above == below:
        return [above]
    return [above, below]


def _legend(entries: Sequence[_Entry], width: int) -> list[str]:
    """Return one line per symbol or constant: its name, its value and its meaning below each
    other.
    """
    names, values = (max((len(entry[i]) for entry in entries), default=0) for i in (0, 1))
    lines: list[str] = []
    for name, value, meaning in entries:
        if values:
            start = f"    {name:<{names}}  {value:>{values}}  "
        else:
            start = f"    {name:<{names}}  "
        hanging = len(start) if len(start) + _NARROWEST <= width else 6
        lines += wrapped(f"{start}{meaning}", " " * hanging, width)
    return lines
