"""Lists and ranges of numbers."""

import contextlib

import pytest
from asking import refusal
from hypothesis import given
from hypothesis import strategies as st
from tables import each

from attncalc import AttncalcError
from attncalc.ranges import parse_counts

K = 1024


@each("text", ["64,1,16,1", "1k,1_000", "1K:4K:1K,2K"])
def test_a_number_that_is_in_a_list_twice_is_an_error(text: str) -> None:
    with pytest.raises(AttncalcError, match="twice"):
        parse_counts(text, "--batch")


@each(
    ("text", "numbers"),
    [
        ("4096", [4096]),
        ("4K,32K,128K", [4 * K, 32 * K, 128 * K]),
        (" 1, 16 ,64 ", [1, 16, 64]),
        ("64,1,16", [64, 1, 16]),
        ("8K:32K:8K", [8 * K, 16 * K, 24 * K, 32 * K]),
        ("8K:30K:8K", [8 * K, 16 * K, 24 * K]),
        ("5:5:1", [5]),
        ("1K:128K:x2", [K, 2 * K, 4 * K, 8 * K, 16 * K, 32 * K, 64 * K, 128 * K]),
        ("1K:6K:x2", [K, 2 * K, 4 * K]),
        ("100:400:x1.5", [100, 150, 225, 337]),
        ("1:3:1,16:64:x4,100", [1, 2, 3, 16, 64, 100]),
        ("1k,1_024", [1000, 1024]),
        ("128,256", [128, 256]),
    ],
)
def test_a_list_has_numbers_and_ranges(text: str, numbers: list[int]) -> None:
    assert parse_counts(text, "--context") == numbers


@each(
    ("text", "problem"),
    [
        ("", "'' is not a whole number"),
        ("1,,2", "'' is not a whole number"),
        ("1,x", "'x' is not a whole number"),
        ("4K:32K", "'4K:32K' is not a range"),
        ("1:2:3:4", "'1:2:3:4' is not a range"),
        ("32K:4K:1K", "the range '32K:4K:1K' ends below its start"),
        ("1:9:0", "'0' is not a whole number"),
        ("1:9:-1", "'-1' is not a whole number"),
        ("1:9:x", "'' is not a number above 0"),
        ("1:9:x1", "the factor of '1:9:x1' gives no larger number"),
        ("1:9:x0.5", "the factor of '1:9:x0.5' gives no larger number"),
        ("1:9:x1.01", "the factor of '1:9:x1.01' gives no larger number"),
        ("4,096", "'4,096' has a comma within a number"),
        ("1:1T:1", "'1:1T:1' is more than 1,000 numbers"),
        ("1:501:1,1000:1500:1", "is more than 1,000 numbers"),
    ],
)
def test_other_texts_are_errors_that_name_the_option(text: str, problem: str) -> None:
    error = refusal(parse_counts, text, "--context")
    assert error.message.startswith("--context: ")
    assert problem in error.message
    assert error.tip


@given(st.integers(1, 500), st.integers(0, 500), st.integers(1, 50))
def test_a_range_is_what_python_counts(first: int, more: int, step: int) -> None:
    numbers = parse_counts(f"{first}:{first + more}:{step}", "-c")
    assert numbers == list(range(first, first + more + 1, step))


@given(st.lists(st.integers(1, 10**30), min_size=1, max_size=20, unique=True))
def test_a_list_is_read_back(numbers: list[int]) -> None:
    assert parse_counts(",".join(map(str, numbers)), "-c") == numbers


@given(st.one_of(st.text(), st.from_regex(r"[\d,:xkKT.]{1,30}", fullmatch=True)))
def test_any_text_is_a_short_list_or_an_error(text: str) -> None:
    with contextlib.suppress(AttncalcError):
        numbers = parse_counts(text, "-c", limit=50)
        assert 1 <= len(numbers) <= 50
        assert min(numbers) >= 1
