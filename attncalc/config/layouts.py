"""JSON files in another layout than a config.json: they are named in an error, with the file to
give instead.
"""

import json
from collections.abc import Mapping
from typing import Any

from ..errors import AttncalcError
from ..units import truncate

_BASE = "give the config.json of the model itself, or its name on the hub as org/name"


def reject_other_layout(data: Mapping[str, Any], file: str) -> None:
    """Raise AttncalcError if the data are of another layout than a config.json, with what to give
    instead.
    """
    beside = "give the config.json beside it"
    folder = "give the folder that contains it, with its config.json"
    for is_layout, name, tip in (
        (_is_adapter, "a LoRA adapter (adapter_config.json)", _tip_for_base(data)),
        (_is_of_tensorrt_llm, "a config of TensorRT-LLM", _BASE),
        (_is_of_mlc_llm, "a config of MLC LLM", _BASE),
        (_is_pipeline, "a pipeline of diffusers (model_index.json)", _tip_for_parts(data)),
        (_is_index, "the index of safetensors files", folder),
        (_is_gguf_metadata, "the metadata of a GGUF file", "give the .gguf file itself"),
        (_is_of_onnx_runtime, "a config of ONNX Runtime GenAI", _BASE),
        (_is_generation_config, "a generation_config.json", beside),
        (_is_of_tokenizer, "a tokenizer's file", beside),
    ):
        if is_layout(data):
            raise AttncalcError(f"{file}: {name}, which does not have the model's sizes", tip)


def _has_any(data: Mapping[str, Any], *keys: str) -> bool:
    return not data.keys().isdisjoint(keys)


def _is_adapter(data: Mapping[str, Any]) -> bool:
    names_base = "base_model_name_or_path" in data and "model_type" not in data
    return "peft_type" in data or names_base


def _is_of_tensorrt_llm(data: Mapping[str, Any]) -> bool:
    """Return whether trtllm-build wrote it (pretrained_config and build_config), or one of its
    converters (architecture and mapping).
    """
    is_built = "pretrained_config" in data and _has_any(data, "build_config", "version")
    is_converted = "architecture" in data and "model_type" not in data
    is_converted = is_converted and _has_any(data, "mapping", "quantization", "producer")
    return is_built or is_converted or "builder_config" in data


def _is_of_mlc_llm(data: Mapping[str, Any]) -> bool:
    keys = ("quantization", "conv_template", "local_id", "context_window_size", "model_lib")
    return isinstance(data.get("model_config"), Mapping) and _has_any(data, *keys)


def _is_pipeline(data: Mapping[str, Any]) -> bool:
    is_class = "_class_name" in data and "model_type" not in data
    return "_diffusers_version" in data or is_class


def _is_index(data: Mapping[str, Any]) -> bool:
    return "weight_map" in data


def _is_gguf_metadata(data: Mapping[str, Any]) -> bool:
    metadata = data.get("metadata")
    inner = metadata if isinstance(metadata, Mapping) else {}
    return "general.architecture" in data or "general.architecture" in inner


def _is_of_onnx_runtime(data: Mapping[str, Any]) -> bool:
    model = data.get("model")
    return "search" in data and isinstance(model, Mapping) and "decoder" in model


def _is_generation_config(data: Mapping[str, Any]) -> bool:
    sizes = ("model_type", "hidden_size", "d_model", "n_embd", "architectures", "dim")
    return {"eos_token_id", "transformers_version"} <= data.keys() and not _has_any(data, *sizes)


def _is_of_tokenizer(data: Mapping[str, Any]) -> bool:
    is_config = "tokenizer_class" in data and not _has_any(data, "model_type", "architectures")
    return is_config or {"added_tokens", "model", "normalizer"} <= data.keys()


def _tip_for_base(data: Mapping[str, Any]) -> str:
    """Return the tip for an adapter: the model that it belongs to, if it names one."""
    base = data.get("base_model_name_or_path")
    if isinstance(base, str) and base.strip():
        return f"give the base model: {truncate(base, 120)}"
    return "give the base model's config.json, or its name on the hub as org/name"


def reject_list(content: bytes, file: str) -> None:
    """Raise AttncalcError if `content` is a JSON list: modules.json of sentence-transformers, or
    something else.
    """
    if not content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[") or len(content) > 1 << 20:
        return
    try:
        modules = json.loads(content)
    except (ValueError, RecursionError):
        return
    types = [module.get("type") for module in modules if isinstance(module, dict)]
    if any(isinstance(name, str) and name.startswith("sentence_transformers.") for name in types):
        first = next((module.get("path") for module in modules if isinstance(module, dict)), "")
        if first and isinstance(first, str):
            place = f"{truncate(first)}/config.json"
        else:
            place = "the config.json beside it"
        raise AttncalcError(
            f"{file}: the modules of sentence-transformers (modules.json), which do not have the "
            "model's sizes",
            f"give {place}",
        )
    raise AttncalcError(f"{file}: not a JSON object", "a config.json is one JSON object, in braces")


def _tip_for_parts(data: Mapping[str, Any]) -> str:
    """Return which parts of a pipeline have a config.json of transformers."""
    parts = []
    for name, value in data.items():
        is_pair = isinstance(value, list) and len(value) == 2
        if is_pair and value[0] == "transformers" and "ncoder" in name:
            parts.append(name)
    if not parts:
        return "give the config.json of one of its models"
    return (
        "give the config.json of a part, as "
        f"{' or '.join(f'{truncate(part)}/config.json' for part in parts[:3])}"
    )
