"""The family whose rules a config.json is read by: that of its model_type, or of the language model
inside it.
"""

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import AttncalcError, NotSupportedError
from ...records import NamedTuple
from ...units import truncate
from ..data_files import folder_content
from .architectures import has_own_eagle, is_draft_class, letters_of, model_type_of_class
from .fields import UNKNOWN_CLASS, ConfigClass, Fields, config_class, config_classes

FOLDER = Path(__file__).parent / "families"
SUPPORTED_TIP = "'attncalc presets families' lists what is supported"
# Keys of a family that are not keys of a model file.
RULE_KEYS = (
    "like",  # the family whose rules this one starts from
    # the model_type of transformers whose config class this one is, if it has another name
    "class",
    # defaults and names of a config class that transformers does not have, or does not fully
    # declare
    "fields",
    # formulas for the names of the kinds of layer i, such as 'sliding_attention' and 'sparse'
    "kind",
    "kinds",  # {name of a kind: the rules of its layers}
    # formulas that must hold; {formula, reason} if its fields do not say why they are not supported
    "require",
    "zero",  # fields that may be 0, beside those of values.py
    "ignored",  # fields of the class that change no figure
    "heads",  # {ending of a class in `architectures`: the rules that the class changes}
    "variants",  # {ending of a class in `architectures`: the family that it is read as}
    # the rules in which the encoder differs; `config` names the field with its own config
    "encoder",
    # the field with the config of the language model, in a model with a vision or audio tower; or
    # several
    "text",
    "text_defaults",  # the fields that the outer class adds to that config
    "flat",  # true if the fields of the language model may also be at the top level
    "note",  # notes for the reader of the figures
    "part",  # true for a family that is only ever a part of another model
    "unsupported",  # why the family is not supported
)
# Tables that a family extends; its other rules replace those of the family that it is `like`.
_MERGED = ("kinds", "encoder", "heads", "variants")
# Rules of a model with a vision or audio tower that come in addition to those of its language
# model.
ADDED = ("require", "ignored", "note")
# The entry with the rules of --assume-grouped, which is not a family.
ASSUMED = "assumed"
# Entries with `fields` that are no families.
_BASES = (ASSUMED, "remote")
# The entry for draft models that are not read, whatever their model_type.
_ANOTHER_DRAFT = "another_draft"
# Fields in which configs of unknown model_types contain their language model.
_LANGUAGE_CONFIGS = ("text_config", "llm_config", "language_config", "lm_config")
# {field: what a config without a model_type is that has it}. Read as a LLaMA, BERT would have MLPs
# of three matrices and a head.
_FIELDS_OF_OTHERS = {
    "inner_hidden_size": (
        "inner_hidden_size is a field of the first ChatGLM, whose architecture is not modelled"
    ),
    "type_vocab_size": 'type_vocab_size is a field of BERT: add "model_type": "bert" if it is one',
    "n_ctx": 'n_ctx is a field of GPT-2: add "model_type": "gpt2" if it is one',
}
# Fields that name another model as the language model: Ultravox's text_model_id.
_NAME_OF_LANGUAGE_MODEL = re.compile(
    r"(text|llm|lm|language)(_model|_backbone)?(_id|_name|_path|_name_or_path)"
)


class UnsupportedModelTypeError(NotSupportedError):
    """A config of a model_type that no family has; --assume-grouped may read it."""


class Family(NamedTuple):
    """The rules that a config is read by, and the fields that they apply to."""

    name: str  # the model_type
    rules: Mapping[str, Any]  # {key of a model file, or one of RULE_KEYS: rule}
    fields: Fields  # the fields of the language model
    assumed: bool = False  # whether the rules are those of --assume-grouped
    # the fields of the encoder, if it has a config of its own (T5Gemma)
    encoder_fields: Fields | None = None
    # whether the fields are at the top level of the config, and not in a text_config
    is_whole: bool = True


def family_of(config: Mapping[str, Any], assume_grouped: bool = False) -> Family:
    """Return the family of a config's language model. Raises AttncalcError if its model_type is not
    supported.
    """
    name = model_type_of(config)
    if assume_grouped and name not in supported_model_types():
        return _assumed_family(config)
    if name is None:
        raise _missing_model_type(config)
    rules = _rules_of_class(_supported_rules(name, "model_type"), config)
    if rules.get("part"):
        raise AttncalcError(
            f"model_type {name} is a part of another model", "give the whole model's config.json"
        )
    fields = Fields(config, _class_of(name, rules))
    if "text" in rules:
        return _inner_family(name, rules, fields)
    return Family(name, rules, fields)


