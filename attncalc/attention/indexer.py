"""DeepSeek's lightning indexer: a small attention that picks the keys for the main attention."""

from ..records import NamedTuple
from ..workload import Mask, Run
from .kind import MULTIPLY_ADD, CacheSpec, Matrix
from .picked import Pools, Selected
from .span import FULL, pairs


def pooled_pairs(pool: int, run: Run, mask: Mask | None) -> int:
    """Return the pairs of queries and whole pools of that many tokens before them."""
    if mask is None:
        return run.new * (run.context // pool)
    return pairs(Pools(pool), run, mask)


class Indexer(NamedTuple):
    """An indexer: small query heads that share one key head and score every key. It is replicated
    on every device.

    Source: DeepSeek-V3.2, arXiv:2512.02556, 2.1; transformers' modeling_deepseek_v32.py; vLLM and
    SGLang.
    """

    n_heads: int  # query heads
    d_head: int  # width of a head
    pool: int | None = None  # tokens whose keys are pooled into one (GLM-5.3)
    # the dtype that its keys always have in the cache; None for the dtype of the cache
    dtype: str | None = None

    def matrices(self, d_model: int, d_query: int) -> tuple[Matrix, ...]:
        """Return its parameters. W_q has `d_query` rows, and the norm of the keys has a bias."""
        matrices = (
            Matrix("index_W_q", d_query, self.n_heads * self.d_head, 0, "queries"),
            Matrix("index_W_k", d_model, self.d_head, 0, "queries"),
            Matrix("index_k_norm", self.d_head, bias=self.d_head),
            Matrix("index_W_weights", d_model, self.n_heads, 0, "queries"),
        )
        if self.pool is None:
            return matrices
        return (
            *matrices,
            Matrix("index_W_pool", d_model, self.d_head, 0, "queries"),
            Matrix("index_pool_positions", self.pool, self.d_head),
        )

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        """Return the FLOPs of its scores: each head's product with every visible key, and their
        weighted sum.
        """
        if self.pool is None:
            scored = pairs(FULL, run, mask)
        else:
            scored = pooled_pairs(self.pool, run, mask)
        return MULTIPLY_ADD * self.n_heads * scored * (self.d_head + 1)

    def cache(self) -> CacheSpec:
        """Return its cached keys, one per token; with pools each token also has a gate and a
        marker.
        """
        if self.pool is None:
            return CacheSpec("indexer keys", 1, self.d_head, dtype=self.dtype, role="indexer")
        span = Selected(self.pool, self.pool)
        return CacheSpec(
            "indexer keys",
            1,
            2 * self.d_head + 1,
            span=span,
            dtype=self.dtype,
            role="gated_averages",
        )
