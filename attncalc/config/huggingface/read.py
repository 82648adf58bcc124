"""config.json -> Document: find the family, evaluate its rules layer by layer, refuse what they do not cover."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...attention import KINDS
from ...attention.recurrent import Recurrent
from ...errors import AttncalcError
from ...units import truncate
from ..document import Document
from ..keys import MOST_LAYERS, is_layer_key, is_stack_key, keys_of_layer
from .families import TIP, Family, architecture, family_of, listed
from .fields import Fields, version
from .layers import Layer, laid_out
from .rules import kinds_of, names_in, value_of
from .unused_fields import unread
from .validate import refuse_odd

NOT_KEYS = (
    "like",
    "kind",
    "kinds",
    "require",
    "text",
    "text_defaults",
    "flat",
    "heads",
    "variants",
    "encoder",
    "note",
    "inert",
    "refused",
    "part",
    "fields",
)
"""What a family says beside the keys of a model file."""
DTYPE_FIELDS = ("dtype", "torch_dtype")
LM_HEADS = ("ForCausalLM", "LMHeadModel", "MTModel", "ForConditionalGeneration")
"""How the classes of language models with a head are called."""


def document(config: Mapping[str, Any], file: str, *, title: str = "", assume_grouped: bool = False) -> Document:
    """The model file that says what `config` says.

    title: what the model is called if the config does not say. assume_grouped: an unknown model_type is
    read as plain grouped attention. AttncalcError: its model_type is not known; a field is missing, is
    contradicted by another, or changes the figures in a way that is not modelled here. The message names
    the field and its value.
    """
    try:
        family = family_of(config, assume_grouped)
        data = {"title": _title(family, title), **_data(family)}
        if not family.assumed:
            data["model_type"] = str(config["model_type"])
        if packed := _released(family.fields):
            data[packed.key] = packed.dtype
        left = list(unread(family.rules, family.fields, data["n_layers"]))
        if family.source:
            left += unread(family.rules, family.source, data["encoder"]["n_layers"])
        if family.assumed:
            return Document(file, {**data, **_assumption(family, left)}, {})
        for key in left:
            holder = family.fields if key in family.fields.given else family.source or family.fields
            value = truncate(repr(holder.given[key]))
            raise AttncalcError(f"{key} {value}: not modelled for {family.name}", TIP)
    except AttncalcError as error:
        raise AttncalcError(f"{file}: {error.message}", error.tip) from None
    return Document(file, data, {})


def _assumption(family: Family, unread: Sequence[str]) -> dict[str, Any]:
    """The keys that mark every figure as resting on an assumption, and what was not looked at."""
    assumed = f"model_type '{truncate(family.name)}' read as plain grouped attention"
    left = f" Not looked at: {truncate(', '.join(unread), 300)}." if unread else ""
    return {"assumed": assumed + "." + left}


def _data(family: Family) -> dict[str, Any]:
    """The keys of the model file. AttncalcError: what the fields say cannot be, or is not modelled."""
    name, rules, fields = family.name, family.rules, family.fields
    refuse_odd(fields, names_in(rules))
    for requirement in rules.get("require", ()):
        if not value_of(requirement, fields):
            around = re.findall(r'top\["(\w+)"\]', requirement)
            said = {
                **{key: fields[key] for key in names_in(requirement)},
                **{key: (fields.around or fields)[key] for key in around},
            }
            read = ", ".join(f"{key} {truncate(repr(value))}" for key, value in said.items())
            raise AttncalcError(f"{read}: not modelled for {name}", TIP)
    top = {key: value_of(rule, fields) for key, rule in rules.items() if key not in NOT_KEYS and not _of_layer(key)}
    for key, value in _head(rules, fields).items():
        both = isinstance(value, Mapping) and isinstance(top.get(key), Mapping)
        top[key] = {**top[key], **value} if both else value
    data: dict[str, Any] = {
        "sources": [_source(family)],
        **{key: value for key, value in top.items() if value is not None and _of_stack(key)},
    }
    data.update(_layers(rules, fields, _n_layers(top["n_layers"])))
    if "encoder" in rules:
        data["encoder"], extra = _encoder(rules, fields, family.source)
        _keep_apart(data, data["encoder"])
        top["extra_params"] = {**(top.get("extra_params") or {}), **extra}
    data.update({key: _filled(value) for key, value in top.items() if not _of_stack(key)})
    notes = [str(value_of(note, fields)) for note in listed(rules.get("note")) if value_of(note, fields)]
    data["notes"] = [*notes, *_remarks(rules, fields)]
    data["dtype"] = _dtype(fields)
    return {key: value for key, value in data.items() if value not in (None, [], {})}


def _encoder(rules: Mapping[str, Any], fields: Fields, source: Fields | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keys of the encoder: its rules on the same fields, or all rules on its own; and its tensors outside."""
    inner = {**rules, **rules["encoder"]}
    said, fields = (inner, source) if source else (rules["encoder"], fields)
    if source:
        refuse_odd(source, names_in(rules))
    own = {k: value_of(r, fields) for k, r in said.items() if _of_stack(k) and not _of_layer(k)}
    layers = _layers(inner, fields, _n_layers(own["n_layers"]))
    extra = value_of(rules["encoder"].get("extra_params", {}), fields)
    return {**{key: value for key, value in own.items() if value is not None}, **layers}, extra


