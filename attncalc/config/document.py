"""A model file as plain data that remembers its lines, so that an error can point at one."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import AttncalcError
from ..units import truncate

Path = tuple[str | int, ...]


class Document(NamedTuple):
    """The data of one file, and the line each part stands on."""

    file: str
    data: dict[str, Any]
    lines: dict[Path, int]

    def error(self, path: Path, message: str, tip: str) -> AttncalcError:
        """An error at `path`: 'file:line: key: message'."""
        line = next((self.lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.lines), 1)
        key = ".".join(str(part) for part in path)
        where = f"{self.file}:{line}: {truncate(key)}" if key else f"{self.file}:{line}"
        return AttncalcError(f"{where}: {message}", tip)
