"""Multi-token prediction: layers of a model's releases that propose tokens, so that no draft model
is needed.
"""

import dataclasses

from ..attention import Matrix
from ..model import ModelSpec

# The model_types whose layers for multi-token prediction are like their last layer with full
# attention.
#
# Those of nemotron_h have a layer of experts after it, as its releases say
# (mtp_hybrid_override_pattern "*E"). Source: vLLM's deepseek_mtp.py, glm4_moe_mtp.py, mimo_mtp.py,
# nemotron_h_mtp.py, qwen3_next_mtp.py, qwen3_5_mtp.py and models/qwen4_exp/nvidia/mtp.py.
LIKE_THE_LAST_LAYER = frozenset(
    {
        "deepseek_v3",
        "deepseek_v32",
        "deepseek_v4",
        "glm4_moe",
        "glm_moe_dsa",
        "kimi_k2",
        "mimo",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_next",
        "qwen4_exp",
        "qwen4_exp_text",
        "nemotron_h",
    }
)
# The model_types whose releases have layers for multi-token prediction, which need no draft model.
PREDICT_TOKENS = LIKE_THE_LAST_LAYER | {
    "ernie4_5_moe",
    "longcat_flash",
    "mimo_v2",
    "mimo_v2_flash",
    "step3p5",
}


def prediction_layers(model: ModelSpec, layers: int) -> ModelSpec | None:
    """Return the layers for multi-token prediction as a model; None if their sizes are unknown.

    A layer reads the embedding of a token and a hidden state, each after a norm, through a matrix
    [2 d, d]. Another norm is before the lm head. Embedding and head are those of the model. Engines
    hold the matrix [2 d, d] in 16 bits and whole on each device.
    """
    in_file = any(matrix.name.startswith("nextn_") for matrix in model.extra)  # a GGUF file
    if not layers or not (in_file or model.model_type in LIKE_THE_LAST_LAYER):
        return None
    stack = model.main
    after = model.main.n_layers
    for group in reversed(stack.layers):
        after -= int(group.count)
        if any(cached.per == "token" for cached in group.cache()):
            break
    d = stack.d_model
    # Qwen4's, of several streams
    mixer = [matrix for matrix in model.extra if matrix.name.startswith("stream_mixer")]
    d_hidden = max((matrix.rows for matrix in mixer), default=d)
    groups = [dataclasses.replace(group, count=layers)]
    if group.mlp is None:  # nemotron_h, whose experts are a layer of their own
        experts = None
        for other in stack.layers:
            if other.mlp and other.mlp.n_experts:
                experts = other
        if experts is None:
            return None
        groups.append(dataclasses.replace(experts, count=layers))
    return dataclasses.replace(
        model,
        title="multi-token prediction",
        stacks=(
            dataclasses.replace(
                stack, layers=tuple(groups), learned_positions=None, embedding_norm=False
            ),
        ),
        vocab_size=None,
        token_types=None,
        d_embedding=None,
        head=None,
        extra=(
            Matrix("eh_proj", 2 * d, d, applied_to="queries"),
            Matrix("norms", 1, d + d_hidden),
            *mixer,
        ),
        towers=(),
        rope_tables=(),
        stored=None,
        first_layer=model.first_layer + after + int(group.count) - 1,
    )