def _keep_apart(decoder: dict[str, Any], encoder: Mapping[str, Any]) -> None:
    """Say of the decoder's layers alone what does not hold for all of the encoder's, which inherits the rest."""
    kinds = encoder.get("layer_kinds", {}).values()
    alone = [
        key
        for key in decoder
        if _of_layer(key) and key not in encoder and not (kinds and all(key in kind for kind in kinds))
    ]
    if alone:
        decoder.setdefault("pattern", ["layers"])
        own = {key: decoder.pop(key) for key in alone}
        decoder["layer_kinds"] = {
            kind: {**own, **keys} for kind, keys in decoder.get("layer_kinds", {"layers": {}}).items()
        }


def _of_stack(key: str) -> bool:
    return key not in NOT_KEYS and is_stack_key(key)


def _of_layer(key: str) -> bool:
    return key not in NOT_KEYS and is_layer_key(key)


def _title(family: Family, title: str) -> str:
    """What the file calls itself, where that is org/name and not a path on somebody's machine."""
    said = str((family.fields.around or family.fields).given.get("_name_or_path") or "")
    named = said.count("/") == 1 and not said.startswith((".", "/"))
    return truncate(said) if named else title or family.name


def _source(family: Family) -> str:
    if family.assumed:
        return f"its config.json, whose model_type '{truncate(family.name)}' is not known"
    return f"its config.json, read as transformers {version()}'s {family.name}"


def _n_layers(value: Any) -> int:
    if type(value) is not int or not 1 <= value <= MOST_LAYERS:
        raise AttncalcError(
            f"{truncate(repr(value))} layers", f"the number of layers is a whole number from 1 to {MOST_LAYERS:,}"
        )
    return value


