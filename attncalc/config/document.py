"""A model file or GPU file as plain data that remembers its lines, so that an error can point at one."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, NamedTuple

from ..errors import AttncalcError
from ..units import truncate
from .origins import Origins, origin_of, with_origins

KeyPath = tuple[str | int, ...]
"""Where a value is in a document: ("layer_kinds", "local", "window"), with numbers for items of a list."""


class Document(NamedTuple):
    """The data of one file.

    Attributes:
        file: What errors call the file.
        data: Its keys and values.
        lines: The line of each part, from 1; {} if the file was not YAML.
        origins: What the keys are called in the user's file, if the data were converted from another format.
    """

    file: str
    data: dict[str, Any]
    lines: dict[KeyPath, int]
    origins: Origins = MappingProxyType({})

    def error(self, path: KeyPath, message: str, tip: str) -> AttncalcError:
        """Return an error about the value at `path`: 'file:line: key: message', with the names of the user's file."""
        message, tip = with_origins(message, self.origins), with_origins(tip, self.origins)
        line = next((self.lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.lines), 1)
        key = truncate(".".join(str(part) for part in path))
        if names := [str(part) for part in path if part in self.origins]:
            key = origin_of(names[-1], str(self._at(path)), self.origins)
        place = f"{self.file}:{line}: {key}" if key else f"{self.file}:{line}"
        return AttncalcError(f"{place}: {message}", tip)

    def _at(self, path: KeyPath) -> Any:
        """Return the value at a path; None if there is none."""
        value: Any = self.data
        for part in path:
            has_part = isinstance(value, list | dict) and (part in value if isinstance(value, dict) else True)
            value = value[part] if has_part else None
        return value
