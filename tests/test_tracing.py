"""Compiled functions return what the functions return."""

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tables import each

from attncalc import AttncalcError, Workload, load, preset_names, tracing
from attncalc.cost.cache import kv_cache
from attncalc.cost.flops import prefill_and_decode
from attncalc.quantity import (
    ceil_div,
    exact_div,
    maximum,
    minimum,
    named,
    quantity,
    ratio,
    symbol,
    total,
)
from attncalc.tracing import Compiled, LateQuestionError, Remembered, UnaskedNumberError

NUMBERS = st.integers(1, 10**6)


def arithmetic(b: int, t: int) -> list[int]:
    """Use every operation that is recorded, on symbols and on plain ints."""
    layers = symbol("L", 80, "layers")
    window = minimum(t, symbol("W", 4096, "window"))
    pairs = exact_div(window * (window + 1), 2) + (t - window) * 4096
    blocks = ceil_div(t, 16) * b - b + 1
    parts = total(
        [named(layers * b * pairs, "scores", "FLOP"), quantity(0), 7 * t % 13, (t + 3) // b]
    )
    return [
        parts,
        maximum(blocks, 100),
        2 * (3 * b) * t,
        t - t,
        0 - b,
        1 // t,
        b // 1,
        (4 * t + 8) // 4,
    ]


def branches(b: int, t: int) -> list[int | str | None]:
    """Decide by comparisons, by a condition and by a number itself."""
    if t > 4096 and b != t:
        return ["long", t - 4096]
    if not t % 7:
        return ["multiple of 7", t // 7]
    return [f"batch {b}" if b < 3 else None, int(b) + t]


# Comparisons whose answer changes from 1 to 2, or where the numbers are equal.
COMPARISONS: list[Callable[[int, int], bool]] = [
    lambda b, t: b > 1,
    lambda b, t: b >= 2,
    lambda b, t: b <= 1,
    lambda b, t: b == 1,
    lambda b, t: b != 1,
    lambda b, t: b < t,
    lambda b, t: b - t == 0,
    lambda b, t: bool(b - 1),
    lambda b, t: b % 2 > 0,
    lambda b, t: b // 2 >= 1,
    lambda b, t: minimum(b - 1, t) > 0,
]
CORNERS = st.one_of(NUMBERS, st.integers(1, 4))


@given(st.lists(st.tuples(CORNERS, CORNERS), min_size=2, max_size=20))
@example([(1, 1), (2, 1), (1, 2), (3, 3)])
def test_a_comparison_is_answered_for_each_number(cells: list[tuple[int, int]]) -> None:
    """Each in a function of its own: the questions of one would hide that another is not asked."""
    for compare in COMPARISONS:
        compiled = Compiled(lambda b, t, compare=compare: [compare(b, t)], ("B", "T"))
        for b, t in cells:
            assert compiled(b, t) == (compare(b, t),)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=20))
def test_a_compiled_function_returns_what_the_function_returns(
    cells: list[tuple[int, int]],
) -> None:
    for function in (arithmetic, branches):
        compiled = Compiled(function, ("B", "T"))
        for b, t in cells:
            assert compiled(b, t) == tuple(function(b, t))


def test_arithmetic_without_decisions_runs_once() -> None:
    compiled = Compiled(arithmetic, ("B", "T"))
    for b in range(1, 30):
        for t in range(1, 9000, 700):
            assert compiled(b, t) == tuple(arithmetic(b, t))
    assert compiled.runs == 1


@pytest.mark.parametrize(
    "is_same", [lambda b, t: b * t >= 1, lambda b, t: not 3 * b * t + 1, lambda b, t: t - t > 0]
)
def test_a_comparison_with_one_possible_answer_leads_one_way(
    is_same: Callable[[int, int], bool],
) -> None:
    compiled = Compiled(lambda b, t: [is_same(b, t), b + t], ("B", "T"))
    assert [compiled(b, t)[1] for b in (1, 2, 50) for t in (1, 16)] == [2, 17, 3, 18, 51, 66]
    assert compiled.runs == 1


def test_a_use_that_cannot_be_recorded_holds_for_that_number_only() -> None:
    compiled = Compiled(lambda b, t: [f"{b:,} sequences", t + 1], ("B", "T"))
    assert compiled(1000, 5) == ("1,000 sequences", 6)
    assert compiled(1000, 9) == ("1,000 sequences", 10)
    assert compiled.runs == 1
    assert compiled(2000, 9) == ("2,000 sequences", 10)
    assert compiled.runs == 2


