"""The schema of `attncalc fit --log --json` for a failed start whose model is unknown."""

from __future__ import annotations

from . import parts as p
from . import schema_name
from .fit import REFUSAL, VERSION

_EMPTY: p.Schema = {"description": "empty: nothing is computed without a model", "type": "array", "maxItems": 0}
SCHEMA = p.schema_document(
    "diagnosis",
    "Why an engine did not start, by its log alone: a log often does not name its model.",
    {
        "schema": {"description": "the answer and the version of its contract", "const": schema_name("diagnosis")},
        "attncalc": p.text("the version of attncalc"),
        "model": p.NOTHING,
        "workload": p.NOTHING,
        "results": _EMPTY,
        "values": p.VALUES,
        "layers": _EMPTY,
        "notes": p.NOTES,
        "fits": p.flag("false"),
        "agrees": p.flag("false"),
        "engine": p.text("the engine"),
        "engine_version": VERSION,
        "gpu": p.or_null(p.text("name of the GPU"), "if the log does not have it"),
        "refusal": p.fields("why the engine did not start, by its log", REFUSAL),
    },
    {},
)
