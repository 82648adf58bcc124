"""How cost scales_with with the context, and what a recurrent layer of the same width would cost instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from math import lcm
from typing import NamedTuple

from ..attention import Chunked, Sliding
from ..model import ModelSpec
from ..quantity import Quantity, Ratio, ceil_div, least, named, quantity, ratio
from ..search import first
from ..workload import Workload
from .flops import flops, passes, projections, query_tokens, scores

FAR = 2**62
"""Tokens of context beyond which nobody asks where scores overtake projections."""


class Growth(NamedTuple):
    """The cost at twice the context over the cost at this one."""

    total: Ratio
    scores: Ratio


def growth(model: ModelSpec, workload: Workload) -> Growth:
    """How all FLOPs and the exact scores grow when the context doubles."""
    now, then = flops(model, workload), flops(model, workload.doubled())

    def grown(name: str, before: Quantity, after: Quantity) -> Ratio:
        return ratio(
            named(after, f"{name}_at_2T", "the same at twice the context"),
            named(before, name, "at this context"),
        )

    return Growth(
        grown("flops_total", now.total, then.total),
        grown("flops_attention_scores", now.scores, then.scores),
    )


def crossover(model: ModelSpec, workload: Workload) -> Quantity | None:
    """The least context at which exact scores cost more than attention's projections.

    None where they never do (every layer has a window or a chunk). Sequences are taken as full, what
    is in the past as given.
    """
    plain = model.plain()

    def both(spec: ModelSpec, asked: Workload) -> tuple[int, int]:
        groups = list(spec.groups())
        return (
            sum(layers.count * scores(stack, layers, asked) for stack, layers in groups),
            sum(layers.count * projections(spec, stack, layers, asked) for stack, layers in groups),
        )

    def overtaken(context: int) -> bool:
        of_scores, of_projections = both(plain, workload.at(context))
        return of_scores > of_projections

    past = 0 if workload.phase == "decode" else workload.past
    spans = [layers.attention.span for layers in model.main.layers]
    found = _overtaking(overtaken, past, {int(span.chunk) for span in spans if isinstance(span, Chunked)})
    if found is None:
        return None
    if len(list(model.groups())) > 1:
        of_scores, of_projections = both(plain, workload.at(found))
        a = named(of_scores, "flops_attention_scores_at_T", "FLOP of the scores at that context")
        b = named(of_projections, "flops_attention_projections_at_T", "FLOP of the projections there")
        return least("T", found, "tokens of context", a, b)
    return least("T", found, "tokens of context", *both(model.symbolic(), workload.at(found).symbolic()))


def _overtaking(overtaken: Callable[[int], bool], past: int, chunks: set[int]) -> int | None:
    """The least context above `past` that is overtaken; None beyond FAR.

    Between the ends of chunks, scores less projections are convex in the context: they become positive
    once at the most, and only if they are at the stretch's end. At the multiples of all chunks, once
    overtaken is always overtaken. Without chunks every context is such a multiple.
    """
    period = lcm(*chunks)
    origin = past - past % period
    high = 1
    while not overtaken(origin + high * period):
        high *= 2
        if high * period > FAR:
            return None
    end = origin + period * first(lambda k: overtaken(origin + k * period), high // 2, high)
    start = max(past, end - period)
    stops = {n for chunk in chunks for n in range(start - start % chunk + chunk, end, chunk)}
    for stop in (*sorted(stops), end):
        if overtaken(stop):
            return first(overtaken, start, stop)
        start = stop
    return end


class OneLayer(NamedTuple):
    """One layer over the workload: its FLOPs on one device, the steps that must follow each other, and
    the layers between the two tokens farthest apart (None: they never meet).

    Source: Vaswani et al. 2017, arXiv:1706.03762, Table 1.
    """

    flops: Quantity
    sequential_steps: Quantity
    longest_path: Quantity | None


def one_attention_layer(model: ModelSpec, workload: Workload) -> OneLayer:
    """The self-attention of one layer, the one whose scores cost most: projections and exact scores.

    Of a model without attention its recurrent layer, one token after another.
    """
    symbols, asked = model.symbolic(), workload.symbolic()
    alone = [dataclasses.replace(layers, cross=None) for layers in symbols.main.layers]
    alone = [layers for layers in alone if layers.attention.widths().n_heads] or alone
    most = max(alone, key=lambda layers: int(scores(symbols.main, layers, asked)))
    one = projections(symbols, symbols.main, most, asked) + scores(symbols.main, most, asked)
    if not most.attention.widths().n_heads:
        return OneLayer(quantity(passes(asked) * one), quantity(asked.new), quantity(asked.context))
    return OneLayer(quantity(passes(asked) * one), Quantity(1), _longest_path(model, asked.context))


def one_recurrent_layer(model: ModelSpec, workload: Workload) -> OneLayer:
    """A plain recurrent layer as wide: two d_model x d_model matrices a token, one token after another."""
    symbols, asked = model.symbolic(), workload.symbolic()
    d_model = symbols.main.d_model
    weights = d_model * d_model + d_model * d_model
    if model.tp > 1:
        weights = ceil_div(weights, named(model.tp, "tp", "tensor-parallel devices"))
    spent = passes(asked) * (2 * query_tokens(symbols.main, asked) * weights)
    return OneLayer(quantity(spent), quantity(asked.new), quantity(asked.context))


def _longest_path(model: ModelSpec, tokens: int) -> Quantity | None:
    """1 with a full layer or one that picks, more through windows, None through chunks."""
    layers = [layers for layers in model.symbolic().main.layers if layers.attention.widths().n_heads]
    found = [group.attention.span for group in layers]
    if any(span.reach is None for span in found) or tokens == 1:
        return Quantity(1)
    reach = max((span.window for span in found if isinstance(span, Sliding)), default=1)
    return quantity(ceil_div(tokens - 1, reach - 1)) if reach > 1 else None
