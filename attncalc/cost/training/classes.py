"""How transformers' classes compute norms, activation functions and routers, where that changes
what they save.

Most classes compute as LLaMA's and Qwen3-MoE's: they multiply the normalized input by the gain in
the activations' dtype, and call fused functions (SiLU, GELU), which save their input. Each fact
below names the classes that differ, by model_type. Source: modeling_*.py of each, activations.py,
and what the classes saved: `python tools/training_oracle.py CLASS` prints each tensor that a class
saves and the formulas do not count, and the other way round.
"""

from functools import lru_cache
from typing import Any

from ...attention.saved import ClassMath, Router

_FP32 = Router("sigmoid", in_fp32="copied", weights="fp32")
# Fields of ClassMath, their values, and the classes that have them.
FACTS: tuple[tuple[str, Any, str], ...] = (
    # `(self.weight * hidden_states).to(input_dtype)`
    ("gain", "fp32", "afmoe flex_olmo gpt_oss olmo2 olmo3 olmo_hybrid"),
    # `self.weight.to(torch.float32) * hidden_states`
    ("gain", "upcast", "cohere2_moe helium nemotron_h"),
    # `torch.pow(mean_squared, -0.5)`, and `normed_output * self.weight.float()`
    ("gain", "power", "gemma3n gemma4 gemma4_unified"),
    # `output * (1.0 + self.weight.float())`
    (
        "gain",
        "shifted",
        "gemma gemma2 gemma3 qwen3_5 qwen3_5_moe qwen3_next recurrent_gemma t5gemma vaultgemma",
    ),
    # `F.layer_norm(x, shape, weight + 1, bias)`
    ("gain", "shifted", "nemotron"),
    # CohereLayerNorm, in single operations in fp32
    ("gain", "centred", "cohere cohere2"),
    # `F.layer_norm(x.to(torch.float32), shape, None, None)`
    ("gain", "none", "olmo"),
    # NanoChatRMSNorm, also of the embedding
    ("gain", "bare", "nanochat"),
    ("activation", "gelu_new", "bigbird_pegasus codegen gpt-sw3 gpt2 gpt_neo gptj mt5 phi umt5"),
    # `torch.where(x > 0, self.alpha_p * x * x + self.beta * x, ...)`
    ("activation", "xielu", "apertus"),
    ("activation", "relu", "longt5 m2m_100 nllb-moe opt switch_transformers t5"),
    # `nn.functional.softmax(attn_weights, dim=-1)`
    (
        "softmax",
        "plain",
        "bart biogpt blenderbot blenderbot-small falcon gpt-sw3 gpt2 llama4 mbart mvp pegasus",
    ),
    # `combined_logits - combined_logits.max(dim=-1, keepdim=True).values`
    ("softmax", "shifted", "gpt_oss mimo_v2_flash"),
    # `torch.max(attn_weights, torch.tensor(torch.finfo(attn_weights.dtype).min))`
    ("softmax", "floored", "xglm"),
    # `attn_output * torch.sigmoid(lse - sinks)`
    ("softmax", "gated", "granite_swa granitemoe_swa"),
    # `query = query.to(torch.float32)`
    ("scores_in_fp32", True, "codegen gpt_neo gptj"),
    # `self.attn_sub_norm(attn_output)`, `self.ffn_sub_norm(...)`
    ("inner_norms", True, "bitnet"),
    # `(up + 1) * gate * torch.sigmoid(gate * self.alpha)`, both clamped
    ("clamps", True, "gpt_oss"),
    # `hidden_states.repeat(router_scores.shape[1], 1)`
    ("is_dense", True, "llama4"),
    ("router", Router("sigmoid", normalizes=False), "llama4"),
    ("router", Router("sigmoid", weights="fp32"), "afmoe"),
    ("router", Router("chosen, cast", normalizes=False), "aria gpt_oss"),
    (
        "router",
        Router("chosen", normalizes=False),
        "cohere2_moe granitemoe granitemoe_swa granitemoehybrid granitemoeshared",
    ),
    ("router", Router(normalizes=False), "flex_olmo jamba olmoe qwen2_moe"),
    ("router", Router(weights="fp32"), "minimax minimax_m2 mixtral"),
    ("router", Router(weights="fp32", scales=True), "gemma4"),
    ("router", Router(in_fp32="stored", clamps_sum=True), "ernie4_5_moe"),
    ("router", Router(normalizes=False, in_fp32="copied", weights="fp32"), "deepseek_v2"),
    ("router", Router(casts=True, groups=(1, 1)), "mistral4"),
    ("router", Router("sparsemixer", normalizes=False), "phimoe"),
    ("router", _FP32, "hy_v3 kolibri1"),
    (
        "router",
        _FP32._replace(groups=(1, 1)),
        "dots1 exaone_moe glm4_moe glm4_moe_lite glm_moe_dsa kimi_k2 kimi_linear mimo_v2_flash "
        "nemotron_h solar_open",
    ),
    ("router", _FP32._replace(groups=(8, 4)), "axk1 deepseek_v3 deepseek_v32"),
    # `torch.cat([(q_rot * cos) + ..., q_pass], dim=-1)`
    (
        "joins_heads",
        True,
        "glm glm4 glm4_moe gpt_neox laguna minimax_m2 nemotron persimmon phi phi3 phi4_multimodal",
    ),
    ("joins_heads", True, "qwen3_5 qwen3_5_moe qwen3_next recurrent_gemma stablelm"),
    # `cos[..., : cos.shape[-1] // 2].repeat_interleave(2, dim=-1)` in each layer
    ("own_tables", "half", "glm glm4 recurrent_gemma"),
    ("own_tables", "all", "helium"),
    ("own_tables", "in fp32", "ernie4_5 ernie4_5_moe"),
    # `x + attn(ln1(x)) + mlp(ln2(x))`
    ("in_parallel", True, "falcon gpt_neox"),
    # `self.v_norm = Gemma4RMSNorm(self.head_dim, with_scale=False)`
    ("normalizes_v", True, "gemma3n gemma4 gemma4_unified"),
    # `qkv[:, :, :, [-2]]`
    ("indexes_kv", True, "falcon"),
    # `F.scaled_dot_product_attention(query_layer, key_layer, ...)`, K and V with heads of their own
    # number
    ("broadcasts_kv", True, "falcon"),
    # `query_states * attn_scales`
    ("scales_queries", "fp32", "llama4"),
    ("scales_queries", "cast", "ministral3 mistral4"),
    # `position_ids = torch.cumsum(attention_mask, dim=1)`
    ("positions_of_rows", True, "camembert opt roberta xlm-roberta"),
    # `hidden_states *= self.layer_scalar`
    ("scales_layer", True, "gemma4 gemma4_unified"),
    # attn_logit_softcapping of the class's own config
    ("caps_scores", True, "gemma2 t5gemma vaultgemma"),
    # `hidden_states * normalizer`
    (
        "scales_embedding",
        True,
        "gemma gemma2 gemma3 gemma4 gemma4_unified minicpm3 recurrent_gemma vaultgemma",
    ),
    # final_logit_softcapping
    ("caps_logits", True, "gemma2 gemma3n gemma4 nanochat recurrent_gemma t5gemma vaultgemma"),
    # `loss_fct(lm_logits.view(-1, lm_logits.size(-1)), labels.view(-1))`
    (
        "upcasts_loss",
        False,
        "albert bart bert bigbird_pegasus blenderbot blenderbot-small camembert data2vec-text",
    ),
    (
        "upcasts_loss",
        False,
        "deberta deberta-v2 distilbert electra ernie esm gte ibert jina_embeddings_v3 layoutlm",
    ),
    (
        "upcasts_loss",
        False,
        "led longt5 longformer m2m_100 marian mbart megatron-bert mpnet mt5 mvp nllb-moe",
    ),
    (
        "upcasts_loss",
        False,
        "nomic_bert pegasus pegasus_x plbart rembert roberta roberta-prelayernorm roformer",
    ),
    (
        "upcasts_loss",
        False,
        "switch_transformers t5 tapas umt5 whisper xlm-roberta xlm-roberta-xl xlnet",
    ),
    # `_supports_sdpa = False`
    (
        "has_sdpa",
        False,
        "deepseek_v4 flint gemma2 gpt_oss granite_swa granitemoe_swa hy_v4 mimo_v2_flash t5gemma",
    ),
    ("has_sdpa", False, "vaultgemma"),
    # `residual = residual.to(torch.float32)`
    ("residual_in_fp32", True, "falcon_mamba mamba mamba2"),
    # `beta = beta * 2.0`
    ("doubles_beta", True, "olmo_hybrid"),
    # `self.mamba(hidden_states=hidden_states) + self.self_attn(hidden_states *
    # self.attention_in_multiplier)`
    ("parallel_mixers", True, "falcon_h1"),
)

# Classes whose layers save more than the formulas count, and how many times as much.
SAVES_MORE = {
    "zaya": 1.5,
    "beam": 1.45,
    **dict.fromkeys(("flint", "gemma3n", "minimax_m3_vl"), 1.35),
    "doge": 1.1,
}


def saves_more(model_type: str | None) -> float:
    """Return how many times as much a class saves as is counted, if it is known to save more; else
    1.
    """
    return SAVES_MORE.get((model_type or "").removesuffix("_text"), 1)


# {model_type with a tower: that of its text_config, where the names differ}.
_TEXT_CLASSES = {"kimi_k25": "kimi_k2", "minicpmv4_6": "qwen3_5"}


@lru_cache(maxsize=64)
def class_math(model_type: str | None) -> ClassMath:
    """Return how the class of a model_type computes; as LLaMA's for others and without one."""
    name = (model_type or "").removesuffix("_text")
    name = _TEXT_CLASSES.get(name, name)
    return ClassMath(**{field: value for field, value, classes in FACTS if name in classes.split()})
