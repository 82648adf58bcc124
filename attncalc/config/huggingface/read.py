"""config.json -> Document: find the family, evaluate its rules layer by layer, refuse what they do not cover."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import AttncalcError, did_you_mean
from ...units import shown
from ..document import Document
from ..keys import KIND_KEYS, LAYER_KEYS, STACK_KEYS
from .fields import ConfigClass, Fields, config_classes
from .inert import is_inert
from .layers import laid_out
from .rules import names_in, value_of

TIP = "'attncalc presets families' lists what is read; --assume-grouped reads it as plain grouped attention"
NOT_KEYS = ("like", "kind", "kinds", "require", "text", "flat", "heads", "encoder", "note", "inert")
"""What a family says beside the keys of a model file."""


@cache
def families() -> dict[str, dict[str, Any]]:
    """Every family's rules by model_type, with those of the family it is like."""
    from ..yaml import table

    found: dict[str, dict[str, Any]] = {}
    for file in sorted(Path(__file__).parent.glob("*.yaml")):
        for name, own in table(file.read_bytes()).items():
            base = found.get(own.get("like", ""), {})
            merged = {**base, **own}
            for part in ("kinds", "encoder", "heads"):
                if base.get(part) and own.get(part):
                    merged[part] = {**base[part], **own[part]}
            found[name] = {key: rule for key, rule in merged.items() if rule is not None}
    return {name: rules for name, rules in found.items() if name in config_classes()}


def refused() -> list[str]:
    """The model_types that transformers has and that are not read here."""
    return sorted(set(config_classes()) - set(families()))


def document(config: Mapping[str, Any], file: str) -> Document:
    """The model file that says what `config` says.

    AttncalcError: its model_type is not known; a field is missing, is contradicted by another, or changes
    the figures in a way that is not modelled here. The message names the field and its value.
    """
    name, rules, fields = _family(config, file)
    try:
        data = _data(rules, fields, name)
        known = {*names_in(rules), *rules.get("inert", ()), "tie_word_embeddings", "per_layer_config"}
        _refuse_unread(fields, known, name)
    except AttncalcError as error:
        raise AttncalcError(f"{file}: {error.message}", error.tip) from None
    return Document(file, data, {})


def _family(config: Mapping[str, Any], file: str) -> tuple[str, dict[str, Any], Fields]:
    """The family of the text side, its rules and its fields."""
    name = config.get("model_type")
    if not isinstance(name, str):
        raise AttncalcError(f"{file}: model_type is missing", "a config.json of transformers names its model_type")
    classes = config_classes()
    known = families()
    if name not in classes or name not in known:
        hint = "" if name in classes else did_you_mean(name, known)
        raise AttncalcError(f"{file}: model_type '{shown(name)}' is not modelled", hint + TIP)
    fields = Fields(config, classes[name])
    rules = known[name]
    part = rules.get("text")
    if part is None:
        return name, rules, fields
    given = fields.given.get(part)
    given = dict(given) if isinstance(given, Mapping) else {}
    inner = given.get("model_type") or classes[name].inside.get(part)
    if inner not in known or inner not in classes:
        raise AttncalcError(f"{file}: {part}.model_type '{shown(str(inner))}' is not modelled", TIP)
    if part not in fields.given and not rules.get("flat"):
        raise AttncalcError(f"{file}: {part} is missing", f"a {name} config has its language model's fields there")
    if part not in fields.given:
        given = {key: value for key, value in config.items() if key != "model_type"}
    return (
        inner,
        {**known[inner], **{k: v for k, v in rules.items() if k not in ("text", "like", "flat")}},
        Fields(given, classes[inner], fields),
    )