@given(NUMBERS, NUMBERS)
def test_a_ratio_is_whole_or_the_nearest_float(a: int, b: int) -> None:
    compiled = Compiled(lambda b, t: [ratio(named(b, "b", ""), t)], ("B", "T"))
    assert compiled(a, b) == (ratio(a, b).value,)
    assert compiled(6, 3) == (2,)


def test_an_error_is_raised_for_the_numbers_that_cause_it() -> None:
    def refuse(b: int, t: int) -> list[int]:
        if t > 100:
            raise AttncalcError(f"{t} is too long", "shorten it")
        return [b]

    compiled = Compiled(refuse, ("B", "T"))
    assert compiled(3, 100) == (3,)
    for length in (101, 102, 101):
        with pytest.raises(AttncalcError, match=f"^{length} is too long"):
            compiled(3, length)


def test_an_object_is_kept_while_it_depends_on_no_number() -> None:
    remembered: Remembered[dict[str, int]] = Remembered(
        lambda b, t: {"batch": b, "is_long": t > 10}, ("B", "T")
    )
    first = remembered(3, 5)
    assert remembered(4, 9) is first
    assert remembered(4, 11) is not first
    assert remembered.runs == 2


def test_an_object_that_uses_a_number_too_late_is_an_error() -> None:
    remembered: Remembered[list[int]] = Remembered(lambda b, t: [b], ("B", "T"))
    (kept,) = remembered(3, 5)
    with pytest.raises(LateQuestionError):
        kept + 1


def test_numbers_that_lead_to_more_ways_than_are_kept_are_answered_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracing, "_MAX_KEPT", 10)
    compiled = Compiled(lambda b, t: [str(b), ratio(b, t)], ("B", "T"))
    assert [compiled(n, 1) for n in range(1, 100)] == [(str(n), n) for n in range(1, 100)]
    assert compiled.runs == 99
    assert compiled(3, 2) == ("3", 1.5)
    assert compiled.runs == 99
    assert compiled(50, 2) == ("50", 25)
    assert compiled.runs == 100


READS: dict[str, Callable[[int], object]] = {
    "a float": lambda t: int(1.5 * t),
    "a fraction": lambda t: int(Fraction(t) / 3),
    "gcd": lambda t: math.gcd(t, 96),
    "a text": lambda t: "%d" % t,  # noqa: UP031 - it is what must be noticed
    "a range": lambda t: sum(1 for _ in zip(range(t), range(200), strict=False)),
    "an item": lambda t: list(range(200))[t : t + 1][0],
    "a figure that depends on it": lambda t: t * math.gcd(t, 96),
    "a question that depends on it": lambda t: int(t > math.gcd(t, 96) * 1000),
}


@pytest.mark.parametrize("read", READS)
def test_a_number_that_is_read_without_a_question_is_an_error(read: str) -> None:
    """The compiled function would give the figure of this number for every other."""
    compiled = Compiled(lambda b, t: [READS[read](t)], ("B", "T"))
    with pytest.raises((UnaskedNumberError, IndexError)):
        compiled(2, 96)
    asked = Compiled(lambda b, t: [READS[read](int(t))], ("B", "T"))
    assert asked(2, 96) == (READS[read](96),)
    assert asked(2, 98) == (READS[read](98),)


@each("name", preset_names())
def test_costs_of_a_preset_are_compiled(name: str) -> None:
    """A use that cannot be recorded would give a run for each of 60 cells."""
    model = load(name)
    source = 100 if model.encoder else None

    def costs(b: int, t: int) -> list[int | None]:
        workload = Workload.decode(b, t, source=source)
        cache = kv_cache(model, workload)
        return [cache.total, cache.per_token, *prefill_and_decode(model, workload)]

    compiled = Compiled(costs, ("B", "T"))
    cells = [
        (b, t)
        for b in (1, 2, 7, 60)
        for t in (
            1,
            2,
            3,
            100,
            511,
            512,
            513,
            4096,
            4097,
            8192,
            9000,
            10**5,
            10**6,
            3 * 10**6,
            10**7,
        )
    ]
    for b, t in cells:
        compiled(b, t)
    assert compiled.runs <= 10
    for b, t in cells[::13]:
        assert compiled(b, t) == tuple(
            None if figure is None else int(figure) for figure in costs(b, t)
        )
