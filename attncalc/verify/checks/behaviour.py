"""Checks of a layer's behaviour on a small layer of its kind: few heads of their true widths, few
tokens.
"""

import dataclasses
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ...attention import Grouped
from ...check import Check
from ..cases import Case
from ..kernels import REFERENCE, only, reference, scores
from ..layers import layer_class
from ..layers.grouped import GroupedLayer
from ..layers.latent import LatentLayer
from ..masks import NO_MASK, KernelMask
from ..real_layer import RealLayer, attend_with, initialised
from ..request import VerifyRequest
from .numerics import Environment
from .tolerance import relative_error, tolerance

TOKENS = 24
# d_model, and width of the source, of a small layer.
SMALL_WIDTH = 64
# Scores whose standard deviation is measured.
SAMPLES = 16_384
SECTION = "layer behaviour"


def behaviour(case: Case, env: Environment) -> Iterator[Check]:
    """Yield every check of the small layer; for a recurrent layer only that decoding equals a
    prefill.
    """
    request = VerifyRequest(2, TOKENS, TOKENS, "fp32", env.kernels)
    small = RealLayer(small_case(case), request, env.device.torch, env.random)
    if small.is_recurrent:
        yield token_by_token(small)
        return
    yield equals_definition(small)
    yield from score_spread(small, env)
    if isinstance(small.module, GroupedLayer):
        yield equals_torch_mha(case, env)
    if not case.crosses:
        yield shuffled(small)
    if case.decodes and not case.crosses:
        yield token_by_token(small)
    if isinstance(small.module, LatentLayer):
        yield absorbed_equals_expanded(small)


def small_case(case: Case) -> Case:
    """Return the case with a small layer: few heads, a narrow model and a short span."""
    kind = layer_class(case.kind).shrink(case.kind)
    stack = dataclasses.replace(case.stack, d_model=SMALL_WIDTH)
    return case._replace(stack=stack, kind=kind, d_source=SMALL_WIDTH)


def score_spread(small: RealLayer, env: Environment) -> Iterator[Check]:
    """Check that scores of random queries and keys have a standard deviation of 1, and of sqrt(d)
    without the scale.
    """
    d, scale = _width_and_scale(small)
    q = env.normal(SAMPLES, 1, 1, d)
    k = env.normal(SAMPLES, 1, 1, d)
    # 5 standard errors of the deviation: a product of two normal vectors of width d has kurtosis 3
    # + 6 / d.
    sampling = 5 * math.sqrt((2 + 6 / d) / (4 * SAMPLES))
    note = (
        f"standard deviation of {SAMPLES:,} scores of width {d}; the tolerance is 5 standard errors"
    )
    failure = "the layer does not scale its scores by 1 / sqrt(d)"
    for name, label, factor, predicted in (
        ("spread_scaled", "std of scores", scale, 1.0),
        ("spread_unscaled", "std, unscaled", 1.0, math.sqrt(d)),
    ):
        spread = float(scores(q, k, factor).std())
        yield Check(
            SECTION, name, label, predicted, spread, sampling * predicted, "", note, failure
        )


def _width_and_scale(small: RealLayer) -> tuple[int, float]:
    """Return the head width and the scale that the layer passes to its kernel."""
    passed: list[tuple[int, float]] = []

    def attend(q: Tensor, k: Tensor, v: Tensor, *, scale: float, sinks: Tensor | None) -> Tensor:
        passed.append((q.shape[-1], scale))
        return reference(q, k, v, NO_MASK, scale, sinks)

    small.prefill(TOKENS, attend)
    return passed[0]


def equals_definition(small: RealLayer) -> Check:
    """Compare the layer with its definition, written out head by head from its weights."""
    tokens = small.x.shape[1]
    output = small.prefill(tokens, attend_with(REFERENCE, small.prefill_mask(tokens)))
    expected = small.by_definition().to(output.device, output.dtype)
    note = "every head by itself in fp64, with norms, sinks and gate"
    definition = f"the definition of {small.case.kind.label}"
    return _equality_check(
        "equals_definition",
        "layer vs definition",
        relative_error(output, expected),
        note,
        definition,
    )


