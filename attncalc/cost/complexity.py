"""The complexity of one layer: the types of Table 1 of Vaswani et al. 2017, arXiv:1706.03762, and
the model's own.

The paper has orders: n^2 d for self-attention, n d^2 for a recurrent layer. Here they are FLOPs, so
that they can be compared with the rest: 2 per multiply-add. Attention is then cheaper than
recurrence for n < d, as in the paper. Its projections have n d^2 too, and a row of their own.
"""

import dataclasses

from ..attention import Sliding
from ..attention.kind import MULTIPLY_ADD
from ..model import ModelSpec
from ..quantity import Quantity, ceil_div, named, quantity, symbol
from ..records import NamedTuple
from ..workload import Workload
from .common import symbolic
from .flops import passes, projections, query_tokens, scores

# Width k of the convolution in the table, which the paper leaves open.
KERNEL = 3
# Tokens r that restricted attention sees in the table, for a model without windows and chunks.
NEIGHBORHOOD = 128


class LayerComplexity(NamedTuple):
    """The complexity of one layer over a workload, with the three columns of that table."""

    flops: Quantity  # FLOPs on one device
    sequential_steps: Quantity  # steps that cannot run in parallel
    # Layers that information passes through between the two tokens farthest apart; None if it never
    # gets there
    longest_path: Quantity | None
    # The paper's own count, as n^2 d: without the 2 FLOP of a multiply-add and the two products of
    # attention. None for a layer of the model.
    terms: Quantity | None = None


class LayerTypes(NamedTuple):
    """That table: layers of the model's width d, over n tokens."""

    kernel: Quantity  # width k of the convolution
    neighborhood: Quantity  # tokens r that restricted attention sees, at most n
    self_attention: LayerComplexity  # n^2 d
    recurrent: LayerComplexity  # n d^2
    convolutional: LayerComplexity  # k n d^2
    restricted: LayerComplexity  # r n d, for self-attention to a neighborhood


class ModelLayer(NamedTuple):
    projections: Quantity  # FLOPs of its projections
    scores: LayerComplexity  # its exact scores

    @property
    def flops(self) -> Quantity:
        return quantity(self.projections + self.scores.flops)


def layer_types(model: ModelSpec, workload: Workload) -> LayerTypes:
    """Return the table for the model's width, the workload's context and both numbers of tokens.

    A layer of attention has two products of n x d by d x n: QK and PV. A recurrent one multiplies
    each token by two d x d matrices, and a convolution by k of them.
    """
    spans = [layers.attention.span for layers in model.main.layers]
    windows = [int(span.reach) for span in spans if span.reach is not None]
    symbols, workload = symbolic(model, workload)
    n = workload.context
    tokens = passes(workload) * query_tokens(symbols.main, workload)
    d = symbols.main.d_model
    k = symbol("k", KERNEL, "width of the convolution")
    r = symbol(
        "r",
        min(int(n), min(windows, default=NEIGHBORHOOD)),
        "tokens that restricted attention sees",
    )
    path = 0
    reached = 1
    while reached < int(n):  # log_k(n), rounded up
        path = path + 1
        reached = reached * KERNEL

    def layer(weights: int, steps: int, longest_path: int, per_token: int) -> LayerComplexity:
        if model.tp > 1:
            weights = ceil_div(weights, named(model.tp, "tp", "tensor-parallel devices"))
        return LayerComplexity(
            quantity(MULTIPLY_ADD * tokens * weights),
            quantity(steps),
            quantity(longest_path),
            quantity(tokens * per_token),
        )

    return LayerTypes(
        k,
        r,
        self_attention=layer(n * d + n * d, 1, 1, n * d),
        recurrent=layer(d * d + d * d, workload.new, n, d * d),
        convolutional=layer(k * d * d, 1, max(1, path), k * d * d),
        restricted=layer(r * d + r * d, 1, ceil_div(n, r), r * d),
    )


def attention_layer_complexity(model: ModelSpec, workload: Workload) -> ModelLayer:
    """Return the complexity of one layer's self-attention: its projections and exact scores.

    If the layers differ, it is that of the layer whose scores cost most. For a model without
    attention it is that of its recurrent layer, which runs token by token.
    """
    symbols, workload = symbolic(model, workload)
    stack = symbols.main
    all_layers = [dataclasses.replace(layers, cross=None) for layers in stack.layers]
    with_heads = [layers for layers in all_layers if layers.attention.widths().n_heads]
    layers = max(with_heads or all_layers, key=lambda layers: int(scores(stack, layers, workload)))
    score_flops = quantity(passes(workload) * scores(stack, layers, workload))
    if layers.attention.widths().n_heads:
        steps = Quantity(1)
        path = _longest_path(model, workload.context)
    else:
        steps = quantity(workload.new)
        path = quantity(workload.context)
    return ModelLayer(
        quantity(passes(workload) * projections(symbols, stack, layers, workload)),
        LayerComplexity(score_flops, steps, path),
    )


def _longest_path(model: ModelSpec, tokens: int) -> Quantity | None:
    """Return the layers between the two tokens farthest apart, or None if information never gets
    there.

    It is 1 for a layer that sees every position. With a window of 4, each layer passes information
    3 tokens on, so 10 tokens need ceil(9 / 3) = 3 layers. Chunks never exchange information.
    """
    kinds = [layers.attention for layers in model.symbolic().main.layers]
    spans = [kind.span for kind in kinds if kind.widths().n_heads]
    if any(span.reach is None for span in spans) or tokens == 1:
        return Quantity(1)
    window = max((span.window for span in spans if isinstance(span, Sliding)), default=1)
    if window > 1:
        return quantity(ceil_div(tokens - 1, window - 1))
    return None
