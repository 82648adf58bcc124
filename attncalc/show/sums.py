"""Which figures are the parts of which sum.

Pictures stack the parts of one whole. A part may be 0: the head of an encoder, or recomputation.
"""

from collections.abc import Iterable, Mapping

# {figure: its parts, in the order in which they are stacked}.
SUMS: Mapping[str, tuple[str, ...]] = {
    "flops_total": (
        "flops_attention_projections",
        "flops_mlp",
        "flops_head",
        "flops_recomputation",
        "flops_attention_scores",
    ),
    "flops_total_dense": (
        "flops_attention_projections",
        "flops_mlp",
        "flops_head",
        "flops_recomputation",
        "flops_attention_scores_dense",
    ),
    "params_total": (
        "params_attention",
        "params_mlp",
        "params_embedding",
        "params_head",
        "params_norm",
        "params_other",
    ),
    # of `train`; while a checkpoint is loaded, `loading` takes their place
    "allocated": (
        "weights",
        "references",
        "optimizer_states",
        "gradients_at_peak",
        "activations_at_peak",
        "logits",
        "temporary",
        "communication",
        "workspaces",
    ),
    "activations": (
        "activations_attention",
        "activations_mlp",
        "activations_norms",
        "activations_outside",
    ),
}
# Sums of what is held at one moment, which may be another one for another context.
MOMENTS = ("allocated",)


def whole_of(figures: Iterable[str]) -> str:
    """Return the figure whose sum has all these among its parts; '' without one."""
    parts = {*figures}
    for whole, all_parts in SUMS.items():
        if parts <= {*all_parts}:
            return whole
    return ""
