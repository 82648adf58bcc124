"""Where a condition that holds from some number on begins to."""

from __future__ import annotations

from collections.abc import Callable


def first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The least number above `low` that holds, where `high` does and numbers hold from one on."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
