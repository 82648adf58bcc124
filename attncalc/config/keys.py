"""The keys of a model file: one table, from which the JSON Schema is written and files are checked.

`presets/model.schema.json` is this table in JSON, written by `attncalc presets schema`. The
keys of attention are the fields of the attention kinds; those of all kinds are gathered only to check a
file, since a preset that is read needs its own kinds' alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any

from ..attention import KINDS, SHAPES, Chunked, Sliding
from ..mlp import Mlp
from ..model import ModelSpec, Stack
from ..quantity import COUNT
from ..units import DTYPES

Schema = dict[str, Any]

TEXT: Schema = {
    "type": "string",
    "pattern": r"^[^\x00-\x1f\x7f-\x9f]*[^\x00-\x20\x7f-\xa0][^\x00-\x1f\x7f-\x9f]*$",
    "$comment": "is not one line of text",
}
MOST_LAYERS = 10_000
_YES: Schema = {"type": "boolean"}
_NAME = "[a-z][a-z0-9_]*"


def _key(schema: Mapping[str, Any], meaning: str, left_out: str = "") -> Schema:
    described = f"{meaning} (left out: {left_out})" if left_out else meaning
    return {"description": described, **schema}


def _fields(spec: type, *only: str) -> dict[str, Schema]:
    """The documented fields of a dataclass as keys: all, or `only` some."""
    found = {
        f.name: _key(f.metadata["schema"], f.metadata["meaning"], f.metadata["left_out"])
        for f in dataclasses.fields(spec)
        if "schema" in f.metadata
    }
    return {name: found[name] for name in only or found}


def _of_kinds(kinds: Mapping[str, dict[str, Schema]]) -> dict[str, Schema]:
    """The keys of all kinds; one that means something else to another kind says both."""
    found: dict[str, Schema] = {}
    for name, keys in kinds.items():
        for key, schema in keys.items():
            known = found.get(key, schema)
            if known == schema:
                found[key] = schema
                continue
            if {**known, "description": ""} != {**schema, "description": ""}:
                raise TypeError(f"'{key}' allows other values in {name} attention than in another kind")
            first = next(n for n in kinds if key in kinds[n])
            found[key] = {**schema, "description": f"{first}: {known['description']}; {name}: {schema['description']}"}
    return found


@cache
def kind_keys(name: str) -> dict[str, Schema]:
    """The keys of a kind of attention."""
    return _fields(KINDS[name])


_OF_LAYERS: dict[str, Schema] = {
    **_fields(Sliding),
    **_fields(Chunked),
    "mlp": _key({"enum": ["plain", "gated", "none"]}, "plain = up and down, gated = gate, up and down", "plain"),
    **_fields(Mlp),
    "mlp_bias": _key(_YES, "biases in the MLP"),
    "router_bias": _key(_YES, "one more value an expert in the router: a bias or a score correction"),
    "extra_matrices": {
        "description": "further matrices of a layer that multiply every token, by name: [rows, columns]",
        **SHAPES,
    },
    "extra_vectors_per_layer": {
        "description": "further vectors of a layer, which multiply nothing, by name: their shape",
        **SHAPES,
    },
    "shares_weights": _key(_YES, "the weights are those of layers that another kind counts (ALBERT, Zamba)"),
    "norms_per_layer": _key({"type": "integer", "minimum": 0}, "norms of a layer, beside one for cross-attention", "2"),
}

_OF_STACKS: dict[str, Schema] = {
    **_fields(Stack, "d_model"),
    "n_layers": _key({"type": "integer", "minimum": 1, "maximum": MOST_LAYERS}, "layers"),
    "pattern": _key(
        {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "string",
                "pattern": f"^([1-9][0-9]{{0,4}} )?{_NAME}$",
                "$comment": "does not name a kind of layer, as 'local' or '5 local' does",
            },
        },
        "kinds of layers in order, repeated until n_layers are filled; '5 local' is five in a row",
    ),
    "norm": _key({"enum": ["rmsnorm", "layernorm"]}, "rmsnorm = a gain, layernorm = a gain and a bias"),
    "final_norm": _key(_YES, "a norm after the last layer", "true"),
    "embedding_norm": _key(_YES, "a norm after the embedding", "false"),
    **_fields(Stack, "learned_positions", "relative_position_buckets"),
    "max_context": _key(COUNT, "the longest context the model was made for", "learned_positions"),
}

_OF_MODELS: dict[str, Schema] = {
    "title": _key(TEXT, "the model's name as people write it"),
    "sources": _key(
        {"type": "array", "minItems": 1, "items": TEXT},
        "where its facts are from: a paper and its table, a config, a file of code",
    ),
    "notes": _key(
        {"type": "array", "items": TEXT},
        "what a reader of its figures must know: every screen prints it",
    ),
    "assumed": _key(TEXT, "what every figure rests on that nobody has said: every screen starts with it"),
    "model_type": _key(
        {
            "type": "string",
            "pattern": r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
            "$comment": "is no model_type, as 'llama' or 'gemma3_text' is",
        },
        "what its config.json calls it, where an engine decides by it (SGLang, of windows)",
    ),
    "weights_dtype": _key(
        {"type": "string", "enum": ["fp8", "int8", "int4", "fp4", "mxfp4"]},
        "what its files keep the matrices of attention and MLPs in, where that is not dtype: fit takes it",
    ),
    "experts_dtype": _key(
        {"type": "string", "enum": ["fp8", "int8", "int4", "fp4", "mxfp4"]},
        "what its files keep the matrices of routed experts in, where they alone are not in dtype: fit takes it",
    ),
    "mask": _key({"enum": ["causal", "bidirectional"]}, "bidirectional for an encoder", "causal"),
    **_fields(ModelSpec),
    "tied_embeddings": _key(_YES, "the lm head uses the embedding's matrix", "false"),
    "head": _key({"enum": ["lm", "pooler", "none"]}, "what follows the last layer", "lm"),
    "head_bias": _key(_YES, "a bias in the lm head"),
    "extra_params": {
        "description": "parameter tensors outside all of this, by name and shape",
        "type": "object",
        "additionalProperties": {"type": "array", "minItems": 1, "items": dict(COUNT)},
    },
    "outside_matrices": {
        "description": "matrices outside the layers that multiply every token, counted with the head: "
        "[rows, columns] by name",
        **SHAPES,
    },
    "first_matrices": {
        "description": "matrices outside the layers that multiply one token a sequence (a classifier), counted "
        "with the head: [rows, columns] by name",
        **SHAPES,
    },
    "dtype": _key({"enum": [d for d in DTYPES if DTYPES[d].group is None]}, "dtype it is released in", "fp16"),
}


def is_stack_key(key: str) -> bool:
    """A key that a decoder or an encoder may have, its layers' keys included."""
    return key not in _OF_MODELS and key != "encoder"