def equals_torch_mha(case: Case, env: Environment) -> Check:
    """Compare the layer, as MHA, with torch.nn.MultiheadAttention with the same weights."""
    d = case.kind.widths().d_qk
    fused = isinstance(case.kind, Grouped) and case.kind.fused
    kind = Grouped(4, 4, d, bias=("q", "k", "v", "o"), fused=fused)
    layer = GroupedLayer(kind, 4 * d, 4 * d).to(env.device.torch)
    assert env.random is not None
    initialised(layer, env.random)
    torch_mha = nn.MultiheadAttention(4 * d, 4, batch_first=True, device=env.device.torch).eval()
    projections = [
        layer.get_submodule(name) for name in (("W_qkv",) if fused else ("W_q", "W_k", "W_v"))
    ]
    torch_mha.in_proj_weight.copy_(torch.cat([p.get_parameter("weight") for p in projections]))
    torch_mha.in_proj_bias.copy_(torch.cat([p.get_parameter("bias") for p in projections]))
    torch_mha.out_proj.weight.copy_(layer.get_parameter("W_o.weight"))
    torch_mha.out_proj.bias.copy_(layer.get_parameter("W_o.bias"))
    x = env.normal(2, TOKENS, 4 * d)
    hidden = torch.ones(TOKENS, TOKENS, dtype=torch.bool, device=x.device).triu(1)
    error = 0.0
    for mask, torch_mask in ((NO_MASK, None), (KernelMask(causal=True), hidden)):
        output = layer(x, attend_with(REFERENCE, mask))
        with only("math"):  # the kernel that torch would choose may refuse these sizes
            expected = torch_mha(x, x, x, attn_mask=torch_mask, need_weights=False)[0]
        error = max(error, float((output - expected).abs().max()))
    note = "torch.nn.MultiheadAttention with 4 heads of the true width, with biases"
    return _equality_check(
        "equals_torch_mha", "MHA vs torch.nn", error, note, "torch.nn.MultiheadAttention"
    )


def shuffled(small: RealLayer) -> Check:
    """Check that, without a mask, permuted tokens give the same outputs, permuted."""
    x = small.x
    order = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(1)).to(x.device)
    attend = attend_with(REFERENCE, NO_MASK)
    error = relative_error(small.module(x[:, order], attend), small.module(x, attend)[:, order])
    note = "small layer without mask and positions, tokens in another order"
    return _equality_check(
        "shuffled", "permuted tokens", error, note, "attention over a set of tokens"
    )


def token_by_token(small: RealLayer) -> Check:
    """Check that decoding every token, past the end of a window, gives the outputs of one
    prefill.
    """
    tokens = small.request.context
    cache = small.new_state()
    span = small.case.kind.span
    expected = small.prefill(tokens, attend_with(REFERENCE, small.prefill_mask(tokens)))
    steps = [small.decode(position, REFERENCE, cache) for position in range(tokens)]
    note = f"small layer, {tokens} decode steps, {'state' if small.is_recurrent else span.label}"
    return _equality_check(
        "token_by_token",
        "token by token",
        relative_error(torch.cat(steps, 1), expected),
        note,
        "a prefill",
    )


def absorbed_equals_expanded(small: RealLayer) -> Check:
    """Compare MLA in absorbed form with MLA with expanded K and V."""
    attend = attend_with(REFERENCE, small.prefill_mask(small.request.context))
    error = relative_error(
        small.module(small.x, attend, absorb=True), small.module(small.x, attend, absorb=False)
    )
    note = "absorbed and expanded MLA, 4 heads of the true widths"
    return _equality_check(
        "absorbed_equals_expanded", "absorbed MLA", error, note, "MLA with expanded K and V"
    )


def _equality_check(name: str, label: str, error: float, note: str, expected: str) -> Check:
    note = f"largest difference; {note}"
    failure = f"the layer computes something else than {expected}"
    return Check(SECTION, name, label, 0, error, tolerance(torch.float32), "", note, failure)
