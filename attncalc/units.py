"""Units: the only place that prints or parses bytes, FLOP, counts and dtypes.

Figures are integers in base units (bytes, FLOP, parameters, tokens). GiB and TFLOP exist only in
this file.
"""

import re
from collections.abc import Sequence
from typing import SupportsFloat

from .errors import BadValueError, did_you_mean
from .quantity import ceil_div, symbol_like
from .records import NamedTuple

BYTES = "B"
FLOP = "FLOP"
PARAMS = "parameters"
TOKENS = "tokens"
SECONDS = "s"
PER_SECOND = "tokens/s"
FLOP_PER_SECOND = "FLOP/s"
BYTES_PER_SECOND = "B/s"
NO_UNIT = ""
UNITS = (
    BYTES,
    FLOP,
    PARAMS,
    TOKENS,
    SECONDS,
    PER_SECOND,
    FLOP_PER_SECOND,
    BYTES_PER_SECOND,
    NO_UNIT,
)
MIB = 2**20
GIB = 2**30

_SI_PREFIXES = {
    "Z": 10**21,
    "E": 10**18,
    "P": 10**15,
    "T": 10**12,
    "G": 10**9,
    "M": 10**6,
    "k": 10**3,
    "": 1,
}
# {unit: its multiples with their sizes, the largest first}; other units have none.
SCALES: dict[str, dict[str, float]] = {
    BYTES: {**{f"{p}iB": 1024 ** (10 - i) for i, p in enumerate("QRYZEPTGMK")}, "B": 1},
    FLOP: {f"{p}{FLOP}": n for p, n in _SI_PREFIXES.items()},
    FLOP_PER_SECOND: {f"{p}{FLOP_PER_SECOND}": n for p, n in _SI_PREFIXES.items()},
    BYTES_PER_SECOND: {f"{p}{BYTES_PER_SECOND}": n for p, n in _SI_PREFIXES.items()},
    PARAMS: {"trillion": 10**12, "billion": 10**9, "million": 10**6, "thousand": 10**3, "": 1},
    SECONDS: {"s": 1.0, "ms": 1e-3, "us": 1e-6},
}
# What a header of a column names as the unit of its numbers.
UNIT_NAMES = {PER_SECOND, "FLOP/byte", "%", "kW"}.union(*SCALES.values()) - {""}


