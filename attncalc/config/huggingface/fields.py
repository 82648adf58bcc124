"""A config's fields under the names and with the defaults of transformers' config class."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import isinf
from pathlib import Path
from typing import Any

from ...records import NamedTuple
from ...units import truncate


def written(value: Any) -> str:
    """Return a field's value as an error prints it: 'null' for a value that is null, or missing."""
    if isinstance(value, float) and isinf(value):
        if value > 0:
            return "Infinity"
        return "-Infinity"
    if value is None:
        return "null"
    return truncate(repr(value))


class ConfigClass(NamedTuple):
    """What transformers' config class of a model_type declares; the field names are transformers'
    own.
    """

    defaults: Mapping[str, Any]  # {field: default}
    # {other name of a field: its own name}, such as {"n_embd": "hidden_size"}
    attribute_map: Mapping[str, str]
    sub_configs: Mapping[str, str]  # {field with a config inside: the model_type of that config}
    is_language_model: bool  # whether it is a whole language model, and not only a part of one
    # The sub_configs whose model_type is the class's, whatever a config.json has there
    fixed_sub_configs: Sequence[str] = ()
    # {field: the types that its values may have}, where the default's is not the only one
    types: Mapping[str, frozenset[str]] = {}
    # whether it rejects a hidden_size that num_attention_heads does not divide
    divides: bool = False
    # whether transformers has the class, so that all its fields are known
    is_of_transformers: bool = True
    # whether transformers reads the config with that class, and rejects values of other types
    is_strict: bool = True


# For model_types that transformers has no class of.
UNKNOWN_CLASS = ConfigClass({}, {}, {}, True, is_of_transformers=False, is_strict=False)


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
    return {
        name: _to_class(content) for name, content in json.loads(_classes_json())["classes"].items()
    }


def transformers_version() -> str:
    """Return the version of transformers that the classes are from."""
    first_line, _, _ = _classes_json().partition("\n")  # {"transformers":"5.23.0","classes":{
    version: str = json.loads(first_line + "}}")["transformers"]
    return ".".join(version.split(".")[:2])


def _to_class(content: Sequence[Any]) -> ConfigClass:
    """Return the ConfigClass of one item of classes.json, with the fields' own names."""
    (
        defaults,
        attribute_map,
        sub_configs,
        is_language_model,
        fixed_sub_configs,
        fields_by_types,
        divides,
    ) = content
    types = {}
    for key, names in fields_by_types.items():
        types.update(dict.fromkeys(names, frozenset(key.split())))
    return ConfigClass(
        {attribute_map.get(name, name): value for name, value in defaults.items()},
        attribute_map,
        sub_configs,
        is_language_model,
        fixed_sub_configs,
        {attribute_map.get(name, name): names for name, names in types.items()},
        divides,
    )


@cache
def _classes_json() -> str:
    """Return the text of classes.json, which tools/config_classes.py writes.

    It has one line per class, so that one class can be read without parsing all of them, which
    takes 3 ms.
    """
    return Path(__file__).with_name("classes.json").read_text(encoding="utf-8")


# {field that transformers reads from configs whose classes do not declare it: its types}.
_UNDECLARED_TYPES = {
    "is_causal": frozenset({"bool", "null"}),
    # `getattr(config, "head_dim", hidden_size // heads)` is null if it is null, and so are the two
    # others
    "head_dim": frozenset({"int"}),
    "intermediate_size": frozenset({"int"}),
    "is_gated_act": frozenset({"bool"}),
    "num_labels": frozenset({"int"}),
    "id2label": frozenset({"dict", "null"}),
}


@cache
def _types_elsewhere(name: str) -> frozenset[str]:
    """Return the types that a field has in any class; none if no class has it."""
    types = set[str]()
    for known in config_classes().values():
        if name in known.defaults:
            types |= known.types.get(name) or {type_of(known.defaults[name])}
    return frozenset(types)


def type_of(value: Any) -> str:
    """Return the type of a JSON value: 'null', 'bool', 'int', 'float', 'str', 'list' or 'dict'."""
    if value is None:
        return "null"
    return type(value).__name__


