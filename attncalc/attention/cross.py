"""Cross-attention: queries from one stack, keys and values from another's output.

The score matrix is a rectangle of S queries by T_source keys, with no causal mask. K and V are made
once, from the source, and kept: the cache scales_with with the source and not with what is generated.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from ..workload import Mask, Run
from .grouped import Grouped
from .kind import CacheSpec, Matrix, Widths
from .span import FULL, Span


class Cross(NamedTuple):
    """The heads of `heads`, with keys and values from a source of another length and width."""

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
        # queries and keys read different tokens, and what else a family has is of its self-attention
        apart = dataclasses.replace(self.heads, fused=False, extra_vectors=None)
        return apart.matrices(d_model, d_source)

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        return self.heads.score_flops(run, None)  # a rectangle, whatever the mask and the heads' own span

    def cache(self) -> tuple[CacheSpec, ...]:
        return tuple(c._replace(scales_with="source", span=FULL) for c in self.heads.cache())

    def widths(self, run: Run | None = None) -> Widths:
        return self.heads.widths(run)._replace(together=False)

    def notes(self, past: bool) -> tuple[str, ...]:
        return ("Cross-attention reads the cached K and V of the source: the encoder has run.",) if past else ()

    def with_span(self, span: Span) -> Cross:
        return self

    def shard(self, tp: int) -> Cross:
        return Cross(self.heads.shard(tp))

    def facts(self) -> dict[str, Any]:
        return {**self.heads.facts(), "kind": self.label, "span": "source"}
