"""The params.json of Meta's and Mistral's own releases -> the fields of the same model's config.json.

Sources: args.py, model.py and moe.py in models/llama3 and models/llama4 of meta-llama/llama-models, and
vllm/transformers_utils/configs/mistral.py, which translates Mistral's.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle, islice
from typing import Any, NamedTuple

from ..errors import AttncalcError
from .huggingface.fields import written
from .keys import MAX_LAYERS

_TIP = "give the config.json of the same model"
_NO_FIGURE = (
    *("norm_eps", "rope_theta", "use_scaled_rope", "rope_scaling_factor", "rope_high_freq_factor", "use_qk_norm"),
    *("attn_temperature_tuning", "floor_scale", "attn_scale", "max_batch_size", "max_seq_len", "lora_args", "lora"),
    *("model_type", "model_parallel", "llama_4_scaling", "yarn", "causal", "activation", "fused_add_norm", "rms_norm"),
)
"""Keys that change no figure, or that are read below by their name."""
_META_NAMES = (
    *("dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "multiple_of", "ffn_dim_multiplier", "ffn_exp"),
    *("moe_args", "vision_args", "quantization_args", "attention_chunk_size", "nope_layer_interval"),
)
_MISTRAL_NAMES = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "hidden_dim": "intermediate_size",
    "tied_embeddings": "tie_word_embeddings",
    "tie_embeddings": "tie_word_embeddings",
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
_NAMES = {
    "hidden_size": ("dim",),
    "num_hidden_layers": ("n_layers",),
    "num_attention_heads": ("n_heads",),
    "num_key_value_heads": ("n_heads", "n_kv_heads"),
    "intermediate_size": ("multiple_of", "hidden_dim"),
    "tie_word_embeddings": ("tie_embeddings", "tied_embeddings"),
    "max_position_embeddings": ("max_seq_len", "max_position_embeddings"),
    "n_routed_experts": ("moe.num_experts",),
    "num_local_experts": ("moe.num_experts",),
    "n_shared_experts": ("moe.num_shared_experts",),
    "moe_intermediate_size": ("moe.expert_hidden_dim",),
}
"""{field of a config.json: the keys of a params.json that it is made of}; errors name the last one that is given."""
_VISION_NAMES = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_channels", "image_size"),
    "patch_size",
)
_MAX_SIZE = 10**9
_LLAMA_1_OR_2_VOCABULARY = 32_000
_LLAMA_3_VOCABULARY = 128_256
_VLLM_CONTEXT = 128_000
"""The maximum context that vLLM assumes for a params.json of Mistral's without one."""


class Translated(NamedTuple):
    """A params.json as a config.json.

    Attributes:
        config: The fields of the config.json.
        notes: What it does not say and is assumed.
    """

    config: dict[str, Any]
    notes: tuple[str, ...] = ()


def is_params_json(data: Mapping[str, Any]) -> bool:
    """Return whether the data are of a params.json: 'dim' and 'n_layers', without the keys of transformers."""
    data = _inner(data)
    has_names = {"dim", "n_layers"} <= data.keys() and ("n_heads" in data or data.get("model_type") == "mamba")
    known = data.get("model_type") in (None, "transformer", "mamba", "llama", "mistral")
    return has_names and known and not data.keys() & {"architectures", "hidden_size", "num_hidden_layers", "d_model"}


def to_config(data: Mapping[str, Any], file: str) -> Translated:
    """Return the config.json of the same model. Raises AttncalcError, with the key, if a value cannot be used."""
    data = _inner(data)
    try:
        if data.get("model_type") == "mamba":
            return _from_mamba(data)
        return _from_mistral(data) if "hidden_dim" in data else _from_meta(data)
    except AttncalcError as error:
        raise AttncalcError(f"{file}: {error.message}", error.tip) from None


def names_in_file(data: Mapping[str, Any]) -> dict[str, str]:
    """Return {field of the config.json: the key of the params.json that it is made of}, for errors."""
    given = _inner(data)
    return {field: key for field, keys in _NAMES.items() for key in keys if key.split(".")[0] in given}


