"""A real torch model to train: embedding, one layer of each kind at its true widths, norms, head
and loss.

Norms and the loss compute in fp32 as in transformers' classes: the formulas count the copies that
this needs.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from ...attention.latent import Latent
from ...attention.recurrent import NoAttention, Recurrent
from ...attention.saved import ClassMath
from ...attention.span import FULL
from ...cost.training.classes import class_math
from ...errors import CannotCheckError
from ...mlp import Mlp
from ...model import Layers, ModelSpec
from ..layers import build
from ..layers.base import Attend, AttentionLayer, RMSNorm
from ..masks import KernelMask, prefill_mask
from ..real_layer import attend_with

EPS = 1e-6
AGAINST = "--against transformers --train compares a config.json with its own class instead"
# Gemma's final_logit_softcapping, gpt-oss's swiglu_limit and alpha, Phi-3.5-MoE's
# router_jitter_noise.
CAP = 30.0
LIMIT = 7.0
SLOPE = 1.702
JITTER = 0.02


def one_of_each(model: ModelSpec) -> ModelSpec:
    """Return the model with one layer of each kind, and without token types.

    Raises CannotCheckError if it has recurrent layers.
    """
    for layers in model.main.layers:
        if isinstance(layers.attention, Recurrent) and not isinstance(
            layers.attention, NoAttention
        ):
            kind = layers.attention.label
            raise CannotCheckError(
                f"verify --train has no {kind} layer with fused kernels to train", AGAINST
            )
    stacks = (
        dataclasses.replace(
            stack,
            layers=tuple(
                dataclasses.replace(layers, count=1, extra=()) for layers in stack.distinct()
            ),
            embedding_norm=False,
        )
        for stack in model.stacks
    )
    return dataclasses.replace(model, stacks=tuple(stacks), token_types=0, extra=())


class Norm(nn.Module):
    """A norm as a class of transformers computes it in single operations: LlamaRMSNorm, or as
    `gain` says.
    """

    def __init__(self, width: int, gain: str = "cast") -> None:
        super().__init__()
        self.weight: nn.Parameter | None = None
        if gain != "none":
            self.weight = nn.Parameter(torch.ones(width))
        self.gain = gain

    def forward(self, x: Tensor) -> Tensor:
        """Normalise in fp32, and multiply by the gain."""
        wide = x.float()
        if self.weight is None:
            return functional.layer_norm(wide, wide.shape[-1:]).to(x.dtype)
        if self.gain == "centred":
            mean = wide.mean(-1, keepdim=True)
            deviation = (wide - mean).pow(2).mean(-1, keepdim=True)
            normed = (wide - mean) * torch.rsqrt(deviation + EPS)
            return (self.weight.float() * normed).to(x.dtype)
        square = wide.pow(2).mean(-1, keepdim=True) + EPS
        if self.gain == "power":
            wide = wide * torch.pow(square, -0.5)
        else:
            wide = wide * torch.rsqrt(square)
        if self.gain == "cast":
            return self.weight * wide.to(x.dtype)
        if self.gain == "fp32":
            return (wide * self.weight).to(x.dtype)
        if self.gain == "shifted":
            return (wide * (1.0 + self.weight.float())).to(x.dtype)
        return (wide * self.weight.float()).to(x.dtype)


class ShiftedLayerNorm(nn.LayerNorm):
    """A LayerNorm whose gain is one more than its weight."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise, and multiply by the gain."""
        return functional.layer_norm(x, self.normalized_shape, self.weight + 1, self.bias)


def norm_of(model: ModelSpec) -> Callable[[int], nn.Module]:
    """Return what builds a norm of a width."""
    gain = class_math(model.model_type).gain
    if model.main.norm == "layernorm" and gain != "centred":
        if gain == "shifted":
            return ShiftedLayerNorm
        return nn.LayerNorm
    return partial(Norm, gain=gain)


def gelu_new(x: Tensor) -> Tensor:
    """Return GELU by single operations, as transformers' NewGELUActivation computes it."""
    return (
        0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
    )


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu_new": gelu_new, "relu": functional.relu}


