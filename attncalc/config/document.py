"""A model file or GPU file as plain data that remembers its lines, so that an error can point at
one.

A file that was converted remembers what its keys are called in the user's own file instead.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ..errors import AttncalcError
from ..records import NamedTuple
from ..units import truncate

# Where a value is in a document: ("layer_kinds", "local", "window"), with numbers for items of a
# list.
KeyPath = tuple[str | int, ...]
# {key of a model file: {a value that it has, as text: what it is called in the user's file}}.
Origins = Mapping[str, Mapping[str, str]]


class Document(NamedTuple):
    """The data of one file."""

    file: str  # what errors call the file
    data: dict[str, Any]  # its keys and values
    lines: dict[KeyPath, int]  # the line of each part, from 1; {} if the file was not YAML
    # What the keys are called in the user's file, if the data were converted from another format
    origins: Origins = MappingProxyType({})

    def error(self, path: KeyPath, message: str, tip: str) -> AttncalcError:
        """Return an error about the value at `path`: 'file:line: key: message', with the names of
        the user's file.
        """
        message = _with_origins(message, self.origins)
        tip = _with_origins(tip, self.origins)
        line = next(
            (self.lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.lines), 1
        )
        key = truncate(".".join(str(part) for part in path))
        names = [str(part) for part in path if part in self.origins]
        if names:
            value: Any = self.data
            for part in path:
                has_part = isinstance(value, list) or (isinstance(value, dict) and part in value)
                value = value[part] if has_part else None
            key = _origin_of(names[-1], str(value), self.origins)
        place = f"{self.file}:{line}: {key}" if key else f"{self.file}:{line}"
        return AttncalcError(f"{place}: {message}", tip)


def origin(key: str, names: Iterable[str], *, is_equal: bool) -> str:
    """Return what a key is called in the user's file: 'n_embd', or 'd_head (from n_embd and
    n_head)'.

    `names` are the fields of the user's file that its value was computed from, or has (`is_equal`).
    """
    listed = list(dict.fromkeys(names))
    if len(listed) == 1 and is_equal:
        return listed[0]
    if listed:
        return f"{key} (from {' and '.join(listed)})"
    return key


def _with_origins(text: str, origins: Origins) -> str:
    """Return a text with the names of the user's file in place of the keys of a model file.

    'd_ff 0' becomes 'intermediate_size 0'. A key that is a word of English too, as window, is left.
    """
    keys = sorted((key for key in origins if "_" in key), key=len, reverse=True)
    if not keys:
        return text
    pattern = rf"(?<![\w.-])({'|'.join(map(re.escape, keys))})(?![\w(])((?: is|:)? '?-?[0-9]+|)"
    return re.sub(
        pattern,
        lambda found: _origin_of(found[1], re.sub(r"[^0-9-]", "", found[2]), origins) + found[2],
        text,
    )


def _origin_of(key: str, value: str, origins: Origins) -> str:
    """Return what a key with a value is called in the user's file; the key itself if the file has
    nothing for it.

    A value that changed after it was read is not the field's: 'max_context (from
    max_position_embeddings)'.
    """
    named = origins.get(key, {})
    names = " or ".join(dict.fromkeys(named.values()))
    if value in named or not names:
        return named.get(value, key)
    if "" in (*named, value) or "(" in names:
        return names
    return f"{key} (from {names})"


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a text with other names of fields: {'hidden_size': 'dim'}."""
    return _with_origins(
        text, {name: {"": other} for name, other in names.items() if name != other}
    )
