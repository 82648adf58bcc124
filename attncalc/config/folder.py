"""A folder with a model's files: on disk here, or a repository on the hub (remote.py)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from ..errors import AttncalcError
from ..units import truncate

POINTER = b"version https://git-lfs"
"""The first bytes of the pointer that git stores instead of a file which git-lfs has not fetched."""


class ByteSource(Protocol):
    """One file, of which only parts are read."""

    @property
    def name(self) -> str:
        """Return what errors call the file."""

    @property
    def size(self) -> int | None:
        """Return the bytes of the whole file; None if they are unknown."""

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes [start, end), fewer only at the end of the file. Raises AttncalcError if it cannot."""


class Folder(Protocol):
    """The files of one model."""

    @property
    def max_headers(self) -> int | None:
        """Return how many safetensors files may be opened; None if it does not matter."""

    @property
    def is_complete(self) -> bool:
        """Return whether a file that belongs to the model and is missing is an error."""

    def names(self) -> frozenset[str]:
        """Return the names of all files in the folder."""

    def label(self, name: str = "") -> str:
        """Return what errors call a file, or the folder itself."""

    def read(self, name: str, limit: int) -> bytes | None:
        """Return a file's content, at most one byte more than `limit`; None if there is no such file.

        Raises AttncalcError if it cannot be read.
        """

    def open(self, name: str) -> ByteSource | None:
        """Return a file to read parts of; None if there is no such file. Raises AttncalcError if it cannot be read."""

    def prepare(self, names: Iterable[str]) -> None:
        """Fetch the beginnings of several files that are opened next, all at the same time."""


class LocalFile(NamedTuple):
    """A file on disk.

    Attributes:
        path: Its path.
        size: Its bytes.
    """

    path: Path
    size: int

    @property
    def name(self) -> str:
        return truncate(self.path, 200)

    def read(self, start: int, end: int) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                return file.read(end - start)
        except OSError as error:
            raise _unreadable(self.path, error) from None


class LocalFolder(NamedTuple):
    """A folder on disk.

    Attributes:
        path: Its path.
        is_complete: False for a folder of huggingface_hub's cache, which has only the files that were needed.
        max_headers: None: headers on disk are read quickly.
    """

    path: Path
    is_complete: bool = True
    max_headers: int | None = None

    def names(self) -> frozenset[str]:
        try:
            return frozenset(path.name for path in self.path.iterdir())
        except OSError as error:
            raise _unreadable(self.path, error) from None

    def label(self, name: str = "") -> str:
        return truncate(self.path / name, 200)

    def read(self, name: str, limit: int) -> bytes | None:
        file = self.open(name)
        return file.read(0, limit + 1) if file else None

    def open(self, name: str) -> LocalFile | None:
        """Return a file; None if there is none, or only a dead link or a pointer of git-lfs."""
        path = self.path / name
        try:
            file = LocalFile(path, path.stat().st_size)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(path, error) from None
        if not path.is_file() and not path.is_dir():
            raise AttncalcError(f"{truncate(path, 200)}: not a file", "check the path")
        return None if file.read(0, len(POINTER)) == POINTER else file

    def prepare(self, names: Iterable[str]) -> None:
        pass


def _unreadable(path: Path, error: OSError) -> AttncalcError:
    return AttncalcError(f"{truncate(path, 200)}: {(error.strerror or 'cannot be read').lower()}", "check the path")
