"""The real-gated linear recurrent unit of Griffin and RecurrentGemma."""

from __future__ import annotations

import dataclasses

from ..quantity import documented, exact_div
from ..records import dataclass
from ..workload import Mask, Run
from .kind import CacheSpec, Matrix
from .recurrent import Recurrent, convolution, projection, split_evenly


@dataclass(frozen=True)
class RgLru(Recurrent):
    """d_inner channels with a state of one element each, gated by block-diagonal matrices of n_heads blocks (RG-LRU).

    The state is fp32. The convolution caches the d_conv - 1 columns that the next token needs. Source: De et al. 2024,
    arXiv:2402.19427, 2.4; transformers' modeling_recurrent_gemma.py.
    """

    d_inner: int = documented("channels of the recurrent layer")
    n_heads: int = documented("blocks of a gate's matrix")
    d_conv: int = documented("width of the convolution")

    name = "RG-LRU"
    description = "RG-LRU layers"
    source = "De et al. 2024, arXiv:2402.19427 (Griffin)"

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        width = exact_div(self.d_inner, self.n_heads)
        return (
            projection("W_x", d_model, self.d_inner, bias=True),
            projection("W_y", d_model, self.d_inner, bias=True),
            convolution(self.d_inner, self.d_conv, bias=True),
            Matrix("W_input_gate", self.d_inner, width, self.d_inner, "queries"),
            Matrix("W_recurrent_gate", self.d_inner, width, self.d_inner, "queries"),
            Matrix("decay", self.d_inner),
            projection("W_out", self.d_inner, d_model, bias=True),
        )

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        return 0 * run.new  # the state is updated and read element-wise

    def cache(self) -> tuple[CacheSpec, ...]:
        return (
            CacheSpec("convolution", self.d_inner, self.d_conv - 1, per="sequence"),
            CacheSpec("state", self.d_inner, 1, per="sequence", dtype="fp32"),
        )

    def shard(self, tp: int) -> RgLru:
        return dataclasses.replace(
            self, d_inner=split_evenly(self.d_inner, tp, "channels"), n_heads=split_evenly(self.n_heads, tp, "blocks")
        )
