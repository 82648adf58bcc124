"""Grouped attention over the blocks of keys that an indexer picks for each query (MiniMax-M3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import AttncalcError
from ..quantity import documented
from ..records import dataclass
from ..workload import Mask, Run
from .grouped import Grouped
from .kind import MULTIPLY_ADD, CacheSpec, Matrix
from .picked import Blocks
from .span import FULL, Span, pairs


@dataclass(frozen=True, kw_only=True)
class BlockSparse(Grouped):
    """Grouped attention to at most index_topk_blocks blocks of keys, which an indexer picks.

    The indexer's index_n_heads small query heads share one key head and score every key. The query's own block is
    always picked. The indexer is replicated on every device.

    Source: transformers' modeling_minimax_m3_vl.py (MiniMaxM3VLIndexer).
    """

    index_n_heads: int = documented("heads of the layer's own indexer")
    index_head_dim: int = documented("width of an indexer's head")
    index_block_size: int = documented("tokens of a block")
    index_topk_blocks: int = documented("blocks that the indexer picks for a query")

    @classmethod
    def from_keys(cls, keys: Mapping[str, Any], d_model: int, span: Span) -> Grouped:
        if span != FULL:
            raise AttncalcError("index_block_size: cannot be combined with a window or a chunk", "leave one out")
        return super().from_keys(keys, d_model, Blocks(keys["index_block_size"], keys["index_topk_blocks"]))

    source = "MiniMax-M3, transformers' modeling_minimax_m3_vl.py (block-sparse attention)"

    @property
    def headline(self) -> str:
        return f"{super().headline}, {self.index_topk_blocks} blocks of {self.index_block_size} keys picked"

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        return (
            *super().matrices(d_model, d_source),
            Matrix("index_W_q", d_model, self.index_n_heads * self.index_head_dim, 0, "queries"),
            Matrix("index_W_k", d_model, self.index_head_dim, 0, "queries"),
            Matrix("index_q_norm", self.index_head_dim),
            Matrix("index_k_norm", self.index_head_dim),
        )

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        indexer_flops = MULTIPLY_ADD * self.index_n_heads * pairs(FULL, run, mask) * self.index_head_dim
        return indexer_flops + super().score_flops(run, mask)

    def cache(self) -> tuple[CacheSpec, ...]:
        return (*super().cache(), CacheSpec("indexer keys", 1, self.index_head_dim))

    def notes(self, past: bool) -> tuple[str, ...]:
        return ("The indexer scores every key and picks blocks. Exact scores include its own; activations do not.",)

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), **{n: int(v) for n, v in vars(self).items() if n.startswith("index_")}}
