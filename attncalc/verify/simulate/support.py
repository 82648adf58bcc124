"""What torch's attention kernels support on a GPU of NVIDIA or AMD, so that a simulated run skips
what a real one refuses.

Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp and sdp_utils_cpp.h, torch 2.13;
../torch_versions.py has what differs in others. A rule names the function it was read in. Passes
without gradients and without dropout are assumed.

On ROCm torch has no cudnn kernel; flash and efficient share one implementation (AOTriton). Its
rules are those of AMD's Instinct GPUs, for which AOTriton is built (gfx90a, gfx942, gfx950).
"""

from collections.abc import Callable

from ...records import NamedTuple
from ..torch_versions import (
    CUDNN_192_128_ON_BLACKWELL,
    CUDNN_256_WIDE_ON_BLACKWELL,
    CUDNN_256_WIDE_ON_HOPPER,
)

# The widest head of FlashAttention 2 (check_head_dim_size_flash).
FLASH_WIDTH = 256
# The widest head of cuDNN on every GPU (check_cudnn_tensor_shapes).
CUDNN_WIDTH = 128
# Widths of DeepSeek's prefill.
CUDNN_MLA_WIDTHS = (192, 128)
# The widest head of cuDNN on data-center Hopper and Blackwell.
CUDNN_WIDEST = 256
# Most heads of a cuDNN graph (check_cudnn_tensor_shapes).
CUDNN_MAX_HEADS = 65_535
# The widest heads of AOTriton: as flash (aotriton_max_hdim, since AOTriton 0.9), and as efficient
# (check_head_dim_size_flash_nested, up to AOTriton 0.11).
AOTRITON_FLASH_WIDTH = 512
AOTRITON_EFFICIENT_WIDTH = 256


class AttentionCall(NamedTuple):
    """The parts of an attention call that decide whether a kernel runs.

    The causal flag is assumed to come with as many queries as keys.
    """

    n_heads: int  # query heads
    n_kv_heads: int  # key and value heads
    d_qk: int  # width of a query and a key head
    d_v: int  # width of a value head
    dtype: str  # 'fp32', 'fp16' or 'bf16'
    mask: str  # 'none', 'causal' (a flag) or 'matrix'
    capability: tuple[int, int]  # compute capability of an NVIDIA GPU: (9, 0) is an H100
    keys: int = 2  # keys of a sequence
    rocm: bool = False  # whether the GPU is an AMD Instinct, which has no compute capability


def supports(kernel: str, call: AttentionCall) -> str | None:
    """Return None if 'math', 'flash', 'efficient' or 'cudnn' runs the call on the GPU, otherwise
    why not.

    KV heads shared by query heads are supported by every kernel: `verify` repeats them for the
    efficient one.
    """
    if call.n_heads % call.n_kv_heads:  # check_grouped_query_attention
        return f"{call.n_kv_heads} KV heads do not divide {call.n_heads} query heads"
    if call.rocm:
        return ROCM_RULES[kernel](call)
    return RULES[kernel](call)


def _math(call: AttentionCall) -> str | None:
    """Return None: the math kernel is written in torch's own operations."""
    return None


def _flash(call: AttentionCall) -> str | None:
    """Return what can_use_flash_attention checks."""
    if call.mask == "matrix":  # check_for_attn_mask
        return "flash has no mask matrix"
    if call.d_qk != call.d_v:  # check_head_dim_size_flash
        return f"flash needs equal head widths, and these are {call.d_qk} and {call.d_v}"
    if call.d_qk > FLASH_WIDTH:  # check_head_dim_size_flash
        return f"flash has heads of at most {FLASH_WIDTH}, and these have {call.d_qk}"
    if not (8, 0) <= call.capability <= (12, 1):  # check_flash_attention_hardware_support
        return f"flash needs compute capability 8.0 to 12.1, and this GPU has {_version(call)}"
    if call.dtype not in ("fp16", "bf16"):  # check_dtypes_flash_attention
        return f"flash has no {call.dtype}"
    return None


def _efficient(call: AttentionCall) -> str | None:
    """Return what can_use_mem_efficient_attention checks."""
    if not (5, 0) <= call.capability <= (12, 1):  # check_mem_efficient_hardware_support
        return f"efficient needs compute capability 5.0 to 12.1, and this GPU has {_version(call)}"
    if call.dtype == "bf16" and call.capability < (8, 0):  # less_than_sm80_mem_efficient_dtypes
        return f"efficient has bf16 from compute capability 8.0, and this GPU has {_version(call)}"
    alignment = _gemm_alignment(call)
    if call.d_qk % alignment or call.d_v % alignment:  # check_head_dim_size_mem_efficient
        return f"efficient needs head widths that are multiples of {alignment} in {call.dtype}"
    return None


