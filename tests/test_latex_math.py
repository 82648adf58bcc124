"""Formulas as LaTeX's math: they mean the same, and compile."""

from pathlib import Path

import pytest
from tables import each
from test_latex import compile_latex, needs_tex

from attncalc import Workload, load
from attncalc.cost.cache import kv_cache
from attncalc.quantity import (
    Constant,
    ceil_div,
    exact_div,
    least,
    maximum,
    minimum,
    most,
    named,
    quantity,
    symbol,
)
from attncalc.show.latex_math import math, symbol_name

A, B, C = (symbol(name, value, f"the {name}") for name, value in (("a", 6), ("b", 4), ("c", 2)))


def of(value: int, *, numbers: bool = False) -> str:
    return math(quantity(value).formula, numbers=numbers)


def test_the_cache_is_a_product_of_named_sizes() -> None:
    cache = kv_cache(load("llama2-70b").symbolic(), Workload.decode(1, 4096)).total
    product = r"L \cdot B \cdot T \cdot 2\,n_{\mathrm{kv}} \cdot d_{\mathrm{head}} \cdot"
    assert of(cache) == rf"{product} \mathrm{{bytes}}"
    assert of(cache, numbers=True) == r"80 \cdot 1 \cdot 4{,}096 \cdot 2 \cdot 8 \cdot 128 \cdot 2"


@each(
    ("value", "tex"),
    [
        (A * (B + C), r"a \cdot (b + c)"),
        (A * B + C, r"a \cdot b + c"),
        (A - (B - C), "a - (b - c)"),
        (A - B - C, "a - b - c"),
        (A + (B - C), "a + b - c"),
        (2 * A, r"2\,a"),
        (A * 2, r"a \cdot 2"),
        (A * 2 * B, r"a \cdot 2\,b"),
        (exact_div(A, C), r"\frac{a}{c}"),
        (exact_div(A * B, B + C), r"\frac{a \cdot b}{b + c}"),
        (A // B, r"\lfloor \frac{a}{b} \rfloor"),
        (A * (B // C), r"a \cdot \lfloor \frac{b}{c} \rfloor"),
        (A * B // C, r"\lfloor \frac{a \cdot b}{c} \rfloor"),
        (A % B, r"a \bmod b"),
        (C * (A % B), r"c \cdot (a \bmod b)"),
        (ceil_div(A, B), r"\lceil \frac{a}{b} \rceil"),
        (minimum(A, B + C), r"\min(a, b + c)"),
        (maximum(A, B) * C, r"\max(a, b) \cdot c"),
        (A * Constant(2, "halves"), r"a \cdot 2"),
        (least("a", 6, "the a", A * C, B), r"\min\,\{a : a \cdot c > b\}"),
        (most("a", 6, "the a", B, A), r"\max\,\{a : b \le a\}"),
    ],
)
def test_operators_keep_their_order(value: int, tex: str) -> None:
    assert of(value) == tex


def test_numbers_replace_symbols() -> None:
    assert of(A * (B + C), numbers=True) == r"6 \cdot (4 + 2)"
    # the value that is searched for stays a symbol
    bound = least("a", 6, "the a", A * C, B)
    assert of(bound, numbers=True) == r"\min\,\{a : 6 \cdot 2 > 4\}"


def test_two_symbols_of_one_name_differ() -> None:
    other = symbol("a", 7, "another a")
    assert of(A + other) == "a_{1} + a_{2}"


def test_a_symbol_that_is_a_figure_has_its_label() -> None:
    formula = quantity(named(5, "kv_cache", "") + A).formula
    assert math(formula, {"kv_cache": "KV cache"}) == r"\mbox{KV cache} + a"


@pytest.mark.parametrize(
    ("name", "tex"),
    [
        ("L", "L"),
        ("bytes", r"\mathrm{bytes}"),
        ("d_model", r"d_{\mathrm{model}}"),
        ("n_kv_heads", r"n_{\mathrm{kv}}"),
        ("T_1", "T_{1}"),
        ("bytes_per_token", r"\mathrm{bytes}_{\mathrm{per}\,\mathrm{token}}"),
        ("50%", r"\mbox{50\%}"),
    ],
)
def test_words_below_the_first_are_an_index(name: str, tex: str) -> None:
    assert symbol_name(name) == tex


def test_a_long_quotient_can_be_broken_into_lines() -> None:
    long = symbol("a_very_long_name_of_a_size", 8, "") * symbol("another_long_name", 4, "")
    assert r"\frac" not in of(exact_div(long, C * C))
    assert of(exact_div(long, C * C)).endswith(r" / (c \cdot c)")


@needs_tex
def test_math_compiles(tmp_path: Path) -> None:
    values = [A * (B + C), A % B, ceil_div(A, B), maximum(A, B), least("a", 6, "", A, B)]
    values.append(symbol("x%y_#1", 3, "") * A)
    log = compile_latex("\n\n".join(f"${of(value)}$" for value in values), tmp_path)
    assert "Missing character" not in log
