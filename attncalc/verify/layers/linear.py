"""Delta rule, Lightning attention and short convolutions: the layers of `attention/linear.py`."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, silu, softplus

from ...attention.linear import GatedDeltaNet, Lightning, ShortConvolution
from .recurrent import EPS, Convolution, RecurrentLayer, State, per_token, project


class GatedDeltaNetLayer(RecurrentLayer):
    """Gated DeltaNet and Kimi Delta Attention.

    Each token reads a value from the state with its key, and replaces it by its own value. The
    decay is per head, or per channel.
    """

    def __init__(self, kind: GatedDeltaNet, d_model: int) -> None:
        super().__init__()
        self.kind = kind
        self.n_k_heads = kind.n_k_heads or kind.n_heads
        keys = self.n_k_heads * kind.d_head
        values = kind.n_heads * kind.d_v
        decays = keys if kind.channel_decay else kind.n_heads
        self.W_q, self.W_k, self.W_v = (
            nn.Linear(d_model, n, bias=False) for n in (keys, keys, values)
        )
        self.conv = Convolution(2 * keys + values, kind.d_conv, bias=False)
        self.W_beta = nn.Linear(d_model, kind.n_heads, bias=False)
        self.dt_A = nn.Parameter(torch.zeros(decays + kind.n_heads))
        decay_rank = kind.gate_rank if kind.channel_decay else None
        gate_rank = None if kind.full_gate else kind.gate_rank
        for name, width, rank in (("W_decay", decays, decay_rank), ("W_gate", values, gate_rank)):
            if rank is not None:
                self.add_module(f"{name}_a", nn.Linear(d_model, rank, bias=False))
                self.add_module(f"{name}_b", nn.Linear(rank, width, bias=False))
            else:
                self.add_module(name, nn.Linear(d_model, width, bias=False))
        self.norm = nn.RMSNorm(kind.d_v, EPS)
        self.W_o = nn.Linear(values, d_model, bias=False)

    def forward(self, x: Tensor, state: State) -> Tensor:
        kind = self.kind
        share = self.kind.n_heads // self.n_k_heads
        qkv = torch.cat((self.W_q(x), self.W_k(x), self.W_v(x)), -1)
        keys = self.n_k_heads * kind.d_head
        values = kind.n_heads * kind.d_v
        q, k, v = silu(self.conv(qkv, state)).split((keys, keys, values), -1)
        q, k = (
            normalize(t.unflatten(-1, (self.n_k_heads, -1)).float(), dim=-1).repeat_interleave(
                share, 2
            )
            for t in (q, k)
        )
        v = v.unflatten(-1, (kind.n_heads, -1)).float()
        beta = torch.sigmoid(self.W_beta(x).float())
        dt_bias, a_log = self.dt_A.float().split((self.dt_A.shape[0] - kind.n_heads, kind.n_heads))
        dt = softplus(self._project_by("W_decay", x).float() + dt_bias).unflatten(
            -1, (kind.n_heads, -1)
        )
        decay = torch.exp(-torch.exp(a_log)[:, None] * dt)[..., None]
        h = state.get(
            "state", x, x.shape[0], kind.n_heads, kind.d_head, kind.d_v, dtype=torch.float32
        )
        q = q[..., None, :] * kind.d_head**-0.5
        v = v[..., None, :]
        beta = beta[..., None, None]
        out = []
        for query, row, column, value, write, kept in per_token(
            q, k[..., None, :], k[..., None], v, beta, decay
        ):
            h = h * kept
            h = h + column @ (write * (value - row @ h))
            out.append(query @ h)
        state.tensors["state"] = h
        if kind.channel_decay:
            gate = torch.sigmoid(self._project_by("W_gate", x))
        else:
            gate = silu(self._project_by("W_gate", x))
        return project(self.W_o, self.norm(torch.stack(out, 1).to(x.dtype)).flatten(2) * gate)

    def _project_by(self, name: str, x: Tensor) -> Tensor:
        """Project `x` by the matrix of that name, or by the two low-rank matrices that replace
        it.
        """
        if hasattr(self, name):
            return project(self.get_submodule(name), x)
        return project(self.get_submodule(f"{name}_b"), project(self.get_submodule(f"{name}_a"), x))


class LightningLayer(RecurrentLayer):
    """Lightning attention: a sum of keys times values with a constant decay per head, in the
    layer's own dtype.
    """

    def __init__(self, kind: Lightning, d_model: int) -> None:
        super().__init__()
        width = kind.n_heads * kind.d_head
        self.n_heads = kind.n_heads
        self.W_qkv = nn.Linear(d_model, 3 * width, bias=False)
        self.W_gate = nn.Linear(d_model, width, bias=False)
        self.norm = nn.RMSNorm(width, EPS)
        self.W_o = nn.Linear(width, d_model, bias=False)

    def forward(self, x: Tensor, state: State) -> Tensor:
        q, k, v = silu(self.W_qkv(x)).unflatten(-1, (self.n_heads, 3, -1)).unbind(3)
        slopes = 2 ** (-8 * torch.arange(1, self.n_heads + 1, device=x.device) / self.n_heads)
        decay = torch.exp(-slopes)[:, None, None]
        h = state.get("state", x, x.shape[0], self.n_heads, q.shape[-1], q.shape[-1])
        out = []
        for query, key, value in per_token(q[..., None, :], k[..., None], v[..., None, :]):
            h = (h * decay + key @ value).to(x.dtype)
            out.append(query @ h)
        state.tensors["state"] = h
        return project(
            self.W_o, self.norm(torch.stack(out, 1).flatten(2)) * torch.sigmoid(self.W_gate(x))
        )


class ShortConvolutionLayer(RecurrentLayer):
    """A short convolution between two gates (LFM2)."""

    def __init__(self, kind: ShortConvolution, d_model: int) -> None:
        super().__init__()
        self.W_in = nn.Linear(d_model, 3 * kind.d_inner, bias=kind.conv_bias)
        self.conv = Convolution(kind.d_inner, kind.d_conv, kind.conv_bias)
        self.W_out = nn.Linear(kind.d_inner, d_model, bias=kind.conv_bias)

    def forward(self, x: Tensor, state: State) -> Tensor:
        gate_in, gate_out, inner = self.W_in(x).chunk(3, -1)
        return project(self.W_out, gate_out * self.conv(gate_in * inner, state))