def _head(rules: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    """What the class named by `architectures` has after the last layer, where that changes it."""
    named = architecture((fields.around or fields).given)
    for ending, keys in rules.get("heads", {}).items():
        if named.endswith(ending):
            return {key: value_of(rule, fields) for key, rule in keys.items()}
    headless = named.endswith("Model") and not named.endswith(LM_HEADS) and rules.get("head") != "pooler"
    if headless or _is_other_head(rules, named):
        return {"head": "none", "tied_embeddings": None, "head_bias": None}
    return {}


def _is_other_head(rules: Mapping[str, Any], named: str) -> bool:
    """The class has a head that is neither a language model's nor among the family's heads."""
    base = named.endswith("Model") and not re.search("For[A-Z]", named)
    return bool(named) and not base and not named.endswith((*rules.get("heads", ()), *LM_HEADS))


def _filled(value: Any) -> Any:
    """A table of tensors without those that the config leaves out."""
    return {name: item for name, item in value.items() if item is not None} if isinstance(value, Mapping) else value


def _layers(rules: Mapping[str, Any], fields: Fields, n_layers: int) -> dict[str, Any]:
    """The keys of the layers: of all alike, or a pattern and its kinds."""
    made: list[Layer] = []
    for i in range(n_layers):
        own = fields.layer(i)
        names = kinds_of(rules, own, i)
        overlaid: dict[str, Any] = {key: rule for key, rule in rules.items() if _of_layer(key)}
        for kind in names:
            if kind not in rules["kinds"]:
                allowed = ", ".join(rules["kinds"])
                raise AttncalcError(
                    f"layer {i}: '{truncate(kind)}' is not a layer that is modelled", f"known: {allowed}"
                )
            overlaid.update(rules["kinds"][kind] or {})
        values = {key: value_of(overlaid[key], own, i=i) for key in _relevant(overlaid, own, i)}
        for key in ("window", "chunk"):
            if key in values and values[key] is None:
                raise AttncalcError(
                    f"layer {i}: {names[0]} without a {key}", "the config lacks a field, or switches it off"
                )
        made.append((tuple(name.removesuffix("_attention") for name in names), _said(values)))
    return laid_out(made)


def _relevant(rules: Mapping[str, Any], fields: Fields, i: int) -> list[str]:
    """The keys that the layer's kind of attention and MLP has, in the table's order."""
    attention, mlp, experts = (value_of(rules.get(key), fields, i=i) for key in ("attention", "mlp", "n_experts"))
    drop = set()
    if issubclass(KINDS[attention], Recurrent):
        drop |= {"window", "chunk"}
    if mlp == "none":
        drop |= {"d_ff", "mlp_bias"}
    if mlp == "none" or not experts:
        drop |= {
            "n_experts",
            "n_experts_per_token",
            "n_shared_experts",
            "d_ff_shared",
            "router_bias",
            "d_router",
            "d_latent",
        }
    return [key for key in keys_of_layer(attention) if key in rules and key not in drop]


def _said(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without what a model file says by leaving it out."""
    return {key: value for key, value in values.items() if value is not None and value != [] and value is not False}


def _dtype(fields: Fields) -> str:
    outer = fields.around or fields
    name = next((f.given[key] for f in (outer, fields) for key in DTYPE_FIELDS if f.given.get(key)), None)
    name = "bfloat16" if name in (None, "auto") else str(name).removeprefix("torch.")
    known = {"float16": "fp16", "float32": "fp32", "bfloat16": "bf16"}
    if name not in known:
        raise AttncalcError(f"dtype '{truncate(name)}' is not modelled", f"known: {', '.join(known)}")
    return known[name]


class _Released(NamedTuple):
    """What matrices are kept in, and the key of a model file that says so."""

    key: str
    dtype: str


def _released(fields: Fields) -> _Released | None:
    """What quantization_config says the matrices are in; None for a scheme that is not that simple."""
    said = (fields.around or fields).given.get("quantization_config")
    if not isinstance(said, Mapping):
        return None
    method, bits, group = said.get("quant_method"), said.get("bits"), said.get("group_size")
    if method == "mxfp4":  # transformers' Mxfp4HfQuantizer exchanges GptOssExperts alone
        return _Released("experts_dtype", "mxfp4")
    if method == "fp8":
        return _Released("weights_dtype", "fp8")
    return _Released("weights_dtype", "int4") if method in ("awq", "gptq") and bits == 4 and group == 128 else None


def _remarks(rules: Mapping[str, Any], fields: Fields) -> Iterator[str]:
    """What a reader must know whatever the family."""
    outer = fields.around or fields
    if not any(f.given.get(key) for f in (outer, fields) for key in DTYPE_FIELDS):
        yield "The config names no dtype: bf16 is taken."
    if further := fields.given.get("num_nextn_predict_layers"):
        yield f"Layers that predict further tokens ({truncate(further)}, MTP) are not counted."
    if outer.given.get("quantization_config"):
        packed = _released(fields)
        what = "Experts" if packed and packed.key == "experts_dtype" else "Weights"
        how = f"in {packed.dtype}" if packed else "quantised"
        yield f"{what} are released {how}; their bytes are counted in the dtype that stands beside them."
    named = architecture(outer.given)
    if rules.get("mask") == "bidirectional" and not named:
        yield "The config names no class (architectures): the base model is counted, without a task's head."
    if _is_other_head(rules, named):
        yield f"The head of {truncate(named)} is not counted."
    towers = [key.removesuffix("_config") for key in ("vision_config", "audio_config") if outer.given.get(key)]
    if towers:
        yield f"The {' and '.join(towers)} tower is not counted."
