"""What a layer must do, tried on the layer in small: 4 heads of their own widths, few tokens, a short span."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from ..attention import Attention, Chunked, Cross, Grouped, Latent, Sliding, Span
from ..check import Check
from .counts import apart, close
from .definition import by_definition
from .device import Device
from .kernels import reference, scores
from .layers import GroupedAttention
from .masks import EVERY_KEY, Seen
from .recurrent import LAYERS
from .subject import REFERENCE, Asked, Layer, Subject, attend_by, filled

TOKENS = 24
NARROW = 5
"""A window or a chunk in small, so that few tokens go round the ring more than once."""
SMALL = {"n_heads": 4, "n_k_heads": 2, "n_groups": 2, "d_inner": 64}
"""Heads and channels of a recurrent layer in small."""
SAMPLES = 16_384
SECTION = "layer"


class Lab(NamedTuple):
    """Where small layers are tried: a device, the kernels to try, a source of random numbers."""

    device: Device
    kernels: tuple[str, ...]
    random: torch.Generator

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Random numbers of a normal distribution."""
        return torch.randn(shape, generator=self.random, device=self.device.torch).to(dtype)


def behaviour(subject: Subject, lab: Lab) -> Iterator[Check]:
    """Every check of the layer in small."""
    kind = subject.kind
    small = Layer(in_small(subject), Asked(2, TOKENS, TOKENS, "fp32", lab.kernels), lab.device.torch, lab.random)
    if small.steps:  # without a kernel there is nothing else to be done in small
        yield token_by_token(small)
        return
    yield equals_definition(small)
    yield from spread(small, lab)
    if not isinstance(kind, Latent):
        yield equals_torch(subject, lab)
    if not subject.crosses:
        yield shuffled(small)
    if subject.decodes and not subject.crosses:
        yield token_by_token(small)
    if isinstance(kind, Latent):
        yield absorbed_equals_expanded(small)


def spread(small: Layer, lab: Lab) -> Iterator[Check]:
    """Scores of random queries and keys spread by 1 with the layer's scale, by sqrt(d) without it."""
    d, scale = _scale(small)
    q, k = lab.normal(SAMPLES, 1, 1, d), lab.normal(SAMPLES, 1, 1, d)
    # A product of two normal vectors of width d has kurtosis 3 + 6 / d: 5 standard errors of its spread.
    sampling = 5 * math.sqrt((2 + 6 / d) / (4 * SAMPLES))
    for name, label, factor, predicted in (
        ("spread_scaled", "spread of scores", scale, 1.0),
        ("spread_unscaled", "spread, unscaled", 1.0, math.sqrt(d)),
    ):
        yield Check(
            SECTION,
            name,
            label,
            predicted,
            float(scores(q, k, factor).std()),
            sampling * predicted,
            note=f"standard deviation of {SAMPLES:,} scores of width {d}, within 5 standard errors",
            failure="the layer does not scale its scores by 1 / sqrt(d)",
        )


def _scale(small: Layer) -> tuple[int, float]:
    """The width and the scale that the layer gives its kernel."""
    given: list[tuple[int, float]] = []

    def attend(q: Tensor, k: Tensor, v: Tensor, *, scale: float, sinks: Tensor | None) -> Tensor:
        given.append((q.shape[-1], scale))
        return reference(q, k, v, EVERY_KEY, scale, sinks)

    small.prefill(TOKENS, attend)
    return given[0]


def equals_definition(small: Layer) -> Check:
    """The layer gives what its definition does, written out head by head from its parameters alone."""
    subject, tokens = small.subject, small.x.shape[1]
    found = small.prefill(tokens, attend_by(REFERENCE, small.seen(tokens)))
    expected = by_definition(small).to(found.device, found.dtype)
    note = "every head alone, in fp64, with its norms, sinks and gate"
    return _same(
        "equals_definition", "head by head", apart(found, expected), note, f"{subject.kind.label}'s definition"
    )


