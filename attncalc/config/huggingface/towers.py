"""The vision and audio towers beside a language model, by the formulas of
tower_formulas/towers.yaml.

A tower has its parameters, and the largest item that it encodes, whose memory vLLM measures when it
starts.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import AttncalcError
from ...model import Tower, TowerAttention, TowerItem
from ..data_files import file_content
from .fields import UNKNOWN_CLASS, ConfigClass, Fields, config_class
from .formulas import value_of

# {name of a tower: the field of a config.json that contains its own config}.
FIELDS = {"vision": "vision_config", "audio": "audio_config"}
_MAX_PARAMS = 10**12


def towers(fields: Fields) -> Iterator[Tower]:
    """Yield the towers whose formulas are known, with their projectors.

    The fields of the language model are inside those of the whole model.
    """
    outer = fields.outer
    if outer is None:
        return
    projector = _table()["projectors"].get(str(outer.given.get("model_type")))
    if projector is None:
        return
    for name, field in FIELDS.items():
        config = outer.given.get(field)
        # all releases of a family may have the same tower, which a config.json leaves out
        if config is None:
            with suppress(AttncalcError):
                config = value_of(projector.get("left_out", {}).get(name), fields)
        if isinstance(config, Mapping):
            tower = _tower(name, field, config, projector, fields, outer)
            if tower:
                yield tower


def _tower(
    name: str,
    field: str,
    config: Mapping[str, Any],
    projector: Mapping[str, Any],
    text: Fields,
    outer: Fields,
) -> Tower | None:
    """Return a tower with its projector, or None if there is no formula for it or its fields have
    other types.
    """
    known = _table()["towers"]
    kind = str(config.get("model_type") or projector.get("tower" if name == "vision" else name))
    if kind not in known:
        kind = kind.removesuffix("_vision")
    rules = known.get(kind)
    if rules is None:
        return None
    outer_class = config_class(str(outer.given.get("model_type"))) or UNKNOWN_CLASS
    try:
        whole_model = Fields(_safe(outer.given), outer_class)
        tower_fields = Fields(
            _safe(config), _class_of(outer_class.sub_configs.get(field) or kind, rules), whole_model
        )
        projected = {"layers": projector["layers"]} if "layers" in projector else {}
        reads = value_of(projected, tower_fields).get("layers")
        layers = tower_fields["num_hidden_layers"]
        variables = {
            "text": {"hidden_size": _safe({"hidden_size": text["hidden_size"]}).get("hidden_size")},
            "used_layers": layers if reads is None else _used_layers(reads, layers),
            "n_features": len(reads) if isinstance(reads, list) else 1,
        }
        parts = [rules, projector] if name == "vision" else [rules]
        split = sum(value_of(part.get("split", 0), tower_fields, **variables) for part in parts)
        whole = sum(value_of(part.get("whole", 0), tower_fields, **variables) for part in parts)
    except (AttncalcError, TypeError):
        return None
    if (
        type(split) is not int
        or type(whole) is not int
        or min(split, whole) < 0
        or not 0 < split + whole < _MAX_PARAMS
    ):
        return None
    item = _item(rules, projector, tower_fields, variables)
    return Tower(
        name, split + whole, split, item, _attention(rules, split, tower_fields) if split else None
    )


def _item(
    rules: Mapping[str, Any],
    projector: Mapping[str, Any],
    fields: Fields,
    variables: Mapping[str, Any],
) -> TowerItem | None:
    """Return the largest item of a tower, or None if it is not known; the projector's formulas come
    first.
    """
    formulas = {**rules.get("item", {}), **projector.get("item", {})}
    if not rules.get("item"):
        return None
    try:
        sizes = value_of({"d_output": '=text["hidden_size"]', **formulas}, fields, **variables)
    except AttncalcError:
        return None
    if (
        any(type(size) is not int or not 0 <= size < _MAX_PARAMS for size in sizes.values())
        or not sizes["tokens"]
    ):
        return None
    return TowerItem(**sizes)


def _attention(rules: Mapping[str, Any], split: int, fields: Fields) -> TowerAttention | None:
    try:
        heads = value_of(rules.get("heads"), fields)
        whole = value_of(rules.get("attention", 0), fields)
    except (AttncalcError, TypeError):
        return None
    if (
        type(heads) is not int
        or not 0 < heads < _MAX_PARAMS
        or type(whole) is not int
        or not 0 <= whole <= split
    ):
        return None
    return TowerAttention(heads, whole)


# Fields that may be a pair of equal numbers.
_SQUARES = ("image_size", "patch_size")
_TEXTS = ("model_type", "norm_type")


def _safe(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a formula may compute with: a list or a text times a number could fill
    the memory.
    """
    safe: dict[str, Any] = {}
    for name, given in config.items():
        value = _side(given) if name in _SQUARES else given
        if name == "quantization_config":
            safe[name] = bool(value)
        elif name in _LISTS and isinstance(value, list):
            if len(value) <= 1000 and all(map(_LISTS[name], value)):
                safe[name] = value
        elif isinstance(value, bool) or _is_size(value) or name in _TEXTS:
            safe[name] = value
        elif value is not None:
            safe[name] = None  # and not the class's default
    return safe


def _is_size(value: Any) -> bool:
    return type(value) is int and abs(value) <= 10**6


def _side(value: Any) -> Any:
    """Return one number for a pair of equal numbers, and other values as they are."""
    if _is_pair(value) and value[0] == value[1]:
        return value[0]
    return value


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_size, value))


# {field that is a list: what each item must be}.
_LISTS = {
    **dict.fromkeys(
        ("deepstack_visual_indexes", "sscp_conv_channel_size", "subsampling_conv_channels"),
        _is_size,
    ),
    **dict.fromkeys(("image_grid_pinpoints", "supported_aspect_ratios"), _is_pair),
    "vision_feature_layer": _is_size,
}


def _used_layers(reads: Any, layers: int) -> int:
    """Return the layers that vLLM loads if the projector reads the outputs of `reads`, one layer or
    several.

    -2 is the output of the last layer but one. Source: get_num_hidden_layers in
    model_executor/models/vision.py and llava.py.
    """
    listed: list[int] = reads if isinstance(reads, list) else [reads]
    return max(layers + layer + 1 if layer < 0 else layer for layer in listed)


def _class_of(name: str, rules: Mapping[str, Any]) -> ConfigClass:
    known = config_class(name) or UNKNOWN_CLASS
    return known._replace(
        defaults={
            **rules.get("defaults", {}),
            **{
                field: _side(value) if field in _SQUARES else value
                for field, value in known.defaults.items()
            },
        },
        attribute_map={**known.attribute_map, **rules.get("attribute_map", {})},
    )


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = file_content(Path(__file__).parent / "tower_formulas", "towers")
    return table
