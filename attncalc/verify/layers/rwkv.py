"""RWKV: the layer of `attention/rwkv.py`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...attention.rwkv import Rwkv
from .recurrent import RecurrentLayer, State, project


class RwkvLayer(RecurrentLayer):
    """RWKV-4: the mean of the values so far, weighted by the exponentials of decaying keys.

    The state also holds the last token for the MLP, which mixes neighbouring tokens too.
    """

    def __init__(self, kind: Rwkv, d_model: int) -> None:
        super().__init__()
        self.time_mix = nn.Parameter(torch.zeros(3, d_model))
        self.W_k, self.W_v, self.W_r = (nn.Linear(d_model, kind.d_inner, bias=False) for _ in range(3))
        self.decay_and_first = nn.Parameter(torch.zeros(2, kind.d_inner))
        self.W_o = nn.Linear(kind.d_inner, d_model, bias=False)

    def forward(self, x: Tensor, state: State) -> Tensor:
        last = state.get("last token", x, x.shape[0], 2, x.shape[-1])
        previous = torch.cat((last[:, :1], x[:, :-1]), 1)
        mixed = (x * mix + previous * (1 - mix) for mix in self.time_mix)
        k, v, r = (linear(tokens) for linear, tokens in zip((self.W_k, self.W_v, self.W_r), mixed, strict=True))
        decay, first = -torch.exp(self.decay_and_first[0].float()), self.decay_and_first[1].float()
        empty = x.new_zeros((x.shape[0], 3, k.shape[-1]), dtype=torch.float32)
        empty[:, 2] = -1e30
        numerator, denominator, largest = state.tensors.get("state", empty).unbind(1)
        out = []
        for key, value in zip(k.float().unbind(1), v.float().unbind(1), strict=True):
            top = torch.maximum(largest, key + first)
            old, new = torch.exp(largest - top), torch.exp(key + first - top)
            out.append((old * numerator + new * value) / (old * denominator + new))
            top = torch.maximum(largest + decay, key)
            old, new = torch.exp(largest + decay - top), torch.exp(key - top)
            numerator, denominator, largest = old * numerator + new * value, old * denominator + new, top
        state.tensors["state"] = torch.stack((numerator, denominator, largest), 1)
        y = project(self.W_o, torch.sigmoid(r) * torch.stack(out, 1).to(x.dtype))
        state.tensors["last token"] = torch.stack((x[:, -1], (x + y)[:, -1]), 1)  # for time mixing, and for the MLP
        return y