def equals_torch(subject: Subject, lab: Lab) -> Check:
    """The layer as MHA is torch.nn.MultiheadAttention with the same weights."""
    d = subject.kind.widths().d_qk
    heads = Grouped(4, 4, d, bias=("q", "k", "v", "o"))
    fused = isinstance(subject.kind, Grouped) and subject.kind.fused
    mine = filled(GroupedAttention(heads, 4 * d, 4 * d, fused=fused).to(lab.device.torch), lab.random)
    theirs = nn.MultiheadAttention(4 * d, 4, batch_first=True, device=lab.device.torch).eval()
    parts = [mine.get_submodule(name) for name in (("W_qkv",) if fused else ("W_q", "W_k", "W_v"))]
    theirs.in_proj_weight.copy_(torch.cat([p.get_parameter("weight") for p in parts]))
    theirs.in_proj_bias.copy_(torch.cat([p.get_parameter("bias") for p in parts]))
    theirs.out_proj.weight.copy_(mine.get_parameter("W_o.weight"))
    theirs.out_proj.bias.copy_(mine.get_parameter("W_o.bias"))
    x = lab.normal(2, TOKENS, 4 * d)
    hidden = torch.ones(TOKENS, TOKENS, dtype=torch.bool, device=x.device).triu(1)
    worst = 0.0
    for seen, mask in ((EVERY_KEY, None), (Seen(causal=True), hidden)):
        found = mine(x, attend_by(REFERENCE, seen))
        worst = max(worst, float((found - theirs(x, x, x, attn_mask=mask, need_weights=False)[0]).abs().max()))
    return _same("equals_torch_mha", "MHA = torch.nn's", worst, "4 heads of the model's width, with biases", "MHA")


def shuffled(small: Layer) -> Check:
    """Without a mask, tokens in another order give the same outputs in that order."""
    x = small.x
    order = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(1)).to(x.device)
    attend = attend_by(REFERENCE, EVERY_KEY)
    found, expected = small.module(x[:, order], attend), small.module(x, attend)[:, order]
    note = "the layer in small, without a mask and without positions"
    return _same("shuffled", "shuffled tokens", apart(found, expected), note, "a set of tokens")


def token_by_token(small: Layer) -> Check:
    """Decoding every token through the cache, past the end of a window, gives what one prefill does."""
    tokens = small.asked.context
    cache, span = small.kept(), small.subject.kind.span
    at_once = small.prefill(tokens, attend_by(REFERENCE, small.seen(tokens)))
    steps = [small.decode(at, REFERENCE, cache) for at in range(tokens)]
    note = f"{tokens} tokens one by one, {'the state' if small.steps else span.label}, the layer in small"
    return _same("token_by_token", "token by token", apart(torch.cat(steps, 1), at_once), note, "a prefill")


def absorbed_equals_expanded(small: Layer) -> Check:
    """MLA with W_kv_b in the queries and the output gives what expanded K and V do."""
    attend = attend_by(REFERENCE, small.seen(small.asked.context))
    found = apart(small.module(small.x, attend, absorb=True), small.module(small.x, attend, absorb=False))
    return _same("absorbed_equals_expanded", "absorbed = expanded", found, "4 heads of the true widths", "MLA")


def _same(name: str, label: str, error: float, note: str, of: str) -> Check:
    failure = f"the layer does not do what {of} does"
    return Check(
        SECTION, name, label, 0, error, close(torch.float32), note=f"largest difference; {note}", failure=failure
    )


def in_small(subject: Subject) -> Subject:
    """The same kind with 4 heads of their own widths, a narrow model and a short span."""
    kind = _small(subject.kind)
    return subject._replace(stack=dataclasses.replace(subject.stack, d_model=64), kind=kind, d_source=64)


def _small(kind: Attention) -> Attention:
    if isinstance(kind, Cross):
        return Cross(_small_heads(kind.heads))
    if isinstance(kind, Grouped):
        return _small_heads(kind)
    if isinstance(kind, Latent):
        return dataclasses.replace(kind, n_heads=4, span=short(kind.span))
    own: Any = kind
    if type(own) in LAYERS:
        fewer = {name: min(vars(own)[name], most) for name, most in SMALL.items() if vars(own).get(name)}
        return cast("Attention", dataclasses.replace(own, **fewer))
    return kind


def _small_heads(kind: Grouped) -> Grouped:
    kv = {"MHA": 4, "GQA": 2, "MQA": 1}[kind.label]
    wide = 96 if kind.d_input else None
    return dataclasses.replace(kind, n_heads=4, n_kv_heads=kv, d_input=wide, span=short(kind.span))


def short(span: Span) -> Span:
    """The span over few tokens."""
    if isinstance(span, Sliding):
        return Sliding(min(span.window, NARROW))
    return Chunked(min(span.chunk, NARROW)) if isinstance(span, Chunked) else span
