"""The text of a config.json -> its fields, with no key twice."""

from __future__ import annotations

import json
from typing import Any

from ...errors import AttncalcError
from ...units import truncate

TIP = "a config.json is one JSON object, as transformers' save_pretrained writes it"


def fields(content: bytes, file: str) -> dict[str, Any]:
    """The fields of a config.json. AttncalcError: not JSON, a key twice, nested too deep."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise AttncalcError(f"{file}: {truncate(twice)}: given twice", "keep one of them")
        return found

    try:
        config = json.loads(content.decode("utf-8-sig"), object_pairs_hook=once)
    except UnicodeDecodeError:
        raise AttncalcError(f"{file}: not a text file", TIP) from None
    except json.JSONDecodeError as error:
        raise AttncalcError(f"{file}:{error.lineno}: not JSON: {error.msg.lower()}", TIP) from None
    except (RecursionError, ValueError):  # brackets by the thousand, a number of as many digits
        raise AttncalcError(f"{file}: JSON that cannot be read", TIP) from None
    found: dict[str, Any] = config
    return found
