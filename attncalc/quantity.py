"""An exact number that carries its formula.

A `Quantity` is an int. Arithmetic on it yields a Quantity whose formula was built by the same
operations that built the value, so the text and the figure cannot disagree:

>>> layers, width = symbol("L", 80, "layers"), symbol("d_head", 128, "width of a head")
>>> kv = layers * 2 * width
>>> kv, kv.formula.text, kv.formula.substituted
(20480, 'L * 2 * d_head', '80 * 2 * 128')

Formula functions are written for plain ints and take Quantities as they are; only division, `min`
and `max` need the functions of this module, since Python's own would lose the text or the exactness.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

Spec = TypeVar("Spec")
COUNT: Mapping[str, Any] = MappingProxyType({"type": "integer", "minimum": 1, "maximum": 10**15})
"""What JSON Schema says of a size: a whole number that every reader of JSON holds exactly."""

_ATOM, _PRODUCT, _SUM = 3, 2, 1
_PRECEDENCE = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "//": _PRODUCT, "%": _PRODUCT}
# `a + (b - c)` and `a * (b * c)` mean the same without their parentheses; other right operands do not.
_ASSOCIATIVE = {"+": ("+", "-"), "*": ("*",)}


class Symbol(NamedTuple):
    """One letter of a formula: its name, its value and what it stands for."""

    name: str
    value: int
    meaning: str


class Formula(NamedTuple):
    """A formula as tokens, each a pair (as a symbol, as a number)."""

    tokens: tuple[tuple[str, str], ...]
    symbols: tuple[Symbol, ...] = ()
    operator: str = ""

    @property
    def cells(self) -> list[tuple[str, str]]:
        """The tokens with parentheses and commas joined to their neighbours: what is printed."""
        cells: list[tuple[str, str]] = []
        opening = ""
        for symbol_text, number in self.tokens:
            if symbol_text.endswith("("):
                opening += symbol_text
            elif symbol_text in (")", ","):
                cells[-1] = (cells[-1][0] + symbol_text, cells[-1][1] + symbol_text)
            else:
                cells.append((opening + symbol_text, opening + number))
                opening = ""
        return cells

    @property
    def text(self) -> str:
        """The formula in symbols: 'L * 2 * d_head'."""
        return " ".join(symbol_text for symbol_text, _ in self.cells)

    @property
    def substituted(self) -> str:
        """The formula with the numbers in it: '80 * 2 * 128'."""
        return " ".join(number for _, number in self.cells)

    def inside(self, operator: str, right: bool = False) -> tuple[tuple[str, str], ...]:
        """The tokens as an operand of `operator`, in parentheses where they are needed."""
        if not self.operator:
            return self.tokens
        mine, outer = _PRECEDENCE[self.operator], _PRECEDENCE[operator]
        bare = mine > outer or (mine == outer and (not right or self.operator in _ASSOCIATIVE.get(operator, ())))
        return self.tokens if bare else (("(", "("), *self.tokens, (")", ")"))


def formula_of(value: int) -> Formula:
    """The formula that `value` carries; a plain int is its own."""
    if isinstance(value, Quantity):
        return value.formula
    return Formula(((str(value), str(value)),), operator="" if value >= 0 else "-")


def _joined(operator: str, left: int, right: int) -> Formula:
    a, b = formula_of(left), formula_of(right)
    rounds = operator == "*" and a.operator in ("//", "%")  # as a right operand it needs its parentheses
    return Formula(
        (*a.inside(operator), (operator, operator), *b.inside(operator, right=True)),
        _merge(a.symbols, b.symbols),
        a.operator if rounds else operator,
    )


def _call(function: str, *arguments: int, joined_by: str = ",") -> Formula:
    tokens: list[tuple[str, str]] = [(f"{function}(", f"{function}(")]
    symbols: tuple[Symbol, ...] = ()
    for i, argument in enumerate(arguments):
        formula = formula_of(argument)
        if i:
            tokens.append((joined_by, joined_by))
        bare = joined_by == ","
        tokens += formula.tokens if bare else formula.inside(joined_by, right=i > 0)
        symbols = _merge(symbols, formula.symbols)
    return Formula((*tokens, (")", ")")), symbols)


def _merge(a: tuple[Symbol, ...], b: tuple[Symbol, ...]) -> tuple[Symbol, ...]:
    return a if a is b else (*a, *(s for s in b if s not in a))


class Quantity(int):
    """An int with its formula. Negative values and floats are not what it is for."""

    formula: Formula

    def __new__(cls, value: int, formula: Formula | None = None) -> Quantity:
        self = super().__new__(cls, value)
        self.formula = formula or formula_of(int(value))
        return self

    def __add__(self, other: int) -> Quantity:
        if _is_plain(self, 0):
            return quantity(other)
        return self if _is_plain(other, 0) else Quantity(int(self) + int(other), _joined("+", self, other))

    def __radd__(self, other: int) -> Quantity:  # sum() starts at a plain 0
        return self if _is_plain(other, 0) else Quantity(int(other) + int(self), _joined("+", other, self))

    def __sub__(self, other: int) -> Quantity:
        return self if _is_plain(other, 0) else Quantity(int(self) - int(other), _joined("-", self, other))

    def __rsub__(self, other: int) -> Quantity:
        return Quantity(int(other) - int(self), _joined("-", other, self))

    def __mul__(self, other: int) -> Quantity:
        if _is_plain(other, 0) or _is_plain(self, 0):
            return Quantity(0)
        if _is_plain(self, 1):
            return quantity(other)
        return self if _is_plain(other, 1) else Quantity(int(self) * int(other), _joined("*", self, other))

    def __rmul__(self, other: int) -> Quantity:
        if _is_plain(other, 0):
            return Quantity(0)
        return self if _is_plain(other, 1) else Quantity(int(other) * int(self), _joined("*", other, self))

    def __floordiv__(self, other: int) -> Quantity:
        return Quantity(int(self) // int(other), _joined("//", self, other))

    def __rfloordiv__(self, other: int) -> Quantity:
        return Quantity(int(other) // int(self), _joined("//", other, self))

    def __mod__(self, other: int) -> Quantity:
        return Quantity(int(self) % int(other), _joined("%", self, other))

    def __rmod__(self, other: int) -> Quantity:
        return Quantity(int(other) % int(self), _joined("%", other, self))


def _is_plain(value: int, number: int) -> bool:
    """`value` is `number` and no symbol stands for it, so a formula loses nothing without it."""
    return value == number and not (isinstance(value, Quantity) and value.formula.symbols)


def quantity(value: int) -> Quantity:
    """`value` as a Quantity; one that already is stays as it is."""
    return value if isinstance(value, Quantity) else Quantity(value)


def symbol(name: str, value: int, meaning: str) -> Quantity:
    """A Quantity that a formula shows as `name`; one that carries a formula already keeps it."""
    if isinstance(value, Quantity):
        return value
    return Quantity(value, Formula(((name, str(value)),), (Symbol(name, value, meaning),)))


def named(value: int, name: str, meaning: str) -> Quantity:
    """`value` under a name of its own, so that a total reads as the sum of its parts."""
    return symbol(name, int(value), meaning)


def symbol_like(other: int, name: str, value: int, meaning: str) -> int:
    """Return `value` as a symbol if `other` carries a formula, and as a plain int if it does not.

    With it one function serves both formulas and fast searches on plain ints.
    """
    return named(value, name, meaning) if isinstance(other, Quantity) else int(value)


def renamed(value: int, name: str, meaning: str) -> int:
    """Return `value` under a name of its own if it carries a formula; a plain int stays plain."""
    return symbol_like(value, name, value, meaning)


def total(parts: Iterable[int]) -> Quantity:
    """The sum of `parts` with their formulas; 0 for none."""
    return quantity(sum(parts))


def exact_div(a: int, b: int) -> int:
    """a / b where b divides a; ValueError where it does not."""
    if int(a) % int(b):
        raise ValueError(f"{int(b)} does not divide {int(a)}")
    return _derived(int(a) // int(b), lambda: _joined("/", a, b), a, b)


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up."""
    return _derived(-(-int(a) // int(b)), lambda: _call("ceil", a, b, joined_by="/"), a, b)


def minimum(a: int, b: int) -> int:
    """min(a, b), keeping both in the formula."""
    return _derived(min(int(a), int(b)), lambda: _call("min", a, b), a, b)


def maximum(a: int, b: int) -> int:
    """max(a, b), keeping both in the formula."""
    return _derived(max(int(a), int(b)), lambda: _call("max", a, b), a, b)


def _derived(value: int, formula: Callable[[], Formula], *operands: int) -> int:
    if any(isinstance(operand, Quantity) for operand in operands):
        return Quantity(value, formula())
    return value


def least(name: str, value: int, meaning: str, larger: int, smaller: int, relation: str = ">") -> Quantity:
    """`value`, the least `name` for which `larger` > `smaller` (or another relation), both at that value.

    The formula reads 'least T where 2 * T * T > 4 * T'.
    """
    return _chosen("least", Symbol(name, value, meaning), larger, relation, smaller)


def most(name: str, value: int, meaning: str, smaller: int, larger: int) -> Quantity:
    """`value`, the most `name` for which `smaller` <= `larger`, both at that value: 'most B where needed <= memory'."""
    return _chosen("most", Symbol(name, value, meaning), smaller, "<=", larger)


def _chosen(which: str, what: Symbol, left: int, relation: str, right: int) -> Quantity:
    a, b = formula_of(left), formula_of(right)
    tokens = ((f"{which} {what.name} where",) * 2, *a.tokens, (relation, relation), *b.tokens)
    symbols = _merge(a.symbols, b.symbols)
    if what.name not in {s.name for s in symbols}:
        symbols = (what, *symbols)
    return Quantity(what.value, Formula(tokens, symbols))


class Ratio(NamedTuple):
    """An exact quotient of two figures with its formula; it has no unit."""

    numerator: int
    denominator: int
    formula: Formula

    def __float__(self) -> float:
        """The float nearest to the quotient, at any size of the two."""
        return self.numerator / self.denominator


def ratio(a: int, b: int) -> Ratio:
    """a / b, exact; 0 where b is 0 (nothing to compare with)."""
    return Ratio(int(a), int(b), _joined("/", a, b)) if b else Ratio(0, 1, formula_of(0))


def symbolic(spec: Spec) -> Spec:
    """`spec` with every documented int in it, however deep, turned into a symbol.

    A dataclass field is documented by `documented(...)`. The result computes Quantities wherever `spec`
    computes ints.
    """
    if isinstance(spec, tuple):
        items = [symbolic(item) for item in spec]
        return type(spec)(*items) if hasattr(spec, "_fields") else type(spec)(items)
    if not dataclasses.is_dataclass(spec) or isinstance(spec, type):
        return spec
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if type(value) is int and "meaning" in field.metadata:
            name = field.metadata["symbol"] or field.name
            changes[field.name] = symbol(name, value, field.metadata["meaning"])
        elif isinstance(value, tuple) or dataclasses.is_dataclass(value):
            changes[field.name] = symbolic(value)
    return dataclasses.replace(spec, **changes)


def documented(
    meaning: str,
    *,
    symbol: str = "",
    default: Any = dataclasses.MISSING,
    left_out: str = "",
    schema: Mapping[str, Any] = COUNT,
) -> Any:
    """A dataclass field that formulas, screens and the YAML schema know by one name and meaning.

    `symbol` is the letter in formulas (the field's own name if empty), `left_out` what a preset means
    that leaves it out, `schema` what JSON Schema says of its values.
    """
    metadata = {"meaning": meaning, "symbol": symbol, "left_out": left_out, "schema": schema}
    return dataclasses.field(default=default, metadata=metadata)
