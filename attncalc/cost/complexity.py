"""The complexity of one layer, attention or recurrent, as in Table 1 of Vaswani et al. 2017, arXiv:1706.03762."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from ..attention import Sliding
from ..model import ModelSpec
from ..quantity import Quantity, ceil_div, named, quantity
from ..workload import Workload
from .common import symbolic
from .flops import passes, projections, query_tokens, scores


class LayerComplexity(NamedTuple):
    """The complexity of one layer over a workload, with the three columns of that table.

    Attributes:
        flops: FLOPs on one device.
        sequential_steps: steps that cannot run in parallel.
        longest_path: layers that information passes through between the two tokens farthest apart; None if it
            never gets there.
    """

    flops: Quantity
    sequential_steps: Quantity
    longest_path: Quantity | None


def attention_layer_complexity(model: ModelSpec, workload: Workload) -> LayerComplexity:
    """Return the complexity of one layer's self-attention: its projections and exact scores.

    If the layers differ, it is that of the layer whose scores cost most. For a model without attention it is that of
    its recurrent layer, which runs token by token.
    """
    symbols, workload = symbolic(model, workload)
    stack = symbols.main
    all_layers = [dataclasses.replace(layers, cross=None) for layers in stack.layers]
    candidates = [layers for layers in all_layers if layers.attention.widths().n_heads] or all_layers
    layers = max(candidates, key=lambda layers: int(scores(stack, layers, workload)))
    layer_flops = projections(symbols, stack, layers, workload) + scores(stack, layers, workload)
    cost = quantity(passes(workload) * layer_flops)
    if not layers.attention.widths().n_heads:
        return LayerComplexity(cost, quantity(workload.new), quantity(workload.context))
    return LayerComplexity(cost, Quantity(1), _longest_path(model, workload.context))


def recurrent_layer_complexity(model: ModelSpec, workload: Workload) -> LayerComplexity:
    """Return the complexity of a plain recurrent layer of the same width.

    It multiplies each token by two d_model x d_model matrices, one token after another.
    """
    symbols, workload = symbolic(model, workload)
    d_model = symbols.main.d_model
    weights = d_model * d_model + d_model * d_model
    if model.tp > 1:
        weights = ceil_div(weights, named(model.tp, "tp", "tensor-parallel devices"))
    cost = passes(workload) * (2 * query_tokens(symbols.main, workload) * weights)
    return LayerComplexity(quantity(cost), quantity(workload.new), quantity(workload.context))


def _longest_path(model: ModelSpec, tokens: int) -> Quantity | None:
    """Return the layers between the two tokens farthest apart, or None if information never gets there.

    It is 1 for a layer that sees every position. With a window of 4, each layer passes information 3 tokens on, so 10
    tokens need ceil(9 / 3) = 3 layers. Chunks never exchange information.
    """
    kinds = [layers.attention for layers in model.symbolic().main.layers]
    spans = [kind.span for kind in kinds if kind.widths().n_heads]
    if any(span.reach is None for span in spans) or tokens == 1:
        return Quantity(1)
    window = max((span.window for span in spans if isinstance(span, Sliding)), default=1)
    return quantity(ceil_div(tokens - 1, window - 1)) if window > 1 else None
