"""The files of Meta's, Mistral's and OpenAI's own releases -> the fields of the same model's config.json.

Meta and Mistral release a params.json, and OpenAI an original/config.json.

Sources: args.py, model.py and moe.py in models/llama3 and models/llama4 of meta-llama/llama-models, and
vllm/transformers_utils/configs/mistral.py, which translates Mistral's; ModelConfig in gpt_oss/torch/model.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import cycle, islice
from typing import Any, NamedTuple

from ..errors import AttncalcError
from ..units import truncate
from .huggingface.fields import written
from .keys import MAX_LAYERS

_TIP = "give the config.json of the same model"
_OTHERS_TIP = f"only Meta's, Mistral's and OpenAI's own releases are read; for others, {_TIP}"
_LLAMA_KEYS = (
    *("dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "multiple_of", "ffn_dim_multiplier", "norm_eps"),
    *("rope_theta", "use_scaled_rope", "max_batch_size", "max_seq_len", "quantization_args", "lora_args"),
    *("vision_chunk_size", "vision_max_num_chunks", "vision_num_cross_attention_layers"),
)
"""The keys of ModelArgs in models/llama3/args.py, whether or not they change a figure."""
_LLAMA_4_KEYS = (
    *_LLAMA_KEYS,
    *("head_dim", "ffn_exp", "attention_chunk_size", "rope_scaling_factor", "rope_high_freq_factor", "use_qk_norm"),
    *("nope_layer_interval", "attn_temperature_tuning", "floor_scale", "attn_scale", "vision_args", "moe_args"),
)
_LLAMA_4_MOE_KEYS = ("num_experts", "capacity_factor", "auto_scale_F", "top_k", "interleave_moe_layer_step")
_LLAMA_4_VISION_KEYS = (
    *("image_size", "patch_size", "dim", "n_layers", "n_heads", "mlp_ratio", "output_dim", "pixel_shuffle_ratio"),
)
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
_MISTRAL_REQUIRED = ("head_dim", "n_kv_heads", "vocab_size", "norm_eps")
"""Keys without a default in TransformerArgs of mistral-inference, beside those that make a file a params.json."""
_MISTRAL_KEYS = (
    *_MISTRAL_NAMES,
    *("sliding_window", "_sliding_window", "max_position_embeddings", "max_seq_len", "dtype", "quantization"),
    *("quantization_config", "moe", "vision_encoder", "multimodal", "use_biases", "ada_rms_norm_t_cond", "norm_eps"),
    # These change no figure.
    *("rope_theta", "yarn", "llama_4_scaling", "causal", "activation", "model_type", "model_parallel", "lora"),
    *("max_batch_size", "model_max_length", "ada_rms_norm_t_cond_dim"),
)
_MOE_NAMES = {
    "num_experts": "n_routed_experts",
    "num_experts_per_tok": "num_experts_per_tok",
    "num_shared_experts": "n_shared_experts",
    "expert_hidden_dim": "moe_intermediate_size",
    "first_k_dense_replace": "first_k_dense_replace",
    "num_expert_groups": "n_group",
    "num_expert_groups_per_tok": "topk_group",
}
_MOE_KEYS = (
    *_MOE_NAMES,
    *("route_every_n", "routed_scale", "expert_parallel", "expert_model_parallel", "renorm_strategy"),
)
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
_VISION_KEYS = (
    *_VISION_NAMES,
    *("rope_theta", "image_token_id", "image_break_token_id", "image_end_token_id", "max_image_size", "adapter_bias"),
    *("spatial_merge_size", "add_pre_mm_projector_layer_norm", "mm_projector_id"),
)
_MAMBA_KEYS = (
    *("dim", "n_layers", "vocab_size", "n_groups", "rms_norm", "residual_in_fp32", "fused_add_norm"),
    *("pad_vocab_size_multiple", "tie_embeddings", "model_type", "dtype"),
)
_GPT_OSS_NAMES = {
    "num_experts": "num_local_experts",
    "experts_per_token": "num_experts_per_tok",
    **{name: name for name in ("num_hidden_layers", "vocab_size", "hidden_size", "intermediate_size", "head_dim")},
    **{name: name for name in ("num_attention_heads", "num_key_value_heads", "sliding_window", "swiglu_limit")},
}
_GPT_OSS_KEYS = (
    *_GPT_OSS_NAMES,
    *("initial_context_length", "rope_theta", "rope_scaling_factor", "rope_ntk_alpha", "rope_ntk_beta"),
)
_MAX_SIZE = 10**9
_LLAMA_1_OR_2_VOCABULARY = 32_000
_LLAMA_3_VOCABULARY = 128_256
_VOCABULARIES = (_LLAMA_1_OR_2_VOCABULARY, _LLAMA_3_VOCABULARY, 202_048)
"""Those of Meta's releases: other projects write the same keys for Qwen2.5, whose MLP has another width."""
_ADDED_TOKENS = 1024
"""Tokens that a release (Code Llama: 16) or a fine-tune may add to a vocabulary, at most."""
_VLLM_CONTEXT = 128_000
"""The maximum context that vLLM assumes for a params.json of Mistral's without one."""


