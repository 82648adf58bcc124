"""The schema of `attncalc presets families --json`."""

from __future__ import annotations

from ..presets import OF_FAMILIES
from . import parts as p

SCHEMA = p.document(
    "families",
    "The supported model_types of a config.json.",
    results=p.figures("the numbers of model_types", OF_FAMILIES),
    layers=p.fields("never present", {}),
    model=p.NOTHING,
    extra={
        "read": p.texts("the supported model_types"),
        "refused": p.named_values("why each other model_type is not supported", {"type": "string"}),
    },
)