class Fields(Mapping[str, Any]):
    """The fields of a config, with the class's default for a field that it omits, and None without
    a default.

    A field can be looked up by any of its names: `fields["n_embd"]` is `fields["hidden_size"]` for
    GPT-2.
    """

    def __init__(
        self, config: Mapping[str, Any], config_class: ConfigClass, outer: "Fields | None" = None
    ) -> None:
        """Read a config's fields under their own names.

        If two names of one field disagree, the last other name counts, wherever the own name is:
        transformers sets a class's own fields first, and then the others, in the order of the file.
        """
        self._class = config_class
        self.config = config
        self.given: dict[str, Any] = {}  # its fields, under their own names
        # one sentence about each field that the config gives twice, under two names, with two
        # values
        self.remarks: list[str] = []
        # the names of the fields that formulas have used, under their own names
        self.looked_up: set[str] = set()
        # what errors call the keys of the model file that formulas have computed
        # (config/document.py)
        self.origins: dict[str, dict[str, str]] = {}
        names: dict[str, str] = {}
        for name, value in sorted(
            config.items(), key=lambda item: self.own_name(item[0]) != item[0]
        ):
            own_name = self.own_name(name)
            if own_name in self.given and self.given[own_name] != value:
                used = f"{truncate(name)} {written(value)}"
                other = names[own_name]
                self.remarks.append(
                    f"{used} is used, not {other}, which is another name of the field."
                )
            if own_name == "layer_types":
                self.given[own_name] = _with_new_names(value)
            else:
                self.given[own_name] = value
            names[own_name] = f"{truncate(name)} {written(value)}"
        # the fields of the config that contains this one, for a text_config; else None
        self.outer = outer

    @property
    def is_known_class(self) -> bool:
        """Whether transformers has the class, so that all its fields are known."""
        return self._class.is_of_transformers

    @property
    def divides(self) -> bool:
        """Whether the class rejects a hidden_size that num_attention_heads does not divide."""
        return self._class.divides and self._class.is_strict

    @property
    def outer_or_self(self) -> "Fields":
        """The fields of the config around a text_config, which has the dtype and architectures;
        else these fields.
        """
        return self.outer or self

    def names_in_file(self) -> dict[str, str]:
        """Return {own name: the other name that the config has instead}."""
        own_names = {self.own_name(name): name for name in self.config}
        return {own: name for own, name in own_names.items() if own not in self.config}

    def own_name(self, name: str) -> str:
        """Return the name that the class has for `name`."""
        return self._class.attribute_map.get(name, name)

    def of_layer(self, i: int) -> "Fields":
        """Return the fields of layer i, counted from 0: `per_layer_config` may change some for one
        layer.

        Its keys are layer numbers, with or without leading zeros: {"5": {...}} or {"05": {...}}.
        """
        per_layer = self.given.get("per_layer_config")
        if per_layer:
            changes = {int(key): value for key, value in per_layer.items()}.get(i)
        else:
            changes = None
        if not changes:
            return self
        of_layer = Fields({**self.given, **changes}, self._class, self.outer)
        of_layer.looked_up = self.looked_up
        of_layer.origins = self.origins
        return of_layer

    def __getitem__(self, name: str) -> Any:
        own_name = self.own_name(name)
        if own_name in self.given:
            return self.given[own_name]
        return self._class.defaults.get(own_name)

    def __iter__(self) -> Iterator[str]:
        return iter({**self._class.defaults, **self.given})

    def __len__(self) -> int:
        return len({**self._class.defaults, **self.given})

    def default(self, name: str) -> Any:
        """Return the class's default of a field, or None."""
        return self._class.defaults.get(name)

    def types(self, name: str) -> frozenset[str]:
        """Return the types that a field's values may have; none if they are not known.

        A field that the class does not declare has those of other classes. Only transformers' own
        classes reject null, and a list with one number per layer.
        """
        is_strict = self._class.is_strict
        default = self.default(name)
        declared = self._class.types.get(
            name, frozenset() if default is None else frozenset({type_of(default)})
        )
        types = declared or (is_strict and _UNDECLARED_TYPES.get(name)) or _types_elsewhere(name)
        if not types or is_strict:
            return types
        return types | {"null"} | ({"list"} if "int" in types else set())

    def replaces_null(self, name: str) -> bool:
        """Return whether the class takes null for a number of heads or their width, and derives
        it.
        """
        return "null" in self._class.types.get(name, ())

    def is_default(self, name: str) -> bool:
        """Return whether the config gives the default; null, false, 0 and an empty list count as
        equal.
        """
        value = self.given.get(name)
        default = self.default(name)
        return bool(value == default or not (value or default))

    def is_of_class(self, name: str) -> bool:
        return name in self._class.defaults


# Older names of kinds of layers: transformers' _LEGACY_LAYER_TYPE_REMAP, without those that the
# rules have too.
_NEW_LAYER_TYPES = {
    "deepseek_sparse_attention": "indexed_attention",
    "qwen_sparse_attention": "indexed_attention",
}


def _with_new_names(layer_types: Any) -> Any:
    """Return a list of kinds of layers with transformers' present names, as its configs have
    them.
    """
    if not isinstance(layer_types, list):
        return layer_types
    return [
        _NEW_LAYER_TYPES.get(kind, kind) if isinstance(kind, str) else kind for kind in layer_types
    ]