class DType(NamedTuple):
    """How an element is stored."""

    name: str  # attncalc's name for it
    bits: int  # bits of one element
    meaning: str  # the format in words
    # Elements that share a scale; 0 for one scale per row (one head's K or V of a token); None
    # without scales
    group: int | None = None
    scale_bytes: int = 0  # bytes of one scale

    def row_bytes(self, width: int, name: str = "bytes") -> int:
        """Return the bytes of one row of `width` elements, with its scales.

        `name` is the symbol for the bytes of an element of a dtype without scales.
        """
        if self.group is None:
            return width * symbol_like(
                width, name, self.bits // 8, f"bytes of an element in {self.name}"
            )
        bits = symbol_like(width, "bits", self.bits, f"bits of an element in {self.name}")
        scale = symbol_like(
            width, "scale_bytes", self.scale_bytes, f"bytes of a scale in {self.name}"
        )
        if not self.group:
            return ceil_div(width * bits, 8) + scale
        group = symbol_like(width, "group", self.group, "elements that share a scale")
        return ceil_div(width * bits, 8) + ceil_div(width, group) * scale

    @property
    def note(self) -> str:
        """Return its size in words: '2 B', or with scales '4-bit elements and 2 B of scale per 32
        of them'.
        """
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
        # the mean of a row of K, with an fp16 norm unless it is in fp8, and of V, with an fp16
        # scale and zero
        DType(
            "turboquant_k8v4",
            6,
            "vLLM's TurboQuant: K in fp8 and V in 4 bits",
            group=0,
            scale_bytes=2,
        ),
        DType(
            "turboquant_4bit_nc", 4, "vLLM's TurboQuant: K and V in 4 bits", group=0, scale_bytes=3
        ),
        DType(
            "turboquant_3bit_nc", 3, "vLLM's TurboQuant: K and V in 3 bits", group=0, scale_bytes=3
        ),
        DType("fp4", 4, "NVFP4, one fp8 scale per 16 elements", group=16, scale_bytes=1),
        DType("mxfp4", 4, "OCP MXFP4, one 8-bit exponent per 32 elements", group=32, scale_bytes=1),
        DType("q8_0", 8, "llama.cpp, one fp16 scale per 32 elements", group=32, scale_bytes=2),
        DType("q4_0", 4, "llama.cpp, one fp16 scale per 32 elements", group=32, scale_bytes=2),
        DType(
            "q4_1",
            4,
            "llama.cpp, one fp16 scale and one fp16 minimum per 32 elements",
            group=32,
            scale_bytes=4,
        ),
        DType("q5_0", 5, "llama.cpp, one fp16 scale per 32 elements", group=32, scale_bytes=2),
        DType(
            "q5_1",
            5,
            "llama.cpp, one fp16 scale and one fp16 minimum per 32 elements",
            group=32,
            scale_bytes=4,
        ),
        DType(
            "iq4_nl",
            4,
            "llama.cpp, non-linear, one fp16 scale per 32 elements",
            group=32,
            scale_bytes=2,
        ),
    )
}
# What vLLM makes of fp8 for a model with an indexer or compressed attention.
DS_MLA = "fp8_ds_mla"
_DS_MLA_MEANING = "FlashMLA's format: keys in fp8 with their scales, rotary parts in 16 bits"
# The format as a dtype: engines/ds_mla.py has the bytes of a row. For engines it is their fp8.
_DS_MLA = DType(DS_MLA, 8, _DS_MLA_MEANING, group=128, scale_bytes=4)
_ALIASES = {
    "float32": "fp32",
    "f32": "fp32",
    "float": "fp32",
    "float16": "fp16",
    "f16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "fp8_e4m3": "fp8",
    "fp4_e2m1": "fp4",
    "fp8_e5m2": "fp8",
    DS_MLA: "fp8",
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
    canonical = _ALIASES.get(name.lower(), name.lower())
    found = DTYPES.get(canonical)
    if found and (found.group is None or not compute):
        return found
    if compute:
        known = [name for name, known_dtype in DTYPES.items() if known_dtype.group is None]
    else:
        known = list(DTYPES)
    if canonical in DTYPES:
        raise BadValueError(
            f"{name} can only be the dtype of a cache, since its elements share scales",
            f"known: {', '.join(known)}; weights are --weights-dtype {name} of 'fit', the cache "
            f"is --kv-dtype {name}",
        )
    aliases = [alias for alias, target in _ALIASES.items() if target in known]
    hint = did_you_mean(name, [*known, *aliases])
    raise BadValueError(f"there is no dtype '{truncate(name)}'", f"{hint}known: {', '.join(known)}")


def cache_dtype_named(name: str) -> DType:
    """Return the dtype of a cache that no engine stores, where fp8_ds_mla is a format of its own
    and not fp8.

    Raises AttncalcError for an unknown name.
    """
    if name == DS_MLA:
        return _DS_MLA
    return dtype(name)


def is_dtype(name: str) -> bool:
    """Return whether there is a dtype with that name or alias."""
    return _ALIASES.get(name.lower(), name.lower()) in DTYPES


# {how the name of a quant_method begins: the usual dtype of its weights}: awq_marlin is AWQ.
_QUANT_METHODS = {
    "awq": "int4",
    "bitsandbytes": "int4",
    "fp8": "fp8",
    "gptq": "int4",
    "moe_wna16": "int4",
    "w8a8": "int8",
}


def usual_dtype(quant_method: str) -> str | None:
    """Return the dtype that a quantization method usually has for weights; None if only the
    checkpoint knows it.
    """
    return next(
        (dtype for start, dtype in _QUANT_METHODS.items() if quant_method.startswith(start)), None
    )


def tokens_in_short(tokens: int) -> str:
    """Return a number of tokens in a few characters: '500', '64K', or about '10M'."""
    if tokens >= 1 << 20:
        return f"{round(tokens / 2**20)}M"
    if tokens and tokens % 1024 == 0:
        return f"{tokens // 1024}K"
    return count(tokens)


def count(number: int) -> str:
    """Return an integer with thousands separators: '1,342,177,280'."""
    return f"{int(number):,}"


def common_unit(largest: float, unit: str) -> tuple[str, float]:
    """Return the unit in which figures up to `largest` are shown together, and its size in base
    units: ('GiB', 2**30).

    The unit of parameters below 1,000 is ''.
    """
    multiples = [*SCALES.get(unit, {unit: 1}).items()]
    return next((multiple for multiple in multiples if largest >= multiple[1]), multiples[-1])


def _decimals(number: int, factor: int, digits: int = 2) -> str:
    """Return number / factor with `digits` digits, rounded half up, without floats, so that any
    size is exact.
    """
    if factor == 1:
        return f"{number:,}"
    if number < 0:
        return f"-{_decimals(-number, factor, digits)}"
    tens = 10**digits
    rounded = (2 * tens * number + factor) // (2 * factor)
    return f"{rounded // tens:,}" + (f".{rounded % tens:0{digits}d}" if digits else "")


def human(number: int, unit: str) -> str:
    """Return a figure rounded for people: '1.25 GiB', '606.88 TFLOP', '68.98 billion', '4,096'."""
    number = int(number)
    if unit not in SCALES:
        return count(number)
    name, factor = common_unit(abs(number), unit)
    is_whole = unit == BYTES and factor < GIB and number % factor == 0
    return f"{_decimals(number, int(factor), 0 if is_whole else 2)} {name}".strip()


def exact(number: int, unit: str) -> str:
    """Return a figure in base units: '1,342,177,280 B'; parameters and tokens have no unit."""
    if unit in (PARAMS, TOKENS, NO_UNIT):
        return count(number)
    return f"{count(number)} {unit}"


def quotient(ratio: SupportsFloat, unit: str) -> str:
    """Return a ratio with its unit in three digits: '12.3 ms', '1,235 tokens/s'."""
    value = float(ratio)
    if unit == SECONDS:
        unit, factor = common_unit(value, unit)
        value /= factor
    if value >= 999.5:
        return f"{value:,.0f} {unit}"
    return f"{value:#.3g}".rstrip(".") + f" {unit}"


def short(value: float, unit: str) -> str:
    """Return a figure in at most three digits, and no more than it needs: '16 GiB', '2.5 TFLOP',
    '4,096', '2 million'.

    Tokens, tokens/s and plain numbers have no unit.
    """
    if unit in (TOKENS, PER_SECOND, NO_UNIT):
        unit = PARAMS if value >= 10**6 else NO_UNIT
    name, factor = common_unit(value, unit)
    scaled = value / factor
    number = f"{scaled:,.0f}" if scaled >= 999.5 else f"{scaled:.3g}"
    return f"{number} {name}".strip()


def duration(seconds: float) -> str:
    """Return a time rounded for people: '40 s', '3 min', '5 hours', '12 days', 'more than a
    year'.
    """
    for unit, size, limit in (
        ("s", 1, 90),
        ("min", 60, 90),
        ("hours", 3600, 48),
        ("days", 86_400, 366),
    ):
        if seconds < limit * size:
            return f"{max(1, round(seconds / size))} {unit}"
    return "more than a year"


def column(numbers: Sequence[int], unit: str) -> tuple[str, list[str]]:
    """Return one unit for a whole column of bytes, FLOP or parameters ('GiB'), and the numbers in
    that unit.

    The unit is the largest in which the smallest number is at least 1, or a larger one if another
    number would reach a million. Parameters are in millions if one number is: 'thousand' is no unit
    for 936 M. All numbers have the same number of digits after the decimal point.
    """
    whole = [int(number) for number in numbers]
    smallest = min(filter(None, whole), default=0)
    largest = max(whole, default=0)
    multiples = [(name, int(size)) for name, size in SCALES[unit].items()]
    if unit == PARAMS and largest >= 10**6:
        multiples = [(name, size) for name, size in multiples if size >= 10**6]
    large = [(name, size) for name, size in multiples if largest < size * 10**6] or multiples[:1]
    name, factor = next((multiple for multiple in large if smallest >= multiple[1]), large[-1])
    is_whole = factor < GIB and all(number % factor == 0 for number in whole)
    if is_whole:
        digits = 0
    elif largest < 1000 * factor:
        digits = 2
    else:
        digits = 1
    return name, [_decimals(number, factor, digits) for number in whole]


# The largest count and size that options accept.
MAX_COUNT = 10**30
_WHOLE = r"\d{1,40}|\d{1,3}(?:_\d{3}){1,12}"
_COUNT = r"(?a)(?P<whole>\d{1,40}|\d{1,12}(?:_\d{1,12}){1,12}) ?(?P<suffix>[kmgtKMGT]?)"
# '1e4', '1.5e3', '8.0'.
_SCIENTIFIC = r"(?a)(?P<whole>\d{1,40})(?:\.(?P<fraction>\d{1,40}))?(?:[eE]\+?(?P<power>\d{1,2}))?"
# A number with commas between groups of digits, as '4,096' or '$1,817.70/month'.
_GROUPED = re.compile(r"\D{0,4}[1-9]\d{0,2}(?:,\d{3}){1,12}(?!\d)[^,]{0,40}")
_COUNT_TIP = "k is 1,000 and K is 1,024: 4096, 128k (128,000) or 128K (131,072)"
_SUFFIXES = {
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
    "T": 2**40,
}


def is_auto(value: object) -> bool:
    """Return whether a context or a batch is to be the largest that fits: 'auto', or -1 as in
    engines.
    """
    return str(value) in ("auto", "-1")


def parse_count(text: str, option: str) -> int:
    """Return a positive whole number from '4096', '131_072', '128k' (128,000) or '128K' (131,072).

    The suffixes are vLLM's. A comma separates the items of a list, and never groups digits. The
    error names `option`.

    Raises AttncalcError for any other text, for zero and for numbers above MAX_COUNT.
    """
    match = re.fullmatch(_COUNT, text.strip())
    try:
        number = int(match["whole"]) * _SUFFIXES.get(match["suffix"], 1) if match else 0
    except ValueError:  # more digits than int() takes
        number = 0
    if not 1 <= number <= MAX_COUNT:
        digits = _digits_of(text.strip())
        if digits:
            raise BadValueError(
                f"{option}: '{truncate(text)}' is not written in digits", f"write digits: {digits}"
            )
        has_letters = any(character.isalpha() for character in text[:40])
        tip = _COUNT_TIP if has_letters else "write digits, as 8 or 4096"
        raise BadValueError(
            f"{option}: '{truncate(text)}' is not a whole number from 1 to 10^30",
            comma_tip(text) or f"{tip}{list_tip(text, option)}",
        )
    return number


def _digits_of(text: str) -> str:
    """Return the digits of a whole number in another notation: '10000' of '1e4', '8' of '8.0'; ''
    for another text.
    """
    match = re.fullmatch(_SCIENTIFIC, text)
    if match is None:
        return ""
    fraction = (match["fraction"] or "").rstrip("0")
    zeros = int(match["power"] or 0) - len(fraction)
    if zeros < 0:
        return ""
    number = int(match["whole"] + fraction) * 10**zeros
    if not 1 <= number <= MAX_COUNT:
        return ""
    return str(number)


def comma_tip(text: str) -> str:
    """Return the tip for a number with commas between groups of digits, as '4,096'; '' for another
    text.
    """
    text = text.strip()
    if len(text) > 60 or _GROUPED.fullmatch(text) is None:
        return ""
    return f"write {text.replace(',', '')}: a comma separates the items of a list"


def list_tip(text: str, option: str = "") -> str:
    """Return what to do instead of a list, a range or 'auto', for the tip of an error about a
    number; else ''.
    """
    if text.strip().lower() == "auto":
        return "; without it, 'fit' shows the fewest GPUs with their --tp"
    if option == "--users":
        of_list = "plan each number of users alone"
    else:
        of_list = "lists of values belong to sweep"
    if "," in text or ".." in text:
        return f"; {of_list}"
    return ""


def parse_decimal(text: str, option: str, *, upper: int | None = None) -> tuple[int, int]:
    """Return a decimal above 0 exactly, as (numerator, a power of ten): '0.92' is (92, 100), '.5'
    is (5, 10).

    A share (`upper` is 1) may also be '92%' or '1/3'. Raises AttncalcError, which names `option`,
    if the text is no decimal above 0 or is above `upper`.
    """
    share = None
    if upper == 1:
        share = re.fullmatch(r"(.*?)(%|/.*)?", text.strip(), re.DOTALL)
    match = re.fullmatch(r"(?a)(\d{0,9})(?:\.(\d{0,20}))?", (share[1] if share else text).strip())
    whole = ""
    fraction = ""
    if match:
        whole = match[1]
        fraction = match[2] or ""
    numerator = int(whole + fraction or "0")
    denominator = 10 ** len(fraction)
    if share and share[2] == "%":
        denominator *= 100
    elif share and share[2]:
        divisor, tens = parse_decimal(share[2][1:], option)
        numerator *= tens
        denominator *= divisor
    if not numerator or (upper is not None and numerator > upper * denominator):
        limit = "" if upper is None else f" and at most {upper}"
        raise BadValueError(
            f"{option}: '{truncate(text)}' is not a number above 0{limit}",
            comma_tip(text) or f"write a decimal: 0.8{list_tip(text)}",
        )
    return numerator, denominator


# {period: its seconds}; a month is a twelfth of a year.
PERIODS = {
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86_400,
    "week": 604_800,
    "month": 2_628_000,
    "year": 31_536_000,
}
MONTH_HOURS = PERIODS["month"] // PERIODS["hour"]
_SHORT_PERIODS = {
    "s": "second",
    "sec": "second",
    "min": "minute",
    "h": "hour",
    "hr": "hour",
    "d": "day",
    "mo": "month",
}
_PER_PERIOD = re.compile(
    r"(?i)[$€£]? ?(?P<amount>[\d.]+) ?(?P<scale>[kmb]?)(?: ?[*x] ?(?P<times>[\d.]+))?"
    r"(?: ?(?:[$€£]|usd|eur|(?:req|request)s?|rps|qps)\b)?"
    r"(?: ?(?:/|\b(?:per|a|an)\b) ?(?:gpu[- ]?)?(?P<period>[a-z]+?)s?)?"
)


def period(text: str) -> str | None:
    """Return the period of 'h' or 'months'; None if it is none."""
    name = text.strip().lower()
    return next(
        (
            one
            for one in (name, name.removesuffix("s"), _SHORT_PERIODS.get(name, ""))
            if one in PERIODS
        ),
        None,
    )


def parse_per(text: str, option: str, *, each: str, example: str) -> tuple[int, int]:
    """Return an amount per `each`, exactly: with 'hour' (249, 100) of '2.49', '$2.49/hr' or
    '1817.70 USD per month'.

    Raises BadValueError, with the example as a tip, if the text is no amount above 0 or has no such
    period.
    """
    match = _PER_PERIOD.fullmatch(text.strip())
    known = match and period(match["period"] or each)
    if match is None or known is None:
        why = "is not a rate" if "/" in text else "is not a number above 0"
        raise BadValueError(
            f"{option}: '{truncate(text)}' {why}", comma_tip(text) or f"write {example}"
        )
    numerator, denominator = parse_decimal(match["amount"], option)
    times, tens = parse_decimal(match["times"] or "1", option)
    scale = {"k": 10**3, "m": 10**6, "b": 10**9}.get(match["scale"].lower(), 1)
    return numerator * scale * times * PERIODS[each], denominator * tens * PERIODS[known]


def is_per_day(text: str) -> bool:
    """Return whether a rate is that of a day or longer, whose peak hours have more: '1M/day'."""
    match = _PER_PERIOD.fullmatch(text.strip())
    return (
        match is not None and PERIODS.get(period(match["period"] or "") or "", 0) >= PERIODS["day"]
    )


def parse_price(text: str, option: str) -> tuple[int, int]:
    """Return the price of an hour exactly, as `parse_per` does."""
    return parse_per(text, option, each="hour", example="a number: 2.49, or $1800/month")


def truncate(text: object, limit: int = 40) -> str:
    """Return `text` on one line, cut to `limit` characters, for an error message."""
    line = " ".join("".join(c if c.isprintable() else "?" for c in str(text)).split())
    if len(line) <= limit:
        return line
    return line[: limit - 3] + "..."


def long_option(field: str) -> str:
    """Return the name of the option of a field: '--max-model-len' of 'max_model_len', and of
    '--max_model_len'.
    """
    return f"--{field.removeprefix('--').replace('_', '-')}"


def typed_bytes(number: int) -> str:
    """Return a size as an option takes it: '16GB' of 16,000,000,000, and other numbers in bytes."""
    if number % 10**9:
        return str(number)
    return f"{number // 10**9}GB"


def hyphens(name: str) -> str:
    """Return a long option with hyphens for underscores; another word as it is."""
    if name.startswith("--"):
        return long_option(name)
    return name


_SIZES = {
    **{f"{p}ib": 1024 ** (i + 1) for i, p in enumerate("kmgtpe")},
    **{f"{p}i": 1024 ** (i + 1) for i, p in enumerate("kmgtpe")},  # 40Gi of Kubernetes
    **{f"{p}b": 1000 ** (i + 1) for i, p in enumerate("kmgtpe")},
    "b": 1,
    "": 1,
}
_AMOUNT = (
    rf"(?a)(?P<whole>{_WHOLE})?(?:\.(?P<fraction>\d{{1,40}}))?(?:[eE](?P<power>[+-]?\d{{1,2}}))?"
    r" ?(?P<unit>[A-Za-z]*)"
)


def _bytes_of(unit: str) -> int:
    """Return the bytes of 'GiB', 'GB' (10^9), 'k' or 'K' (2^10); 0 for another word."""
    return _SUFFIXES.get(unit) or _SIZES.get(unit.lower(), 0)


def parse_bytes(text: str, option: str) -> int:
    """Return a size in bytes, rounded down, from '5.38GiB', '5.38 GB' (10^9), '5776731504', '6k' or
    '6K' (6,144).

    The error names `option`.

    Raises AttncalcError for any other text, for zero and for sizes above MAX_COUNT.
    """
    match = re.fullmatch(_AMOUNT, text.strip())
    size = 0
    # A fraction needs a unit: '5.38' is not a size.
    if match and match["whole"] and not match["power"] and (match["unit"] or not match["fraction"]):
        fraction = match["fraction"] or ""
        size = int(match["whole"] + fraction) * _bytes_of(match["unit"]) // 10 ** len(fraction)
    if not 1 <= size <= MAX_COUNT:
        raise BadValueError(
            f"{option}: '{truncate(text)}' is not a size of at least one byte",
            comma_tip(text)
            or f"write 5.38GiB, 5.38GB (10^9), 512MiB or a number of bytes{list_tip(text)}",
        )
    return size


class Amount(NamedTuple):
    """A number with its unit, exactly: numerator / denominator."""

    numerator: int  # the dividend
    denominator: int  # the divisor, a power of ten
    unit: str  # BYTES or FLOP; NO_UNIT if none was written


def parse_amount(text: str, option: str) -> Amount:
    """Return a number of at least 0 in base units, from '7.5e9', '10k', '10K', '8GiB', '1.5 TFLOP',
    '0.25'.

    Suffixes without a unit are vLLM's. The error names `option`.

    Raises AttncalcError for any other text, and for numbers above MAX_COUNT.
    """
    match = re.fullmatch(_AMOUNT, text.strip())
    if match and (match["whole"] or match["fraction"]):
        name = match["unit"]
        whole = match["whole"] or ""
        fraction = match["fraction"] or ""
        power = int(match["power"] or 0)
        factor = _bytes_of(name)
        unit = BYTES if name and name not in _SUFFIXES else NO_UNIT
        if name in SCALES[FLOP]:
            factor = int(SCALES[FLOP][name])
            unit = FLOP
        digits = int(whole + fraction)
        numerator = digits * factor * 10 ** max(power, 0)
        denominator = 10 ** (len(fraction) + max(-power, 0))
        if factor and numerator <= MAX_COUNT * denominator:
            return Amount(numerator, denominator, unit)
    raise BadValueError(
        f"{option}: '{truncate(text)}' is not a number or a size",
        comma_tip(text) or "write 7.5e9, 4096, 4K (4,096), 8GiB or 1.5TFLOP",
    )


def days_text(seconds: float) -> str:
    """Return a time in days, or in hours if it is shorter than a day."""
    days = seconds / 86400
    if days >= 1:
        return f"{days:,.1f} days"
    return f"{24 * days:.1f} hours"
