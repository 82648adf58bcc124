"""Selective state spaces: Mamba and Mamba-2."""

import dataclasses
from collections.abc import Iterator

from ..quantity import Constant, ceil_div, documented
from ..records import dataclass
from ..workload import Mask, Run
from .kind import CacheSpec, Matrix, flag, state_dtype
from .recurrent import (
    UPDATE_AND_READ,
    Recurrent,
    convolution,
    convolution_and_state,
    projection,
    split_evenly,
)
from .saved import FP32, Forward, SavedTensor, matrix_input, norm_tensors

B_AND_C = Constant(2, "projections of the state: B and C")
_DT_A_AND_D = Constant(3, "vectors of a head: dt, A and D")
_D_AND_BIAS = Constant(2, "vectors of the scan: D and the bias of dt")
_INPUT_AND_GATE = Constant(2, "parts of W_in: input and gate")
# Tokens of a chunk of selective_scan_cuda.fwd, after each of which it keeps a product and a state.
_SCAN_CHUNK = 2048
_SCAN_PAIR = Constant(2, "values of the scan per state")


@dataclass(frozen=True)
class Mamba(Recurrent):
    """d_inner channels, each with a state of d_state (Mamba).

    The state is fp32. Source: Gu and Dao 2023, arXiv:2312.00752, 3.4; transformers'
    modeling_mamba.py.
    """

    d_inner: int = documented("channels of the state-space layer")
    d_state: int = documented("width of a channel's or head's state")
    d_conv: int = documented("width of the convolution")
    dt_rank: int = documented("rank of the projection of the step size")
    conv_bias: bool = flag("the convolution has a bias")
    proj_bias: bool = flag("the projections in and out have biases")
    dt_norms: bool = flag("norms on the step size, B and C (Jamba)")
    state_dtype: str | None = state_dtype()

    name = "Mamba"
    description = "Mamba layers"
    source = "Gu and Dao 2023, arXiv:2312.00752 (Mamba)"
    splits = (("d_inner", "channels"),)

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        norms = (
            (Matrix("dt_b_c_norms", self.dt_rank + B_AND_C * self.d_state),)
            if self.dt_norms
            else ()
        )
        return (
            projection("W_in", d_model, _INPUT_AND_GATE * self.d_inner, self.proj_bias),
            convolution(self.d_inner, self.d_conv, self.conv_bias),
            projection("W_x", self.d_inner, self.dt_rank + B_AND_C * self.d_state),
            projection("W_dt", self.dt_rank, self.d_inner, bias=True),
            Matrix("A_log", self.d_inner, self.d_state),
            Matrix("D", self.d_inner),
            *norms,
            projection("W_out", self.d_inner, d_model, self.proj_bias),
        )

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        return UPDATE_AND_READ * run.new * self.d_inner * self.d_state

    def cache(self) -> tuple[CacheSpec, ...]:
        return convolution_and_state(
            self.d_inner, self.d_conv, self.d_inner, self.d_state, self.state_dtype
        )

    def saved_tensors(self, forward: Forward) -> tuple[SavedTensor, ...]:
        """Return what mamba_ssm's MambaInnerFn saves: it computes the convolution and the step size
        again.
        """
        f = forward
        inside = f.bytes * f.tokens * self.d_inner
        b_and_c = f.bytes * f.tokens * B_AND_C * self.d_state
        chunks = ceil_div(f.S, _SCAN_CHUNK)
        states = FP32 * f.B * self.d_inner * chunks * _SCAN_PAIR * self.d_state
        vectors = FP32 * _D_AND_BIAS * self.d_inner if f.is_half else 0
        if self.dt_norms:
            by_class = tuple(self._saved_by_jamba(f))
        else:
            size = f.bytes * f.tokens * self.dt_rank + b_and_c
            by_class = (SavedTensor("output of W_x", "W_dt", size),)
        return (
            matrix_input(f, f.d_model, ("W_in",)),
            SavedTensor(
                "output of W_in",
                "the convolution and the gate",
                f.bytes * f.tokens * _INPUT_AND_GATE * self.d_inner,
            ),
            *by_class,
            SavedTensor("B and C", "the scan", b_and_c),
            SavedTensor("A", "exp and the scan", FP32 * 2 * self.d_inner * self.d_state),
            SavedTensor("D and the bias of dt in fp32", "the scan", vectors, is_statistic=True),
            SavedTensor("states between chunks", "the scan", states),
            SavedTensor("output", "the gate", inside),
        )

    def _saved_by_jamba(self, f: Forward) -> Iterator[SavedTensor]:
        """Yield what JambaMambaMixer saves besides, which calls causal_conv1d and the scan
        alone.
        """
        inside = f.bytes * f.tokens * self.d_inner
        yield SavedTensor("output of the convolution", "W_x", inside, input_of=("W_x",))
        for name, width in (("dt", self.dt_rank), ("B", self.d_state), ("C", self.d_state)):
            yield from norm_tensors(
                f, f.tokens, width, f"{name} norm", "attention", is_replicated=False
            )
        yield SavedTensor(
            "normalized dt",
            "the gradient of W_dt",
            f.bytes * f.tokens * self.dt_rank,
            input_of=("W_dt",),
        )
        yield SavedTensor("input of the scan", "the scan", inside)
        yield SavedTensor("dt", "the scan", inside)
        yield SavedTensor("gate", "the scan", inside)
        yield SavedTensor("gated output", "the gradient of W_out", inside, input_of=("W_out",))


