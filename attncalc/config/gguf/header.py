"""The header of a GGUF file: its keys, and the name, shape, type and place of every tensor.

A file has the magic 'GGUF', a version, the number of tensors and of keys, the keys, the list of
tensors, and then the data of the tensors, each aligned to `general.alignment` bytes. Numbers are
little-endian.

Source: docs/gguf.md in ggml's repository and ggml/src/gguf.cpp of llama.cpp, whose rules are
applied: versions 2 and 3, keys and tensors given once, at most 4 dimensions, tensors one after the
other without gaps but those of alignment.
"""

import math
import struct
from collections.abc import Sequence
from typing import Any

from ...errors import AttncalcError
from ...ggml import GGML_TYPES, GgmlType
from ...model import MAX_LAYERS
from ...records import NamedTuple
from ...units import count, truncate
from ..folder import ByteSource

_MAGIC = b"GGUF"
# Bytes of the first read. Each later one reads as many as all before it: 1, 1, 2, 4, 8 MiB and so
# on.
FIRST_READ = 1 << 20
# Bytes that the headers of a model may have. Those with the longest vocabularies, as Gemma 4's with
# 262,144 tokens and 515,000 merges, have about 16 MiB. Reading takes 1.2 times the bytes of memory,
# of numbers 2.5 times.
LIMIT = 32 << 20
# Tensors and keys that a model may have: those of today have at most some thousands and a hundred.
MAX_TENSORS = 100_000
MAX_KEYS = 1_000
# Texts of an array: the longest vocabulary has 262,144, and twice as many merges.
MAX_TEXTS = 1 << 21
# Numbers of an array that are returned, of up to 40 bytes each: one per layer. Of longer arrays,
# and of strings, only the length is.
MAX_ARRAY = MAX_LAYERS
# Bytes of a tensor's name (GGML_MAX_NAME - 1), of a key, and of a text that is returned.
_MAX_NAME = 63
_MAX_KEY = 65_535
_MAX_STRING = 1 << 12
_MAX_DIMENSIONS = 4
_SCALARS = {number: struct.Struct(f"<{code}") for number, code in enumerate("BbHhIif?")} | {
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_STRING = 8
_ARRAY = 9
_U32, _U64, _U32_U64, _U64_U64 = map(struct.Struct, ("<I", "<Q", "<IQ", "<QQ"))


class ArrayLength(NamedTuple):
    """An array of which only the number of its elements was read: strings, or more than MAX_ARRAY
    numbers.
    """

    length: int


class GgufTensor(NamedTuple):
    name: str  # 'blk.0.attn_q.weight'
    # its dimensions, the fastest first: a matrix has its inputs first, then its outputs
    shape: tuple[int, ...]
    type: GgmlType
    offset: int  # its first byte, counted from the end of the header

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        return self.type.tensor_bytes(self.shape)


class GgufHeader(NamedTuple):
    file: str  # what errors call the file
    version: int
    metadata: dict[str, Any]  # its keys: numbers, texts, lists of numbers, or an ArrayLength
    tensors: tuple[GgufTensor, ...]  # its tensors, in the file's order
    data_start: int  # the byte at which the data of the tensors starts


def read_headers(sources: Sequence[ByteSource]) -> list[GgufHeader]:
    """Return the headers of a model's files, the keys only of the first. The limits of one file are
    those of all.

    Raises AttncalcError as `read_header` does.
    """
    headers: list[GgufHeader] = []
    limit = LIMIT
    tensors = MAX_TENSORS
    for source in sources:
        header = read_header(source, limit, tensors)
        limit -= header.data_start
        tensors -= len(header.tensors)
        headers.append(header._replace(metadata={}) if headers else header)
    return headers


def read_header(
    source: ByteSource, limit: int = LIMIT, max_tensors: int = MAX_TENSORS
) -> GgufHeader:
    """Return the header of a file. Raises AttncalcError, with the file's name, if it is not
    valid.
    """
    cursor = Cursor(source, limit)
    version = _version(cursor)
    n_tensors, n_keys = cursor.unpack(_U64_U64)
    if n_tensors > max_tensors:
        raise cursor.broken(f"{count(n_tensors)} tensors, more than {count(max_tensors)}")
    if n_keys > MAX_KEYS:
        raise cursor.broken(f"{count(n_keys)} keys, more than {count(MAX_KEYS)}")
    metadata: dict[str, Any] = {}
    for _ in range(n_keys):
        key = _text(cursor, _MAX_KEY, "a key")
        if key in metadata:
            raise cursor.broken(f"the key {truncate(key, 80)} is given twice")
        metadata[key] = _value(cursor, key)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 1 <= alignment <= 1 << 20 or alignment & (alignment - 1):
        raise cursor.broken(f"general.alignment is {truncate(alignment)}, and not a power of two")
    tensors = _tensors(cursor, n_tensors, alignment)
    data_start = _aligned(cursor.position, alignment)
    if source.size is not None and tensors:
        end = data_start + max(tensor.offset + tensor.size for tensor in tensors)
        if source.size < end:
            raise cursor.broken(
                f"{count(end - source.size)} bytes shorter than its header describes"
            )
    return GgufHeader(source.name, version, metadata, tensors, data_start)


class Cursor:
    """A position in the header of a file. Bytes are read as they are needed, at most `limit` of
    them.
    """

    def __init__(self, source: ByteSource, limit: int = LIMIT) -> None:
        self.source = source
        self.limit = limit
        self.position = 0  # the byte that is read next
        self._buffer = bytearray()

    def broken(self, problem: str) -> AttncalcError:
        return AttncalcError(
            f"{self.source.name}: {problem}", "fetch the file again, or convert the model again"
        )

    def take(self, length: int) -> int:
        """Move over `length` bytes and return where they start in `buffer`. Raises AttncalcError if
        they are not there.

        A length from the file is compared with the limits before anything is read.
        """
        start = self.position
        end = self.position + length
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
                raise self.broken(
                    "the file ends in its header: it is incomplete, or not a GGUF file"
                )

    def skip_texts(self, number: int) -> None:
        """Move over `number` texts, each after its length: a vocabulary has hundreds of
        thousands.
        """
        position = self.position
        known = len(self._buffer)
        length_at = _U64.unpack_from
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
        start = self.take(length)
        return bytes(self._buffer[start : start + length])


def _version(cursor: Cursor) -> int:
    if cursor.content(4) != _MAGIC:
        raise cursor.broken("not a GGUF file: it does not start with 'GGUF'")
    version = int(cursor.unpack(_U32)[0])
    if version in (2, 3):
        return version
    if version == 1:
        raise cursor.broken("version 1 of GGUF, which llama.cpp reads no longer")
    if version and not version & 0xFFFF:
        raise cursor.broken("a big-endian file, which llama.cpp reads on big-endian machines only")
    raise cursor.broken(f"version {count(version)} of GGUF is not known; known: 2 and 3")


def _text(cursor: Cursor, limit: int, what: str) -> str:
    length = cursor.unpack(_U64)[0]
    if not 1 <= length <= limit:
        raise cursor.broken(f"{what} of {count(length)} bytes")
    return cursor.content(length).decode("utf-8", "replace")


def _value(cursor: Cursor, key: str) -> Any:
    kind = cursor.unpack(_U32)[0]
    if kind == _ARRAY:
        return _array(cursor, key)
    if kind == _STRING:
        length = cursor.unpack(_U64)[0]
        # a chat template has some thousands; of a longer text nothing is used
        if length > _MAX_STRING:
            cursor.take(length)
            return ""
        return cursor.content(length).decode("utf-8", "replace")
    if kind not in _SCALARS:
        raise cursor.broken(f"the key {truncate(key, 80)} has the unknown type {count(kind)}")
    return cursor.unpack(_SCALARS[kind])[0]


def _array(cursor: Cursor, key: str) -> list[Any] | ArrayLength:
    """Return the numbers of an array, or its length. Raises AttncalcError for an array of
    arrays.
    """
    kind, length = cursor.unpack(_U32_U64)
    if kind == _STRING:
        if length > MAX_TEXTS:
            raise cursor.broken(
                f"the key {truncate(key, 80)} has {count(length)} texts, more than "
                f"{count(MAX_TEXTS)}"
            )
        cursor.skip_texts(length)
        return ArrayLength(length)
    if kind not in _SCALARS:
        if kind == _ARRAY:
            what = "an array of arrays"
        else:
            what = f"an array of the unknown type {count(kind)}"
        raise cursor.broken(f"the key {truncate(key, 80)} has {what}")
    form = _SCALARS[kind]
    if length > MAX_ARRAY:
        cursor.take(length * form.size)
        return ArrayLength(length)
    return [form.unpack(cursor.content(form.size))[0] for _ in range(length)]


def _tensors(cursor: Cursor, n_tensors: int, alignment: int) -> tuple[GgufTensor, ...]:
    tensors: list[GgufTensor] = []
    names: set[str] = set()
    expected = 0
    for _ in range(n_tensors):
        name = _text(cursor, _MAX_NAME, "the name of a tensor")
        if name in names:
            raise cursor.broken(f"the tensor {truncate(name, 80)} is given twice")
        names.add(name)
        tensor = _tensor(cursor, name)
        if tensor.offset != expected:
            raise cursor.broken(
                f"the tensor {truncate(name, 80)} starts at byte {count(tensor.offset)} of the "
                f"data, and not where the one before it ends, at {count(expected)}"
            )
        expected = _aligned(tensor.offset + tensor.size, alignment)
        tensors.append(tensor)
    return tuple(tensors)


def _tensor(cursor: Cursor, name: str) -> GgufTensor:
    label = f"the tensor {truncate(name, 80)}"
    n_dimensions = cursor.unpack(_U32)[0]
    if n_dimensions > _MAX_DIMENSIONS:
        raise cursor.broken(
            f"{label} has {count(n_dimensions)} dimensions; at most {_MAX_DIMENSIONS} are allowed"
        )
    shape = tuple(cursor.unpack(_U64)[0] for _ in range(n_dimensions))
    number, offset = cursor.unpack(_U32_U64)
    if 0 in shape or math.prod(shape) >= 2**63:
        raise cursor.broken(f"{label} has the shape {truncate(list(shape), 80)}")
    if number not in GGML_TYPES:
        raise cursor.broken(f"{label} has the type {count(number)}, which ggml does not have")
    ggml_type = GGML_TYPES[number]
    if (shape[0] if shape else 1) % ggml_type.block:
        raise cursor.broken(
            f"{label} has rows of {count(shape[0] if shape else 1)} elements, which "
            f"{ggml_type.name} cannot store in blocks of {ggml_type.block}"
        )
    return GgufTensor(name, shape, ggml_type, offset)


def _aligned(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment
