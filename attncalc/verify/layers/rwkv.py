"""RWKV: the layers of `attention/rwkv.py`."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import group_norm, silu

from ...attention.rwkv import Rwkv, Rwkv5
from .recurrent import RecurrentLayer, State, per_token, project


def _mixed(x: Tensor, state: State, time_mix: Tensor) -> Iterator[Tensor]:
    """Yield each token mixed with the one before it, once per row of `time_mix`."""
    last = state.get("last token", x, x.shape[0], 2, x.shape[-1])
    previous = torch.cat((last[:, :1], x[:, :-1]), 1)
    return (x * mix + previous * (1 - mix) for mix in time_mix)


class RwkvLayer(RecurrentLayer):
    """RWKV-4: the mean of the values so far, weighted by the exponentials of decaying keys.

    The state also holds the last token for the MLP, which mixes neighbouring tokens too.
    """

    def __init__(self, kind: Rwkv, d_model: int) -> None:
        super().__init__()
        self.time_mix = nn.Parameter(torch.zeros(3, d_model))
        self.W_k, self.W_v, self.W_r = (
            nn.Linear(d_model, kind.d_inner, bias=False) for _ in range(3)
        )
        self.decay_and_first = nn.Parameter(torch.zeros(2, kind.d_inner))
        self.W_o = nn.Linear(kind.d_inner, d_model, bias=False)

    def forward(self, x: Tensor, state: State) -> Tensor:
        mixed = _mixed(x, state, self.time_mix)
        k, v, r = (
            linear(tokens)
            for linear, tokens in zip((self.W_k, self.W_v, self.W_r), mixed, strict=True)
        )
        decay = -torch.exp(self.decay_and_first[0].float())
        first = self.decay_and_first[1].float()
        empty = x.new_zeros((x.shape[0], 3, k.shape[-1]), dtype=torch.float32)
        empty[:, 2] = -1e30
        numerator, denominator, largest = state.tensors.get("state", empty).unbind(1)
        out = []
        for key, value in per_token(k.float(), v.float()):
            top = torch.maximum(largest, key + first)
            old = torch.exp(largest - top)
            new = torch.exp(key + first - top)
            out.append((old * numerator + new * value) / (old * denominator + new))
            top = torch.maximum(largest + decay, key)
            old = torch.exp(largest + decay - top)
            new = torch.exp(key - top)
            numerator = old * numerator + new * value
            denominator = old * denominator + new
            largest = top
        state.tensors["state"] = torch.stack((numerator, denominator, largest), 1)
        y = project(self.W_o, torch.sigmoid(r) * torch.stack(out, 1).to(x.dtype))
        # for time mixing, and for the MLP
        state.tensors["last token"] = torch.stack((x[:, -1], (x + y)[:, -1]), 1)
        return y


class Rwkv5Layer(RecurrentLayer):
    """RWKV-5: each head's state decays by channel of the key, and the newest token counts with a
    weight of its own.
    """

    def __init__(self, kind: Rwkv5, d_model: int) -> None:
        super().__init__()
        self.d_head = kind.d_head
        self.time_mix = nn.Parameter(torch.zeros(4, d_model))
        self.W_k, self.W_v, self.W_r, self.W_gate = (
            nn.Linear(d_model, kind.d_inner, bias=False) for _ in range(4)
        )
        self.decay_and_first = nn.Parameter(torch.zeros(2, kind.d_inner))
        self.norm = nn.Parameter(torch.ones(2, kind.d_inner))
        self.W_o = nn.Linear(kind.d_inner, d_model, bias=False)

    def forward(self, x: Tensor, state: State) -> Tensor:
        mixed = _mixed(x, state, self.time_mix)
        linears = (self.W_k, self.W_v, self.W_r, self.W_gate)
        k, v, r, gate = (linear(tokens) for linear, tokens in zip(linears, mixed, strict=True))
        k, v, r = (t.float().unflatten(-1, (-1, self.d_head)) for t in (k, v, r))
        decay, first = (
            t.unflatten(-1, (-1, self.d_head))[..., None] for t in self.decay_and_first.float()
        )
        decay = torch.exp(-torch.exp(decay))
        heads = k.shape[2]
        h = state.get("state", x, x.shape[0], heads * self.d_head, self.d_head, dtype=torch.float32)
        h = h.unflatten(1, (heads, self.d_head))
        out = []
        for key, value, query in per_token(k[..., None], v[..., None, :], r[..., None, :]):
            new = key @ value
            out.append(query @ (first * new + h))
            h = new + decay * h
        state.tensors["state"] = h.flatten(1, 2)
        y = torch.stack(out, 1).flatten(2)
        gain, bias = self.norm.float()
        y = group_norm(y.flatten(0, 1), heads, gain, bias).unflatten(0, y.shape[:2])
        y = project(self.W_o, y.to(x.dtype) * silu(gate))
        # for time mixing, and for the MLP
        state.tensors["last token"] = torch.stack((x[:, -1], (x + y)[:, -1]), 1)
        return y
