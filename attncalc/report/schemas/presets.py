"""The schema of `attncalc presets --json`."""

from __future__ import annotations

from ...units import BYTES, PARAMS, TOKENS
from .parts import MODEL_FACTS, NOTHING, amount, document, figures, layer, size, text, texts

_FIGURES = {
    "params_total": size(PARAMS, "all parameters"),
    "kv_cache_per_token_max": size(BYTES, "what a token adds to the cache until a window is full"),
    "max_context": size(TOKENS, "the model's own maximum context", "if it has none"),
}
_PRESET = {
    **MODEL_FACTS,
    "family": text("the family by which the list is grouped"),
    "repositories": texts("repositories on the Hugging Face hub that it is found by"),
}
SCHEMA = document(
    "presets",
    "The built-in models.",
    results=figures("the number of presets", {"presets": amount("presets")}),
    layers=layer("a preset", _PRESET, figures("its figures", _FIGURES)),
    model=NOTHING,
    workload=NOTHING,
)
