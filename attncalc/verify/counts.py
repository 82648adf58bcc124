"""What can be counted, and must be equal: parameters, the cache's bytes, FLOPs, pairs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ..attention import Matrix, pairs
from ..check import Check
from ..engines import engine
from ..quantity import total
from ..units import BYTES, FLOP, NO_UNIT, PARAMS, dtype
from ..workload import Run, Workload
from .kernels import sdpa
from .masks import BLOCK, EVERY_KEY, allowed
from .passes import Pass
from .plan import STEPS, Plan, decode, prefill
from .subject import Layer, Subject, attend_by

MOST_PAIRS = 16_384
"""Tokens whose pairs are counted one by one: their matrix scales_with with the square."""


def parameters(layer: Layer, symbols: Subject) -> Iterator[Check]:
    """Elements of each parameter of the layer, and of all of them."""
    held: Counter[str] = Counter()
    for name, parameter in layer.module.named_parameters():
        held[name.partition(".")[0]] += parameter.numel()
    matrices = {m.name: m for m in symbols.kind.matrices(symbols.stack.d_model, symbols.d_source)}
    for name in {**matrices, **held}:
        yield Check(
            "parameters",
            f"params_{name}",
            name,
            matrices.get(name, Matrix(name, 0)).params,
            held[name],
            unit=PARAMS,
            note="elements of the tensors that the layer holds under this name",
            failure="the formula of this matrix is not that of the layer",
        )
    yield Check(
        "parameters",
        "params_layer",
        "one layer",
        total(m.params for m in matrices.values()),
        held.total(),
        unit=PARAMS,
        note="all parameters of the layer",
        failure="the layer has a parameter that no formula counts, or lacks one",
    )


def cache_bytes(layer: Layer, symbols: Subject, plan: Plan) -> Iterator[Check]:
    """Bytes of the tensors that are kept after a prefill and after decode steps; what is in them, and what they answer.

    The layer's sinks are left out, or no kernel but math would take it.
    """
    asked, cache, filled_at_once = layer.asked, layer.kept(), layer.kept()
    before = asked.context - STEPS
    first, then = plan.leanest(layer.subject, "prefill"), plan.leanest(layer.subject, "decode")
    whole = attend_by(first, layer.seen(asked.context), with_sinks=False)
    at_once = layer.prefill(asked.context, whole, filled_at_once)[:, before:]
    layer.prefill(before, attend_by(first, layer.seen(before), with_sinks=False), cache)
    yield _kept("prefill", f"after {before:,} tokens", cache.bytes, predicted_bytes(symbols, decode(asked, before)))
    steps = []
    for at in range(before, asked.context):
        steps.append(layer.step(at, attend_by(then, layer.seen_by_next(cache), with_sinks=False), cache))
    label = f"after {STEPS} decode steps"
    yield _kept("decode", label, cache.bytes, predicted_bytes(symbols, decode(asked, asked.context)))
    rows = [apart(*pair) for pair in zip(cache.rows, filled_at_once.rows, strict=True)]
    failure = "the cache loses, mixes up or adds a token"
    note = f"rows after a prefill and {STEPS} steps, and after one prefill; largest difference, of the largest"
    yield Check(
        "layer",
        "cache_holds_every_token",
        "rows, step by step",
        0,
        largest(rows),
        close(at_once.dtype),
        note=note,
        failure=failure,
    )
    yield Check(
        "layer",
        "decode_equals_prefill",
        "decoding = one prefill",
        0,
        apart(torch.cat(steps, 1), at_once),
        close(at_once.dtype),
        note=f"the last {STEPS} outputs, one by one through the cache and at once; largest difference, of the largest",
        failure=f"{failure}, or the two ways to attend are not the same",
    )


def apart(found: Tensor, expected: Tensor) -> float:
    """The largest difference, of the largest value; not a number where the shapes differ."""
    if found.shape != expected.shape:
        return math.nan
    return float((found - expected).abs().max() / expected.abs().max())


def largest(errors: list[float]) -> float:
    """The largest error; not a number where one of them is not."""
    return next((error for error in errors if math.isnan(error)), max(errors))


def close(dtype: torch.dtype) -> float:
    """How far two ways to compute one thing may be apart, of its largest: 1e-5 in fp32, 4 roundings in half."""
    return 1e-5 if dtype == torch.float32 else 4 * torch.finfo(dtype).eps


def predicted_bytes(symbols: Subject, workload: Workload) -> int:
    """Bytes that one layer keeps, as the ideal engine has it."""
    asked = workload.symbolic()
    stored = dtype(workload.dtype or "")
    return total(engine("ideal").layer_bytes(c, asked, stored) for c in symbols.kind.cache())


def _kept(phase: str, label: str, measured: int, predicted: int) -> Check:
    return Check(
        "cache",
        f"cache_{phase}",
        label,
        predicted,
        measured,
        unit=BYTES,
        note="bytes of the tensors that the layer keeps",
        failure="the cache holds other rows, or rows of another width, than the formula says",
    )


def flops(one: Pass, layer: Layer, symbols: Subject) -> Check | None:
    """FLOPs that torch counted while the layer ran; None where it cannot count this kernel at these heads."""
    scores_too = counts_scores(one, layer)
    if scores_too is None:
        return None
    projected, scored = _predicted_flops(one, layer, symbols)
    note = "projections and dense scores: a kernel is counted as if it skipped no masked pair"
    if layer.steps:
        note = "projections, and the products with the state, token by token"
    if not scores_too:
        note = "projections alone: torch counts 0 FLOP for this kernel (pytorch#195460)"
    return Check(
        "FLOPs",
        f"flops_{one.phase}_{one.kernel}",
        f"{one.phase}, {one.kernel}" + ("" if scores_too else " *"),
        projected + scored if scores_too else projected,
        counted(one.run),
        unit=FLOP,
        note=note,
        failure="the layer multiplies other matrices than the formula does",
    )


def _predicted_flops(one: Pass, layer: Layer, symbols: Subject) -> tuple[int, int]:
    """Of the projections, and of dense scores, over the keys that are read."""
    if one.phase == "decode":
        asked = decode(layer.asked, layer.asked.context).symbolic()
        read = (asked.source or 0) if symbols.crosses else symbols.kind.span.cached_tokens(asked.context)
        made, tokens = (0 if symbols.crosses else asked.batch), asked.new
    else:
        asked = prefill(layer.asked).symbolic()
        tokens = (asked.source or 0) if symbols.stack.input == "source" else asked.new
        read = (asked.source or 0) if symbols.crosses else tokens
        made = asked.batch * read
    scored = asked.batch * symbols.kind.score_flops(Run(1, tokens, read), None)
    return projections(symbols, asked.batch * tokens, made), scored


def projections(subject: Subject, queries: int, keys: int) -> int:
    """FLOPs of the projections of so many tokens, and of so many that keys are made from."""
    matrices = subject.kind.matrices(subject.stack.d_model, subject.d_source)
    of = {"queries": queries, "keys": keys}
    return sum(2 * of[m.applied_to] * m.weights for m in matrices if m.applied_to)


def counted(run: Callable[[], Tensor]) -> int:
    """FLOPs of every matrix product and every kernel that torch knows to count."""
    with FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_total_flops())


def counts_scores(one: Pass, layer: Layer) -> bool | None:
    """Whether torch counts this kernel; None where its counter fails at these heads.

    It knows no fused attention on CPUs (pytorch#195460), and until 2026 no grouped heads in a fused kernel
    (pytorch#177188).
    """
    if layer.steps:
        return True
    around = layer.subject.kind.widths(Run(1, 1, 8) if one.phase == "decode" else None)
    q = layer.x.new_zeros(1, around.n_heads, 8, around.d_qk)
    k = layer.x.new_zeros(1, around.n_kv_heads, 8, around.d_qk)
    v = layer.x.new_zeros(1, around.n_kv_heads, 8, around.d_v)
    try:
        return counted(partial(sdpa, one.kernel, q, k, v, EVERY_KEY, 1.0)) > 0
    except AssertionError:
        return None


def seen_pairs(layer: Layer, symbols: Subject) -> Iterator[Check]:
    """Query-key pairs of the mask, from the closed form and counted one by one."""
    tokens = min(layer.x.shape[1], MOST_PAIRS)
    if symbols.crosses or layer.steps:
        return
    run = Run(1, *[prefill(layer.asked._replace(context=tokens)).symbolic().context] * 2)
    positions, subject = torch.arange(tokens, device=layer.where), layer.subject
    blocks = (allowed(subject.kind.span, subject.mask, rows, positions) for rows in positions.split(BLOCK))
    yield Check(
        "FLOPs",
        "pairs",
        "pairs the mask allows",
        pairs(symbols.kind.span, run, symbols.stack.mask),
        sum(int(block.sum()) for block in blocks),
        unit=NO_UNIT,
        note=f"entries of the mask that are true, of {tokens:,} tokens: exact scores are so many times a pair's",
        failure="the closed form of the mask does not count what the mask holds",
    )
