"""Where the lines of two figures of a sweep cross."""

from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise
from typing import Any

from ...errors import AttncalcError
from ...records import NamedTuple
from .sweep import Sweep

# Crossings of a chart; more are a tangle.
_MOST = 4


class Crossing(NamedTuple):
    """The first value of the axis at which one figure is larger than another that was larger."""

    x: int
    larger: str  # the figure that is larger from here
    smaller: str


def crossings(sweep: Sweep, axis: str, lines: Mapping[str, Mapping[int, Any]]) -> list[Crossing]:
    """Return where the lines cross, along 'batch' or 'context'; none if they cross too often.

    Between two values of the axis the place is searched for by bisection, of which each step is a
    cell of the sweep.
    """
    found: list[Crossing] = []
    for first, second in combinations(lines, 2):
        found += _of_pair(sweep, axis, lines, (first, second))
    return found if len(found) <= _MOST else []


def _of_pair(
    sweep: Sweep, axis: str, lines: Mapping[str, Mapping[int, Any]], pair: tuple[str, str]
) -> Iterator[Crossing]:
    first, second = pair
    signs = {}
    for x in sorted(lines[first]):
        sign = _sign(lines[first][x], lines[second].get(x))
        if sign:
            signs[x] = sign
    for low, high in pairwise(signs):
        if signs[low] == signs[high]:
            continue
        place = _first_with(sweep, axis, pair, (low, high), signs[high])
        if place is not None:
            larger, smaller = pair if signs[high] > 0 else (second, first)
            yield Crossing(place, larger, smaller)


def _sign(a: int | None, b: int | None) -> int:
    """Return which number is larger: 1, -1, or 0 for neither."""
    if a is None or b is None or a == b:
        return 0
    return 1 if a > b else -1


def _first_with(
    sweep: Sweep, axis: str, pair: tuple[str, str], between: tuple[int, int], sign: int
) -> int | None:
    """Return the first value after between[0] at which the figures differ in this way; None if a
    value between is not possible.
    """
    low, high = between
    while high - low > 1:
        middle = (low + high) // 2
        try:
            (row,) = sweep.with_values(axis, (middle,))
        except (AttncalcError, ValueError):
            return None
        values = [row[name] for name in pair]
        if None in values:
            return None
        if _sign(*values) == sign:
            high = middle
        else:
            low = middle
    return high