def model_type_of(config: Mapping[str, Any]) -> str | None:
    """Return a config's model_type, or else that of the class in `architectures`; None if neither
    is known.
    """
    name = config.get("model_type")
    if name is None:
        return model_type_of_class(architecture(config), {*families(), *config_classes()})
    if isinstance(name, str):
        return name
    return None


def supported_model_types() -> list[str]:
    """Return the sorted model_types that a config.json may have."""
    return sorted(
        name for name, rules in families().items() if not rules.keys() & {"unsupported", "part"}
    )


def unsupported_model_types() -> dict[str, str]:
    """Return {model_type: why} of the language models that attncalc knows and does not support."""
    known = families()
    of_transformers = [
        name for name, known_class in config_classes().items() if known_class.is_language_model
    ]
    reasons = {}
    for name in dict.fromkeys([*of_transformers, *known]):
        if name not in known:
            reasons[name] = "its layers are not modelled"
        elif "unsupported" in known[name]:
            reasons[name] = known[name]["unsupported"]
    return reasons


@cache
def families() -> dict[str, dict[str, Any]]:
    """Return {model_type: rules} of all families, with the rules of the families that they are
    `like`.
    """
    rules = {name: _rules(name) for name in _tables()}
    return {name: found for name, found in rules.items() if found}


def architecture(config: Mapping[str, Any]) -> str:
    """Return the class that a config names in `architectures`, or ''."""
    classes = config.get("architectures")
    if isinstance(classes, list) and classes:
        return str(classes[0])
    return ""


def has_rules_of_class(name: str, class_name: str) -> bool:
    """Return whether a supported model_type has rules of its own for a class: JinaBertModel of
    bert.
    """
    rules = families()[name]
    return class_name in (*rules.get("heads", ()), *rules.get("variants", ()))


def as_list(value: Any) -> list[Any]:
    """Return a rule that may be one or several as a list."""
    if isinstance(value, list):
        return value
    if value is None:
        return []
    return [value]


# The rules of a family


@cache
def _rules(name: str) -> dict[str, Any] | None:
    """Return one family's rules, or None if there is no such family.

    An entry that is no class of transformers, and has neither `class` nor `fields`, is only a base
    for other families (`like`), and so is one in _BASES.
    """
    if name not in _tables() or name in _BASES:
        return None
    rules = _merged(name)
    if {"class", "fields"} & rules.keys() or config_class(name):
        return rules
    return None


@cache
def _tables() -> dict[str, dict[str, Any]]:
    rules: dict[str, dict[str, Any]] = {}
    for table in folder_content(FOLDER).values():
        rules |= table
    return rules


def _merged(name: str) -> dict[str, Any]:
    """Return a family's rules on top of those of the family that it is `like`; null removes a
    rule.
    """
    rules = _tables()[name]
    base = _merged(rules["like"]) if "like" in rules else {}
    merged = {**base, **rules}
    for key in _MERGED:
        if base.get(key) and rules.get(key):
            merged[key] = _without_nulls({**base[key], **rules[key]})
    return _without_nulls(merged)


def _without_nulls(rules: Mapping[str, Any]) -> dict[str, Any]:
    return {key: rule for key, rule in rules.items() if rule is not None}


def _supported_rules(name: str, field: str) -> dict[str, Any]:
    """Return the rules of the model_type that a field gives. Raises AttncalcError if it is not
    supported.
    """
    rules = _rules(name)
    if rules is None:
        near = _near_name(name)
        near_rules = families()[near] if near else {}
        if "unsupported" not in near_rules or letters_of(str(near)) != letters_of(name):
            if near and "unsupported" not in near_rules:
                hint = f"did you mean '{near}'? "
            else:
                hint = ""
            raise UnsupportedModelTypeError(
                f"{field} '{truncate(name)}' is not supported", hint + SUPPORTED_TIP
            )
        rules = near_rules
    if "unsupported" in rules:
        raise UnsupportedModelTypeError(
            f"{field} '{truncate(name)}' is not supported: {rules['unsupported']}", SUPPORTED_TIP
        )
    return rules


