"""Grouped attention over the blocks of keys that an indexer picks for each query (MiniMax-M3)."""

from collections.abc import Mapping
from typing import Any

from ..errors import AttncalcError
from ..quantity import documented
from ..records import dataclass
from ..workload import Mask, Run
from .grouped import Grouped
from .indexer import pooled_pairs
from .kind import MULTIPLY_ADD, CacheSpec, Matrix, flag, plain_fields
from .picked import Blocks, Selected
from .span import FULL, Span, pairs


@dataclass(frozen=True, kw_only=True)
class BlockSparse(Grouped):
    """Grouped attention to at most index_topk_blocks blocks of keys, which an indexer picks.

    The indexer's index_n_heads small query heads share one key head and score every key. The
    query's own block is always picked. The indexer is replicated on every device.

    Source: transformers' modeling_minimax_m3_vl.py (MiniMaxM3VLIndexer), modeling_qwen4_exp.py
    (index_averages).
    """

    index_n_heads: int = documented("heads of the layer's own indexer")
    index_head_dim: int = documented("width of an indexer's head")
    index_block_size: int = documented("tokens of a block")
    index_topk_blocks: int = documented("blocks that the indexer picks for a query")
    index_averages: bool = flag(
        "whether it scores the average key of whole blocks; the tokens after the last one are "
        "always seen"
    )

    @classmethod
    def from_keys(cls, keys: Mapping[str, Any], d_model: int, span: Span) -> Grouped:
        if span != FULL:
            raise AttncalcError(
                "index_block_size: cannot be combined with a window or a chunk", "leave one out"
            )
        block = keys["index_block_size"]
        topk = keys["index_topk_blocks"]
        if keys.get("index_averages"):
            return super().from_keys(keys, d_model, Selected(block * topk, block))
        return super().from_keys(keys, d_model, Blocks(block, topk))

    source = (
        "MiniMax-M3 and Qwen4, transformers' modeling_minimax_m3_vl.py and modeling_qwen4_exp.py"
    )

    @property
    def headline(self) -> str:
        return (
            f"{super().headline}, {self.index_topk_blocks} blocks of {self.index_block_size} keys "
            "picked"
        )

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        return (
            *super().matrices(d_model, d_source),
            Matrix("index_W_q", d_model, self.index_n_heads * self.index_head_dim, 0, "queries"),
            Matrix("index_W_k", d_model, self.index_head_dim, 0, "queries"),
            Matrix("index_q_norm", self.index_head_dim),
            Matrix("index_k_norm", self.index_head_dim),
        )

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        scored = pairs(FULL, run, mask)
        if self.index_averages:
            scored = pooled_pairs(self.index_block_size, run, mask)
        return (
            MULTIPLY_ADD * self.index_n_heads * scored * self.index_head_dim
            + super().score_flops(run, mask)
        )

    def cache(self) -> tuple[CacheSpec, ...]:
        keys = CacheSpec("indexer keys", 1, self.index_head_dim, role="indexer")
        if self.index_averages:
            keys = keys._replace(span=self.span, role="averages")
        return (*super().cache(), keys)

    def notes(self, past: bool) -> tuple[str, ...]:
        return (
            "The indexer scores every key and picks blocks. Exact scores include its own; "
            "activations do not.",
        )

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            **{n: v for n, v in plain_fields(self).items() if n.startswith("index_")},
        }
