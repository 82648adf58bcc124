"""A real torch model to train: embedding, one layer of each kind at its true widths, norms, head and loss.

Norms and the loss compute in fp32 as in transformers' classes: the formulas count the copies that this needs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from ...attention.recurrent import NoAttention
from ...errors import CannotCheckError
from ...mlp import Mlp
from ...model import Layers, ModelSpec, Stack
from ..layers import build
from ..layers.base import Attend, AttentionLayer
from ..masks import KernelMask, prefill_mask
from ..real_layer import attend_with

EPS = 1e-6


def one_of_each(model: ModelSpec) -> ModelSpec:
    """Return the model with one layer of each kind, and without token types."""
    stacks = (
        dataclasses.replace(
            stack,
            layers=tuple(dataclasses.replace(layers, count=1, extra=()) for layers in stack.distinct()),
            embedding_norm=False,
        )
        for stack in model.stacks
    )
    return dataclasses.replace(model, stacks=tuple(stacks), token_types=0, extra=())


class Norm(nn.Module):
    """RMSNorm as transformers' LlamaRMSNorm computes it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise in fp32, and multiply by the gain in the dtype of `x`."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)
        return self.weight * wide.to(x.dtype)


class DenseMlp(nn.Module):
    """An MLP: SwiGLU if it is gated, else with GELU."""

    def __init__(self, mlp: Mlp, d_model: int, width: int) -> None:
        super().__init__()
        self.W_up = nn.Linear(d_model, width, bias=mlp.bias)
        self.W_gate = nn.Linear(d_model, width, bias=mlp.bias) if mlp.gated else None
        self.W_down = nn.Linear(width, d_model, bias=mlp.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., d_model) to (..., d_model)."""
        if self.W_gate is None:
            return self.W_down(functional.gelu(self.W_up(x)))  # type: ignore[no-any-return]
        return self.W_down(functional.silu(self.W_gate(x)) * self.W_up(x))  # type: ignore[no-any-return]


class Experts(nn.Module):
    """A mixture of experts: a softmax router, experts that each get their tokens, and shared experts."""

    def __init__(self, mlp: Mlp, d_model: int) -> None:
        super().__init__()
        self.per_token = mlp.n_experts_per_token or 1
        self.router = nn.Linear(d_model, mlp.n_experts or 1, bias=mlp.router_bias)
        self.experts = nn.ModuleList(DenseMlp(mlp, d_model, mlp.d_ff) for _ in range(mlp.n_experts or 1))
        shared = mlp.d_ff_shared or (mlp.n_shared_experts or 0) * mlp.d_ff
        self.shared = DenseMlp(mlp, d_model, shared) if shared else None

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, S, d_model) to (B, S, d_model)."""
        rows = x.flatten(0, 1)
        weights, chosen = self.router(rows).softmax(-1, dtype=torch.float32).topk(self.per_token)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        order = chosen.flatten().argsort()
        counts = torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist()
        parts = rows[order // self.per_token].split(counts)
        out = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        out = (out * weights.flatten()[order][:, None])[order.argsort()]
        out = out.unflatten(0, (-1, self.per_token)).sum(1).to(x.dtype)
        if self.shared is not None:
            out = out + self.shared(rows)
        mixed: Tensor = out.view_as(x)
        return mixed


class TrainedLayer(nn.Module):
    """A layer: a norm, attention and a norm, the MLP, each with a residual; further norms come after them."""

    def __init__(self, layers: Layers, stack: Stack) -> None:
        super().__init__()
        norm = nn.LayerNorm if stack.norm == "layernorm" else Norm
        self.layers, self.mask, self.recompute = layers, stack.mask, False
        self.rotates = not stack.learned_positions
        self.attention = (
            None if isinstance(layers.attention, NoAttention) else build(layers.attention, stack.d_model, stack.d_model)
        )
        mlp = layers.mlp
        self.mlp: nn.Module | None = None
        if mlp:
            self.mlp = Experts(mlp, stack.d_model) if mlp.n_experts else DenseMlp(mlp, stack.d_model, mlp.d_ff)
        self.norms = nn.ModuleList(norm(stack.d_model) for _ in range(layers.norms))

    def forward(self, x: Tensor, kernel: str) -> Tensor:
        """Map (B, S, d_model) to (B, S, d_model)."""
        if not self.recompute:
            return self._run(x, kernel)
        y: Tensor = checkpoint(self._run, x, kernel, use_reentrant=False)
        return y

    def _run(self, x: Tensor, kernel: str) -> Tensor:
        norms = list(self.norms)
        parts = [part for part in (self.attention, self.mlp) if part is not None]
        for part in parts:
            normed = norms.pop(0)(x) if norms else x
            if isinstance(part, AttentionLayer):
                positions = torch.arange(x.shape[1], device=x.device)
                mask = prefill_mask(self.layers.attention.span, self.mask, positions)
                y = part(normed, self._attend(kernel, mask))
            else:
                y = part(normed)
            if len(norms) >= len(parts):  # Gemma normalises the output too
                y = norms.pop(0)(y)
            x = x + y
        return x

    def _attend(self, kernel: str, mask: KernelMask) -> Attend:
        """Return the kernel with its mask. RoPE makes new tensors of q and k, and so do copies."""
        attend = attend_with(kernel, mask, with_sinks=False)
        if not self.rotates:
            return attend

        def rotated(q: Tensor, k: Tensor, v: Tensor, *, scale: float, sinks: Tensor | None) -> Tensor:
            return attend(q.clone(), k.clone(), v, scale=scale, sinks=sinks)

        return rotated


class TrainedModel(nn.Module):
    """A decoder with a loss.

    Raises CannotCheckError for a model with an encoder, or without an lm head.
    """

    def __init__(self, model: ModelSpec) -> None:
        super().__init__()
        if model.encoder or not model.head or model.head.kind != "lm" or not model.vocab_size:
            raise CannotCheckError(
                f"verify --train runs decoders with an lm head, which {model.title} is not",
                "--against transformers --train compares a config.json with its own class instead",
            )
        stack = model.main
        self.embedding = nn.Embedding(model.vocab_size, stack.d_model)
        table = stack.learned_positions
        self.positions = nn.Embedding(table, stack.d_model) if table else None
        self.layers = nn.ModuleList(TrainedLayer(layers, stack) for layers in stack.layers)
        norm = nn.LayerNorm if stack.norm == "layernorm" else Norm
        self.norm = norm(stack.d_model) if stack.final_norm else None
        self.head = nn.Linear(stack.d_model, model.vocab_size, bias=model.head.bias)
        self.is_tied = model.head.tied

    def set_recompute(self, recompute: bool) -> None:
        """Keep only the input of each layer for its backward pass, or all that it saves."""
        for layer in self.layers:
            layer.recompute = recompute  # type: ignore[assignment]

    def tie(self) -> None:
        """Give the head the embedding's matrix if the model ties them."""
        if self.is_tied:
            self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor, kernel: str) -> Tensor:
        """Return the mean cross-entropy of (B, S) token ids, each predicted from those before it."""
        x = self.embedding(ids)
        if self.positions is not None:
            x = x + self.positions(torch.arange(ids.shape[1], device=ids.device)[None])
        for layer in self.layers:
            x = layer(x, kernel)
        x = x if self.norm is None else self.norm(x)
        logits = self.head(x).float()
        labels = functional.pad(ids, (0, 1), value=-100)[:, 1:].contiguous()
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


def missing_parts(model: ModelSpec) -> Iterator[str]:
    """Yield what the real model does not have although the preset does."""
    if model.main.embedding_norm or model.token_types or model.extra or any(g.extra for g in model.main.layers):
        yield "A norm of the embedding, token types and extra tensors are left out of the model that is trained."