def _data(rules: Mapping[str, Any], fields: Fields, name: str) -> dict[str, Any]:
    for requirement in rules.get("require", ()):
        if not value_of(requirement, fields):
            read = ", ".join(f"{key} {shown(repr(fields[key]))}" for key in names_in(requirement))
            raise AttncalcError(f"{read}: not modelled for {name}", TIP)
    top = {key: value_of(rule, fields) for key, rule in rules.items() if key not in NOT_KEYS and key not in LAYER_KEYS}
    top.update(_head(rules, fields))
    data: dict[str, Any] = {
        "title": str((fields.around or fields).given.get("_name_or_path") or name),
        "sources": [f"its config.json, read as transformers {_version()}'s {name}"],
        **{key: value for key, value in top.items() if value is not None and key in STACK_KEYS},
    }
    data.update(_layers(rules, fields, int(top["n_layers"])))
    if "encoder" in rules:
        inner = {**rules, **rules["encoder"]}
        stack = {
            k: value_of(r, fields) for k, r in rules["encoder"].items() if k not in NOT_KEYS and k not in LAYER_KEYS
        }
        data["encoder"] = {**stack, **_layers(inner, fields, int(stack["n_layers"]))}
    data.update({key: value for key, value in top.items() if value is not None and key not in STACK_KEYS})
    notes = [str(value_of(note, fields)) for note in _listed(rules.get("note")) if value_of(note, fields)]
    data["notes"] = [*notes, *_remarks(fields)]
    data["dtype"] = _dtype(fields)
    return {key: value for key, value in data.items() if value not in (None, [], {})}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _head(rules: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    """What the class named by `architectures` has after the last layer, where that changes it."""
    named = (fields.around or fields).given.get("architectures") or [""]
    architecture = str(named[0]) if isinstance(named, list) else ""
    for ending, keys in rules.get("heads", {}).items():
        if architecture.endswith(ending):
            return {key: value_of(rule, fields) for key, rule in keys.items()}
    headless = architecture.endswith("Model") and not architecture.endswith(("LMHeadModel", "MTModel"))
    other = architecture.endswith(("Classification", "QuestionAnswering"))
    if other or (headless and rules.get("head") != "pooler"):
        return {"head": "none", "tied_embeddings": None, "head_bias": None}
    return {}


def _layers(rules: Mapping[str, Any], fields: Fields, n_layers: int) -> dict[str, Any]:
    """The keys of the layers: of all alike, or a pattern and its kinds."""
    made: list[tuple[str, dict[str, Any]]] = []
    for i in range(n_layers):
        own = fields.layer(i)
        names = [str(value_of(rule, own, i=i)) for rule in _listed(rules.get("kind"))]
        overlaid: dict[str, Any] = {key: rule for key, rule in rules.items() if key in LAYER_KEYS}
        for kind in names:
            if kind not in rules["kinds"]:
                allowed = ", ".join(rules["kinds"])
                raise AttncalcError(f"layer {i}: '{shown(kind)}' is not a layer that is modelled", f"known: {allowed}")
            overlaid.update(rules["kinds"][kind] or {})
        values = {key: value_of(overlaid[key], own, i=i) for key in _relevant(overlaid, own, i)}
        for key in ("window", "chunk"):
            if key in values and values[key] is None:
                raise AttncalcError(
                    f"layer {i}: {names[0]} without a {key}", "the config lacks a field, or switches it off"
                )
        made.append(("_".join(_short(n) for n in names) or "layers", _said(values)))
    return laid_out(made)


def _short(kind: str) -> str:
    return kind.removesuffix("_attention")


def _relevant(rules: Mapping[str, Any], fields: Fields, i: int) -> list[str]:
    """The keys that the layer's kind of attention and MLP has, in the table's order."""
    attention, mlp, experts = (value_of(rules.get(key), fields, i=i) for key in ("attention", "mlp", "n_experts"))
    drop = {key for keys in KIND_KEYS.values() for key in keys} - set(KIND_KEYS[attention])
    if attention not in ("grouped", "latent"):
        drop |= {"window", "chunk"}
    if mlp == "none":
        drop |= {"d_ff", "mlp_bias"}
    if mlp == "none" or not experts:
        drop |= {"n_experts", "n_experts_per_token", "n_shared_experts", "d_ff_shared", "router_bias"}
    return [key for key in LAYER_KEYS if key in rules and key not in drop]


def _said(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without what a model file says by leaving it out."""
    return {key: value for key, value in values.items() if value is not None and value != [] and value is not False}


def _dtype(fields: Fields) -> str:
    outer = fields.around or fields
    name = outer.given.get("dtype") or outer.given.get("torch_dtype") or fields.given.get("torch_dtype")
    return {"float16": "fp16", "float32": "fp32", "bfloat16": "bf16"}.get(str(name or "bfloat16"), "bf16")


def _remarks(fields: Fields) -> Iterator[str]:
    """What a reader must know whatever the family."""
    outer = fields.around or fields
    if not any(f.given.get(key) for f in (outer, fields) for key in ("dtype", "torch_dtype")):
        yield "The config names no dtype: bf16 is taken."
    if outer.given.get("quantization_config"):
        yield "Weights are released quantised: their bytes here are those of the dtype."
    named = outer.given.get("architectures") or [""]
    if str(named[0]).endswith(("Classification", "QuestionAnswering")) and "Image" not in str(named[0]):
        yield f"The head of {shown(str(named[0]))} is not counted."
    towers = [key.removesuffix("_config") for key in ("vision_config", "audio_config") if outer.given.get(key)]
    if towers:
        yield f"The {' and '.join(towers)} tower is not counted."


def _refuse_unread(fields: Fields, known: Collection[str], name: str) -> None:
    """Refuse a field that matters in its class or in another family's, and that this one's rules do not name."""
    for key, value in fields.given.items():
        if key in map(fields.own, known) or is_inert(key) or fields.is_default(key) or value in (None, False, [], {}):
            continue
        if fields.is_of_class(key) or key in _named_somewhere():
            raise AttncalcError(f"{key} {shown(repr(value))}: not modelled for {name}", TIP)


@cache
def _named_somewhere() -> frozenset[str]:
    """The fields that some family's rules name: one that turns up elsewhere may matter there too."""
    return frozenset(name for rules in families().values() for name in names_in(rules))


def _version() -> str:
    return "5.23"


__all__ = ["ConfigClass", "document", "families", "refused"]
