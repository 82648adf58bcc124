"""FLOPs of a prefill, a decode step or a training step.

One multiply-add is 2 FLOP. Counted are the matrix products: projections, scores (QK and PV), MLP,
head. Not counted are softmax, norms, activations, rotary embedding and table look-ups, which grow
with S or S * T but without a factor of width; the scaling-book's transformer chapter counts the same.
Training is 3 times a forward pass: the backward pass takes one product for the gradient of a
matmul's input and one for its weights' (or other operand's); nothing is recomputed.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from ..model import Layers, ModelSpec, Stack
from ..quantity import Quantity, quantity
from ..workload import Run, Workload
from .common import Part, group_name, sum_named, sum_of
from .params import matmul_weights

TRAIN_RULE = "training = 3 x the forward pass: a matmul's backward takes two products, nothing is recomputed"


class LayerFlops(NamedTuple):
    """FLOPs of one layer group, in all its layers together; scores exact for the mask, and dense; qk_dense
    is the dense scores' part before PV.
    """

    group: str
    layers: Layers
    projections: Quantity
    scores: Quantity
    scores_dense: Quantity
    qk_dense: Quantity
    mlp: Quantity

    @property
    def total(self) -> Quantity:
        """All of the group's FLOPs, scores exact."""
        return sum_named(
            {
                "projections": (self.projections, "FLOP of the projections"),
                "scores": (self.scores, "FLOP of the scores"),
                "mlp": (self.mlp, "FLOP of the MLPs"),
            }
        )


class Flops(NamedTuple):
    """FLOPs of one workload on one device; `total` takes the exact scores, `total_dense` the dense.

    rule: what a training step is taken to be; '' for other phases.
    """

    total: Quantity
    total_dense: Quantity
    projections: Quantity
    scores: Quantity
    scores_dense: Quantity
    qk_dense: Quantity
    mlp: Quantity
    head: Quantity
    groups: tuple[LayerFlops, ...]
    rule: str = ""


def flops(model: ModelSpec, workload: Workload) -> Flops:
    """The FLOPs of `workload` on `model`. AttncalcError: for a mask the model cannot have."""
    symbols, asked = model.symbolic(), workload.symbolic()
    groups = tuple(_layer_flops(symbols, stack, layers, asked) for stack, layers in symbols.groups())
    of = {
        "attention_projections": _sum_of("projections", groups),
        "attention_scores": _sum_of("scores", groups),
        "attention_scores_dense": _sum_of("scores_dense", groups),
        "mlp": _sum_of("mlp", groups),
        "head": quantity(passes(asked) * (_head(symbols, asked) + _outside(symbols, asked))),
    }
    return Flops(
        total=_sum({name: q for name, q in of.items() if name != "attention_scores_dense"}),
        total_dense=_sum({name: q for name, q in of.items() if name != "attention_scores"}),
        projections=of["attention_projections"],
        scores=of["attention_scores"],
        scores_dense=of["attention_scores_dense"],
        qk_dense=_sum_of("qk_dense", groups),
        mlp=of["mlp"],
        head=of["head"],
        groups=groups,
        rule=TRAIN_RULE if workload.phase == "train" else "",
    )


def _sum_of(name: str, groups: tuple[LayerFlops, ...]) -> Quantity:
    return sum_of(f"flops_{name}", f"FLOP of the {name}", [Part(g.group, getattr(g, name)) for g in groups])


def _sum(of: dict[str, Quantity]) -> Quantity:
    return sum_named({f"flops_{name}": (q, f"FLOP of {name.replace('_', ' ')}") for name, q in of.items()})


def passes(workload: Workload) -> int:
    """Forward passes that the workload costs as much as."""
    return 3 if workload.phase == "train" else 1


