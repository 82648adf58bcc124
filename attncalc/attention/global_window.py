"""A window on both sides, with tokens or summaries that every query sees besides it (Longformer,
LongT5).
"""

from collections.abc import Mapping
from typing import Any

from ..errors import AttncalcError
from ..quantity import COUNT, documented
from ..records import dataclass
from ..workload import Mask, Run
from .grouped import Grouped
from .kind import MULTIPLY_ADD, AppliedTo, Matrix, Table
from .span import FULL, Span


@dataclass(frozen=True)
class GlobalWindow(Grouped):
    """Grouped attention in a window, besides which some keys are visible to every query.

    With global_tokens, that many tokens of a sequence see all tokens and are seen by all; they have
    queries, keys and values of their own projections, which Longformer has even if a task uses no
    such token. With summary_block, every query also sees one summary of every summary_block tokens,
    whose keys and values W_k and W_v make.

    The classes compute whole blocks of the window. Exact scores count the pairs that the window
    allows.

    Source: Beltagy et al. 2020, arXiv:2004.05150, 3.1; Guo et al. 2021, arXiv:2112.07916, 3.1;
    transformers' modeling_longformer.py and modeling_longt5.py.
    """

    global_tokens: int | None = documented(
        "tokens of a sequence that see all tokens and are seen by all, with projections of their "
        "own",
        default=None,
        schema={**COUNT, "minimum": 0},
    )
    summary_block: int | None = documented(
        "tokens of a summary that every query sees", default=None
    )

    @classmethod
    def from_keys(cls, keys: Mapping[str, Any], d_model: int, span: Span) -> Grouped:
        if span == FULL:
            raise AttncalcError("window: is missing", "global_window attention needs one")
        return super().from_keys(keys, d_model, span)

    source = "Longformer, arXiv:2004.05150, 3.1; LongT5, arXiv:2112.07916, 3.1"

    @property
    def headline(self) -> str:
        if self.summary_block:
            return f"{super().headline}, a summary of every {self.summary_block} tokens"
        if self.global_tokens:
            return (
                f"{super().headline}, {self.global_tokens} global "
                f"token{'s' if self.global_tokens > 1 else ''}"
            )
        return super().headline

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        matrices = super().matrices(d_model, d_source)
        if self.summary_block:
            summaries = Table(block=self.summary_block)
            return tuple(
                m._replace(table=summaries) if m.name in ("W_k", "W_v") else m for m in matrices
            )
        if self.global_tokens is None:
            return matrices
        width = self.n_heads * self.d_head
        of_queries: AppliedTo | None = "first" if self.global_tokens else None
        of_keys: AppliedTo | None = "keys" if self.global_tokens else None
        return (
            *matrices,
            *(
                Matrix(
                    f"W_{name}_global",
                    d_model,
                    width,
                    width if name in self.bias else 0,
                    applied_to,
                    times,
                )
                for name, applied_to, times in (
                    ("q", of_queries, self.global_tokens or 1),
                    ("k", of_keys, 1),
                    ("v", of_keys, 1),
                )
            ),
        )

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        cost = super().score_flops(run, mask)
        if self.global_tokens:
            # All queries score the global keys, and the global queries all keys.
            cost += (
                MULTIPLY_ADD
                * self.n_heads
                * self.global_tokens
                * (run.new + run.context)
                * self._qk_and_v
            )
        if self.summary_block:
            summaries = run.context // self.summary_block
            cost += MULTIPLY_ADD * self.n_heads * run.new * summaries * self._qk_and_v
        return cost

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            "global_tokens": self.global_tokens,
            "summary_block": self.summary_block,
        }
