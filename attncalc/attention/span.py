"""Spans: the positions that a query can see, and exact counts of query-key pairs.

Any kind can have any span. Positions count from 1: under a causal mask, the n-th token of a sequence sees
`visible_keys(n)` keys, itself included.
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
        """Return the upper bound of the keys that a query sees; None without a bound."""

    @property
    def label(self) -> str:
        """Return its short name: 'full', 'window 1,024', 'chunk 8,192'."""

    @property
    def description(self) -> str:
        """Return it in words: 'the whole context', 'a window of 1,024 tokens', 'chunks of 8,192 tokens'."""

    def visible_keys(self, n: int) -> int:
        """Return the keys that the n-th token sees under a causal mask."""

    def causal_pairs(self, n: int) -> int:
        """Return the pairs among the first n tokens under a causal mask: visible_keys(1) + ... + visible_keys(n)."""

    def bidirectional_pairs(self, n: int) -> int:
        """Return the pairs among n tokens under a bidirectional mask, where the span applies in both directions."""

    def future_pairs(self, n: int) -> int:
        """Return the pairs among n tokens whose key comes after the query: bidirectional_pairs(n) - causal_pairs(n)."""

    def cached_tokens(self, n: int) -> int:
        """Return the tokens that a cache without pages holds after n tokens."""


class Full:
    """Every position. All instances are equal."""

    reach = None
    label = "full"
    description = "the whole context"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Full)

    def __hash__(self) -> int:
        return hash(Full)

    def visible_keys(self, n: int) -> int:
        return n

    def causal_pairs(self, n: int) -> int:
        return exact_div(n * (n + 1), 2)

    def bidirectional_pairs(self, n: int) -> int:
        return n * n

    def future_pairs(self, n: int) -> int:
        return exact_div(n * (n - 1), 2)

    def cached_tokens(self, n: int) -> int:
        return n


class _Narrow:
    """Shared by the spans that leave out keys: the pairs after a query mirror those before it."""

    def causal_pairs(self, n: int) -> int:
        raise NotImplementedError

    def future_pairs(self, n: int) -> int:
        return self.causal_pairs(n) - n

    def bidirectional_pairs(self, n: int) -> int:
        return 2 * self.causal_pairs(n) - n


@dataclass(frozen=True)
class Sliding(_Narrow):
    """The nearest `window` positions, with the query's own: 0 <= i - j < window.

    Under a bidirectional mask: |i - j| < window. Source: Mistral 7B, arXiv:2310.06825, section 2.
    """

    window: int = documented("tokens of the sliding window, with the query's own", symbol="W")

    @property
    def reach(self) -> int:
        return self.window

    @property
    def label(self) -> str:
        return f"window {int(self.window):,}"

    @property
    def description(self) -> str:
        return f"a window of {int(self.window):,} tokens"

    def visible_keys(self, n: int) -> int:
        return minimum(n, self.window)

    def causal_pairs(self, n: int) -> int:
        return _capped_causal_pairs(self.window, n)

    def cached_tokens(self, n: int) -> int:
        return minimum(n, self.window)


@dataclass(frozen=True)
class Chunked(_Narrow):
    """The positions of the query's own chunk: i // chunk == j // chunk, counted from 0.

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

    def visible_keys(self, n: int) -> int:
        return (n - 1) % self.chunk + 1

    def causal_pairs(self, n: int) -> int:
        rest = n % self.chunk
        whole = n // self.chunk * exact_div(self.chunk * (self.chunk + 1), 2)
        return whole + exact_div(rest * (rest + 1), 2)

    def cached_tokens(self, n: int) -> int:
        return minimum(n, self.chunk)


class Picked(_Narrow):
    """Shared by the spans whose keys an indexer picks: it may pick any token later, so the cache holds all of them."""

    reach = None

    def cached_tokens(self, n: int) -> int:
        return n


