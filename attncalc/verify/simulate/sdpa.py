"""torch's attention kernels as its C++ code calls them on CUDA, for tensors on a fake CUDA device.

A CPU build of torch runs `scaled_dot_product_attention` with the math kernel whatever the tensors'
device is, because it has no code that chooses for CUDA. So the calls are written out here: what
torch does to the inputs before it calls a kernel's operation, and that operation. Its outputs have
the sizes that torch's meta functions give them (torch/_meta_registrations.py). `narrow` takes the
place of slices, which need a real device.

Source of every function: aten/src/ATen/native/transformers/attention.cpp, torch 2.13.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

aten = torch.ops.aten

HALF = (torch.float16, torch.bfloat16)
# What torch gives cuDNN instead of -inf (convert_boolean_attn_mask_cudnn).
CUDNN_NEG_INF = -65504.0
# Head widths of FlashAttention are multiples of 8 elements.
FLASH_ALIGNMENT = 8
# Rows of the efficient kernel's bias are multiples of 8 elements (mem_eff_alignment).
BIAS_ALIGNMENT = 8
# Outputs that the meta function has and CUDA has not, by operation.
#
# cuDNN's logsumexp is computed only for gradients (run_cudnn_SDP_fprop in
# aten/src/ATen/native/cudnn/MHA.cpp).
ABSENT_OUTPUTS = {aten._scaled_dot_product_cudnn_attention.default: (1,)}


def fused_sdpa(
    kernel: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return what `scaled_dot_product_attention` returns on CUDA when this kernel is the one that
    it chooses.

    It makes the same tensors in the same order, and holds each as long. Whether the kernel supports
    the call is not checked: see `supports`.

    The arguments are those of `scaled_dot_product_attention`, after the kernel's name: q (B,
    n_heads, S, d_qk), k (B, n_kv_heads, T, d_qk), v (B, n_kv_heads, T, d_v); `attn_mask` is (S, T)
    or (B, 1, S, T), boolean or a bias.
    """
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return CALLS[kernel](q, k, v, attn_mask, is_causal, factor, enable_gqa)


def _as_bias(mask: Tensor | None, dtype: torch.dtype, hidden: float = -math.inf) -> Tensor | None:
    """Return 0 where a boolean mask is True and `hidden` elsewhere; other masks as they are."""
    if mask is None or mask.dtype != torch.bool:  # convert_boolean_attn_mask_
        return mask
    return torch.where(mask, 0.0, torch.scalar_tensor(hidden, dtype=dtype, device=mask.device))


def _flash(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float,
    enable_gqa: bool,
) -> Tensor:
    """Pad the heads to a multiple of 8 and cut the output (pad_last_dim,
    post_process_flash_output).
    """
    assert mask is None, "flash has no mask matrix"
    width = q.shape[-1]
    q, k, v = (_padded_to(t, FLASH_ALIGNMENT) for t in (q, k, v))
    out: Tensor = aten._scaled_dot_product_flash_attention(
        q, k, v, 0.0, is_causal, False, scale=scale
    )[0]
    if out.shape[-1] == width:
        return out
    return out.narrow(-1, 0, width)


def _padded_to(t: Tensor, alignment: int) -> Tensor:
    """Return `t` with its last dimension padded to a multiple of `alignment`; `t` itself if it is
    one.
    """
    missing = -t.shape[-1] % alignment
    if missing:
        return torch.nn.functional.pad(t, (0, missing))
    return t


def _efficient(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float,
    enable_gqa: bool,
) -> Tensor:
    """Pad the bias's rows (preprocess_mask). The caller has repeated shared KV heads."""
    bias = _as_bias(mask, q.dtype)
    if bias is not None:
        bias = _aligned_bias(bias).expand(*q.shape[:3], k.shape[2])
    out: Tensor = aten._scaled_dot_product_efficient_attention(
        q, k, v, bias, _needs_logsumexp(q, k, v), 0.0, is_causal, scale=scale
    )[0]
    return out


def _aligned_bias(bias: Tensor) -> Tensor:
    """Return the bias with rows that start at multiples of 8 elements (pad_bias): itself, or a view
    of a copy.
    """
    if all(stride % BIAS_ALIGNMENT == 0 for stride in bias.stride()[:-1]) and bias.stride(-1) == 1:
        return bias
    width = bias.shape[-1]
    missing = BIAS_ALIGNMENT - width % BIAS_ALIGNMENT
    return torch.nn.functional.pad(bias, (0, missing)).narrow(-1, 0, width)


def _cudnn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float,
    enable_gqa: bool,
) -> Tensor:
    bias = _as_bias(mask, q.dtype, CUDNN_NEG_INF)
    out: Tensor = aten._scaled_dot_product_cudnn_attention(
        q, k, v, bias, _needs_logsumexp(q, k, v), 0.0, is_causal, False, scale=scale
    )[0]
    return out


def _needs_logsumexp(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether a backward pass will need the logsumexp (should_compute_logsumexp)."""
    return torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v))


def _math(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float,
    enable_gqa: bool,
) -> Tensor:
    """Compute in fp32 and whole matrices (_scaled_dot_product_attention_math).

    It is written out because torch's own function adds the mask in place to real tensors and not to
    fake ones, and because the softmax's temporary tensors cannot be seen from outside.
    """
    q_acc, k_acc, v_acc = (t.float() if t.dtype in HALF else t for t in (q, k, v))
    factor = math.sqrt(scale)
    q_scaled = q_acc * factor
    if is_causal:
        bias = _as_bias(_causal(q, k), q_scaled.dtype)
    else:
        bias = _as_bias(mask, q.dtype)
    k_all = k_acc
    v_all = v_acc
    if enable_gqa and q.shape[1] != k.shape[1]:
        repeats = q.shape[1] // k.shape[1]
        k_all = k_acc.repeat_interleave(repeats, -3)
        v_all = v_acc.repeat_interleave(repeats, -3)
    weights = torch.matmul(q_scaled, k_all.transpose(-2, -1) * factor)
    if bias is not None:
        weights.add_(bias)
    weights = _safe_softmax(weights)
    # the second output, which C++ happens to evaluate before the first
    in_dtype = weights.to(q.dtype)
    out = torch.matmul(weights, v_all).to(q.dtype)
    del in_dtype
    return out


def _causal(q: Tensor, k: Tensor) -> Tensor:
    """Return the causal mask. The matrix of ones that it is made of is freed here, as in torch."""
    return torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()


def _safe_softmax(scores: Tensor) -> Tensor:
    """Return the softmax over the last dimension, 0 for a row without a visible key."""
    out = torch.softmax(scores, -1)
    is_masked = scores.isneginf()
    is_row_masked = is_masked.all(-1, keepdim=True)
    zero = torch.scalar_tensor(0.0, dtype=out.dtype, device=out.device)
    return torch.where(is_row_masked, zero, out, out=out)


# How torch calls each kernel, by its name in `attncalc memory`.
CALLS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor | None, bool, float, bool], Tensor]] = {
    "math": _math,
    "flash": _flash,
    "efficient": _efficient,
    "cudnn": _cudnn,
}
