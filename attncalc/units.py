"""Units: the only place that prints or parses bytes, FLOP, counts and dtypes.

Figures are integers in base units (bytes, FLOP, parameters, tokens). GiB and TFLOP exist only in this file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from .errors import AttncalcError, did_you_mean
from .quantity import ceil_div, symbol_like

BYTES = "B"
FLOP = "FLOP"
PARAMS = "parameters"
TOKENS = "tokens"
SECONDS = "s"
PER_SECOND = "tokens/s"
FLOP_PER_SECOND = "FLOP/s"
BYTES_PER_SECOND = "B/s"
NO_UNIT = ""
GIB = 2**30

_BINARY = tuple((f"{p}iB" if p else "B", 1024 ** (10 - i)) for i, p in enumerate([*"QRYZEPTGMK", ""]))
_DECIMAL = (
    ("Z", 10**21),
    ("E", 10**18),
    ("P", 10**15),
    ("T", 10**12),
    ("G", 10**9),
    ("M", 10**6),
    ("k", 10**3),
    ("", 1),
)
_COUNTED = (("trillion", 10**12), ("billion", 10**9), ("million", 10**6), ("thousand", 10**3), ("", 1))


class DType(NamedTuple):
    """How an element is stored.

    Attributes:
        name: attncalc's name for it.
        bits: bits of one element.
        meaning: the format in words.
        group: elements that share a scale; 0 for one scale per row (one head's K or V of a token); None without scales.
        scale_bytes: bytes of one scale.
    """

    name: str
    bits: int
    meaning: str
    group: int | None = None
    scale_bytes: int = 0

    def row_bytes(self, width: int, name: str = "bytes") -> int:
        """Return the bytes of one row of `width` elements, with its scales.

        `name` is the symbol for the bytes of an element of a dtype without scales.
        """
        if self.group is None:
            return width * symbol_like(width, name, self.bits // 8, f"bytes of an element in {self.name}")
        bits = symbol_like(width, "bits", self.bits, f"bits of an element in {self.name}")
        scale = symbol_like(width, "scale_bytes", self.scale_bytes, f"bytes of a scale in {self.name}")
        if not self.group:
            return ceil_div(width * bits, 8) + scale
        group = symbol_like(width, "group", self.group, "elements that share a scale")
        return ceil_div(width * bits, 8) + ceil_div(width, group) * scale

    @property
    def note(self) -> str:
        """Return its size in words: '2 B', or with scales '4-bit elements and 2 B of scale per 32 of them'."""
        if self.group is None:
            return f"{self.bits // 8} B"
        per = f"{self.group} of them" if self.group else "row"
        return f"{self.bits}-bit elements and {self.scale_bytes} B of scale per {per}"


_PER_HEAD = "per_token_head, one fp32 scale per row (one head's K or V of one token)"
DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("fp32", 32, "IEEE single precision"),
        DType("fp16", 16, "IEEE half precision"),
        DType("bf16", 16, "bfloat16"),
        DType("fp8", 8, "e4m3 or e5m2; per-tensor scales, a few bytes per layer, are not counted"),
        DType("int8", 8, f"vLLM's int8_{_PER_HEAD}", group=0, scale_bytes=4),
        DType("int4", 4, f"vLLM's int4_{_PER_HEAD}", group=0, scale_bytes=4),
        DType("fp4", 4, "NVFP4, one fp8 scale per 16 elements", group=16, scale_bytes=1),
        DType("mxfp4", 4, "OCP MXFP4, one 8-bit exponent per 32 elements", group=32, scale_bytes=1),
        DType("q8_0", 8, "llama.cpp, one fp16 scale per 32 elements", group=32, scale_bytes=2),
        DType("q4_0", 4, "llama.cpp, one fp16 scale per 32 elements", group=32, scale_bytes=2),
        DType("q4_1", 4, "llama.cpp, one fp16 scale and one fp16 minimum per 32 elements", group=32, scale_bytes=4),
        DType("q5_0", 5, "llama.cpp, one fp16 scale per 32 elements", group=32, scale_bytes=2),
        DType("q5_1", 5, "llama.cpp, one fp16 scale and one fp16 minimum per 32 elements", group=32, scale_bytes=4),
        DType("iq4_nl", 4, "llama.cpp, non-linear, one fp16 scale per 32 elements", group=32, scale_bytes=2),
    )
}
_ALIASES = {
    "float32": "fp32",
    "f32": "fp32",
    "float": "fp32",
    "float16": "fp16",
    "f16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "int8_per_token_head": "int8",
    "int4_per_token_head": "int4",
    "nvfp4": "fp4",
}


def dtype(name: str, *, compute: bool = False) -> DType:
    """Return the dtype with that name or alias: 'bf16', 'bfloat16'.

    With `compute`, only dtypes of weights and activations are allowed, which have no scales.

    Raises AttncalcError for an unknown name.
    """
    known = {k: d for k, d in DTYPES.items() if d.group is None or not compute}
    canonical = _ALIASES.get(name.lower(), name.lower())
    if canonical in known:
        return known[canonical]
    if canonical in DTYPES:
        raise AttncalcError(
            f"{name} can only be the dtype of a cache, since its elements share scales", f"known: {', '.join(known)}"
        )
    hint = did_you_mean(name, [*known, *(alias for alias, target in _ALIASES.items() if target in known)])
    raise AttncalcError(f"there is no dtype '{truncate(name)}'", f"{hint}known: {', '.join(known)}")


def is_dtype(name: str) -> bool:
    """Return whether there is a dtype with that name or alias."""
    return _ALIASES.get(name.lower(), name.lower()) in DTYPES


def count(number: int) -> str:
    """Return an integer with thousands separators: '1,342,177,280'."""
    return f"{int(number):,}"


def _scaled(number: int, scale: Sequence[tuple[str, int]], exact_below: int) -> tuple[str, str]:
    unit, factor = next(((u, f) for u, f in scale if number >= f), scale[-1])
    whole = factor < exact_below and number % factor == 0
    return _decimals(number, factor, 0 if whole else 2), unit


def _decimals(number: int, factor: int, digits: int = 2) -> str:
    """Return number / factor with `digits` digits, rounded half up, without floats, so that any size is exact."""
    if factor == 1:
        return f"{number:,}"
    tens = 10**digits
    rounded = (2 * tens * number + factor) // (2 * factor)
    return f"{rounded // tens:,}" + (f".{rounded % tens:0{digits}d}" if digits else "")


def human(number: int, unit: str) -> str:
    """Return a figure rounded for people: '1.25 GiB', '606.88 TFLOP', '68.98 billion', '4,096'."""
    number = int(number)
    if unit == BYTES:
        return " ".join(_scaled(number, _BINARY, exact_below=GIB))
    if unit in (FLOP, FLOP_PER_SECOND, BYTES_PER_SECOND):
        text, prefix = _scaled(number, _DECIMAL, exact_below=1)
        return f"{text} {prefix}{unit}"
    if unit == PARAMS:
        return " ".join(_scaled(number, _COUNTED, exact_below=1)).strip()
    return count(number)


def exact(number: int, unit: str) -> str:
    """Return a figure in base units: '1,342,177,280 B'; parameters and tokens have no unit."""
    return count(number) if unit in (PARAMS, TOKENS, NO_UNIT) else f"{count(number)} {unit}"


def quotient(value: float, unit: str) -> str:
    """Return a ratio with its unit in three digits: '12.3 ms', '1,235 tokens/s'."""
    if unit == SECONDS:
        unit, factor = next(((u, f) for u, f in _TIMES if value >= f), _TIMES[-1])
        value /= factor
    return f"{value:,.0f} {unit}" if value >= 999.5 else f"{value:#.3g}".rstrip(".") + f" {unit}"


def common_unit(largest: float, unit: str) -> tuple[str, float]:
    """Return the unit in which figures up to `largest` are shown together, and its size in base units: ('GiB', 2**30).

    The unit of parameters and of plain numbers below 1,000 is ''.
    """
    if unit == SECONDS:
        return next(((u, f) for u, f in _TIMES if largest >= f), _TIMES[-1])
    prefixed = unit in (FLOP, FLOP_PER_SECOND, BYTES_PER_SECOND)
    scale = _BINARY if unit == BYTES else _DECIMAL if prefixed else _COUNTED if unit == PARAMS else ()
    prefix, factor = next(((u, f) for u, f in scale if largest >= f), ("B" if unit == BYTES else "", 1))
    return (f"{prefix}{unit}" if prefixed else prefix if unit in (BYTES, PARAMS) else unit), factor


def short(value: float, unit: str) -> str:
    """Return a figure in at most three digits, and no more than it needs: '16 GiB', '2.5 TFLOP', '4,096', '2 million'.

    Tokens, tokens/s and plain numbers have no unit.
    """
    plain = unit in (TOKENS, PER_SECOND, NO_UNIT)
    name, factor = common_unit(value, unit) if not plain else common_unit(value, PARAMS) if value >= 10**6 else ("", 1)
    scaled = value / factor
    number = f"{scaled:,.0f}" if scaled >= 999.5 else f"{scaled:.3g}"
    return f"{number} {name}".strip()


def duration(seconds: float) -> str:
    """Return a time rounded for people: '40 s', '3 min', '5 hours', '12 days', 'more than a year'."""
    for unit, size, limit in (("s", 1, 90), ("min", 60, 90), ("hours", 3600, 48), ("days", 86_400, 366)):
        if seconds < limit * size:
            return f"{max(1, round(seconds / size))} {unit}"
    return "more than a year"


_TIMES = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))


def column(numbers: Sequence[int], unit: str) -> tuple[str, list[str]]:
    """Return one unit for a whole column ('GiB', 'TFLOP', 'billion'), and the numbers in that unit.

    The unit is the largest in which the smallest number is at least 1, or a larger one if another number would reach a
    million. All numbers have the same number of digits after the decimal point.
    """
    scale = {BYTES: _BINARY, PARAMS: _COUNTED}.get(unit, _DECIMAL)
    smallest = min((int(n) for n in numbers if n), default=0)
    largest = max((int(n) for n in numbers), default=0)
    large_units = [(u, f) for u, f in scale if largest < f * 10**6] or [scale[0]]
    name, factor = next(((u, f) for u, f in large_units if smallest >= f), large_units[-1])
    whole = factor < GIB and all(int(n) % factor == 0 for n in numbers)
    digits = 0 if whole else 2 if largest < 1000 * factor else 1
    return (name + unit if scale is _DECIMAL else name), [_decimals(int(n), factor, digits) for n in numbers]


MAX_COUNT = 10**30
"""The largest count and size that options accept."""
# Commas separate groups of three digits only: '1,8' is a list that someone meant for a sweep, not 18.
_GROUPS = r"[1-9]\d{0,2}(?:,\d{3}){1,12}"
_WHOLE = rf"\d{{1,40}}|\d{{1,3}}(?:_\d{{3}}){{1,12}}|{_GROUPS}"
_COUNT = re.compile(rf"(?P<whole>\d+(?:_\d+)*|{_GROUPS}) ?(?P<suffix>[kmgtKMGT]?)", re.ASCII)
_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_count(text: str, option: str) -> int:
    """Return a positive whole number from '4096', '131_072', '131,072', '128k' (128,000) or '128K' (131,072).

    The suffixes are vLLM's. The error names `option`.

    Raises AttncalcError for any other text, for zero and for numbers above MAX_COUNT.
    """
    match = _COUNT.fullmatch(text.strip())
    try:
        number = int(match["whole"].replace(",", "")) * _SUFFIXES.get(match["suffix"], 1) if match else 0
    except ValueError:  # more digits than int() takes
        number = 0
    if not 1 <= number <= MAX_COUNT:
        raise AttncalcError(
            f"{option}: '{truncate(text)}' is not a whole number from 1 to 10^30",
            f"write 4096, 4_096, 4k (4,000) or 4K (4,096){list_tip(text)}",
        )
    return number


def list_tip(text: str) -> str:
    """Return where lists belong, for the tip of an error about a number with a comma; '' without one."""
    return "; lists of values belong to sweep, or to compare -c" if "," in text else ""


_DECIMAL_NUMBER = re.compile(r"(\d{0,9})(?:\.(\d{0,12}))?", re.ASCII)


def parse_decimal(text: str, option: str, *, upper: int | None = None) -> tuple[int, int]:
    """Return a decimal above 0 exactly, as (numerator, a power of ten): '0.92' is (92, 100), '.5' is (5, 10).

    Raises AttncalcError, which names `option`, if the text is no decimal above 0 or is above `upper`.
    """
    match = _DECIMAL_NUMBER.fullmatch(text.strip())
    whole, fraction = (match[1], match[2] or "") if match else ("", "")
    numerator, denominator = int(whole + fraction or "0"), 10 ** len(fraction)
    if not numerator or (upper is not None and numerator > upper * denominator):
        limit = "" if upper is None else f" and at most {upper}"
        raise AttncalcError(
            f"{option}: '{truncate(text)}' is not a number above 0{limit}", f"write a decimal: 0.8{list_tip(text)}"
        )
    return numerator, denominator


def truncate(text: object, limit: int = 40) -> str:
    """Return `text` on one line, cut to `limit` characters, for an error message."""
    line = " ".join("".join(c if c.isprintable() else "?" for c in str(text)).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


_SIZES = {
    **{f"{p}ib".lower(): 1024 ** (i + 1) for i, p in enumerate("KMGTPE")},
    **{f"{p}b".lower(): 1000 ** (i + 1) for i, p in enumerate("KMGTPE")},
    "b": 1,
    "": 1,
}
_SIZE = re.compile(rf"(?P<whole>{_WHOLE})(?:\.(?P<fraction>\d{{1,40}}))? ?(?P<unit>[A-Za-z]*)", re.ASCII)


def parse_bytes(text: str, option: str) -> int:
    """Return a size in bytes, rounded down, from '5.38GiB', '5.38 GB' (10^9), '5776731504', '6k' or '6K' (6,144).

    The error names `option`.

    Raises AttncalcError for any other text, for zero and for sizes above MAX_COUNT.
    """
    match = _SIZE.fullmatch(text.strip())
    size = 0
    if match and (match["unit"] or not match["fraction"]):  # a fraction needs a unit: '5.38' is not a size
        unit, fraction = match["unit"], match["fraction"] or ""
        factor = _SUFFIXES.get(unit) or _SIZES.get(unit.lower(), 0)
        size = int(match["whole"].replace(",", "_") + fraction) * factor // 10 ** len(fraction)
    if not 1 <= size <= MAX_COUNT:
        raise AttncalcError(
            f"{option}: '{truncate(text)}' is not a size of at least one byte",
            f"write 5.38GiB, 5.38GB (10^9), 512MiB or a number of bytes{list_tip(text)}",
        )
    return size


class Amount(NamedTuple):
    """A number with its unit, exactly: numerator / denominator.

    Attributes:
        numerator: the dividend.
        denominator: the divisor, a power of ten.
        unit: BYTES or FLOP; NO_UNIT if none was written.
    """

    numerator: int
    denominator: int
    unit: str


_AMOUNT = re.compile(
    rf"(?P<whole>{_WHOLE})?(?:\.(?P<fraction>\d{{1,40}}))?(?:[eE](?P<power>[+-]?\d{{1,2}}))?"
    r" ?(?P<unit>[A-Za-z]*)",
    re.ASCII,
)
_FLOP_UNITS = {f"{prefix}{FLOP}": factor for prefix, factor in _DECIMAL}


def parse_amount(text: str, option: str) -> Amount:
    """Return a number of at least 0 in base units, from '7.5e9', '10k', '10K', '131,072', '8GiB', '1.5 TFLOP', '0.25'.

    Suffixes without a unit are vLLM's. The error names `option`.

    Raises AttncalcError for any other text, and for numbers above MAX_COUNT.
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match and (match["whole"] or match["fraction"]):
        suffix, fraction, power = match["unit"], match["fraction"] or "", int(match["power"] or 0)
        factor, unit = _SUFFIXES.get(suffix, 1), NO_UNIT
        if suffix in _FLOP_UNITS:
            factor, unit = _FLOP_UNITS[suffix], FLOP
        elif suffix and suffix not in _SUFFIXES:
            factor, unit = _SIZES.get(suffix.lower(), 0), BYTES
        digits = int((match["whole"] or "").replace(",", "").replace("_", "") + fraction)
        numerator = digits * factor * 10 ** max(power, 0)
        denominator = 10 ** (len(fraction) + max(-power, 0))
        if factor and numerator <= MAX_COUNT * denominator:
            return Amount(numerator, denominator, unit)
    raise AttncalcError(
        f"{option}: '{truncate(text)}' is not a number or a size", "write 7.5e9, 4096, 4K (4,096), 8GiB or 1.5TFLOP"
    )
