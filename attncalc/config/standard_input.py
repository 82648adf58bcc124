"""Standard input, which a model ('-') or a log (--log -) may come from, once."""

from __future__ import annotations

import sys
from typing import TextIO

from ..errors import AttncalcError

_read: list[TextIO] = []
"""The standard input that has been read, if it has."""


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
