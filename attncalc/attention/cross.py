"""Cross-attention: queries from one stack, keys and values from another's output.

The score matrix has S queries by T_source keys and no causal mask. K and V are computed once from
the source, so the cache grows with the source and not with the generated tokens.
"""

import dataclasses
from typing import Any

from ..records import NamedTuple
from ..workload import Mask, Run
from .grouped import Grouped
from .kind import CacheSpec, Matrix, Widths
from .saved import Forward, SavedTensor
from .span import FULL, Span


class Cross(NamedTuple):
    """Cross-attention with the heads of `heads`. Its source can have another length and width than
    the target.
    """

    heads: Grouped

    @property
    def source(self) -> str:
        return "Vaswani et al. 2017, arXiv:1706.03762, 3.2.3 (encoder-decoder attention)"

    @property
    def span(self) -> Span:
        return FULL

    @property
    def label(self) -> str:
        return f"cross-{self.heads.label}"

    @property
    def tag(self) -> str:
        return f"cross-{self.heads.tag}"

    @property
    def headline(self) -> str:
        return f"cross-attention, {self.heads.headline}"

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        # q, k and v cannot be fused, since they read different tokens; extra vectors belong to the
        # self-attention.
        separate = dataclasses.replace(self.heads, fused=False, extra_vectors=None)
        return separate.matrices(d_model, d_source)

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        # all pairs, whatever the mask and the span of `heads`
        return self.heads.score_flops(run, None)

    def cache(self) -> tuple[CacheSpec, ...]:
        return tuple(spec._replace(per="source token", span=FULL) for spec in self.heads.cache())

    def widths(self, run: Run | None = None) -> Widths:
        return self.heads.widths(run)._replace(fused=False)

    def saved_tensors(self, forward: Forward) -> tuple[SavedTensor, ...]:
        """Return what it saves besides the encoder's output, which is one tensor for all layers."""
        separate = dataclasses.replace(self.heads, fused=False)
        tensors = separate.saved_tensors(forward)
        return tuple(t._replace(input_of=("W_q",)) if t.name == "input" else t for t in tensors)

    def notes(self, past: bool) -> tuple[str, ...]:
        if past:
            return (
                "Cross-attention reads the cached K and V of the source: the encoder has already "
                "run.",
            )
        return ()

    def with_span(self, span: Span) -> "Cross":
        return self

    def shard(self, tp: int) -> "Cross":
        return Cross(self.heads.shard(tp))

    def facts(self) -> dict[str, Any]:
        return {**self.heads.facts(), "kind": self.label, "span": "source"}
