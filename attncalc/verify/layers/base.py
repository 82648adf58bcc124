"""The base of every layer that calls an attention kernel.

A layer's parameters have the names that the kind's `matrices` gives them, but their shapes come
from the kind's own fields: the formula and the layer are two independent statements. Positions are
left out, since they add no parameter and no matrix product: a rotary part has its true width and is
not rotated.
"""

import math
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from ...attention import Chunked, Sliding, Span

# Query heads of a layer that is shrunk for the behaviour checks.
SMALL_HEADS = 4
# Window or chunk of a shrunk layer: the 24 tokens of a check then fill its ring buffer more than
# once.
SMALL_SPAN = 5


class Attend(Protocol):
    """An attention kernel together with its mask; (B, heads, tokens, width) in and out."""

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, *, scale: float, sinks: Tensor | None
    ) -> Tensor: ...


class AttentionLayer(nn.Module):
    """Base class of the layers that call an attention kernel: one subclass per attention kind.

    A subclass is constructed from `(kind, d_model, d_source)`; its `forward(x, attend, cache)` maps
    (B, S, d_model) to (B, S, d_model).
    """

    # fields of the kind that the layer does not implement
    not_implemented: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def shrink(kind: Any) -> Any:
        """Return `kind` with few heads and a short span, for the behaviour checks."""
        return kind

    @staticmethod
    def definition(
        kind: Any, weights: dict[str, Tensor], x: Tensor, source: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Return the layer's output, (B, S, d_model), written out head by head from its weights in
        fp64.

        It shares no code with `forward` or with the kernels, so that a layer which splits,
        normalises or gates its heads wrongly does not agree with itself.

        Args:
            weights: the layer's parameters by name.
            source: the tokens that keys and values are made from; `x` itself for self-attention.
            mask: (S, T), True where a query sees a key; None if all keys are visible.
        """
        raise NotImplementedError


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2)) * gain over the last dimension, in place as a fused kernel computes
    it.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Overwrite `x` with its normalised values and return it."""
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x.div_(norm.mul_(x.shape[-1] ** -0.5).add_(1e-6)).mul_(self.weight)


class L2Norm(nn.Module):
    """x / sqrt(mean(x^2)) over the last dimension, in place without gradients."""

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` divided by its root mean square; with gradients as transformers'
        Llama4TextL2Norm does.
        """
        if torch.is_grad_enabled():
            wide = x.float()
            return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x)
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x.div_(norm.mul_(x.shape[-1] ** -0.5).add_(1e-6))


def shrink_span(span: Span) -> Span:
    """Return a window or chunk of at most SMALL_SPAN tokens; other spans are unchanged."""
    if isinstance(span, Sliding):
        return Sliding(min(span.window, SMALL_SPAN))
    if isinstance(span, Chunked):
        return Chunked(min(span.chunk, SMALL_SPAN))
    return span


def one_head(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sink: Tensor | None = None
) -> Tensor:
    """Return the attention of one head, (B, S, d_v): the mean of the values weighted by exp(score).

    A sink takes part in the denominator and adds no value.
    """
    e = torch.exp(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]))
    if mask is not None:
        e = e * mask
    denominator = e.sum(-1, keepdim=True)
    if sink is not None:
        denominator = denominator + torch.exp(sink)
    return e @ v / denominator