def _gemm_alignment(call: AttentionCall) -> int:
    """Return the elements that head widths are multiples of (minimum_gemm_alignment): 128 bits with
    tensor cores.
    """
    half = call.dtype != "fp32"
    tensor_cores = call.capability >= (8, 0) or (half and call.capability >= (7, 0))
    if tensor_cores:
        if half:
            return 8
        return 4
    return 1


def _cudnn(call: AttentionCall) -> str | None:
    """Return what can_use_cudnn_attention checks, with cuDNN 9.11 or later."""
    if not (8, 0) <= call.capability <= (12, 1):  # check_cudnn_hardware_support
        return f"cudnn needs compute capability 8.0 to 12.1, and this GPU has {_version(call)}"
    if call.dtype not in ("fp16", "bf16"):  # check_dtypes_low_precision
        return f"cudnn has no {call.dtype}"
    if call.n_heads > CUDNN_MAX_HEADS:
        return f"cudnn has at most {CUDNN_MAX_HEADS} heads"
    if call.keys == 1:
        return "cudnn does not run with a single key"
    return _cudnn_widths(call)


def _cudnn_widths(call: AttentionCall) -> str | None:
    """Return what check_cudnn_tensor_shapes says of head widths."""
    if call.d_qk % 8 or call.d_v % 8:
        return "cudnn needs head widths that are multiples of 8"
    hopper = call.capability == (9, 0)
    blackwell = call.capability[0] == 10
    is_wide = (hopper and CUDNN_256_WIDE_ON_HOPPER) or (blackwell and CUDNN_256_WIDE_ON_BLACKWELL)
    widest = CUDNN_WIDEST if is_wide else CUDNN_WIDTH
    is_mla = blackwell and CUDNN_192_128_ON_BLACKWELL and (call.d_qk, call.d_v) == CUDNN_MLA_WIDTHS
    if max(call.d_qk, call.d_v) > widest and not is_mla:
        return (
            f"cudnn has heads of at most {widest} on this GPU, and these have "
            f"{max(call.d_qk, call.d_v)}"
        )
    return None


def _version(call: AttentionCall) -> str:
    return ".".join(map(str, call.capability))


def _flash_on_rocm(call: AttentionCall) -> str | None:
    """Return what can_use_flash_attention checks on ROCm."""
    if call.mask == "matrix":  # check_for_attn_mask
        return "flash has no mask matrix"
    if call.dtype not in ("fp16", "bf16"):  # check_dtypes_flash_attention
        return f"flash has no {call.dtype}"
    return _aotriton_widths("flash", call, AOTRITON_FLASH_WIDTH)


def _efficient_on_rocm(call: AttentionCall) -> str | None:
    """Return what can_use_mem_efficient_attention checks on ROCm."""
    if call.d_qk % 8:  # check_head_dim_size_flash_nested
        return "efficient needs head widths that are multiples of 8"
    return _aotriton_widths("efficient", call, AOTRITON_EFFICIENT_WIDTH)


def _aotriton_widths(kernel: str, call: AttentionCall, widest: int) -> str | None:
    """Return what check_head_dim_size_flash says of head widths on ROCm."""
    if call.d_qk != call.d_v:
        return f"{kernel} needs equal head widths, and these are {call.d_qk} and {call.d_v}"
    if call.d_qk > widest:
        return f"{kernel} has heads of at most {widest}, and these have {call.d_qk}"
    return None


def _cudnn_on_rocm(call: AttentionCall) -> str | None:
    """Return that there is none: can_use_cudnn_attention is false on ROCm."""
    return "cudnn needs an NVIDIA GPU"


# What each kernel refuses, by its name in `attncalc memory`.
RULES: dict[str, Callable[[AttentionCall], str | None]] = {
    "math": _math,
    "flash": _flash,
    "efficient": _efficient,
    "cudnn": _cudnn,
}
# The same on ROCm.
ROCM_RULES: dict[str, Callable[[AttentionCall], str | None]] = {
    "math": _math,
    "flash": _flash_on_rocm,
    "efficient": _efficient_on_rocm,
    "cudnn": _cudnn_on_rocm,
}
