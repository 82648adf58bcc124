"""The files that a user names: opened without waiting, and standard input, which can be read
once.
"""

import os
import sys
from pathlib import Path
from typing import BinaryIO, TextIO

from ..errors import AttncalcError

# The standard input that has been read, if it has.
_read: list[TextIO] = []
# {standard input: its first bytes}, if only these have been read.
_looked_at: dict[TextIO, bytes] = {}
# Bytes of a file that are looked at.
_LOOK = 2**16


def open_file(path: Path) -> BinaryIO:
    """Return a file to read bytes from. A named pipe that nobody writes to is empty. Raises OSError
    and ValueError.
    """
    return open(path, "rb", opener=_without_waiting)


def _without_waiting(path: str, flags: int) -> int:
    # Without O_NONBLOCK, opening a named pipe waits for a writer, perhaps for ever. Reading waits
    # as usual.
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if hasattr(os, "O_NONBLOCK"):
        os.set_blocking(descriptor, True)
    return descriptor


def piped_in() -> bytes:
    """Return the first bytes of standard input, which stay to be read; b"" if it was read, or is a
    terminal.
    """
    if sys.stdin is None or sys.stdin in _read or sys.stdin.isatty():
        return b""
    if sys.stdin not in _looked_at:
        _looked_at.clear()
        _looked_at[sys.stdin] = sys.stdin.buffer.read(_LOOK)
    return _looked_at[sys.stdin]


def read_standard_input(limit: int) -> bytes:
    """Return the bytes of standard input, at most `limit`.

    Raises AttncalcError if there is none, or it has been read before: 'compare - -'.
    """
    if sys.stdin is None:
        raise AttncalcError(
            "there is no standard input", "name a file, or write 'attncalc kv - < FILE'"
        )
    if sys.stdin in _read:
        raise AttncalcError(
            "standard input can be read only once, and '-' is given twice",
            "name a file for the other",
        )
    _read[:] = [sys.stdin]
    first = _looked_at.pop(sys.stdin, b"")
    if len(first) >= limit:
        return first[:limit]
    return first + sys.stdin.buffer.read(limit - len(first))
