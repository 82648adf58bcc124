"""What recurrent layers share: a state that is kept, convolutions over the last tokens, norms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm

EPS = 1e-6


class State:
    """What a recurrent layer keeps for later tokens: tensors by name, of one size whatever it has seen."""

    def __init__(self) -> None:
        self.held: dict[str, Tensor] = {}

    @property
    def bytes(self) -> int:
        """Bytes of the storage that the tensors hold."""
        return sum(tensor.untyped_storage().nbytes() for tensor in self.held.values())

    @property
    def rows(self) -> tuple[Tensor, ...]:
        """The tensors, one after another."""
        return tuple(self.held.values())

    def get(self, name: str, like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """What is held under that name; before the first token zeros of `shape`, in the dtype of `like` or its own."""
        return self.held.get(name, like.new_zeros(shape, dtype=dtype))


class RecurrentLayer(nn.Module):
    """(B, S, d_model) -> (B, S, d_model), after the tokens that `state` has seen, which then has seen these too."""

    def forward(self, x: Tensor, state: State) -> Tensor:
        """One pass over S tokens."""
        raise NotImplementedError


class Gain(nn.Module):
    """The weight of a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """RMSNorm over the last dimension."""
        return rms_norm(x, self.weight.shape, self.weight, EPS)


class Convolution(nn.Module):
    """Of each channel alone, over the last d_conv tokens."""

    def __init__(self, channels: int, d_conv: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels, d_conv))
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None

    def forward(self, x: Tensor, state: State, keep: int) -> Tensor:
        """(B, S, channels) -> (B, S, channels); `keep` columns, d_conv or one less, stay in the state."""
        new, d_conv = x.transpose(1, 2), self.weight.shape[1]
        columns = torch.cat((state.get("convolution", new, *new.shape[:2], keep), new), -1)
        state.held["convolution"] = columns[..., new.shape[-1] :].clone()
        windows = columns[..., keep + 1 - d_conv :].unfold(-1, d_conv, 1)
        y = (windows * self.weight[:, None]).sum(-1).transpose(1, 2)
        return y if self.bias is None else y + self.bias


def project(by: nn.Module, *given: Any) -> Tensor:
    """What a module makes of a tensor, as one."""
    y: Tensor = by(*given)
    return y
