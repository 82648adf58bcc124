"""The base of recurrent layers: a state of fixed size, convolutions over the last tokens, norms.

As in `base`, parameters have the names of the kind's `matrices` and shapes from the kind's own
fields. The projections process all tokens together; the recurrence processes one token after
another, as it is defined, and is slow.
Products of vectors and states are matmuls, so that torch counts their FLOPs.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

EPS = 1e-6
# Heads and channels of a layer that is shrunk for the behaviour checks.
SMALL_SIZES = {"n_heads": 4, "n_k_heads": 2, "n_groups": 2, "d_inner": 64}


class State:
    """The state of a recurrent layer: tensors by name, whose size does not depend on the
    context.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}

    @property
    def bytes(self) -> int:
        """Bytes of the tensors' storage."""
        return sum(tensor.untyped_storage().nbytes() for tensor in self.tensors.values())

    @property
    def rows(self) -> tuple[Tensor, ...]:
        """The tensors in the order in which they were first stored."""
        return tuple(self.tensors.values())

    def get(self, name: str, like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return the tensor of that name; before the first token, zeros of `shape` in `dtype`, by
        default `like`'s.
        """
        return self.tensors.get(name, like.new_zeros(shape, dtype=dtype))


class RecurrentLayer(nn.Module):
    """Base class of recurrent layers: one subclass per recurrent kind, constructed from `(kind,
    d_model)`.
    """

    not_implemented: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def shrink(kind: Any) -> Any:
        """Return `kind` with few heads and channels, for the behaviour checks."""
        sizes = vars(kind)
        return dataclasses.replace(
            kind, **{n: min(sizes[n], limit) for n, limit in SMALL_SIZES.items() if sizes.get(n)}
        )

    def forward(self, x: Tensor, state: State) -> Tensor:
        """Map (B, S, d_model) to (B, S, d_model), continuing from `state`, and update `state`."""
        raise NotImplementedError


class Convolution(nn.Module):
    """A depthwise causal convolution over the last d_conv tokens."""

    def __init__(self, channels: int, d_conv: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels, d_conv))
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None

    def forward(self, x: Tensor, state: State) -> Tensor:
        """Map (B, S, channels) to (B, S, channels); the state keeps the d_conv - 1 columns that the
        next token needs.

        transformers' classes keep d_conv columns.
        """
        new = x.transpose(1, 2)
        d_conv = self.weight.shape[1]
        columns = torch.cat((state.get("convolution", new, *new.shape[:2], d_conv - 1), new), -1)
        state.tensors["convolution"] = columns[..., new.shape[-1] :].clone()
        windows = columns.unfold(-1, d_conv, 1)
        y = (windows * self.weight[:, None]).sum(-1).transpose(1, 2)
        if self.bias is None:
            return y
        return y + self.bias


def per_token(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield the parts (B, ...) of each token of every (B, S, ...): one operation per tensor;
    indices take many.
    """
    return zip(*(tensor.unbind(1) for tensor in tensors), strict=True)


def project(module: nn.Module, *inputs: Any) -> Tensor:
    """Call `module`; the result has a static type."""
    y: Tensor = module(*inputs)
    return y
