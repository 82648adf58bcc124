"""Units: how figures are printed and read, on both sides of each limit."""

import pytest
from tables import each

from attncalc.errors import AttncalcError
from attncalc.units import (
    BYTES,
    BYTES_PER_SECOND,
    FLOP,
    GIB,
    MAX_COUNT,
    NO_UNIT,
    PARAMS,
    TOKENS,
    column,
    dtype,
    duration,
    exact,
    human,
    is_dtype,
    parse_amount,
    parse_bytes,
    parse_count,
    parse_decimal,
    parse_price,
    truncate,
)

DAY = 86_400


@each(
    ("number", "unit", "text"),
    [
        (0, BYTES, "0 B"),
        (1023, BYTES, "1,023 B"),
        (1024, BYTES, "1 KiB"),  # below 1 GiB a whole number has no decimals
        (1536, BYTES, "1.50 KiB"),
        (GIB - 1, BYTES, "1,024.00 MiB"),
        (GIB, BYTES, "1.00 GiB"),
        (1024**5, BYTES, "1.00 PiB"),
        (-137 * GIB // 100, BYTES, "-1.37 GiB"),
        (999, FLOP, "999 FLOP"),
        (1000, FLOP, "1.00 kFLOP"),
        (10**12, FLOP, "1.00 TFLOP"),
        (3350 * 10**9, BYTES_PER_SECOND, "3.35 TB/s"),
        (1004, FLOP, "1.00 kFLOP"),
        (1005, FLOP, "1.01 kFLOP"),  # half up
        (10**24, FLOP, "1,000.00 ZFLOP"),
        (999, PARAMS, "999"),
        (1000, PARAMS, "1.00 thousand"),
        (68_976_648_192, PARAMS, "68.98 billion"),
        (4096, TOKENS, "4,096"),
    ],
)
def test_a_figure_is_rounded_for_people(number: int, unit: str, text: str) -> None:
    assert human(number, unit) == text


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        (BYTES, "1,000 B"),
        (FLOP, "1,000 FLOP"),
        (PARAMS, "1,000"),
        (TOKENS, "1,000"),
        (NO_UNIT, "1,000"),
    ],
)
def test_an_exact_figure_has_its_base_unit(unit: str, text: str) -> None:
    assert exact(1000, unit) == text


@each(
    ("numbers", "unit", "shown"),
    [
        ([1, 999_999], PARAMS, ("", ["1", "999,999"])),
        # thousand is no unit for millions, but for smaller counts
        ([1, 10**6], PARAMS, ("million", ["0.00", "1.00"])),
        ([38_400, 936_000_000], PARAMS, ("million", ["0.04", "936.00"])),
        # a million of a unit is too long: a larger one for all
        ([10**6, 10**12], PARAMS, ("billion", ["0.0", "1,000.0"])),
        ([1000, 2000], PARAMS, ("thousand", ["1", "2"])),
        ([1000, 2500], PARAMS, ("thousand", ["1.00", "2.50"])),
        ([1000, 999_500], PARAMS, ("thousand", ["1.00", "999.50"])),
        ([1500, 999_999], PARAMS, ("thousand", ["1.50", "1,000.00"])),
        # one decimal from 1,000 of the unit
        ([1500 * 10**6, 10**12], PARAMS, ("billion", ["1.5", "1,000.0"])),
        ([0, 1024], BYTES, ("KiB", ["0", "1"])),
        ([GIB, 2 * GIB], BYTES, ("GiB", ["1.00", "2.00"])),  # whole, but from 1 GiB with decimals
        ([1024**2, 3 * 1024**2], BYTES, ("MiB", ["1", "3"])),
        ([5 * 10**9], FLOP, ("GFLOP", ["5"])),
        ([5 * 10**12], FLOP, ("TFLOP", ["5.00"])),
        ([0], BYTES, ("B", ["0"])),
        ([], FLOP, ("FLOP", [])),
    ],
)
def test_a_column_has_one_unit(numbers: list[int], unit: str, shown: tuple[str, list[str]]) -> None:
    assert column(numbers, unit) == shown


