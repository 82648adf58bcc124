"""The attention kernels: the backends of torch's scaled_dot_product_attention, and a reference
written out.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from . import extra_kernels
from .errors import refusal
from .extra_kernels import EXTRA_KERNELS
from .masks import KernelMask
from .simulate.sdpa import fused_sdpa
from .torch_versions import EFFICIENT_SHARES_KV_HEADS

BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
# Name of `reference` among the kernels.
REFERENCE = "reference"
# Whether the efficient backend is that of ROCm, on a machine without it, at this moment last.
_on_rocm: list[bool] = []
# The backends that `only` lets torch's attention use, the one of this moment last.
_chosen: list[str] = []


def scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Return the scaled scores, (B, n_heads, S, T), of every query with every key of its group."""
    return q @ _repeat_kv(q, k).transpose(-1, -2) * scale


def weights(
    q: Tensor, k: Tensor, mask: KernelMask, scale: float, sinks: Tensor | None = None
) -> Tensor:
    """Return the attention weights, (B, n_heads, S, T): softmax over the visible keys and the
    head's sink.
    """
    logits = scores(q, k, scale)
    matrix = _matrix(mask, logits)
    if matrix is not None:
        logits = logits.masked_fill(~matrix, -torch.inf)
    if sinks is None:
        return logits.softmax(-1)
    sink = sinks.to(logits.dtype).view(1, -1, 1, 1).expand(*logits.shape[:-1], 1)
    return torch.cat((logits, sink), -1).softmax(-1)[..., :-1]


def reference(
    q: Tensor, k: Tensor, v: Tensor, mask: KernelMask, scale: float, sinks: Tensor | None = None
) -> Tensor:
    """Return softmax(Q K^T * scale) V, as the paper defines it; (B, heads, tokens, width) in and
    out.
    """
    return weights(q, k, mask, scale, sinks) @ _repeat_kv(q, v)


def _repeat_kv(q: Tensor, k: Tensor) -> Tensor:
    """Repeat K or V so that there is one head per query head."""
    return k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)


def _matrix(mask: KernelMask, scores_like: Tensor) -> Tensor | None:
    if mask.causal:
        return torch.ones(
            scores_like.shape[-2:], dtype=torch.bool, device=scores_like.device
        ).tril()
    return mask.matrix


def sdpa(
    kernel: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: KernelMask,
    scale: float,
    sinks: Tensor | None = None,
) -> Tensor:
    """Return what `reference` does, computed by one backend of torch or by one of EXTRA_KERNELS.

    torch's function has no sinks: one more key of zeros, whose bias is the sink, has the same
    effect. KV heads that query heads share are repeated for an efficient backend that cannot share
    them. Raises CannotRunError if the backend does not run these inputs.
    """
    if kernel in EXTRA_KERNELS:
        return extra_kernels.run(kernel, q, k, v, mask, scale, sinks)
    grouped = q.shape[1] != k.shape[1]
    if grouped and kernel == "efficient" and not efficient_shares_kv_heads():
        k = _repeat_kv(q, k)
        v = _repeat_kv(q, v)
        grouped = False
    attn_mask = mask.matrix
    causal = mask.causal
    if sinks is not None:
        matrix = _matrix(mask, q.new_empty(q.shape[2], k.shape[2]))
        k, v, attn_mask, causal = _with_sinks(q, k, v, matrix, sinks)
    # a CPU build of torch would choose math for them, whatever the device
    if isinstance(q, FakeTensor):
        return fused_sdpa(kernel, q, k, v, attn_mask, causal, scale, grouped)
    try:
        with only(kernel):
            return nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=attn_mask, is_causal=causal, scale=scale, enable_gqa=grouped
            )
    except Exception as error:
        raise refusal(kernel, error) from None


def efficient_shares_kv_heads() -> bool:
    """Whether the efficient backend takes shared KV heads as they are."""
    return bool(EFFICIENT_SHARES_KV_HEADS) and not (torch.version.hip or _on_rocm)


@contextmanager
def as_on_rocm() -> Iterator[None]:
    """Call the efficient backend as on ROCm, which shares no KV heads."""
    _on_rocm.append(True)
    try:
        yield
    finally:
        _on_rocm.pop()


def _with_sinks(
    q: Tensor, k: Tensor, v: Tensor, matrix: Tensor | None, sinks: Tensor
) -> tuple[Tensor, Tensor, Tensor, bool]:
    """Return K and V with a key of zeros appended, and a bias that holds each head's sink there."""
    bias = q.new_zeros(q.shape[0], q.shape[1], q.shape[2], k.shape[2] + 1)
    if matrix is not None:
        bias[..., :-1].masked_fill_(~matrix, -torch.inf)
    bias[..., -1] = sinks.to(q.dtype).view(1, -1, 1)
    return nn.functional.pad(k, (0, 0, 0, 1)), nn.functional.pad(v, (0, 0, 0, 1)), bias, False


@contextmanager
def only(kernel: str) -> Iterator[None]:
    """Let torch's attention use this backend only; no effect for a kernel that is not one of
    torch's.

    torch needs some 20 us to enter it. Whoever times a kernel enters it before, and the kernel need
    not enter it again.
    """
    if _chosen[-1:] == [kernel] or kernel not in BACKENDS:
        yield
        return
    _chosen.append(kernel)
    try:
        with sdpa_kernel(BACKENDS[kernel]):
            yield
    finally:
        _chosen.pop()
