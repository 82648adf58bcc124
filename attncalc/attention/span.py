"""Spans: the positions a query can see at all, and exact counts of query-key pairs.

Any kind can have any span; a span knows no width and no byte. Positions count from 1: the n-th token
of a sequence sees `visible(n)` keys under a causal mask, itself included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..errors import AttncalcError
from ..quantity import documented, exact_div, minimum
from ..workload import Mask, Run


class Span(Protocol):
    """How far back a query sees."""

    @property
    def reach(self) -> int | None:
        """Tokens back that a query can see at the most; None for all there are."""

    @property
    def label(self) -> str:
        """'full', 'window 1,024', 'chunk 8,192'."""

    @property
    def description(self) -> str:
        """'the whole context', 'a window of 1,024 tokens', 'chunks of 8,192 tokens'."""

    def visible(self, n: int) -> int:
        """Keys that the n-th token sees under a causal mask."""

    def triangle(self, n: int) -> int:
        """Pairs among the first n tokens under a causal mask: visible(1) + ... + visible(n)."""

    def square(self, n: int) -> int:
        """Pairs among n tokens that all see each other as far as the span goes both ways."""

    def upper(self, n: int) -> int:
        """Pairs among n tokens in which the key comes after the query: square(n) - triangle(n)."""

    def cached_tokens(self, n: int) -> int:
        """Tokens a cache without pages holds after n tokens: as many as the span reaches."""


class Full:
    """Every position. All of its kind are equal."""

    reach = None
    label = "full"
    description = "the whole context"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Full)

    def __hash__(self) -> int:
        return hash(Full)

    def visible(self, n: int) -> int:
        return n

    def triangle(self, n: int) -> int:
        return exact_div(n * (n + 1), 2)

    def square(self, n: int) -> int:
        return n * n

    def upper(self, n: int) -> int:
        return exact_div(n * (n - 1), 2)

    def cached_tokens(self, n: int) -> int:
        return n


class _Narrow:
    """What a window and a chunk share: the pairs above the diagonal mirror those below it."""

    def triangle(self, n: int) -> int:
        raise NotImplementedError

    def upper(self, n: int) -> int:
        return self.triangle(n) - n

    def square(self, n: int) -> int:
        return 2 * self.triangle(n) - n


@dataclass(frozen=True)
class Sliding(_Narrow):
    """The nearest `window` positions, the query's own included: 0 <= i - j < window.

    A bidirectional mask makes it |i - j| < window. Source: Mistral 7B, arXiv:2310.06825, section 2.
    """

    window: int = documented("tokens of the sliding window, the query's own included", symbol="W")

    @property
    def reach(self) -> int:
        return self.window

    @property
    def label(self) -> str:
        return f"window {int(self.window):,}"

    @property
    def description(self) -> str:
        return f"a window of {int(self.window):,} tokens"

    def visible(self, n: int) -> int:
        return minimum(n, self.window)

    def triangle(self, n: int) -> int:
        return _at_most(self.window, n)

    def cached_tokens(self, n: int) -> int:
        return minimum(n, self.window)


@dataclass(frozen=True)
class Chunked(_Narrow):
    """Positions of the query's own chunk: i // chunk == j // chunk (counted from 0).

    Source: Llama 4's attention_chunk_size, transformers' masking_utils.py.
    """

    chunk: int = documented("tokens of an attention chunk", symbol="C")

    @property
    def reach(self) -> int:
        return self.chunk

    @property
    def label(self) -> str:
        return f"chunk {int(self.chunk):,}"

    @property
    def description(self) -> str:
        return f"chunks of {int(self.chunk):,} tokens"

    def visible(self, n: int) -> int:
        return (n - 1) % self.chunk + 1

    def triangle(self, n: int) -> int:
        rest = n % self.chunk
        whole = n // self.chunk * exact_div(self.chunk * (self.chunk + 1), 2)
        return whole + exact_div(rest * (rest + 1), 2)

    def cached_tokens(self, n: int) -> int:
        return minimum(n, self.chunk)


class Chosen(_Narrow):
    """What selections share: any token may be chosen later, so a cache keeps them all."""

    reach = None

    def cached_tokens(self, n: int) -> int:
        return n


@dataclass(frozen=True)
class Selected(Chosen):
    """The `topk` keys that an indexer picks for each query, of all before it.

    pool: it picks whole pools of so many tokens; those after the last whole pool are always seen.
    Source: DeepSeek-V3.2, arXiv:2512.02556, 2.1; transformers' modeling_glm5_next.py (pools).
    """

    topk: int = documented("keys that the indexer picks for a query", symbol="index_topk")
    pool: int | None = documented("tokens that the indexer picks together", symbol="index_kpool", default=None)

    @property
    def label(self) -> str:
        return f"top {int(self.topk):,}"

    @property
    def description(self) -> str:
        return f"the {int(self.topk):,} tokens that an indexer picks"

    def visible(self, n: int) -> int:
        return minimum(n, self.topk if self.pool is None else self.topk + n % self.pool)

    def triangle(self, n: int) -> int:
        found = _at_most(self.topk, n)
        if self.pool is None:
            return found
        more = n - minimum(n, self.topk)
        rest = more % self.pool
        whole = more // self.pool * exact_div(self.pool * (self.pool - 1), 2)
        return found + whole + exact_div(rest * (rest + 1), 2)


@dataclass(frozen=True)
class Blocks(Chosen):
    """`topk` blocks of `block` tokens that an indexer picks for each query, its own block among them.

    Source: transformers' modeling_minimax_m3_vl.py (MiniMax-M3).
    """

    block: int = documented("tokens of a block", symbol="index_block_size")
    topk: int = documented("blocks that the indexer picks for a query", symbol="index_topk_blocks")

    @property
    def label(self) -> str:
        return f"top {int(self.topk):,} x {int(self.block):,}"

    @property
    def description(self) -> str:
        return f"the {int(self.topk):,} blocks of {int(self.block):,} tokens that an indexer picks"

    def visible(self, n: int) -> int:
        return minimum(n, (self.topk - 1) * self.block + (n - 1) % self.block + 1)

    def triangle(self, n: int) -> int:
        m = minimum(n, self.topk * self.block)
        own = Chunked(self.block).triangle(n - m)
        return exact_div(m * (m + 1), 2) + (n - m) * ((self.topk - 1) * self.block) + own


@dataclass(frozen=True)
class Pools(Chosen):
    """Whole pools of `size` tokens before a query, each counted once: all of them, or the `topk` picked."""

    size: int = documented("tokens of a pool", symbol="size")
    topk: int | None = documented("pools that an indexer picks for a query", symbol="index_topk", default=None)
    label = "pools"
    description = "pools of tokens"

    def visible(self, n: int) -> int:
        return n // self.size if self.topk is None else minimum(n // self.size, self.topk)

    def triangle(self, n: int) -> int:
        all_seen = n if self.topk is None else minimum(n, self.size * self.topk)
        whole, rest = all_seen // self.size, all_seen % self.size
        found = exact_div(whole * (whole - 1), 2) * self.size + whole * (rest + 1)
        return found if self.topk is None else found + (n - all_seen) * self.topk

    def cached_tokens(self, n: int) -> int:
        return n // self.size


FULL = Full()


def _at_most(most: int, n: int) -> int:
    """min(1, most) + ... + min(n, most)."""
    m = minimum(n, most)
    return exact_div(m * (m + 1), 2) + (n - m) * most


def pairs(span: Span, run: Run, mask: Mask | None) -> int:
    """Query-key pairs of one sequence: its last `run.new` tokens ask among `run.context`.

    mask None: the dense rectangle S * T. AttncalcError: a bidirectional mask with tokens in the past,
    which could not have seen the new ones. (Workload refuses the like for a prefix.)
    """
    new, context = run.new, run.context
    if mask is None:
        return new * context
    if mask.kind == "bidirectional":
        refuse_past(run, mask)
        return span.square(context)
    if new == context:
        below = span.triangle(context)
        return below + span.upper(minimum(mask.prefix, context)) if mask.prefix else below
    if new == 1:
        return span.visible(context)
    return span.triangle(context) - span.triangle(context - new)


def refuse_past(run: Run, mask: Mask) -> None:
    """AttncalcError: a bidirectional mask with tokens in the past, which could not see the new ones."""
    if mask.kind == "bidirectional" and run.new != run.context:
        raise AttncalcError(
            "a bidirectional model has no decode step: every token sees every other at once",
            "ask for a prefill ('--phase prefill', without '--past'), or give '--mask causal'",
        )
