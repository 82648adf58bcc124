"""How cost grows with the context, and what a recurrent layer of the same width would cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from math import lcm
from typing import NamedTuple

from ..attention import Chunked, Sliding
from ..model import ModelSpec
from ..quantity import Quantity, Ratio, ceil_div, least, named, quantity, ratio
from ..search import first_true
from ..workload import Workload
from .flops import flops, passes, projections, query_tokens, scores

MAX_CONTEXT = 2**62
"""The longest context at which a crossover is looked for."""


class Growth(NamedTuple):
    """The cost at twice the context divided by the cost at this one.

    Attributes:
        total: of all FLOPs.
        scores: of the exact scores.
    """

    total: Ratio
    scores: Ratio


def growth(model: ModelSpec, workload: Workload) -> Growth:
    """Return how much all FLOPs and the exact scores grow when the context doubles."""
    now, then = flops(model, workload), flops(model, workload.doubled())

    def grown(name: str, before: Quantity, after: Quantity) -> Ratio:
        return ratio(
            named(after, f"{name}_at_2T", "FLOP at twice the context"),
            named(before, name, "FLOP at this context"),
        )

    return Growth(
        grown("flops_total", now.total, then.total),
        grown("flops_attention_scores", now.scores, then.scores),
    )


def crossover(model: ModelSpec, workload: Workload) -> Quantity | None:
    """Return the shortest context at which exact scores cost more than attention's projections.

    All sequences have that length, and the tokens in the past are those of `workload`. Returns None if the scores
    never cost more: every layer has a window or a chunk.
    """
    plain = model.plain()

    def scores_cost_more(context: int) -> bool:
        of_scores, of_projections = _scores_and_projections(plain, workload.at(context))
        return of_scores > of_projections

    past = 0 if workload.phase == "decode" else workload.past
    spans = [layers.attention.span for layers in model.main.layers]
    chunks = {int(span.chunk) for span in spans if isinstance(span, Chunked)}
    context = _first_context(scores_cost_more, past, chunks)
    if context is None:
        return None
    if len(list(model.groups())) == 1:
        sides = _scores_and_projections(model.symbolic(), workload.at(context).symbolic())
        return least("T", context, "tokens of context", *sides)
    of_scores, of_projections = _scores_and_projections(plain, workload.at(context))
    return least(
        "T",
        context,
        "tokens of context",
        named(of_scores, "flops_attention_scores_at_T", "FLOP of the scores at that context"),
        named(of_projections, "flops_attention_projections_at_T", "FLOP of the projections at that context"),
    )


def _scores_and_projections(model: ModelSpec, workload: Workload) -> tuple[int, int]:
    """Return the FLOPs of exact scores and of attention's projections, in all layers."""
    groups = list(model.groups())
    return (
        sum(layers.count * scores(stack, layers, workload) for stack, layers in groups),
        sum(layers.count * projections(model, stack, layers, workload) for stack, layers in groups),
    )


def _first_context(scores_cost_more: Callable[[int], bool], past: int, chunks: set[int]) -> int | None:
    """Return the first context above `past` at which the scores cost more, or None up to MAX_CONTEXT.

    With chunks the scores may fall behind again, since a new chunk starts with few keys: with a chunk of 8,000, a
    decode step at context 8,000 sees 8,000 keys, and the next one sees one key. Two facts make the search short:

    - At the multiples of all chunks (every context, without chunks), scores that cost more do so from then on.
    - Between two ends of chunks, scores less projections are convex in the context, so the scores cost more from
      some context on up to the second end, or nowhere between them.
    """
    period = lcm(*chunks)
    end = _first_multiple(scores_cost_more, past - past % period, period)
    if end is None:
        return None
    start = max(past, end - period)
    for chunk_end in _chunk_ends(start, end, chunks):
        if scores_cost_more(chunk_end):
            return first_true(scores_cost_more, start, chunk_end)
        start = chunk_end
    return end


def _first_multiple(holds: Callable[[int], bool], origin: int, period: int) -> int | None:
    """Return the first of origin + period, origin + 2 * period, ... that holds, or None up to MAX_CONTEXT."""
    high = 1
    while not holds(origin + high * period):
        high *= 2
        if high * period > MAX_CONTEXT:
            return None
    return origin + period * first_true(lambda k: holds(origin + k * period), high // 2, high)


def _chunk_ends(start: int, end: int, chunks: set[int]) -> list[int]:
    """Return the contexts above `start` at which a chunk ends, up to `end`, in order."""
    ends = {n for chunk in chunks for n in range(start - start % chunk + chunk, end, chunk)}
    return [*sorted(ends), end]


class OneLayer(NamedTuple):
    """One layer over a workload, in the terms of Vaswani et al. 2017, arXiv:1706.03762, Table 1.

    Attributes:
        flops: FLOPs on one device.
        sequential_steps: steps that cannot run in parallel.
        longest_path: layers that information passes through between the two tokens farthest apart; None if it
            never gets there.
    """

    flops: Quantity
    sequential_steps: Quantity
    longest_path: Quantity | None


def one_attention_layer(model: ModelSpec, workload: Workload) -> OneLayer:
    """Return the cost of one layer's self-attention: its projections and exact scores.

    Of several kinds of layers, the one whose scores cost most. A model without attention gives its recurrent layer,
    which runs token by token.
    """
    symbols, workload = model.symbolic(), workload.symbolic()
    stack = symbols.main
    all_layers = [dataclasses.replace(layers, cross=None) for layers in stack.layers]
    candidates = [layers for layers in all_layers if layers.attention.widths().n_heads] or all_layers
    layers = max(candidates, key=lambda layers: int(scores(stack, layers, workload)))
    one_pass = projections(symbols, stack, layers, workload) + scores(stack, layers, workload)
    cost = quantity(passes(workload) * one_pass)
    if not layers.attention.widths().n_heads:
        return OneLayer(cost, quantity(workload.new), quantity(workload.context))
    return OneLayer(cost, Quantity(1), _longest_path(model, workload.context))


def one_recurrent_layer(model: ModelSpec, workload: Workload) -> OneLayer:
    """Return the cost of a plain recurrent layer of the same width: two d_model x d_model matrices, token by token."""
    symbols, workload = model.symbolic(), workload.symbolic()
    d_model = symbols.main.d_model
    weights = d_model * d_model + d_model * d_model
    if model.tp > 1:
        weights = ceil_div(weights, named(model.tp, "tp", "tensor-parallel devices"))
    cost = passes(workload) * (2 * query_tokens(symbols.main, workload) * weights)
    return OneLayer(quantity(cost), quantity(workload.new), quantity(workload.context))


def _longest_path(model: ModelSpec, tokens: int) -> Quantity | None:
    """Return 1 for a layer that sees every position, more for windows, and None for chunks, which never meet."""
    kinds = [layers.attention for layers in model.symbolic().main.layers]
    spans = [kind.span for kind in kinds if kind.widths().n_heads]
    if any(span.reach is None for span in spans) or tokens == 1:
        return Quantity(1)
    window = max((span.window for span in spans if isinstance(span, Sliding)), default=1)
    return quantity(ceil_div(tokens - 1, window - 1)) if window > 1 else None
