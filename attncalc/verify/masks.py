"""Which query sees which key, as the boolean matrix that a kernel is given."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..attention import Span
from ..attention.span import Chunked, Sliding
from ..workload import Mask

BLOCK = 1024
"""Queries whose positions are compared at once: the comparison takes 8 bytes a pair, the mask one."""


class Seen(NamedTuple):
    """What a kernel is told: nothing (every key is seen), the causal flag, or a matrix.

    matrix: (S, T), or (B, 1, S, T) for a padded batch; True where the query sees the key.
    """

    causal: bool = False
    matrix: Tensor | None = None


EVERY_KEY = Seen()


def allowed(span: Span, mask: Mask, queries: Tensor, keys: Tensor) -> Tensor:
    """(S, T): whether the query at position queries[i] sees the key at keys[j].

    The definition, position by position: what the closed forms of `attention/span.py` count.
    """
    matrix = torch.empty(len(queries), len(keys), dtype=torch.bool, device=keys.device)
    for start in range(0, len(queries), BLOCK):
        rows = slice(start, start + BLOCK)
        matrix[rows] = _allowed(span, mask, queries[rows, None], keys[None, :])
    return matrix


def _allowed(span: Span, mask: Mask, i: Tensor, j: Tensor) -> Tensor:
    seen = j <= i
    if mask.kind == "bidirectional":
        seen = torch.ones_like(seen)
    elif mask.prefix:
        seen |= (i < mask.prefix) & (j < mask.prefix)
    if isinstance(span, Sliding):
        seen &= (i - j).abs() < span.window
    elif isinstance(span, Chunked):
        seen &= i // span.chunk == j // span.chunk
    return seen


def seen_by(span: Span, mask: Mask, queries: Tensor, keys: Tensor) -> Seen:
    """The shortest way to tell a kernel the same."""
    whole = len(queries) == len(keys) > 1 and span.visible(len(keys)) == len(keys)
    if whole and mask.kind == "causal":
        return Seen(causal=True)
    if whole and mask.kind == "bidirectional":
        return EVERY_KEY
    matrix = allowed(span, mask, queries, keys)
    return EVERY_KEY if bool(matrix.all()) else Seen(matrix=matrix)


def padded(seen: Tensor, lengths: tuple[int, ...]) -> Tensor:
    """(B, 1, S, T): the matrix for a batch in which a sequence has as many real tokens as `lengths` says.

    A query in the padding, whose output nobody reads, sees the keys in its place, so that its softmax
    is one of something.
    """
    here = seen.device
    real = torch.arange(seen.shape[-1], device=here)[None, :] < torch.tensor(lengths, device=here)[:, None]
    both = real[:, None, None, :] & seen
    return torch.where(both.any(-1, keepdim=True), both, seen)
