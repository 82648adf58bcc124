"""Where the bytes of a GGUF file come from, and a cursor over its header that reads no more of them than it needs."""

from __future__ import annotations

import struct
from typing import Any

from ...errors import AttncalcError
from ...units import count
from ..folder import ByteSource

FIRST_READ = 1 << 20
"""Bytes of the first read. Each later one reads as many as all before it: 1, 1, 2, 4, 8 MiB and so on."""
LIMIT = 32 << 20
"""Bytes that the headers of a model may have. Those with the longest vocabularies, as Gemma 4's with 262,144 tokens and
515,000 merges, have about 16 MiB. Reading takes 1.2 times the bytes of memory, of numbers 2.5 times."""

_LENGTH = struct.Struct("<Q")


class Cursor:
    """A position in the header of a file. Bytes are read as they are needed, at most `limit` of them.

    Attributes:
        source: The file.
        limit: The bytes that may be read.
        position: The byte that is read next.
    """

    def __init__(self, source: ByteSource, limit: int = LIMIT) -> None:
        self.source, self.limit, self.position = source, limit, 0
        self._buffer = bytearray()

    def broken(self, problem: str) -> AttncalcError:
        """Return an error about the file."""
        return AttncalcError(f"{self.source.name}: {problem}", "fetch the file again, or convert the model again")

    def take(self, length: int) -> int:
        """Move over `length` bytes and return where they start in `buffer`. Raises AttncalcError if they are not there.

        A length from the file is compared with the limits before anything is read.
        """
        start, end = self.position, self.position + length
        if end > len(self._buffer):
            self._fill(end)
        self.position = end
        return start

    def _fill(self, end: int) -> None:
        size = self.source.size
        if size is not None and end > size:
            raise self.broken("the file ends in its header: it is incomplete, or not a GGUF file")
        if end > self.limit:
            raise self.broken(f"a header of more than {count(self.limit)} bytes")
        while len(self._buffer) < end:
            start = len(self._buffer)
            stop = min(max(start + max(start, FIRST_READ), end), self.limit)
            content = self.source.read(start, stop)
            self._buffer += content[: stop - start]
            if start + len(content) < end:
                raise self.broken("the file ends in its header: it is incomplete, or not a GGUF file")

    def skip_texts(self, number: int) -> None:
        """Move over `number` texts, each after its length: a vocabulary has hundreds of thousands."""
        position, known, length_at = self.position, len(self._buffer), _LENGTH.unpack_from
        for _ in range(number):
            if position + 8 > known:
                self.position = position
                self.take(8)
                known = len(self._buffer)
            position += 8 + length_at(self._buffer, position)[0]
            if position > known:
                self.position = known
                self.take(position - known)
                known = len(self._buffer)
        self.position = position

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        """Return the numbers of that format at the position."""
        return form.unpack_from(self._buffer, self.take(form.size))

    def content(self, length: int) -> bytes:
        """Return `length` bytes."""
        start = self.take(length)
        return bytes(self._buffer[start : start + length])
