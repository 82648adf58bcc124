"""FLOPs of a prefill, a decode step or a training step.

One multiply-add is 2 FLOP. Only matrix products are counted: projections, scores (QK and PV), MLP
and head. Softmax, norms, activations, rotary embedding and table look-ups are left out: they do a
few operations per element, where QK and PV do 2 * d_head per score. The transformer chapter of the
scaling book counts the same way.

Training costs 3 forward passes: for each matmul, the backward pass does one product for the
gradient of its input and one for the gradient of its weights (or other operand). With activation
recomputation the backward pass first repeats forward products: those of whole layers (full), or QK
and PV (selective). The head is outside the layers, and is not repeated. Source: Korthikanti et al.
2022, arXiv:2205.05198, section 5.
"""

import dataclasses

from ..attention.grouped import Grouped
from ..attention.kind import MULTIPLY_ADD, Matrix
from ..errors import NotSupportedError
from ..model import Layers, ModelSpec, Stack
from ..quantity import Quantity, named, quantity, summed
from ..records import NamedTuple
from ..workload import Recompute, Run, Workload
from .common import Part, check_pass, group_name, sum_named, sum_over_groups, symbolic
from .params import matmul_weights, params

TRAIN_RULE = "training = 3 x the forward pass: the backward pass of a matmul is two products"
RECOMPUTE_RULES: dict[Recompute, str] = {
    "none": "nothing is recomputed",
    "selective": "QK and PV are computed once more (selective recomputation)",
    "op": "every second matmul of a layer is computed once more (torchtitan's selective_ac_option "
    "= op)",
    "full": "the forward pass of the layers is computed once more (full recomputation)",
}


class LayerFlops(NamedTuple):
    """FLOPs of one layer group, in all its layers together."""

    group: str  # the group's name
    layers: Layers  # the group
    projections: Quantity  # attention's projections
    scores: Quantity  # QK and PV of the pairs that the mask allows
    scores_dense: Quantity  # QK and PV of all pairs
    qk_dense: Quantity  # QK of all pairs
    mlp: Quantity  # the MLPs
    # what activation recomputation adds to a training step, with exact scores
    recomputation: Quantity
    recomputation_dense: Quantity  # the same with dense scores

    @property
    def total(self) -> Quantity:
        """Return all FLOPs of the group, with exact scores."""
        return sum_named(
            {
                "projections": (self.projections, "FLOP of the projections"),
                "scores": (self.scores, "FLOP of the scores"),
                "mlp": (self.mlp, "FLOP of the MLPs"),
                "recomputation": (self.recomputation, "FLOP of the recomputation"),
            }
        )


class Flops(NamedTuple):
    """FLOPs of one workload on one device."""

    total: Quantity  # all FLOPs, with exact scores
    total_dense: Quantity  # all FLOPs, with dense scores
    projections: Quantity  # attention's projections
    scores: Quantity  # QK and PV of the pairs that the mask allows
    scores_dense: Quantity  # QK and PV of all pairs
    qk_dense: Quantity  # QK of all pairs
    mlp: Quantity  # the MLPs
    head: Quantity  # the lm head or pooler, and matrices outside the layers
    # what activation recomputation adds to a training step, with exact scores
    recomputation: Quantity
    groups: tuple[LayerFlops, ...]  # the FLOPs of each layer group
    rule: str = ""  # how a training step is counted; '' for other phases
    six_n_d: Quantity | None = None  # the estimate of a training step, as `six_n_d` returns it


