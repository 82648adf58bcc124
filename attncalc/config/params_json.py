"""The files of Meta's, Mistral's and OpenAI's own releases, read as the config.json of the same
model.

Meta and Mistral release a params.json, and OpenAI an original/config.json.

Sources: args.py, model.py and moe.py in models/llama3 and models/llama4 of meta-llama/llama-models,
and vllm/transformers_utils/configs/mistral.py, which translates Mistral's; ModelConfig in
gpt_oss/torch/model.py.
"""

import math
from collections.abc import Collection, Mapping
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from ..errors import AttncalcError, NotSupportedError, clash
from ..model import MAX_LAYERS
from ..units import truncate
from .document import Document
from .huggingface import convert_config
from .huggingface.fields import written

_TIP = "give the config.json of the same model"
_OTHERS_TIP = f"only Meta's, Mistral's and OpenAI's own releases are read; for others, {_TIP}"

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
_GPT_OSS_NAMES = {
    "num_experts": "num_local_experts",
    "experts_per_token": "num_experts_per_tok",
    **{
        name: name
        for name in (
            "num_hidden_layers",
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "head_dim",
        )
    },
    **{
        name: name
        for name in ("num_attention_heads", "num_key_value_heads", "sliding_window", "swiglu_limit")
    },
}
# {field of a config.json: the keys of a params.json that it is made of}; errors name the last one
# that is given.
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
_MAX_SIZE = 10**9
# {what an error calls a number: its lower bound}.
_NUMBERS = {"a number": 0, "a number above 0": math.ulp(0), "a number from 1 on": 1}
_LLAMA_1_OR_2_VOCABULARY = 32_000
_LLAMA_3_VOCABULARY = 128_256
# Those of Meta's releases: other projects write the same keys for Qwen2.5, whose MLP has another
# width.
_VOCABULARIES = (_LLAMA_1_OR_2_VOCABULARY, _LLAMA_3_VOCABULARY, 202_048)
# Tokens that a release (Code Llama: 16) or a fine-tune may add to a vocabulary, at most.
_ADDED_TOKENS = 1024
# The maximum context that vLLM assumes for a params.json of Mistral's without one.
_VLLM_CONTEXT = 128_000


