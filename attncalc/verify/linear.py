"""Layers of linear attention in torch, whose states are written by keys and values: see `recurrent`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, logsigmoid, normalize, silu, softplus

from ..attention.linear import GatedDeltaNet, Lightning
from ..attention.rwkv import Rwkv
from ..attention.xlstm import MLstm
from .states import EPS, Convolution, Gain, RecurrentLayer, State, project


class DeltaLayer(RecurrentLayer):
    """A key takes out of its state what it finds there, before its value is put in; decayed by head or by channel."""

    def __init__(self, kind: GatedDeltaNet, d_model: int) -> None:
        super().__init__()
        self.kind, self.n_k_heads = kind, kind.n_k_heads or kind.n_heads
        keys, values = self.n_k_heads * kind.d_head, kind.n_heads * kind.d_v
        decays = keys if kind.channel_decay else kind.n_heads
        self.W_q, self.W_k, self.W_v = (nn.Linear(d_model, n, bias=False) for n in (keys, keys, values))
        self.conv = Convolution(2 * keys + values, kind.d_conv, bias=False)
        self.W_beta = nn.Linear(d_model, kind.n_heads, bias=False)
        self.dt_A = nn.Parameter(torch.zeros(decays + kind.n_heads))
        for name, width, low in (("W_decay", decays, kind.channel_decay), ("W_gate", values, True)):
            if low and kind.gate_rank is not None:
                self.add_module(f"{name}_a", nn.Linear(d_model, kind.gate_rank, bias=False))
                self.add_module(f"{name}_b", nn.Linear(kind.gate_rank, width, bias=False))
            else:
                self.add_module(name, nn.Linear(d_model, width, bias=False))
        self.norm = Gain(kind.d_v)
        self.W_o = nn.Linear(values, d_model, bias=False)

    def forward(self, x: Tensor, state: State) -> Tensor:
        kind, share = self.kind, self.kind.n_heads // self.n_k_heads
        qkv = torch.cat((self.W_q(x), self.W_k(x), self.W_v(x)), -1)
        keys, values = self.n_k_heads * kind.d_head, kind.n_heads * kind.d_v
        q, k, v = silu(self.conv(qkv, state, kind.d_conv)).split((keys, keys, values), -1)
        q, k = (
            normalize(t.unflatten(-1, (self.n_k_heads, -1)).float(), dim=-1).repeat_interleave(share, 2) for t in (q, k)
        )
        v = v.unflatten(-1, (kind.n_heads, -1)).float()
        beta = torch.sigmoid(self.W_beta(x).float())
        dt_bias, a_log = self.dt_A.float().split((self.dt_A.shape[0] - kind.n_heads, kind.n_heads))
        dt = softplus(self._through("W_decay", x).float() + dt_bias).unflatten(-1, (kind.n_heads, -1))
        decay = torch.exp(-torch.exp(a_log)[:, None] * dt)[..., None]
        held = state.get("state", x, x.shape[0], kind.n_heads, kind.d_head, kind.d_v, dtype=torch.float32)
        out = []
        for t in range(x.shape[1]):
            held = held * decay[:, t]
            found = k[:, t, :, None, :] @ held
            held = held + k[:, t, :, :, None] @ (beta[:, t, :, None, None] * (v[:, t, :, None, :] - found))
            out.append(((q[:, t, :, None, :] * kind.d_head**-0.5) @ held)[:, :, 0])
        state.held["state"] = held
        gate = torch.sigmoid(self._through("W_gate", x)) if kind.channel_decay else silu(self._through("W_gate", x))
        return project(self.W_o, self.norm(torch.stack(out, 1).to(x.dtype)).flatten(2) * gate)

    def _through(self, name: str, x: Tensor) -> Tensor:
        """By the matrix of that name, or by the two that it is made of."""
        if hasattr(self, name):
            return project(self.get_submodule(name), x)
        return project(self.get_submodule(f"{name}_b"), project(self.get_submodule(f"{name}_a"), x))


class LightningLayer(RecurrentLayer):
    """Sums of keys times values, decayed by a constant of the head; the state is in the layer's own dtype."""

    def __init__(self, kind: Lightning, d_model: int) -> None:
        super().__init__()
        width = kind.n_heads * kind.d_head
        self.n_heads = kind.n_heads
        self.W_qkv = nn.Linear(d_model, 3 * width, bias=False)
        self.W_gate = nn.Linear(d_model, width, bias=False)
        self.norm = Gain(width)
        self.W_o = nn.Linear(width, d_model, bias=False)

    def forward(self, x: Tensor, state: State) -> Tensor:
        q, k, v = silu(self.W_qkv(x)).unflatten(-1, (self.n_heads, 3, -1)).unbind(3)
        slopes = 2 ** (-8 * torch.arange(1, self.n_heads + 1, device=x.device) / self.n_heads)
        decay = torch.exp(-slopes)[:, None, None]
        held, out = state.get("state", x, x.shape[0], self.n_heads, q.shape[-1], q.shape[-1]), []
        for t in range(x.shape[1]):
            held = (held * decay + k[:, t, :, :, None] @ v[:, t, :, None, :]).to(x.dtype)
            out.append((q[:, t, :, None, :] @ held)[:, :, 0])
        state.held["state"] = held
        return project(self.W_o, self.norm(torch.stack(out, 1).flatten(2)) * torch.sigmoid(self.W_gate(x)))


