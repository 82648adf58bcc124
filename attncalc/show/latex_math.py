r"""Formulas as LaTeX's math: `L * 2 * d_head` becomes `L \cdot 2\,d_{\mathrm{head}}`.

Only commands of LaTeX itself are used. Lines may break at every operator but in a fraction.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from ..quantity import Formula, Symbol, Token
from ..records import NamedTuple
from .latex_text import escape

# How tightly the operator that is applied last binds; a call and a fraction are atoms.
_SUM, _PRODUCT, _ATOM = range(3)
# Characters of a numerator and a denominator up to which they are a fraction: it has no break.
_FRACTION = 60
_RELATIONS = {"<=": r"\le", ">=": r"\ge", ">": ">", "<": "<", "==": "="}
_EXTREMES = {"least": r"\min", "most": r"\max"}
# Names that the literature writes in short.
_NAMES = {"n_kv_heads": r"n_{\mathrm{kv}}", "n_heads": r"n_{\mathrm{heads}}"}


class _Piece(NamedTuple):
    """A part of a formula in LaTeX."""

    tex: str
    binds: int

    def within(self, least: int) -> str:
        """Return the text, in parentheses if it binds less tightly than `least`."""
        return self.tex if self.binds >= least else f"({self.tex})"


def math(
    formula: Formula, labels: Mapping[str, str] = MappingProxyType({}), *, numbers: bool = False
) -> str:
    """Return the formula in LaTeX's math mode, without dollars.

    Args:
        formula: The formula.
        labels: {symbol that is a figure: its label}, which is shown in its place.
        numbers: Whether numbers replace the symbols.
    """
    names = formula.names

    def text(token: Token) -> str:
        symbol, number = token
        if numbers and number:
            return _number(number)
        if not isinstance(symbol, Symbol):
            return _number(symbol)
        name = names[symbol.name, symbol.value]
        if name in labels:
            return rf"\mbox{{{escape(labels[name])}}}"
        return symbol_name(name)

    return _Parser(formula.tokens, text).formula()


def symbol_name(name: str) -> str:
    r"""Return a symbol: 'd_model' is 'd_{\mathrm{model}}', 'kv_memory' '\mathrm{kv}_{...}'."""
    if name in _NAMES:
        return _NAMES[name]
    first, *others = name.split("_")
    head = first if re.fullmatch("[A-Za-z]", first) else _roman(first)
    if not others:
        return head
    below = r"\,".join(_roman(word) for word in others if word)
    return f"{head}_{{{below}}}"


def _roman(word: str) -> str:
    if re.fullmatch("[0-9]+", word):
        return word
    if re.fullmatch("[A-Za-z0-9]+", word):
        return rf"\mathrm{{{word}}}"
    return rf"\mbox{{{escape(word)}}}"


def _number(text: str) -> str:
    """Return a number with a comma between groups of digits, which TeX sets without a space."""
    if re.fullmatch(r"-?\d+", text):
        return f"{int(text):,}".replace(",", "{,}")
    return symbol_name(text)


class _Parser:
    """Reads the tokens of a formula from the left to the right."""

    def __init__(self, tokens: Sequence[Token], text: Callable[[Token], str]) -> None:
        self._tokens = tokens
        self._text = text
        self._next = 0

    @property
    def _word(self) -> str:
        """The next token, '' for a symbol or at the end."""
        if self._next >= len(self._tokens):
            return ""
        token, _ = self._tokens[self._next]
        return "" if isinstance(token, Symbol) else token

    def _take(self) -> Token:
        self._next += 1
        return self._tokens[self._next - 1]

    def formula(self) -> str:
        """Return the whole formula: a sum, or the least or the most value with a condition."""
        if self._word not in _EXTREMES:
            return self._sum().tex
        extreme = _EXTREMES[self._word]
        self._take()
        of = self._text(self._take())
        self._take()  # where
        left = self._sum().tex
        relation = _RELATIONS[self._word]
        self._take()
        return rf"{extreme}\,\{{{of} : {left} {relation} {self._sum().tex}\}}"

    def _sum(self) -> _Piece:
        left = self._product()
        while self._word in ("+", "-"):
            operator = self._word
            self._take()
            right = self._product()
            least = _SUM if operator == "+" else _PRODUCT
            left = _Piece(f"{left.tex} {operator} {right.within(least)}", _SUM)
        return left

    def _product(self) -> _Piece:
        left = self._factor()
        while self._word in ("*", "/", "//", "%"):
            operator = self._word
            self._take()
            right = self._factor()
            if operator == "*":
                left = _times(left, right)
            elif operator == "%":
                tex = rf"{left.within(_ATOM)} \bmod {right.within(_ATOM)}"
                left = _Piece(tex, _SUM)
            elif operator == "//":
                left = _Piece(rf"\lfloor {_quotient(left, right).tex} \rfloor", _ATOM)
            else:
                left = _quotient(left, right)
        return left

    def _factor(self) -> _Piece:
        word = self._word
        if not word.endswith("("):
            text = self._text(self._take())
            return _Piece(text, _SUM if text.startswith("-") else _ATOM)
        self._take()
        arguments = [self._sum()]
        while self._word == ",":
            self._take()
            arguments.append(self._sum())
        self._take()  # )
        if word == "(":
            return arguments[0]
        if word == "ceil(":
            return _Piece(rf"\lceil {arguments[0].tex} \rceil", _ATOM)
        inside = ", ".join(argument.tex for argument in arguments)
        name = word.removesuffix("(")
        function = rf"\{name}" if name in ("min", "max") else symbol_name(name)
        return _Piece(f"{function}({inside})", _ATOM)


def _times(left: _Piece, right: _Piece) -> _Piece:
    r"""Return a product: a number has no dot before a symbol, as in 2\,d."""
    a = left.within(_PRODUCT)
    b = right.within(_PRODUCT)
    is_coefficient = a[-1].isdigit() and (b[0].isalpha() or b.startswith(r"\mathrm"))
    ends_in_index = re.search(r"_\{?\w*$", a)
    if is_coefficient and not ends_in_index:
        return _Piece(rf"{a}\,{b}", _PRODUCT)
    return _Piece(rf"{a} \cdot {b}", _PRODUCT)


def _quotient(left: _Piece, right: _Piece) -> _Piece:
    """Return a fraction, or if that would be long a quotient on one line."""
    if len(left.tex) + len(right.tex) <= _FRACTION:
        return _Piece(rf"\frac{{{left.tex}}}{{{right.tex}}}", _ATOM)
    return _Piece(f"{left.within(_PRODUCT)} / {right.within(_ATOM)}", _PRODUCT)
