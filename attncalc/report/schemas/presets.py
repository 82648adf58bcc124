"""The schema of `attncalc presets --json`."""

from __future__ import annotations

from ..presets import FIGURES, OF_PRESETS
from .parts import MODEL_FACTS, NOTHING, document, figures, layer, text, texts

_PRESET = {
    **MODEL_FACTS,
    "family": text("the family by which the list is grouped"),
    "repositories": texts("repositories on the Hugging Face hub that it is found by"),
}
SCHEMA = document(
    "presets",
    "The built-in models.",
    results=figures("the number of presets", FIGURES),
    layers=layer("a preset", _PRESET, figures("its figures", OF_PRESETS)),
    model=NOTHING,
    workload=NOTHING,
)
