"""The values of an axis: one value, a list, or a text with a list: '8K,32K' and '1K:128K:x2'."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..errors import AttncalcError
from ..ranges import parse_counts
from ..units import count, truncate

MAX_VALUES = 100_000
"""The most values of an axis."""

Parse = Callable[[str, str], Any]
"""A function that parses the text of one value; the second argument names the option for errors."""


def read_values(given: Any, option: str, parse: Parse, *, is_number: bool) -> Sequence[Any]:
    """Return the values of an axis, each once.

    Args:
        given: A value, a text with a list of values, or a list of such. A list of numbers may have ranges: '8:64:8' is
            8, 16, ..., 64 and '1K:128K:x2' is 1K, 2K, ..., 128K.
        option: The option that errors name.
        parse: Parses the text of one value.
        is_number: Whether the values are numbers.

    Raises AttncalcError if a value is not valid, or there are none or too many.
    """
    is_list = isinstance(given, Iterable) and not isinstance(given, str | Mapping | os.PathLike)
    values: list[Any] = []
    for part in given if is_list else [given]:
        if is_number:
            values += parse_counts(str(part), option, limit=MAX_VALUES, parse=parse)
        elif isinstance(part, str):
            values += [parse(_given(text, part, option), option) for text in part.split(",")]
        else:
            values.append(part)
        if len(values) > MAX_VALUES:
            raise AttncalcError(f"{option} has more than {count(MAX_VALUES)} values", "give fewer, or larger steps")
    if not values:
        raise AttncalcError(f"{option} has no values", f"give at least one, or leave {option} out")
    return list(dict.fromkeys(values)) if all(isinstance(value, str | int) for value in values) else values


def _given(text: str, part: str, option: str) -> str:
    if not text.strip():
        raise AttncalcError(f"{option}: '{truncate(part)}' has an empty value", "separate values by one comma: a,b")
    return text.strip()
