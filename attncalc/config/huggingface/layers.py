"""The keys of every layer by a family's rules, and the shortest pattern of kinds of layers that
describes them.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from ...attention import KINDS
from ...attention.recurrent import Recurrent
from ...errors import AttncalcError
from ...model import MAX_LAYERS
from ...units import truncate
from ..keys import is_layer_key, keys_of_layer
from .family import RULE_KEYS
from .fields import Fields
from .formulas import kinds_of_layer, names_in, uses_layer_number, value_of, value_of_key

# The names of a layer's kinds, such as ('sliding', 'sparse'), and its keys.
Layer = tuple[tuple[str, ...], dict[str, Any]]

_EXPERT_KEYS = {
    "n_experts",
    "n_experts_per_token",
    "n_shared_experts",
    "d_ff_shared",
    "router_bias",
    "d_router",
    "d_latent",
}


def pattern_of_layers(rules: Mapping[str, Any], fields: Fields, n_layers: Any) -> dict[str, Any]:
    """Return the keys of a model file for all layers: those of equal layers, or a pattern of kinds.

    Raises AttncalcError if `n_layers` is not a possible number, or the family has no rules for a
    layer's kind.
    """
    if n_layers is None:
        names = sorted(names_in(rules.get("n_layers")))
        raise AttncalcError(
            f"{' or '.join(names) or 'the number of layers'} is missing", "add it to the config"
        )
    if type(n_layers) is not int or not 1 <= n_layers <= MAX_LAYERS:
        raise AttncalcError(
            f"the number of layers is {truncate(repr(n_layers))}",
            f"it must be a whole number from 1 to {MAX_LAYERS:,}",
        )
    layers = []
    layers_by_kind: dict[tuple[str, ...], Layer] = {}
    for i in range(n_layers):
        layer_fields = fields.of_layer(i)
        kinds = tuple(kinds_of_layer(rules, layer_fields, i))
        layer = layers_by_kind.get(kinds) if layer_fields is fields else None
        if layer is None:
            layer_rules = _rules_of_kinds(rules, kinds, i)
            layer = _layer(kinds, layer_rules, layer_fields, i)
            if layer_fields is fields and not uses_layer_number(layer_rules):
                layers_by_kind[kinds] = layer
        layers.append(layer)
    return shortest_pattern(layers)


def is_rule_of_layer(key: str) -> bool:
    """Return whether a family's rule of that name gives a key of a layer."""
    return key not in RULE_KEYS and is_layer_key(key)


def _rules_of_kinds(rules: Mapping[str, Any], kinds: Sequence[str], i: int) -> dict[str, Any]:
    """Return the rules of a layer: those of its kinds on top of those of all layers.

    Raises AttncalcError if the family has no such kind.
    """
    layer_rules = {key: rule for key, rule in rules.items() if is_rule_of_layer(key)}
    for kind in kinds:
        if kind not in rules["kinds"]:
            raise AttncalcError(
                f"layer {i}: '{truncate(kind)}' is not a kind of layer that is supported",
                f"known: {', '.join(rules['kinds'])}",
            )
        layer_rules.update(rules["kinds"][kind] or {})
    return layer_rules


def _layer(kinds: Sequence[str], rules: Mapping[str, Any], fields: Fields, i: int) -> Layer:
    """Return layer i by its rules. Raises AttncalcError if its window or chunk has no size."""
    keys = {
        key: value_of_key(key, rules[key], fields, i=i)
        for key in _keys_that_apply(rules, fields, i)
    }
    for key in ("window", "chunk"):
        if key in keys and keys[key] is None:
            raise AttncalcError(
                f"layer {i}: {kinds[0]} needs a {key}",
                "the config lacks a field, or switches it off",
            )
    given = {}
    for key, value in keys.items():
        if value not in (None, []) and value is not False:
            given[key] = value
    return tuple(kind.removesuffix("_attention") for kind in kinds), given


def _keys_that_apply(rules: Mapping[str, Any], fields: Fields, i: int) -> list[str]:
    """Return the keys that the layer's kind of attention and MLP has, in the schema's order."""
    attention, mlp, experts = (
        value_of(rules.get(key), fields, i=i) for key in ("attention", "mlp", "n_experts")
    )
    excluded = set()
    if issubclass(KINDS[attention], Recurrent):
        excluded |= {"window", "chunk"}
    if mlp == "none":
        excluded |= {"d_ff", "mlp_bias"}
    if mlp == "none" or experts is None:
        excluded |= _EXPERT_KEYS
    if mlp != "none" and experts is None:
        rule = rules.get("n_experts")
        names = sorted(names_in(rule))
        if names and "None" not in str(rule):  # with 'None' in it, layers may have no experts
            raise AttncalcError(f"{' or '.join(names)} is missing", "add it to the config")
    given = [key for key in keys_of_layer(attention) if key in rules]
    return [key for key in given if key not in excluded]


def shortest_pattern(layers: Sequence[Layer]) -> dict[str, Any]:
    """Return the keys of a model file for `layers`: the common keys, and a pattern of the kinds
    that differ.

    Six layers (sliding, sliding, full, sliding, sliding, full) of which only the window differs
    become

        {n_heads: 8, ..., pattern: [2 sliding, full], layer_kinds: {sliding: {window: 512}, full:
        {}}}
    """
    order, kinds = _name_kinds(layers)
    if all(keys == layers[0][1] for keys in kinds.values()):
        return layers[0][1]
    first, *others = kinds.values()
    common = dict(first)
    for key, value in first.items():
        if not all(key in keys and keys[key] == value for keys in others):
            del common[key]
    differing = {}
    for name, keys in kinds.items():
        differing[name] = {key: value for key, value in keys.items() if key not in common}
    return {**common, "pattern": _shortest_period(order), "layer_kinds": differing}


def _name_kinds(layers: Sequence[Layer]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Return the name of each layer's kind, and {name: keys} of the kinds.

    A name consists of those names of the layers that differ: 'sliding_dense' and 'sliding_sparse'
    are 'dense' and 'sparse' if all layers slide. Layers of one name with different keys are
    numbered: 'sparse', 'sparse_2'.
    """
    columns = list(zip(*(names for names, _ in layers), strict=True))
    differing = [i for i, column in enumerate(columns) if len(set(column)) > 1]
    kinds: dict[str, dict[str, Any]] = {}
    order = []
    for names, keys in layers:
        stem = "_".join(names[i] for i in differing) or "layers"
        same_stem = [
            name
            for name in kinds
            if re.sub(r"(^|_)\d+$", "", name) == re.sub(r"(^|_)\d+$", "", stem)
        ]
        kind = next((name for name in same_stem if kinds[name] == keys), None)
        if kind is None:
            kind = f"{stem}_{len(same_stem) + 1}" if stem in kinds else stem
            kinds[kind] = keys
        order.append(kind)
    return order, kinds


def _shortest_period(order: Sequence[str]) -> list[str]:
    """Return the shortest period that gives `order`, with '5 local' for five in a row."""
    period = next(n for n in range(1, len(order) + 1) if order[n:] == order[:-n])
    runs = [(name, len(list(run))) for name, run in groupby(order[:period])]
    return [name if count == 1 else f"{count} {name}" for name, count in runs]
