"""Axes of charts: where a value is, when an axis is logarithmic, and its ticks."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncalc.show.plot.picture.style import spread
from attncalc.show.plot.scale import Axis, Scale, exact_count, is_geometric, scale
from attncalc.units import (
    BYTES,
    FLOP,
    NO_UNIT,
    PARAMS,
    PER_SECOND,
    SECONDS,
    TOKENS,
    common_unit,
    parse_count,
    short,
)

GIB = 2**30
CACHE = Axis("KV cache", BYTES)
CONTEXT = Axis("context", TOKENS)


def labels(shown: Scale) -> list[str]:
    return [tick.label for tick in shown.ticks]


def test_a_linear_axis_starts_at_zero_and_has_one_unit() -> None:
    shown = scale(CACHE, [3 * GIB, 10 * GIB], most=6)
    assert (shown.log, shown.label) == (False, "KV cache (GiB)")
    assert labels(shown) == ["0", "2", "4", "6", "8", "10"]
    assert shown.at(0) == 0


def test_the_axis_of_bars_ends_with_the_longest() -> None:
    shown = scale(CACHE, [GIB, 9 * GIB], most=6, bar=True)
    assert shown.at(9 * GIB) == 1
    assert shown.at(3 * GIB) == pytest.approx(1 / 3)
    assert not scale(CACHE, [1, 10**12], most=6, bar=True).log


@pytest.mark.parametrize(("largest", "log"), [(29, False), (30, True)])
def test_an_axis_is_logarithmic_from_a_factor_of_30(largest: int, log: bool) -> None:
    assert scale(CACHE, [GIB, largest * GIB], most=6).log is log


def test_a_logarithmic_axis_of_bytes_has_powers_of_2() -> None:
    shown = scale(CACHE, [2**25, 2**40], most=5)
    assert labels(shown) == ["128 MiB", "1 GiB", "8 GiB", "64 GiB", "512 GiB"]
    assert shown.label == "KV cache"
    assert shown.at(2**30) < shown.at(2**35) < 1


def test_a_logarithmic_axis_has_one_unit_if_its_numbers_are_short() -> None:
    """16 MiB to 16 GiB are 16 to 16,384 MiB; in GiB the first would be 0.015625."""
    shown = scale(CACHE, [2**24, 2**34], most=6)
    assert shown.label == "KV cache (MiB)"
    assert labels(shown)[-1] == "16,384"


def test_a_logarithmic_axis_of_other_units_has_powers_of_10() -> None:
    shown = scale(Axis("FLOPs", FLOP), [10**9, 10**13], most=6)
    assert shown.label == "FLOPs (GFLOP)"
    assert labels(shown) == ["1", "10", "100", "1,000", "10,000"]
    assert labels(scale(Axis("", NO_UNIT), [3, 200], most=7)) == [
        "5",
        "10",
        "20",
        "50",
        "100",
        "200",
    ]


def test_zero_has_a_place_below_the_smallest_value_of_a_logarithmic_axis() -> None:
    shown = scale(Axis("concurrent requests", NO_UNIT), [0, 1, 100], most=6)
    assert shown.log
    assert labels(shown)[:2] == ["0", "1"]
    assert 0 < shown.at(0) < shown.at(1) < shown.at(100) < 1


def test_swept_contexts_are_the_ticks_of_their_axis() -> None:
    contexts = [1024 * 2**i for i in range(8)]
    shown = scale(CONTEXT, contexts, most=8, own=contexts)
    assert (shown.log, shown.label) == (True, "Context (tokens)")
    assert labels(shown) == ["1K", "2K", "4K", "8K", "16K", "32K", "64K", "128K"]
    assert labels(scale(CONTEXT, contexts, most=4, own=contexts)) == ["2K", "8K", "32K", "128K"]


def test_values_that_double_are_on_a_logarithmic_axis_and_equal_steps_are_not() -> None:
    assert is_geometric([128, 256, 512, 1024])
    assert not is_geometric([1, 2, 3, 4])
    assert not is_geometric([4096, 8192])
    assert not is_geometric([0, 1, 2])


@pytest.mark.parametrize("values", [[7], [0], [], [5, 5], [0, 0]])
def test_one_value_or_none_has_an_axis(values: list[float]) -> None:
    for shown in (scale(CACHE, values, most=5), scale(CONTEXT, values, most=5, own=values)):
        assert all(0 <= shown.at(value) <= 1 for value in values)
        assert all(0 <= tick.at <= 1 for tick in shown.ticks)


@given(
    st.lists(st.one_of(st.just(0.0), st.floats(1e-9, 1e60)), min_size=1, max_size=12),
    st.sampled_from([BYTES, FLOP, PARAMS, SECONDS, TOKENS, NO_UNIT]),
    st.integers(3, 9),
    st.booleans(),
)
def test_every_value_is_on_its_axis_and_ticks_are_in_order(
    values: list[float], unit: str, most: int, own: bool
) -> None:
    shown = scale(Axis("x", unit), values, most=most, own=values if own else ())
    assert all(-1e-9 <= shown.at(value) <= 1 + 1e-9 for value in values)
    places = [tick.at for tick in shown.ticks]
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)
    assert all(before < after for before, after in itertools.pairwise(places))
    assert len(places) <= most + 2
    ordered = sorted(values)
    assert all(shown.at(a) <= shown.at(b) for a, b in itertools.pairwise(ordered))


@given(st.integers(1, 10**15))
def test_a_tick_of_a_count_is_what_an_option_takes_but_for_its_commas(number: int) -> None:
    assert parse_count(exact_count(number).replace(",", ""), "-c") == number


@given(st.lists(st.floats(0, 10), min_size=1, max_size=20), st.floats(0.01, 0.5))
def test_names_keep_their_order_and_their_distance(wanted: list[float], gap: float) -> None:
    """20 names of at most 0.5 need 10, the whole space."""
    places = spread(wanted, gap, 0, 10)
    assert all(-1e-6 <= place <= 10 + 1e-6 for place in places)
    ordered = sorted(places)
    assert all(after - before >= gap - 1e-6 for before, after in itertools.pairwise(ordered))
    by_wish = [places[i] for i in sorted(range(len(wanted)), key=lambda i: wanted[i])]
    assert by_wish == sorted(by_wish)


def test_names_that_have_space_stay_where_they_are() -> None:
    assert spread([1.0, 5.0, 3.0], 0.5, 0, 10) == [1.0, 5.0, 3.0]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (16 * GIB, BYTES, "16 GiB"),
        (1.5 * GIB, BYTES, "1.5 GiB"),
        (0, BYTES, "0 B"),
        (2.5e12, FLOP, "2.5 TFLOP"),
        (0.0123, SECONDS, "12.3 ms"),
        (4096, TOKENS, "4,096"),
        (2_000_000, TOKENS, "2 million"),
        (0.25, NO_UNIT, "0.25"),
        (7e10, PARAMS, "70 billion"),
        (999_999, TOKENS, "999,999"),
        (10**6, TOKENS, "1 million"),
        (999.4, PER_SECOND, "999"),
        (999.5, PER_SECOND, "1,000"),
        (1023, BYTES, "1,023 B"),
        (1024, BYTES, "1 KiB"),
        (1, SECONDS, "1 s"),
        (0.5, SECONDS, "500 ms"),
        (1e-9, SECONDS, "0.001 us"),
    ],
)
def test_a_short_figure_has_at_most_three_digits(value: float, unit: str, text: str) -> None:
    assert short(value, unit) == text


@pytest.mark.parametrize(
    ("largest", "unit", "shown"),
    [
        (5 * GIB, BYTES, ("GiB", GIB)),
        (1023, BYTES, ("B", 1)),
        (0.02, SECONDS, ("ms", 1e-3)),
        (3e10, PARAMS, ("billion", 10**9)),
        (12, PARAMS, ("", 1)),
        (3e15, FLOP, ("PFLOP", 10**15)),
        (9000, TOKENS, ("tokens", 1)),
        (999, FLOP, ("FLOP", 1)),
        (1000, FLOP, ("kFLOP", 1000)),
        (0, BYTES, ("B", 1)),
        (1024, BYTES, ("KiB", 1024)),
        (1, SECONDS, ("s", 1.0)),
        (1e-9, SECONDS, ("us", 1e-6)),
        (999, PARAMS, ("", 1)),
        (1000, PARAMS, ("thousand", 1000)),
    ],
)
def test_figures_of_an_axis_share_the_unit_of_the_largest(
    largest: float, unit: str, shown: tuple[str, float]
) -> None:
    assert common_unit(largest, unit) == shown
