"""Mistral's params.json: Mistral, Mixtral, Ministral, Pixtral, Voxtral, Mistral Large 3 and
Codestral Mamba.

Source: vllm/transformers_utils/configs/mistral.py, which translates it.
"""

from itertools import cycle, islice
from typing import Any

from ...errors import AttncalcError, NotSupportedError, clash
from ...model import MAX_LAYERS
from ..huggingface.fields import written
from .keys import TIP, Keys

_LATENT_KEYS = ("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "v_head_dim")
_MISTRAL_NAMES = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "hidden_dim": "intermediate_size",
    "tied_embeddings": "tie_word_embeddings",
    "tie_embeddings": "tie_word_embeddings",
    **{name: name for name in ("vocab_size", "head_dim", "qk_nope_head_dim", *_LATENT_KEYS)},
}
_MOE_NAMES = {
    "num_experts": "n_routed_experts",
    "num_experts_per_tok": "num_experts_per_tok",
    "num_shared_experts": "n_shared_experts",
    "expert_hidden_dim": "moe_intermediate_size",
    "first_k_dense_replace": "first_k_dense_replace",
    "num_expert_groups": "n_group",
    "num_expert_groups_per_tok": "topk_group",
}
_VISION_NAMES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_channels",
    "image_size",
    "patch_size",
)
# The maximum context that vLLM assumes for a params.json without one.
_VLLM_CONTEXT = 128_000


def from_mistral(data: Keys, notes: list[str]) -> dict[str, Any]:
    """Return the config of a Mistral, Mixtral, Ministral, Pixtral, Voxtral or Mistral Large 3."""
    data.check("mistral")
    # Those without a default in TransformerArgs of mistral-inference, beside those that make a file
    # a params.json.
    data.require("head_dim", "n_kv_heads", "vocab_size", "norm_eps")
    for key in ("use_biases", "ada_rms_norm_t_cond"):  # Voxtral Realtime has the second
        if data.get(key):
            raise data.unsupported(key)
    multimodal = data.inside("multimodal")
    multimodal.check("multimodal")
    vision = data.inside("vision_encoder") or multimodal.inside("vision_encoder_args")
    context = data.get("max_position_embeddings") or data.get("max_seq_len")
    if not context:
        notes.append(
            "The params.json names no maximum context; 128,000 tokens are assumed, as vLLM does."
        )
    text = {
        **data.renamed(_MISTRAL_NAMES),
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "torch_dtype": data.get("dtype") or "bfloat16",
        "max_position_embeddings": context or _VLLM_CONTEXT,
    }
    # mistral-inference reads both names: with the second, vLLM sees no windows.
    window = data.get("sliding_window")
    second = data.get("_sliding_window")
    if window is not None and second is not None:
        raise clash("sliding_window", "_sliding_window", TIP)
    text |= _windows(data, second if window is None else window)
    text |= _architecture(data)
    if text["model_type"] == "mistral4":
        text.pop("head_dim", None)
    quantization = _quantization(data)
    if multimodal.get("whisper_model_args"):
        notes.append("The audio encoder is not counted.")
    if vision:
        return _with_vision(text, vision) | quantization
    return text | quantization


def _architecture(data: Keys) -> dict[str, Any]:
    """Return the class that transformers has for the model, and its experts."""
    if data.get("qk_nope_head_dim"):
        experts = _experts(data)
        return {"model_type": "mistral4", "architectures": ["Mistral4ForCausalLM"], **experts}
    if data.get("moe"):
        moe = data.inside("moe")
        if moe.keys() - {"num_experts", "num_experts_per_tok"}:
            raise data.error(
                "moe", "only num_experts and num_experts_per_tok are supported without latents"
            )
        return {
            "model_type": "mixtral",
            "architectures": ["MixtralForCausalLM"],
            "num_local_experts": moe.get("num_experts"),
            "num_experts_per_tok": moe.get("num_experts_per_tok"),
        }
    for key in _LATENT_KEYS:
        if data.get(key):
            raise NotSupportedError(f"{key} without qk_nope_head_dim is not supported", TIP)
    return {}