def _near_name(name: str) -> str | None:
    """Return 'qwen3_moe' for 'qwen3-moe' or 'qwen3_meo', or None if no family's name is that near.

    The names may differ in separators, or in one letter after the first that is wrong, missing or
    in the wrong place: 'pixtral' is no 'mixtral'. Digits must be equal: a config of 'minimax_m3' is
    none of 'minimax_m2'.
    """
    import difflib  # imported here, so that only a wrong name pays for it

    if config_class(name):
        return None
    bare = letters_of(name)
    spelled = sorted({letters_of(other) for other in families()})
    for known in difflib.get_close_matches(bare, spelled, n=3, cutoff=0.8):
        has_same_digits = list(filter(str.isdigit, bare)) == list(filter(str.isdigit, known))
        asked = Counter(filter(str.isalpha, bare))
        found = Counter(filter(str.isalpha, known))
        differing = max((asked - found).total(), (found - asked).total())
        if has_same_digits and differing <= 1 and bare[0] == known[0]:
            return next(other for other in sorted(families()) if letters_of(other) == known)
    return None


def _rules_of_class(rules: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rules of the class in `architectures`, which may have other layers
    (T5EncoderModel).

    A class that is named as a draft model is read only by the rules of that draft.
    """
    class_name = architecture(config)
    variants = rules.get("variants", {})
    variant = next((variants[ending] for ending in variants if class_name.endswith(ending)), None)
    if is_draft_class(class_name):
        drafts = filter(is_draft_class, (*variants, *rules.get("heads", ())))
        if has_own_eagle(class_name) or not class_name.endswith(tuple(drafts)):
            variant = _ANOTHER_DRAFT
    class_rules = rules if variant is None else _merged(variant)
    reason = class_rules.get("unsupported")
    if reason:
        raise _unsupported_class(class_name, reason)
    return class_rules


def _missing_model_type(config: Mapping[str, Any]) -> NotSupportedError:
    """Return the error about a config that names neither a model_type nor a known class.

    What is known to be no plain decoder is not read by --assume-grouped either.
    """
    if is_draft_class(architecture(config)):
        return _unsupported_class(architecture(config), _merged(_ANOTHER_DRAFT)["unsupported"])
    for field, hint in _FIELDS_OF_OTHERS.items():
        if field in config:
            return NotSupportedError("model_type is missing", f"{hint}; {SUPPORTED_TIP}")
    return UnsupportedModelTypeError(
        "model_type is missing", f'add "model_type": "llama" for a plain decoder; {SUPPORTED_TIP}'
    )


def _unsupported_class(class_name: str, reason: str) -> NotSupportedError:
    return NotSupportedError(
        f"architectures {truncate(class_name)} is not supported: {reason}", SUPPORTED_TIP
    )


def _class_of(name: str, rules: Mapping[str, Any], outer: ConfigClass | None = None) -> ConfigClass:
    """Return transformers' config class with the family's `fields`.

    `fields` declares the defaults, names, inner configs and types of a class that transformers does
    not have, or names that the class accepts beside those of its attribute_map. `outer` is the
    class of the config around it, if it is inside one: a vendor's accepts what it likes.
    """
    known = config_class(rules.get("class", name)) or UNKNOWN_CLASS
    declared = rules.get("fields") or {}
    types = {field: frozenset(names.split()) for field, names in declared.get("types", {}).items()}
    return known._replace(
        defaults={**known.defaults, **declared.get("defaults", {})},
        attribute_map={**known.attribute_map, **declared.get("attribute_map", {})},
        sub_configs={**known.sub_configs, **declared.get("sub_configs", {})},
        types={**known.types, **types},
        is_strict=known.is_strict
        and rules.get("class", name) == name
        and (outer is None or outer.is_strict),
    )


# Configs inside a config


def _inner_family(name: str, rules: Mapping[str, Any], outer: Fields) -> Family:
    """Return the family of the language model inside a model with a vision or audio tower.

    Its rules are those of the inner model_type; the outer model's rules replace some of them, and
    add to ADDED.
    """
    fields_of_text = as_list(rules["text"])
    field = next((field for field in fields_of_text if field in outer.given), fields_of_text[0])
    inner_config = outer.given.get(field)
    is_flat = inner_config is None and bool(rules.get("flat"))
    if is_flat:
        inner_config = {key: value for key, value in outer.given.items() if key != "model_type"}
    if not isinstance(inner_config, Mapping):
        raise _missing_config(name, field, outer.given)
    inner_config = {**rules.get("text_defaults", {}), **inner_config}
    outer_class = _class_of(name, rules)
    inner_name = _inner_model_type(name, outer_class, field, inner_config)
    inner_rules = _supported_rules(inner_name, f"{field}.model_type")
    fields = Fields(inner_config, _class_of(inner_name, inner_rules, outer_class), outer)
    written_name = inner_config.get("model_type")
    if written_name == f"{name}_text" != inner_name:
        fields.remarks.append(
            f"{field}.model_type {truncate(written_name)} is read as {inner_name}."
        )
    if "text" in inner_rules:
        inner = _inner_family(inner_name, inner_rules, fields)
    else:
        inner = Family(inner_name, inner_rules, fields, is_whole=is_flat)
    outer_rules = {
        key: rule
        for key, rule in rules.items()
        if key not in ("text", "like", "flat", "text_defaults")
    }
    added = {key: [*as_list(inner.rules.get(key)), *as_list(outer_rules.get(key))] for key in ADDED}
    combined = {**inner.rules, **outer_rules, **added}
    return inner._replace(rules=combined, encoder_fields=_encoder_fields(name, combined, outer))


def _missing_config(name: str, field: str, given: Mapping[str, Any]) -> AttncalcError:
    """Return the error about a config without that of its language model, which another model's
    name may replace.
    """
    for key, value in given.items():
        if _NAME_OF_LANGUAGE_MODEL.fullmatch(key) and isinstance(value, str) and value:
            return AttncalcError(
                f"{field} is missing, and {key} names the language model: '{truncate(value)}'",
                "give that model: attncalc counts the language model alone",
            )
    return AttncalcError(
        f"{field} is missing", f"a {name} config has the fields of its language model there"
    )


def _inner_model_type(
    name: str, outer_class: ConfigClass, field: str, inner_config: Mapping[str, Any]
) -> str:
    """Return the model_type of the config inside `field`: its own, or the one that the outer class
    sets.
    """
    model_type = inner_config.get("model_type")
    default = outer_class.sub_configs.get(field)
    if (
        default
        and model_type == f"{name}_text"
        and _rules(model_type) is None
        and config_class(model_type) is None
    ):
        return default  # EXAONE 4.5's exaone4_5_text, which is transformers' exaone4
    if field not in outer_class.fixed_sub_configs:
        return str(model_type or default)
    if model_type not in (None, default, name):
        raise AttncalcError(
            f"{field}.model_type '{truncate(str(model_type))}': the class of {name} makes it a "
            f"{default}",
            "correct the config",
        )
    return str(default)


def _encoder_fields(name: str, rules: Mapping[str, Any], outer: Fields) -> Fields | None:
    """Return the fields of the encoder's own config, or None if the rules name no field that
    contains one.
    """
    field = rules.get("encoder", {}).get("config")
    if field is None:
        return None
    encoder_config = outer.given.get(field)
    if not isinstance(encoder_config, Mapping):
        raise AttncalcError(
            f"{field} is missing", f"a {name} config has the fields of its encoder there"
        )
    inner_name = str(
        encoder_config.get("model_type") or _class_of(name, rules).sub_configs.get(field)
    )
    inner_rules = _supported_rules(inner_name, f"{field}.model_type")
    return Fields(encoder_config, _class_of(inner_name, inner_rules), outer)


def _assumed_family(config: Mapping[str, Any]) -> Family:
    rules = _merged(ASSUMED)
    known_class = _class_of(ASSUMED, rules)
    outer = Fields(config, known_class)
    inner = next(
        (config[field] for field in _LANGUAGE_CONFIGS if isinstance(config.get(field), Mapping)),
        None,
    )
    fields = outer if inner is None else Fields(inner, known_class, outer)
    return Family(str(config.get("model_type") or ""), rules, fields, assumed=True)