def flops(model: ModelSpec, workload: Workload) -> Flops:
    """Return the FLOPs of `workload` on `model`.

    Raises AttncalcError if the model cannot have the mask, or has no such step.
    """
    check_pass(model, workload)
    symbols, symbolic_workload = symbolic(model, workload)
    groups = tuple(
        _layer_flops(symbols, stack, layers, symbolic_workload)
        for stack, layers in symbols.groups()
    )
    parts = {
        "attention_projections": _sum_over_groups("projections", groups),
        "attention_scores": _sum_over_groups("scores", groups),
        "attention_scores_dense": _sum_over_groups("scores_dense", groups),
        "mlp": _sum_over_groups("mlp", groups),
        "head": head_flops(model, workload),
        "recomputation": _sum_over_groups("recomputation", groups),
        "recomputation_dense": _sum_over_groups("recomputation_dense", groups),
    }
    rule = ""
    if workload.phase == "train":
        rule = f"{TRAIN_RULE}; {RECOMPUTE_RULES[workload.recompute]}"
    return Flops(
        total=_sum({name: q for name, q in parts.items() if not name.endswith("_dense")}),
        total_dense=_sum({name: q for name, q in parts.items() if f"{name}_dense" not in parts}),
        projections=parts["attention_projections"],
        scores=parts["attention_scores"],
        scores_dense=parts["attention_scores_dense"],
        qk_dense=_sum_over_groups("qk_dense", groups),
        mlp=parts["mlp"],
        head=parts["head"],
        recomputation=parts["recomputation"],
        groups=groups,
        rule=rule,
        six_n_d=six_n_d(model, workload),
    )


def six_n_d(model: ModelSpec, workload: Workload) -> Quantity | None:
    """Return 6 N D, the usual estimate of training FLOPs; None for other phases, and for a model
    with an encoder.

    N are the parameters that a token uses, with the embedding: GPT-3's 174.6 billion. D are the
    tokens, with padding. An encoder's parameters and the decoder's do not see the same tokens, so
    there is no single D.

    Source: Kaplan et al. 2020, arXiv:2001.08361, 2.1 (whose N leaves out the embedding); Brown et
    al. 2020, arXiv:2005.14165, Table D.1 (which includes it).
    """
    if workload.phase != "train" or workload.source:
        return None
    parameters = named(
        params(model).active, "N", "parameters that a token uses, with the embedding"
    )
    return quantity(6 * parameters * named(query_tokens(model.main, workload), "D", "tokens"))


def head_flops(model: ModelSpec, workload: Workload) -> Quantity:
    """Return the FLOPs of the lm head or pooler, and of the matrices outside the layers."""
    symbols, symbolic_workload = symbolic(model, workload)
    return quantity(
        passes(workload)
        * (_head(symbols, symbolic_workload) + _outside(symbols, symbolic_workload))
    )


def prefill_and_decode(model: ModelSpec, workload: Workload) -> tuple[Quantity, Quantity | None]:
    """Return the FLOPs of a prefill of the workload's whole context, and of one decode step at it.

    There is no decode step without a cache. Raises AttncalcError as `flops` does.
    """
    prefill = dataclasses.replace(workload, phase="prefill", new=workload.context)
    decode = dataclasses.replace(workload, phase="decode", new=1)
    of_prefill = prefill_flops(model, prefill)
    if not model.main.has_cache:
        return of_prefill, None
    return of_prefill, flops(model, decode).total


def prefill_flops(model: ModelSpec, prefill: Workload, *, with_head: bool = True) -> Quantity:
    """Return the FLOPs of a prefill, with logits only for the last token of each sequence.

    `flops` has those of a forward pass, with logits for every token. An encoder has no next token.
    """
    counted = flops(model, prefill)
    head = counted.head
    if model.main.has_cache:
        head = head_flops(model, dataclasses.replace(prefill, phase="decode", new=1))
    parts = {
        "flops_layers": (counted.projections + counted.scores + counted.mlp, "FLOP of the layers"),
        "flops_head": (head, "FLOP of the logits of each sequence's last token"),
    }
    if not with_head:
        del parts["flops_head"]
    return sum_named(parts)


def _sum_over_groups(name: str, groups: tuple[LayerFlops, ...]) -> Quantity:
    return sum_over_groups(
        f"flops_{name}",
        f"FLOP of the {_in_words(name)}",
        [Part(g.group, getattr(g, name)) for g in groups],
    )


def _sum(parts: dict[str, Quantity]) -> Quantity:
    return sum_named(
        {f"flops_{name}": (q, f"FLOP of the {_in_words(name)}") for name, q in parts.items()}
    )


