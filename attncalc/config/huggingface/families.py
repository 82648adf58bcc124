"""Which rules a config.json is read by: its family's, those of its language side, or assumed ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import AttncalcError, did_you_mean
from ...units import truncate
from .fields import ConfigClass, Fields, config_classes

TIP = "'attncalc presets families' lists what is read; --assume-grouped reads it as plain grouped attention"
MERGED = ("kinds", "encoder", "heads", "variants")
"""What a family adds to, where its other rules replace those of the family it is like."""
ADDED = ("require", "inert", "note")
"""What a model with a tower asks beside what its language side asks."""
ASSUMED = "assumed"
"""The rules that --assume-grouped reads by, which are no family's."""
LANGUAGE_SIDES = ("text_config", "llm_config", "language_config")


class Family(NamedTuple):
    """The rules to read `fields` by. assumed: nobody said that they are this model's. source: the fields of an
    encoder that has a config of its own.
    """

    name: str
    rules: Mapping[str, Any]
    fields: Fields
    assumed: bool = False
    source: Fields | None = None


@cache
def families() -> dict[str, dict[str, Any]]:
    """Every family's rules by model_type, with those of the family it is like."""
    return {name: rules for name in _written() if (rules := _rules(name))}


@cache
def _rules(name: str) -> dict[str, Any] | None:
    """One family's rules, without making those of all others; None where there is no such family."""
    if name not in _written() or name == ASSUMED:
        return None
    rules = _merged(name)
    return rules if _class_of(name, rules) else None


def refused() -> dict[str, str]:
    """{model_type: why} of the models that transformers has and that are not read here."""
    known = families()
    return {
        name: known.get(name, {}).get("refused", "its layers are not modelled")
        for name, kind in config_classes().items()
        if kind.language and (name not in known or "refused" in known[name])
    }


def read_families() -> list[str]:
    """The model_types that a config.json may have."""
    return sorted(name for name, rules in families().items() if not rules.keys() & {"refused", "part"})


def family_of(config: Mapping[str, Any], assume_grouped: bool = False) -> Family:
    """The family of a config's language side. AttncalcError: its model_type is not one that is read."""
    name = config.get("model_type")
    if assume_grouped and not (isinstance(name, str) and name in read_families()):
        return _assumed(config)
    if not isinstance(name, str):
        raise AttncalcError("model_type is missing", f"a config.json of transformers names its model_type; {TIP}")
    rules = _variant(_read(name, "model_type"), config)
    if rules.get("part"):
        raise AttncalcError(f"model_type {name} is a part of another model", "give the config.json that it stands in")
    fields = Fields(config, _kind(name, rules))
    return _inside(name, rules, fields) if "text" in rules else Family(name, rules, fields)


