"""The schema of `attncalc sweep --json`."""

from __future__ import annotations

from . import schema_name
from .parts import UNITS, Schema, choice, fields, listed, or_null, schema_document, text

_CELL: Schema = {"type": ["number", "string", "boolean", "null"]}
_COLUMN = fields(
    "a key of a row",
    {"name": text("its name"), "unit": choice("its unit; '' for a number without one, null for text", *UNITS, None)},
)
_ROW: Schema = {
    "description": "a cell: the axes that vary and the figures, by the names in `columns`; one that does not apply is "
    "null",
    "type": "object",
    "required": ["error"],
    "properties": {"error": or_null(text("why the cell has no figures"), "if it has")},
    "additionalProperties": _CELL,
}
SCHEMA = schema_document(
    "sweep",
    "A row for every combination of models, contexts, GPUs and other options.",
    {
        "schema": {"description": "the command and the version of its contract", "const": schema_name("sweep")},
        "attncalc": text("the version of attncalc"),
        "axes": {
            "description": "the axes that were given, by their names, each with its values",
            "type": "object",
            "required": ["model"],
            "additionalProperties": {"type": "array", "items": {"type": ["number", "string"]}, "minItems": 1},
        },
        "columns": listed("the keys of a row, in order", _COLUMN),
        "rows": listed("the cells, of which the last axis changes first", _ROW),
    },
    {},
)
