"""Multi-head latent attention (MLA): the cache holds one compressed latent per token for all
heads.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from ..errors import AttncalcError
from ..quantity import COUNT, documented, minimum
from ..records import dataclass
from ..workload import Mask, Run
from .indexer import Indexer
from .kind import (
    MULTIPLY_ADD,
    QK_AND_PV,
    CacheSpec,
    Matrix,
    Widths,
    extra_projections,
    extra_vectors,
    flag,
    gate,
    gate_width,
    matrices_from_shapes,
    no_saved_tensors,
    plain_fields,
    tp_share,
)
from .picked import Selected
from .saved import (
    Forward,
    SavedTensor,
    kernel_tensors,
    matrix_input,
    norm_tensors,
    scales_of_queries,
)
from .span import FULL, Span, pairs


@dataclass(frozen=True)
class Latent:
    """n_heads heads whose K and V are expanded from a latent of kv_lora_rank and a shared rotary
    key.

    Without tokens in the past, W_kv_b expands K and V of the new tokens. In a decode step W_kv_b is
    absorbed into the query and the output, and all heads read the latent itself, as DeepSeek's
    inference code and the engines do. For several new tokens after a past, the cheaper way is
    counted: absorbed, or expanding the latents of the past again.

    With index_topk, a query attends only to the keys that an indexer picks (DeepSeek-V3.2's sparse
    attention). A layer without index_n_heads reuses the keys that an earlier layer's indexer
    picked.

    Raises AttncalcError for an incomplete indexer.
    """

    n_heads: int = documented("query heads")
    kv_lora_rank: int = documented("width of the cached latent of K and V")
    d_nope: int = documented("width of a head's part without rotary position (qk_nope_head_dim)")
    d_rope: int = documented(
        "width of a head's rotary part, whose key all heads share (qk_rope_head_dim)",
        schema={**COUNT, "minimum": 0},
    )
    d_v: int = documented("width of a value head (v_head_dim)")
    q_lora_rank: int | None = documented(
        "width of the queries' latent", left_out="queries are not compressed", default=None
    )
    extra_vectors: int | None = extra_vectors()
    gate: bool | Literal["head"] = gate()
    shares_kv: bool = flag(
        "reads the latents of an earlier layer: has no W_kv_a and no cache (Mistral Large 4)"
    )
    caches_heads: bool = flag(
        "caches K and V of every head instead of the latent (a GGUF from before April 2025)"
    )
    extra_projections: tuple[Matrix, ...] = extra_projections()
    index_topk: int | None = documented(
        "keys that an indexer picks for a query", left_out="all of them", default=None
    )
    index_n_heads: int | None = documented(
        "heads of the layer's own indexer", left_out="it has none", default=None
    )
    index_head_dim: int | None = documented("width of an indexer's head", default=None)
    index_kpool: int | None = documented("tokens that the indexer picks together", default=None)
    index_dtype: Literal["fp32"] | None = documented(
        "dtype of the indexer's cached keys",
        left_out="the dtype of the cache",
        default=None,
        schema={"enum": ["fp32"]},
    )
    span: Span = FULL

    @classmethod
    def from_keys(cls, keys: Mapping[str, Any], d_model: int, span: Span) -> "Latent":
        keys = dict(keys)
        extra = matrices_from_shapes(keys.pop("extra_projections", {}), "queries")
        if "index_topk" in keys:
            if span != FULL:
                raise AttncalcError(
                    "index_topk: cannot be combined with a window or a chunk",
                    "leave out one of them",
                )
            span = Selected(keys["index_topk"], keys.get("index_kpool"))
        return cls(**keys, extra_projections=extra, span=span)

    def __post_init__(self) -> None:
        indexer = (self.index_n_heads, self.index_head_dim)
        if None in indexer and (indexer != (None, None) or self.index_dtype):
            raise AttncalcError(
                "index_n_heads: must be given together with index_head_dim", "give both, or neither"
            )
        if self.caches_heads and self.index_topk:
            raise AttncalcError(
                "caches_heads: cannot be combined with an indexer, which picks latents",
                "leave one of them out",
            )
        if self.index_topk is None and (self.index_n_heads or self.index_kpool):
            raise AttncalcError(
                "index_topk: is missing, but there is an indexer", "give the number of picked keys"
            )
        if self.index_topk and self.index_kpool and self.index_topk % self.index_kpool:
            raise AttncalcError(
                f"index_kpool: {self.index_kpool} does not divide index_topk {self.index_topk}",
                "the indexer picks whole pools: give a divisor of index_topk, as 1",
            )

    @property
    def indexer(self) -> Indexer | None:
        """Return the layer's own indexer, if it has one."""
        if self.index_n_heads is None or self.index_head_dim is None:
            return None
        return Indexer(self.index_n_heads, self.index_head_dim, self.index_kpool, self.index_dtype)

    @property
    def source(self) -> str:
        paper = "DeepSeek-V2, arXiv:2405.04434, 2.1 and appendix C; DeepSeek-V3, arXiv:2412.19437"
        if self.index_topk:
            return f"{paper}; DeepSeek-V3.2, arXiv:2512.02556, 2.1 (indexer)"
        return paper

    @property
    def label(self) -> str:
        return "MLA"

    @property
    def tag(self) -> str:
        return f"MLA-{self.kv_lora_rank}"

    @property
    def headline(self) -> str:
        rope = f" + {self.d_rope}" if self.d_rope else ""
        if self.index_topk:
            picked = f", {self.index_topk:,} keys picked by an indexer"
        else:
            picked = ""
        if self.caches_heads:
            picked = ", K and V of every head cached"
        return (
            f"multi-head latent attention, {self.n_heads} heads x {self.d_nope}{rope}, "
            f"latent {self.kv_lora_rank}{rope}{picked}"
        )

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        q = self.n_heads * (self.d_nope + self.d_rope)
        if self.q_lora_rank is None:
            queries = [Matrix("W_q", d_model, q, 0, "queries")]
        else:
            queries = [
                Matrix("W_q_a", d_model, self.q_lora_rank, 0, "queries"),
                Matrix("q_a_norm", self.q_lora_rank),
                Matrix("W_q_b", self.q_lora_rank, q, 0, "queries"),
            ]
        if self.shares_kv:
            latent = []
        else:
            latent = [
                Matrix("W_kv_a", d_source, self.kv_lora_rank + self.d_rope, 0, "keys"),
                Matrix("kv_a_norm", self.kv_lora_rank),
            ]
        out = self.n_heads * self.d_v
        expanded = self.n_heads * (self.d_nope + self.d_v)
        matrices = [
            *queries,
            *latent,
            # Absorbed or expanded, its weights multiply each new token once.
            Matrix("W_kv_b", self.kv_lora_rank, expanded, 0, "keys"),
        ]
        if self.gate:
            width = gate_width(self.gate, self.n_heads, self.d_v)
            matrices.append(Matrix("W_gate", d_model, width, 0, "queries"))
        if self.indexer:
            matrices += self.indexer.matrices(d_model, self.q_lora_rank or d_model)
        matrices += self.extra_projections
        matrices.append(Matrix("W_o", out, d_model, 0, "queries"))
        if self.extra_vectors:
            matrices.append(Matrix("vectors", self.extra_vectors))
        return tuple(matrices)

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        indexer_flops = self.indexer.score_flops(run, mask) if self.indexer else 0
        return indexer_flops + self._attention_flops(run, pairs(self.span, run, mask))

    def _attention_flops(self, run: Run, visible_pairs: int) -> int:
        """Return the FLOPs of QK and PV for that number of query-key pairs."""
        expanded = (
            MULTIPLY_ADD * self.n_heads * visible_pairs * (self.d_nope + self.d_rope + self.d_v)
        )
        if run.new == run.context or self.caches_heads:
            return expanded
        # QK over the latent and the rotary key, PV over the latent
        absorbed = (
            MULTIPLY_ADD
            * self.n_heads
            * visible_pairs
            * (QK_AND_PV * self.kv_lora_rank + self.d_rope)
        )
        # absorbed is always cheaper for one query, so the formula leaves out the minimum
        if run.new == 1:
            return absorbed
        past = run.context - run.new
        expand_past = (
            MULTIPLY_ADD * past * self.kv_lora_rank * self.n_heads * (self.d_nope + self.d_v)
        )
        return minimum(absorbed, expanded + expand_past)

    def cache(self) -> tuple[CacheSpec, ...]:
        if self.caches_heads and not self.shares_kv:
            return (
                CacheSpec("K", self.n_heads, self.d_nope + self.d_rope, span=self.span, role="k"),
                CacheSpec("V", self.n_heads, self.d_v, span=self.span, role="v"),
            )
        width = self.kv_lora_rank + self.d_rope
        latent = CacheSpec(
            "latent and rotary key", 1, width, span=self.span, role="latent", rotary=self.d_rope
        )
        own = () if self.shares_kv else (latent,)
        if self.indexer:
            return (*own, self.indexer.cache())
        return own

    def widths(self, run: Run | None = None) -> Widths:
        latent = self.kv_lora_rank + self.d_rope
        gate = gate_width(self.gate, self.n_heads, self.d_v)
        has_past = run and run.new != run.context
        if has_past and not self.caches_heads:  # absorbed: the latent itself is the one KV head
            return Widths(self.n_heads, 1, latent, self.kv_lora_rank, gate=gate)
        # V is a view of the output of W_kv_b, so that tensor is held with the part that K was
        # copied from.
        extra = latent + self.n_heads * self.d_nope
        return Widths(
            self.n_heads, self.n_heads, self.d_nope + self.d_rope, self.d_v, extra, gate=gate
        )

    def saved_tensors(self, forward: Forward) -> tuple[SavedTensor, ...]:
        # q joins two parts; an indexer runs without gradients
        f = forward._replace(math=forward.math._replace(joins_heads=True))
        d_qk = self.d_nope + self.d_rope
        parts = {"a gate": self.gate, "K and V of another layer": self.shares_kv}
        for part, present in {**parts, "further projections": self.extra_projections}.items():
            if present:
                raise no_saved_tensors(self.headline, part)
        first = "W_q" if self.q_lora_rank is None else "W_q_a"
        tensors = [matrix_input(f, f.d_model, (first, "W_kv_a"))]
        ranks = [("kv_a_norm", "W_kv_b", self.kv_lora_rank)]
        if self.q_lora_rank is not None:
            ranks.insert(0, ("q_a_norm", "W_q_b", self.q_lora_rank))
        for norm, matrix, rank in ranks:
            tensors += norm_tensors(f, f.tokens, rank, norm, "attention")
            # its input is a view of W_kv_a's whole output
            if norm == "kv_a_norm" and not (f.upcasts and f.is_half):
                rotary = f.bytes * f.tokens * self.d_rope
                tensors.append(
                    SavedTensor("rotary part of W_kv_a's output", "the norm's input", rotary)
                )
            tensors.append(matrix_input(f, rank, (matrix,), f"input of {matrix}"))
        tensors += scales_of_queries(f, self.span)
        if self.index_topk and f.kernel in ("flash", "efficient", "cudnn"):
            mask = f.bytes * f.B * f.S * f.T
            tensors.append(
                SavedTensor("mask of the picked keys", "the kernel", mask, is_score=True)
            )
        # K joins its two parts in a new tensor; V is a view of the output of W_kv_b, which is held
        # whole.
        kernel = kernel_tensors(f, self.n_heads, self.n_heads, d_qk, self.d_v)
        if f.kernel == "math" or (f.is_eager and f.B != 1):  # which copy V
            return (*tensors, *kernel)
        whole = f.bytes * f.tokens * self.n_heads * (self.d_nope + self.d_v)
        return (
            *tensors,
            *(
                t._replace(name="output of W_kv_b", size=whole) if t.name == "v" else t
                for t in kernel
            ),
        )

    def notes(self, past: bool) -> tuple[str, ...]:
        if past and self.caches_heads:
            kv_b = (
                "K and V of every head are cached: MLA's up-projection of the latent (W_kv_b) "
                "expands those of the new tokens."
            )
        elif past:
            kv_b = (
                "MLA's up-projection of the latent (W_kv_b) is absorbed: all heads read the "
                "latent itself."
            )
        else:
            kv_b = "MLA's up-projection of the latent (W_kv_b) expands K and V of the new tokens."
        if self.index_topk is None:
            return (kv_b,)
        return (
            kv_b,
            f"An indexer picks {int(self.index_topk):,} keys. Exact scores include its own; "
            "activations do not.",
        )

    def with_span(self, span: Span) -> "Latent":
        return dataclasses.replace(self, span=span)

    def shard(self, tp: int) -> "Latent":
        # Heads are split; W_q_a, W_kv_a and the latent are replicated on every device (vLLM,
        # SGLang).
        heads = tp_share(self.n_heads, tp, f"{self.n_heads} heads")
        return dataclasses.replace(self, n_heads=heads)

    def facts(self) -> dict[str, Any]:
        fields = plain_fields(self)
        sizes = (
            "n_heads",
            "q_lora_rank",
            "kv_lora_rank",
            "d_nope",
            "d_rope",
            "d_v",
            "gate",
            "shares_kv",
            "caches_heads",
        )
        names = (*sizes, *(name for name in fields if name.startswith("index_")))
        return {
            "kind": self.label,
            **{name: fields[name] for name in names},
            "span": self.span.label,
        }