def _variant(rules: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The rules of the class that `architectures` names, where it has other layers (T5EncoderModel)."""
    named = architecture(config)
    other = next((other for ending, other in rules.get("variants", {}).items() if named.endswith(ending)), None)
    found = rules if other is None else _merged(other)
    if "refused" in found:
        raise AttncalcError(f"architectures {truncate(named)} is not modelled: {found['refused']}", TIP)
    return found


def architecture(config: Mapping[str, Any]) -> str:
    """The class that a config names; '' where it names none."""
    named = config.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""


def _inside(name: str, rules: Mapping[str, Any], outer: Fields) -> Family:
    """The language side of a model with a tower: its own family's rules, and what its surroundings change."""
    part = rules["text"]
    given = outer.given.get(part)
    if given is None and rules.get("flat"):
        given = {key: value for key, value in outer.given.items() if key != "model_type"}
    if not isinstance(given, Mapping):
        raise AttncalcError(f"{part} is missing", f"a {name} config has its language model's fields there")
    given = {**rules.get("text_defaults", {}), **given}
    said, kind = given.get("model_type"), _kind(name, rules)
    default = kind.inside.get(part)
    if part in kind.fixed and said not in (None, default, name):
        raise AttncalcError(
            f"{part}.model_type '{truncate(str(said))}': the class of {name} makes it a {default}", "correct the config"
        )
    inner = str(default if part in kind.fixed else said or default)
    own = _read(inner, f"{part}.model_type")
    fields = Fields(given, _kind(inner, own), outer)
    language = _inside(inner, own, fields) if "text" in own else Family(inner, own, fields)
    around = {key: rule for key, rule in rules.items() if key not in ("text", "like", "flat", "text_defaults")}
    both = {key: [*listed(language.rules.get(key)), *listed(around.get(key))] for key in ADDED}
    found = {**language.rules, **around, **both}
    return language._replace(rules=found, source=_source(name, found, outer))


def _source(name: str, rules: Mapping[str, Any], outer: Fields) -> Fields | None:
    """The fields of the encoder's own config, where the rules say in which field it stands."""
    part = rules.get("encoder", {}).get("of")
    if part is None:
        return None
    given = outer.given.get(part)
    if not isinstance(given, Mapping):
        raise AttncalcError(f"{part} is missing", f"a {name} config has its encoder's fields there")
    inner = str(given.get("model_type") or _kind(name, rules).inside.get(part))
    return Fields(given, _kind(inner, _read(inner, f"{part}.model_type")), outer)


def _assumed(config: Mapping[str, Any]) -> Family:
    """A config of any model_type, read by the rules of plain grouped attention."""
    rules = _merged(ASSUMED)
    kind = _kind(ASSUMED, rules)
    part = next((config[key] for key in LANGUAGE_SIDES if isinstance(config.get(key), Mapping)), None)
    outer = Fields(config, kind)
    return Family(
        str(config.get("model_type", "")), rules, outer if part is None else Fields(part, kind, outer), assumed=True
    )


def _read(name: str, where: str) -> dict[str, Any]:
    rules = _rules(name)
    if rules is None:
        hint = "" if name in config_classes() else did_you_mean(name, families())
        raise AttncalcError(f"{where} '{truncate(name)}' is not modelled", hint + TIP)
    if "refused" in rules:
        raise AttncalcError(f"{where} '{name}' is not modelled: {rules['refused']}", TIP)
    return rules


@cache
def _written() -> dict[str, dict[str, Any]]:
    """What the tables beside this file say, or the one that the wheel has made of them (hatch_build.py)."""
    folder = Path(__file__).parent
    if (folder / "families.json").exists():
        import json

        compiled: dict[str, dict[str, Any]] = json.loads((folder / "families.json").read_bytes())
        return compiled
    from ..yaml import table

    return {name: own for file in sorted(folder.glob("*.yaml")) for name, own in table(file.read_bytes()).items()}


def _merged(name: str) -> dict[str, Any]:
    """The rules of a family, with those of the family it is like; null takes one away."""
    own = _written()[name]
    base = _merged(own["like"]) if "like" in own else {}
    parts = {part: _without({**base[part], **own[part]}) for part in MERGED if base.get(part) and own.get(part)}
    return _without({**base, **own, **parts})


def _without(rules: Mapping[str, Any]) -> dict[str, Any]:
    """Rules without those that null takes away."""
    return {key: rule for key, rule in rules.items() if rule is not None}


def _class_of(name: str, rules: Mapping[str, Any]) -> ConfigClass | None:
    """What transformers says of the family's fields, and what the family itself says: of a class that is not
    there, or of names that a class takes beside those of its fields.
    """
    own, known = rules.get("fields"), config_classes().get(name)
    if own is None:
        return known
    known = known or ConfigClass({}, {}, {}, True)
    return known._replace(
        defaults={**known.defaults, **(own.get("defaults") or {})},
        synonyms={**known.synonyms, **(own.get("synonyms") or {})},
    )


def _kind(name: str, rules: Mapping[str, Any]) -> ConfigClass:
    return _class_of(name, rules) or ConfigClass({}, {}, {}, True)


def listed(value: Any) -> list[Any]:
    """A rule that may be one or several, as a list."""
    return value if isinstance(value, list) else [] if value is None else [value]
