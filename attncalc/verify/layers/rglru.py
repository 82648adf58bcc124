"""RG-LRU: the layer of `attention/rglru.py`."""

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, softplus

from ...attention.rglru import RgLru
from .recurrent import Convolution, RecurrentLayer, State, per_token, project


class BlockDiagonal(nn.Module):
    """A block-diagonal matrix of n_heads blocks, each width x width, with a bias."""

    def __init__(self, n_heads: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_heads, width, width))
        self.bias = nn.Parameter(torch.zeros(n_heads * width))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, S, n_heads * width) to the same shape."""
        heads = x.unflatten(-1, (self.weight.shape[0], -1))
        return torch.einsum("bshi,hij->bshj", heads, self.weight).flatten(2) + self.bias


class RgLruLayer(RecurrentLayer):
    """RG-LRU: one value per channel, mixed with the new input by an input gate and a recurrence
    gate.
    """

    def __init__(self, kind: RgLru, d_model: int) -> None:
        super().__init__()
        self.W_x, self.W_y = (nn.Linear(d_model, kind.d_inner) for _ in range(2))
        self.conv = Convolution(kind.d_inner, kind.d_conv, bias=True)
        self.W_input_gate, self.W_recurrent_gate = (
            BlockDiagonal(kind.n_heads, kind.d_inner // kind.n_heads) for _ in range(2)
        )
        self.decay = nn.Parameter(torch.zeros(kind.d_inner))
        self.W_out = nn.Linear(kind.d_inner, d_model)

    def forward(self, x: Tensor, state: State) -> Tensor:
        is_start = not state.tensors
        inner = self.conv(self.W_x(x), state)
        log_decay = (
            -8 * torch.sigmoid(self.W_recurrent_gate(inner)).float() * softplus(self.decay.float())
        )
        decay = torch.exp(log_decay)
        scale = torch.sqrt(1 - torch.exp(2 * log_decay))
        if is_start:
            scale[:, 0] = 1  # the first token is not mixed with a past
        new = inner.float() * torch.sigmoid(self.W_input_gate(inner)).float() * scale
        h = state.get("state", x, x.shape[0], inner.shape[-1], dtype=torch.float32)
        out = []
        for kept, value in per_token(decay, new):
            h = h * kept + value
            out.append(h)
        state.tensors["state"] = h
        return project(
            self.W_out, torch.stack(out, 1).to(x.dtype) * gelu(self.W_y(x), approximate="tanh")
        )
