"""The schema of `attncalc presets families --json`."""

from __future__ import annotations

from .parts import NOTHING, amount, document, fields, figures, named_values, texts

_FIGURES = {
    "families_read": amount("supported model_types"),
    "families_refused": amount("model_types that are not supported"),
}
SCHEMA = document(
    "families",
    "The supported model_types of a config.json.",
    results=figures("the numbers of model_types", _FIGURES),
    layers=fields("never present", {}),
    model=NOTHING,
    workload=NOTHING,
    extra={
        "read": texts("the supported model_types"),
        "refused": named_values("why each other model_type is not supported", {"type": "string"}),
    },
)