@each(
    ("seconds", "text"),
    [
        (0, "1 s"),
        (1.4, "1 s"),
        (89, "89 s"),
        (90, "2 min"),
        (89 * 60, "89 min"),
        (90 * 60, "2 hours"),
        (47 * 3600, "47 hours"),
        (48 * 3600, "2 days"),
        (365 * DAY, "365 days"),
        (366 * DAY, "more than a year"),
    ],
)
def test_a_duration_has_the_next_unit_from_its_limit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("name", "width", "size"),
    [
        ("fp32", 100, 400),
        ("fp8", 100, 100),
        ("int8", 100, 100 + 4),  # one scale per row
        ("int4", 101, 51 + 4),
    ],
)
def test_bytes_of_a_row_with_its_scales(name: str, width: int, size: int) -> None:
    assert dtype(name).row_bytes(width) == size


def test_a_row_has_a_scale_for_each_whole_or_begun_group() -> None:
    """One more element than a group has begins another: 33 elements in q8_0 have 2 scales."""
    groups = dict.fromkeys(("mxfp4", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"), 32) | {
        "fp4": 16
    }
    sizes = {
        name: tuple(dtype(name).row_bytes(n + more) for more in (0, 1))
        for name, n in groups.items()
    }
    assert sizes == {
        "fp4": (8 + 1, 9 + 2),
        "mxfp4": (16 + 1, 17 + 2),
        "q8_0": (32 + 2, 33 + 4),
        "q4_0": (16 + 2, 17 + 4),
        "q4_1": (16 + 4, 17 + 8),
        "q5_0": (20 + 2, 21 + 4),
        "q5_1": (20 + 4, 21 + 8),
        "iq4_nl": (16 + 2, 17 + 4),
    }


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("bf16", "2 B"),
        ("int8", "8-bit elements and 4 B of scale per row"),
        ("q4_0", "4-bit elements and 2 B of scale per 32 of them"),
    ],
)
def test_the_size_of_an_element_in_words(name: str, note: str) -> None:
    assert dtype(name).note == note


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("FLOAT16", "fp16"),
        ("float", "fp32"),
        ("fp8_e5m2", "fp8"),
        ("fp8_ds_mla", "fp8"),
        ("nvfp4", "fp4"),
        ("BF16", "bf16"),
    ],
)
def test_a_dtype_has_the_names_of_torch_and_the_engines(alias: str, name: str) -> None:
    assert dtype(alias).name == name
    assert is_dtype(alias)
    assert not is_dtype(f"{alias}_")


def test_only_a_cache_has_a_dtype_with_scales() -> None:
    assert dtype("fp8", compute=True).name == "fp8"
    with pytest.raises(AttncalcError, match="int8 can only be the dtype of a cache") as caught:
        dtype("int8", compute=True)
    assert caught.value.tip.startswith("known: fp32, fp16, bf16, fp8; weights are --weights-dtype")
    with pytest.raises(AttncalcError, match="there is no dtype 'fp7'") as caught:
        dtype("fp7")
    assert "q4_0" in caught.value.tip


@each(
    ("text", "number"),
    [
        ("1", 1),
        (" 4096 ", 4096),
        ("131_072", 131_072),
        ("128k", 128_000),
        ("128K", 131_072),
        ("2m", 2 * 10**6),
        ("2M", 2 * 2**20),
        ("3g", 3 * 10**9),
        ("3G", 3 * 2**30),
        ("4t", 4 * 10**12),
        ("4T", 4 * 2**40),
        (str(MAX_COUNT), 10**30),
    ],
)
def test_a_count_may_have_a_suffix(text: str, number: int) -> None:
    assert parse_count(text, "--context") == number


@each(
    "text",
    ["0", "", "k", "-1", "_1", "1__0", "1.5k", "1kk", "0x10", str(MAX_COUNT + 1), "9" * 30 + "T"],
)
def test_other_counts_are_errors_that_name_the_option(text: str) -> None:
    with pytest.raises(AttncalcError, match=r"^--context: "):
        parse_count(text, "--context")


@each(
    ("text", "digits"), [("1e4", "10000"), ("10e9", "10000000000"), ("1.5E3", "1500"), ("8.0", "8")]
)
def test_a_whole_number_in_another_notation_has_its_digits_as_a_tip(text: str, digits: str) -> None:
    with pytest.raises(AttncalcError, match=f"--x: '{text}' is not written in digits") as caught:
        parse_count(text, "--x")
    assert caught.value.tip == f"write digits: {digits}"


