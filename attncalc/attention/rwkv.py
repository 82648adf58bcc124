"""RWKV's time mixing: a weighted mean of past values, with one decay per channel."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import AttncalcError
from ..quantity import documented
from ..workload import Mask, Run
from .kind import CacheSpec, Matrix
from .recurrent import Recurrent, projection, split_evenly
from .span import Span


@dataclass(frozen=True)
class Rwkv(Recurrent):
    """d_inner channels, each with a numerator, a denominator and their largest exponent (RWKV-4).

    These three are fp32. The last token is cached too, once for time mixing and once for the MLP. Source: Peng et al.
    2023, arXiv:2305.13048, 3.1 and appendix D; transformers' modeling_rwkv.py.
    """

    d_inner: int = documented("channels of the recurrent layer")

    name = "RWKV"
    description = "RWKV time mixing"
    source = "Peng et al. 2023, arXiv:2305.13048 (RWKV-4)"

    @classmethod
    def required(cls) -> tuple[str, ...]:
        return ("d_inner",)

    @classmethod
    def from_keys(cls, keys: Mapping[str, Any], d_model: int, span: Span) -> Rwkv:
        if keys["d_inner"] != d_model:
            raise AttncalcError(
                f"d_inner: {keys['d_inner']} is not d_model {d_model}", "RWKV's states are d_model wide: give d_model"
            )
        return cls(**keys)

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        return (
            Matrix("time_mix", 3 * d_model),
            projection("W_k", d_model, self.d_inner),
            projection("W_v", d_model, self.d_inner),
            projection("W_r", d_model, self.d_inner),
            Matrix("decay_and_first", 2 * self.d_inner),
            projection("W_o", self.d_inner, d_model),
        )

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        return 0 * run.new  # the state is updated and read element-wise

    def cache(self) -> tuple[CacheSpec, ...]:
        return (
            CacheSpec("last token", 2, self.d_inner, scales_with="never"),
            CacheSpec("state", 3, self.d_inner, scales_with="never", dtype="fp32"),
        )

    def shard(self, tp: int) -> Rwkv:
        return dataclasses.replace(self, d_inner=split_evenly(self.d_inner, tp, "channels"))
