"""A model that is given as an object: the fields of a config.json as a dict, or a config object of
transformers.
"""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from ..errors import AttncalcError
from ..units import truncate

_TIP = "give the fields of a config.json as a dict, a PretrainedConfig, or a model's name or path"


@runtime_checkable
class ConfigObject(Protocol):
    """An object with the fields of a config.json, such as a PretrainedConfig of transformers."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, those with their default values too."""


def fields_of(config: Mapping[str, Any] | ConfigObject) -> dict[str, Any]:
    """Return the fields as a config.json has them: tuples are lists, keys are text,
    'torch.bfloat16' is 'bfloat16'.

    Raises AttncalcError if `config` is neither a dict nor a config object, or JSON cannot have a
    value in it.
    """
    import json  # a command that reads a preset from YAML has no use for it

    from .parse_json import decimal_number, whole_number

    if not isinstance(config, Mapping | ConfigObject) or isinstance(config, type):
        raise AttncalcError(f"a model cannot be given as {_a(config)}", _TIP)
    try:
        text = json.dumps(_as_json(config), default=_as_json)
        fields = json.loads(text, parse_int=whole_number, parse_float=decimal_number)
    # it contains itself, is too deep, or has a tuple as a key
    except (RecursionError, ValueError, TypeError):
        raise AttncalcError(f"{label_of(config)}: it cannot be written as JSON", _TIP) from None
    if not isinstance(fields, dict):
        raise AttncalcError(f"{label_of(config)}: its to_dict() is not a dict", _TIP)
    return fields


def label_of(config: object) -> str:
    """Return what errors call the config: 'config', or the class of a config object,
    'LlamaConfig'.
    """
    if isinstance(config, Mapping):
        return "config"
    return type(config).__name__


def name_of(fields: Mapping[str, Any]) -> str:
    """Return what screens call the model: 'Qwen3-8B' if the config is from 'Qwen/Qwen3-8B'; '' if
    it does not say.
    """
    path = str(fields.get("_name_or_path") or "")
    return truncate(path.replace("\\", "/").rstrip("/").rpartition("/")[2])


def _as_json(value: Any) -> Any:
    """Return a value that JSON can have instead. Raises AttncalcError if there is none."""
    if isinstance(value, Mapping):
        return dict(value)
    # a part's config, or a quantization's
    if isinstance(value, ConfigObject) and not isinstance(value, type):
        return value.to_dict()
    if isinstance(value, set | frozenset):
        return sorted(value)
    if str(value).startswith("torch."):  # a dtype
        return str(value).removeprefix("torch.")
    if hasattr(value, "item"):  # a number of numpy or torch
        return value.item()
    raise AttncalcError(f"config: a value is {_a(value)}, which a config.json cannot have", _TIP)


def _a(value: object) -> str:
    return f"'{truncate(value)}', of class {type(value).__name__}"
