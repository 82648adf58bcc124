"""What the keys of a model file are called in the user's own file, for errors about a file that was converted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

Origins = Mapping[str, Mapping[str, str]]
"""{key of a model file: {a value that it has, as text: what it is called in the user's file}}."""


def origin(key: str, names: Iterable[str], *, is_equal: bool) -> str:
    """Return what a key is called in the user's file: 'n_embd', or 'd_head (from n_embd and n_head)'.

    Args:
        key: The key of a model file.
        names: The fields of the user's file that its value was computed from.
        is_equal: Whether the value is that of the field.
    """
    listed = list(dict.fromkeys(names))
    if len(listed) == 1 and is_equal:
        return listed[0]
    return f"{key} (from {' and '.join(listed)})" if listed else key


def with_origins(text: str, origins: Origins) -> str:
    """Return a text with the names of the user's file in place of the keys of a model file.

    'd_ff 0' becomes 'intermediate_size 0'. A key that is a word of English too, as window, is left.
    """
    keys = sorted((key for key in origins if "_" in key), key=len, reverse=True)
    if not keys:
        return text
    pattern = rf"(?<![\w.-])({'|'.join(map(re.escape, keys))})(?![\w(])(?P<value>(?: is|:)? '?-?[0-9]+)?"
    return re.sub(pattern, lambda found: _replaced(found, origins), text)


def _replaced(found: re.Match[str], origins: Origins) -> str:
    after = found["value"] or ""
    return origin_of(found[1], re.sub(r"[^0-9-]", "", after), origins) + after


def origin_of(key: str, value: str, origins: Origins) -> str:
    """Return what a key with a value is called in the user's file; the key itself if the file has nothing for it.

    A value that changed after it was read is not the field's: 'max_context (from max_position_embeddings)'.
    """
    named = origins.get(key, {})
    names = " or ".join(dict.fromkeys(named.values()))
    if value in named or not names:
        return named.get(value, key)
    return names if "" in (*named, value) or "(" in names else f"{key} (from {names})"


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a text with other names of fields: {'hidden_size': 'dim'}."""
    return with_origins(text, {name: {"": other} for name, other in names.items() if name != other})
