"""A toy attention kind with a state of a fixed size, such as a linear attention."""

import dataclasses
from typing import Any

from attncalc import Full
from attncalc.attention import CacheSpec, Matrix, Span, Widths
from attncalc.attention.kind import no_saved_tensors
from attncalc.attention.saved import Forward, SavedTensor
from attncalc.workload import Mask, Run


@dataclasses.dataclass(frozen=True)
class Recurrent:
    """A toy linear attention with a state of d_state elements."""

    d_state: int
    span: Span = dataclasses.field(default_factory=Full)
    source = "a test"
    label = "toy"
    tag = "toy"
    headline = "toy recurrence"

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        return (Matrix("W", d_model, self.d_state, applied_to="queries"),)

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        return 4 * run.new * self.d_state

    def cache(self) -> tuple[CacheSpec, ...]:
        return (CacheSpec("state", 1, self.d_state, per="sequence", dtype="fp32"),)

    def widths(self, run: Run | None = None) -> Widths:
        return Widths(1, 1, self.d_state, self.d_state)

    def saved_tensors(self, forward: Forward) -> tuple[SavedTensor, ...]:
        raise no_saved_tensors(self.headline)

    def notes(self, past: bool) -> tuple[str, ...]:
        return ()

    def with_span(self, span: Span) -> "Recurrent":
        return self

    def shard(self, tp: int) -> "Recurrent":
        return self

    def facts(self) -> dict[str, Any]:
        return {"kind": "toy"}