def _windows(data: Keys, window: Any) -> dict[str, Any]:
    """Return the fields of sliding windows: one for all layers, or a list that repeats, with null
    for none.
    """
    if not isinstance(window, list):
        return {"sliding_window": window}
    layers = data.get("n_layers")
    size = None
    kinds = []
    error = data.error("sliding_window", "not a list of one size and nulls")
    for each in window:
        if each is None:
            kinds.append("full_attention")
            continue
        if type(each) is not int or (size is not None and each != size):
            raise error
        size = each
        kinds.append("sliding_attention")
    if not kinds or type(layers) is not int or not 0 < layers <= MAX_LAYERS:
        raise error
    return {
        "model_type": "ministral",
        "sliding_window": size,
        "layer_types": list(islice(cycle(kinds), layers)),
    }


def _experts(data: Keys) -> dict[str, Any]:
    """Return the experts of a model with latent attention; without any, all of its layers are
    dense.
    """
    moe = data.inside("moe")
    if not moe:
        dense = {
            "n_routed_experts": 1,
            "num_experts_per_tok": 1,
            "n_shared_experts": 1,
            "n_group": 1,
            "topk_group": 1,
        }
        return {
            **dense,
            "first_k_dense_replace": data.get("n_layers"),
            "moe_intermediate_size": data.get("hidden_dim"),
        }
    moe.check("moe", names=_MOE_NAMES)
    if moe.get("route_every_n", 1) != 1:
        raise moe.error("route_every_n", f"{written(moe['route_every_n'])} is not supported")
    return moe.renamed(_MOE_NAMES)


def _quantization(data: Keys) -> dict[str, Any]:
    """Return quantization_config, as vLLM makes it of `quantization`."""
    own = data.inside("quantization")
    given = data.get("quantization_config")
    if not own and not given:
        return {}
    if not own:
        return {"quantization_config": given}
    if own.get("qformat_weight") == "fp8_e4m3":
        scheme = "dynamic" if own.get("qscheme_act") == "NO_SCALES" else "static"
        return {"quantization_config": {"quant_method": "fp8", "activation_scheme": scheme}}
    method = str(own.get("quant_method") or own.get("qformat_weight") or "unknown")
    method = method.lower().replace("_", "-")
    return {"quantization_config": {**own, "quant_method": method}}


def _with_vision(text: dict[str, Any], vision: Keys) -> dict[str, Any]:
    """Return the config of a model with a Pixtral tower, and Mistral 3's merger of patches or
    LLaVA's projector.
    """
    vision.check("vision_encoder", names=_VISION_NAMES)
    merges = vision.get("mm_projector_id") == "patch_merge"
    if vision.get("add_pre_mm_projector_layer_norm", merges) != merges:
        raise AttncalcError(
            "vision_encoder: a norm in front of a projector that merges no patches", TIP
        )
    if merges:
        config = {
            "model_type": "mistral3",
            "architectures": ["Mistral3ForConditionalGeneration"],
            "spatial_merge_size": vision.get("spatial_merge_size", 2),
        }
    else:
        config = {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"]}
    sizes = {key: vision[key] for key in _VISION_NAMES if key in vision}
    return {
        **config,
        "torch_dtype": text["torch_dtype"],
        "tie_word_embeddings": text.get("tie_word_embeddings", False),
        "multimodal_projector_bias": vision.flag("adapter_bias", not merges),
        "text_config": text,
        "vision_config": {"model_type": "pixtral", **sizes},
    }


def from_mamba(data: Keys) -> dict[str, Any]:
    """Return the config of Codestral Mamba, which has heads of 64 as Mamba2 in mamba_ssm by
    default.
    """
    data.check("mamba")
    if data.get("rms_norm", True) is not True:  # LayerNorm has biases
        raise data.unsupported("rms_norm")
    padding = data.size("pad_vocab_size_multiple", 1)
    dim = data.size("dim")
    return {
        "model_type": "mamba2",
        "architectures": ["Mamba2ForCausalLM"],
        "hidden_size": dim,
        "num_hidden_layers": data["n_layers"],
        "head_dim": 64,
        "num_heads": 2 * dim // 64,
        "vocab_size": -(-data.size("vocab_size") // padding) * padding,
        "tie_word_embeddings": data.get("tie_embeddings", False),
        "torch_dtype": data.get("dtype") or "bfloat16",
        "n_groups": data.size("n_groups"),
    }
