"""The keys of a model file, as JSON Schema.

`attncalc presets schema` writes them to `presets/model.schema.json`, which files are checked
against. The keys of attention are the fields of the attention kinds; `schemas/model.yaml` has the
others. `schema` imports every kind, so that a command which loads one preset uses `kind_keys` of
the preset's own kinds instead.
"""

import dataclasses
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..attention import KINDS, SHAPES, Chunked, Sliding
from ..mlp import Mlp
from ..model import MAX_LAYERS, ModelSpec, Stack
from ..quantity import COUNT
from ..units import DTYPES
from .data_files import file_content

Schema = dict[str, Any]

# Kinds of layers that a model may have; a model of NVIDIA's architecture search (nemotron-nas) has
# some dozens.
_MAX_KINDS = 256
_WRITTEN: Mapping[str, Any] = file_content(Path(__file__).parent / "schemas", "model")
_TYPES: dict[str, Schema] = {
    **_WRITTEN["types"],
    "count": dict(COUNT),
    "shapes": dict(SHAPES),
    "vectors": {key: schema for key, schema in SHAPES.items() if key != "propertyNames"},
    "n_layers": {"type": "integer", "minimum": 1, "maximum": MAX_LAYERS},
    "dtype": {"enum": [name for name, dtype in DTYPES.items() if dtype.group is None]},
}


def _keys(section: Mapping[str, Any]) -> dict[str, Schema]:
    """Return the schemas of the keys in a section of `schemas/model.yaml`."""
    declared: dict[str, Schema] = {}
    for spec in (ModelSpec, Stack, Sliding, Chunked, Mlp):
        declared |= _fields(spec)
    return {name: _key(written) if written else declared[name] for name, written in section.items()}


def _key(written: Any) -> Schema:
    """Return the schema of a line with a type and a meaning, or of JSON Schema with such lines."""
    if isinstance(written, str):
        kind, _, meaning = written.partition(" ")
        if "|" in kind:
            return {"description": meaning, "enum": kind.split("|")}
        return {"description": meaning, **_TYPES[kind]}
    schema: Schema = {}
    for name, value in written.items():
        if name == "properties":
            schema[name] = _keys(value)
        elif isinstance(value, dict):
            schema[name] = _key(value)
        else:
            schema[name] = value
    return schema


@cache
def _fields(spec: type) -> dict[str, Schema]:
    """Return the documented fields of a dataclass as keys; their descriptions name the default."""
    keys = {}
    for field in dataclasses.fields(spec):
        if "schema" in field.metadata:
            meaning = field.metadata["meaning"]
            left_out = field.metadata["left_out"]
            description = f"{meaning} (default: {left_out})" if left_out else meaning
            keys[field.name] = {"description": description, **field.metadata["schema"]}
    return keys


def _merge_kinds(keys_by_kind: Mapping[str, dict[str, Schema]]) -> dict[str, Schema]:
    """Return the keys of all kinds of attention.

    A key whose meaning differs between kinds lists each meaning with the kinds that have it:
    "grouped, latent: width of a value head; delta: width of a value head and of its state".
    """
    merged: dict[str, Schema] = {}
    meanings: dict[str, dict[str, list[str]]] = {}
    for kind, keys in keys_by_kind.items():
        for key, schema in keys.items():
            if {**merged.setdefault(key, schema), "description": ""} != {
                **schema,
                "description": "",
            }:
                raise TypeError(
                    f"'{key}' allows other values in {kind} attention than in another kind"
                )
            meanings.setdefault(key, {}).setdefault(schema["description"], []).append(kind)
    for key, kinds_by_meaning in meanings.items():
        if len(kinds_by_meaning) > 1:
            description = "; ".join(
                f"{', '.join(kinds)}: {meaning}" for meaning, kinds in kinds_by_meaning.items()
            )
            merged[key] = {**merged[key], "description": description}
    return merged


def kind_keys(name: str) -> dict[str, Schema]:
    return _fields(KINDS[name])


def is_stack_key(key: str) -> bool:
    """Return whether a decoder or an encoder may have the key; keys of layers are included."""
    return key not in _WRITTEN["model"] and key != "encoder"


def is_layer_key(key: str) -> bool:
    """Return whether a layer may have the key: it belongs to a kind of attention, an MLP or the
    norms.
    """
    return is_stack_key(key) and key not in _WRITTEN["stack"] and key != "layer_kinds"


def keys_of_layer(kind: str) -> tuple[str, ...]:
    """Return the keys that a layer with that kind of attention may have, in the schema's order."""
    return ("attention", *kind_keys(kind), *_WRITTEN["layer"])


@cache
def layer_keys() -> dict[str, Schema]:
    # the page has no docstrings
    meanings = {}
    for name, kind in KINDS.items():
        summary = (kind.__doc__ or "").partition("\n\n")[0]
        meanings[name] = " ".join(summary.split()).rstrip(".")
    kinds = "; ".join(f"{name}: {meaning}" for name, meaning in meanings.items())
    return {
        "attention": {
            "description": f"kind of attention. {kinds} (default: grouped)",
            "enum": list(KINDS),
        },
        **_merge_kinds({name: kind_keys(name) for name in KINDS}),
        **_keys(_WRITTEN["layer"]),
    }


@cache
def schema() -> Schema:
    kinds = {
        "description": "the kinds of layers that pattern names, each with the keys in which it "
        "differs",
        "type": "object",
        "maxProperties": _MAX_KINDS,
        "propertyNames": SHAPES["propertyNames"],
        "additionalProperties": {
            "type": "object",
            "properties": layer_keys(),
            "additionalProperties": False,
        },
    }
    of_stack = {**_keys(_WRITTEN["stack"]), "layer_kinds": kinds, **layer_keys()}
    encoder = {
        "description": "makes the model an encoder-decoder: the keys in which the encoder differs",
        "type": "object",
        "properties": of_stack,
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "attncalc model",
        "description": "A model file of attncalc. Top-level keys describe the decoder, or the "
        "only stack.",
        "type": "object",
        "required": ["d_model", "n_layers", "norm"],
        "additionalProperties": False,
        "properties": {**_keys(_WRITTEN["model"]), **of_stack, "encoder": encoder},
    }
