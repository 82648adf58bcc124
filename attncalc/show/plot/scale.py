"""Where a value is on an axis, and the ticks of the axis.

An axis is logarithmic if its values span a factor of WIDE, or double from one to the next. Zero
then has a place of its own below the smallest value: a context at which not one request fits is an
answer too.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

from ...records import NamedTuple
from ...units import BYTES, SCALES, common_unit, short

# The ratio of the largest to the smallest value from which an axis is logarithmic.
WIDE = 30
# Powers of 2 between ticks of bytes and tokens.
_BINARY_STEPS = (1, 2, 3, 4, 5, 10, 20, 50, 100)
_NICE = (1.0, 2.0, 2.5, 5.0, 10.0)
# The unit of shares of a sum.
PERCENT = "%"
# Characters of a tick's number up to which a logarithmic axis has one unit: '16,384', '0.01'.
_LONGEST_NUMBER = 6
_LONGEST_FRACTION = 4


Value = TypeVar("Value")


class Axis(NamedTuple):
    label: str  # the figure, without the unit: 'KV cache'; "" if the chart's title names it
    unit: str  # the base unit of its values, as units.py names it
    name: str = ""  # the figure's or the option's name in JSON


class Tick(NamedTuple):
    """A tick: its place from 0 to 1, and its label."""

    at: float
    label: str


class Scale(NamedTuple):
    log: bool  # whether it is logarithmic
    low: float  # the value at the beginning, or its logarithm
    high: float  # the value at the end, or its logarithm
    zero: float  # the place of zero
    ticks: tuple[Tick, ...]  # the ticks, the lowest first
    label: str  # the axis' label, with the unit if the ticks have none

    def at(self, value: float) -> float:
        """Return the place of a value: 0 at the beginning of the axis, 1 at its end."""
        if self.log:
            if value <= 0:
                return self.zero
            return (math.log10(value) - self.low) / (self.high - self.low)
        return (value - self.low) / (self.high - self.low)


def is_wide(values: Iterable[float], ratio: float = WIDE) -> bool:
    """Return whether the largest value is at least `ratio` times the smallest, zero aside."""
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) / min(positive) >= ratio


def is_geometric(values: Sequence[float]) -> bool:
    """Return whether each value is about the same multiple of the one before, as in 1K, 2K, 4K."""
    if len(values) < 3 or values[0] <= 0:
        return False
    ratios = [after / before for before, after in itertools.pairwise(values)]
    return max(ratios) / min(ratios) < 1.3


def scale(
    axis: Axis,
    values: Sequence[float],
    *,
    most: int,
    own: Sequence[float] = (),
    edges: tuple[float, float] | None = None,
    bar: bool = False,
    wide: float = WIDE,
) -> Scale:
    """Return the scale for `values`.

    Args:
        axis: The axis.
        values: The values that it shows, none of them negative.
        most: The largest number of ticks.
        own: Values that the axis should have as its ticks, if they are at most `most`.
        edges: The first and the last value of a logarithmic axis; None to leave some space beside
            the values.
        bar: Whether the axis is that of bars: linear however far apart its values are, and as long
            as the longest.
        wide: The ratio of the values from which the axis is logarithmic.
    """
    ordered = sorted({float(value) for value in values}) or [0.0]
    if edges or (not bar and (is_wide(ordered, wide) or (own and is_geometric(ordered)))):
        return _logarithmic(axis, ordered, most, sorted(set(own)), edges)
    return _linear(axis, ordered, most, sorted(set(own)), bar=bar)


def _linear(
    axis: Axis, values: Sequence[float], most: int, own: Sequence[float], *, bar: bool
) -> Scale:
    """Return a scale from zero, or with ticks of its own one of the length of its values."""
    if own:
        space = (values[-1] - values[0]) * 0.04 or abs(values[-1]) or 1.0
        low = values[0] - space
        high = values[-1] + space
        places = thinned(own, most)
        unit, texts = _own_labels(axis, places)
        labels = list(zip(places, texts, strict=True))
        return Scale(False, low, high, 0.0, _ticks(low, high, labels), with_unit(axis, unit))
    top = values[-1] or 1.0
    unit, factor = common_unit(top, axis.unit)
    step = _nice_step(top / factor, most)
    if bar:
        n_steps = math.floor(top / factor / step + 1e-9)
        high = top / factor
    else:
        n_steps = math.ceil(top / factor / step - 1e-9)
        high = n_steps * step
        if top / factor > 0.97 * high:  # a mark on the frame is half hidden
            high *= 1.04
    labels = [(i * step, f"{i * step:,.10g}") for i in range(n_steps + 1)]
    return Scale(False, 0.0, high * factor, 0.0, _ticks(0.0, high, labels), with_unit(axis, unit))


def _logarithmic(
    axis: Axis,
    values: Sequence[float],
    most: int,
    own: Sequence[float],
    edges: tuple[float, float] | None,
) -> Scale:
    positive = [value for value in values if value > 0]
    first, last = edges or (positive[0], positive[-1])
    low = math.log10(first)
    high = math.log10(last)
    space = 0.0 if edges else (high - low) * 0.04
    below = (high - low) * 0.12 if values[0] <= 0 and not edges else 0.0
    shown_low = low - space - below
    shown_high = high + space
    places = [value for value in thinned(own, most) if value > 0]
    if places:
        unit, texts = _own_labels(axis, places)
    else:
        places = _log_ticks(axis, low - space, shown_high, most)
        unit, texts = _in_one_unit(places, axis.unit)
    labels = [(math.log10(place), text) for place, text in zip(places, texts, strict=True)]
    if below:
        labels.insert(0, (shown_low + below / 3, "0"))
    width = shown_high - shown_low
    ticks = _ticks(shown_low, shown_high, labels)
    return Scale(True, shown_low, shown_high, below / 3 / width, ticks, with_unit(axis, unit))


def with_unit(axis: Axis, unit: str) -> str:
    """Return the label of an axis with its unit: 'Context (tokens)'."""
    if not axis.label:
        return unit
    label = axis.label
    if label[1:2].islower():  # not d_model
        label = label[0].upper() + label[1:]
    return f"{label} ({unit})" if unit else label


def _ticks(low: float, high: float, labels: Iterable[tuple[float, str]]) -> tuple[Tick, ...]:
    return tuple(Tick((place - low) / (high - low), label) for place, label in labels)


def thinned(values: Sequence[Value], most: int) -> Sequence[Value]:
    """Return at most `most` of the values, at equal steps, the last one among them."""
    step = math.ceil(len(values) / most)
    if step > 1:
        return values[::-1][::step][::-1]
    return values


def _nice_step(top: float, most: int) -> float:
    """Return the smallest of 1, 2, 2.5 or 5 times a power of ten that divides `top` into at most
    `most` parts.
    """
    rough = top / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    return next(nice * power for nice in _NICE if nice * power >= rough * (1 - 1e-9))


def _own_labels(axis: Axis, values: Sequence[float]) -> tuple[str, list[str]]:
    """Return the unit of values that are ticks themselves, and their labels: those of numbers as
    options take them.
    """
    if axis.unit in SCALES:
        return _in_one_unit(values, axis.unit)
    return axis.unit, [exact_count(value) for value in values]


def _log_ticks(axis: Axis, low: float, high: float, most: int) -> list[float]:
    """Return the values of ticks of a logarithmic axis: powers of 2 for bytes and tokens, of 10 for
    others, 1-2-5 on a short axis. `low` and `high` are the logarithms of its ends.
    """
    if axis.unit == BYTES:
        two = math.log10(2)
        for step in _BINARY_STEPS:
            first = math.ceil(low / two / step) * step
            last = math.floor(high / two / step) * step
            powers = range(first, last + 1, step)
            if len(powers) <= most:
                return [2.0**n for n in powers]
    decades = range(math.floor(low), math.ceil(high) + 1)
    fine = []
    for decade in decades:
        for m in (1, 2, 5):
            value = m * 10.0**decade
            if low <= math.log10(value) <= high:
                fine.append(value)
    if len(fine) <= most:
        return fine
    step = math.ceil((high - low) / most) or 1
    coarse = []
    for decade in decades:
        if decade % step == 0 and low <= decade <= high:
            coarse.append(10.0**decade)
    return coarse


def _in_one_unit(values: Sequence[float], unit: str) -> tuple[str, list[str]]:
    """Return the unit in which all values are short numbers, and those: ('GFLOP', ['0.1', '1']).

    Without such a unit each has its own: ('', ['1 MiB', '1 TiB']).
    """
    best: tuple[str, list[str]] | None = None
    shortest = math.inf
    for name, size in SCALES.get(unit, {unit: 1.0}).items():
        texts = [f"{value / size:,.6g}" for value in values]
        if not all(
            _is_short(text, value / size) for text, value in zip(texts, values, strict=True)
        ):
            continue
        # a fraction takes longer to read than its characters
        length = sum(map(len, texts)) + 2 * sum("." in text for text in texts)
        if length < shortest:
            best = (name, texts)
            shortest = length
    if best:
        return best
    own = "" if unit in SCALES else unit
    return own, [short(value, unit) for value in values]


def _is_short(text: str, value: float) -> bool:
    """Return whether a text is short, and exactly the value."""
    longest = _LONGEST_FRACTION if "." in text else _LONGEST_NUMBER
    if len(text) > longest or "e" in text:
        return False
    return float(text.replace(",", "")) == value


def exact_count(value: float) -> str:
    """Return a number exactly and in short, as options take it: '128K' (131,072), '100k' (100,000),
    '4,095'.
    """
    if value != int(value):
        return f"{value:g}"
    number = int(value)
    for suffix, factor in (("M", 2**20), ("K", 2**10), ("k", 10**3)):
        if number and number % factor == 0:
            return f"{number // factor:,}{suffix}"
    return f"{number:,}"
