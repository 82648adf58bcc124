"""JSON text -> the object in it, with no key given twice."""

import json
import math
from typing import Any

from ..errors import AttncalcError
from ..units import truncate

# The largest number that is read as it is. A larger one is read as infinite, like JSON's own
# Infinity.
#
# A config with `1e308` or a number of 400 digits is damaged or hostile. Every reader already asks
# whether a number is finite, but a product of such numbers overflows, and so does an int of 400
# digits as a float.
LARGEST = 1e100
# Commas and opening brackets of a text, so at most as many values.
#
# Bytes alone do not bound the memory: reading `[{"":{}},{"":{}},...` takes 32 times its bytes, a
# real header of safetensors 7 times, an index 5.4 times. This many values take at most 130 MiB. The
# index of Kimi-K2.5 in NVFP4, the largest text of a release known, has 280,000.
MAX_VALUES = 1_000_000


def whole_number(digits: str) -> int | float:
    """Return the integer, or infinity beyond LARGEST."""
    if len(digits) <= 100:
        return int(digits)
    if digits.startswith("-"):
        return -math.inf
    return math.inf


def decimal_number(text: str) -> float:
    """Return the number, or infinity beyond LARGEST."""
    number = float(text)
    if abs(number) <= LARGEST:
        return number
    return math.copysign(math.inf, number)


def parse_object(content: bytes, file: str, tip: str) -> dict[str, Any]:
    """Return the JSON object in `content`.

    `tip` is what to do if the text is not a JSON object. Raises AttncalcError if it is not one,
    gives a key twice, has more than MAX_VALUES values, or is too deep for Python's parser.
    """

    def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        data = dict(pairs)
        if len(data) < len(pairs):
            from collections import Counter

            duplicate, _ = Counter(key for key, _ in pairs).most_common(1)[0]
            raise AttncalcError(
                f"{file}: {truncate(duplicate)}: given twice", "keep one of the two"
            )
        return data

    if sum(map(content.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise AttncalcError(
            f"{file}: JSON with more than {MAX_VALUES:,} values",
            "no known model needs as many; check the file",
        )
    try:
        data = json.loads(
            content.decode("utf-8-sig"),
            object_pairs_hook=without_duplicates,
            parse_int=whole_number,
            parse_float=decimal_number,
        )
    except UnicodeDecodeError:
        raise AttncalcError(f"{file}: not a text file", tip) from None
    except json.JSONDecodeError as error:
        raise AttncalcError(f"{file}:{error.lineno}: not JSON: {error.msg.lower()}", tip) from None
    except (RecursionError, ValueError):  # thousands of nested brackets
        raise AttncalcError(f"{file}: JSON that cannot be read", tip) from None
    if not isinstance(data, dict):
        raise AttncalcError(f"{file}: not a JSON object", tip)
    return data
