"""What a layer keeps for later tokens, as real tensors: as long as the context, or a ring as long as its span."""

from __future__ import annotations

import torch
from torch import Tensor

from ..attention import Chunked, Sliding, Span


def ring(span: Span) -> int | None:
    """Tokens that a later one can reach, its own included; None for all of them."""
    if isinstance(span, Sliding):
        return span.window
    return span.chunk if isinstance(span, Chunked) else None


class Cache:
    """Rows of one layer, each tensor (B, kept, heads, width); the token at position p is in row p % kept.

    Until the span is full the rows grow with the tokens; from then on a token takes the place of the
    oldest, as in a ring. reserved: rows made at once, so that later tokens move nothing.
    """

    def __init__(self, span: Span, reserved: int = 0) -> None:
        self.most = ring(span)
        self.reserved = self.held(reserved)
        self.seen = 0
        self._rows: tuple[Tensor, ...] = ()

    def held(self, tokens: int) -> int:
        """Rows that it has once it has seen so many tokens."""
        return tokens if self.most is None else min(tokens, self.most)

    @property
    def bytes(self) -> int:
        """Bytes of the storage that the rows hold."""
        return sum(row.untyped_storage().nbytes() for row in self._rows)

    @property
    def kept(self) -> int:
        """Tokens that it holds."""
        return min(self.seen, self._rows[0].shape[1]) if self._rows else 0

    @property
    def rows(self) -> tuple[Tensor, ...]:
        """What is in it, row by row."""
        return tuple(row[:, : self.kept] for row in self._rows)

    def positions_after(self, tokens: int) -> Tensor:
        """The position of the token in each row, (kept,), once `tokens` more are in."""
        seen = self.seen + tokens
        kept = self.held(seen)
        return seen - 1 - (seen - 1 - torch.arange(kept)) % kept

    def rewind(self, tokens: int) -> None:
        """Forget the last `tokens`: the next ones take their rows."""
        self.seen -= tokens

    def extend(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Take in S more tokens, (B, S, heads, width) each, and return what they may attend to.

        That is all that was kept and all that is new, for several tokens reach further back than the
        last of them does; for a single token it is the rows themselves.
        """
        tokens = new[0].shape[1]
        room = self._rows[0].shape[1] if self._rows else 0
        if not self._rows and self.reserved >= tokens:
            self._rows = tuple(row.new_empty(row.shape[0], self.reserved, *row.shape[2:]) for row in new)
            room = self.reserved
        if self.seen + tokens <= room:
            for row, one in zip(self._rows, new, strict=True):
                row[:, self.seen : self.seen + tokens] = one
            self.seen += tokens
            return self.rows
        if tokens == 1 and room and self.held(self.seen + 1) == room:
            for row, one in zip(self._rows, new, strict=True):
                row[:, self.seen % room] = one[:, 0]
            self.seen += 1
            return self.rows
        return self._grow(new)

    def _grow(self, new: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """All rows in the order of their tokens, the new ones last; keep those the span reaches."""
        start = self.seen % self.kept if self.kept else 0
        past = [torch.roll(row, -start, dims=1) if start else row for row in self.rows]
        whole = tuple(torch.cat(pair, dim=1) for pair in zip(past, new, strict=True)) if past else new
        self.seen += new[0].shape[1]
        kept = self.held(self.seen)
        tail = (row[:, row.shape[1] - kept :] for row in whole)
        self._rows = tuple(torch.roll(row, self.seen % kept, dims=1).clone() for row in tail)
        return whole
