"""Multi-head latent attention (MLA): the cache holds one compressed latent a token for all heads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import AttncalcError
from ..quantity import exact_div, minimum, term
from ..workload import Mask, Run
from .kind import Cached, Matrix, Widths
from .span import FULL, Span, pairs


@dataclass(frozen=True)
class Latent:
    """n_heads heads whose K and V are expanded from a latent of kv_lora_rank and a shared rotary key.

    The config's qk_nope_head_dim, qk_rope_head_dim and v_head_dim are d_nope, d_rope and d_v here.
    Without a past, K and V are expanded (W_kv_b on the new tokens). In a decode step W_kv_b is absorbed
    into the query and the output and all heads read the latent itself, as DeepSeek's own inference
    code and the engines do. New tokens after a past take the cheaper of the two ways: absorbed, or
    expanding the past's latents again.
    """

    n_heads: int = term("query heads")
    kv_lora_rank: int = term("width of the cached latent of K and V")
    d_nope: int = term("width of a head's part without position (qk_nope_head_dim)")
    d_rope: int = term("width of the rotary part, shared by all heads as a key (qk_rope_head_dim)")
    d_v: int = term("width of a value head (v_head_dim)")
    q_lora_rank: int | None = term("width of the queries' latent", left_out="queries are not compressed", default=None)
    extra_vectors: int | None = term(
        "elements of further vectors: norms with a bias or of their own for each head, lambdas", default=None
    )
    span: Span = FULL

    @classmethod
    def required(cls) -> tuple[str, ...]:
        """The keys a preset must give."""
        return ("n_heads", "kv_lora_rank", "d_nope", "d_rope", "d_v")

    @classmethod
    def read(cls, given: Mapping[str, Any], d_model: int, span: Span) -> Latent:
        """From the keys of a preset."""
        return cls(**given, span=span)

    @property
    def source(self) -> str:
        return "DeepSeek-V2, arXiv:2405.04434, 2.1 and appendix C; DeepSeek-V3, arXiv:2412.19437"

    @property
    def label(self) -> str:
        return "MLA"

    @property
    def tag(self) -> str:
        return f"MLA-{self.kv_lora_rank}"

    @property
    def headline(self) -> str:
        return (
            f"multi-head latent attention, {self.n_heads} heads x {self.d_nope} + {self.d_rope}, "
            f"latent {self.kv_lora_rank} + {self.d_rope}"
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
        vectors = (Matrix("vectors", self.extra_vectors),) if self.extra_vectors else ()
        return (
            *queries,
            Matrix("W_kv_a", d_source, self.kv_lora_rank + self.d_rope, 0, "keys"),
            Matrix("kv_a_norm", self.kv_lora_rank),
            # Absorbed or expanded, its weights multiply each new token once.
            Matrix("W_kv_b", self.kv_lora_rank, self.n_heads * (self.d_nope + self.d_v), 0, "keys"),
            Matrix("W_o", self.n_heads * self.d_v, d_model, 0, "queries"),
            *vectors,
        )

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        seen = pairs(self.span, run, mask)
        expanded = 2 * self.n_heads * seen * (self.d_nope + self.d_rope + self.d_v)
        if run.new == run.context:
            return expanded
        # QK over the latent and the rotary key, PV over the latent
        absorbed = 2 * self.n_heads * seen * (2 * self.kv_lora_rank + self.d_rope)
        if run.new == 1:  # one query never pays for expanding the past again: the formula need not say so
            return absorbed
        past = run.context - run.new
        again = 2 * past * self.kv_lora_rank * self.n_heads * (self.d_nope + self.d_v)
        return minimum(absorbed, expanded + again)

    def cache(self) -> tuple[Cached, ...]:
        return (Cached("latent and rotary key", 1, self.kv_lora_rank + self.d_rope, span=self.span),)

    def widths(self, run: Run | None = None) -> Widths:
        latent = self.kv_lora_rank + self.d_rope
        if run and run.new != run.context:  # absorbed: the latent itself is the one KV head
            return Widths(self.n_heads, 1, latent, self.kv_lora_rank)
        # V is a view of what W_kv_b gave, which stays alive with the part that K was made from.
        extra = latent + self.n_heads * self.d_nope
        return Widths(self.n_heads, self.n_heads, self.d_nope + self.d_rope, self.d_v, extra=extra)

    def remarks(self, past: bool) -> tuple[str, ...]:
        if past:
            return ("MLA's up-projection of the latent (W_kv_b) is absorbed: all heads read the latent itself.",)
        return ("MLA's up-projection of the latent (W_kv_b) expands K and V of the new tokens.",)

    def with_span(self, span: Span) -> Latent:
        return dataclasses.replace(self, span=span)

    def shard(self, tp: int) -> Latent:
        # Heads are split; W_q_a, W_kv_a and the latent are whole on every device (vLLM, SGLang).
        if self.n_heads % tp:
            raise AttncalcError(
                f"--tp {int(tp)} does not divide {self.n_heads} heads",
                "tensor parallelism gives each device the same number of heads",
            )
        return dataclasses.replace(self, n_heads=exact_div(self.n_heads, tp))

    def facts(self) -> dict[str, Any]:
        return {
            "kind": self.label,
            "n_heads": int(self.n_heads),
            "q_lora_rank": None if self.q_lora_rank is None else int(self.q_lora_rank),
            "kv_lora_rank": int(self.kv_lora_rank),
            "d_nope": int(self.d_nope),
            "d_rope": int(self.d_rope),
            "d_v": int(self.d_v),
            "span": self.span.label,
        }