@each("text", ["1.5e0", "0e3", "0.0", "1e31", "e4"])
def test_what_is_no_whole_number_has_no_digits(text: str) -> None:
    with pytest.raises(AttncalcError, match="is not a whole number"):
        parse_count(text, "--x")


@pytest.mark.parametrize("text", ["1,8", "4096,8192", "1,0000", "0,100", "01,024", ",100", "100,"])
def test_a_list_for_one_number_is_an_error_that_names_sweep(text: str) -> None:
    for parse in (parse_count, parse_bytes, parse_decimal):
        with pytest.raises(AttncalcError, match=r"^--batch: ") as caught:
            parse(text, "--batch")
        assert "lists of values belong to sweep" in caught.value.tip
    with pytest.raises(AttncalcError, match=r"^--fail-if: "):
        parse_amount(text, "--fail-if")


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("4,096", "4096"),
        ("1,048,576", "1048576"),
        ("4,096K", "4096K"),
        ("1,024MiB", "1024MiB"),
        ("$1,817.70", "$1817.70"),
    ],
)
def test_a_comma_never_groups_digits_and_the_tip_is_the_number_without(
    text: str, without: str
) -> None:
    for parse in (parse_count, parse_bytes, parse_amount, parse_price):
        with pytest.raises(AttncalcError) as caught:
            parse(text, "--x")
        assert caught.value.tip == f"write {without}: a comma separates the items of a list"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("0.92", (92, 100)),
        (".5", (5, 10)),
        ("1", (1, 1)),
        ("1.", (1, 1)),
        ("1.0", (10, 10)),
        ("0.0001", (1, 10**4)),
        ("45%", (45, 100)),
        ("0.8717961202189594", (8717961202189594, 10**16)),  # as SGLang prints its share
        (" 0.10 ", (10, 100)),
    ],
)
def test_a_decimal_is_exact(text: str, parts: tuple[int, int]) -> None:
    assert parse_decimal(text, "--share", upper=1) == parts


@pytest.mark.parametrize(
    "text", ["0", "0.0", "", ".", "1.01", "2", "-1", "1e-3", "0." + "1" * 21, "%", "101%"]
)
def test_other_decimals_are_errors_that_name_the_option(text: str) -> None:
    with pytest.raises(AttncalcError, match=r"^--share: .* and at most 1"):
        parse_decimal(text, "--share", upper=1)
    assert parse_decimal("2", "--share") == (2, 1)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a" * 40, "a" * 40), ("a" * 41, "a" * 37 + "..."), ("a\tb\n c", "a?b? c"), ("a  b", "a b")],
)
def test_a_text_in_an_error_is_one_short_line(text: str, shown: str) -> None:
    assert truncate(text) == shown


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        (str(MAX_COUNT), (MAX_COUNT, 1, NO_UNIT)),
        (f"{MAX_COUNT - 1}.5", (10 * MAX_COUNT - 5, 10, NO_UNIT)),
        ("1e30", (MAX_COUNT, 1, NO_UNIT)),
        ("25e-2", (25, 100, NO_UNIT)),
        ("1.5 TFLOP", (15 * 10**12, 10, FLOP)),
        ("0", (0, 1, NO_UNIT)),
    ],
)
def test_an_amount_is_exact(text: str, amount: tuple[int, int, str]) -> None:
    assert tuple(parse_amount(text, "--fail-if")) == amount


TOO_LARGE = (str(MAX_COUNT + 1), "1e31", f"{MAX_COUNT}.5", "1e999")


@pytest.mark.parametrize(
    "text",
    [
        *TOO_LARGE,
        "",
        "x",
        "1x",
        "1 2",
        "e5",
        ".",
        "1.",
        "10e29.",
        "-1",
        "--1",
        "1__0",
        "1,00",
        "∞",
        "१",
        "5 parsecs",
    ],
)
def test_other_amounts_are_errors_that_name_the_option(text: str) -> None:
    with pytest.raises(AttncalcError, match=r"^--fail-if: "):
        parse_amount(text, "--fail-if")
