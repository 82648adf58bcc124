"""An exact number that carries its formula.

A `Quantity` is an int. Arithmetic on it gives a Quantity whose formula is built by the same
operations as its value, so the two cannot disagree:

>>> layers, width = symbol("L", 80, "layers"), symbol("d_head", 128, "width of a head")
>>> kv = layers * 2 * width
>>> kv, kv.formula.text, kv.formula.substituted
(20480, 'L * 2 * d_head', '80 * 2 * 128')

Cost functions are written for plain ints and work on Quantities too. Only division, `min` and `max`
need the functions of this module, since Python's own would lose the formula or the exactness.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from .records import NamedTuple

Spec = TypeVar("Spec")
# JSON Schema of a size: a whole number that every JSON reader represents exactly.
COUNT: Mapping[str, Any] = MappingProxyType({"type": "integer", "minimum": 1, "maximum": 10**15})

_ATOM = 3
_PRODUCT = 2
_SUM = 1
_PRECEDENCE = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "//": _PRODUCT, "%": _PRODUCT}
# `a + (b - c)` and `a * (b * c)` mean the same without parentheses; other right operands need
# theirs.
_ASSOCIATIVE = {"+": ("+", "-"), "*": ("*",)}


class Symbol(NamedTuple):
    name: str  # its name: 'L'
    value: int
    meaning: str  # what it counts, in words: 'layers'


# A piece of a formula, with symbols and with numbers: (Symbol L, '80') for a symbol, ('+', '+') for
# an operator.
Token = tuple[Symbol | str, str]


class Constant(int):
    """A number in a formula that needs an explanation: Constant(2, "tensors: keys and values").

    With plain ints it computes at their speed, and gives plain ints. Quantity derives from it so
    that Python asks the Quantity first in `constant * quantity`.
    """

    meaning: str  # what it counts, in words

    # copies and pickles pass only the value
    def __new__(cls, value: int, meaning: str = "") -> Constant:
        self = super().__new__(cls, value)
        self.meaning = meaning
        return self


class _Explained(str):
    """The token of a Constant: its number as text, with the meaning."""

    meaning: str

    def __new__(cls, text: str, meaning: str = "") -> _Explained:  # as in Constant
        self = super().__new__(cls, text)
        self.meaning = meaning
        return self


class Formula(NamedTuple):
    """A formula as tokens, and the operator that is applied last.

    One formula may hold several symbols of one name, for example the L of 6 attention layers and
    the L of 10 recurrent layers. They are printed as L_1 and L_2, in order of appearance, so that
    no formula is ambiguous.
    """

    tokens: tuple[Token, ...]  # the formula's pieces, in order
    operator: str = ""  # the operator that is applied last; '' for a symbol, a number or a call

    def __repr__(self) -> str:
        return f"Formula({self.text!r})"

    @property
    def names(self) -> dict[tuple[str, int], str]:
        """Return the printed name of each symbol, by the symbol's own name and value."""
        values: dict[str, dict[int, None]] = {}
        for token, _ in self.tokens:
            if isinstance(token, Symbol):
                values.setdefault(token.name, {})[token.value] = None
        names = {}
        for name, distinct_values in values.items():
            # Names that other symbols have already, such as T_1 of a ragged batch, are skipped.
            free_names = (f"{name}_{i}" for i in itertools.count(1) if f"{name}_{i}" not in values)
            for value in distinct_values:
                if len(distinct_values) == 1:
                    names[name, value] = name
                else:
                    names[name, value] = next(free_names)
        return names

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """Return the symbols in order of appearance, each with the name it is printed with."""
        names = self.names
        symbols: dict[str, Symbol] = {}
        for token, _ in self.tokens:
            if isinstance(token, Symbol):
                name = names[token.name, token.value]
                symbols.setdefault(name, token._replace(name=name))
        return tuple(symbols.values())

    @property
    def constants(self) -> tuple[tuple[str, str], ...]:
        """Return (number, meaning) of the constants in order of appearance."""
        found = (
            (str(token), token.meaning) for token, _ in self.tokens if isinstance(token, _Explained)
        )
        return tuple(dict.fromkeys(found))

    @property
    def has_symbols(self) -> bool:
        return any(isinstance(token, Symbol) for token, _ in self.tokens)

    @property
    def cells(self) -> list[tuple[str, str, str]]:
        """Return what is printed: each token's two texts, with parentheses and commas joined to
        their neighbours.

        The third text is the meaning of the symbol or constant; '' for an operator and another
        number.
        """
        names = self.names
        cells: list[tuple[str, str, str]] = []
        opening = ""
        for token, number in self.tokens:
            text = names[token.name, token.value] if isinstance(token, Symbol) else token
            if text.endswith("("):
                opening += text
            elif text in (")", ","):
                cells[-1] = (cells[-1][0] + text, cells[-1][1] + text, cells[-1][2])
            else:
                meaning = getattr(token, "meaning", "")
                substituted = number or text
                cells.append((opening + text, opening + substituted, meaning))
                opening = ""
        return cells

    @property
    def text(self) -> str:
        """Return the formula in symbols: 'L * 2 * d_head'."""
        return " ".join(text for text, *_ in self.cells)

    @property
    def substituted(self) -> str:
        """Return the formula in numbers: '80 * 2 * 128'."""
        return " ".join(number for _, number, _ in self.cells)

    def as_operand_of(self, operator: str, right: bool = False) -> tuple[Token, ...]:
        """Return the tokens as the left (or right) operand of `operator`, in parentheses if they
        need them.
        """
        if not self.operator:
            return self.tokens
        inner = _PRECEDENCE[self.operator]
        outer = _PRECEDENCE[operator]
        associative = not right or self.operator in _ASSOCIATIVE.get(operator, ())
        unambiguous = inner > outer or (inner == outer and associative)
        if unambiguous:
            return self.tokens
        return (("(", "("), *self.tokens, (")", ")"))