@dataclass(frozen=True)
class Mamba2(Recurrent):
    """n_heads heads of d_head channels, each channel with a state of d_state (Mamba-2).

    Heads of one of n_groups groups share B and C. The state is fp32. Source: Dao and Gu 2024,
    arXiv:2405.21060; transformers' modeling_mamba2.py.
    """

    n_heads: int = documented("heads of the state-space layer")
    d_head: int = documented("channels of a head")
    d_state: int = documented("width of a channel's or head's state")
    d_conv: int = documented("width of the convolution")
    n_groups: int = documented("groups that share B and C")
    conv_bias: bool = flag("the convolution has a bias")
    proj_bias: bool = flag("the projections in and out have biases")
    inner_norm: bool = flag("a gated norm before the projection out")
    state_dtype: str | None = state_dtype()

    name = "Mamba-2"
    description = "Mamba-2 layers"
    source = "Dao and Gu 2024, arXiv:2405.21060 (Mamba-2)"

    @property
    def d_inner(self) -> int:
        return self.n_heads * self.d_head

    @property
    def channels(self) -> int:
        """Return the channels of the convolution: d_inner, and B and C of each group."""
        return self.d_inner + B_AND_C * self.n_groups * self.d_state

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        norm = (Matrix("norm", self.d_inner),) if self.inner_norm else ()
        return (
            projection(
                "W_in", d_model, self.d_inner + self.channels + self.n_heads, self.proj_bias
            ),
            convolution(self.channels, self.d_conv, self.conv_bias),
            Matrix("dt_A_D", _DT_A_AND_D * self.n_heads),
            *norm,
            projection("W_out", self.d_inner, d_model, self.proj_bias),
        )

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        return UPDATE_AND_READ * run.new * self.d_inner * self.d_state

    def cache(self) -> tuple[CacheSpec, ...]:
        return convolution_and_state(
            self.channels, self.d_conv, self.d_inner, self.d_state, self.state_dtype
        )

    def saved_tensors(self, forward: Forward) -> tuple[SavedTensor, ...]:
        """Return what mamba_ssm's MambaSplitConv1dScanCombinedFn saves: all but its input and
        output is recomputed.
        """
        f = forward
        projected = self.d_inner + self.channels + self.n_heads
        tensors = [
            matrix_input(f, f.d_model, ("W_in",)),
            SavedTensor(
                "output of W_in",
                "the convolution, the scan and the gate",
                f.bytes * f.tokens * projected,
            ),
            SavedTensor("A", "exp and the scan", FP32 * 2 * self.n_heads, is_statistic=True),
            SavedTensor("output", "the norm and the gate", f.bytes * f.tokens * self.d_inner),
        ]
        if self.inner_norm:
            size = FP32 * f.tokens * self.n_groups
            tensors.append(SavedTensor("norm statistics", "the norm", size, is_statistic=True))
        if f.math.parallel_mixers:
            name = "scales of the output of W_in"
            size = f.bytes * projected
            tensors.append(SavedTensor(name, "the product", size, is_statistic=True))
        return tuple(tensors)

    def shard(self, tp: int) -> "Mamba2":
        if self.n_groups > 1:
            groups = split_evenly(self.n_groups, tp, "groups")
        else:
            groups = self.n_groups
        return dataclasses.replace(
            self, n_heads=split_evenly(self.n_heads, tp, "heads"), n_groups=groups
        )
