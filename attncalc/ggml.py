"""The types of ggml's tensors: how many elements share a block, and its bytes.

Source: `enum ggml_type` in ggml/include/ggml.h, and the blocks in ggml/src/ggml-common.h of
llama.cpp.
"""

import math
from collections.abc import Sequence

from .records import NamedTuple


class GgmlType(NamedTuple):
    number: int  # its number in a GGUF file
    name: str  # its name in llama.cpp: 'Q4_K'
    block: int  # elements of a block; 1 for a type that is not quantized
    size: int  # bytes of a block, with its scales

    def tensor_bytes(self, shape: Sequence[int]) -> int:
        """Return the bytes of a tensor. The first dimension must be a multiple of `block`."""
        return math.prod(shape) // self.block * self.size

    @property
    def is_quantized(self) -> bool:
        """Whether elements share a block."""
        return self.block > 1


# Elements of a super-block (QK_K).
_QK = 256
# The types by their numbers. Numbers that are left out were removed from GGUF.
GGML_TYPES = {
    ggml_type.number: ggml_type
    for ggml_type in (
        GgmlType(0, "F32", 1, 4),
        GgmlType(1, "F16", 1, 2),
        GgmlType(2, "Q4_0", 32, 2 + 16),
        GgmlType(3, "Q4_1", 32, 2 + 2 + 16),
        GgmlType(6, "Q5_0", 32, 2 + 4 + 16),
        GgmlType(7, "Q5_1", 32, 2 + 2 + 4 + 16),
        GgmlType(8, "Q8_0", 32, 2 + 32),
        GgmlType(9, "Q8_1", 32, 2 + 2 + 32),
        GgmlType(10, "Q2_K", _QK, _QK // 16 + _QK // 4 + 2 + 2),
        GgmlType(11, "Q3_K", _QK, _QK // 8 + _QK // 4 + 12 + 2),
        GgmlType(12, "Q4_K", _QK, 2 + 2 + 12 + _QK // 2),
        GgmlType(13, "Q5_K", _QK, 2 + 2 + 12 + _QK // 8 + _QK // 2),
        GgmlType(14, "Q6_K", _QK, _QK // 2 + _QK // 4 + _QK // 16 + 2),
        GgmlType(15, "Q8_K", _QK, 4 + _QK + 2 * (_QK // 16)),
        GgmlType(16, "IQ2_XXS", _QK, 2 + _QK // 4),
        GgmlType(17, "IQ2_XS", _QK, 2 + _QK // 4 + _QK // 32),
        GgmlType(18, "IQ3_XXS", _QK, 2 + 3 * _QK // 8),
        GgmlType(19, "IQ1_S", _QK, 2 + _QK // 8 + _QK // 16),
        GgmlType(20, "IQ4_NL", 32, 2 + 16),
        GgmlType(21, "IQ3_S", _QK, 2 + 13 * (_QK // 32) + _QK // 64),
        GgmlType(22, "IQ2_S", _QK, 2 + _QK // 4 + _QK // 16),
        GgmlType(23, "IQ4_XS", _QK, 2 + 2 + _QK // 64 + _QK // 2),
        GgmlType(24, "I8", 1, 1),
        GgmlType(25, "I16", 1, 2),
        GgmlType(26, "I32", 1, 4),
        GgmlType(27, "I64", 1, 8),
        GgmlType(28, "F64", 1, 8),
        GgmlType(29, "IQ1_M", _QK, _QK // 8 + _QK // 16 + _QK // 32),
        GgmlType(30, "BF16", 1, 2),
        GgmlType(34, "TQ1_0", _QK, 2 + _QK // 64 + (_QK - 4 * _QK // 64) // 5),
        GgmlType(35, "TQ2_0", _QK, 2 + _QK // 4),
        GgmlType(39, "MXFP4", 32, 1 + 16),
        GgmlType(40, "NVFP4", 64, 4 + 32),
        GgmlType(41, "Q1_0", 128, 2 + 16),
        GgmlType(42, "Q2_0", 64, 2 + 16),
    )
}
TYPES_BY_NAME = {ggml_type.name: ggml_type for ggml_type in GGML_TYPES.values()}
# The types of whole files that are not quantized, as dtypes.
WIDE_TYPES = ("bf16", "fp16", "fp32")
# {a type of whole files, as llama-quantize names it: the type of most of its tensors}.
FILE_TYPES = {
    **{
        name.lower(): name
        for name in ("Q8_0", "Q6_K", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "IQ4_XS", "Q2_K")
    },
    "q5_k_m": "Q5_K",
    "q5_k_s": "Q5_K",
    "q4_k_m": "Q4_K",
    "q4_k_s": "Q4_K",
    "q3_k_l": "Q3_K",
    "q3_k_m": "Q3_K",
    "q3_k_s": "Q3_K",
    **{
        name.lower(): name
        for name in ("IQ4_NL", "IQ3_S", "IQ3_XXS", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S")
    },
    "iq3_m": "IQ3_S",
    "iq3_xs": "IQ3_S",
    "iq2_m": "IQ2_S",
    "iq2_s": "IQ2_XS",
}
