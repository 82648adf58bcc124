"""The schema of `attncalc memory --json`."""

from __future__ import annotations

from ...cost.kernels import KERNELS
from ..memory import FIGURES
from .attention import DEFINITIONS
from .parts import choice, document, fields, figures, layer, listed, ref, text, texts, whole

_SHAPE = {"type": "integer", "minimum": 1}
_LAYER = {
    "name": text("name of the kind of layer"),
    "layers": whole("number of layers", 1),
    "part": choice("which attention of the layer", "self", "cross"),
    "attention": ref("attention", "the attention"),
    "score_shape": listed("shape of the score matrix: batch, query heads, queries, keys", _SHAPE),
    "output_shape": listed("shape of the output", _SHAPE),
    "live_at_peak": fields(
        "names of the tensors held at the peak of each kernel", {kernel: texts(f"with {kernel}") for kernel in KERNELS}
    ),
}
SCHEMA = document(
    "memory",
    "The activation memory of one attention layer: its score matrix, and its peak by kernel.",
    results=figures("the figures of the layer with the largest score matrix", FIGURES),
    layers=layer("the attention of a kind of layer", _LAYER, figures("its figures", FIGURES)),
    definitions=DEFINITIONS,
)