# A function that returns a formula, and its arguments.
Unbuilt = tuple[Any, ...]


def formula_of(value: int) -> Formula:
    """Return the formula of `value`; that of a plain int is the number."""
    if isinstance(value, Quantity):
        return value.formula
    text = _Explained(str(int(value)), value.meaning) if isinstance(value, Constant) else str(value)
    return Formula(((text, str(text)),), operator="" if value >= 0 else "-")


def _operation(operator: str, left: int, right: int) -> Formula:
    a = formula_of(left)
    b = formula_of(right)
    # a * (b // c) needs its parentheses, a * b does not
    rounds = operator == "*" and a.operator in ("//", "%")
    tokens = (
        *a.as_operand_of(operator),
        (operator, operator),
        *b.as_operand_of(operator, right=True),
    )
    return Formula(tokens, a.operator if rounds else operator)


def _call(function: str, *arguments: int, joined_by: str = ",") -> Formula:
    """Return the formula of a call: 'min(a, b)', or with another `joined_by` 'ceil(a / b)'."""
    tokens: list[Token] = [(f"{function}(", f"{function}(")]
    for i, argument in enumerate(arguments):
        formula = formula_of(argument)
        if i:
            tokens.append((joined_by, joined_by))
        if joined_by == ",":
            tokens += formula.tokens
        else:
            tokens += formula.as_operand_of(joined_by, right=i > 0)
    return Formula((*tokens, (")", ")")))


