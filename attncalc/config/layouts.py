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
    base = data.get("base_model_name_or_path")
    if isinstance(base, str) and base.strip():
        tip_for_base = f"give the base model: {truncate(base, 120)}"
    else:
        tip_for_base = "give the base model's config.json, or its name on the hub as org/name"
    model = data.get("model")
    metadata = data.get("metadata")
    has_model_type = "model_type" in data

    def has_any(*keys: str) -> bool:
        return not data.keys().isdisjoint(keys)

    for is_layout, name, tip in (
        (
            "peft_type" in data or ("base_model_name_or_path" in data and not has_model_type),
            "a LoRA adapter (adapter_config.json)",
            tip_for_base,
        ),
        # trtllm-build writes pretrained_config and build_config; its converters write architecture
        # and mapping
        (
            ("pretrained_config" in data and has_any("build_config", "version"))
            or "builder_config" in data
            or (
                "architecture" in data
                and has_any("mapping", "quantization", "producer")
                and not has_model_type
            ),
            "a config of TensorRT-LLM",
            _BASE,
        ),
        (
            isinstance(data.get("model_config"), Mapping)
            and has_any(
                "quantization", "conv_template", "local_id", "context_window_size", "model_lib"
            ),
            "a config of MLC LLM",
            _BASE,
        ),
        (
            "_diffusers_version" in data or ("_class_name" in data and not has_model_type),
            "a pipeline of diffusers (model_index.json)",
            _tip_for_parts(data),
        ),
        (
            "weight_map" in data,
            "the index of safetensors files",
            "give the folder that contains it, with its config.json",
        ),
        (
            any(
                "general.architecture" in keys
                for keys in (data, metadata)
                if isinstance(keys, Mapping)
            ),
            "the metadata of a GGUF file",
            "give the .gguf file itself",
        ),
        (
            "search" in data and isinstance(model, Mapping) and "decoder" in model,
            "a config of ONNX Runtime GenAI",
            _BASE,
        ),
        (
            {"eos_token_id", "transformers_version"} <= data.keys()
            and not has_any(
                "model_type", "hidden_size", "d_model", "n_embd", "architectures", "dim"
            ),
            "a generation_config.json",
            "give the config.json beside it",
        ),
        (
            ("tokenizer_class" in data and not has_any("model_type", "architectures"))
            or ({"added_tokens", "model"} <= data.keys() and "normalizer" in data),
            "a tokenizer's file",
            "give the config.json beside it",
        ),
    ):
        if is_layout:
            raise AttncalcError(f"{file}: {name}, which does not have the model's sizes", tip)


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
