"""RWKV's time mixing: a weighted mean of past values, or states of heads, with one decay per
channel.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..errors import AttncalcError
from ..quantity import documented, exact_div
from ..records import dataclass
from ..workload import Mask, Run
from .kind import CacheSpec, Matrix
from .recurrent import UPDATE_AND_READ, Recurrent, projection, split_evenly
from .span import Span


@dataclass(frozen=True)
class Rwkv(Recurrent):
    """d_inner channels, each with a numerator, a denominator and their largest exponent (RWKV-4).

    These three are fp32. The last token is cached too, once for time mixing and once for the MLP.
    Source: Peng et al. 2023, arXiv:2305.13048, 3.1 and appendix D; transformers' modeling_rwkv.py.
    """

    d_inner: int = documented("channels of the recurrent layer")

    name = "RWKV"
    description = "RWKV time mixing"
    source = "Peng et al. 2023, arXiv:2305.13048 (RWKV-4)"
    splits = (("d_inner", "channels"),)

    @classmethod
    def from_keys(cls, keys: Mapping[str, Any], d_model: int, span: Span) -> "Rwkv":
        _check_width(keys["d_inner"], d_model)
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
            CacheSpec("last token", 2, self.d_inner, per="sequence"),
            CacheSpec("state", 3, self.d_inner, per="sequence", dtype="fp32"),
        )


@dataclass(frozen=True)
class Rwkv5(Recurrent):
    """d_inner channels in heads of d_head, each with a state of d_head x d_head, and a gate on the
    output (RWKV-5).

    The state is fp32. The last token is cached too, once for time mixing and once for the MLP.
    Source: Peng et al. 2024, arXiv:2404.05892, 4.1 (Eagle); modeling_rwkv5.py of
    RWKV/rwkv-5-world-1b5.
    """

    d_inner: int = documented("channels of the recurrent layer")
    d_head: int = documented("width of a head and of its state")

    name = "RWKV-5"
    description = "RWKV-5 time mixing"
    source = "Peng et al. 2024, arXiv:2404.05892, 4.1 (RWKV-5)"

    @classmethod
    def from_keys(cls, keys: Mapping[str, Any], d_model: int, span: Span) -> "Rwkv5":
        _check_width(keys["d_inner"], d_model)
        if keys["d_inner"] % keys["d_head"]:
            raise AttncalcError(
                f"d_head: {keys['d_head']} does not divide d_inner {keys['d_inner']}",
                "heads have equal widths",
            )
        return cls(**keys)

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        return (
            Matrix("time_mix", 4 * d_model),
            *(projection(f"W_{name}", d_model, self.d_inner) for name in ("k", "v", "r", "gate")),
            Matrix("decay_and_first", 2 * self.d_inner),
            Matrix("norm", 2 * self.d_inner),
            projection("W_o", self.d_inner, d_model),
        )

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        # an outer product of key and value, and the product of the receptance with the state
        return UPDATE_AND_READ * run.new * self.d_inner * self.d_head

    def cache(self) -> tuple[CacheSpec, ...]:
        return (
            CacheSpec("last token", 2, self.d_inner, per="sequence"),
            CacheSpec("state", self.d_inner, self.d_head, per="sequence", dtype="fp32"),
        )

    def shard(self, tp: int) -> "Rwkv5":
        heads = split_evenly(exact_div(self.d_inner, self.d_head), tp, "heads")
        return dataclasses.replace(self, d_inner=heads * self.d_head)


def _check_width(d_inner: int, d_model: int) -> None:
    if d_inner != d_model:
        raise AttncalcError(
            f"d_inner: {d_inner} is not d_model {d_model}",
            "RWKV's states are d_model wide: give d_model",
        )
