"""A model's weights as its files hold them: what a report needs to know, without the files."""

from __future__ import annotations

from typing import NamedTuple

BITS = {
    "F64": 64,
    "F32": 32,
    "F16": 16,
    "BF16": 16,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
    "I64": 64,
    "I32": 32,
    "I16": 16,
    "I8": 8,
    "U64": 64,
    "U32": 32,
    "U16": 16,
    "U8": 8,
    "BOOL": 8,
    "C64": 64,
}
"""Bits of an element by the names in a safetensors header (safetensors 0.8, `Dtype` in its tensor.rs)."""
FLOATS = ("F32", "F16", "BF16")
"""The dtypes of weights that are not quantised: one element is one parameter."""


class StoredDtype(NamedTuple):
    """What is stored in one dtype. name: as in the header ('BF16'); size: bytes."""

    name: str
    elements: int
    size: int


class CheckpointWeights(NamedTuple):
    """What a folder's safetensors files hold, from their headers or from their index alone.

    files, tensors: how many. by_dtype: the largest first; () where only the index is there, which
    names no dtypes. size: bytes of all tensors, without headers.
    """

    files: int
    tensors: int
    by_dtype: tuple[StoredDtype, ...]
    size: int

    @property
    def parameters(self) -> int | None:
        """Elements, where each is a parameter; None where quantised formats pack them, or dtypes are not known."""
        if not self.by_dtype or any(each.name not in FLOATS for each in self.by_dtype):
            return None
        return sum(each.elements for each in self.by_dtype)
