"""Base units in and out: the only place that prints or parses bytes, FLOP, counts and dtypes.

Figures are integers in base units (bytes, FLOP, parameters, tokens). GiB and TFLOP exist here alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from .errors import AttncalcError, did_you_mean
from .quantity import Quantity, ceil_div, symbol

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

    bits: of one element. group: elements that share a scale (0: one scale a row, where a row is one
    head's K or V of one token; None: no scales). scale_bytes: of one scale.
    """

    name: str
    bits: int
    meaning: str
    group: int | None = None
    scale_bytes: int = 0

    def row_bytes(self, width: int, name: str = "bytes") -> int:
        """Bytes of one row of `width` elements, its scales included. name: the symbol of a plain element's."""
        if self.group is None:
            return width * _given(width, name, self.bits // 8, f"bytes of an element in {self.name}")
        bits = _given(width, "bits", self.bits, f"bits of an element in {self.name}")
        scale = _given(width, "scale_bytes", self.scale_bytes, f"bytes of a scale in {self.name}")
        if not self.group:
            return ceil_div(width * bits, 8) + scale
        group = _given(width, "group", self.group, "elements that share a scale")
        return ceil_div(width * bits, 8) + ceil_div(width, group) * scale

    @property
    def note(self) -> str:
        """'4-bit elements and 2 B of scale per 32 of them'; for a plain dtype its bytes: '2 B'."""
        if self.group is None:
            return f"{self.bits // 8} B"
        per = f"{self.group} of them" if self.group else "row"
        return f"{self.bits}-bit elements and {self.scale_bytes} B of scale per {per}"


def _given(width: int, name: str, value: int, meaning: str) -> int:
    """A symbol where `width` is one, a plain int where it is not."""
    return symbol(name, value, meaning) if isinstance(width, Quantity) else value


_PER_HEAD = "per_token_head, an fp32 scale a row (a head's K or V of a token)"
DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("fp32", 32, "IEEE single precision"),
        DType("fp16", 16, "IEEE half precision"),
        DType("bf16", 16, "bfloat16"),
        DType("fp8", 8, "e4m3 or e5m2; per-tensor scales, a few bytes a layer, are not counted"),
        DType("int8", 8, f"vLLM's int8_{_PER_HEAD}", group=0, scale_bytes=4),
        DType("int4", 4, f"vLLM's int4_{_PER_HEAD}", group=0, scale_bytes=4),
        DType("fp4", 4, "NVFP4, an fp8 scale per 16 elements", group=16, scale_bytes=1),
        DType("mxfp4", 4, "OCP MXFP4, an 8-bit exponent per 32 elements", group=32, scale_bytes=1),
        DType("q8_0", 8, "llama.cpp's, an fp16 scale per 32 elements", group=32, scale_bytes=2),
        DType("q4_0", 4, "llama.cpp's, an fp16 scale per 32 elements", group=32, scale_bytes=2),
        DType("q4_1", 4, "llama.cpp's, an fp16 scale and an fp16 least per 32 elements", group=32, scale_bytes=4),
        DType("q5_0", 5, "llama.cpp's, an fp16 scale per 32 elements", group=32, scale_bytes=2),
        DType("q5_1", 5, "llama.cpp's, an fp16 scale and an fp16 least per 32 elements", group=32, scale_bytes=4),
        DType("iq4_nl", 4, "llama.cpp's, not linear, an fp16 scale per 32 elements", group=32, scale_bytes=2),
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
    """The dtype called `name`, by one of the names that people use.

    compute: only those that weights and activations take, without scales.
    AttncalcError: for a name that is not one.
    """
    known = {k: d for k, d in DTYPES.items() if d.group is None or not compute}
    found = known.get(_ALIASES.get(name.lower(), name.lower()))
    if found is None and compute and _ALIASES.get(name.lower(), name.lower()) in DTYPES:
        raise AttncalcError(
            f"{name} is a dtype of caches: its elements share scales", f"known here: {', '.join(known)}"
        )
    if found is None:
        hint = did_you_mean(name, [*known, *(a for a, n in _ALIASES.items() if n in known)])
        raise AttncalcError(f"there is no dtype '{truncate(name)}'", f"{hint}known: {', '.join(known)}")
    return found


def count(number: int) -> str:
    """An exact integer with thousands separators: '1,342,177,280'."""
    return f"{int(number):,}"


def _scaled(number: int, scale: Sequence[tuple[str, int]], exact_below: int) -> tuple[str, str]:
    unit, factor = next(((u, f) for u, f in scale if number >= f), scale[-1])
    whole = factor < exact_below and number % factor == 0
    return _decimals(number, factor, 0 if whole else 2), unit


def _decimals(number: int, factor: int, digits: int = 2) -> str:
    """Number / factor to so many digits, rounded half up, without floats: exact at any size."""
    if factor == 1:
        return f"{number:,}"
    tens = 10**digits
    rounded = (2 * tens * number + factor) // (2 * factor)
    return f"{rounded // tens:,}" + (f".{rounded % tens:0{digits}d}" if digits else "")


def human(number: int, unit: str) -> str:
    """A figure as people say it: '1.25 GiB', '606.88 TFLOP', '68.98 billion', '4,096'."""
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
    """A figure in base units: '1,342,177,280 B'; parameters and tokens stand alone."""
    return count(number) if unit in (PARAMS, TOKENS, NO_UNIT) else f"{count(number)} {unit}"


def quotient(value: float, unit: str) -> str:
    """A ratio that has a unit, in three digits: '12.3 ms', '1,235 tokens/s'."""
    if unit == SECONDS:
        unit, factor = next(((u, f) for u, f in _TIMES if value >= f), _TIMES[-1])
        value /= factor
    return f"{value:,.0f} {unit}" if value >= 999.5 else f"{value:#.3g}".rstrip(".") + f" {unit}"


_TIMES = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))


