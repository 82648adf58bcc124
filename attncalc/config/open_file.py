"""Open a file that someone named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO


def open_file(path: Path) -> BinaryIO:
    """Return a file to read bytes from. A named pipe that nobody writes to is empty. Raises OSError and ValueError."""
    return open(path, "rb", opener=_without_waiting)


def _without_waiting(path: str, flags: int) -> int:
    # Without O_NONBLOCK, opening a named pipe waits for a writer, perhaps for ever. Reading waits as usual.
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if hasattr(os, "O_NONBLOCK"):
        os.set_blocking(descriptor, True)
    return descriptor
