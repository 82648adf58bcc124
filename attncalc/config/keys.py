"""The keys of a model file, as JSON Schema.

`attncalc presets schema` writes them to `presets/model.schema.json`, which files are checked against. The keys of
attention are the fields of the attention kinds. `schema` imports every kind, so that a command which loads one preset
uses `kind_keys` of the preset's own kinds instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any

from ..attention import KINDS, SHAPES, Chunked, Sliding
from ..mlp import Mlp
from ..model import MAX_LAYERS, ModelSpec, Stack
from ..quantity import COUNT
from ..units import DTYPES

Schema = dict[str, Any]

TEXT: Schema = {
    "type": "string",
    "pattern": r"^[^\x00-\x1f\x7f-\x9f]*[^\x00-\x20\x7f-\xa0][^\x00-\x1f\x7f-\x9f]*$",
    "$comment": "is not one line of text",
}
_MAX_KINDS = 256
"""Kinds of layers that a model may have; a model of NVIDIA's architecture search (nemotron-nas) has some dozens."""
_BOOLEAN: Schema = {"type": "boolean"}
_TEXTS: Schema = {"type": "array", "items": TEXT}
_SOME_TEXTS: Schema = {"type": "array", "minItems": 1, "items": TEXT}
_QUANTIZED_DTYPES = ["fp8", "int8", "int4", "fp4", "mxfp4"]
_NAME = "[a-z][a-z0-9_]*"


def _key(schema: Mapping[str, Any], meaning: str, default: str = "") -> Schema:
    """Return the schema of a key with its description, which names the default."""
    description = f"{meaning} (default: {default})" if default else meaning
    return {"description": description, **schema}


def _size_from(minimum: int) -> Schema:
    """Return the schema of a size that every JSON reader represents exactly."""
    return {"type": "integer", "minimum": minimum, "maximum": 2**53 - 1}


_TOWER_ITEM_KEYS: dict[str, Schema] = {
    "tokens": _key(_size_from(1), "tokens of the language model"),
    "positions": _key(_size_from(0), "patches or frames in the tower"),
    "values": _key(_size_from(0), "values of one position in the tower's input"),
    "d_model": _key(_size_from(0), "width of the tower; 0 if it encodes one after another"),
    "d_inside": _key(_size_from(0), "elements per position of the largest tensors inside a layer"),
    "d_output": _key(_size_from(0), "elements of the output per token"),
    "repeats": _key(_size_from(1), "how many times as large a video may be, up to the context"),
}


def _of_towers(description: str, properties: Mapping[str, Schema], required: list[str]) -> Schema:
    return {
        "description": description,
        "type": "object",
        "propertyNames": {"pattern": f"^{_NAME}$"},
        "additionalProperties": {
            "type": "object",
            "properties": dict(properties),
            "additionalProperties": False,
            "required": required,
        },
    }


def _fields(spec: type, *names: str) -> dict[str, Schema]:
    """Return the documented fields of a dataclass as keys: those called `names`, or all."""
    keys = {
        f.name: _key(f.metadata["schema"], f.metadata["meaning"], f.metadata["left_out"])
        for f in dataclasses.fields(spec)
        if "schema" in f.metadata
    }
    return {name: keys[name] for name in names or keys}


def _merge_kinds(keys_by_kind: Mapping[str, dict[str, Schema]]) -> dict[str, Schema]:
    """Return the keys of all kinds of attention.

    A key whose meaning differs between kinds lists each meaning with the kinds that have it:
    "grouped, latent: width of a value head; delta: width of a value head and of its state".
    """
    merged: dict[str, Schema] = {}
    meanings: dict[str, dict[str, list[str]]] = {}
    for kind, keys in keys_by_kind.items():
        for key, schema in keys.items():
            if {**merged.setdefault(key, schema), "description": ""} != {**schema, "description": ""}:
                raise TypeError(f"'{key}' allows other values in {kind} attention than in another kind")
            meanings.setdefault(key, {}).setdefault(schema["description"], []).append(kind)
    for key, kinds_by_meaning in meanings.items():
        if len(kinds_by_meaning) > 1:
            description = "; ".join(f"{', '.join(kinds)}: {meaning}" for meaning, kinds in kinds_by_meaning.items())
            merged[key] = {**merged[key], "description": description}
    return merged


@cache
def kind_keys(name: str) -> dict[str, Schema]:
    return _fields(KINDS[name])


