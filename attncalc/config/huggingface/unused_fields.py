"""The fields of a config that matter, and that the rules it is read by do not look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from .families import families
from .fields import Fields, config_classes
from .ignored import is_inert
from .rules import kinds_of, names_in

ALWAYS_READ = ("tie_word_embeddings", "per_layer_config")


def unread(rules: Mapping[str, Any], fields: Fields, n_layers: int) -> Iterator[str]:
    """The given fields that matter in their class, or in another family's, and that these rules do not name.

    What a kind of layer names is read where there is such a layer, or where the class has the field:
    a sliding_window is not LLaMA's, and one in its config is not looked at. per_layer_config is unread
    where it gives a layer something that is.
    """
    named = set(map(fields.own, (*names_in(rules), *rules.get("inert", ()), *ALWAYS_READ)))
    taken = {kind for i in range(n_layers) for kind in kinds_of(rules, fields.layer(i), i)}
    kinds = {kind: keys for kind, keys in rules.get("kinds", {}).items() if kind in taken or "encoder" in rules}
    apart = {**rules, "kinds": kinds}
    looked_at = set(map(fields.own, (*names_in(apart), *rules.get("inert", ()), *ALWAYS_READ)))
    for key, value in fields.given.items():
        if key in looked_at or is_inert(key) or fields.is_default(key):
            continue
        if fields.is_of_class(key):
            matters = key not in named
        else:
            matters = bool(value) and key in _named_somewhere() and not _says_again(key, value, fields)
        if matters:
            yield key
    for layer in (fields.given.get("per_layer_config") or {}).values():
        if any(fields.own(key) not in looked_at and not is_inert(key) for key in layer):
            yield "per_layer_config"


def _says_again(key: str, value: Any, fields: Fields) -> bool:
    """The config says the same under another name of that field, which is read."""
    return any(fields.given.get(name) == value for name in _same_as(key))


def _same_as(name: str) -> set[str]:
    """What a field called `name` is called in the classes that know it by two names: d_model, hidden_size."""
    pairs = {pair for kind in config_classes().values() for pair in kind.synonyms.items() if name in pair}
    return {other for pair in pairs for other in pair} - {name}


@cache
def _named_somewhere() -> frozenset[str]:
    """The fields that some family's rules name: one that turns up elsewhere may matter there too."""
    return frozenset(name for rules in families().values() for name in names_in(rules))
