"""Spans whose keys an indexer picks. Few models have one, so they are not imported at every start.

`span.py` defines what a span is.
"""

from ..quantity import documented, exact_div, minimum
from ..records import dataclass
from .span import HALF, Chunked, Narrow, capped_causal_pairs


class Picked(Narrow):
    """Shared by the spans whose keys an indexer picks: it may pick any token later, so the cache
    holds all of them.
    """

    reach = None

    def cached_tokens(self, n: int) -> int:
        return n


@dataclass(frozen=True)
class Selected(Picked):
    """The `topk` keys that an indexer picks for each query, among all earlier ones.

    With `pool`, the indexer picks whole pools of `pool` tokens, and the tokens after the last whole
    pool are always visible: with pools of 4, the 10th token sees 10 % 4 = 2 of them besides the
    picked ones.

    Source: DeepSeek-V3.2, arXiv:2512.02556, 2.1; transformers' modeling_glm5_next.py (pools).
    """

    topk: int = documented("keys that the indexer picks for a query", symbol="index_topk")
    pool: int | None = documented(
        "tokens that the indexer picks together", symbol="index_kpool", default=None
    )

    @property
    def label(self) -> str:
        return f"top {int(self.topk):,}"

    @property
    def description(self) -> str:
        return f"the {int(self.topk):,} tokens that an indexer picks"

    def visible_keys(self, n: int) -> int:
        return minimum(n, self.topk if self.pool is None else self.topk + n % self.pool)

    def causal_pairs(self, n: int) -> int:
        picked = capped_causal_pairs(self.topk, n)
        if self.pool is None:
            return picked
        # The tokens after the first `topk` also see those after the last whole pool: with pools of
        # 4, these are 1, 2, 3, 0, 1, 2, ... tokens.
        later_tokens = n - minimum(n, self.topk)
        rest = later_tokens % self.pool
        in_whole_pools = later_tokens // self.pool * exact_div(self.pool * (self.pool - 1), HALF)
        return picked + in_whole_pools + exact_div(rest * (rest + 1), HALF)


@dataclass(frozen=True)
class Blocks(Picked):
    """The `topk` blocks of `block` tokens that an indexer picks for each query; its own block is
    always picked.

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
        # The first topk * block tokens see every earlier token. Later ones see topk - 1 whole
        # blocks, and their own block up to themselves.
        m = minimum(n, self.topk * self.block)
        in_last_block = Chunked(self.block).causal_pairs(n - m)
        return (
            exact_div(m * (m + 1), HALF) + (n - m) * ((self.topk - 1) * self.block) + in_last_block
        )


@dataclass(frozen=True)
class Pools(Picked):
    """The whole pools of `size` tokens before a query: all, or the `topk` picked ones. Each pool is
    one key.
    """

    size: int = documented("tokens of a pool", symbol="size")
    topk: int | None = documented(
        "pools that an indexer picks for a query", symbol="index_topk", default=None
    )
    label = "pools"
    description = "pools of tokens"

    @property
    def tokens_per_row(self) -> int:  # type: ignore[override]
        return self.size

    def visible_keys(self, n: int) -> int:
        if self.topk is None:
            return n // self.size
        return minimum(n // self.size, self.topk)

    def causal_pairs(self, n: int) -> int:
        # The tokens up to `m` see all whole pools, later ones see `topk`. With pools of 4, tokens
        # 1..3 see none, 4..7 see 1 and 8..10 see 2: 4 * 1 + 3 * 2 = 10 pairs.
        m = n if self.topk is None else minimum(n, self.size * self.topk)
        pools = m // self.size
        rest = m % self.size
        uncapped = exact_div(pools * (pools - 1), HALF) * self.size + pools * (rest + 1)
        if self.topk is None:
            return uncapped
        return uncapped + (n - m) * self.topk

    def cached_tokens(self, n: int) -> int:
        return n // self.size