_COMMON_LAYER_KEYS: dict[str, Schema] = {
    **_fields(Sliding),
    **_fields(Chunked),
    "mlp": _key({"enum": ["plain", "gated", "none"]}, "plain MLPs have two matrices, gated ones three", "plain"),
    **_fields(Mlp),
    "mlp_bias": _key(_BOOLEAN, "whether the MLP has biases"),
    "router_bias": _key(_BOOLEAN, "whether the router has one more value per expert: a bias or a score correction"),
    "extra_matrices": {
        "description": "further matrices of a layer that multiply every token: {name: [rows, columns]}",
        **SHAPES,
    },
    "extra_vectors_per_layer": {
        "description": "further parameters of a layer that take no part in a matmul: {name: shape}",
        **SHAPES,
    },
    "lookup_tables": {
        "description": "tables of a layer of which each token reads a few rows: {name: [rows, columns]}",
        **SHAPES,
    },
    "short_convolutions": {
        "description": "what convolutions beside the attention cache per sequence: {name: [channels, tokens]}",
        **SHAPES,
    },
    "shares_weights": _key(
        _BOOLEAN, "whether the layers reuse the weights of another layer kind, where they are counted (ALBERT)"
    ),
    "norms_per_layer": _key({"type": "integer", "minimum": 0}, "norms per layer, but for cross-attention", "2"),
}

_STACK_KEYS: dict[str, Schema] = {
    **_fields(Stack, "d_model"),
    "n_layers": _key({"type": "integer", "minimum": 1, "maximum": MAX_LAYERS}, "number of layers"),
    "pattern": _key(
        {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "string",
                "pattern": f"^([1-9][0-9]{{0,4}} )?{_NAME}$",
                "$comment": "is not a kind of layer such as 'local' or '5 local'",
            },
        },
        "kinds of layers in order, repeated until there are n_layers; '5 local' is five in a row",
    ),
    "norm": _key({"enum": ["rmsnorm", "layernorm"]}, "rmsnorm has a gain, layernorm a gain and a bias"),
    "final_norm": _key(_BOOLEAN, "whether a norm follows the last layer", "true"),
    "embedding_norm": _key(_BOOLEAN, "whether a norm follows the embedding", "false"),
    **_fields(Stack, "learned_positions", "relative_position_buckets"),
    "max_context": _key(COUNT, "longest context that the model was made for, in tokens", "learned_positions"),
}

_COUNT_OR_ZERO: Schema = {"type": "integer", "minimum": 0, "maximum": 1_000_000}
_UP_TO_A_MILLION: Schema = {"type": "integer", "minimum": 1, "maximum": 1_000_000}
_SCHEME_KEYS: dict[str, Schema] = {
    "dtype": _key({"enum": _QUANTIZED_DTYPES}, "dtype of the elements"),
    "bits": _key(_UP_TO_A_MILLION, "bits of an element, or of `per` elements"),
    "per": _key(_UP_TO_A_MILLION, "elements that have `bits` together", "1"),
    "words": _key(TEXT, "its size in words, if the other keys do not say it"),
    "weight_only": _key(_BOOLEAN, "activations are not quantized: products run in the model's dtype", "false"),
    "group": _key(_COUNT_OR_ZERO, "inputs that share a scale; 0 = all inputs of an output", "0"),
    "block": _key(_COUNT_OR_ZERO, "outputs that share a scale; 0 = all of the matrix", "1"),
    "scale_bits": _key(_COUNT_OR_ZERO, "bits of a scale", "16"),
    "zero_bits": _key(_COUNT_OR_ZERO, "bits of a zero point", "0"),
    "row_bits": _key(_COUNT_OR_ZERO, "further bits per input (GPTQ's g_idx)", "0"),
    "fixed": _key(_COUNT_OR_ZERO, "further bytes per matrix", "0"),
    "targets": _key(_SOME_TEXTS, "modules that it covers", "all linear layers"),
}

