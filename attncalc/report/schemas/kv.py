"""The schema of `attncalc kv --json`."""

from __future__ import annotations

from ...units import BYTES
from .attention import DEFINITIONS, LAYER_GROUP
from .parts import document, figures, layer, ratio, size

_NO_HEADS = "if no layer has K and V heads"
_MODEL = {
    "kv_cache": size(BYTES, "the whole cache on one device"),
    "kv_cache_per_sequence": size(BYTES, "one sequence; with --lengths, the longest"),
    "kv_cache_per_token": size(BYTES, "what the next token of one sequence adds at this context"),
    "kv_cache_per_token_max": size(BYTES, "what it adds while no window is full"),
    "kv_cache_if_mha": size(BYTES, "the cache if every query head had its own K and V", _NO_HEADS),
    "kv_cache_ratio_if_mha": ratio("kv_cache_if_mha / kv_cache", "if there is no cache to divide by"),
    "recurrent_state": size(BYTES, "states that do not grow, contained in kv_cache"),
    "cross_attention_cache": size(BYTES, "keys and values of the source, contained in kv_cache"),
    "kv_cache_all_devices": size(BYTES, "the sum over the --tp devices"),
    "weights": size(BYTES, "the weights that fit --engine ideal counts", "if their quantization is not read"),
    "weights_stored": size(BYTES, "the weights in the safetensors or GGUF files", "without files"),
}
_LAYERS = {
    "kv_cache": size(BYTES, "the cache of all layers of this kind"),
    "kv_cache_per_layer": size(BYTES, "the cache of one of them"),
    "kv_cache_per_token_per_layer": size(BYTES, "what the next token of one sequence adds to one of them"),
}
SCHEMA = document(
    "kv",
    "The KV cache of a model: in total, per sequence and per token.",
    results=figures("the figures of the whole model", _MODEL),
    layers=layer("a kind of layer", LAYER_GROUP, figures("its figures", _LAYERS)),
    definitions=DEFINITIONS,
)