def is_layer_key(key: str) -> bool:
    """A key that a layer may have: that of a kind of attention, or of its MLP and norms."""
    return is_stack_key(key) and key not in _OF_STACKS and key != "layer_kinds"


def keys_of_layer(kind: str) -> tuple[str, ...]:
    """The keys that a layer of that kind of attention may have, in the schema's order."""
    return ("attention", *kind_keys(kind), *_OF_LAYERS)


@cache
def layer_keys() -> dict[str, Schema]:
    """The keys of layers of every kind."""
    words = "; ".join(f"{name}: {(kind.__doc__ or '').splitlines()[0]}" for name, kind in KINDS.items())
    return {
        "attention": _key({"enum": list(KINDS)}, f"kind of attention. {words}", "grouped"),
        **_of_kinds({name: kind_keys(name) for name in KINDS}),
        **_OF_LAYERS,
    }


@cache
def schema() -> Schema:
    """The whole of it, as JSON Schema."""
    kinds = {
        "description": "the kinds that the pattern names, each with the keys in which it differs",
        "type": "object",
        "propertyNames": {"pattern": f"^{_NAME}$"},
        "additionalProperties": {"type": "object", "properties": layer_keys(), "additionalProperties": False},
    }
    of_stack = {**_OF_STACKS, "layer_kinds": kinds, **layer_keys()}
    encoder = {
        "description": "makes it an encoder-decoder; the keys in which the encoder differs",
        "type": "object",
        "properties": of_stack,
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "attncalc model",
        "description": "A model as attncalc reads it. Top-level keys are of the decoder, or the only stack.",
        "type": "object",
        "required": ["title", "sources", "d_model", "n_layers", "norm"],
        "additionalProperties": False,
        "properties": {**_OF_MODELS, **of_stack, "encoder": encoder},
    }