_MODEL_KEYS: dict[str, Schema] = {
    "title": _key(TEXT, "name of the model for people", "the file's name"),
    "sources": _key(
        _SOME_TEXTS, "sources of the facts: a paper and its table, a config, a source file; built-in presets have them"
    ),
    "max_context_of": {
        "description": "longest contexts of releases with the same sizes that state another one: {org/name: tokens}",
        "type": "object",
        "additionalProperties": _size_from(1),
    },
    "notes": _key(_TEXTS, "what a reader of the figures must know; every screen prints it"),
    "assumed": _key(TEXT, "assumption behind every figure; every screen starts with it"),
    "model_type": _key(
        {
            "type": "string",
            "pattern": r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
            "$comment": "is not a model_type such as 'llama' or 'gemma3_text'",
        },
        "model_type of its config.json, from which some engines decide what to do (SGLang: sliding windows)",
    ),
    "weights_dtype": _key(
        {"type": "string", "enum": _QUANTIZED_DTYPES},
        "dtype of the attention and MLP matrices in the checkpoint, if it differs from dtype; fit uses it",
    ),
    "experts_dtype": _key(
        {"type": "string", "enum": _QUANTIZED_DTYPES},
        "dtype of the routed experts' matrices in the checkpoint, if only theirs differs from dtype; fit uses it",
    ),
    "quantization": {
        "description": "how the checkpoint stores quantized matrices: its schemes, and the modules that it leaves out",
        "type": "object",
        "required": ["method", "schemes"],
        "properties": {
            "method": _key(TEXT, "quant_method of its config.json"),
            "schemes": {
                "description": "schemes, those of single modules first; none if they cannot be read",
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": _SCHEME_KEYS,
                    "additionalProperties": False,
                    "required": ["dtype", "bits"],
                },
            },
            "ignored": _key(_TEXTS, "modules that are not quantized"),
            "names": _key(TEXT, "model_type whose class names the modules"),
        },
        "additionalProperties": False,
    },
    "unread_quantization": _key(TEXT, "quantization that attncalc cannot read; fit then needs --weights-dtype"),
    "kv_dtype": _key(
        {"type": "string", "enum": ["fp8", "fp4"]},
        "dtype of the cache that the checkpoint's quantization asks for; vLLM and SGLang use it",
        "dtype",
    ),
    "towers": {
        "description": "vision and audio towers with their projectors, which engines load with the model: "
        "{name: [parameters, those of them that tensor parallelism divides]}",
        "type": "object",
        "propertyNames": {"pattern": f"^{_NAME}$"},
        "additionalProperties": {"type": "array", "minItems": 2, "items": _size_from(0)},
    },
    "tower_items": _of_towers(
        "the largest image, video or sound that a tower encodes: vLLM measures its memory",
        _TOWER_ITEM_KEYS,
        [name for name in _TOWER_ITEM_KEYS if name != "repeats"],
    ),
    "tower_attention": _of_towers(
        "how tensor parallelism divides a tower's attention",
        {
            "heads": _key(_size_from(1), "attention heads of a layer"),
            "whole": _key(
                _size_from(0),
                "parameters that every device has if the devices do not divide the heads; without them the engine does "
                "not start then",
                "0",
            ),
        },
        ["heads"],
    ),
    "rope_tables": {
        "description": "tables of rotary positions that vLLM computes once and all layers share: {name: [rows, width]}",
        **SHAPES,
    },
    "mask": _key(
        {"enum": ["causal", "bidirectional"]}, "which tokens see each other; encoders are bidirectional", "causal"
    ),
    **_fields(ModelSpec),
    "tied_embeddings": _key(_BOOLEAN, "whether the lm head uses the embedding's matrix", "false"),
    "head": _key({"enum": ["lm", "pooler", "none"]}, "output head after the last layer", "lm"),
    "head_bias": _key(_BOOLEAN, "whether the lm head has a bias"),
    "extra_params": {
        "description": "further parameters outside the layers that take no part in a matmul: {name: shape}",
        "type": "object",
        "additionalProperties": {"type": "array", "minItems": 1, "items": dict(COUNT)},
    },
    "outside_matrices": {
        "description": "matrices outside the layers that multiply every token, counted with the head: "
        "{name: [rows, columns]}",
        **SHAPES,
    },
    "first_matrices": {
        "description": "matrices outside the layers that multiply one token per sequence (a classifier), counted "
        "with the head: {name: [rows, columns]}",
        **SHAPES,
    },
    "dtype": _key({"enum": [d for d in DTYPES if DTYPES[d].group is None]}, "dtype of the released weights", "fp16"),
}


def is_stack_key(key: str) -> bool:
    """Return whether a decoder or an encoder may have the key; keys of layers are included."""
    return key not in _MODEL_KEYS and key != "encoder"


def is_layer_key(key: str) -> bool:
    """Return whether a layer may have the key: it belongs to a kind of attention, an MLP or the norms."""
    return is_stack_key(key) and key not in _STACK_KEYS and key != "layer_kinds"


def keys_of_layer(kind: str) -> tuple[str, ...]:
    """Return the keys that a layer with that kind of attention may have, in the schema's order."""
    return ("attention", *kind_keys(kind), *_COMMON_LAYER_KEYS)


@cache
def layer_keys() -> dict[str, Schema]:
    kinds = "; ".join(f"{name}: {(kind.__doc__ or '').splitlines()[0].rstrip('.')}" for name, kind in KINDS.items())
    return {
        "attention": _key({"enum": list(KINDS)}, f"kind of attention. {kinds}", "grouped"),
        **_merge_kinds({name: kind_keys(name) for name in KINDS}),
        **_COMMON_LAYER_KEYS,
    }


@cache
def schema() -> Schema:
    """Return the JSON Schema of a model file."""
    kinds = {
        "description": "the kinds of layers that pattern names, each with the keys in which it differs",
        "type": "object",
        "maxProperties": _MAX_KINDS,
        "propertyNames": {"pattern": f"^{_NAME}$"},
        "additionalProperties": {"type": "object", "properties": layer_keys(), "additionalProperties": False},
    }
    of_stack = {**_STACK_KEYS, "layer_kinds": kinds, **layer_keys()}
    encoder = {
        "description": "makes the model an encoder-decoder: the keys in which the encoder differs",
        "type": "object",
        "properties": of_stack,
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "attncalc model",
        "description": "A model file of attncalc. Top-level keys describe the decoder, or the only stack.",
        "type": "object",
        "required": ["d_model", "n_layers", "norm"],
        "additionalProperties": False,
        "properties": {**_MODEL_KEYS, **of_stack, "encoder": encoder},
    }
