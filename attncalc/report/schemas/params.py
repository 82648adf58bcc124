"""The schema of `attncalc params --json`."""

from __future__ import annotations

from ...units import BYTES, PARAMS
from .attention import DEFINITIONS, LAYER_GROUP
from .parts import document, figures, layer, ratio, size

_MODEL = {
    "params_total": size(PARAMS, "all parameters"),
    "params_attention": size(PARAMS, "attention, with biases and norms of its own"),
    "params_mlp": size(PARAMS, "MLPs"),
    "params_embedding": size(PARAMS, "embeddings"),
    "params_head": size(PARAMS, "the lm head or pooler"),
    "params_norm": size(PARAMS, "norms"),
    "params_other": size(PARAMS, "other parts"),
    "params_active": size(PARAMS, "used by one token; fewer than all in a mixture of experts"),
    "params_attention_weights": size(PARAMS, "attention's matrices alone"),
    "params_attention_share": ratio("params_attention / params_total"),
    "weights_stored": size(BYTES, "the weights in the safetensors or GGUF files", "without files"),
}
_MATRICES = {"^params_[A-Za-z0-9_.]+$": size(PARAMS, "a tensor of attention, in all layers")}
_STORED = {"^weights_stored_[a-z0-9_]+$": size(BYTES, "the tensors of the files that have this dtype")}
_LAYERS = {
    "params_total": size(PARAMS, "all parameters of the layers"),
    "params_attention": size(PARAMS, "their attention"),
    "params_attention_per_layer": size(PARAMS, "the attention of one of them"),
    "params_attention_weights_per_layer": size(PARAMS, "the matrices of the attention of one of them"),
    "params_mlp": size(PARAMS, "their MLPs"),
    "params_norm": size(PARAMS, "their norms"),
}
SCHEMA = document(
    "params",
    "The parameters of a model: attention by matrix, MLP, embedding, total.",
    results=figures("the figures of the whole model", _MODEL, {**_MATRICES, **_STORED}),
    layers=layer("a kind of layer", LAYER_GROUP, figures("its figures", _LAYERS, _MATRICES)),
    definitions=DEFINITIONS,
)
