"""The schema of `attncalc params --json`."""

from __future__ import annotations

from ..checkpoint import STORED, STORED_DTYPE
from ..params import FIGURES, MATRIX, OF_LAYERS
from .attention import DEFINITIONS, LAYER_GROUP
from .parts import document, figures, layer

SCHEMA = document(
    "params",
    "The parameters of a model: attention by matrix, MLP, embedding, total.",
    results=figures("the figures of the whole model", {**FIGURES, **STORED}, MATRIX, STORED_DTYPE),
    layers=layer("a kind of layer", LAYER_GROUP, figures("its figures", OF_LAYERS, MATRIX)),
    definitions=DEFINITIONS,
)
