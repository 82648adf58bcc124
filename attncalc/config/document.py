"""A model file or GPU file as plain data that remembers its lines, so that an error can point at one."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import AttncalcError
from ..units import truncate

KeyPath = tuple[str | int, ...]
"""Where a value is in a document: ("layer_kinds", "local", "window"), with numbers for items of a list."""


class Document(NamedTuple):
    """The data of one file.

    Attributes:
        file: What errors call the file.
        data: Its keys and values.
        lines: The line of each part, from 1; {} if the file was not YAML.
    """

    file: str
    data: dict[str, Any]
    lines: dict[KeyPath, int]

    def error(self, path: KeyPath, message: str, tip: str) -> AttncalcError:
        """Return an error about the value at `path`: 'file:line: key: message'."""
        line = next((self.lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.lines), 1)
        key = ".".join(str(part) for part in path)
        place = f"{self.file}:{line}: {truncate(key)}" if key else f"{self.file}:{line}"
        return AttncalcError(f"{place}: {message}", tip)
