"""Attention masks: which query sees which key."""

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from ..attention import Chunked, Sliding, Span
from ..records import NamedTuple
from ..workload import Mask

# Queries per step of `mask_matrix`: steps bound the temporary memory, 8 bytes per compared pair of
# positions.
BLOCK = 1024


class KernelMask(NamedTuple):
    """The mask as a kernel takes it: nothing (all keys are visible), the causal flag, or a
    matrix.
    """

    causal: bool = False  # whether the kernel's causal flag is set
    # (S, T), or (B, 1, S, T) for a padded batch; True where the query sees the key
    matrix: Tensor | None = None


NO_MASK = KernelMask()


def mask_matrix(span: Span, mask: Mask, queries: Tensor, keys: Tensor) -> Tensor:
    """Return (S, T): [i, j] is True if the query at position queries[i] sees the key at position
    keys[j].

    This is the definition, position by position; `attention/span.py` counts the same pairs in
    closed form.
    """
    matrix = torch.empty(len(queries), len(keys), dtype=torch.bool, device=keys.device)
    if isinstance(matrix, FakeTensor):  # it has no values
        return matrix
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


def prefill_mask(span: Span, mask: Mask, positions: Tensor) -> KernelMask:
    """Return the cheapest form of a prefill's mask: nothing or the causal flag where that is
    enough, else the matrix.

    `positions` are those of all tokens, from 0.
    """
    tokens = len(positions)
    if span.visible_keys(tokens) == tokens > 1 and mask.kind != "prefix":
        return KernelMask(causal=mask.kind == "causal")
    if tokens == 1:
        return NO_MASK
    return KernelMask(matrix=mask_matrix(span, mask, positions, positions))


def decode_mask(span: Span, mask: Mask, position: int, keys: Tensor) -> KernelMask:
    """Return the mask of one new token: nothing if it sees every key in the cache, else the matrix.

    A ring buffer of a chunk still holds tokens of the chunk before: with chunks of 4, the cache at
    position 5 holds tokens 2 to 5, of which the new token sees 4 and 5.

    Args:
        keys: the positions of the keys in the cache, (length,), the new token's included.
    """
    if span.visible_keys(position + 1) == len(keys):
        return NO_MASK
    return KernelMask(
        matrix=mask_matrix(span, mask, torch.tensor([position], device=keys.device), keys)
    )


def padded(matrix: Tensor, lengths: tuple[int, ...]) -> Tensor:
    """Return (B, 1, S, T): `matrix` for a batch whose sequences have `lengths` real tokens, then
    padding.

    A query in the padding has its row of the unpadded mask, since a softmax over no keys is NaN.
    Its output is unused.
    """
    device = matrix.device
    real = (
        torch.arange(matrix.shape[-1], device=device)[None, :]
        < torch.tensor(lengths, device=device)[:, None]
    )
    visible = real[:, None, None, :] & matrix
    return torch.where(visible.any(-1, keepdim=True), visible, matrix)
