"""An independent evaluation of printed formulas, which uses no code of attncalc."""

import ast
from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Any


def evaluate(text: str, symbols: Mapping[str, int] | None = None) -> Fraction:
    """Return the exact value of a formula's text.

    'least T where A > B' is T, if A > B holds; 'most' likewise.
    """
    which, _, rest = text.partition(" ")
    if which in ("least", "most"):
        name, _, condition = rest.partition(" where ")
        relation = next(sign for sign in (" >= ", " <= ", " > ") if sign in condition)
        left, right = (evaluate(side, symbols) for side in condition.split(relation))
        assert {" > ": left > right, " >= ": left >= right, " <= ": left <= right}[relation]
        return Fraction((symbols or {})[name])
    return Fraction(_value(ast.parse(text, mode="eval").body, symbols or {}))


def text_of(figure: Any) -> str:
    """Return the formula of a Quantity or a Ratio, which gives its value in symbols, and with their
    numbers.
    """
    text: str = figure.formula.text
    symbols = {symbol.name: symbol.value for symbol in figure.formula.symbols}
    assert len(symbols) == len(figure.formula.symbols), f"{text}: one name, two symbols"
    value = Fraction(int(figure.numerator), int(figure.denominator))
    assert evaluate(text, symbols) == value, text
    if " where " not in text:  # with numbers, 'least T where' names no T
        assert evaluate(figure.formula.substituted) == value, figure.formula.substituted
    return text


def _value(node: ast.expr, symbols: Mapping[str, int]) -> int | Fraction:
    """Return an int as long as nothing is divided, which takes a third of the time."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return symbols[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _operate(op, _value(left, symbols), _value(right, symbols))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, symbols)
        case ast.Call(func=ast.Name(id="int"), args=[argument]):
            return int(_float(argument, symbols))
        case ast.Call(func=ast.Name(id=function), args=arguments):
            values = [_value(argument, symbols) for argument in arguments]
            return {"min": min(values), "max": max(values), "ceil": ceil(values[0])}[function]
        case _:
            raise AssertionError(f"a formula cannot hold {ast.dump(node)}")


def _float(node: ast.expr, symbols: Mapping[str, int]) -> float:
    """Return the value inside int(...): an engine's own arithmetic in floats, from left to
    right.
    """
    match node:
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _float(left, symbols) / _float(right, symbols)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _float(left, symbols) * _float(right, symbols)
        case _:
            return float(_value(node, symbols))


def _operate(op: ast.operator, a: int | Fraction, b: int | Fraction) -> int | Fraction:
    match op:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
        case ast.Div():
            return Fraction(a) / b
        case ast.FloorDiv():
            return a // b
        case ast.Mod():
            return a % b
        case _:
            raise AssertionError(f"a formula cannot hold {op}")
