"""A real KV cache: as long as the context, or a ring buffer as long as the layer's span."""

import torch
from torch import Tensor

from ...attention import Chunked, Sliding, Span


def ring_size(span: Span) -> int | None:
    """Return how many tokens, its own included, a later token can reach; None if it reaches all of
    them.
    """
    if isinstance(span, Sliding):
        return span.window
    if isinstance(span, Chunked):
        return span.chunk
    return None


class Cache:
    """The KV cache of one layer: tensors of (B, length, heads, width); position p is in row p %
    length.

    Until the span is full, the cache grows with the tokens; then each token overwrites the oldest.
    With a window of 4, tokens 0..5 end up in rows [4, 5, 2, 3].
    """

    def __init__(self, span: Span, reserved: int = 0) -> None:
        # rows of the ring buffer; None if the cache grows with the context
        self.capacity = ring_size(span)
        # rows to allocate with the first token, so that later tokens copy nothing
        self.reserved = self.length_after(reserved)
        self.tokens_seen = 0  # tokens that have been stored, whether or not they are still there
        self._rows: tuple[Tensor, ...] = ()

    def length_after(self, tokens: int) -> int:
        """Return the number of tokens in the cache once `tokens` have been stored."""
        if self.capacity is None:
            return tokens
        return min(tokens, self.capacity)

    @property
    def bytes(self) -> int:
        """Bytes of the tensors' storage."""
        return sum(row.untyped_storage().nbytes() for row in self._rows)

    @property
    def length(self) -> int:
        """Tokens that are in the cache now."""
        if self._rows:
            return min(self.tokens_seen, self._rows[0].shape[1])
        return 0

    @property
    def rows(self) -> tuple[Tensor, ...]:
        """The filled part of each tensor."""
        return tuple(row[:, : self.length] for row in self._rows)

    def positions_after(self, tokens: int, device: torch.device) -> Tensor:
        """Return the position of the token in each row, (length,), once `tokens` more have been
        stored.
        """
        seen = self.tokens_seen + tokens
        length = self.length_after(seen)
        return seen - 1 - (seen - 1 - torch.arange(length, device=device)) % length

    def extend(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Store S more tokens, each tensor (B, S, heads, width), and return the keys and values
        they may attend to.

        For one token these are the cache's rows. For several they are all old rows and all new
        ones: with a window
        of 4, the first of two new tokens still reaches a token that the second one overwrites.
        """
        tokens = new[0].shape[1]
        room = self._rows[0].shape[1] if self._rows else 0
        if not self._rows and self.reserved >= tokens:
            self._rows = tuple(
                row.new_empty(row.shape[0], self.reserved, *row.shape[2:]) for row in new
            )
            room = self.reserved
        if self.tokens_seen + tokens <= room:
            for row, new_row in zip(self._rows, new, strict=True):
                row[:, self.tokens_seen : self.tokens_seen + tokens] = new_row
            self.tokens_seen += tokens
            return self.rows
        if tokens == 1 and room and self.length_after(self.tokens_seen + 1) == room:
            for row, new_row in zip(self._rows, new, strict=True):
                row[:, self.tokens_seen % room] = new_row[:, 0]
            self.tokens_seen += 1
            return self.rows
        return self._grow(new)

    def _grow(self, new: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return old and new rows in the order of their tokens, and store those that the span
        reaches.
        """
        start = self.tokens_seen % self.length if self.length else 0
        past = [torch.roll(row, -start, dims=1) if start else row for row in self.rows]
        if past:
            ordered = tuple(torch.cat(pair, dim=1) for pair in zip(past, new, strict=True))
        else:
            ordered = new
        self.tokens_seen += new[0].shape[1]
        length = self.length_after(self.tokens_seen)
        tail = (row[:, row.shape[1] - length :] for row in ordered)
        self._rows = tuple(
            torch.roll(row, self.tokens_seen % length, dims=1).clone() for row in tail
        )
        return ordered
