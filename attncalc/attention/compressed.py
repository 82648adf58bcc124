"""Compressed attention (DeepSeek-V4): a window of keys, and pools of earlier tokens with one key
each.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import AttncalcError
from ..quantity import Constant, documented, exact_div, minimum
from ..records import dataclass
from ..workload import Mask, Run
from .indexer import pooled_pairs
from .kind import (
    MULTIPLY_ADD,
    QK_AND_PV,
    CacheSpec,
    Matrix,
    Role,
    Widths,
    give_one_of,
    no_saved_tensors,
    plain_fields,
    tps,
)
from .picked import Picked, Pools
from .saved import Forward, SavedTensor
from .span import FULL, Span, pairs

KEY_AND_GATE = Constant(2, "tensors of a token: its key and its gate")


class Unpooled(Pools):
    """The tokens after the last whole pool, which are cached until their pool is complete."""

    tokens_per_row = 0

    def cached_tokens(self, n: int) -> int:
        return n % self.size


class LastPool(Pools):
    """The tokens of the last whole pool, which are cached because the next pool overlaps it."""

    tokens_per_row = 0

    def cached_tokens(self, n: int) -> int:
        return minimum(n // self.size, 1) * self.size


@dataclass(frozen=True)
class WindowAndPools(Picked):
    """The tokens of a window, and the whole pools before a query."""

    window: Span  # the span of single tokens
    pools: Pools  # the span of pools

    @property
    def label(self) -> str:
        """'128 + 512 x 4' for 128 single tokens and 512 pools of 4; '128 + all x 128' without an
        indexer.
        """
        picked = f"{int(self.pools.topk):,}" if self.pools.topk else "all"
        return f"{self.window.label.removeprefix('window ')} + {picked} x {int(self.pools.size):,}"

    @property
    def description(self) -> str:
        return f"{self.window.description} and pools of {int(self.pools.size):,}"

    def visible_keys(self, n: int) -> int:
        return self.window.visible_keys(n) + self.pools.visible_keys(n)

    def causal_pairs(self, n: int) -> int:
        return self.window.causal_pairs(n) + self.pools.causal_pairs(n)

    def cached_tokens(self, n: int) -> int:
        return self.window.cached_tokens(n) + self.pools.cached_tokens(n)


@dataclass(frozen=True)
class Compressed:
    """n_heads query heads of d_head over one head whose keys are also the values.

    A query sees the tokens of its window and, with a compress_rate, the whole pools of
    compress_rate tokens before it: all of them, or the index_topk that an indexer picks. The
    indexer has pools of its own. Pools of a layer with an indexer overlap the pool before, so they
    have two parts. The output is projected in o_groups groups of heads.

    Raises AttncalcError for an incomplete indexer, or if o_groups does not divide n_heads.
    """

    n_heads: int = documented("query heads")
    d_head: int = documented("width of a query and a key head")
    q_lora_rank: int = documented("width of the queries' latent")
    o_groups: int = documented("groups of heads in the output projection")
    o_lora_rank: int = documented("width of the output's latent of each group")
    compress_rate: int | None = documented(
        "tokens that are pooled into one key", left_out="no pools", default=None
    )
    index_topk: int | None = documented(
        "keys that an indexer picks for a query", left_out="all of them", default=None
    )
    index_n_heads: int | None = documented(
        "heads of the layer's own indexer", left_out="it has none", default=None
    )
    index_head_dim: int | None = documented("width of an indexer's head", default=None)
    span: Span = FULL

    source = "DeepSeek-V4, transformers' modeling_deepseek_v4.py"

    @classmethod
    def from_keys(cls, keys: Mapping[str, Any], d_model: int, span: Span) -> "Compressed":
        if "compress_rate" in keys:
            span = WindowAndPools(span, Pools(keys["compress_rate"], keys.get("index_topk")))
        return cls(**keys, span=span)

    def __post_init__(self) -> None:
        self._check_indexer()
        if self.n_heads % self.o_groups:
            raise AttncalcError(
                f"o_groups: {self.o_groups} does not divide n_heads {self.n_heads}",
                "give a divisor of n_heads, as 1",
            )

    def _check_indexer(self) -> None:
        index = (self.index_topk, self.index_n_heads, self.index_head_dim)
        if any(index) and not (all(index) and self.compress_rate):
            raise AttncalcError(
                "index_topk: needs index_n_heads, index_head_dim and compress_rate", "give all four"
            )

    @property
    def label(self) -> str:
        if self.index_topk:
            return "CSA"
        if self.compress_rate:
            return "HCA"
        return "MQA"

    @property
    def tag(self) -> str:
        if self.compress_rate:
            return f"{self.label}-{self.compress_rate}"
        return self.label

    @property
    def headline(self) -> str:
        pools = f", pools of {self.compress_rate}" if self.compress_rate else ""
        picked = f", {self.index_topk} picked by an indexer" if self.index_topk else ""
        heads = f"{self.n_heads} query heads x {self.d_head}"
        return f"attention with one head whose keys are also the values, {heads}{pools}{picked}"

    @property
    def _parts(self) -> int:
        """Return the parts of a pool: 2 if it overlaps the pool before."""
        if self.index_topk:
            return 2
        return 1

    def _pool_matrices(self, size: int, d_model: int) -> Iterator[Matrix]:
        """Yield the matrices that compute the keys of pools: those of the layer, and of its
        indexer.
        """
        yield from self._pooling("pool", size, d_model, self.d_head)
        if self.index_head_dim:
            yield from self._pooling("index", size, d_model, self.index_head_dim)

    def _pooling(self, name: str, size: int, d_model: int, width: int) -> tuple[Matrix, ...]:
        """Return the matrices that compute pools of `size` keys of `width`."""
        pooled_width = self._parts * width
        return (
            Matrix(f"{name}_W_kv", d_model, pooled_width, 0, "queries"),
            Matrix(f"{name}_W_gate", d_model, pooled_width, 0, "queries"),
            Matrix(f"{name}_positions", size, pooled_width),
            Matrix(f"{name}_norm", width),
        )

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        matrices = [
            Matrix("W_q_a", d_model, self.q_lora_rank, 0, "queries"),
            Matrix("q_a_norm", self.q_lora_rank),
            Matrix("W_q_b", self.q_lora_rank, self.n_heads * self.d_head, 0, "queries"),
            Matrix("W_kv", d_model, self.d_head, 0, "queries"),
            Matrix("kv_norm", self.d_head),
        ]
        if self.compress_rate:
            matrices += self._pool_matrices(self.compress_rate, d_model)
        if self.index_n_heads and self.index_head_dim:
            width = self.index_n_heads * self.index_head_dim
            matrices.append(Matrix("index_W_q", self.q_lora_rank, width, 0, "queries"))
            matrices.append(Matrix("index_W_weights", d_model, self.index_n_heads, 0, "queries"))
        # each group of heads is multiplied only by its own columns
        group = exact_div(self.n_heads * self.d_head, self.o_groups)
        matrices.append(Matrix("W_o_a", group, self.o_groups * self.o_lora_rank, 0, "queries"))
        matrices.append(Matrix("W_o_b", self.o_groups * self.o_lora_rank, d_model, 0, "queries"))
        return (*matrices, Matrix("sinks", self.n_heads))

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        # With mask None, `pairs` counts single tokens only; every query then sees all context //
        # compress_rate pools.
        visible_pairs = pairs(self.span, run, mask)
        indexer_flops = 0
        if self.compress_rate:
            all_pools = run.new * (run.context // self.compress_rate)
            visible_pairs = visible_pairs + all_pools if mask is None else visible_pairs
            if self.index_n_heads and self.index_head_dim:
                scored = pooled_pairs(self.compress_rate, run, mask)
                indexer_flops = MULTIPLY_ADD * self.index_n_heads * scored * self.index_head_dim
        return indexer_flops + MULTIPLY_ADD * self.n_heads * visible_pairs * (
            QK_AND_PV * self.d_head
        )

    @property
    def span_of_tokens(self) -> Span:
        if isinstance(self.span, WindowAndPools):
            return self.span.window
        return self.span

    def cache(self) -> tuple[CacheSpec, ...]:
        window = CacheSpec(
            "K and V in one", 1, self.d_head, span=self.span_of_tokens, role="shared"
        )
        if not self.compress_rate:  # transformers caches the same tensor as K and as V
            return (window._replace(repeated=2),)
        pools = self._pools("pools", self.compress_rate, self.d_head)
        if not self.index_head_dim:
            return (window, *pools)
        return (
            window,
            *pools,
            *self._pools("indexer's pools", self.compress_rate, self.index_head_dim, "index_pools"),
        )

    def _pools(
        self, name: str, size: int, width: int, role: Role = "pools"
    ) -> tuple[CacheSpec, ...]:
        """Return the pooled keys, and the keys and gates of tokens that are still to be pooled, or
        pooled again.
        """
        pooled = CacheSpec(name, 1, width, span=Pools(size), role=role)
        unpooled = CacheSpec(
            f"{name}: unpooled tokens",
            KEY_AND_GATE * self._parts,
            width,
            span=Unpooled(size),
            role="unpooled",
        )
        overlap = CacheSpec(
            f"{name}: last pool's tokens", 2, width, span=LastPool(size), role="last_pool"
        )
        if self.index_topk:
            return (pooled, unpooled, overlap)
        return (pooled, unpooled)

    def widths(self, run: Run | None = None) -> Widths:
        return Widths(self.n_heads, 1, self.d_head, self.d_head)

    def saved_tensors(self, forward: Forward) -> tuple[SavedTensor, ...]:
        raise no_saved_tensors(self.headline)

    def notes(self, past: bool) -> tuple[str, ...]:
        if not self.compress_rate:
            return ()
        return (
            "Scores include those of pools and of the indexer. Activations leave out the "
            "indexer's.",
        )

    def with_span(self, span: Span) -> "Compressed":
        if isinstance(self.span, WindowAndPools):
            span = dataclasses.replace(self.span, window=span)
        return dataclasses.replace(self, span=span)

    def shard(self, tp: int) -> "Compressed":
        if self.n_heads % tp or self.o_groups % tp:
            raise AttncalcError(
                f"--tp {int(tp)} does not divide {self.n_heads} heads in {self.o_groups} groups",
                give_one_of(tps(lambda n: self.n_heads % n == 0 and self.o_groups % n == 0)),
            )
        return dataclasses.replace(
            self, n_heads=exact_div(self.n_heads, tp), o_groups=exact_div(self.o_groups, tp)
        )

    def facts(self) -> dict[str, Any]:
        return {"kind": self.label, **plain_fields(self), "span": self.span.label}
