"""MHA, GQA and MQA: the layer of `attention/grouped.py`."""

import dataclasses
import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm

from ...attention import Grouped
from .base import SMALL_HEADS, Attend, AttentionLayer, L2Norm, RMSNorm, one_head, shrink_span
from .cache import Cache


class GroupedLayer(AttentionLayer):
    """MHA, GQA and MQA: n_heads queries share n_kv_heads keys and values."""

    not_implemented: ClassVar[tuple[str, ...]] = ("extra_projections", "extra_states")
    # K and V of all tokens, if the layer shares those of an earlier layer
    earlier_kv: tuple[Tensor, Tensor]

    def __init__(self, kind: Grouped, d_model: int, d_source: int) -> None:
        super().__init__()
        self.d_head = kind.d_head
        self.d_v = kind.d_head if kind.d_v is None else kind.d_v
        self.fused = kind.fused
        self.gate = kind.gate
        self.shares_kv = kind.shares_kv
        d_out = d_model
        d_model = kind.d_input or d_model
        d_source = kind.d_input or d_source
        q = kind.n_heads * self.d_head
        k = kind.n_kv_heads * self.d_head
        v = kind.n_kv_heads * self.d_v
        self.share = kind.n_heads // kind.n_kv_heads
        if kind.fused:
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
        if kind.qk_norm == "l2":
            self.q_norm: nn.Module = L2Norm()
            self.k_norm: nn.Module = L2Norm()
        elif kind.qk_norm:
            all_heads = kind.qk_norm == "full"
            self.q_norm = RMSNorm(q if all_heads else self.d_head)
            if not kind.shares_kv:
                self.k_norm = RMSNorm(k if all_heads else self.d_head)
        if kind.sinks:
            self.sinks = nn.Parameter(torch.zeros(kind.n_heads))
        # counted as parameters; their use differs between families and is left out
        if kind.extra_vectors:
            self.vectors = nn.Parameter(torch.zeros(kind.extra_vectors))

    @staticmethod
    def shrink(kind: Grouped) -> Grouped:
        n_kv_heads = {"MHA": SMALL_HEADS, "GQA": 2, "MQA": 1}[kind.label]
        d_input = 96 if kind.d_input else None
        return dataclasses.replace(
            kind,
            n_heads=SMALL_HEADS,
            n_kv_heads=n_kv_heads,
            d_input=d_input,
            span=shrink_span(kind.span),
        )

    def forward(
        self, x: Tensor, attend: Attend, cache: Cache | None = None, source: Tensor | None = None
    ) -> Tensor:
        """Map (B, S, d_model) to (B, S, d_model); `source`, (B, T_source, d_source), replaces x as
        input of K and V.
        """
        q, k, v = self.heads(x, x if source is None else source)
        if cache is not None:
            k, v = cache.extend(k, v)
        return self.attend_and_project(x, q, k, v, attend)

    def heads(self, x: Tensor, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, each (B, tokens, heads, width)."""
        if self.fused:
            qkv = self.W_qkv(x)
            parts = self.share * self.d_head + self.d_head + self.d_v  # per KV head
            heads = qkv.shape[-1] // parts
            widths = (heads * self.share * self.d_head, heads * self.d_head, heads * self.d_v)
            q, k, v = qkv.split(widths, dim=-1)
            return (
                self._heads(q, "q_norm", self.d_head),
                self._heads(k, "k_norm", self.d_head),
                v.unflatten(-1, (-1, self.d_v)),
            )
        # Each norm runs before the next projection, so that its one value per head is not held at
        # the peak.
        q = self._heads(self.W_q(x), "q_norm", self.d_head)
        if self.shares_kv:
            # cloned, so that they count towards the peak as the formula counts them
            k, v = (t[:, : x.shape[1]].clone() for t in self.earlier_kv)
            return q, k, v
        k = self.W_k(source)
        # a copy, because the norm of K works in place
        v_from_k = None if hasattr(self, "W_v") else k.clone()
        k = self._heads(k, "k_norm", self.d_head)
        v = self.W_v(source) if v_from_k is None else v_from_k
        return q, k, v.unflatten(-1, (-1, self.d_v))

    def _heads(self, projected: Tensor, norm_name: str, width: int) -> Tensor:
        norm = getattr(self, norm_name, None)
        if (
            not isinstance(norm, L2Norm) and norm is not None and norm.weight.numel() != width
        ):  # one norm over all heads together
            projected = norm(projected)
            norm = None
        heads: Tensor = projected.unflatten(-1, (-1, width))
        if norm is not None:
            heads = norm(heads)
        return heads

    def attend_and_project(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, attend: Attend
    ) -> Tensor:
        """Return the layer's output: the kernel, the gate and the output projection."""
        sinks = getattr(self, "sinks", None)
        out = attend(
            *(t.transpose(1, 2) for t in (q, k, v)), scale=1 / math.sqrt(self.d_head), sinks=sinks
        )
        out = out.transpose(1, 2).flatten(2)
        if self.gate:
            out = self._gated(out, x)
        y: Tensor = self.W_o(out)
        return y

    def _gated(self, out: Tensor, x: Tensor) -> Tensor:
        """Multiply `out` by the gate, which has one value per element or one per head; without
        gradients in place.
        """
        gate: Tensor = self.W_gate(x).sigmoid_()
        heads: Tensor = out.unflatten(-1, (gate.shape[-1], -1))
        if torch.is_grad_enabled():
            return (heads * gate.unsqueeze(-1)).flatten(2)
        return heads.mul_(gate.unsqueeze(-1)).flatten(2)

    @staticmethod
    def definition(
        kind: Grouped, weights: dict[str, Tensor], x: Tensor, source: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Return the output head by head; `weights["k"]` and `weights["v"]` hold K and V of an
        earlier layer.
        """
        d = kind.d_head
        d_v = kind.d_v or kind.d_head
        share = kind.n_heads // kind.n_kv_heads
        w = dict(weights)
        if "W_qkv.weight" in w:
            widths = [kind.n_heads * d, kind.n_kv_heads * d, kind.n_kv_heads * d_v]
            for part in ("weight", "bias"):
                if f"W_qkv.{part}" in w:
                    w |= dict(
                        zip(
                            (f"W_{n}.{part}" for n in "qkv"),
                            w[f"W_qkv.{part}"].split(widths),
                            strict=True,
                        )
                    )
        inputs = {"q": x} if kind.shares_kv else {"q": x, "k": source}
        if not (kind.shares_kv or kind.v_from_k):
            inputs["v"] = source
        w |= {
            n: linear(tokens, w[f"W_{n}.weight"], w.get(f"W_{n}.bias"))
            for n, tokens in inputs.items()
        }
        q = w["q"]
        k = w["k"]
        v = w.get("v", k)  # v_from_k: V is K before its norm
        k_norm = w.get("k_norm.weight")

        if kind.qk_norm == "full":
            q = rms_norm(q, (q.shape[-1],), w["q_norm.weight"])
            k = k if k_norm is None else rms_norm(k, (k.shape[-1],), k_norm)
        heads = []
        for head in range(kind.n_heads):
            group = head // share
            q_h = q[..., head * d : (head + 1) * d]
            k_h = k[..., group * d : (group + 1) * d]
            if kind.qk_norm == "head":
                q_h = rms_norm(q_h, (d,), w["q_norm.weight"])
                k_h = k_h if k_norm is None else rms_norm(k_h, (d,), k_norm)
            elif kind.qk_norm == "l2":
                q_h = rms_norm(q_h, (d,))
                k_h = rms_norm(k_h, (d,))
            sink = w["sinks"][head] if kind.sinks else None
            heads.append(one_head(q_h, k_h, v[..., group * d_v : (group + 1) * d_v], mask, sink))
        out = torch.cat(heads, -1)
        if kind.gate:
            gate = 1 / (1 + torch.exp(-linear(x, w["W_gate.weight"])))
            out = out * gate.repeat_interleave(out.shape[-1] // gate.shape[-1], -1)
        return linear(out, w["W_o.weight"], w.get("W_o.bias"))
