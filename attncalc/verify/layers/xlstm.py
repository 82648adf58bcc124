"""mLSTM: the layer of `attention/xlstm.py`."""

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, logsigmoid

from ...attention.xlstm import MLstm
from .recurrent import EPS, RecurrentLayer, State, per_token, project


class MLstmLayer(RecurrentLayer):
    """mLSTM: a sum of keys times values under exponential gates, stabilised by the largest exponent
    so far.

    The state is in the layer's own dtype.
    """

    def __init__(self, kind: MLstm, d_model: int) -> None:
        super().__init__()
        self.kind = kind
        keys = kind.n_heads * kind.d_head
        values = kind.n_heads * kind.d_v
        self.W_q, self.W_k = (nn.Linear(d_model, keys, bias=False) for _ in range(2))
        self.W_v, self.W_gate = (nn.Linear(d_model, values, bias=False) for _ in range(2))
        self.W_input_gate, self.W_forget_gate = (nn.Linear(d_model, kind.n_heads) for _ in range(2))
        self.norm = nn.RMSNorm(values, EPS)
        self.W_o = nn.Linear(values, d_model, bias=False)

    def forward(self, x: Tensor, state: State) -> Tensor:
        kind = self.kind
        B = x.shape[0]
        q, k, v = (
            w(x).unflatten(-1, (kind.n_heads, -1)).float() for w in (self.W_q, self.W_k, self.W_v)
        )
        gates = (
            15 * torch.tanh(w(x).float() / 15) for w in (self.W_input_gate, self.W_forget_gate)
        )
        input_gate, forget_gate = (gate[..., None] for gate in gates)
        memory = state.get("memory", x, B, kind.n_heads, kind.d_head, kind.d_v)
        normaliser = state.get("normaliser", x, B, kind.n_heads, kind.d_head)
        largest = state.get("largest exponent", x, B, kind.n_heads, 1)
        out = []
        rows = (q[..., None, :] * kind.d_head**-0.5, k, k[..., None], v[..., None, :])
        for gate, exponent, query, key, column, value in per_token(
            logsigmoid(forget_gate), input_gate, *rows
        ):
            decayed = gate + largest.float()
            top = torch.maximum(decayed, exponent)
            old = torch.exp(decayed - top)
            new = torch.exp(exponent - top)
            new_memory = old[..., None] * memory.float() + new[..., None] * (column @ value)
            new_normaliser = old * normaliser.float() + new * key
            denominator = (query @ new_normaliser[..., None])[..., 0].abs()
            limit = torch.maximum(denominator, torch.exp(-top)) + EPS
            out.append((query @ new_memory) / limit[..., None])
            memory, normaliser, largest = (
                tensor.to(x.dtype) for tensor in (new_memory, new_normaliser, top)
            )
        state.tensors |= {"memory": memory, "normaliser": normaliser, "largest exponent": largest}
        heads = layer_norm(torch.stack(out, 1), (kind.d_v,), eps=EPS).flatten(2)
        return project(
            self.W_o, (torch.sigmoid(self.W_gate(x)) * heads * self.norm.weight).to(x.dtype)
        )
