"""Mamba and Mamba-2: the layers of `attention/mamba.py`."""

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu, softplus

from ...attention.mamba import Mamba, Mamba2
from .recurrent import EPS, Convolution, RecurrentLayer, State, per_token, project


class MambaLayer(RecurrentLayer):
    """Mamba: each channel decays each of its d_state values at a rate of its own."""

    def __init__(self, kind: Mamba, d_model: int) -> None:
        super().__init__()
        width = kind.d_inner
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
        inner = silu(self.conv(inner, state))
        parts = self.W_x(inner).split(self.parts, -1)
        if self.dt_b_c_norms is not None:
            gains = self.dt_b_c_norms.split(self.parts)
            parts = [
                rms_norm(part, gain.shape, gain, EPS)
                for part, gain in zip(parts, gains, strict=True)
            ]
        dt = softplus(self.W_dt(parts[0])).float()
        b = parts[1].float()
        c = parts[2].float()
        h = state.get("state", x, x.shape[0], *self.A_log.shape, dtype=torch.float32)
        rate = -torch.exp(self.A_log.float())
        out = []
        writes = ((dt * inner)[..., None], b[:, :, None], c[..., None])
        for step, new, key, query in per_token(dt[..., None], *writes):
            h = h * torch.exp(step * rate) + new @ key
            out.append(h @ query)
        state.tensors["state"] = h
        y = torch.stack(out, 1)[..., 0] + self.D * inner
        return project(self.W_out, y.to(x.dtype) * silu(gate))


class Mamba2Layer(RecurrentLayer):
    """Mamba-2: one decay rate per head; the heads of a group share B and C."""

    def __init__(self, kind: Mamba2, d_model: int) -> None:
        super().__init__()
        width = kind.n_heads * kind.d_head
        groups = kind.n_groups * kind.d_state
        self.kind = kind
        self.parts = (width, width + 2 * groups, kind.n_heads)
        self.inner = (width, groups, groups)
        self.W_in = nn.Linear(d_model, sum(self.parts), bias=kind.proj_bias)
        self.conv = Convolution(sum(self.inner), kind.d_conv, kind.conv_bias)
        self.dt_A_D = nn.Parameter(torch.zeros(3, kind.n_heads))
        self.norm = nn.RMSNorm(width, EPS) if kind.inner_norm else None
        self.W_out = nn.Linear(width, d_model, bias=kind.proj_bias)

    def forward(self, x: Tensor, state: State) -> Tensor:
        heads = self.kind.n_heads
        groups = self.kind.n_groups
        gate, inner, dt = self.W_in(x).split(self.parts, -1)
        inner, b, c = silu(self.conv(inner, state)).split(self.inner, -1)
        inner = inner.unflatten(-1, (heads, -1)).float()
        b, c = (
            t.unflatten(-1, (groups, -1)).repeat_interleave(heads // groups, 2).float()
            for t in (b, c)
        )
        dt_bias, a_log, d = self.dt_A_D.float()
        dt = softplus(dt.float() + dt_bias)
        shape = (x.shape[0], heads, self.kind.d_head, self.kind.d_state)
        h = state.get("state", x, *shape, dtype=torch.float32)
        out = []
        decays = torch.exp(-dt * torch.exp(a_log))[..., None, None]
        writes = ((dt[..., None] * inner)[..., None], b[..., None, :], c[..., None])
        for decay, new, key, query in per_token(decays, *writes):
            h = h * decay + new @ key
            out.append(h @ query)
        state.tensors["state"] = h
        y = (torch.stack(out, 1)[..., 0] + d[:, None] * inner).flatten(2).to(x.dtype) * silu(gate)
        if self.norm is not None:  # one norm per group
            y = (
                rms_norm(y.unflatten(-1, (groups, -1)), (y.shape[-1] // groups,), eps=EPS).flatten(
                    2
                )
                * self.norm.weight
            )
        return project(self.W_out, y)
