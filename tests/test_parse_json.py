"""JSON of config files: numbers that no field can have."""

import math

import pytest

from attncalc import AttncalcError
from attncalc.config.parse_json import decimal_number, parse_object, whole_number
from attncalc.config.plain import fields_of


@pytest.mark.parametrize(
    ("digits", "number"),
    [
        ("0", 0),
        ("-7", -7),
        ("9" * 99, 10**99 - 1),
        ("-" + "9" * 99, 1 - 10**99),
        ("1" + "0" * 400, math.inf),
        ("-1" + "0" * 400, -math.inf),
        ("9" * 10_000, math.inf),  # Python reads no more than 4,300 digits
    ],
)
def test_an_integer_of_hundreds_of_digits_is_infinite(digits: str, number: float) -> None:
    read = whole_number(digits)
    assert read == number
    assert type(read) is type(number)


def test_a_text_has_at_most_a_million_values() -> None:
    """Each `{},` is a comma and a bracket. The object and the list have two more brackets, and a
    comma is missing.
    """
    items = b",".join([b"{}"] * 499_999)
    assert len(parse_object(b'{"a":[' + items + b"]}", "f", "")["a"]) == 499_999
    with pytest.raises(AttncalcError, match="f: JSON with more than 1,000,000 values"):
        parse_object(b'{"a":[' + items + b",[]]}", "f", "")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0.5", 0.5),
        ("1e100", 1e100),
        ("1.1e100", math.inf),
        ("-1e308", -math.inf),
        ("1e999", math.inf),
        ("1e-308", 1e-308),
    ],
)
def test_a_number_that_would_overflow_in_a_product_is_infinite(text: str, number: float) -> None:
    assert decimal_number(text) == number


def test_files_and_dicts_are_read_alike() -> None:
    given = {"a": 10**400, "b": -1e308, "c": [1, 0.5, 10**30], "d": "9" * 400}
    read = {"a": math.inf, "b": -math.inf, "c": [1, 0.5, 10**30], "d": "9" * 400}
    text = (
        '{"a": 1'
        + "0" * 400
        + ', "b": -1e308, "c": [1, 0.5, 1'
        + "0" * 30
        + '], "d": "'
        + "9" * 400
        + '"}'
    )
    assert parse_object(text.encode(), "config.json", "") == read
    assert fields_of(given) == read