def passes(workload: Workload) -> int:
    """Return how many forward passes the workload costs: 3 for training, otherwise 1."""
    if workload.phase == "train":
        return 3
    return 1


def _layer_flops(model: ModelSpec, stack: Stack, layers: Layers, workload: Workload) -> LayerFlops:
    layer_passes = passes(workload) * layers.count
    of_projections = projections(model, stack, layers, workload)
    of_mlp = mlp_flops(stack, layers, workload)
    exact = scores(stack, layers, workload)
    dense = scores(stack, layers, workload, dense=True)
    # what is computed once more, exactly and with dense scores
    again: list[int]
    again_dense: list[int]
    if workload.recompute == "op":
        _, matrices = matmuls_of_op(stack, layers)
        again = [MULTIPLY_ADD * query_tokens(stack, workload) * matmul_weights(matrices)]
        again_dense = again
    elif workload.recompute == "full":
        again = [of_projections, of_mlp, exact]
        again_dense = [of_projections, of_mlp, dense]
    else:
        again = [exact]
        again_dense = [dense]
    times = layers.count if workload.recompute != "none" else 0
    return LayerFlops(
        group=group_name(model, stack, layers),
        layers=layers,
        projections=quantity(layer_passes * of_projections),
        scores=quantity(layer_passes * exact),
        scores_dense=quantity(layer_passes * dense),
        qk_dense=quantity(layer_passes * qk_dense(stack, layers, workload)),
        mlp=quantity(layer_passes * of_mlp),
        recomputation=quantity(times * summed(again)),
        recomputation_dense=quantity(times * summed(again_dense)),
    )


def matmuls_of_op(stack: Stack, layers: Layers) -> tuple[tuple[Matrix, ...], tuple[Matrix, ...]]:
    """Return the matmuls whose outputs --recompute op keeps, and those that it computes again:
    every second one.

    Source: torchtitan/models/llama3/infra/parallelize.py, _apply_ac_to_transformer_block.

    Raises NotSupportedError for layers whose matmuls torchtitan's class has in another order, or
    not as aten.mm.
    """
    mlp = layers.mlp
    if (
        not isinstance(layers.attention, Grouped)
        or layers.cross
        or mlp is None
        or mlp.n_experts is not None
    ):
        raise NotSupportedError(
            f"--recompute op does not support {layers.attention.label} with this MLP: it is "
            "known for attention with q, k and v and dense MLPs",
            "give --recompute full",
        )
    matrices = [
        *layers.attention.matrices(stack.d_model, stack.d_model),
        *mlp.expert(stack.d_model),
    ]
    multiplied = tuple(matrix for matrix in matrices if matrix.applied_to)
    return multiplied[::2], multiplied[1::2]


def query_tokens(stack: Stack, workload: Workload) -> int:
    """Return the tokens that the stack runs over, with padding: B * S; 0 for an encoder that has
    already run.
    """
    if stack.input == "target":
        return workload.batch * workload.new
    if workload.source and stack.runs(workload):
        return workload.batch * workload.source
    return 0


def _in_words(name: str) -> str:
    """Return 'dense attention scores' for 'attention_scores_dense'."""
    dense = "dense " if name.endswith("_dense") else ""
    return dense + name.removesuffix("_dense").replace("_", " ").replace("mlp", "MLP")


def projections(model: ModelSpec, stack: Stack, layers: Layers, workload: Workload) -> int:
    """Return the FLOPs of one layer's attention projections: 2 per weight and token."""
    tokens = query_tokens(stack, workload)
    matrices = layers.attention.matrices(stack.d_model, stack.d_model)
    cost = (
        MULTIPLY_ADD
        * tokens
        * sum(m.multiplied for m in matrices if m.applied_to in ("queries", "keys"))
    )
    if stack.input == "source":
        tokens_per_sequence = workload.source or 0
    else:
        tokens_per_sequence = workload.new
    for matrix in matrices if stack.runs(workload) else ():
        if matrix.table:
            cost += (
                MULTIPLY_ADD
                * matrix.table.rows_projected(workload.batch, tokens_per_sequence)
                * matrix.weights
            )
        if matrix.applied_to == "first":
            cost += MULTIPLY_ADD * workload.batch * matrix.multiplied
    if layers.cross:
        matrices = layers.cross.matrices(stack.d_model, model.d_source)
        # K and V are computed once, when the encoder runs
        source = query_tokens(model.stacks[0], workload)
        cost += (
            MULTIPLY_ADD * tokens * sum(m.weights for m in matrices if m.applied_to == "queries")
        )
        cost += MULTIPLY_ADD * source * sum(m.weights for m in matrices if m.applied_to == "keys")
    return cost


