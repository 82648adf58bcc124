"""Recurrent layers in torch at a model's true sizes, to be read beside the formulas of `attncalc.attention`.

As in `layers`, parameters have the names of the kind's `matrices` and are made from the kind's own fields. The
projections take all tokens at once; the recurrence takes one after another, as it is defined and as slow as
that is. Products of vectors and states are matmuls, so that torch counts their FLOPs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, rms_norm, silu, softplus

from ..attention.linear import GatedDeltaNet, Lightning, ShortConvolution
from ..attention.mamba import Mamba, Mamba2
from ..attention.recurrent import Recurrent
from ..attention.rglru import RgLru
from ..attention.rwkv import Rwkv
from ..attention.xlstm import MLstm
from ..errors import CannotCheckError
from .linear import DeltaLayer, LightningLayer, MLstmLayer, RwkvLayer
from .states import EPS, Convolution, Gain, RecurrentLayer, State, project


class MambaLayer(RecurrentLayer):
    """Every channel has its own decay of each of its d_state values."""

    def __init__(self, kind: Mamba, d_model: int) -> None:
        super().__init__()
        width, self.d_conv = kind.d_inner, kind.d_conv
        self.parts = (kind.dt_rank, kind.d_state, kind.d_state)
        self.W_in = nn.Linear(d_model, 2 * width, bias=kind.proj_bias)
        self.conv = Convolution(width, kind.d_conv, kind.conv_bias)
        self.W_x = nn.Linear(width, sum(self.parts), bias=False)
        self.W_dt = nn.Linear(kind.dt_rank, width)
        self.A_log = nn.Parameter(torch.zeros(width, kind.d_state))
        self.D = nn.Parameter(torch.ones(width))
        self.dt_b_c_norms = nn.Parameter(torch.ones(sum(self.parts))) if kind.dt_norms else None
        self.W_out = nn.Linear(width, d_model, bias=kind.proj_bias)

    def forward(self, x: Tensor, state: State) -> Tensor:
        inner, gate = self.W_in(x).chunk(2, -1)
        inner = silu(self.conv(inner, state, self.d_conv))
        parts = self.W_x(inner).split(self.parts, -1)
        if self.dt_b_c_norms is not None:
            gains = self.dt_b_c_norms.split(self.parts)
            parts = [rms_norm(part, gain.shape, gain, EPS) for part, gain in zip(parts, gains, strict=True)]
        dt, b, c = softplus(self.W_dt(parts[0])).float(), parts[1].float(), parts[2].float()
        held = state.get("state", x, x.shape[0], *self.A_log.shape, dtype=torch.float32)
        rate, out = -torch.exp(self.A_log.float()), []
        for t in range(x.shape[1]):
            write = (dt[:, t] * inner[:, t])[..., None] @ b[:, t, None, :]
            held = held * torch.exp(dt[:, t, :, None] * rate) + write
            out.append((held @ c[:, t, :, None])[..., 0])
        state.held["state"] = held
        y = torch.stack(out, 1) + self.D * inner
        return project(self.W_out, y.to(x.dtype) * silu(gate))


class Mamba2Layer(RecurrentLayer):
    """Every head has one decay; B and C are shared by the heads of a group."""

    def __init__(self, kind: Mamba2, d_model: int) -> None:
        super().__init__()
        width, groups = kind.n_heads * kind.d_head, kind.n_groups * kind.d_state
        self.kind, self.parts = kind, (width, width + 2 * groups, kind.n_heads)
        self.inner = (width, groups, groups)
        self.W_in = nn.Linear(d_model, sum(self.parts), bias=kind.proj_bias)
        self.conv = Convolution(sum(self.inner), kind.d_conv, kind.conv_bias)
        self.dt_A_D = nn.Parameter(torch.zeros(3, kind.n_heads))
        self.norm = Gain(width) if kind.inner_norm else None
        self.W_out = nn.Linear(width, d_model, bias=kind.proj_bias)

    def forward(self, x: Tensor, state: State) -> Tensor:
        heads, groups = self.kind.n_heads, self.kind.n_groups
        gate, inner, dt = self.W_in(x).split(self.parts, -1)
        inner, b, c = silu(self.conv(inner, state, self.kind.d_conv)).split(self.inner, -1)
        inner = inner.unflatten(-1, (heads, -1)).float()
        b, c = (t.unflatten(-1, (groups, -1)).repeat_interleave(heads // groups, 2).float() for t in (b, c))
        dt_bias, a_log, d = self.dt_A_D.float()
        dt = softplus(dt.float() + dt_bias)
        shape = (x.shape[0], heads, self.kind.d_head, self.kind.d_state)
        held, out = state.get("state", x, *shape, dtype=torch.float32), []
        for t in range(x.shape[1]):
            decay = torch.exp(-dt[:, t] * torch.exp(a_log))
            write = (dt[:, t, :, None] * inner[:, t])[..., None] @ b[:, t, :, None, :]
            held = held * decay[..., None, None] + write
            out.append((held @ c[:, t, :, :, None])[..., 0])
        state.held["state"] = held
        y = (torch.stack(out, 1) + d[:, None] * inner).flatten(2).to(x.dtype) * silu(gate)
        if self.norm is not None:  # over each group
            y = rms_norm(y.unflatten(-1, (groups, -1)), (y.shape[-1] // groups,), eps=EPS).flatten(2) * self.norm.weight
        return project(self.W_out, y)


class ShortConvolutionLayer(RecurrentLayer):
    """A convolution between two gates."""

    def __init__(self, kind: ShortConvolution, d_model: int) -> None:
        super().__init__()
        self.d_conv = kind.d_conv
        self.W_in = nn.Linear(d_model, 3 * kind.d_inner, bias=kind.conv_bias)
        self.conv = Convolution(kind.d_inner, kind.d_conv, kind.conv_bias)
        self.W_out = nn.Linear(kind.d_inner, d_model, bias=kind.conv_bias)

    def forward(self, x: Tensor, state: State) -> Tensor:
        before, after, inner = self.W_in(x).chunk(3, -1)
        return project(self.W_out, after * self.conv(before * inner, state, self.d_conv))


class Blocks(nn.Module):
    """A matrix of n_heads blocks on its diagonal, each width x width, with a bias."""

    def __init__(self, n_heads: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_heads, width, width))
        self.bias = nn.Parameter(torch.zeros(n_heads * width))

    def forward(self, x: Tensor) -> Tensor:
        """Of the same shape as `x`."""
        heads = x.unflatten(-1, (self.weight.shape[0], -1))
        return torch.einsum("bshi,hij->bshj", heads, self.weight).flatten(2) + self.bias


class RgLruLayer(RecurrentLayer):
    """One value a channel, which an input gate and a recurrence gate mix with the new one."""

    def __init__(self, kind: RgLru, d_model: int) -> None:
        super().__init__()
        self.d_conv = kind.d_conv
        self.W_x, self.W_y = (nn.Linear(d_model, kind.d_inner) for _ in range(2))
        self.conv = Convolution(kind.d_inner, kind.d_conv, bias=True)
        self.W_input_gate, self.W_recurrent_gate = (
            Blocks(kind.n_heads, kind.d_inner // kind.n_heads) for _ in range(2)
        )
        self.decay = nn.Parameter(torch.zeros(kind.d_inner))
        self.W_out = nn.Linear(kind.d_inner, d_model)

    def forward(self, x: Tensor, state: State) -> Tensor:
        first = not state.held
        inner = self.conv(self.W_x(x), state, self.d_conv - 1)
        log_decay = -8 * torch.sigmoid(self.W_recurrent_gate(inner)).float() * softplus(self.decay.float())
        decay, scale = torch.exp(log_decay), torch.sqrt(1 - torch.exp(2 * log_decay))
        if first:
            scale[:, 0] = 1  # nothing is there to mix the first token with
        new = inner.float() * torch.sigmoid(self.W_input_gate(inner)).float() * scale
        held, out = state.get("state", x, x.shape[0], inner.shape[-1], dtype=torch.float32), []
        for t in range(x.shape[1]):
            held = held * decay[:, t] + new[:, t]
            out.append(held)
        state.held["state"] = held
        return project(self.W_out, torch.stack(out, 1).to(x.dtype) * gelu(self.W_y(x), approximate="tanh"))


LAYERS: dict[type[Recurrent], Callable[[Any, int], RecurrentLayer]] = {
    Mamba: MambaLayer,
    Mamba2: Mamba2Layer,
    GatedDeltaNet: DeltaLayer,
    Lightning: LightningLayer,
    ShortConvolution: ShortConvolutionLayer,
    RgLru: RgLruLayer,
    Rwkv: RwkvLayer,
    MLstm: MLstmLayer,
}
"""The layer of each kind. A new kind is a layer above and a line here."""


def build_recurrent(kind: Recurrent, d_model: int) -> RecurrentLayer:
    """The layer of a kind, without values yet. CannotCheckError: a kind that has no layer here."""
    if type(kind) not in LAYERS:
        raise CannotCheckError(
            f"there is no torch layer of {kind.label} to verify it with", "other kinds can be verified"
        )
    return LAYERS[type(kind)](kind, d_model)
