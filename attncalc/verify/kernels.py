"""The kernels: torch's scaled_dot_product_attention by backend, and the definition written out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from .masks import Seen

BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


REFUSALS = ("No available kernel", "No viable backend", "cuDNN", "cudnn", "not implemented for")
"""What torch says where a backend does not take these heads, this dtype or this mask."""


class CannotRunError(Exception):
    """A kernel that refuses these shapes, this dtype, this mask or this device."""


def scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """(B, n_heads, S, T): every query with every key of its group, scaled."""
    return q @ _shared(q, k).transpose(-1, -2) * scale


def weights(q: Tensor, k: Tensor, seen: Seen, scale: float, sinks: Tensor | None = None) -> Tensor:
    """(B, n_heads, S, T): softmax of the scores over the keys that are seen, and over the head's sink."""
    found = scores(q, k, scale)
    matrix = _matrix(seen, found)
    if matrix is not None:
        found = found.masked_fill(~matrix, -torch.inf)
    if sinks is None:
        return found.softmax(-1)
    sink = sinks.to(found.dtype).view(1, -1, 1, 1).expand(*found.shape[:-1], 1)
    return torch.cat((found, sink), -1).softmax(-1)[..., :-1]


def reference(q: Tensor, k: Tensor, v: Tensor, seen: Seen, scale: float, sinks: Tensor | None = None) -> Tensor:
    """softmax(Q K^T * scale) V as it stands in the paper; (B, heads, tokens, width) in and out."""
    return weights(q, k, seen, scale, sinks) @ _shared(q, v)


def _shared(q: Tensor, k: Tensor) -> Tensor:
    """K or V with a head for every query head."""
    return k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)


def _matrix(seen: Seen, found: Tensor) -> Tensor | None:
    if seen.causal:
        return torch.ones(found.shape[-2:], dtype=torch.bool, device=found.device).tril()
    return seen.matrix


def sdpa(kernel: str, q: Tensor, k: Tensor, v: Tensor, seen: Seen, scale: float, sinks: Tensor | None = None) -> Tensor:
    """The same through torch, by one backend alone.

    torch's has no sinks: a key of zeros stands for them, whose bias is the sink. Its efficient kernel
    takes no fewer KV heads than query heads: they are repeated. CannotRunError: the backend refuses.
    """
    grouped = q.shape[1] != k.shape[1]
    if grouped and kernel == "efficient":
        k, v, grouped = _shared(q, k), _shared(q, v), False
    mask, causal = seen.matrix, seen.causal
    if sinks is not None:
        matrix = _matrix(seen, q.new_empty(q.shape[2], k.shape[2]))
        k, v, mask, causal = _with_sinks(q, k, v, matrix, sinks)
    with only(kernel):
        return nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=grouped
        )


def _with_sinks(
    q: Tensor, k: Tensor, v: Tensor, matrix: Tensor | None, sinks: Tensor
) -> tuple[Tensor, Tensor, Tensor, bool]:
    """K and V with a key of zeros after the last, and a bias that holds each head's sink there."""
    bias = q.new_zeros(q.shape[0], q.shape[1], q.shape[2], k.shape[2] + 1)
    if matrix is not None:
        bias[..., :-1].masked_fill_(~matrix, -torch.inf)
    bias[..., -1] = sinks.to(q.dtype).view(1, -1, 1)
    return nn.functional.pad(k, (0, 0, 0, 1)), nn.functional.pad(v, (0, 0, 0, 1)), bias, False


@contextmanager
def only(kernel: str) -> Iterator[None]:
    """torch's attention by this backend or not at all."""
    try:
        with sdpa_kernel(BACKENDS[kernel]):
            yield
    except RuntimeError as error:
        if any(words in str(error) for words in REFUSALS):
            raise CannotRunError(kernel) from None
        raise