def column(numbers: Sequence[int], unit: str) -> tuple[str, list[str]]:
    """One unit for a whole column, the largest that still shows its smallest number (but no number
    in it reaches a million), and each number in it with the same digits behind the point.

    Returns the unit's name ('GiB', 'TFLOP', 'billion') and the numbers without it.
    """
    scale = {BYTES: _BINARY, PARAMS: _COUNTED}.get(unit, _DECIMAL)
    least = min((int(n) for n in numbers if n), default=0)
    most = max((int(n) for n in numbers), default=0)
    small_enough = [(u, f) for u, f in scale if most < f * 10**6] or [scale[0]]
    name, factor = next(((u, f) for u, f in small_enough if least >= f), small_enough[-1])
    whole = factor < GIB and all(int(n) % factor == 0 for n in numbers)
    digits = 0 if whole else 2 if most < 1000 * factor else 1
    return (name + unit if scale is _DECIMAL else name), [_decimals(int(n), factor, digits) for n in numbers]


MOST = 10**30
"""No count that is asked about is larger."""
_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_count(text: str, what: str) -> int:
    """A positive whole number: '4096', '131_072', '131,072', or as vLLM takes it '128k' (128,000)
    and '128K' (131,072).

    what: the option or key, for the error. AttncalcError: for anything else, zero and below, and
    numbers above MOST.
    """
    digits, factor = text.strip(), 1
    if digits[-1:] in _SUFFIXES:
        digits, factor = digits[:-1], _SUFFIXES[digits[-1]]
    digits = digits.replace(",", "_") if digits[:1].isdigit() else ""  # int() takes 1_000, not 1__0 or _1
    try:
        number = int(digits) * factor
    except ValueError:
        number = 0
    if not 1 <= number <= MOST:
        raise AttncalcError(
            f"{what}: '{truncate(text)}' is not a whole number from 1 to 10^30",
            "write 4096, 4_096, 4k (4,000) or 4K (4,096)",
        )
    return number


_DECIMAL_NUMBER = re.compile(r"(\d{0,9})(?:\.(\d{0,12}))?", re.ASCII)


def parse_decimal(text: str, option: str, *, upper: int | None = None) -> tuple[int, int]:
    """Return a number above 0 exactly, as (numerator, a power of ten): '0.92' is (92, 100), '.5' is (5, 10).

    Raises AttncalcError, which names `option`, if it is not such a number or is above `upper`.
    """
    match = _DECIMAL_NUMBER.fullmatch(text.strip())
    whole, fraction = (match[1], match[2] or "") if match else ("", "")
    numerator, denominator = int(whole + fraction or "0"), 10 ** len(fraction)
    if not numerator or (upper is not None and numerator > upper * denominator):
        limit = "" if upper is None else f" and at most {upper}"
        raise AttncalcError(f"{option}: '{truncate(text)}' is not a number above 0{limit}", "write a decimal: 0.8")
    return numerator, denominator


def truncate(text: object, limit: int = 40) -> str:
    """`text` on one line and short enough for an error message."""
    line = " ".join("".join(c if c.isprintable() else "?" for c in str(text)).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


_SIZES = {
    **{f"{p}ib".lower(): 1024 ** (i + 1) for i, p in enumerate("KMGTPE")},
    **{f"{p}b".lower(): 1000 ** (i + 1) for i, p in enumerate("KMGTPE")},
    "b": 1,
    "": 1,
}
_SIZE = re.compile(
    r"(?P<whole>\d{1,40}|\d{1,3}(?:[,_]\d{3}){1,12})(?:\.(?P<fraction>\d{1,40}))? ?(?P<unit>[A-Za-z]*)", re.ASCII
)


def parse_bytes(text: str, what: str) -> int:
    """A size in bytes, rounded down to a byte: '5.38GiB', '5.38 GB' (10^9), '512MiB', '5776731504', and as
    engines take it '6k' (6,000) and '6K' (6,144).

    what: the option, for the error. AttncalcError: for anything else, nothing at all, and above MOST.
    """
    found = _SIZE.fullmatch(text.strip())
    size = 0
    if found and (found["unit"] or not found["fraction"]):  # 5.38 of what?
        unit, fraction = found["unit"], found["fraction"] or ""
        factor = _SUFFIXES.get(unit) or _SIZES.get(unit.lower(), 0)
        size = int(found["whole"].replace(",", "_") + fraction) * factor // 10 ** len(fraction)
    if not 1 <= size <= MOST:
        raise AttncalcError(
            f"{what}: '{truncate(text)}' is not a size of a byte or more",
            "write 5.38GiB, 5.38GB (10^9), 512MiB or the bytes",
        )
    return size
