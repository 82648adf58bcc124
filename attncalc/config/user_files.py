"""The files that a user names: opened without waiting, and standard input, which can be read once."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import BinaryIO, TextIO

from ..errors import AttncalcError

_read: list[TextIO] = []
"""The standard input that has been read, if it has."""


def open_file(path: Path) -> BinaryIO:
    """Return a file to read bytes from. A named pipe that nobody writes to is empty. Raises OSError and ValueError."""
    return open(path, "rb", opener=_without_waiting)


def _without_waiting(path: str, flags: int) -> int:
    # Without O_NONBLOCK, opening a named pipe waits for a writer, perhaps for ever. Reading waits as usual.
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if hasattr(os, "O_NONBLOCK"):
        os.set_blocking(descriptor, True)
    return descriptor


def read_standard_input(limit: int) -> bytes:
    """Return the bytes of standard input, at most `limit`.

    Raises AttncalcError if there is none, or it has been read before: 'compare - -'.
    """
    if sys.stdin is None:
        raise AttncalcError("there is no standard input", "name a file, or write 'attncalc kv - < FILE'")
    if sys.stdin in _read:
        raise AttncalcError("standard input can be read only once, and '-' is given twice", "name a file for the other")
    _read[:] = [sys.stdin]
    return sys.stdin.buffer.read(limit)
