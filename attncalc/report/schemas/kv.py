"""The schema of `attncalc kv --json`."""

from __future__ import annotations

from ..kv import FIGURES, OF_LAYERS
from .attention import DEFINITIONS, LAYER_GROUP
from .parts import document, figures, layer

SCHEMA = document(
    "kv",
    "The KV cache of a model: in total, per sequence and per token.",
    results=figures("the figures of the whole model", FIGURES),
    layers=layer("a kind of layer", LAYER_GROUP, figures("its figures", OF_LAYERS)),
    definitions=DEFINITIONS,
)
