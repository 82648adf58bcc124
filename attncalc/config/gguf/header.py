"""The header of a GGUF file: its keys, and the name, shape, type and place of every tensor.

A file has the magic 'GGUF', a version, the number of tensors and of keys, the keys, the list of tensors, and then the
data of the tensors, each aligned to `general.alignment` bytes. Numbers are little-endian.

Source: docs/gguf.md in ggml's repository and ggml/src/gguf.cpp of llama.cpp, whose rules are applied: versions 2 and 3,
keys and tensors given once, at most 4 dimensions, tensors one after the other without gaps but those of alignment.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...ggml import GGML_TYPES, GgmlType
from ...units import count, truncate
from ..folder import ByteSource
from ..keys import MAX_LAYERS
from .source import LIMIT, Cursor

MAGIC = b"GGUF"
MAX_TENSORS, MAX_KEYS = 100_000, 1_000
"""Tensors and keys that a model may have: those of today have at most some thousands and a hundred."""
MAX_TEXTS = 1 << 21
"""Texts of an array: the longest vocabulary has 262,144, and twice as many merges."""
MAX_ARRAY = MAX_LAYERS
"""Numbers of an array that are returned, of up to 40 bytes each: one per layer. Of longer arrays, and of strings, only
the length is."""
_MAX_NAME, _MAX_KEY, _MAX_STRING = 63, 65_535, 1 << 12
"""Bytes of a tensor's name (GGML_MAX_NAME - 1), of a key, and of a text that is returned."""
_MAX_DIMENSIONS = 4
_SCALARS = {number: struct.Struct(f"<{code}") for number, code in enumerate("BbHhIif?")} | {
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_STRING, _ARRAY = 8, 9
_U32, _U64, _COUNTS = struct.Struct("<I"), struct.Struct("<Q"), struct.Struct("<QQ")
_ARRAY_HEAD = struct.Struct("<IQ")


class ArrayLength(NamedTuple):
    """An array of which only the length was read: strings, or more than MAX_ARRAY numbers.

    Attributes:
        length: its elements.
    """

    length: int


class GgufTensor(NamedTuple):
    """A tensor of a file.

    Attributes:
        name: its name: 'blk.0.attn_q.weight'.
        shape: its dimensions, the fastest first: a matrix has its inputs first, then its outputs.
        type: its type.
        offset: its first byte, counted from the end of the header.
        file: the number of the file that has it, from 0.
    """

    name: str
    shape: tuple[int, ...]
    type: GgmlType
    offset: int
    file: int = 0

    @property
    def elements(self) -> int:
        """Its elements."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.type.tensor_bytes(self.shape)


class GgufHeader(NamedTuple):
    """The header of one file.

    Attributes:
        file: what errors call the file.
        version: the version of the format.
        metadata: its keys: numbers, texts, lists of numbers, or an ArrayLength.
        tensors: its tensors, in the file's order.
        data_start: the byte at which the data of the tensors starts.
    """

    file: str
    version: int
    metadata: dict[str, Any]
    tensors: tuple[GgufTensor, ...]
    data_start: int


def is_gguf(content: bytes) -> bool:
    """Return whether a file with these first bytes is a GGUF file."""
    return content[:4] == MAGIC


def read_headers(sources: Sequence[ByteSource]) -> list[GgufHeader]:
    """Return the headers of a model's files, the keys only of the first. The limits of one file are those of all.

    Raises AttncalcError as `read_header` does.
    """
    headers: list[GgufHeader] = []
    limit, tensors = LIMIT, MAX_TENSORS
    for source in sources:
        header = read_header(source, limit, tensors)
        limit -= header.data_start
        tensors -= len(header.tensors)
        headers.append(header._replace(metadata={}) if headers else header)
    return headers


def read_header(source: ByteSource, limit: int = LIMIT, max_tensors: int = MAX_TENSORS) -> GgufHeader:
    """Return the header of a file. Raises AttncalcError, with the file's name, if it is not valid."""
    cursor = Cursor(source, limit)
    version = _version(cursor)
    n_tensors, n_keys = cursor.unpack(_COUNTS)
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
            raise cursor.broken(f"{count(end - source.size)} bytes shorter than its header describes")
    return GgufHeader(source.name, version, metadata, tensors, data_start)


def _version(cursor: Cursor) -> int:
    if cursor.content(4) != MAGIC:
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
        if length > _MAX_STRING:  # a chat template has some thousands; of a longer text nothing is used
            cursor.take(length)
            return ""
        return cursor.content(length).decode("utf-8", "replace")
    if kind not in _SCALARS:
        raise cursor.broken(f"the key {truncate(key, 80)} has the unknown type {count(kind)}")
    return cursor.unpack(_SCALARS[kind])[0]


def _array(cursor: Cursor, key: str) -> list[Any] | ArrayLength:
    """Return the numbers of an array, or its length. Raises AttncalcError for an array of arrays."""
    kind, length = cursor.unpack(_ARRAY_HEAD)
    if kind == _STRING:
        if length > MAX_TEXTS:
            raise cursor.broken(f"the key {truncate(key, 80)} has {count(length)} texts, more than {count(MAX_TEXTS)}")
        cursor.skip_texts(length)
        return ArrayLength(length)
    if kind not in _SCALARS:
        what = "an array of arrays" if kind == _ARRAY else f"an array of the unknown type {count(kind)}"
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
                f"the tensor {truncate(name, 80)} starts at byte {count(tensor.offset)} of the data, and not where "
                f"the one before it ends, at {count(expected)}"
            )
        expected = _aligned(tensor.offset + tensor.size, alignment)
        tensors.append(tensor)
    return tuple(tensors)


def _tensor(cursor: Cursor, name: str) -> GgufTensor:
    label = f"the tensor {truncate(name, 80)}"
    n_dimensions = cursor.unpack(_U32)[0]
    if n_dimensions > _MAX_DIMENSIONS:
        raise cursor.broken(f"{label} has {count(n_dimensions)} dimensions; at most {_MAX_DIMENSIONS} are allowed")
    shape = tuple(cursor.unpack(_U64)[0] for _ in range(n_dimensions))
    number, offset = cursor.unpack(_U32)[0], cursor.unpack(_U64)[0]
    if 0 in shape or math.prod(shape) >= 2**63:
        raise cursor.broken(f"{label} has the shape {truncate(list(shape), 80)}")
    if number not in GGML_TYPES:
        raise cursor.broken(f"{label} has the type {count(number)}, which ggml does not have")
    ggml_type = GGML_TYPES[number]
    if (shape[0] if shape else 1) % ggml_type.block:
        raise cursor.broken(
            f"{label} has rows of {count(shape[0] if shape else 1)} elements, which {ggml_type.name} cannot store in "
            f"blocks of {ggml_type.block}"
        )
    return GgufTensor(name, shape, ggml_type, offset)


def _aligned(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment
