"""The schema of `attncalc fit --log --json` for a failed start whose model is unknown."""

from __future__ import annotations

from . import parts as p
from .fit import REFUSAL, VERSION

SCHEMA = p.document(
    "diagnosis",
    "Why an engine did not start, by its log alone: a log often does not name its model.",
    results={"description": "empty: nothing is computed without a model", "type": "array", "maxItems": 0},
    layers=p.NOTHING,
    model=p.NOTHING,
    extra={
        "fits": p.flag("false"),
        "agrees": p.flag("false"),
        "engine": p.text("the engine"),
        "engine_version": VERSION,
        "gpu": p.or_null(p.text("name of the GPU"), "if the log does not have it"),
        "refusal": p.fields("why the engine did not start, by its log", REFUSAL),
    },
)
