"""The schema of `attncalc flops --json`."""

from __future__ import annotations

from ..flops import COMPLEXITY, FIGURES, GROWTH, OF_LAYERS
from .attention import DEFINITIONS, LAYER_GROUP
from .parts import document, figures, layer

SCHEMA = document(
    "flops",
    "The FLOPs of a prefill, a decode step or a training step.",
    results=figures("the figures of the whole model", {**FIGURES, **GROWTH, **COMPLEXITY}),
    layers=layer("a kind of layer", LAYER_GROUP, figures("its figures", OF_LAYERS)),
    definitions=DEFINITIONS,
)
