"""The schema of `attncalc flops --json`."""

from __future__ import annotations

from ...units import FLOP, TOKENS
from .attention import DEFINITIONS, LAYER_GROUP
from .parts import amount, document, figures, layer, ratio, size

_MODEL = {
    "flops_total": size(FLOP, "the whole step, with exact scores"),
    "flops_total_dense": size(FLOP, "the whole step, with dense scores"),
    "flops_attention_projections": size(FLOP, "projections of q, k, v and the output"),
    "flops_attention_scores": size(FLOP, "QK and PV for the pairs that the mask allows"),
    "flops_attention_scores_dense": size(FLOP, "QK and PV for all pairs"),
    "flops_attention_qk_dense": size(FLOP, "QK alone, for all pairs"),
    "flops_mlp": size(FLOP, "the MLPs"),
    "flops_head": size(FLOP, "the lm head"),
    "growth_total": ratio("flops_total at twice the context, relative to this context"),
    "growth_attention_scores": ratio("flops_attention_scores at twice the context, relative to this context"),
    "scores_overtake_context": size(
        TOKENS, "the shortest context at which scores cost more than projections", "if there is none"
    ),
    "attention_flops_per_layer": size(FLOP, "one attention layer of the model: projections and exact scores"),
    "attention_projections_flops_per_layer": size(FLOP, "its projections"),
    "attention_scores_flops_per_layer": size(FLOP, "its scores, for the pairs that the mask allows"),
    "attention_sequential_steps": amount("sequential operations of one attention layer"),
    "attention_longest_path": amount("maximum path length of one attention layer", "if information never arrives"),
    "self_attention_flops_per_layer": size(FLOP, "self-attention of the same width, n^2 d in Vaswani et al. 2017"),
    "recurrent_flops_per_layer": size(FLOP, "a recurrent layer of the same width, n d^2 there"),
    "recurrent_sequential_steps": amount("its sequential operations"),
    "recurrent_longest_path": amount("its maximum path length"),
    "convolutional_flops_per_layer": size(FLOP, "a convolutional layer of the same width, k n d^2 there"),
    "convolutional_kernel": amount("its width k, 3"),
    "convolutional_longest_path": amount("its maximum path length"),
    "restricted_flops_per_layer": size(FLOP, "self-attention to a neighborhood, r n d there"),
    "restricted_neighborhood": amount("its tokens r: the model's narrowest window or chunk, or 128; at most n"),
    "restricted_longest_path": amount("its maximum path length"),
}
_LAYERS = {
    "flops_total": size(FLOP, "all layers of this kind, with exact scores"),
    "flops_attention_projections": size(FLOP, "their projections of q, k, v and the output"),
    "flops_attention_scores": size(FLOP, "their QK and PV for the pairs that the mask allows"),
    "flops_attention_scores_dense": size(FLOP, "their QK and PV for all pairs"),
    "flops_mlp": size(FLOP, "their MLPs"),
}
SCHEMA = document(
    "flops",
    "The FLOPs of a prefill, a decode step or a training step.",
    results=figures("the figures of the whole model", _MODEL),
    layers=layer("a kind of layer", LAYER_GROUP, figures("its figures", _LAYERS)),
    definitions=DEFINITIONS,
)
