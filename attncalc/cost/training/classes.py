"""How transformers' classes compute norms and activation functions, where that changes what they save.

Most classes multiply the normalized input by the gain in the activations' dtype (LlamaRMSNorm) and call fused
functions (SiLU, GELU), which save their input. The others are listed here by model_type. Source: modeling_*.py of
each, activations.py, and what the classes saved (tools/training_oracle.py).
"""

from __future__ import annotations

from ...attention.saved import Activation, ClassMath, Gain

GAIN_IN_FP32 = (
    "afmoe flex_olmo gemma3n gemma3n_text gemma4 gemma4_text gemma4_unified gemma4_unified_text gpt_oss olmo2 olmo3 "
    "olmo_hybrid"
)
"""`(self.weight * hidden_states).to(input_dtype)`"""
SHIFTED_GAIN = (
    "gemma gemma2 gemma3 gemma3_text qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text qwen3_next recurrent_gemma "
    "t5gemma vaultgemma"
)
"""`output * (1.0 + self.weight.float())`"""
CENTRED = "cohere cohere2"
"""CohereLayerNorm, in single operations in fp32"""
GELU_NEW = "bigbird_pegasus codegen gpt-sw3 gpt2 gpt_neo gptj mt5 phi umt5"
RELU = "longt5 m2m_100 nllb-moe opt switch_transformers t5"


PARTLY_ROTATED = "glm glm4 glm4_moe minimax_m2 nemotron persimmon phi phi3 phi4_multimodal stablelm"
"""`torch.cat([(q_rot * cos) + ..., q_pass], dim=-1)`"""


CAPPED_SCORES = "gemma2 t5gemma vaultgemma"
"""attn_logit_softcapping of the class's own config"""
CAPPED_LOGITS = "gemma2 gemma3n gemma3n_text gemma4 gemma4_text recurrent_gemma t5gemma vaultgemma"
"""final_logit_softcapping"""

SAVES_MORE = {
    "gpt_oss": "Its class computes the experts in single operations: its layers save about 1.2 x as much.",
    **dict.fromkeys(
        ("llama4", "llama4_text"),
        "Its class sends every token through every expert: its layers save several times as much.",
    ),
    "olmo": "Its norms without a gain are not counted: its layers save about 1.2 x as much.",
    "zaya": "Its layers save about 1.5 x as much: compressed convolutional attention is not known.",
}
"""Classes that are known to save more than the formulas count (tests/data/training/saved.json)."""


def class_math(model_type: str | None) -> ClassMath:
    """Return how the class of a model_type computes; as LLaMA's for others and without one."""

    def among(names: str) -> bool:
        return model_type in names.split()

    gain: Gain = "cast"
    if among(GAIN_IN_FP32):
        gain = "fp32"
    elif among(SHIFTED_GAIN):
        gain = "shifted"
    elif among(CENTRED):
        gain = "centred"
    activation: Activation = "gelu_new" if among(GELU_NEW) else "relu" if among(RELU) else "fused"
    return ClassMath(gain, activation, among(PARTLY_ROTATED), among(CAPPED_SCORES), among(CAPPED_LOGITS))
