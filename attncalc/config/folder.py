"""A folder with a model's files: on disk here, or a repository on the hub (remote.py)."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from ..errors import AttncalcError
from ..units import truncate

# The first bytes of the pointer that git stores instead of a file which git-lfs has not fetched.
POINTER = b"version https://git-lfs"


class ByteSource(Protocol):
    """A file, local or remote, of which ranges of bytes can be read."""

    name: str  # what errors call the file
    # bytes of the whole file; None if they are unknown, and a file that is cut off is not noticed
    size: int | None

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes [start, end), fewer only at the end of the file. Raises AttncalcError if
        it cannot.
        """


class Folder(ABC):
    """The files of one model.

    Attributes:
        max_headers: How many safetensors files may be opened; None if it does not matter.
        is_complete: Whether a file that belongs to the model and is missing is an error.
    """

    max_headers: int | None = None
    is_complete = True

    @abstractmethod
    def names(self) -> frozenset[str]:
        """Return the names of all files in the folder."""

    @abstractmethod
    def label(self, name: str = "") -> str:
        """Return what errors call a file, or the folder itself."""

    @abstractmethod
    def read(self, name: str, limit: int) -> bytes | None:
        """Return a file's content, at most one byte more than `limit`; None if there is no such
        file.

        Raises AttncalcError if it cannot be read.
        """

    @abstractmethod
    def open(self, name: str) -> ByteSource | None:
        """Return a file to read parts of; None if there is no such file. Raises AttncalcError if it
        cannot be read.
        """

    def prepare(self, names: Iterable[str]) -> None:  # noqa: B027
        """Fetch the beginnings of several files that are opened next, all at the same time."""


class LocalFile:
    """A file on disk. See ByteSource."""

    def __init__(self, path: Path) -> None:
        """Raise AttncalcError if there is no such file."""
        self.path = path
        self.name = truncate(path, 200)
        try:
            self.size: int | None = path.stat().st_size
        except (OSError, ValueError) as error:
            raise _unreadable(path, error) from None

    def read(self, start: int, end: int) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                return file.read(end - start)
        except OSError as error:
            raise _unreadable(self.path, error) from None


class LocalFolder(Folder):
    """A folder on disk, whose headers are read quickly; one of huggingface_hub's cache has only the
    files needed.
    """

    def __init__(self, path: Path, *, is_complete: bool = True) -> None:
        self.path = path
        self.is_complete = is_complete

    def names(self) -> frozenset[str]:
        try:
            return frozenset(path.name for path in self.path.iterdir())
        except OSError as error:
            raise _unreadable(self.path, error) from None

    def label(self, name: str = "") -> str:
        return truncate(self.path / name, 200)

    def read(self, name: str, limit: int) -> bytes | None:
        file = self.open(name)
        if file:
            return file.read(0, limit + 1)
        return None

    def open(self, name: str) -> LocalFile | None:
        """Return a file; None if there is none, or only a dead link or a pointer of git-lfs."""
        path = self.path / name
        if not os.path.lexists(path) or (path.is_symlink() and not path.exists()):
            return None
        if path.exists() and not path.is_file() and not path.is_dir():
            raise AttncalcError(f"{truncate(path, 200)}: not a file", "check the path")
        file = LocalFile(path)
        if file.read(0, len(POINTER)) == POINTER:
            return None
        return file


def _unreadable(path: Path, error: OSError | ValueError) -> AttncalcError:
    reason = (getattr(error, "strerror", None) or "cannot be read").lower()
    return AttncalcError(f"{truncate(path, 200)}: {reason}", "check the path")
