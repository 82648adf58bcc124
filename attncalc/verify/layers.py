"""Attention layers in torch at a model's true sizes, to be read beside the formulas of `attncalc.attention`.

Every parameter has the name that the kind's `matrices` gives it, but is made from the kind's own
fields: what a formula counts and what a layer holds are stated twice. Positions have no parameter and
no matrix product and are left out: a rotary part is as wide as it is, and is not rotated.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn

from ..attention import Attention, Cross, Grouped, Latent
from ..attention.recurrent import Recurrent
from ..errors import CannotCheckError
from .caches import Cache
from .recurrent import build_recurrent


class Attend(Protocol):
    """A kernel with what its queries see; (B, heads, tokens, width) in and out."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *, scale: float, sinks: Tensor | None) -> Tensor: ...


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2)) times a gain, over the last dimension and in place, as a fused kernel has it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Of the same shape as `x`, which it overwrites."""
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x.div_(norm.mul_(x.shape[-1] ** -0.5).add_(1e-6)).mul_(self.weight)


class GroupedAttention(nn.Module):
    """MHA, GQA and MQA: n_heads queries share n_kv_heads keys and values.

    As a cross-attention it is given a source, whose K and V are made once and kept. Where it shares an earlier
    layer's, `earlier` is that layer's K and V of all tokens.
    """

    earlier: tuple[Tensor, Tensor]

    def __init__(self, kind: Grouped, d_model: int, d_source: int, *, fused: bool) -> None:
        super().__init__()
        self.d_head = kind.d_head
        self.d_v = kind.d_head if kind.d_v is None else kind.d_v
        self.fused, self.gate, self.shares_kv = fused, kind.gate, kind.shares_kv
        d_model, d_out = kind.d_input or d_model, d_model
        d_source = kind.d_input or d_source
        q, k, v = kind.n_heads * self.d_head, kind.n_kv_heads * self.d_head, kind.n_kv_heads * self.d_v
        self.share = kind.n_heads // kind.n_kv_heads
        if fused:
            self.W_qkv = nn.Linear(d_model, q + k + v, bias=set("qkv") <= set(kind.bias))
        else:
            self.W_q = nn.Linear(d_model, q, bias="q" in kind.bias)
            if not kind.shares_kv:
                self.W_k = nn.Linear(d_source, k, bias="k" in kind.bias)
            if not (kind.shares_kv or kind.v_from_k):
                self.W_v = nn.Linear(d_source, v, bias="v" in kind.bias)
        if kind.gate:
            width = kind.n_heads if kind.gate == "head" else kind.n_heads * self.d_v
            self.W_gate = nn.Linear(d_model, width, bias=False)
        self.W_o = nn.Linear(kind.n_heads * self.d_v, d_out, bias="o" in kind.bias)
        if kind.qk_norm:
            whole = kind.qk_norm == "full"
            self.q_norm = RMSNorm(q if whole else self.d_head)
            if not kind.shares_kv:
                self.k_norm = RMSNorm(k if whole else self.d_head)
        if kind.sinks:
            self.sinks = nn.Parameter(torch.zeros(kind.n_heads))
        if kind.extra_vectors:  # counted, and of a family's own use
            self.vectors = nn.Parameter(torch.zeros(kind.extra_vectors))

    def forward(self, x: Tensor, attend: Attend, cache: Cache | None = None, source: Tensor | None = None) -> Tensor:
        """(B, S, d_model) -> (B, S, d_model). source: (B, T_source, d_source), where K and V are made from it."""
        q, k, v = self.heads(x, x if source is None else source)
        if cache is not None:
            k, v = cache.extend(k, v)
        return self.answer(x, q, k, v, attend)

    def again(self, x: Tensor, attend: Attend, cache: Cache) -> Tensor:
        """As `forward`, where K and V of the source are in the cache already."""
        k, v = cache.rows
        return self.answer(x, self._heads(self.W_q(x), "q_norm", self.d_head), k, v, attend)

    def heads(self, x: Tensor, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (B, tokens, heads, width) each."""
        if self.fused:
            whole = self.W_qkv(x)
            parts = self.share * self.d_head + self.d_head + self.d_v  # of each KV head
            heads = whole.shape[-1] // parts
            widths = (heads * self.share * self.d_head, heads * self.d_head, heads * self.d_v)
            q, k, v = whole.split(widths, dim=-1)
        elif self.shares_kv:
            k, v = (t[:, : x.shape[1]].clone() for t in self.earlier)  # made anew, so that a peak counts them
            return self._heads(self.W_q(x), "q_norm", self.d_head), k, v
        else:
            q, k = self.W_q(x), self.W_k(source)
            v = self.W_v(source) if hasattr(self, "W_v") else k.clone()  # the norm of K is not V's
        return (
            self._heads(q, "q_norm", self.d_head),
            self._heads(k, "k_norm", self.d_head),
            v.unflatten(-1, (-1, self.d_v)),
        )

    def _heads(self, projected: Tensor, norm_name: str, width: int) -> Tensor:
        norm = getattr(self, norm_name, None)
        if norm is not None and norm.weight.numel() != width:  # one norm over the width of all heads
            projected, norm = norm(projected), None
        heads: Tensor = projected.unflatten(-1, (-1, width))
        if norm is not None:
            heads = norm(heads)
        return heads

    def answer(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, attend: Attend) -> Tensor:
        """The kernel, the gate and the output projection."""
        sinks = getattr(self, "sinks", None)
        out = attend(*(t.transpose(1, 2) for t in (q, k, v)), scale=1 / math.sqrt(self.d_head), sinks=sinks)
        out = out.transpose(1, 2).flatten(2)
        if self.gate:
            out = self._gated(out, x)
        y: Tensor = self.W_o(out)
        return y

    def _gated(self, out: Tensor, x: Tensor) -> Tensor:
        """In place; a value of the gate is of one element, or of a whole head."""
        gate: Tensor = self.W_gate(x).sigmoid_()
        heads: Tensor = out.unflatten(-1, (gate.shape[-1], -1))
        return heads.mul_(gate.unsqueeze(-1)).flatten(2)