class _Keys(dict[str, Any]):
    """The keys of a file, or those inside one of its keys, with checked types."""

    def __init__(self, data: Mapping[str, Any], place: str = "") -> None:
        super().__init__(data)
        self.place = place  # what errors write before a key: 'moe.', or '' for the file's own keys

    def error(self, key: str, problem: str) -> AttncalcError:
        return AttncalcError(f"{self.place}{key}: {problem}", _TIP)

    def unsupported(self, key: str) -> AttncalcError:
        return NotSupportedError(f"{self.place}{key} {written(self[key])} is not supported", _TIP)

    def check(self, *sections: str, names: Collection[str] = ()) -> None:
        """Raise AttncalcError if a key is in no section of params_json_keys.txt: it may change a
        figure.

        ExecuTorch's files have keys of Meta's and of Mistral's; the error names one of neither, if
        there is one.
        """
        known = _known_keys(*sections) | {*names}
        of_others = _known_keys("llama", "llama4", "mistral") | {*_MISTRAL_NAMES}
        unknown = [key for key in self if key not in known]
        if unknown:
            of_neither = [key for key in unknown if key not in of_others]
            first = (of_neither or unknown)[0]
            raise AttncalcError(f"unknown key {self.place}{truncate(first)}", _OTHERS_TIP)

    def require(self, *keys: str) -> None:
        """Raise AttncalcError if a key is missing that each release has."""
        for key in keys:
            if self.get(key) is None:
                raise AttncalcError(
                    f"{key} is missing; the params.json of each release has it", _OTHERS_TIP
                )

    def inside(self, key: str) -> "_Keys":
        """Return the keys inside a key, or none if it is null. Raises AttncalcError if it has
        another value.
        """
        value = self.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.error(key, "not a mapping of keys to values")
        return _Keys(value or {}, f"{key}.")

    def renamed(self, names: Mapping[str, str]) -> dict[str, Any]:
        """Return {name: the value of the key}, without the keys that are missing."""
        return {name: self[key] for key, name in names.items() if key in self}

    def size(self, key: str, default: int | None = None) -> int:
        value = self.get(key, default)
        if type(value) is not int or not 1 <= value <= _MAX_SIZE:
            raise self.error(key, f"{written(value)} is not a whole number above 0")
        return value

    def number(self, key: str, default: float, kind: str) -> Any:
        """Return one of _NUMBERS up to 1000. Raises AttncalcError for another value, such as nan
        and true.
        """
        value = self.get(key, default)
        if type(value) not in (int, float) or not _NUMBERS[kind] <= value <= 1000:
            raise self.error(key, f"{written(value)} is not {kind}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a key that is true or false. Raises AttncalcError for another value, such as
        "false".
        """
        value = self.get(key, default)
        if type(value) is not bool:
            raise self.error(key, f"{written(value)} is not true or false")
        return value


@cache
def _known_keys(*sections: str) -> frozenset[str]:
    file = Path(__file__).with_name("params_json_keys.txt")
    found = set[str]()
    for line in file.read_text(encoding="utf-8").splitlines():
        section, _, keys = line.partition(": ")
        if section in sections:
            found.update(keys.split())
    return frozenset(found)


def is_params_json(data: Mapping[str, Any]) -> bool:
    """Return whether the data are of a params.json: 'dim' and 'n_layers', without the keys of
    transformers.

    The original/config.json of gpt-oss counts as one.
    """
    data = _inner(data)
    if _is_gpt_oss(data):
        return True
    has_names = {"dim", "n_layers"} <= data.keys() and (
        "n_heads" in data or data.get("model_type") == "mamba"
    )
    known = data.get("model_type") in (None, "transformer", "mamba", "llama", "mistral")
    return (
        has_names
        and known
        and not data.keys() & {"architectures", "hidden_size", "num_hidden_layers", "d_model"}
    )


def convert_params(
    data: Mapping[str, Any], file: str, title: str
) -> tuple[Document, dict[str, Any]]:
    """Return the model file of a params.json, and the config.json of the same model.

    Raises AttncalcError as `convert_config` does, with the names of the params.json.
    """
    given = _inner(data)
    names = {}
    for field, keys in _NAMES.items():
        for key in keys:
            if key.split(".")[0] in given:
                names[field] = key
    config, notes = to_config(data, file)
    document = convert_config(config, file, title=title, names=names)
    if not _is_gpt_oss(given):
        document.data["sources"] = [
            text.replace("config.json", "params.json") for text in document.data["sources"]
        ]
    if notes:
        document.data["notes"] = [*notes, *document.data.get("notes", ())]
    return document, config


def to_config(data: Mapping[str, Any], file: str) -> tuple[dict[str, Any], list[str]]:
    """Return the config.json of the same model, and notes about what the params.json lacks and is
    assumed.

    Raises AttncalcError, with the key, if a value cannot be used.
    """
    keys = _Keys(_inner(data))
    notes: list[str] = []
    try:
        if _is_gpt_oss(keys):
            config = _from_gpt_oss(keys)
        elif keys.get("model_type") == "mamba":
            config = _from_mamba(keys)
        elif "hidden_dim" in keys:
            config = _from_mistral(keys, notes)
        else:
            config = _from_meta(keys, notes)
    except AttncalcError as error:
        raise type(error)(f"{file}: {error.message}", error.tip) from None
    return config, notes


def _inner(data: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = data.get("model")
    if isinstance(inner, Mapping) and "dim" in inner:
        return inner
    return data


def _is_gpt_oss(data: Mapping[str, Any]) -> bool:
    return (
        "experts_per_token" in data
        and "initial_context_length" in data
        and "model_type" not in data
    )


# Meta


def _from_meta(data: _Keys, notes: list[str]) -> dict[str, Any]:
    """Return the config of a Llama 1, 2, 3, 3.1, 3.2 or 4."""
    if data.get("vision_num_cross_attention_layers", -1) != -1:
        raise data.error(
            "vision_num_cross_attention_layers", "Llama 3.2 Vision is not read from a params.json"
        )
    data.check("llama", *(["llama4"] if data.get("moe_args") else []))
    data.require("norm_eps")
    dim = data.size("dim")
    vocabulary = data.get("vocab_size", -1)
    if vocabulary == -1:
        vocabulary = _LLAMA_1_OR_2_VOCABULARY
        notes.append(
            "The params.json leaves the vocabulary to the tokenizer; 32,000 tokens are assumed."
        )
    if type(vocabulary) is not int or not any(
        size <= vocabulary < size + _ADDED_TOKENS for size in _VOCABULARIES
    ):
        raise AttncalcError(
            f"vocab_size: {written(vocabulary)} is not the vocabulary of a Llama", _OTHERS_TIP
        )
    is_llama_3 = vocabulary >= _LLAMA_3_VOCABULARY
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
        "tie_word_embeddings": data.flag("use_scaled_rope") and dim < 4096,
        "torch_dtype": "bfloat16" if is_llama_3 else "float16",
    }
    if data.get("moe_args"):
        config |= _llama_4(config, data)
    elif is_llama_3:
        config["max_position_embeddings"] = 131_072 if data.get("use_scaled_rope") else 8192
    elif data.get("rope_theta") == 1_000_000:  # Code Llama
        config["max_position_embeddings"] = 16_384
    else:  # Llama 1 or 2
        config["max_position_embeddings"] = 2048 if data.get("norm_eps") == 1e-06 else 4096
    config.setdefault("intermediate_size", _d_ff(data, 4 * dim))
    notes.append(
        f"The params.json names no maximum context; {config['max_position_embeddings']:,} tokens "
        "are assumed, as Meta "
        "released it."
    )
    vision = data.inside("vision_args") if data.get("moe_args") else None
    if vision:
        config = {
            "architectures": ["Llama4ForConditionalGeneration"],
            "model_type": "llama4",
            "torch_dtype": "bfloat16",
            "text_config": {key: value for key, value in config.items() if key != "architectures"},
            "vision_config": _vision_of_llama_4(vision),
        }
    if data.get("quantization_args"):
        config["quantization_config"] = {"quant_method": "quantization_args of Meta's params.json"}
    return config


def _d_ff(data: _Keys, width: int, divisor: float = 1) -> int:
    """Return the MLP's width: two thirds of `width`, multiplied, and rounded up. Source:
    FeedForward in model.py.
    """
    d_ff = 2 * width // 3
    if data.get("ffn_dim_multiplier") is not None:
        d_ff = int(data.number("ffn_dim_multiplier", 1, "a number above 0") * d_ff)
    multiple = data.size("multiple_of", 256)
    return -(-int(d_ff / divisor) // multiple) * multiple


def _llama_4(config: Mapping[str, Any], data: _Keys) -> dict[str, Any]:
    """Return the fields of a Llama 4. Source: TransformerBlock in models/llama4/model.py, MoE in
    moe.py.
    """
    moe = data.inside("moe_args")
    dim = config["hidden_size"]
    moe.check("moe_args")
    expansion = data.number("ffn_exp", 4.0, "a number above 0")
    capacity = moe.number("capacity_factor", 1.0, "a number")
    parts = capacity + 1 if moe.flag("auto_scale_F", True) else 1
    text = {
        "architectures": ["Llama4ForCausalLM"],
        "model_type": "llama4_text",
        "head_dim": data.get("head_dim") or dim // config["num_attention_heads"],
        "intermediate_size": _d_ff(data, int(expansion * dim), parts),
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
    interval = data.get("nope_layer_interval")
    if interval:
        text["no_rope_layer_interval"] = interval
    elif data.get("attention_chunk_size") is None:
        text["layer_types"] = ["full_attention" for _ in range(config["num_hidden_layers"])]
    return text


def _vision_of_llama_4(vision: _Keys) -> dict[str, Any]:
    vision.check("vision_args")
    dim = vision.get("dim")
    ratio = vision.get("mlp_ratio", 4.0)
    output = vision.get("output_dim")
    image = vision.get("image_size")
    patch = vision.get("patch_size")
    is_width = (
        type(dim) is int
        and 0 < dim <= _MAX_SIZE
        and type(ratio) in (int, float)
        and 0 < ratio < 100
    )
    return {
        "model_type": "llama4_vision_model",
        "hidden_size": dim,
        "num_hidden_layers": vision.get("n_layers"),
        "num_attention_heads": vision.get("n_heads"),
        "intermediate_size": int(dim * ratio) if is_width else None,
        "image_size": image.get("height") if isinstance(image, Mapping) else image,
        "patch_size": patch.get("height") if isinstance(patch, Mapping) else patch,
        "pixel_shuffle_ratio": vision.get("pixel_shuffle_ratio", 0.5),
        **dict.fromkeys(
            ("vision_output_dim", "projector_input_dim", "projector_output_dim"), output
        ),
    }


# Mistral


def _from_mistral(data: _Keys, notes: list[str]) -> dict[str, Any]:
    """Return the config of a Mistral, Mixtral, Ministral, Pixtral, Voxtral or Mistral Large 3."""
    data.check("mistral", names=_MISTRAL_NAMES)
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
    windows = [
        data[key] for key in ("sliding_window", "_sliding_window") if data.get(key) is not None
    ]
    if len(windows) > 1:
        raise clash("sliding_window", "_sliding_window", _TIP)
    text |= _windows(data, windows[0] if windows else None)
    latents = [key for key in _LATENT_KEYS if data.get(key)]
    if data.get("qk_nope_head_dim"):
        text |= {
            "model_type": "mistral4",
            "architectures": ["Mistral4ForCausalLM"],
            **_experts(data),
        }
        text.pop("head_dim", None)
    elif data.get("moe"):
        moe = data.inside("moe")
        if moe.keys() - {"num_experts", "num_experts_per_tok"}:
            raise data.error(
                "moe", "only num_experts and num_experts_per_tok are supported without latents"
            )
        text |= {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"]}
        text |= {
            "num_local_experts": moe.get("num_experts"),
            "num_experts_per_tok": moe.get("num_experts_per_tok"),
        }
    elif latents:
        raise NotSupportedError(f"{latents[0]} without qk_nope_head_dim is not supported", _TIP)
    quantization = _quantization(data)
    if multimodal.get("whisper_model_args"):
        notes.append("The audio encoder is not counted.")
    return {**(_with_vision(text, vision) if vision else text), **quantization}


def _windows(data: _Keys, window: Any) -> dict[str, Any]:
    """Return the fields of sliding windows: one for all layers, or a list that repeats, with null
    for none.
    """
    if not isinstance(window, list):
        return {"sliding_window": window}
    layers = data.get("n_layers")
    sizes = {size for size in window if type(size) is int}
    is_list = (
        bool(window)
        and len(sizes) <= 1
        and all(size is None or type(size) is int for size in window)
    )
    if not is_list or type(layers) is not int or not 0 < layers <= MAX_LAYERS:
        raise data.error("sliding_window", "not a list of one size and nulls")
    kinds = ["full_attention" if size is None else "sliding_attention" for size in window]
    return {
        "model_type": "ministral",
        "sliding_window": next(iter(sizes), None),
        "layer_types": list(islice(cycle(kinds), layers)),
    }


def _experts(data: _Keys) -> dict[str, Any]:
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


def _quantization(data: _Keys) -> dict[str, Any]:
    """Return quantization_config, as vLLM makes it of `quantization`."""
    own = data.inside("quantization")
    given = data.get("quantization_config")
    if not own:
        if given:
            return {"quantization_config": given}
        return {}
    if own.get("qformat_weight") == "fp8_e4m3":
        scheme = "dynamic" if own.get("qscheme_act") == "NO_SCALES" else "static"
        return {"quantization_config": {"quant_method": "fp8", "activation_scheme": scheme}}
    method = (
        str(own.get("quant_method") or own.get("qformat_weight") or "unknown")
        .lower()
        .replace("_", "-")
    )
    return {"quantization_config": {**own, "quant_method": method}}


def _with_vision(text: dict[str, Any], vision: _Keys) -> dict[str, Any]:
    """Return the config of a model with a Pixtral tower, and Mistral 3's merger of patches or
    LLaVA's projector.
    """
    vision.check("vision_encoder", names=_VISION_NAMES)
    merges = vision.get("mm_projector_id") == "patch_merge"
    if vision.get("add_pre_mm_projector_layer_norm", merges) != merges:
        raise AttncalcError(
            "vision_encoder: a norm in front of a projector that merges no patches", _TIP
        )
    config = {
        "torch_dtype": text["torch_dtype"],
        "tie_word_embeddings": text.get("tie_word_embeddings", False),
        "multimodal_projector_bias": vision.flag("adapter_bias", not merges),
        "text_config": text,
        "vision_config": {
            "model_type": "pixtral",
            **{key: vision[key] for key in _VISION_NAMES if key in vision},
        },
    }
    if merges:
        config |= {
            "model_type": "mistral3",
            "architectures": ["Mistral3ForConditionalGeneration"],
            "spatial_merge_size": vision.get("spatial_merge_size", 2),
        }
    else:
        config |= {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"]}
    return config


def _from_mamba(data: _Keys) -> dict[str, Any]:
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


# OpenAI


def _from_gpt_oss(data: _Keys) -> dict[str, Any]:
    """Return the config of a gpt-oss, whose experts are released in MXFP4."""
    data.check("gpt_oss", names=_GPT_OSS_NAMES)
    data.require(*_GPT_OSS_NAMES)
    factor = data.number("rope_scaling_factor", 1, "a number from 1 on")
    return {
        **data.renamed(_GPT_OSS_NAMES),
        "model_type": "gpt_oss",
        "architectures": ["GptOssForCausalLM"],
        "attention_bias": True,
        "tie_word_embeddings": False,
        "max_position_embeddings": int(data.size("initial_context_length") * factor),
        "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "mxfp4"},
    }
