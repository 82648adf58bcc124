"""Compressed attention whose pools several layers read (DeepSeek-V4.1)."""

from collections.abc import Iterator

from ..errors import AttncalcError
from ..records import dataclass
from .compressed import KEY_AND_GATE, Compressed, Unpooled
from .kind import CacheSpec, Matrix, Table, flag
from .picked import Pools


@dataclass(frozen=True)
class SharedPools(Compressed):
    """Compressed attention whose pools are computed and cached by a few layers, which own them, and
    read by the next.

    Pools do not overlap. With a compress_rate of 1, each token has a pool of its own. An owner also
    caches an indexer's key of each pool, which it computes from the pool. Layers with index_n_heads
    pick pools; the others reuse the picks of the layer before.

    Raises AttncalcError as `Compressed` does, or if an owner has no indexer.
    """

    owns_pools: bool = flag(
        "whether the layer computes and caches the pools", left_out="it reads an earlier layer's"
    )

    source = "DeepSeek-V4.1, transformers' modeling_deepseek_v41.py"

    def _check_indexer(self) -> None:
        if bool(self.compress_rate) != bool(self.index_topk) or bool(self.index_n_heads) != bool(
            self.index_head_dim
        ):
            raise AttncalcError(
                "index_topk: needs compress_rate, and index_n_heads needs index_head_dim",
                "give both of each",
            )
        if self.owns_pools and not (self.compress_rate and self.index_n_heads):
            raise AttncalcError(
                "owns_pools: needs compress_rate and an indexer", "give index_n_heads too"
            )

    @property
    def label(self) -> str:
        if self.compress_rate:
            return "CSA2"
        return "MQA"

    @property
    def headline(self) -> str:
        return super().headline.replace(", pools of", ", shared pools of")

    def _pool_matrices(self, size: int, d_model: int) -> Iterator[Matrix]:
        if not self.owns_pools or self.index_head_dim is None:
            return
        yield Matrix("pool_W_kv", d_model, self.d_head, 0, "queries")
        if int(size) > 1:
            yield Matrix("pool_W_gate", d_model, self.d_head, 0, "queries")
        yield Matrix("pool_norm", self.d_head)
        yield Matrix(
            "index_W_k", self.d_head, self.index_head_dim, 0, "table", table=Table(block=size)
        )
        yield Matrix("index_k_norm", self.index_head_dim)

    def cache(self) -> tuple[CacheSpec, ...]:
        window = CacheSpec(
            "K and V in one", 1, self.d_head, span=self.span_of_tokens, role="shared"
        )
        if not self.owns_pools or self.compress_rate is None or self.index_head_dim is None:
            return (window._replace(repeated=2),)
        span = Pools(self.compress_rate)
        pools = CacheSpec("pools", 1, self.d_head, span=span, role="pools")
        keys = CacheSpec("indexer's pools", 1, self.index_head_dim, span=span, role="index_pools")
        if int(self.compress_rate) == 1:
            return (window, pools, keys)
        rest = Unpooled(self.compress_rate)
        name = "pools: unpooled tokens"
        return (
            window,
            pools,
            keys,
            CacheSpec(name, KEY_AND_GATE, self.d_head, span=rest, dtype="fp32", role="unpooled"),
        )
