"""Write attncalc/config/huggingface/classes.json: the fields of transformers' config classes.

    python tools/config_classes.py        (with the newest transformers installed)

The file has one line per model_type with a language model: a list whose items are the fields of
`ConfigClass` in attncalc/config/huggingface/fields.py.
"""

import dataclasses
import inspect
import json
import types
import typing
import warnings
from pathlib import Path
from typing import Any

import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

from attncalc.config.huggingface.unused_fields import is_ignored, matters_to_a_family

FILE = Path(__file__).parent.parent / "attncalc" / "config" / "huggingface" / "classes.json"
TASKS = (
    "CAUSAL_LM",
    "SEQ_TO_SEQ_CAUSAL_LM",
    "IMAGE_TEXT_TO_TEXT",
    "SPEECH_SEQ_2_SEQ",
    "MASKED_LM",
    "MULTIMODAL_LM",
)
COMMON_FIELDS = {f.name for f in dataclasses.fields(transformers.PretrainedConfig)} - {
    "dtype",
    "is_encoder_decoder",
}

# Sizes that some classes take as null, and replace by another: as many KV heads as query heads
REPLACED = ("num_key_value_heads", "head_dim")


def language_models() -> set[str]:
    """Return the model_types of the auto classes for language tasks, and some that people ask for,
    such as ViT.
    """
    tables = (getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES", {}) for task in TASKS)
    return {name for table in tables for name in table} | {"vit", "albert", "electra", "distilbert"}


def class_of(name: str, is_language_model: bool) -> tuple[Any, ...]:
    """Return the fields of ConfigClass for a model_type, in order."""
    config_class = CONFIG_MAPPING[name]
    fields = [f for f in dataclasses.fields(config_class) if f.name not in COMMON_FIELDS]
    classes = getattr(config_class, "sub_configs", {}) or {}
    sub_configs = {key: getattr(sub_class, "model_type", "") for key, sub_class in classes.items()}
    # not AutoConfig
    fixed_sub_configs = sorted(key for key, model_type in sub_configs.items() if model_type)
    if sub_configs.get("text_config") == "":
        try:
            sub_configs["text_config"] = config_class().text_config.model_type
        except Exception:  # some classes cannot be created without their parts
            sub_configs.pop("text_config")
    attribute_map = dict(getattr(config_class, "attribute_map", {}) or {})
    defaults = {f.name: default(f) for f in fields}
    field_types: dict[str, list[str]] = {}
    for f in fields:
        if is_ignored(f.name) and not matters_to_a_family(f.name):
            names = []
        else:
            names = type_names(f.type)
        has_number = f.name in REPLACED and type(defaults[f.name]) is int
        if has_number and not replaces_null(config_class, f.name):
            names = [name for name in names if name != "null"]
        if names and names != [type_name(type(defaults[f.name]))]:
            field_types.setdefault(" ".join(names), []).append(f.name)
    check = inspect.getsource(config_class.validate_architecture)
    divides = "self.hidden_size % self.num_attention_heads" in check
    return (
        defaults,
        attribute_map,
        sub_configs,
        is_language_model,
        fixed_sub_configs,
        field_types,
        divides,
    )


def replaces_null(config_class: Any, name: str) -> bool:
    """Return whether a class makes another number of a field that is null."""
    try:
        return getattr(config_class(**{name: None}), name) is not None
    except Exception:  # its annotation forbids null, or its checks do
        return False


def type_names(hint: Any) -> list[str]:
    """Return the sorted types of JSON that an annotation allows; none if it allows any."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return sorted({name for part in typing.get_args(hint) for name in type_names(part)})
    if typing.get_origin(hint) is typing.Literal:
        return sorted({type_name(type(value)) for value in typing.get_args(hint)})
    hint = typing.get_origin(hint) or hint
    if isinstance(hint, type):
        return [type_name(hint)]
    return []


def type_name(python: type) -> str:
    """Return JSON's type that becomes a type of Python: 'list' for a tuple, 'dict' for a config
    inside a config.
    """
    if python is types.NoneType:
        return "null"
    known = (bool, int, float, str, list)
    return next(
        (name.__name__ for name in known if issubclass(python, name)),
        "list" if python is tuple else "dict",
    )


def default(field: Any) -> Any:
    """Return a field's default, or None if it has none or JSON cannot represent it."""
    value = field.default
    if value is dataclasses.MISSING:
        if field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        else:
            value = None
    try:
        json.dumps(value)
    except TypeError:
        return None
    if value == {}:
        return None
    return value


def main() -> None:
    """Write the file."""
    warnings.simplefilter("ignore")
    classes: dict[str, Any] = {}
    models = language_models()
    remaining = list(models)
    while remaining:
        name = remaining.pop()
        if name in classes or name not in CONFIG_MAPPING_NAMES:
            continue
        classes[name] = class_of(name, name in models)
        _, _, sub_configs, *_ = classes[name]
        remaining += [inner for inner in sub_configs.values() if inner]
    lines = [
        f"{json.dumps(name)}:{json.dumps(content, separators=(',', ':'))}"
        for name, content in sorted(classes.items())
    ]
    version = json.dumps(transformers.__version__)
    FILE.write_text(
        f'{{"transformers":{version},"classes":{{\n' + ",\n".join(lines) + "\n}}\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
