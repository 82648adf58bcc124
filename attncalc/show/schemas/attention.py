"""The facts of every kind of attention, as their classes declare them."""

import dataclasses
from typing import Any

from ...attention import KINDS
from ...search import grouped

# Fields of the kinds that JSON does not have.
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
# Fields of which JSON has a list.
_LISTS = ("bias", "position_products")


def _fact(field: dataclasses.Field[Any], meaning: str) -> dict[str, Any]:
    if field.name in _LISTS:
        return {"description": meaning, "type": "array", "items": {"type": "string"}}
    # A size has no maximum here: the d_head of `--attention mha` in place of MLA is the sum of two
    # widths.
    schema = {"description": meaning, **field.metadata["schema"]}
    schema.pop("maximum", None)
    if field.default is None:
        schema["description"] += "; null if it does not apply"
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
        if "type" in schema:
            schema["type"] = [schema["type"], "null"]
    return schema


def _facts() -> dict[str, dict[str, Any]]:
    """Return {name of a fact: its schema}; a fact whose meaning differs between kinds has all its
    meanings.
    """
    declared: list[dataclasses.Field[Any]] = []
    for kind in KINDS.values():
        declared += dataclasses.fields(kind)  # type: ignore[arg-type]
    facts = {}
    for name, fields in grouped((field.name, field) for field in declared).items():
        with_schema = [field for field in fields if "schema" in field.metadata]
        if with_schema and name not in _HIDDEN:
            meanings = dict.fromkeys(field.metadata["meaning"] for field in with_schema)
            facts[name] = _fact(with_schema[0], "; or ".join(meanings))
    return facts


FACTS = _facts()
