"""JSON text -> the object in it, with no key given twice."""

from __future__ import annotations

import json
from typing import Any

from ..errors import AttncalcError
from ..units import truncate


def parse_object(content: bytes, file: str, tip: str) -> dict[str, Any]:
    """Return the JSON object in `content`.

    Args:
        content: UTF-8 text, with or without a byte order mark.
        file: What errors call the file.
        tip: What to do if the text is not a JSON object.

    Raises AttncalcError if it is not one, gives a key twice, or is too deep or too long for Python's parser.
    """

    def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        data = dict(pairs)
        if len(data) < len(pairs):
            from collections import Counter

            duplicate, _ = Counter(key for key, _ in pairs).most_common(1)[0]
            raise AttncalcError(f"{file}: {truncate(duplicate)}: given twice", "keep one of the two")
        return data

    try:
        data = json.loads(content.decode("utf-8-sig"), object_pairs_hook=without_duplicates)
    except UnicodeDecodeError:
        raise AttncalcError(f"{file}: not a text file", tip) from None
    except json.JSONDecodeError as error:
        raise AttncalcError(f"{file}:{error.lineno}: not JSON: {error.msg.lower()}", tip) from None
    except (RecursionError, ValueError):  # thousands of nested brackets, or a number of thousands of digits
        raise AttncalcError(f"{file}: JSON that cannot be read", tip) from None
    if not isinstance(data, dict):
        raise AttncalcError(f"{file}: not a JSON object", tip)
    return data
