"""Which query sees which key: the mask that a kernel is given."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..attention import Chunked, Sliding, Span
from ..workload import Mask

BLOCK = 1024
"""Queries per step of `mask_matrix`: comparing positions takes 8 bytes per pair, the mask itself one."""


class KernelMask(NamedTuple):
    """The mask as a kernel takes it: nothing (all keys are visible), the causal flag, or a matrix.

    Attributes:
        causal: whether the kernel's causal flag is set.
        matrix: (S, T), or (B, 1, S, T) for a padded batch; True where the query sees the key.
    """

    causal: bool = False
    matrix: Tensor | None = None


NO_MASK = KernelMask()


def mask_matrix(span: Span, mask: Mask, queries: Tensor, keys: Tensor) -> Tensor:
    """Return (S, T), True where the query at position queries[i] sees the key at position keys[j].

    This is the definition, position by position; `attention/span.py` counts the same pairs in closed form.
    """
    matrix = torch.empty(len(queries), len(keys), dtype=torch.bool, device=keys.device)
    for start in range(0, len(queries), BLOCK):
        rows = slice(start, start + BLOCK)
        matrix[rows] = _visible(span, mask, queries[rows, None], keys[None, :])
    return matrix


def _visible(span: Span, mask: Mask, i: Tensor, j: Tensor) -> Tensor:
    visible = j <= i
    if mask.kind == "bidirectional":
        visible = torch.ones_like(visible)
    elif mask.prefix:
        visible |= (i < mask.prefix) & (j < mask.prefix)
    if isinstance(span, Sliding):
        visible &= (i - j).abs() < span.window
    elif isinstance(span, Chunked):
        visible &= i // span.chunk == j // span.chunk
    return visible


def kernel_mask(span: Span, mask: Mask, queries: Tensor, keys: Tensor) -> KernelMask:
    """Return the cheapest form of the mask: nothing or the causal flag where that is enough, else the matrix."""
    full_prefill = len(queries) == len(keys) > 1 and span.visible_keys(len(keys)) == len(keys)
    if full_prefill and mask.kind == "causal":
        return KernelMask(causal=True)
    if full_prefill and mask.kind == "bidirectional":
        return NO_MASK
    matrix = mask_matrix(span, mask, queries, keys)
    return NO_MASK if bool(matrix.all()) else KernelMask(matrix=matrix)


def padded(matrix: Tensor, lengths: tuple[int, ...]) -> Tensor:
    """Return (B, 1, S, T): `matrix` for a batch whose sequences have `lengths` real tokens, then padding.

    A query in the padding keeps its unpadded row of the mask, so that its softmax is not over nothing. Nobody reads
    its output.
    """
    device = matrix.device
    real = torch.arange(matrix.shape[-1], device=device)[None, :] < torch.tensor(lengths, device=device)[:, None]
    both = real[:, None, None, :] & matrix
    return torch.where(both.any(-1, keepdim=True), both, matrix)