class DenseMlp(nn.Module):
    """An MLP with the activation function of its class: SwiGLU by default if it is gated, else
    GELU.
    """

    def __init__(
        self, mlp: Mlp, d_model: int, width: int, activation: str, *, clamps: bool = False
    ) -> None:
        super().__init__()
        self.W_up = nn.Linear(d_model, width, bias=mlp.bias)
        self.W_gate = nn.Linear(d_model, width, bias=mlp.bias) if mlp.gated else None
        self.W_down = nn.Linear(width, d_model, bias=mlp.bias)
        self.activation = ACTIVATIONS.get(
            activation, functional.silu if mlp.gated else functional.gelu
        )
        self.clamps = clamps

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., d_model) to (..., d_model)."""
        if self.W_gate is None:
            return self.W_down(self.activation(self.W_up(x)))  # type: ignore[no-any-return]
        gate = self.W_gate(x)
        up = self.W_up(x)
        if self.clamps:
            gate = gate.clamp(max=LIMIT)
            up = up.clamp(-LIMIT, LIMIT)
            gated = gate * torch.sigmoid(gate * SLOPE)
            return self.W_down((up + 1) * gated)  # type: ignore[no-any-return]
        return self.W_down(self.activation(gate) * up)  # type: ignore[no-any-return]


class Kept(torch.autograd.Function):
    """A tensor, and indices that a fused kernel keeps for its backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *indices: Tensor) -> Tensor:
        ctx.save_for_backward(*indices)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Return the gradient of `x`."""
        return (*gradients, *(None for _ in ctx.saved_tensors))


class Experts(nn.Module):
    """A mixture of experts as transformers computes it: sorted tokens, a router of its class, and
    shared experts.
    """

    def __init__(self, mlp: Mlp, d_model: int, math: ClassMath) -> None:
        super().__init__()
        self.math = math
        self.per_token = mlp.n_experts_per_token or 1
        n = mlp.n_experts or 1
        self.router = nn.Linear(d_model, n, bias=mlp.router_bias)
        self.experts = nn.ModuleList(
            DenseMlp(mlp, d_model, mlp.d_ff, math.activation, clamps=math.clamps) for _ in range(n)
        )
        self.has_bias = mlp.bias
        shared = mlp.d_ff_shared or (mlp.n_shared_experts or 0) * mlp.d_ff
        self.shared: DenseMlp | None = None
        if shared:
            self.shared = DenseMlp(mlp, d_model, shared, math.activation)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, S, d_model) to (B, S, d_model)."""
        rows = x.flatten(0, 1)
        if self.math.is_dense:
            out = self._all_tokens(rows)
        else:
            out = self._sorted(rows)
        if self.shared is not None:
            out = out + self.shared(rows)
        mixed: Tensor = out.to(x.dtype).view_as(x)
        return mixed

    def _all_tokens(self, rows: Tensor) -> Tensor:
        """Return the output of Llama 4's experts, each of which computes all tokens, times their
        weights.
        """
        top, chosen = self.router(rows).topk(self.per_token)
        scores = torch.full(
            (len(rows), len(self.experts)), -math.inf, dtype=rows.dtype, device=rows.device
        )
        weights = scores.scatter(1, chosen, top).float().sigmoid().to(rows.dtype)
        repeated = rows.repeat(len(self.experts), 1) * weights.T.reshape(-1, 1)
        parts = repeated.split(len(rows))
        return torch.stack(
            [expert(part) for expert, part in zip(self.experts, parts, strict=True)]
        ).sum(0)

    def _sorted(self, rows: Tensor) -> Tensor:
        """Return the experts' output: tokens are sorted by expert, and sorted back."""
        weights, chosen = self._route(rows)
        experts, order = chosen.flatten().sort()
        counts = torch.bincount(experts, minlength=len(self.experts))
        parts = rows[order // self.per_token].split(counts.tolist())
        out = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        kept = [counts.cumsum(0, dtype=torch.int32)]
        if self.has_bias:
            kept.append(experts)
        out = Kept.apply(out, *kept)  # type: ignore[no-untyped-call]
        out = (out * weights.flatten()[order][:, None])[order.argsort()]
        mixed: Tensor = out.unflatten(0, (-1, self.per_token)).sum(1)
        return mixed

    def _route(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights and the indices of each token's experts, as the class's router
        computes them.
        """
        router = self.math.router
        if router.in_fp32:
            logits = functional.linear(rows.float(), self.router.weight.float())
        else:
            logits = self.router(rows)
        if router.scores == "sparsemixer":
            weights, chosen = self._sparsemixer(logits)
        elif router.scores.startswith("chosen"):
            top, chosen = logits.topk(self.per_token)
            weights = top.softmax(
                -1, dtype=None if router.scores == "chosen, cast" else torch.float32
            )
        else:
            if router.scores == "softmax":
                scores = logits.softmax(-1, dtype=torch.float32)
            else:
                scores = logits.float().sigmoid()
            if router.groups[0]:
                chosen = self._of_groups(scores).topk(self.per_token)[1]
            else:
                chosen = scores.topk(self.per_token)[1]
            weights = scores.gather(1, chosen)
        if router.normalizes:
            weights = weights / weights.sum(-1, keepdim=True)
        if router.weights != "fp32":
            weights = weights.to(rows.dtype)
        return weights, chosen

    def _of_groups(self, scores: Tensor) -> Tensor:
        """Return the scores with those outside of the best groups as -inf (DeepSeek-V3)."""
        groups, chosen = self.math.router.groups
        best = scores.unflatten(1, (groups, -1)).topk(2)[0].sum(-1).topk(chosen)[1]
        mask = torch.ones_like(scores[:, :groups]).scatter(1, best, 0).bool()
        return scores.masked_fill(mask.repeat_interleave(scores.shape[1] // groups, 1), -math.inf)

    def _sparsemixer(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights and the indices of experts that are chosen one after another
        (Phi-3.5-MoE).
        """
        weights = []
        chosen = []
        left = logits
        for _ in range(self.per_token):
            with torch.no_grad():
                largest = left.max(-1, keepdim=True)[0]
                far = (largest - logits) / logits.abs().clamp(min=largest) > JITTER
            gates = left.masked_fill(far, -math.inf)
            index = gates.max(-1)[1][:, None]
            gates = gates.softmax(-1)
            weight = gates.gather(1, index)
            is_first = gates.max(-1, keepdim=True)[1] == index
            weights.append(weight * torch.where(is_first, weight.detach(), weight.detach() / 3))
            chosen.append(index)
            left = logits.scatter(1, index, -math.inf)
        return torch.cat(weights, 1), torch.cat(chosen, 1)


class TrainedLayer(nn.Module):
    """A layer: a norm, attention and a norm, the MLP, each with a residual; further norms come
    after them.

    With one norm, attention and MLP both read its output, as in GPT-J.
    """

    def __init__(self, layers: Layers, model: ModelSpec) -> None:
        super().__init__()
        stack = model.main
        norm = norm_of(model)
        computes = class_math(model.model_type)
        self.computes = computes
        self.is_full = layers.attention.span == FULL
        self.layers = layers
        self.mask = stack.mask
        self.recompute = False
        self.rotates = not stack.learned_positions
        self.attention: nn.Module | None = None
        if not isinstance(layers.attention, NoAttention):
            self.attention = build(layers.attention, stack.d_model, stack.d_model)
            for module in list(self.attention.modules()):
                for name, inner in module.named_children():
                    # it works in place, which a backward pass forbids
                    if isinstance(inner, RMSNorm):
                        setattr(module, name, Norm(inner.weight.numel(), computes.gain))
        mlp = layers.mlp
        self.mlp: nn.Module | None = None
        if mlp and mlp.n_experts:
            self.mlp = Experts(mlp, stack.d_model, computes)
        elif mlp:
            self.mlp = DenseMlp(mlp, stack.d_model, mlp.d_ff, computes.activation)
        self.norms = nn.ModuleList(norm(stack.d_model) for _ in range(computes.norms(layers.norms)))

    def forward(self, x: Tensor, kernel: str) -> Tensor:
        """Map (B, S, d_model) to (B, S, d_model)."""
        if not self.recompute:
            return self._run(x, kernel)
        y: Tensor = checkpoint(self._run, x, kernel, use_reentrant=False)
        return y

    def _run(self, x: Tensor, kernel: str) -> Tensor:
        parts = [part for part in (self.attention, self.mlp) if part is not None]
        if self.computes.in_parallel and len(self.norms) == 2:
            outputs = [
                self._part(part, norm(x), kernel)
                for part, norm in zip(parts, self.norms, strict=True)
            ]
            return x + outputs[0] + outputs[1]
        if len(self.norms) == 1 and len(parts) > 1:
            normed = self.norms[0](x)
            for part in parts:
                x = x + self._part(part, normed, kernel)
            return x
        # Gemma normalises the outputs too
        norms = list(self.norms)
        after = len(self.norms) >= 2 * len(parts)
        for part in parts:
            normed = norms.pop(0)(x) if norms else x
            y = self._part(part, normed, kernel)
            if after:
                y = norms.pop(0)(y)
            x = x + y
        if self.computes.scales_layer:
            return x * torch.ones(1, dtype=x.dtype, device=x.device)
        return x

    def _part(self, part: nn.Module, x: Tensor, kernel: str) -> Tensor:
        if not isinstance(part, AttentionLayer):
            return part(x)  # type: ignore[no-any-return]
        positions = torch.arange(x.shape[1], device=x.device)
        mask = prefill_mask(self.layers.attention.span, self.mask, positions)
        return part(x, self._attend(kernel, mask))  # type: ignore[no-any-return]

    def _attend(self, kernel: str, mask: KernelMask) -> Attend:
        """Return the kernel with its mask. RoPE makes new tensors of q and k, and so do copies."""
        attend = attend_with(kernel, mask, with_sinks=False)
        if not self.rotates:
            return attend

        def rotated(
            q: Tensor, k: Tensor, v: Tensor, *, scale: float, sinks: Tensor | None
        ) -> Tensor:
            joins = self.computes.joins_heads or isinstance(self.layers.attention, Latent)
            order = torch.contiguous_format if joins else torch.preserve_format
            if self.computes.own_tables:
                width = 2 * q.shape[-1]
                if self.computes.own_tables == "half":
                    width = q.shape[-1]
                dtype = torch.float32 if "fp32" in self.computes.own_tables else q.dtype
                tables = torch.ones((q.shape[-2], width), dtype=dtype)
                tables = tables.to(q.device)[:, : q.shape[-1]]
                q = (q * tables).to(q.dtype)
                k = (k * tables).to(k.dtype)
            is_cast = self.computes.scales_queries == "cast"
            if is_cast or (self.computes.scales_queries and self.is_full):
                dtype = q.dtype if is_cast else torch.float32
                scales = torch.ones((q.shape[-2], 1), dtype=dtype, device=q.device)
                q = (q * scales).to(q.dtype)
            if self.computes.normalizes_v:
                wide = v.float()
                v = (wide * torch.pow(wide.pow(2).mean(-1, keepdim=True) + EPS, -0.5)).to(v.dtype)
            return attend(
                q.clone(memory_format=order),
                k.clone(memory_format=order),
                v,
                scale=scale,
                sinks=sinks,
            )

        return rotated


class TrainedModel(nn.Module):
    """A decoder with a loss.

    Raises CannotCheckError for a model with an encoder, or without an lm head.
    """

    def __init__(self, model: ModelSpec) -> None:
        super().__init__()
        if model.encoder or not model.head or model.head.kind != "lm" or not model.vocab_size:
            raise CannotCheckError(
                f"verify --train runs decoders with an lm head, which {model.title} is not", AGAINST
            )
        stack = model.main
        self.embedding = nn.Embedding(model.vocab_size, stack.d_model)
        table = stack.learned_positions
        self.positions: nn.Embedding | None = None
        if table:
            self.positions = nn.Embedding(table, stack.d_model)
        self.layers = nn.ModuleList(TrainedLayer(layers, model) for layers in stack.layers)
        computes = class_math(model.model_type)
        self.norm: nn.Module | None = None
        if computes.norms(stack.final_norm):
            self.norm = norm_of(model)(stack.d_model)
        self.head = nn.Linear(stack.d_model, model.vocab_size, bias=model.head.bias)
        self.is_tied = model.head.tied
        self.computes = computes

    def set_recompute(self, recompute: bool) -> None:
        """Keep only the input of each layer for its backward pass, or all that it saves."""
        for layer in self.layers:
            layer.recompute = recompute  # type: ignore[assignment]

    def tie(self) -> None:
        """Give the head the embedding's matrix if the model ties them."""
        if self.is_tied:
            self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor, kernel: str) -> Tensor:
        """Return the mean cross-entropy of (B, S) token ids, each predicted from those before
        it.
        """
        x = self.embedding(ids)
        if self.computes.scales_embedding:
            x = x * torch.tensor(math.sqrt(x.shape[-1]), dtype=x.dtype, device=x.device)
        if self.positions is not None:
            x = x + self.positions(torch.arange(ids.shape[1], device=ids.device)[None])
        for layer in self.layers:
            x = layer(x, kernel)
        if self.norm is not None:
            x = self.norm(x)
        logits = self.head(x)
        if self.computes.caps_logits:
            logits = torch.tanh(logits / CAP) * CAP
        logits = logits.float()
        labels = functional.pad(ids, (0, 1), value=-100)[:, 1:].contiguous()
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


def missing_parts(model: ModelSpec) -> Iterator[str]:
    """Yield what the real model does not have although the preset does."""
    if (
        model.main.embedding_norm
        or model.token_types
        or model.extra
        or any(g.extra for g in model.main.layers)
    ):
        yield (
            "A norm of the embedding, token types and extra tensors are left out of the model "
            "that is trained."
        )
