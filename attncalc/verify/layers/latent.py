"""MLA: the layer of `attention.Latent`."""

import dataclasses
import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm

from ...attention.latent import Latent
from .base import SMALL_HEADS, Attend, AttentionLayer, RMSNorm, one_head, shrink_span
from .cache import Cache


class LatentLayer(AttentionLayer):
    """Multi-head latent attention: the cache holds one latent per token, from which K and V of all
    heads are expanded.

    In absorbed form, W_kv_b is multiplied into the queries and the output instead, and every head
    reads the latent itself as the only KV head.
    """

    not_implemented = ("extra_projections", "index_topk", "gate", "shares_kv", "caches_heads")

    def __init__(self, kind: Latent, d_model: int, d_source: int) -> None:
        super().__init__()
        self.rank = kind.kv_lora_rank
        self.d_nope = kind.d_nope
        self.d_rope = kind.d_rope
        self.d_v = kind.d_v
        q = kind.n_heads * (kind.d_nope + kind.d_rope)
        if kind.q_lora_rank is None:
            self.W_q = nn.Linear(d_model, q, bias=False)
        else:
            self.W_q_a = nn.Linear(d_model, kind.q_lora_rank, bias=False)
            self.q_a_norm = RMSNorm(kind.q_lora_rank)
            self.W_q_b = nn.Linear(kind.q_lora_rank, q, bias=False)
        self.W_kv_a = nn.Linear(d_model, kind.kv_lora_rank + kind.d_rope, bias=False)
        self.kv_a_norm = RMSNorm(kind.kv_lora_rank)
        self.W_kv_b = nn.Linear(
            kind.kv_lora_rank, kind.n_heads * (kind.d_nope + kind.d_v), bias=False
        )
        self.W_o = nn.Linear(kind.n_heads * kind.d_v, d_model, bias=False)

    @staticmethod
    def shrink(kind: Latent) -> Latent:
        return dataclasses.replace(kind, n_heads=SMALL_HEADS, span=shrink_span(kind.span))

    def forward(
        self, x: Tensor, attend: Attend, cache: Cache | None = None, absorb: bool | None = None
    ) -> Tensor:
        """Map (B, S, d_model) to (B, S, d_model), in absorbed form by default if the cache holds
        tokens.
        """
        absorb = bool(cache and cache.tokens_seen) if absorb is None else absorb
        if torch.is_grad_enabled():
            c, rotary = self.W_kv_a(x).split((self.rank, self.d_rope), dim=-1)
            return self._expanded(x, self.kv_a_norm(c), rotary.unsqueeze(2), attend)
        latent = self._latent(x)
        if cache is not None:
            (latent,) = cache.extend(latent)
        if absorb:
            return self._absorbed(x, latent, attend)
        c, rotary = latent.split((self.rank, self.d_rope), dim=-1)
        return self._expanded(x, c.squeeze(2), rotary, attend)

    def _queries(self, x: Tensor) -> Tensor:
        """Return (B, S, n_heads, d_nope + d_rope)."""
        q: Tensor = (
            self.W_q_b(self.q_a_norm(self.W_q_a(x))) if hasattr(self, "W_q_a") else self.W_q(x)
        )
        heads: Tensor = q.unflatten(-1, (-1, self.d_nope + self.d_rope))
        return heads

    def _latent(self, x: Tensor) -> Tensor:
        """Return what is cached, (B, S, 1, kv_lora_rank + d_rope)."""
        latent: Tensor = self.W_kv_a(x)
        self.kv_a_norm(latent[..., : self.rank])
        return latent.unsqueeze(2)

    @property
    def _scale(self) -> float:
        return 1 / math.sqrt(self.d_nope + self.d_rope)

    def _expanded(self, x: Tensor, c: Tensor, rotary: Tensor, attend: Attend) -> Tensor:
        """Attend with K and V of every head, expanded from the latent's part without position,
        `c`.
        """
        q = self._queries(x)
        kv = self.W_kv_b(c).unflatten(-1, (-1, self.d_nope + self.d_v))
        k_nope, v = kv.split((self.d_nope, self.d_v), dim=-1)
        k = torch.cat((k_nope, rotary.expand(-1, -1, k_nope.shape[2], -1)), -1)
        out = attend(*(t.transpose(1, 2) for t in (q, k, v)), scale=self._scale, sinks=None)
        out = out.transpose(1, 2).flatten(2)
        y: Tensor = self.W_o(out)
        return y

    def _absorbed(self, x: Tensor, latent: Tensor, attend: Attend) -> Tensor:
        """Attend with the latent as the only key of all heads, and its first kv_lora_rank columns
        as their value.
        """
        weight: Tensor = self.W_kv_b.weight
        if hasattr(weight, "to_local"):  # a test has split the layer over ranks
            weight = weight.to_local()
        # W_kv_b's parts for K, (n_heads, d_nope, kv_lora_rank), and V, (n_heads, d_v, kv_lora_rank)
        by_head = weight.unflatten(0, (-1, self.d_nope + self.d_v))
        w_k, w_v = by_head.split((self.d_nope, self.d_v), dim=1)
        q = self._absorbed_queries(self._queries(x), w_k)
        k = latent
        v = latent[..., : self.rank]
        out = attend(*(t.transpose(1, 2) for t in (q, k, v)), scale=self._scale, sinks=None)
        out = torch.einsum("bhsr,hdr->bshd", out, w_v).flatten(2)
        y: Tensor = self.W_o(out)
        return y

    def _absorbed_queries(self, q: Tensor, w_k: Tensor) -> Tensor:
        """Return (B, S, n_heads, kv_lora_rank + d_rope): q W_k for the part without position, then
        the rotary part.
        """
        q_nope, q_rope = q.split((self.d_nope, self.d_rope), dim=-1)
        return torch.cat((torch.einsum("bshd,hdr->bshr", q_nope, w_k), q_rope), -1)

    @staticmethod
    def definition(
        kind: Latent, weights: dict[str, Tensor], x: Tensor, source: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Return the output head by head, with expanded K and V."""
        w = weights
        rank = kind.kv_lora_rank
        up_rows = kind.d_nope + kind.d_v
        d = kind.d_nope + kind.d_rope
        if kind.q_lora_rank is None:
            q = linear(x, w["W_q.weight"])
        else:
            q_a = linear(x, w["W_q_a.weight"])
            q = linear(rms_norm(q_a, (kind.q_lora_rank,), w["q_a_norm.weight"]), w["W_q_b.weight"])
        kv_a = linear(x, w["W_kv_a.weight"])
        c = rms_norm(kv_a[..., :rank], (rank,), w["kv_a_norm.weight"])
        rotary = kv_a[..., rank:]
        heads = []
        for head in range(kind.n_heads):
            up = w["W_kv_b.weight"][head * up_rows : (head + 1) * up_rows]
            k = torch.cat((linear(c, up[: kind.d_nope]), rotary), -1)
            v = linear(c, up[kind.d_nope :])
            heads.append(one_head(q[..., head * d : (head + 1) * d], k, v, mask))
        return linear(torch.cat(heads, -1), w["W_o.weight"])
