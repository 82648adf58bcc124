"""The fields of a config that may matter, and that the family's rules do not use.

Each of them is an error: a new field must not be ignored in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from .family import families
from .fields import Fields, config_classes
from .formulas import kinds_of_layer, names_in

ALWAYS_USED = ("tie_word_embeddings", "per_layer_config")
_IGNORED_PARTS = (
    *("rope", "rotary", "dropout", "initializer", "init_std", "init_method", "epsilon", "softcap", "aux_loss"),
    "_image_token",
)
_IGNORED_STARTS = ("mask_time", "mask_feature", "spec_augment")
_IGNORED_ENDINGS = ("_pdrop", "_drop", "_eps", "_token_id", "_token_index", "_loss_coef", "_multiplier", "_multipliers")


def unused_fields(rules: Mapping[str, Any], fields: Fields, n_layers: int) -> Iterator[str]:
    """Yield the given fields that matter to the config's class, or to another family, and that the rules do not use.

    A field that only one kind of layer uses counts as used if there is such a layer, or if the class has the field:
    LLaMA's class has no sliding_window, so that a `sliding_window` in a LLaMA's config is not used. `per_layer_config`
    is unused if it changes an unused field of some layer.
    """
    used_by_rules = _own_names(rules, fields)
    used_by_layers = _own_names(_rules_of_present_kinds(rules, fields, n_layers), fields)
    for name, value in fields.given.items():
        if name in used_by_layers or is_ignored(name) or fields.is_default(name):
            continue
        if fields.is_of_class(name):
            matters = name not in used_by_rules
        else:
            matters = bool(value) and name in _names_in_all_families() and not _repeats_another(name, value, fields)
        if matters:
            yield name
    for changes in (fields.given.get("per_layer_config") or {}).values():
        if any(fields.own_name(name) not in used_by_layers and not is_ignored(name) for name in changes):
            yield "per_layer_config"


def is_ignored(name: str) -> bool:
    """Return whether a field changes neither parameters, nor FLOPs, nor a cache, in any family."""
    return (
        name in _ignored_names()
        or name.startswith(_IGNORED_STARTS)
        or name.endswith(_IGNORED_ENDINGS)
        or any(part in name for part in _IGNORED_PARTS)
    )


@cache
def _ignored_names() -> frozenset[str]:
    text = Path(__file__).with_name("ignored_fields.txt").read_text(encoding="utf-8")
    return frozenset(word for line in text.splitlines() if not line.startswith("#") for word in line.split())


def _own_names(rules: Mapping[str, Any], fields: Fields) -> set[str]:
    """Return the fields that rules use or ignore, under their own names."""
    return set(map(fields.own_name, (*names_in(rules), *rules.get("ignored", ()), *ALWAYS_USED)))


def _rules_of_present_kinds(rules: Mapping[str, Any], fields: Fields, n_layers: int) -> dict[str, Any]:
    """Return the rules without those of kinds that no layer has; all kinds if there is an encoder."""
    present = {kind for i in range(n_layers) for kind in kinds_of_layer(rules, fields.of_layer(i), i)}
    kinds = {kind: keys for kind, keys in rules.get("kinds", {}).items() if kind in present or "encoder" in rules}
    return {**rules, "kinds": kinds}


def _repeats_another(name: str, value: Any, fields: Fields) -> bool:
    """Return whether the config gives the same value under another name of the field, as d_model and hidden_size."""
    return any(fields.given.get(other) == value for other in _other_names(name))


def _other_names(name: str) -> set[str]:
    """Return the names that classes with two names for a field have for `name`."""
    pairs = {pair for known in config_classes().values() for pair in known.attribute_map.items() if name in pair}
    return {other for pair in pairs for other in pair} - {name}


@cache
def _names_in_all_families() -> frozenset[str]:
    """Return the fields that some family's rules use: in another family's config they may matter too."""
    return frozenset(name for rules in families().values() for name in names_in(rules))
