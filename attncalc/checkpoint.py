"""The weights in a checkpoint's files: dtypes and sizes, without the files themselves."""

from typing import Literal

from .ggml import TYPES_BY_NAME
from .records import NamedTuple

# Bits of an element, by dtype in a safetensors header. Source: `Dtype` in tensor.rs of safetensors
# 0.8.
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
# The dtypes of weights that are not quantised, in which one element is one parameter.
FLOATS = ("F32", "F16", "BF16")


class StoredDtype(NamedTuple):
    """The part of a checkpoint that has one dtype."""

    name: str  # the dtype as in the header: 'BF16', 'Q4_K'
    elements: int  # how many elements
    size: int  # bytes

    @property
    def bits(self) -> int:
        """Return the bits of one element, of a dtype without blocks."""
        return BITS[self.name]

    @property
    def block(self) -> tuple[int, int] | None:
        """Return the elements and bytes of a block of a GGUF file; None for a dtype without
        blocks.
        """
        ggml_type = TYPES_BY_NAME.get(self.name)
        if ggml_type and ggml_type.is_quantized:
            return (ggml_type.block, ggml_type.size)
        return None


class StoredTensor(NamedTuple):
    """A tensor of a GGUF file, for an engine that puts single tensors on devices."""

    name: str  # its name: 'blk.0.attn_q.weight'
    dtype: str  # its type
    row: int  # elements of its first dimension
    size: int  # bytes
    file: int  # the number of the file that has it, from 0
    start: int  # its first byte in that file

    @property
    def elements(self) -> int:
        return self.size // TYPES_BY_NAME[self.dtype].size * TYPES_BY_NAME[self.dtype].block


class CheckpointWeights(NamedTuple):
    """The contents of a model's safetensors or GGUF files, from their headers or only from an
    index.
    """

    files: int  # how many files
    tensors: int  # how many tensors
    # The part that each dtype has, the largest first; () if only the index exists, which has no
    # dtypes
    by_dtype: tuple[StoredDtype, ...]
    size: int  # bytes of all tensors, without headers
    # the format of the files; 'given' if --weights-size alone tells their size
    kind: Literal["safetensors", "GGUF", "given"] = "safetensors"
    # the tensors of GGUF files, in order; () for other files
    contents: tuple[StoredTensor, ...] = ()
    # The type of a GGUF file that was not read, but computed from the model: 'q4_k_m'; '' for real
    # files
    file_type: str = ""
    # the bytes among them of layers for multi-token prediction; 0 if only the index exists
    predicting: int = 0

    @property
    def blocks(self) -> int | None:
        """Return the blocks of GGUF files, with those of multi-token prediction; None for other
        files.
        """
        numbers = [
            int(tensor.name.split(".")[1])
            for tensor in self.contents
            if tensor.name.startswith("blk.")
        ]
        if numbers:
            return max(numbers) + 1
        return None

    @property
    def parameters(self) -> int | None:
        """Return the number of parameters, or None if dtypes are unknown or quantised formats pack
        elements.
        """
        if self.kind == "GGUF":
            return sum(stored.elements for stored in self.by_dtype)
        if not self.by_dtype or any(stored.name not in FLOATS for stored in self.by_dtype):
            return None
        return sum(stored.elements for stored in self.by_dtype)
