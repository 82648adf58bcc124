"""Write attncalc/config/huggingface/classes.json: what the config classes of transformers say.

    python tools/config_classes.py        (with the newest transformers installed)

For each model_type with a language model: its fields' defaults, which name stands for which, the
model_types of the configs inside it, whether it is a language model as a whole or only a part, and which
configs inside it are of that model_type whatever they say.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

FILE = Path(__file__).parent.parent / "attncalc" / "config" / "huggingface" / "classes.json"
TASKS = ("CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "SPEECH_SEQ_2_SEQ", "MASKED_LM", "MULTIMODAL_LM")
OF_EVERY_CONFIG = {f.name for f in dataclasses.fields(transformers.PretrainedConfig)} - {"dtype", "is_encoder_decoder"}


def language_models() -> set[str]:
    """The model_types that an auto class of a language task knows, and ViT, whose figures people ask for."""
    tables = (getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES", {}) for task in TASKS)
    return {name for table in tables for name in table} | {"vit", "albert", "electra", "distilbert"}


def class_of(name: str, language: bool) -> tuple[dict[str, Any], dict[str, str], dict[str, str], bool, list[str]]:
    """What the config class of a model_type says: (defaults, synonyms, inside, language, fixed)."""
    kind = CONFIG_MAPPING[name]
    fields = [f for f in dataclasses.fields(kind) if f.name not in OF_EVERY_CONFIG]
    inside = {key: getattr(part, "model_type", "") for key, part in (getattr(kind, "sub_configs", {}) or {}).items()}
    fixed = sorted(key for key, model_type in inside.items() if model_type)  # not AutoConfig
    if inside.get("text_config") == "":
        try:
            inside["text_config"] = kind().text_config.model_type
        except Exception:  # a class that cannot be made without its parts
            inside.pop("text_config")
    synonyms = dict(getattr(kind, "attribute_map", {}) or {})
    return {f.name: default(f) for f in fields}, synonyms, inside, language, fixed


def default(field: Any) -> Any:
    """A field's default as JSON has it; None for one that it has not."""
    value = field.default
    if value is dataclasses.MISSING:
        value = field.default_factory() if field.default_factory is not dataclasses.MISSING else None
    try:
        json.dumps(value)
    except TypeError:
        return None
    return None if value == {} else value


def main() -> None:
    """Write the file."""
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    whole = language_models()
    todo = list(whole)
    while todo:
        name = todo.pop()
        if name in found or name not in CONFIG_MAPPING_NAMES:
            continue
        found[name] = class_of(name, name in whole)
        todo += [inner for inner in found[name][2].values() if inner]
    content = {"transformers": transformers.__version__, "classes": dict(sorted(found.items()))}
    FILE.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