def scores(stack: Stack, layers: Layers, workload: Workload, *, dense: bool = False) -> int:
    """Return the FLOPs of one layer's scores: of the pairs that the mask allows, or of all pairs.

    Cross-attention has no mask, so its scores are dense either way.
    """
    if workload.mask and stack.input == "target":
        stack_mask = workload.mask
    else:
        stack_mask = stack.mask
    mask = None if dense else stack_mask
    if dense:  # padding is computed too
        workload = dataclasses.replace(workload, lengths=None)
    cost = summed(
        run.sequences * layers.attention.score_flops(run, mask) for run in stack.runs(workload)
    )
    if layers.cross:
        runs = (Run(run.sequences, run.new, workload.source or 0) for run in workload.runs)
        cost += summed(run.sequences * layers.cross.score_flops(run, None) for run in runs)
    return cost


def qk_dense(stack: Stack, layers: Layers, workload: Workload) -> int:
    """Return the FLOPs of one layer's query-key products for all pairs: the dense scores without
    PV.
    """
    cost = 0
    source = workload.source or 0
    for run in stack.runs(dataclasses.replace(workload, lengths=None)):
        widths = layers.attention.widths(run)
        cost += run.sequences * MULTIPLY_ADD * widths.n_heads * widths.d_qk * run.new * run.context
        if layers.cross:
            widths = layers.cross.widths(run)
            cost += run.sequences * MULTIPLY_ADD * widths.n_heads * widths.d_qk * run.new * source
    return cost


def mlp_flops(stack: Stack, layers: Layers, workload: Workload) -> int:
    """Return the FLOPs of one layer's MLP, and of its other matrices beside attention."""
    weights = matmul_weights(layers.extra)
    mlp = layers.mlp
    tokens = query_tokens(stack, workload)
    if mlp is None:
        return MULTIPLY_ADD * tokens * weights
    router = mlp.router(stack.d_model)
    shared = mlp.shared(stack.d_model)
    experts = mlp.experts_used * matmul_weights(mlp.expert(stack.d_model))
    if mlp.ranks == mlp.devices == 1:
        return MULTIPLY_ADD * tokens * (matmul_weights((*router, *shared)) + experts + weights)
    # What ranks divide has the tokens of all ranks. The devices have equal parts of the pairs of a
    # token and an expert.
    own = MULTIPLY_ADD * tokens * (matmul_weights(router) + weights)
    of_experts = MULTIPLY_ADD * tokens * mlp.ranks * experts
    of_shared = MULTIPLY_ADD * tokens * mlp.shared_ranks * matmul_weights(shared)
    return own + of_experts // mlp.devices + of_shared // mlp.shared_copies


def _head(model: ModelSpec, workload: Workload) -> int:
    if model.head is None:
        return 0
    d_model = model.main.d_model
    if model.head.kind == "pooler":  # reads only the first token
        return MULTIPLY_ADD * workload.batch * d_model * d_model
    vocab_size = model.vocab_size or 0
    return MULTIPLY_ADD * workload.batch * workload.new * model.table_width * vocab_size


def _outside(model: ModelSpec, workload: Workload) -> int:
    """Return the FLOPs of the matrices before the first layer and after the last, without the
    head.
    """
    first_weights = sum(m.weights for m in model.extra if m.applied_to == "first")
    return (
        MULTIPLY_ADD
        * workload.batch
        * (workload.new * (matmul_weights(model.extra) - first_weights) + first_weights)
    )