class Translated(NamedTuple):
    """A params.json as a config.json.

    Attributes:
        config: The fields of the config.json.
        notes: What it does not say and is assumed.
        file: The name of the release's file.
    """

    config: dict[str, Any]
    notes: tuple[str, ...] = ()
    file: str = "params.json"


def is_params_json(data: Mapping[str, Any]) -> bool:
    """Return whether the data are of a params.json: 'dim' and 'n_layers', without the keys of transformers.

    The original/config.json of gpt-oss counts as one.
    """
    data = _inner(data)
    if _is_gpt_oss(data):
        return True
    has_names = {"dim", "n_layers"} <= data.keys() and ("n_heads" in data or data.get("model_type") == "mamba")
    known = data.get("model_type") in (None, "transformer", "mamba", "llama", "mistral")
    return has_names and known and not data.keys() & {"architectures", "hidden_size", "num_hidden_layers", "d_model"}


def to_config(data: Mapping[str, Any], file: str) -> Translated:
    """Return the config.json of the same model. Raises AttncalcError, with the key, if a value cannot be used."""
    data = _inner(data)
    try:
        if _is_gpt_oss(data):
            return _from_gpt_oss(data)
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


def _is_gpt_oss(data: Mapping[str, Any]) -> bool:
    return "experts_per_token" in data and "initial_context_length" in data and "model_type" not in data


def _check_keys(data: Mapping[str, Any], known: Collection[str], place: str = "") -> None:
    """Raise AttncalcError if a key is not in `known`: a key that nobody reads may change a figure.

    ExecuTorch's files have keys of Meta's and of Mistral's; the error names one that is of neither, if there is one.
    """
    unknown = sorted((key for key in data if key not in known), key={*_LLAMA_4_KEYS, *_MISTRAL_KEYS}.__contains__)
    if unknown:
        raise AttncalcError(f"unknown key {place}{truncate(unknown[0])}", _OTHERS_TIP)


