"""The schema of `attncalc sweep --json`."""

from __future__ import annotations

from . import parts as p
from . import schema_name

_CELL: p.Schema = {"type": ["number", "string", "boolean", "null"]}
_COLUMN = p.fields(
    "a key of a row",
    {
        "name": p.text("its name"),
        "unit": p.choice("its unit; '' for a number without one, null for text", *p.UNITS, None),
    },
)
_ROW: p.Schema = {
    "description": "a cell: the axes that vary and the figures, by the names in `columns`; one that does not apply is "
    "null",
    "type": "object",
    "required": ["error"],
    "properties": {"error": p.or_null(p.text("why the cell has no figures"), "if it has")},
    "additionalProperties": _CELL,
}
SCHEMA = p.schema_document(
    "sweep",
    "A row for every combination of models, contexts, GPUs and other options.",
    {
        "schema": {"description": "the command and the version of its contract", "const": schema_name("sweep")},
        "attncalc": p.text("the version of attncalc"),
        "axes": {
            "description": "the axes that were given, by their names, each with its values",
            "type": "object",
            "required": ["model"],
            "additionalProperties": {"type": "array", "items": {"type": ["number", "string"]}, "minItems": 1},
        },
        "columns": p.listed("the keys of a row, in order", _COLUMN),
        "rows": p.listed("the cells, of which the last axis changes first", _ROW),
    },
    {},
)
