"""Binary search over a monotonic predicate."""

from __future__ import annotations

from collections.abc import Callable


def first_true(predicate: Callable[[int], bool], low: int, high: int) -> int:
    """Return the smallest number above `low` for which `predicate` is true.

    `predicate` must be true for `high`, and for every number above one for which it is true.
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if predicate(middle) else (middle, high)
    return high