def _mapping(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the keys inside a key, or none if it is null. Raises AttncalcError if it has another value."""
    value = data.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise AttncalcError(f"{key}: not a mapping of keys to values", _TIP)
    return value or {}


def _require(data: Mapping[str, Any], *keys: str) -> None:
    """Raise AttncalcError if a key is missing that each release has."""
    for key in keys:
        if data.get(key) is None:
            raise AttncalcError(f"{key} is missing; the params.json of each release has it", _OTHERS_TIP)


# Meta


def _from_meta(data: Mapping[str, Any]) -> Translated:
    """Return the config of a Llama 1, 2, 3, 3.1, 3.2 or 4."""
    if data.get("vision_num_cross_attention_layers", -1) != -1:
        raise AttncalcError("vision_num_cross_attention_layers: Llama 3.2 Vision is not read from a params.json", _TIP)
    _check_keys(data, _LLAMA_4_KEYS if data.get("moe_args") else _LLAMA_KEYS)
    _require(data, "norm_eps")
    dim, vocabulary = _size(data, "dim"), data.get("vocab_size", -1)
    notes = []
    if vocabulary == -1:
        vocabulary = _LLAMA_1_OR_2_VOCABULARY
        notes.append("The params.json leaves the vocabulary to the tokenizer; 32,000 tokens are assumed.")
    if type(vocabulary) is not int or not any(size <= vocabulary < size + _ADDED_TOKENS for size in _VOCABULARIES):
        raise AttncalcError(f"vocab_size: {written(vocabulary)} is not the vocabulary of a Llama", _OTHERS_TIP)
    is_llama_3 = vocabulary >= _LLAMA_3_VOCABULARY
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": dim,
        "num_hidden_layers": _size(data, "n_layers"),
        "num_attention_heads": _size(data, "n_heads"),
        "num_key_value_heads": _size(data, "n_heads" if data.get("n_kv_heads") is None else "n_kv_heads"),
        "vocab_size": vocabulary,
        # Llama 3.2's small models share the matrix of embedding and head.
        "tie_word_embeddings": _flag(data, "use_scaled_rope") and dim < 4096,
        "torch_dtype": "bfloat16" if is_llama_3 else "float16",
    }
    if data.get("quantization_args"):
        config["quantization_config"] = {"quant_method": "quantization_args of Meta's params.json"}
    if data.get("moe_args"):
        config = _with_llama_4(config, data)
    else:
        config["intermediate_size"] = _d_ff(data, 4 * dim)
        config["max_position_embeddings"] = _context_of_llama(data, is_llama_3)
    inner: dict[str, Any] = config.get("text_config", config)
    notes.append(
        f"The params.json names no maximum context; {inner['max_position_embeddings']:,} tokens are assumed, as Meta "
        "released it."
    )
    return Translated(config, tuple(notes))


def _context_of_llama(data: Mapping[str, Any], is_llama_3: bool) -> int:
    """Return the context of the release, which the rotary positions tell apart."""
    if is_llama_3:
        return 131_072 if data.get("use_scaled_rope") else 8192
    if data.get("rope_theta") == 1_000_000:  # Code Llama
        return 16_384
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
    moe, dim = _mapping(data, "moe_args"), config["hidden_size"]
    _check_keys(moe, _LLAMA_4_MOE_KEYS, "moe_args.")
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
        "intermediate_size": _d_ff(data, int(expansion * dim), capacity + 1 if _flag(moe, "auto_scale_F", True) else 1),
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
    vision = _mapping(data, "vision_args")
    if not vision:
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
    _check_keys(vision, _LLAMA_4_VISION_KEYS, "vision_args.")
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
    _check_keys(data, _MISTRAL_KEYS)
    _require(data, *_MISTRAL_REQUIRED)
    for key in ("use_biases", "ada_rms_norm_t_cond"):  # Voxtral Realtime has the second
        if data.get(key):
            raise AttncalcError(f"{key} {written(data[key])} is not supported", _TIP)
    multimodal = _mapping(data, "multimodal")
    _check_keys(multimodal, ("vision_encoder_args", "whisper_model_args"), "multimodal.")
    vision = _mapping(data, "vision_encoder") or _mapping(multimodal, "vision_encoder_args")
    notes = []
    text = {
        **{name: data[key] for key, name in _MISTRAL_NAMES.items() if key in data},
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "torch_dtype": data.get("dtype") or "bfloat16",
    }
    text["max_position_embeddings"] = data.get("max_position_embeddings") or data.get("max_seq_len") or _VLLM_CONTEXT
    if not (data.get("max_position_embeddings") or data.get("max_seq_len")):
        notes.append("The params.json names no maximum context; 128,000 tokens are assumed, as vLLM does.")
    # mistral-inference reads both names: with the second, vLLM sees no windows.
    windows = [data[key] for key in ("sliding_window", "_sliding_window") if data.get(key) is not None]
    if len(windows) > 1:
        raise AttncalcError("sliding_window cannot be combined with _sliding_window", _TIP)
    text |= _windows(windows[0] if windows else None, data.get("n_layers"))
    if data.get("qk_nope_head_dim"):
        text |= {"model_type": "mistral4", "architectures": ["Mistral4ForCausalLM"], **_experts(data)}
        text.pop("head_dim", None)
    elif data.get("moe"):
        text |= {
            "model_type": "mixtral",
            "architectures": ["MixtralForCausalLM"],
            **_mixtral_experts(_mapping(data, "moe")),
        }
    elif latents := [key for key in _LATENT_KEYS if data.get(key)]:
        raise AttncalcError(f"{latents[0]} without qk_nope_head_dim is not supported", _TIP)
    outer = _quantization(data)
    if multimodal.get("whisper_model_args"):
        notes.append("The audio encoder is not counted.")
    if vision:
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
    moe = _mapping(data, "moe")
    if not moe:
        dense = {"n_routed_experts": 1, "num_experts_per_tok": 1, "n_shared_experts": 1, "n_group": 1, "topk_group": 1}
        return {**dense, "first_k_dense_replace": data.get("n_layers"), "moe_intermediate_size": data.get("hidden_dim")}
    _check_keys(moe, _MOE_KEYS, "moe.")
    if moe.get("route_every_n", 1) != 1:
        raise AttncalcError(f"moe.route_every_n: {written(moe['route_every_n'])} is not supported", _TIP)
    return {name: moe[key] for key, name in _MOE_NAMES.items() if key in moe}


def _mixtral_experts(moe: Mapping[str, Any]) -> dict[str, Any]:
    if moe.keys() - {"num_experts", "num_experts_per_tok"}:
        raise AttncalcError("moe: only num_experts and num_experts_per_tok are supported without latents", _TIP)
    return {"num_local_experts": moe.get("num_experts"), "num_experts_per_tok": moe.get("num_experts_per_tok")}


def _quantization(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return quantization_config, as vLLM makes it of `quantization`."""
    own, given = _mapping(data, "quantization"), data.get("quantization_config")
    if not own:
        return {"quantization_config": given} if given else {}
    if own.get("qformat_weight") == "fp8_e4m3":
        scheme = "dynamic" if own.get("qscheme_act") == "NO_SCALES" else "static"
        return {"quantization_config": {"quant_method": "fp8", "activation_scheme": scheme}}
    method = str(own.get("quant_method") or own.get("qformat_weight") or "unknown").lower().replace("_", "-")
    return {"quantization_config": {**own, "quant_method": method}}


def _with_vision(text: dict[str, Any], vision: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of a model with a Pixtral tower, and Mistral 3's merger of patches or LLaVA's projector."""
    _check_keys(vision, _VISION_KEYS, "vision_encoder.")
    merges = vision.get("mm_projector_id") == "patch_merge"
    if vision.get("add_pre_mm_projector_layer_norm", merges) != merges:
        raise AttncalcError("vision_encoder: a norm in front of a projector that merges no patches", _TIP)
    return {
        "model_type": "mistral3" if merges else "llava",
        "architectures": ["Mistral3ForConditionalGeneration" if merges else "LlavaForConditionalGeneration"],
        "torch_dtype": text["torch_dtype"],
        "tie_word_embeddings": text.get("tie_word_embeddings", False),
        "multimodal_projector_bias": _flag(vision, "adapter_bias", not merges),
        **({"spatial_merge_size": vision.get("spatial_merge_size", 2)} if merges else {}),
        "text_config": text,
        "vision_config": {"model_type": "pixtral", **{key: vision[key] for key in _VISION_NAMES if key in vision}},
    }


def _from_mamba(data: Mapping[str, Any]) -> Translated:
    """Return the config of Codestral Mamba, which has heads of 64 as Mamba2 in mamba_ssm by default."""
    _check_keys(data, _MAMBA_KEYS)
    if data.get("rms_norm", True) is not True:  # LayerNorm has biases
        raise AttncalcError(f"rms_norm {written(data['rms_norm'])} is not supported", _TIP)
    padding = _size({"pad_vocab_size_multiple": 1, **data}, "pad_vocab_size_multiple")
    config = {
        "model_type": "mamba2",
        "architectures": ["Mamba2ForCausalLM"],
        "hidden_size": _size(data, "dim"),
        "num_hidden_layers": data["n_layers"],
        "head_dim": 64,
        "num_heads": 2 * _size(data, "dim") // 64,
        "vocab_size": -(-_size(data, "vocab_size") // padding) * padding,
        "tie_word_embeddings": data.get("tie_embeddings", False),
        "torch_dtype": data.get("dtype") or "bfloat16",
        "n_groups": _size(data, "n_groups"),
    }
    return Translated(config)


# OpenAI


def _from_gpt_oss(data: Mapping[str, Any]) -> Translated:
    """Return the config of a gpt-oss, whose experts are released in MXFP4."""
    _check_keys(data, _GPT_OSS_KEYS)
    _require(data, *_GPT_OSS_NAMES)
    factor = data.get("rope_scaling_factor", 1)
    if not (_is_number(factor) and 1 <= factor <= 1000):
        raise AttncalcError(f"rope_scaling_factor: {written(factor)} is not a number from 1 on", _TIP)
    config = {
        **{name: data[key] for key, name in _GPT_OSS_NAMES.items()},
        "model_type": "gpt_oss",
        "architectures": ["GptOssForCausalLM"],
        "attention_bias": True,
        "tie_word_embeddings": False,
        "max_position_embeddings": int(_size(data, "initial_context_length") * factor),
        "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "mxfp4"},
    }
    return Translated(config, file="config.json")


def _size(data: Mapping[str, Any], key: str) -> int:
    value = data.get(key)
    if type(value) is not int or not 1 <= value <= _MAX_SIZE:
        raise AttncalcError(f"{key}: {written(value)} is not a whole number above 0", _TIP)
    return value


def _flag(data: Mapping[str, Any], key: str, default: bool = False) -> bool:
    """Return a key that is true or false. Raises AttncalcError for another value, such as "false"."""
    value = data.get(key, default)
    if type(value) is not bool:
        raise AttncalcError(f"{key}: {written(value)} is not true or false", _TIP)
    return value


def _is_number(value: Any) -> bool:
    """Return whether a value is a number, and not true or false; nan and infinity are, and exceed every limit."""
    return type(value) in (int, float)