class RwkvLayer(RecurrentLayer):
    """A mean of the values so far, weighted by the exponentials of keys that decay; the MLP mixes tokens too."""

    def __init__(self, kind: Rwkv, d_model: int) -> None:
        super().__init__()
        self.time_mix = nn.Parameter(torch.zeros(3, d_model))
        self.W_k, self.W_v, self.W_r = (nn.Linear(d_model, kind.d_inner, bias=False) for _ in range(3))
        self.decay_and_first = nn.Parameter(torch.zeros(2, kind.d_inner))
        self.W_o = nn.Linear(kind.d_inner, d_model, bias=False)

    def forward(self, x: Tensor, state: State) -> Tensor:
        last = state.get("last token", x, x.shape[0], 2, x.shape[-1])
        before = torch.cat((last[:, :1], x[:, :-1]), 1)
        mixed = (x * mix + before * (1 - mix) for mix in self.time_mix)
        k, v, r = (by(tokens) for by, tokens in zip((self.W_k, self.W_v, self.W_r), mixed, strict=True))
        decay, first = -torch.exp(self.decay_and_first[0].float()), self.decay_and_first[1].float()
        none = x.new_zeros((x.shape[0], 3, k.shape[-1]), dtype=torch.float32)
        none[:, 2] = -1e30
        above, below, most = state.held.get("state", none).unbind(1)
        out = []
        for key, value in zip(k.float().unbind(1), v.float().unbind(1), strict=True):
            top = torch.maximum(most, key + first)
            old, new = torch.exp(most - top), torch.exp(key + first - top)
            out.append((old * above + new * value) / (old * below + new))
            top = torch.maximum(most + decay, key)
            old, new = torch.exp(most + decay - top), torch.exp(key - top)
            above, below, most = old * above + new * value, old * below + new, top
        state.held["state"] = torch.stack((above, below, most), 1)
        y = project(self.W_o, torch.sigmoid(r) * torch.stack(out, 1).to(x.dtype))
        state.held["last token"] = torch.stack((x[:, -1], (x + y)[:, -1]), 1)  # for this mixing, and for the MLP's
        return y


class MLstmLayer(RecurrentLayer):
    """Keys times values under exponential gates, kept below the largest exponent; all in the layer's own dtype."""

    def __init__(self, kind: MLstm, d_model: int) -> None:
        super().__init__()
        self.kind = kind
        keys, values = kind.n_heads * kind.d_head, kind.n_heads * kind.d_v
        self.W_q, self.W_k = (nn.Linear(d_model, keys, bias=False) for _ in range(2))
        self.W_v, self.W_gate = (nn.Linear(d_model, values, bias=False) for _ in range(2))
        self.W_input_gate, self.W_forget_gate = (nn.Linear(d_model, kind.n_heads) for _ in range(2))
        self.norm = Gain(values)
        self.W_o = nn.Linear(values, d_model, bias=False)

    def forward(self, x: Tensor, state: State) -> Tensor:
        kind, B = self.kind, x.shape[0]
        q, k, v = (w(x).unflatten(-1, (kind.n_heads, -1)).float() for w in (self.W_q, self.W_k, self.W_v))
        gates = (15 * torch.tanh(w(x).float() / 15) for w in (self.W_input_gate, self.W_forget_gate))
        put, keep = (gate[..., None] for gate in gates)
        held = state.get("memory", x, B, kind.n_heads, kind.d_head, kind.d_v)
        norm = state.get("normaliser", x, B, kind.n_heads, kind.d_head)
        most = state.get("largest exponent", x, B, kind.n_heads, 1)
        out = []
        for t in range(x.shape[1]):
            kept = logsigmoid(keep[:, t]) + most.float()
            top = torch.maximum(kept, put[:, t])
            old, new, query = torch.exp(kept - top), torch.exp(put[:, t] - top), q[:, t] * kind.d_head**-0.5
            write = k[:, t, :, :, None] @ v[:, t, :, None, :]
            memory = old[..., None] * held.float() + new[..., None] * write
            normaliser = old * norm.float() + new * k[:, t]
            below = (query[:, :, None, :] @ normaliser[..., None])[..., 0].abs()
            out.append((query[:, :, None, :] @ memory)[:, :, 0] / (torch.maximum(below, torch.exp(-top)) + EPS))
            held, norm, most = (tensor.to(x.dtype) for tensor in (memory, normaliser, top))
        state.held |= {"memory": held, "normaliser": norm, "largest exponent": most}
        heads = layer_norm(torch.stack(out, 1), (kind.d_v,), eps=EPS).flatten(2)
        return project(self.W_o, (torch.sigmoid(self.W_gate(x)) * heads * self.norm.weight).to(x.dtype))