@dataclass(frozen=True)
class Selected(Picked):
    """The `topk` keys that an indexer picks for each query, among all earlier ones.

    With `pool`, the indexer picks whole pools of `pool` tokens, and the tokens after the last whole pool are always
    visible: with pools of 4, the 10th token sees 10 % 4 = 2 of them besides the picked ones.

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

    def visible_keys(self, n: int) -> int:
        return minimum(n, self.topk if self.pool is None else self.topk + n % self.pool)

    def causal_pairs(self, n: int) -> int:
        picked = _capped_causal_pairs(self.topk, n)
        if self.pool is None:
            return picked
        # The tokens after the first `topk` also see those after the last whole pool: with pools of 4, these are
        # 1, 2, 3, 0, 1, 2, ... tokens.
        later_tokens = n - minimum(n, self.topk)
        rest = later_tokens % self.pool
        in_whole_pools = later_tokens // self.pool * exact_div(self.pool * (self.pool - 1), 2)
        return picked + in_whole_pools + exact_div(rest * (rest + 1), 2)


@dataclass(frozen=True)
class Blocks(Picked):
    """The `topk` blocks of `block` tokens that an indexer picks for each query; its own block is always picked.

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

    def visible_keys(self, n: int) -> int:
        return minimum(n, (self.topk - 1) * self.block + (n - 1) % self.block + 1)

    def causal_pairs(self, n: int) -> int:
        # The first topk * block tokens see every earlier token. Later ones see topk - 1 whole blocks, and their own
        # block up to themselves.
        m = minimum(n, self.topk * self.block)
        in_last_block = Chunked(self.block).causal_pairs(n - m)
        return exact_div(m * (m + 1), 2) + (n - m) * ((self.topk - 1) * self.block) + in_last_block


@dataclass(frozen=True)
class Pools(Picked):
    """The whole pools of `size` tokens before a query: all, or the `topk` picked ones. Each pool is one key."""

    size: int = documented("tokens of a pool", symbol="size")
    topk: int | None = documented("pools that an indexer picks for a query", symbol="index_topk", default=None)
    label = "pools"
    description = "pools of tokens"

    def visible_keys(self, n: int) -> int:
        return n // self.size if self.topk is None else minimum(n // self.size, self.topk)

    def causal_pairs(self, n: int) -> int:
        # The tokens up to `m` see all whole pools, later ones see `topk`. With pools of 4, tokens 1..3 see none, 4..7
        # see 1 and 8..10 see 2: 4 * 1 + 3 * 2 = 10 pairs.
        m = n if self.topk is None else minimum(n, self.size * self.topk)
        pools, rest = m // self.size, m % self.size
        uncapped = exact_div(pools * (pools - 1), 2) * self.size + pools * (rest + 1)
        return uncapped if self.topk is None else uncapped + (n - m) * self.topk

    def cached_tokens(self, n: int) -> int:
        return n // self.size


FULL = Full()


def _capped_causal_pairs(limit: int, n: int) -> int:
    """Return the pairs if a token sees at most `limit` keys: min(1, limit) + ... + min(n, limit)."""
    m = minimum(n, limit)
    return exact_div(m * (m + 1), 2) + (n - m) * limit


def pairs(span: Span, run: Run, mask: Mask | None) -> int:
    """Return the query-key pairs of one sequence: its last `run.new` tokens are queries, all `run.context` are keys.

    With mask None, these are all S * T pairs.

    Raises AttncalcError for a bidirectional mask with tokens in the past, which could not have seen the new ones.
    Workload raises it for a prefix.
    """
    new, context = run.new, run.context
    if mask is None:
        return new * context
    if mask.kind == "bidirectional":
        check_mask(run, mask)
        return span.bidirectional_pairs(context)
    if new == context:
        causal = span.causal_pairs(context)
        return causal + span.future_pairs(minimum(mask.prefix, context)) if mask.prefix else causal
    if new == 1:
        return span.visible_keys(context)
    return span.causal_pairs(context) - span.causal_pairs(context - new)


def check_mask(run: Run, mask: Mask) -> None:
    """Raise AttncalcError for a bidirectional mask with tokens in the past, which could not have seen the new ones."""
    if mask.kind == "bidirectional" and run.new != run.context:
        raise AttncalcError(
            "a bidirectional model has no decode step: every token sees every other",
            "choose '--phase prefill' without '--past', or '--mask causal'",
        )
