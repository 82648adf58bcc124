"""GGUF files written by hand: quickly, and with keys that no writer would write. Only their headers
have content.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import gguf
from gguf_files import SmallModel

from attncalc.config.gguf.architectures import ARCHITECTURES

ALIGNMENT = 32
F16 = 1


@cache
def architectures() -> tuple[str, ...]:
    """Return the architectures that attncalc and the gguf package know."""
    return tuple(name for name in ARCHITECTURES if name in gguf.MODEL_ARCH_NAMES.values())


@cache
def small_model(name: str) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Return the keys and the shapes of a small model of that architecture."""
    small = SmallModel(name)
    prefixed = {
        key if key.startswith("general.") else f"{name}.{key}": value
        for key, value in {**small.keys(), "general.architecture": name}.items()
    }
    return prefixed, dict(small.shapes())


def gguf_bytes(keys: Mapping[str, Any], tensors: Sequence[tuple[str, Sequence[int], int]]) -> bytes:
    """Return a file with those keys, and with tensors of a name, a shape (the fastest first) and a
    type of ggml.
    """
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(keys))]
    for key, value in keys.items():
        parts += (_text(key), _value(value))
    offset = 0
    for name, shape, kind in tensors:
        parts += (_text(name), struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset))
        offset += -(-_size(shape, kind) // ALIGNMENT) * ALIGNMENT
    header = b"".join(parts)
    return header + bytes(-len(header) % ALIGNMENT + min(offset, 1 << 21))


def _text(text: str) -> bytes:
    content = text.encode("utf-8", "replace")
    return struct.pack("<Q", len(content)) + content


def _value(value: Any) -> bytes:
    """Return the number of a type, and the value; a list has the type of its first item."""
    if isinstance(value, list):
        items = [_value(item) for item in value]
        kind = items[0][:4] if items else struct.pack("<I", 4)
        return (
            struct.pack("<I", 9)
            + kind
            + struct.pack("<Q", len(items))
            + b"".join(item[4:] for item in items)
        )
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return (
            struct.pack("<II", 4, value)
            if 0 <= value < 2**32
            else struct.pack("<Iq", 11, value % 2**63)
        )
    if isinstance(value, float):
        return struct.pack("<Id", 12, value)
    return struct.pack("<I", 8) + _text(str(value))


def _size(shape: Sequence[int], kind: int) -> int:
    if kind not in gguf.GGMLQuantizationType._value2member_map_ or not shape:
        return 0
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
    return math.prod(shape) // block * size
