"""A config's fields under the names and with the defaults of transformers' config class."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from math import isfinite, isinf
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import AttncalcError
from ...units import truncate


def written(value: Any) -> str:
    """Return a field's value as an error prints it: 'null' for a value that is null, or missing."""
    if isinstance(value, float) and isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return "null" if value is None else truncate(repr(value))


class ConfigClass(NamedTuple):
    """What transformers' config class of a model_type declares; the field names are transformers' own.

    Attributes:
        defaults: {field: default}.
        attribute_map: {other name of a field: its own name}, such as {"n_embd": "hidden_size"}.
        sub_configs: {field with a config inside: the model_type of that config}.
        is_language_model: Whether it is a whole language model, and not only a part of one.
        fixed_sub_configs: The sub_configs whose model_type is the class's, whatever a config.json has there.
        is_of_transformers: Whether transformers has the class, so that all its fields are known.
    """

    defaults: Mapping[str, Any]
    attribute_map: Mapping[str, str]
    sub_configs: Mapping[str, str]
    is_language_model: bool
    fixed_sub_configs: Sequence[str] = ()
    is_of_transformers: bool = True


UNKNOWN_CLASS = ConfigClass({}, {}, {}, True, is_of_transformers=False)
"""For model_types that transformers has no class of."""


@cache
def config_class(model_type: str) -> ConfigClass | None:
    """Return transformers' config class of a model_type, or None if it has none."""
    name = f"\n{json.dumps(model_type)}:"
    start = _classes_json().find(name)
    if start < 0:
        return None
    end = _classes_json().index("\n", start + 1)
    return _to_class(json.loads(_classes_json()[start + len(name) : end].rstrip(",")))


@cache
def config_classes() -> dict[str, ConfigClass]:
    """Return {model_type: ConfigClass} of all config classes of transformers."""
    return {name: _to_class(content) for name, content in json.loads(_classes_json())["classes"].items()}


def transformers_version() -> str:
    """Return the version of transformers that the classes are from."""
    first_line, _, _ = _classes_json().partition("\n")  # {"transformers":"5.23.0","classes":{
    version: str = json.loads(first_line + "}}")["transformers"]
    return ".".join(version.split(".")[:2])


def _to_class(content: Sequence[Any]) -> ConfigClass:
    """Return the ConfigClass of one item of classes.json, with the fields' own names."""
    defaults, attribute_map, *others = content
    return ConfigClass({attribute_map.get(name, name): v for name, v in defaults.items()}, attribute_map, *others)


@cache
def _classes_json() -> str:
    """Return the text of classes.json, which tools/config_classes.py writes.

    It has one line per class, so that one class can be read without parsing all of them, which takes 3 ms.
    """
    return Path(__file__).with_name("classes.json").read_text(encoding="utf-8")


class Fields(Mapping[str, Any]):
    """The fields of a config, with the class's default for a field that it omits, and None without a default.

    A field can be looked up by any of its names: `fields["n_embd"]` is `fields["hidden_size"]` for GPT-2.

    Attributes:
        given: The fields of the config itself, under their own names.
        remarks: One sentence about each field that the config gives twice, under two names, with two values.
        outer: The fields of the config that contains this one, for a text_config; else None.
        looked_up: The names of the fields that formulas have used, under their own names.
    """

    def __init__(self, config: Mapping[str, Any], config_class: ConfigClass, outer: Fields | None = None) -> None:
        """Read a config's fields under their own names.

        If two names of one field disagree, the last other name counts, wherever the own name is: transformers sets a
        class's own fields first, and then the others, in the order of the file.
        """
        self._class = config_class
        self.given: dict[str, Any] = {}
        self.remarks: list[str] = []
        self.looked_up: set[str] = set()
        names: dict[str, str] = {}
        for name, value in sorted(config.items(), key=lambda item: self.own_name(item[0]) != item[0]):
            own_name = self.own_name(name)
            if own_name in self.given and self.given[own_name] != value:
                used, other = f"{truncate(name)} {written(value)}", names[own_name]
                self.remarks.append(f"{used} is used, not {other}, which is another name of the field.")
            self.given[own_name] = _with_new_names(value) if own_name == "layer_types" else value
            names[own_name] = f"{truncate(name)} {written(value)}"
        self.outer = outer

    @property
    def is_known_class(self) -> bool:
        """Whether transformers has the class, so that all its fields are known."""
        return self._class.is_of_transformers

    @property
    def outer_or_self(self) -> Fields:
        """The fields of the config around a text_config, which has the dtype and architectures; else these fields."""
        return self.outer or self

    def own_name(self, name: str) -> str:
        """Return the name that the class has for `name`."""
        return self._class.attribute_map.get(name, name)

    def of_layer(self, i: int) -> Fields:
        """Return the fields of layer i, counted from 0: `per_layer_config` may change some for one layer.

        Its keys are layer numbers, with or without leading zeros: {"5": {...}} or {"05": {...}}.
        """
        per_layer = self.given.get("per_layer_config")
        changes = {int(key): value for key, value in per_layer.items()}.get(i) if per_layer else None
        if not changes:
            return self
        of_layer = Fields({**self.given, **changes}, self._class, self.outer)
        of_layer.looked_up = self.looked_up
        return of_layer

    def __getitem__(self, name: str) -> Any:
        own_name = self.own_name(name)
        return self.given[own_name] if own_name in self.given else self._class.defaults.get(own_name)

    def __iter__(self) -> Iterator[str]:
        return iter({**self._class.defaults, **self.given})

    def __len__(self) -> int:
        return len({**self._class.defaults, **self.given})

    def default(self, name: str) -> Any:
        """Return the class's default of a field, or None."""
        return self._class.defaults.get(name)

    def is_default(self, name: str) -> bool:
        """Return whether the config gives the default; null, false, 0 and an empty list count as equal."""
        value, default = self.given.get(name), self.default(name)
        return bool(value == default or not (value or default))

    def is_of_class(self, name: str) -> bool:
        """Return whether the class has a field of that name."""
        return name in self._class.defaults


