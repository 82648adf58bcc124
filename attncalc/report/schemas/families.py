"""The schema of `attncalc presets families --json`."""

from __future__ import annotations

from ..presets import OF_FAMILIES
from .parts import NOTHING, document, fields, figures, named_values, texts

SCHEMA = document(
    "families",
    "The supported model_types of a config.json.",
    results=figures("the numbers of model_types", OF_FAMILIES),
    layers=fields("never present", {}),
    model=NOTHING,
    workload=NOTHING,
    extra={
        "read": texts("the supported model_types"),
        "refused": named_values("why each other model_type is not supported", {"type": "string"}),
    },
)