def _layer_flops(model: ModelSpec, stack: Stack, layers: Layers, workload: Workload) -> LayerFlops:
    repeated = passes(workload) * layers.count
    return LayerFlops(
        group=group_name(model, stack, layers),
        layers=layers,
        projections=quantity(repeated * projections(model, stack, layers, workload)),
        scores=quantity(repeated * scores(stack, layers, workload)),
        scores_dense=quantity(repeated * scores(stack, layers, workload, dense=True)),
        qk_dense=quantity(repeated * qk_dense(stack, layers, workload)),
        mlp=quantity(repeated * _mlp(stack, layers, workload)),
    )


def query_tokens(stack: Stack, workload: Workload) -> int:
    """Tokens the stack runs over, padding included: B * S; 0 for an encoder that has run before."""
    if stack.input == "target":
        return workload.batch * workload.new
    return workload.batch * workload.source if workload.source and stack.runs(workload) else 0


def projections(model: ModelSpec, stack: Stack, layers: Layers, workload: Workload) -> int:
    """FLOPs of one layer's attention projections; 2 a weight and token."""
    tokens = query_tokens(stack, workload)
    found = (
        2 * tokens * sum(m.multiplied for m in layers.attention.matrices(stack.d_model, stack.d_model) if m.applied_to)
    )
    if layers.cross:
        matrices = layers.cross.matrices(stack.d_model, model.d_source)
        source = query_tokens(model.stacks[0], workload)  # keys and values are made once, with the encoder's output
        found += 2 * tokens * sum(m.weights for m in matrices if m.applied_to == "queries")
        found += 2 * source * sum(m.weights for m in matrices if m.applied_to == "keys")
    return found


def scores(stack: Stack, layers: Layers, workload: Workload, *, dense: bool = False) -> int:
    """FLOPs of one layer's scores: of the pairs that the mask allows, or of all pairs.

    A cross-attention's rectangle is dense either way.
    """
    own = workload.mask if workload.mask and stack.input == "target" else stack.mask
    mask = None if dense else own
    if dense:  # a padded batch is a rectangle too
        workload = dataclasses.replace(workload, lengths=None)
    found = sum(run.sequences * layers.attention.score_flops(run, mask) for run in stack.runs(workload))
    if layers.cross:
        for run in workload.runs:
            rectangle = Run(run.sequences, run.new, workload.source or 0)
            found += run.sequences * layers.cross.score_flops(rectangle, None)
    return found


def qk_dense(stack: Stack, layers: Layers, workload: Workload) -> int:
    """FLOPs of one layer's query-key products, of all pairs: the part of dense scores before PV."""
    found = 0
    for run in stack.runs(dataclasses.replace(workload, lengths=None)):
        around = layers.attention.widths(run)
        found += run.sequences * 2 * around.n_heads * around.d_qk * run.new * run.context
        if layers.cross:
            across = layers.cross.widths(run)
            found += run.sequences * 2 * across.n_heads * across.d_qk * run.new * (workload.source or 0)
    return found


def _mlp(stack: Stack, layers: Layers, workload: Workload) -> int:
    weights = matmul_weights(layers.extra)
    if layers.mlp:
        router = matmul_weights((*layers.mlp.router(stack.d_model), *layers.mlp.shared(stack.d_model)))
        weights = router + layers.mlp.experts_used * matmul_weights(layers.mlp.expert(stack.d_model)) + weights
    return 2 * query_tokens(stack, workload) * weights


def _head(model: ModelSpec, workload: Workload) -> int:
    if model.head is None:
        return 0
    d_model = model.main.d_model
    if model.head.kind == "pooler":  # of the first token alone
        return 2 * workload.batch * d_model * d_model
    return 2 * workload.batch * workload.new * model.table_width * (model.vocab_size or 0)


def _outside(model: ModelSpec, workload: Workload) -> int:
    """FLOPs of the matrices before the first layer and after the last, the head's aside."""
    once = sum(m.weights for m in model.extra if m.applied_to == "first")
    return 2 * workload.batch * (workload.new * (matmul_weights(model.extra) - once) + once)
