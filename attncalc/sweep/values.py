"""The values of an axis: lists and ranges, as '8K,32K' and '1K:128K:x2'."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import AttncalcError
from ..units import count, parse_count, truncate

MAX_CELLS = 10_000_000
"""The most cells of a sweep, and so the most values of an axis."""

Parse = Callable[[str, str], Any]
"""A function that parses the text of one value; the second argument names the option for errors."""


def read_values(given: Any, option: str, parse: Parse, *, is_number: bool) -> Sequence[Any]:
    """Return the values of an axis.

    Args:
        given: A value, a text with a list of values ('8K,32K'), or a list of such. A number may be a range: '8:64:8'
            is 8, 16, ..., 64 and '1K:128K:x2' is 1K, 2K, ..., 128K.
        option: The option that errors name.
        parse: Parses the text of one value.
        is_number: Whether the values are numbers, so that a colon makes a range.

    A value that is given twice, as by two ranges, counts once. Raises AttncalcError if a value is not valid, or there
    are none or too many.
    """
    parts = list(_parts(given, option))
    if is_number and len(parts) == 1 and isinstance(parts[0], str) and ":" in parts[0]:
        return _range(parts[0], option, parse)
    values: list[Any] = []
    for part in parts:
        if is_number and isinstance(part, str) and ":" in part:
            values += _range(part, option, parse)
        elif is_number or isinstance(part, str):
            values.append(parse(str(part), option))
        else:
            values.append(part)
        if len(values) > MAX_CELLS:
            raise _too_many(option)
    if not values:
        raise AttncalcError(f"{option} has no values", f"give at least one, or leave {option} out")
    return values if any(not isinstance(value, str | int) for value in values) else list(dict.fromkeys(values))


def _parts(given: Any, option: str) -> Iterator[Any]:
    """Yield each value as it was given; a text is split at its commas."""
    if isinstance(given, str):
        for i, part in enumerate(given.split(",")):
            if not part.strip():
                raise AttncalcError(f"{option}: '{truncate(given)}' has an empty value", "write 8K,32K")
            if i and len(part) == 3 and part.isdigit() and part.startswith("0"):
                raise AttncalcError(
                    f"{option}: '{truncate(given)}': a comma separates two values", "write 131072 or 131_072"
                )
            yield part.strip()
    elif isinstance(given, Iterable) and not isinstance(given, Mapping | os.PathLike):
        for value in given:
            yield from _parts(value, option)
    else:
        yield given


def _range(text: str, option: str, parse: Parse) -> Sequence[int]:
    """Return the numbers of 'A:B:STEP' or 'A:B:xF', A and B included where the steps reach B."""
    parts = text.split(":")
    if len(parts) != 3:
        raise AttncalcError(
            f"{option}: '{truncate(text)}' is not a range", "write 8:64:8 (steps of 8) or 1K:128K:x2 (doubling)"
        )
    first, last = (parse(part.strip(), option) for part in parts[:2])
    if first > last:
        raise AttncalcError(f"{option}: '{truncate(text)}' begins above its end", "write the smaller number first")
    step = parts[2].strip()
    if not step.startswith("x"):
        numbers = range(first, last + 1, parse_count(step, option))
        if (last - first) // numbers.step >= MAX_CELLS:
            raise _too_many(option)
        return numbers
    factor = parse_count(step[1:], option)
    if factor < 2 or first < 1:
        raise AttncalcError(f"{option}: '{truncate(text)}' does not grow", "write a factor of 2 or more: 1K:128K:x2")
    powers = [first]
    while powers[-1] * factor <= last:
        powers.append(powers[-1] * factor)
    return powers


def _too_many(option: str) -> AttncalcError:
    return AttncalcError(f"{option} has more than {count(MAX_CELLS)} values", "give fewer, or larger steps")