class LatentAttention(nn.Module):
    """MLA: what is kept is one latent a token, from which K and V of all heads are expanded.

    Absorbed, W_kv_b is multiplied into the queries and the output instead, and every head reads the
    latent itself as if it were the one KV head.
    """

    def __init__(self, kind: Latent, d_model: int) -> None:
        super().__init__()
        self.rank, self.d_nope, self.d_rope, self.d_v = kind.kv_lora_rank, kind.d_nope, kind.d_rope, kind.d_v
        q = kind.n_heads * (kind.d_nope + kind.d_rope)
        if kind.q_lora_rank is None:
            self.W_q = nn.Linear(d_model, q, bias=False)
        else:
            self.W_q_a = nn.Linear(d_model, kind.q_lora_rank, bias=False)
            self.q_a_norm = RMSNorm(kind.q_lora_rank)
            self.W_q_b = nn.Linear(kind.q_lora_rank, q, bias=False)
        self.W_kv_a = nn.Linear(d_model, kind.kv_lora_rank + kind.d_rope, bias=False)
        self.kv_a_norm = RMSNorm(kind.kv_lora_rank)
        self.W_kv_b = nn.Linear(kind.kv_lora_rank, kind.n_heads * (kind.d_nope + kind.d_v), bias=False)
        self.W_o = nn.Linear(kind.n_heads * kind.d_v, d_model, bias=False)

    def forward(self, x: Tensor, attend: Attend, cache: Cache | None = None, absorb: bool | None = None) -> Tensor:
        """(B, S, d_model) -> (B, S, d_model). absorb: by default where there is a past."""
        absorb = bool(cache and cache.seen) if absorb is None else absorb
        latent = self._latent(x)
        if cache is not None:
            (latent,) = cache.extend(latent)
        return self._absorbed(x, latent, attend) if absorb else self._expanded(x, latent, attend)

    def _queries(self, x: Tensor) -> Tensor:
        """(B, S, n_heads, d_nope + d_rope)."""
        q: Tensor = self.W_q_b(self.q_a_norm(self.W_q_a(x))) if hasattr(self, "W_q_a") else self.W_q(x)
        heads: Tensor = q.unflatten(-1, (-1, self.d_nope + self.d_rope))
        return heads

    def _latent(self, x: Tensor) -> Tensor:
        """(B, S, 1, kv_lora_rank + d_rope): what is cached."""
        latent: Tensor = self.W_kv_a(x)
        self.kv_a_norm(latent[..., : self.rank])
        return latent.unsqueeze(2)

    @property
    def _scale(self) -> float:
        return 1 / math.sqrt(self.d_nope + self.d_rope)

    def _expanded(self, x: Tensor, latent: Tensor, attend: Attend) -> Tensor:
        """K and V of every head, made from the latent."""
        q = self._queries(x)
        c, rotary = latent.split((self.rank, self.d_rope), dim=-1)
        kv = self.W_kv_b(c.squeeze(2)).unflatten(-1, (-1, self.d_nope + self.d_v))
        k_nope, v = kv.split((self.d_nope, self.d_v), dim=-1)
        k = torch.cat((k_nope, rotary.expand(-1, -1, k_nope.shape[2], -1)), -1)
        out = attend(*(t.transpose(1, 2) for t in (q, k, v)), scale=self._scale, sinks=None)
        out = out.transpose(1, 2).flatten(2)
        y: Tensor = self.W_o(out)
        return y

    def _absorbed(self, x: Tensor, latent: Tensor, attend: Attend) -> Tensor:
        """The latent is the one key of all heads, and its first part their value."""
        w_k, w_v = self._up_projections()
        q = self._reading_latents(self._queries(x), w_k)
        k, v = latent, latent[..., : self.rank]
        out = attend(*(t.transpose(1, 2) for t in (q, k, v)), scale=self._scale, sinks=None)
        out = torch.einsum("bhsr,hdr->bshd", out, w_v).flatten(2)
        y: Tensor = self.W_o(out)
        return y

    def _up_projections(self) -> tuple[Tensor, Tensor]:
        """W_kv_b as its part for K, (n_heads, d_nope, kv_lora_rank), and for V, (n_heads, d_v, kv_lora_rank)."""
        weight = _whole(self.W_kv_b.weight).unflatten(0, (-1, self.d_nope + self.d_v))
        w_k, w_v = weight.split((self.d_nope, self.d_v), dim=1)
        return w_k, w_v

    def _reading_latents(self, q: Tensor, w_k: Tensor) -> Tensor:
        """(B, S, n_heads, kv_lora_rank + d_rope): q W_k^T for the part without position, then the rotary part."""
        q_nope, q_rope = q.split((self.d_nope, self.d_rope), dim=-1)
        return torch.cat((torch.einsum("bshd,hdr->bshr", q_nope, w_k), q_rope), -1)


def _whole(weight: Tensor) -> Tensor:
    """The part of a weight that is on this device."""
    part: Tensor = weight.to_local() if hasattr(weight, "to_local") else weight
    return part


def build(kind: Attention, d_model: int, d_source: int) -> nn.Module:
    """The layer of a kind, without values yet. CannotCheckError: a kind that has no layer here."""
    if isinstance(kind, Cross):
        return GroupedAttention(kind.heads, d_model, d_source, fused=False)
    if isinstance(kind, Recurrent):
        return build_recurrent(kind, d_model)
    if type(kind) is Grouped and not (kind.extra_projections or kind.extra_states):
        return GroupedAttention(kind, d_model, d_model, fused=kind.fused)
    if isinstance(kind, Latent) and not (kind.index_topk or kind.gate or kind.shares_kv or kind.extra_projections):
        return LatentAttention(kind, d_model)
    keys = [key for key in ("extra_projections", "extra_states", "index_topk", "gate") if getattr(kind, key, None)]
    what = f"{kind.label} with {' and '.join(keys)}" if keys else kind.label
    raise CannotCheckError(f"there is no torch layer of {what} to verify it with", "other kinds can be verified")