_NEW_LAYER_TYPES = {"deepseek_sparse_attention": "indexed_attention", "qwen_sparse_attention": "indexed_attention"}
"""Older names of kinds of layers: transformers' _LEGACY_LAYER_TYPE_REMAP, without those that the rules have too."""


def _with_new_names(layer_types: Any) -> Any:
    """Return a list of kinds of layers with transformers' present names, as its configs have them."""
    if not isinstance(layer_types, list):
        return layer_types
    return [_NEW_LAYER_TYPES.get(kind, kind) if isinstance(kind, str) else kind for kind in layer_types]


_PER_LAYER_LISTS = ("layer_types", "mlp_layer_types")


def check_values(fields: Fields, names: Collection[str]) -> None:
    """Raise AttncalcError if one of the fields `names` cannot have its value.

    A value must have the type of the class's default, a number must be a possible size, and a list with one entry per
    layer must be as long as there are layers. `per_layer_config` must have fields of layers under their numbers.
    """
    for name in sorted(map(fields.own_name, names)):
        value, default = fields.given.get(name), fields.default(name)
        if value is not None and not _is_possible(value, default):
            raise AttncalcError(
                f"{name} {written(value)} is not {_TYPE_NAMES.get(type(default), 'a size')}",
                "correct the config",
            )
    _check_per_layer_config(fields.given.get("per_layer_config"))
    n_layers, mtp_layers = fields["num_hidden_layers"], fields["num_nextn_predict_layers"] or 0
    if type(n_layers) is not int or type(mtp_layers) is not int:  # the rules that use them raise the error
        return
    for name in _PER_LAYER_LISTS:
        value = fields.given.get(name)
        # Some lists go on with the layers of multi-token prediction, which no figure counts.
        if name in names and isinstance(value, list) and len(value) not in (n_layers, n_layers + mtp_layers):
            raise AttncalcError(
                f"{name} has {len(value)} entries for {n_layers} layers (num_hidden_layers)", "correct one of them"
            )


def _check_per_layer_config(per_layer: Any) -> None:
    """Raise AttncalcError if a `per_layer_config` is not {"5": {field: value}, ...}."""
    if per_layer is None:
        return
    is_table = isinstance(per_layer, Mapping) and all(
        key.isdecimal() and len(key) < _DIGITS and isinstance(changes, Mapping) for key, changes in per_layer.items()
    )
    if not is_table:
        raise AttncalcError(
            f"per_layer_config {written(per_layer)} has no fields of layers under their numbers",
            'it looks like {"5": {"sliding_window": 512}}',
        )


_DIGITS = 10
"""Digits that the number of a layer must have fewer than."""

_TYPE_NAMES: dict[type, str] = {int: "a whole number", bool: "true or false", str: "a word", list: "a list"}


def _is_possible(value: Any, default: Any) -> bool:
    """Return whether a field with this default may have the value."""
    if isinstance(value, float) and not isfinite(value):
        return False
    if type(value) is int and value < -1:  # some configs write -1 for "none"
        return False
    if type(default) is int:
        return type(value) is int or isinstance(value, list)  # a list has one value per layer
    if type(default) is bool:
        return type(value) is bool
    if isinstance(default, (str, list)):
        return isinstance(value, (type(default), int, float, list))
    return True