class Quantity(Constant):
    """An int with its formula. It is made for whole numbers that are not negative.

    Attributes:
        is_traced: whether it is a `Traced` (tracing.py), which records how it is computed in place
            of a formula.
    """

    is_traced: ClassVar[bool] = False
    _formula: Formula | Unbuilt

    def called(self, function: Callable[[int, int], int], a: int, b: int) -> int:
        """Return function(a, b), one of which is this number; only a `Traced` is asked for it."""
        raise NotImplementedError

    def __new__(cls, value: int, formula: Formula | Unbuilt | None = None) -> Quantity:
        self: Quantity = int.__new__(cls, value)
        self._formula = formula or (formula_of, int(value))
        return self

    @property
    def formula(self) -> Formula:
        """The formula. It is built when it is first read, since most numbers of a search are never
        shown.
        """
        pending = [self]
        while pending:  # and not a recursion: a number may have thousands of operations
            last = pending[-1]
            if not isinstance(last._formula, Formula):
                build, *operands = last._formula
                quantities = [operand for operand in operands if isinstance(operand, Quantity)]
                unbuilt = [a for a in quantities if not isinstance(a._formula, Formula)]
                if unbuilt:
                    pending += unbuilt
                    continue
                last._formula = build(*operands)
            pending.pop()
        assert isinstance(self._formula, Formula)
        return self._formula

    def __getstate__(self) -> dict[str, Formula]:
        return {"_formula": self.formula}

    def __add__(self, other: int) -> Quantity:
        if not self and _is_plain(self, 0):
            return quantity(other)
        if _is_plain(other, 0):
            return self
        return Quantity(int(self) + int(other), (_operation, "+", self, other))

    def __radd__(self, other: int) -> Quantity:  # sum() starts at a plain 0
        if _is_plain(other, 0):
            return self
        return Quantity(int(other) + int(self), (_operation, "+", other, self))

    def __sub__(self, other: int) -> Quantity:
        if _is_plain(other, 0):
            return self
        return Quantity(int(self) - int(other), (_operation, "-", self, other))

    def __rsub__(self, other: int) -> Quantity:
        return Quantity(int(other) - int(self), (_operation, "-", other, self))

    def __mul__(self, other: int) -> Quantity:
        if not (self > 1 < other):  # the usual case first: a search multiplies a million numbers
            if _is_plain(other, 0) or _is_plain(self, 0):
                return Quantity(0)
            if _is_plain(self, 1):
                return quantity(other)
            if _is_plain(other, 1):
                return self
        return Quantity(int(self) * int(other), (_operation, "*", self, other))

    def __rmul__(self, other: int) -> Quantity:
        if _is_plain(other, 0):
            return Quantity(0)
        if _is_plain(other, 1):
            return self
        return Quantity(int(other) * int(self), (_operation, "*", other, self))

    def __floordiv__(self, other: int) -> Quantity:
        return Quantity(int(self) // int(other), (_operation, "//", self, other))

    def __rfloordiv__(self, other: int) -> Quantity:
        return Quantity(int(other) // int(self), (_operation, "//", other, self))

    def __mod__(self, other: int) -> Quantity:
        return Quantity(int(self) % int(other), (_operation, "%", self, other))

    def __rmod__(self, other: int) -> Quantity:
        return Quantity(int(other) % int(self), (_operation, "%", other, self))


def _is_plain(value: int, number: int) -> bool:
    """Return whether `value` is `number` and has no symbol, so that a formula can leave it out."""
    return value == number and not (isinstance(value, Quantity) and value.formula.has_symbols)


def quantity(value: int) -> Quantity:
    """Return `value` as a Quantity; a Quantity is returned unchanged."""
    if isinstance(value, Quantity):
        return value
    return Quantity(value)


def symbol(name: str, value: int, meaning: str) -> Quantity:
    """Return a Quantity that formulas show as `name`; a Quantity is returned unchanged, with its
    own formula.
    """
    if isinstance(value, Quantity):
        return value
    return Quantity(value, (_symbol, name, value, meaning))


def _symbol(name: str, value: int, meaning: str) -> Formula:
    return Formula(((Symbol(name, value, meaning), str(value)),))


def named(value: int, name: str, meaning: str) -> Quantity:
    """Return `value` as a symbol, without its own formula, so that a total reads as a sum of named
    parts.
    """
    if isinstance(value, Quantity) and value.is_traced:
        return value
    return symbol(name, int(value), meaning)


def symbol_like(other: int, name: str, value: int, meaning: str) -> int:
    """Return `value` as a symbol if `other` carries a formula, and as a plain int if it does not.

    With it one function serves both formulas and fast searches on plain ints.
    """
    if isinstance(other, Quantity):
        return named(value, name, meaning)
    return int(value)


def renamed(value: int, name: str, meaning: str) -> int:
    """Return `value` as one symbol instead of its formula, if it carries one; a plain int stays
    plain.
    """
    return symbol_like(value, name, value, meaning)


def total(parts: Iterable[int]) -> Quantity:
    """Return the sum of `parts` with their formulas; 0 for none."""
    return quantity(summed(parts))


def summed(parts: Iterable[int]) -> int:
    """Return the sum of `parts`: with their formulas if one of them carries one, and as a plain int
    otherwise.

    `sum` gives the same, but copies the formula of all earlier parts for each one.
    """
    parts = list(parts)
    if any(isinstance(part, Quantity) and part.is_traced for part in parts):
        return sum(parts)
    terms = [part for part in parts if not _is_plain(part, 0)]
    if len(terms) < 2 or not any(isinstance(part, Quantity) for part in terms):
        if len(terms) != 1:
            return sum(terms)
        return terms[0]
    return Quantity(sum(int(term) for term in terms), (_sum, *terms))


def _sum(first: int, *others: int) -> Formula:
    tokens = list(formula_of(first).as_operand_of("+"))
    for term in others:
        tokens += (("+", "+"), *formula_of(term).as_operand_of("+", right=True))
    return Formula(tuple(tokens), "+")


def exact_div(a: int, b: int) -> int:
    """Return a / b. Raises ValueError if b does not divide a."""
    return derived(_exact_div, (_operation, "/", a, b), a, b)


def ceil_div(a: int, b: int) -> int:
    return derived(_ceil_div, (_ceil, a, b), a, b)


def minimum(a: int, b: int) -> int:
    """Return min(a, b), with both in the formula."""
    return derived(_smaller, (_call, "min", a, b), a, b)


def maximum(a: int, b: int) -> int:
    """Return max(a, b), with both in the formula."""
    return derived(_larger, (_call, "max", a, b), a, b)


def derived(function: Callable[[int, int], int], formula: Unbuilt, a: int, b: int) -> int:
    """Return function(a, b), with that formula if a or b has one, and as a plain int if none has.

    A `Traced` operand keeps the function, which must be the same object in each call.
    """
    if not isinstance(a, Quantity) and not isinstance(b, Quantity):
        return function(a, b)
    for operand in (a, b):
        if isinstance(operand, Quantity) and operand.is_traced:
            return operand.called(function, a, b)
    return Quantity(function(int(a), int(b)), formula)


def _ceil(a: int, b: int) -> Formula:
    return _call("ceil", a, b, joined_by="/")


def _exact_div(a: int, b: int) -> int:
    if a % b:
        raise ValueError(f"{b} does not divide {a}")
    return a // b


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _smaller(a: int, b: int) -> int:
    return min(a, b)


def _larger(a: int, b: int) -> int:
    return max(a, b)


def least(
    name: str, value: int, meaning: str, larger: int, smaller: int, relation: str = ">"
) -> Quantity:
    """Return `value`, the smallest `name` for which `larger` > `smaller` (or another relation),
    with that condition.

    The caller has searched for `value`, and gives both sides at that value.
    The formula reads 'least T where 2 * T * T > 4 * T'.
    """
    return Quantity(
        value, (_bound, "least", Symbol(name, value, meaning), larger, relation, smaller)
    )


def most(name: str, value: int, meaning: str, smaller: int, larger: int) -> Quantity:
    """Return `value`, the largest `name` for which `smaller` <= `larger`, with that condition as
    its formula.

    The caller has searched for `value`, and gives both sides at that value.
    The formula reads 'most B where needed <= memory'.
    """
    return Quantity(value, (_bound, "most", Symbol(name, value, meaning), smaller, "<=", larger))


def _bound(extreme: str, symbol: Symbol, left: int, relation: str, right: int) -> Formula:
    """Return the formula '`extreme` symbol where left relation right'."""
    a = formula_of(left)
    b = formula_of(right)
    # If a side has this name with this value, it is the same symbol, and the side's meaning is more
    # precise.
    symbols = (token for token, _ in (*a.tokens, *b.tokens) if isinstance(token, Symbol))
    bound = next((token for token in symbols if token[:2] == symbol[:2]), symbol)
    head: tuple[Token, ...] = ((extreme, extreme), (bound, ""), ("where", "where"))
    return Formula((*head, *a.tokens, (relation, relation), *b.tokens))


class Ratio(NamedTuple):
    """An exact quotient of two figures, with its formula.

    Attributes:
        numerator: the dividend.
        denominator: the divisor.
        unbuilt: the quotient's formula, or what builds it.
    """

    numerator: int
    denominator: int
    unbuilt: Formula | Unbuilt

    @property
    def formula(self) -> Formula:
        """The formula. It is built when it is read, as that of a Quantity."""
        if isinstance(self.unbuilt, Formula):
            return self.unbuilt
        build, *operands = self.unbuilt
        built: Formula = build(*operands)
        return built

    def __repr__(self) -> str:
        return f"Ratio({self.numerator} / {self.denominator})"

    def __float__(self) -> float:
        """Return the float nearest to the quotient, however large the two are."""
        return self.numerator / self.denominator

    def __int__(self) -> int:
        """Return the quotient, rounded down."""
        return self.numerator // self.denominator

    @property
    def value(self) -> int | float:
        """The quotient as an int if it is whole, else as the nearest float."""
        whole, rest = divmod(self.numerator, self.denominator)
        if rest:
            return float(self)
        return whole


def ratio(a: int, b: int) -> Ratio:
    """Return a / b exactly; 0 if b is 0."""
    if any(isinstance(operand, Quantity) and operand.is_traced for operand in (a, b)):
        if b:
            return Ratio(a, b, formula_of(0))
        return Ratio(0, 1, formula_of(0))
    if b:
        return Ratio(int(a), int(b), (_operation, "/", a, b))
    return Ratio(0, 1, formula_of(0))


def symbolic(spec: Spec) -> Spec:
    """Return `spec` with every documented int in it turned into a symbol, at any depth.

    A dataclass field is documented by `documented(...)`. The result computes Quantities where
    `spec` computes ints.
    """
    if isinstance(spec, tuple):
        items = tuple(map(symbolic, spec))
        if all(map(operator.is_, items, spec)):
            return spec
        if hasattr(spec, "_fields"):
            return type(spec)(*items)
        return type(spec)(items)
    changes: dict[str, Any] = {}
    # a class can be hashed
    documented = _documented_fields(type(spec))  # type: ignore[arg-type]
    for field, name, meaning in documented:
        value = getattr(spec, field)
        if type(value) is int and meaning:
            changes[field] = symbol(name, value, meaning)
            continue
        changed = symbolic(value)
        if changed is not value:
            changes[field] = changed
    return dataclasses.replace(spec, **changes) if changes else spec  # type: ignore[type-var]


@functools.cache
def _documented_fields(kind: type) -> list[tuple[str, str, str]]:
    """Return the name of each field of a dataclass, its symbol and its meaning, which is '' without
    `documented`.
    """
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return [
        (f.name, f.metadata.get("symbol") or f.name, f.metadata.get("meaning", "")) for f in fields
    ]


def documented(
    meaning: str,
    *,
    symbol: str = "",
    default: Any = dataclasses.MISSING,
    left_out: str = "",
    schema: Mapping[str, Any] = COUNT,
) -> Any:
    """Return a dataclass field with one name and meaning for formulas, screens and the YAML schema.

    Args:
        meaning: what the field is, in words.
        symbol: its symbol in formulas; by default the field's name.
        default: the field's default value.
        left_out: the default in words, for a preset that leaves the key out.
        schema: JSON Schema of its values.
    """
    metadata = {"meaning": meaning, "symbol": symbol, "left_out": left_out, "schema": schema}
    return dataclasses.field(default=default, metadata=metadata)
