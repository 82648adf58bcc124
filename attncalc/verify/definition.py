"""What a layer must answer, written out head by head from its parameters: slow, in fp64, and nothing shared.

Neither the layers of this package nor its kernels are used, so that a layer which splits, norms or gates
in the wrong way does not agree with itself.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm

from ..attention import Cross, Grouped, Latent
from .layers import GroupedAttention
from .masks import allowed
from .subject import Layer


def by_definition(layer: Layer) -> Tensor:
    """(B, S, d_model) of all the layer's tokens at once, on the CPU."""
    kind = layer.subject.kind
    weights = {name: parameter.detach().cpu().double() for name, parameter in layer.module.named_parameters()}
    x = layer.x.cpu().double()
    source = x if layer.source is None else layer.source.cpu().double()
    if isinstance(kind, Latent):
        return _latent(kind, weights, x, _mask(layer, x))
    heads = kind.heads if isinstance(kind, Cross) else kind
    assert isinstance(heads, Grouped)
    if heads.shares_kv and isinstance(layer.module, GroupedAttention):
        weights |= {name: t.flatten(2).cpu().double() for name, t in zip("kv", layer.module.earlier, strict=True)}
    return _grouped(heads, weights, x, source, None if layer.source is not None else _mask(layer, x))


def _mask(layer: Layer, x: Tensor) -> Tensor:
    positions = torch.arange(x.shape[1])
    return allowed(layer.subject.kind.span, layer.subject.mask, positions, positions)


def _grouped(kind: Grouped, of: dict[str, Tensor], x: Tensor, source: Tensor, mask: Tensor | None) -> Tensor:
    d, d_v, share = kind.d_head, kind.d_v or kind.d_head, kind.n_heads // kind.n_kv_heads
    if "W_qkv.weight" in of:
        widths = [kind.n_heads * d, kind.n_kv_heads * d, kind.n_kv_heads * d_v]
        for part in ("weight", "bias"):
            if f"W_qkv.{part}" in of:
                of |= dict(zip((f"W_{n}.{part}" for n in "qkv"), of[f"W_qkv.{part}"].split(widths), strict=True))
    made = {} if kind.shares_kv else {"k": source} if kind.v_from_k else {"k": source, "v": source}
    of |= {n: linear(t, of[f"W_{n}.weight"], of.get(f"W_{n}.bias")) for n, t in {"q": x, **made}.items()}
    q, k = of["q"], of["k"]
    v = of.get("v", k)  # K before its norm, where nothing else makes it
    k_norm = of.get("k_norm.weight")

    if kind.qk_norm == "full":
        q = rms_norm(q, (q.shape[-1],), of["q_norm.weight"])
        k = k if k_norm is None else rms_norm(k, (k.shape[-1],), k_norm)
    out = []
    for head in range(kind.n_heads):
        group = head // share
        q_h, k_h = q[..., head * d : (head + 1) * d], k[..., group * d : (group + 1) * d]
        if kind.qk_norm == "head":
            q_h = rms_norm(q_h, (d,), of["q_norm.weight"])
            k_h = k_h if k_norm is None else rms_norm(k_h, (d,), k_norm)
        sink = of["sinks"][head] if kind.sinks else None
        out.append(_mean(q_h, k_h, v[..., group * d_v : (group + 1) * d_v], mask, d, sink))
    answer = torch.cat(out, -1)
    if kind.gate:
        gate = 1 / (1 + torch.exp(-linear(x, of["W_gate.weight"])))
        answer = answer * gate.repeat_interleave(answer.shape[-1] // gate.shape[-1], -1)
    return linear(answer, of["W_o.weight"], of.get("W_o.bias"))


def _latent(kind: Latent, of: dict[str, Tensor], x: Tensor, mask: Tensor) -> Tensor:
    rank, each, d = kind.kv_lora_rank, kind.d_nope + kind.d_v, kind.d_nope + kind.d_rope
    if kind.q_lora_rank is None:
        q = linear(x, of["W_q.weight"])
    else:
        q_a = linear(x, of["W_q_a.weight"])
        q = linear(rms_norm(q_a, (kind.q_lora_rank,), of["q_a_norm.weight"]), of["W_q_b.weight"])
    kv_a = linear(x, of["W_kv_a.weight"])
    c, rotary = rms_norm(kv_a[..., :rank], (rank,), of["kv_a_norm.weight"]), kv_a[..., rank:]
    out = []
    for head in range(kind.n_heads):
        up = of["W_kv_b.weight"][head * each : (head + 1) * each]
        k = torch.cat((linear(c, up[: kind.d_nope]), rotary), -1)
        out.append(_mean(q[..., head * d : (head + 1) * d], k, linear(c, up[kind.d_nope :]), mask, d, None))
    return linear(torch.cat(out, -1), of["W_o.weight"])


def _mean(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, d: int, sink: Tensor | None) -> Tensor:
    """(B, S, d_v): the mean of the values by the exponentials of the scores; a sink takes a share and gives nothing."""
    e = torch.exp(q @ k.transpose(-1, -2) / math.sqrt(d))
    if mask is not None:
        e = e * mask
    below = e.sum(-1, keepdim=True)
    if sink is not None:
        below = below + torch.exp(sink)
    return e @ v / below
