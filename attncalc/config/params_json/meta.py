"""Meta's params.json: Llama 1, 2, 3, 3.1, 3.2 and 4.

Sources: args.py, model.py and moe.py in models/llama3 and models/llama4 of meta-llama/llama-models.
"""

from collections.abc import Mapping
from typing import Any

from ...errors import AttncalcError
from ..huggingface.fields import written
from .keys import MAX_SIZE, OTHERS_TIP, Keys

_LLAMA_1_OR_2 = 32_000
_LLAMA_3 = 128_256
_LLAMA_4 = 202_048
# Tokens that a release (Code Llama: 16) or a fine-tune may add to a vocabulary, at most.
_ADDED_TOKENS = 1024


def from_meta(data: Keys, notes: list[str]) -> dict[str, Any]:
    """Return the config of a Llama. Raises AttncalcError for Llama 3.2 Vision and other models."""
    if data.get("vision_num_cross_attention_layers", -1) != -1:
        raise data.error(
            "vision_num_cross_attention_layers", "Llama 3.2 Vision is not read from a params.json"
        )
    is_llama_4 = bool(data.get("moe_args"))
    if is_llama_4:
        data.check("llama", "llama4")
    else:
        data.check("llama")
    data.require("norm_eps")
    dim = data.size("dim")
    vocabulary = _vocabulary(data, notes)
    is_scaled = data.flag("use_scaled_rope")
    kv_heads = "n_heads" if data.get("n_kv_heads") is None else "n_kv_heads"
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": dim,
        "num_hidden_layers": data.size("n_layers"),
        "num_attention_heads": data.size("n_heads"),
        "num_key_value_heads": data.size(kv_heads),
        "vocab_size": vocabulary,
        # Llama 3.2's small models share the matrix of embedding and head.
        "tie_word_embeddings": is_scaled and dim < 4096,
        "torch_dtype": "bfloat16" if vocabulary >= _LLAMA_3 else "float16",
    }
    if is_llama_4:
        config |= _llama_4(config, data)
    else:
        config["max_position_embeddings"] = _context(data, vocabulary)
        config["intermediate_size"] = _d_ff(data, 4 * dim)
    notes.append(
        f"The params.json names no maximum context; {config['max_position_embeddings']:,} tokens "
        "are assumed, as Meta released it."
    )
    if is_llama_4 and data.inside("vision_args"):
        del config["architectures"]
        config = {
            "architectures": ["Llama4ForConditionalGeneration"],
            "model_type": "llama4",
            "torch_dtype": "bfloat16",
            "text_config": config,
            "vision_config": _vision_of_llama_4(data.inside("vision_args")),
        }
    if data.get("quantization_args"):
        config["quantization_config"] = {"quant_method": "quantization_args of Meta's params.json"}
    return config


def _vocabulary(data: Keys, notes: list[str]) -> int:
    """Return the vocabulary. Raises AttncalcError if no release has it: other projects write the
    same keys for Qwen2.5, whose MLP has another width.
    """
    given = data.get("vocab_size", -1)
    if given == -1:
        notes.append(
            "The params.json leaves the vocabulary to the tokenizer; 32,000 tokens are assumed."
        )
        return _LLAMA_1_OR_2
    if type(given) is int:
        for size in (_LLAMA_1_OR_2, _LLAMA_3, _LLAMA_4):
            if size <= given < size + _ADDED_TOKENS:
                return given
    raise AttncalcError(
        f"vocab_size: {written(given)} is not the vocabulary of a Llama", OTHERS_TIP
    )


def _context(data: Keys, vocabulary: int) -> int:
    """Return the maximum context with which Meta released a Llama 1 to 3.2."""
    if vocabulary >= _LLAMA_3:
        return 131_072 if data.get("use_scaled_rope") else 8192
    if data.get("rope_theta") == 1_000_000:  # Code Llama
        return 16_384
    return 2048 if data.get("norm_eps") == 1e-06 else 4096  # Llama 1, Llama 2


def _d_ff(data: Keys, width: int, divisor: float = 1) -> int:
    """Return the MLP's width: two thirds of `width`, multiplied, and rounded up. Source:
    FeedForward in model.py.
    """
    d_ff = 2 * width // 3
    if data.get("ffn_dim_multiplier") is not None:
        d_ff = int(data.number("ffn_dim_multiplier", 1, "a number above 0") * d_ff)
    multiple = data.size("multiple_of", 256)
    return -(-int(d_ff / divisor) // multiple) * multiple


def _llama_4(config: Mapping[str, Any], data: Keys) -> dict[str, Any]:
    """Return the fields of a Llama 4. Source: TransformerBlock in models/llama4/model.py, MoE in
    moe.py.
    """
    moe = data.inside("moe_args")
    moe.check("moe_args")
    dim = config["hidden_size"]
    expansion = data.number("ffn_exp", 4.0, "a number above 0")
    divisor = moe.number("capacity_factor", 1.0, "a number") + 1
    if not moe.flag("auto_scale_F", True):
        divisor = 1
    text = {
        "architectures": ["Llama4ForCausalLM"],
        "model_type": "llama4_text",
        "head_dim": data.get("head_dim") or dim // config["num_attention_heads"],
        "intermediate_size": _d_ff(data, int(expansion * dim), divisor),
        "intermediate_size_mlp": _d_ff(data, 4 * dim),
        "num_local_experts": moe.get("num_experts"),
        "num_experts_per_tok": moe.get("top_k", 1),
        "interleave_moe_layer_step": moe.get("interleave_moe_layer_step", 1),
        "attention_chunk_size": data.get("attention_chunk_size"),
        # Scout, Maverick
        "max_position_embeddings": 10_485_760 if data.get("use_scaled_rope") else 1_048_576,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    if interval := data.get("nope_layer_interval"):
        text["no_rope_layer_interval"] = interval
    elif data.get("attention_chunk_size") is None:
        text["layer_types"] = ["full_attention"] * config["num_hidden_layers"]
    return text


def _vision_of_llama_4(vision: Keys) -> dict[str, Any]:
    """Return the config of Llama 4's vision tower, in which a value that is no size is an error of
    the config.
    """
    vision.check("vision_args")
    width = None
    dim = vision.get("dim")
    ratio = vision.get("mlp_ratio", 4.0)
    if type(dim) is int and 0 < dim <= MAX_SIZE and type(ratio) in (int, float) and 0 < ratio < 100:
        width = int(dim * ratio)
    outputs = ("vision_output_dim", "projector_input_dim", "projector_output_dim")
    return {
        "model_type": "llama4_vision_model",
        "hidden_size": dim,
        "num_hidden_layers": vision.get("n_layers"),
        "num_attention_heads": vision.get("n_heads"),
        "intermediate_size": width,
        "image_size": _side(vision.get("image_size")),
        "patch_size": _side(vision.get("patch_size")),
        "pixel_shuffle_ratio": vision.get("pixel_shuffle_ratio", 0.5),
        **dict.fromkeys(outputs, vision.get("output_dim")),
    }


def _side(size: Any) -> Any:
    """Return the side of a square: 336 of 336 or of {"height": 336, "width": 336}."""
    if isinstance(size, Mapping):
        return size.get("height")
    return size
