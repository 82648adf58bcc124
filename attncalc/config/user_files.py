"""The files that a user names: opened without waiting, and standard input, which can be read once."""

import contextlib
import io
import os
import select
import sys
from pathlib import Path
from typing import BinaryIO, TextIO

from ..errors import AttncalcError

_read: list[TextIO] = []
"""The standard input that has been read, if it has."""
_LOOK = 2**16
"""Bytes of a file that are looked at."""
_PATIENCE = 1
"""Seconds to wait for the first bytes of a pipe: nvidia-smi prints after a part of one. An idle pipe costs as much."""


def open_file(path: Path) -> BinaryIO:
    """Return a file to read bytes from. A named pipe that nobody writes to is empty. Raises OSError and ValueError."""
    return open(path, "rb", opener=_without_waiting)


def _without_waiting(path: str, flags: int) -> int:
    # Without O_NONBLOCK, opening a named pipe waits for a writer, perhaps for ever. Reading waits as usual.
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if hasattr(os, "O_NONBLOCK"):
        os.set_blocking(descriptor, True)
    return descriptor


def piped_in(*, is_shared: bool = False) -> bytes:
    """Return the first bytes of standard input, which stay to be read; b"" for a terminal, or if nothing comes.

    `is_shared` is whether a loop may read it too, and then they stay for the loop: where a system cannot do that, b"".
    """
    with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, replaced, or of a system without select
        buffer = sys.stdin.buffer
        is_open = sys.stdin not in _read and not sys.stdin.isatty()
        if is_open and isinstance(buffer, io.BufferedReader) and select.select([buffer], [], [], _PATIENCE)[0]:
            file = buffer.fileno()  # the lines of a file stay for a loop: 'while read gpu; ... done < gpus.txt'
            if buffer.seekable():
                return os.pread(file, _LOOK, os.lseek(file, 0, os.SEEK_CUR))
            return _copied(file) if is_shared else buffer.peek()
    return b""


def _copied(pipe: int) -> bytes:
    """Return the bytes that wait in a pipe, and leave them there. Raises AttributeError if only Linux could do it."""
    import ctypes  # which Pyodide lacks

    copy, end = os.pipe()
    try:
        size = ctypes.CDLL(None).tee(pipe, end, _LOOK, 2)  # SPLICE_F_NONBLOCK
        return os.read(copy, size) if size > 0 else b""
    finally:
        os.close(copy)
        os.close(end)


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
