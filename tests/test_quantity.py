"""Quantities: the printed formula gives the value."""

from collections.abc import Callable
from typing import Any

import pytest
from evaluate import evaluate, text_of
from hypothesis import given
from hypothesis import strategies as st
from tables import each

from attncalc.quantity import (
    Constant,
    Quantity,
    ceil_div,
    exact_div,
    formula_of,
    least,
    maximum,
    minimum,
    named,
    quantity,
    ratio,
    summed,
    symbol,
    symbolic,
    total,
)
from attncalc.workload import Workload

NUMBERS = st.integers(0, 10**6)


def leaves() -> st.SearchStrategy[Any]:
    """Plain numbers, and symbols of few names: one name stands for several values."""
    named_numbers = st.builds(
        lambda n, v: symbol(f"x{n}", v, "a number"), st.integers(0, 2), NUMBERS
    )
    return st.one_of(named_numbers, NUMBERS)


def combined(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Combine two formulas by any operation whose result is a whole number."""

    def apply(operation: str, a: Any, b: Any) -> Any:
        low, high = sorted((a, b), key=int)
        known: dict[str, Callable[[], Any]] = {
            "+": lambda: a + b,
            "-": lambda: high - low,
            "*": lambda: a * b,
            "//": lambda: a // b if b else a,
            "%": lambda: a % b if b else a,
            "/": lambda: exact_div(a * b, b) if b else a,
            "ceil": lambda: ceil_div(a, b) if b else a,
            "min": lambda: minimum(a, b),
            "max": lambda: maximum(a, b),
        }
        return known[operation]()

    operations = st.sampled_from(["+", "-", "*", "//", "%", "/", "ceil", "min", "max"])
    return st.builds(apply, operations, children, children)


FORMULAS = st.recursive(leaves(), combined, max_leaves=12)


@given(FORMULAS)
def test_the_formula_evaluates_to_the_value(formula: Any) -> None:
    text_of(quantity(formula))


@given(FORMULAS)
def test_every_cell_has_a_symbol_and_a_number(formula: Any) -> None:
    """The two texts have the same cells, so symbols and numbers can be aligned."""
    cells = quantity(formula).formula.cells
    assert all(text and number for text, number, _ in cells)


@each(
    ("build", "text"),
    [
        (lambda a, b, c: a * (b + c), "a * (b + c)"),
        (lambda a, b, c: a - (b - c), "a - (b - c)"),
        (lambda a, b, c: a + (b - c), "a + b - c"),
        (lambda a, b, c: a * (b // c), "a * (b // c)"),
        (lambda a, b, c: a * (b // c * a), "a * (b // c * a)"),
        (lambda a, b, c: b // c * a * a, "b // c * a * a"),
        (lambda a, b, c: exact_div(a * b, c), "a * b / c"),
        (lambda a, b, c: ceil_div(a + b, c), "ceil((a + b) / c)"),
        (lambda a, b, c: minimum(a + b, c) * 2, "min(a + b, c) * 2"),
        (lambda a, b, c: sum([a, b, c]), "a + b + c"),
        (lambda a, b, c: 1 * a * 1 + 0, "a"),
        (lambda a, b, c: total([]), "0"),
        (lambda a, b, c: ceil_div(a * b, c), "ceil(a * b / c)"),
        (lambda a, b, c: ceil_div(a, b * c), "ceil(a / (b * c))"),
        (lambda a, b, c: quantity(0) // a, "0 // a"),
    ],
)
def test_formulas_have_only_the_needed_parentheses(build: Any, text: str) -> None:
    a, b, c = (symbol(n, v, "") for n, v in zip("abc", (12, 10, 6), strict=True))
    assert quantity(build(a, b, c)).formula.text == text


def test_formulas_leave_out_a_plain_0_or_1() -> None:
    """A symbol stays, even if it is 0 or 1."""
    a, z, one = symbol("a", 12, ""), symbol("z", 0, ""), symbol("one", 1, "")
    built = {
        "a": [a + 0, 0 + a, quantity(0) + a, a - 0, a * 1, 1 * a, quantity(1) * a],
        "0": [a * 0, 0 * a, quantity(0) * a, quantity(0) * 5],
        "a + 1": [a + 1],
        "1 + a": [1 + a, quantity(1) + a],
        "a - 1": [a - 1],
        "a * 2": [a * 2],
        "2 * a": [2 * a, quantity(2) * a],
        "z * a": [z * a],
        "z + a": [z + a, total([z, 0, a])],
        "a * one": [a * one],
    }
    assert [[quantity(value).formula.text for value in several] for several in built.values()] == [
        [text] * len(several) for text, several in built.items()
    ]


@given(st.lists(FORMULAS.map(quantity), max_size=5))
def test_a_sum_of_many_has_the_formula_of_adding_one_by_one(parts: list[Quantity]) -> None:
    one_by_one, at_once = quantity(sum(parts)), quantity(summed(parts))
    assert (at_once, at_once.formula) == (one_by_one, one_by_one.formula)
    assert type(summed(map(int, parts))) is int


def test_plain_ints_give_plain_ints() -> None:
    """Searches run on plain ints and build no formulas."""
    for value in (exact_div(6, 3), ceil_div(7, 3), minimum(1, 2), maximum(1, 2)):
        assert type(value) is int


def test_exact_div_raises_for_a_remainder() -> None:
    with pytest.raises(ValueError, match="does not divide"):
        exact_div(7, 2)


def test_a_named_part_hides_its_formula_and_keeps_its_value() -> None:
    a = symbol("a", 3, "")
    part = named(a * 4, "part", "a part")
    assert (int(part + 1), (part + 1).formula.text) == (13, "part + 1")


def test_a_symbol_of_a_quantity_keeps_its_formula() -> None:
    """A sharded head count, for example, reads as n_heads / tp."""
    n_heads = exact_div(symbol("n_heads", 64, ""), symbol("tp", 8, ""))
    assert symbol("n_heads", n_heads, "").formula.text == "n_heads / tp"


def test_symbolic_turns_documented_ints_into_symbols() -> None:
    decode = symbolic(Workload.decode(batch=2, context=9))
    assert [quantity(n).formula.text for n in (decode.batch, decode.new, decode.context)] == [
        "B",
        "S",
        "T",
    ]


def test_least_reads_as_a_condition() -> None:
    context = least("T", 5, "tokens", symbol("T", 5, "tokens") * 3, 14)
    assert (int(context), context.formula.text) == (5, "least T where T * 3 > 14")


@pytest.mark.parametrize("a", [5, symbol("a", 5, "")])
def test_a_ratio_with_nothing_is_0(a: int) -> None:
    quotient = ratio(a, 0)
    assert (quotient.value, float(quotient), quotient.formula.text) == (0, 0.0, "0")


def test_the_bound_symbol_has_the_meaning_that_a_side_gives_it() -> None:
    sides = symbol("T", 5, "keys, with the new ones") * 3, 14
    assert [s.meaning for s in least("T", 5, "tokens", *sides).formula.symbols] == [
        "keys, with the new ones"
    ]
    assert [s.meaning for s in least("T", 5, "tokens", 15, 14).formula.symbols] == ["tokens"]
    # another number
    assert next(s.meaning for s in least("T", 4, "tokens", *sides).formula.symbols) == "tokens"


@given(NUMBERS, st.integers(1, 10**30))
def test_a_ratio_is_the_nearest_float(a: int, b: int) -> None:
    quotient = ratio(a, b)
    assert float(quotient) == float(evaluate(quotient.formula.substituted))


def test_10_to_the_18_does_not_overflow() -> None:
    tokens = symbol("T", 10**18, "")
    assert int(tokens * tokens * 327_680) == 327_680 * 10**36
    assert isinstance(tokens * tokens, Quantity)


def test_different_symbols_of_one_name_are_numbered() -> None:
    six, ten, two = (symbol("L", n, "layers") for n in (6, 10, 2))
    joined = six * 4 + ten * 3 + six
    assert joined.formula.text == "L_1 * 4 + L_2 * 3 + L_1"
    assert joined.formula.substituted == "6 * 4 + 10 * 3 + 6"
    assert [s[:2] for s in joined.formula.symbols] == [("L_1", 6), ("L_2", 10)]
    assert (joined + two).formula.text == "L_1 * 4 + L_2 * 3 + L_1 + L_3"
    assert (six * 4).formula.text == "L * 4"


def test_numbering_leaves_out_names_that_are_taken() -> None:
    """A ragged batch names its own T_1 and T_2."""
    formula = (symbol("T_1", 5, "") + symbol("T", 7, "") * symbol("T", 8, "")).formula
    assert formula.text == "T_1 + T_2 * T_3"
    assert evaluate(formula.text, {s.name: s.value for s in formula.symbols}) == 5 + 7 * 8


def test_the_bound_symbol_of_a_condition_is_numbered_too() -> None:
    tokens, source_tokens = symbol("T", 5, "tokens"), symbol("T", 2, "tokens of the source")
    context = least("T", 5, "tokens", tokens * 3, source_tokens * 7)
    assert context.formula.text == "least T_1 where T_1 * 3 > T_2 * 7"
    text_of(context)


def test_a_constant_keeps_its_meaning_on_both_sides_of_a_symbol() -> None:
    pair, tokens = Constant(2, "tensors: keys and values"), symbol("T", 5, "tokens")
    for product in (pair * tokens, tokens * pair):
        assert int(product) == 10
        assert product.formula.constants == (("2", "tensors: keys and values"),)
    assert formula_of(exact_div(tokens * 4, Constant(2, "half"))).constants == (("2", "half"),)
    assert (pair * tokens).formula.text == "2 * T"
    assert (2 * tokens).formula.constants == ()


def test_a_constant_computes_plain_ints() -> None:
    pair = Constant(2, "tensors")
    assert [type(value) for value in (pair * 3, 3 * pair, pair + 1)] == [int, int, int]
