"""Differential attention: the difference of two softmax score matrices."""

from collections.abc import Mapping
from typing import Any

from ..errors import AttncalcError
from ..quantity import Constant
from ..workload import Mask, Run
from .grouped import Grouped
from .kind import Matrix
from .span import Span


class Differential(Grouped):
    """Grouped attention that subtracts one head of a pair from the other, with values twice as
    wide.

    Kernels need values as wide as keys, so the kernel runs once for each half of a pair's values,
    and every query head scores every key twice. Source: Ye et al. 2024, arXiv:2410.05258;
    transformers' modeling_diffllama.py.
    """

    @classmethod
    def from_keys(cls, keys: Mapping[str, Any], d_model: int, span: Span) -> Grouped:
        kind = super().from_keys(keys, d_model, span)
        if kind.n_kv_heads % 2:  # it divides n_heads, which is even if it is
            raise AttncalcError(
                f"n_kv_heads: {kind.n_heads} query and {kind.n_kv_heads} KV heads do not form "
                "pairs",
                "differential attention needs even numbers of heads",
            )
        return kind

    source = "Ye et al. 2024, arXiv:2410.05258 (differential attention)"

    @property
    def headline(self) -> str:
        return f"differential {super().headline}"

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        return (*super().matrices(d_model, d_source), Matrix("lambdas", 4, self.d_head))

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        return Constant(2, "attention maps, of which one is subtracted") * super().score_flops(
            run, mask
        )

    def notes(self, past: bool) -> tuple[str, ...]:
        return (
            "Differential attention: the kernel runs twice, once for each half of a pair's values.",
        )
