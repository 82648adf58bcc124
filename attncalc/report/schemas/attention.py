"""The schemas of layers: the facts of every kind of attention, from the fields of their classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ...attention import KINDS
from ..figures import FigureRow
from .parts import Properties, Schema, document, fields, figures, layer, or_null, ref, text, texts, whole

Rows = Sequence[Mapping[str, FigureRow] | FigureRow]

_HIDDEN = (
    "d_input",
    "extra_projections",
    "extra_states",
    "extra_vectors",
    "position_bias",
    "position_rows_grow",
    "repeats_kv",
    "shares_position_projections",
)
"""Fields of the kinds that JSON does not have."""
_LISTS = ("bias", "position_products")
"""Fields of which JSON has a list."""


def _facts() -> Properties:
    """Return the facts of all kinds; a fact whose meaning differs between kinds has all its meanings."""
    known: dict[str, dataclasses.Field[Any]] = {}
    meanings: dict[str, list[str]] = {}
    for kind in KINDS.values():
        for field in dataclasses.fields(kind):  # type: ignore[arg-type]
            if "schema" in field.metadata and field.name not in _HIDDEN:
                known.setdefault(field.name, field)
                meanings.setdefault(field.name, []).append(field.metadata["meaning"])
    facts = {name: _fact(field, "; or ".join(dict.fromkeys(meanings[name]))) for name, field in known.items()}
    return {"span": text("the tokens that a query attends to: 'full', 'window 1,024'"), **facts}


def _fact(field: dataclasses.Field[Any], meaning: str) -> Schema:
    if field.name in _LISTS:
        return texts(meaning)
    # A size has no maximum here: the d_head of `--attention mha` in place of MLA is the sum of two widths.
    schema = {"description": meaning, **field.metadata["schema"]}
    schema.pop("maximum", None)
    return or_null(schema, "if it does not apply") if field.default is None else schema


ATTENTION = fields(
    "the facts of a kind of attention: its kind, and those of the other keys that apply to it",
    {"kind": text("the kind: MHA, GQA, MQA, MLA, Mamba-2, ...")},
    _facts(),
)
DEFINITIONS = {"attention": ATTENTION}
"""What a document defines whose layers have attention."""
_LAYER_GROUP = {
    "name": text("name of the kind of layer"),
    "stack": text("decoder or encoder"),
    "layers": whole("number of layers", 1),
    "attention": ref("attention", "the layers' attention, or what they have instead"),
    "cross_attention": {
        "description": "the layers' cross-attention; null without it",
        "oneOf": [ref("attention"), {"type": "null"}],
    },
    "mlp": or_null(text("the layers' MLP in words"), "without one"),
}


def of_layer_groups(command: str, meaning: str, whole_model: Rows, of_layers: Rows) -> Schema:
    """Return the schema of a command that answers for the whole model, and for each kind of layer."""
    return document(
        command,
        meaning,
        results=figures("the figures of the whole model", *whole_model),
        layers=layer("a kind of layer", _LAYER_GROUP, figures("its figures", *of_layers)),
        definitions=DEFINITIONS,
    )