def _inner(data: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = data.get("model")
    return inner if isinstance(inner, Mapping) and "dim" in inner else data


def _rest(data: Mapping[str, Any], *used: str) -> dict[str, Any]:
    """Return the keys that nothing reads, so that the reader of config.json judges them."""
    return {key: value for key, value in data.items() if key not in (*_NO_FIGURE, *used)}


# Meta


def _from_meta(data: Mapping[str, Any]) -> Translated:
    """Return the config of a Llama 1, 2, 3, 3.1, 3.2 or 4."""
    if data.get("vision_num_cross_attention_layers"):
        raise AttncalcError("vision_num_cross_attention_layers: Llama 3.2 Vision is not read from a params.json", _TIP)
    dim, vocabulary = _size(data, "dim"), data.get("vocab_size", -1)
    notes = []
    if vocabulary == -1:
        vocabulary = _LLAMA_1_OR_2_VOCABULARY
        notes.append("The params.json leaves the vocabulary to the tokenizer; 32,000 tokens are assumed.")
    is_llama_3 = isinstance(vocabulary, int) and vocabulary >= _LLAMA_3_VOCABULARY
    config = {
        **_rest(data, *_META_NAMES),
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": dim,
        "num_hidden_layers": _size(data, "n_layers"),
        "num_attention_heads": _size(data, "n_heads"),
        "num_key_value_heads": data["n_heads"] if data.get("n_kv_heads") is None else data["n_kv_heads"],
        "vocab_size": vocabulary,
        # Llama 3.2's small models share the matrix of embedding and head.
        "tie_word_embeddings": bool(data.get("use_scaled_rope")) and dim < 4096,
        "torch_dtype": "bfloat16" if is_llama_3 else "float16",
    }
    if data.get("quantization_args"):
        config["quantization_config"] = {"quant_method": "quantization_args of Meta's params.json"}
    if data.get("moe_args"):
        config = _with_llama_4(config, data)
    else:
        config["intermediate_size"] = _d_ff(data, 4 * dim)
        config["max_position_embeddings"] = _context_of_llama(data, is_llama_3)
    inner = config.get("text_config", config)
    notes.append(
        f"The params.json names no maximum context; {inner['max_position_embeddings']:,} tokens are assumed, as Meta "
        "released it."
    )
    return Translated(config, tuple(notes))


def _context_of_llama(data: Mapping[str, Any], is_llama_3: bool) -> int:
    """Return the context of the release: the 3.1 and 3.2 models scale their rotary positions."""
    if is_llama_3:
        return 131_072 if data.get("use_scaled_rope") else 8192
    return 2048 if data.get("norm_eps") == 1e-06 else 4096  # Llama 1 or 2


def _d_ff(data: Mapping[str, Any], width: int, divisor: float = 1) -> int:
    """Return the MLP's width: two thirds of `width`, multiplied, and rounded up. Source: FeedForward in model.py."""
    factor, multiple = data.get("ffn_dim_multiplier"), data.get("multiple_of", 256)
    if factor is not None and not (_is_number(factor) and 0 < factor <= 1000):
        raise AttncalcError(f"ffn_dim_multiplier: {written(factor)} is not a number above 0", _TIP)
    if type(multiple) is not int or not 1 <= multiple <= _MAX_SIZE:
        raise AttncalcError(f"multiple_of: {written(multiple)} is not a whole number above 0", _TIP)
    d_ff = 2 * width // 3
    if factor is not None:
        d_ff = int(factor * d_ff)
    d_ff = int(d_ff / divisor)
    return -(-d_ff // multiple) * multiple


def _with_llama_4(config: dict[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of a Llama 4. Source: TransformerBlock in models/llama4/model.py, MoE in moe.py."""
    moe, dim = data["moe_args"], config["hidden_size"]
    if not isinstance(moe, Mapping):
        raise AttncalcError("moe_args: not a mapping of keys to values", _TIP)
    expansion = data.get("ffn_exp", 4.0)
    if not (_is_number(expansion) and 0 < expansion <= 1000):
        raise AttncalcError(f"ffn_exp: {written(expansion)} is not a number above 0", _TIP)
    capacity = moe.get("capacity_factor", 1.0)
    if not (_is_number(capacity) and 0 <= capacity <= 1000):
        raise AttncalcError(f"moe_args.capacity_factor: {written(capacity)} is not a number", _TIP)
    interval = data.get("nope_layer_interval")
    text = {
        **{key: value for key, value in config.items() if key not in ("architectures", "quantization_config")},
        "model_type": "llama4_text",
        "head_dim": data.get("head_dim") or dim // config["num_attention_heads"],
        "intermediate_size": _d_ff(data, int(expansion * dim), capacity + 1 if moe.get("auto_scale_F", True) else 1),
        "intermediate_size_mlp": _d_ff(data, 4 * dim),
        "num_local_experts": moe.get("num_experts"),
        "num_experts_per_tok": moe.get("top_k", 1),
        "interleave_moe_layer_step": moe.get("interleave_moe_layer_step", 1),
        "attention_chunk_size": data.get("attention_chunk_size"),
        "max_position_embeddings": 10_485_760 if data.get("use_scaled_rope") else 1_048_576,  # Scout, Maverick
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    if interval:
        text["no_rope_layer_interval"] = interval
    elif data.get("attention_chunk_size") is None:
        text["layer_types"] = ["full_attention"] * text["num_hidden_layers"]
    outer = {key: value for key, value in config.items() if key == "quantization_config"}
    vision = data.get("vision_args")
    if not isinstance(vision, Mapping):
        return {**outer, **text, "architectures": ["Llama4ForCausalLM"]}
    return {
        **outer,
        "architectures": ["Llama4ForConditionalGeneration"],
        "model_type": "llama4",
        "torch_dtype": "bfloat16",
        "text_config": text,
        "vision_config": _vision_of_llama_4(vision),
    }


def _vision_of_llama_4(vision: Mapping[str, Any]) -> dict[str, Any]:
    dim, ratio, output = vision.get("dim"), vision.get("mlp_ratio", 4.0), vision.get("output_dim")
    image, patch = vision.get("image_size"), vision.get("patch_size")
    is_width = type(dim) is int and 0 < dim <= _MAX_SIZE
    inner = int(dim * ratio) if is_width and _is_number(ratio) and 0 < ratio < 100 else None
    return {
        "model_type": "llama4_vision_model",
        "hidden_size": dim,
        "num_hidden_layers": vision.get("n_layers"),
        "num_attention_heads": vision.get("n_heads"),
        "intermediate_size": inner,
        "image_size": image.get("height") if isinstance(image, Mapping) else image,
        "patch_size": patch.get("height") if isinstance(patch, Mapping) else patch,
        "pixel_shuffle_ratio": vision.get("pixel_shuffle_ratio", 0.5),
        "vision_output_dim": output,
        "projector_input_dim": output,
        "projector_output_dim": output,
    }


# Mistral


def _from_mistral(data: Mapping[str, Any]) -> Translated:
    """Return the config of a Mistral, Mixtral, Ministral, Pixtral, Voxtral or Mistral Large 3."""
    given = data.get("multimodal")
    multimodal: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    vision = data.get("vision_encoder") or multimodal.get("vision_encoder_args")
    notes = []
    used = (*_MISTRAL_NAMES, "vision_encoder", "multimodal", "moe", "quantization", "sliding_window", "dtype")
    text = {
        **_rest(data, *used, "max_position_embeddings"),
        **{name: data[key] for key, name in _MISTRAL_NAMES.items() if key in data},
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "torch_dtype": data.get("dtype") or "bfloat16",
    }
    text["max_position_embeddings"] = data.get("max_position_embeddings") or data.get("max_seq_len") or _VLLM_CONTEXT
    if not (data.get("max_position_embeddings") or data.get("max_seq_len")):
        notes.append("The params.json names no maximum context; 128,000 tokens are assumed, as vLLM does.")
    text |= _windows(data.get("sliding_window"), data.get("n_layers"))
    if data.get("qk_nope_head_dim"):
        text |= {"model_type": "mistral4", "architectures": ["Mistral4ForCausalLM"], **_experts(data)}
        text.pop("head_dim", None)
    elif data.get("moe"):
        text |= {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], **_mixtral_experts(data["moe"])}
    outer = _quantization(data)
    if multimodal.get("whisper_model_args"):
        notes.append("The audio encoder is not counted.")
    if isinstance(vision, Mapping):
        return Translated({**outer, **_with_vision(text, vision)}, tuple(notes))
    return Translated({**text, **outer}, tuple(notes))


def _windows(window: Any, layers: Any) -> dict[str, Any]:
    """Return the fields of sliding windows: one for all layers, or a list that repeats, with null for none."""
    if not isinstance(window, list):
        return {"sliding_window": window}
    sizes = {size for size in window if type(size) is int}
    is_list = bool(window) and len(sizes) <= 1 and all(size is None or type(size) is int for size in window)
    if not is_list or type(layers) is not int or not 0 < layers <= MAX_LAYERS:
        raise AttncalcError("sliding_window: not a list of one size and nulls", _TIP)
    kinds = ["full_attention" if size is None else "sliding_attention" for size in window]
    return {
        "model_type": "ministral",
        "sliding_window": next(iter(sizes), None),
        "layer_types": list(islice(cycle(kinds), layers)),
    }


def _experts(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the experts of a model with latent attention; without any, all of its layers are dense."""
    moe = data.get("moe")
    if not isinstance(moe, Mapping):
        dense = {"n_routed_experts": 1, "num_experts_per_tok": 1, "n_shared_experts": 1, "n_group": 1, "topk_group": 1}
        return {**dense, "first_k_dense_replace": data.get("n_layers"), "moe_intermediate_size": data.get("hidden_dim")}
    if moe.get("route_every_n", 1) != 1:
        raise AttncalcError(f"moe.route_every_n: {written(moe['route_every_n'])} is not supported", _TIP)
    return {name: moe[key] for key, name in _MOE_NAMES.items() if key in moe}


def _mixtral_experts(moe: Any) -> dict[str, Any]:
    if not isinstance(moe, Mapping) or moe.keys() - {"num_experts", "num_experts_per_tok"}:
        raise AttncalcError("moe: only num_experts and num_experts_per_tok are supported without latents", _TIP)
    return {"num_local_experts": moe.get("num_experts"), "num_experts_per_tok": moe.get("num_experts_per_tok")}


def _quantization(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return quantization_config, as vLLM makes it of `quantization`."""
    own, given = data.get("quantization"), data.get("quantization_config")
    if not isinstance(own, Mapping) or not own:
        return {"quantization_config": given} if given else {}
    if own.get("qformat_weight") == "fp8_e4m3":
        scheme = "dynamic" if own.get("qscheme_act") == "NO_SCALES" else "static"
        return {"quantization_config": {"quant_method": "fp8", "activation_scheme": scheme}}
    method = str(own.get("quant_method") or own.get("qformat_weight") or "unknown").lower().replace("_", "-")
    return {"quantization_config": {**own, "quant_method": method}}


def _with_vision(text: dict[str, Any], vision: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of a model with a Pixtral tower, and Mistral 3's merger of patches or LLaVA's projector."""
    merges = vision.get("mm_projector_id") == "patch_merge"
    return {
        "model_type": "mistral3" if merges else "llava",
        "architectures": ["Mistral3ForConditionalGeneration" if merges else "LlavaForConditionalGeneration"],
        "torch_dtype": text["torch_dtype"],
        "tie_word_embeddings": text.get("tie_word_embeddings", False),
        "multimodal_projector_bias": bool(vision.get("adapter_bias", not merges)),
        **({"spatial_merge_size": vision.get("spatial_merge_size", 2)} if merges else {}),
        "text_config": text,
        "vision_config": {"model_type": "pixtral", **{key: vision[key] for key in _VISION_NAMES if key in vision}},
    }


def _from_mamba(data: Mapping[str, Any]) -> Translated:
    """Return the config of Codestral Mamba, with the defaults of Mamba2 in mamba_ssm for what it omits."""
    used = ("dim", "n_layers", "tie_embeddings", "pad_vocab_size_multiple", "residual_in_fp32", "dtype")
    config = {
        **_rest(data, *used),
        "model_type": "mamba2",
        "architectures": ["Mamba2ForCausalLM"],
        "hidden_size": _size(data, "dim"),
        "num_hidden_layers": data["n_layers"],
        "head_dim": 64,
        "num_heads": 2 * _size(data, "dim") // 64,
        "tie_word_embeddings": data.get("tie_embeddings", False),
        "torch_dtype": data.get("dtype") or "bfloat16",
    }
    return Translated(config)


def _size(data: Mapping[str, Any], key: str) -> int:
    value = data.get(key)
    if type(value) is not int or not 1 <= value <= _MAX_SIZE:
        raise AttncalcError(f"{key}: {written(value)} is not a whole number above 0", _TIP)
    return value


def _is_number(value: Any) -> bool:
    """Return whether a value is a number, and not true or false; nan and infinity are, and exceed every limit."""
    return type(value) in (int, float)
