"""A preset as a model file in which every key that an option changes is written out, and that file
with other keys.
"""

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import yaml

from attncalc.attention import KINDS, Grouped
from attncalc.config import preset_text
from attncalc.config.keys import is_layer_key, keys_of_layer

Data = dict[str, Any]
_OF_MLP = (
    "d_ff",
    "n_experts",
    "n_experts_per_token",
    "n_shared_experts",
    "d_ff_shared",
    "mlp_bias",
)
_OF_MIXTURE = ("router_bias", "d_router", "d_latent")
_OF_HEADS = {"kv_heads": "n_kv_heads", "heads": "n_heads", "head_dim": "d_head"}
_OF_EXPERTS = {"experts": "n_experts", "experts_per_token": "n_experts_per_token"}
_OF_MODEL = {
    "vocab_size": "vocab_size",
    "tie_word_embeddings": "tied_embeddings",
    "d_model": "d_model",
}
# The options that are keys of a model file.
OPTIONS = (*_OF_HEADS, *_OF_EXPERTS, *_OF_MODEL, "d_ff", "window", "layers")


@cache
def written_out(name: str) -> Data:
    """Return the model file of a preset, whose kinds of layers and encoder have all keys that they
    inherit.

    The width of a head is a key too, since --heads keeps it, and KV heads of MHA are none, since it
    stays MHA.
    """
    data: Data = yaml.load(preset_text(name), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    data.pop("max_context_of", None)
    if "encoder" in data:
        inherited = {
            key: value
            for key, value in data.items()
            if is_layer_key(key) or key in ("d_model", "norm")
        }
        data["encoder"] = {**inherited, **data["encoder"]}
    for section in _sections(data):
        _push_down(section)
    for layers in _layers(data):
        if _is_grouped(layers):
            layers.setdefault("d_head", layers.get("d_model", data["d_model"]) // layers["n_heads"])
            if layers.get("n_kv_heads") == layers["n_heads"]:
                del layers["n_kv_heads"]
    return data


def with_option(data: Data, option: str, value: Any) -> Data:
    """Return the file with the key that an option is, wherever it is used."""
    data = copy.deepcopy(data)
    if option in _OF_MODEL:
        data[_OF_MODEL[option]] = value
    if option == "layers":
        for section in _sections(data):
            section["n_layers"] = value
    has_windows = any(_has_window(layers) for layers in _layers(data))
    for layers in _layers(data):
        if option in _OF_HEADS and _is_grouped(layers):
            layers[_OF_HEADS[option]] = value
        if option in _OF_EXPERTS and "n_experts" in layers:
            layers[_OF_EXPERTS[option]] = value
        if option == "d_ff" and layers["mlp"] != "none":
            layers["d_ff"] = value
        can_have_one = hasattr(_kind(layers), "span")
        if option == "window" and can_have_one and (not has_windows or _has_window(layers)):
            layers.pop("chunk", None)
            layers["window"] = value
    return data


def repeats_its_order(data: Data) -> bool:
    """Return whether further layers continue the pattern, as they do with --layers: it is repeated
    at least once.
    """
    return all(
        "pattern" not in section or 2 * _length(section["pattern"]) <= section["n_layers"]
        for section in _sections(data)
    )


def _length(pattern: list[str]) -> int:
    return sum(int(item.partition(" ")[0]) if " " in item else 1 for item in pattern)


def _sections(data: Data) -> Iterator[Data]:
    """Yield the parts with layers: the decoder, or the only stack, and the encoder."""
    yield data
    if "encoder" in data:
        yield data["encoder"]


def _layers(data: Data) -> Iterator[Data]:
    """Yield the keys of each kind of layers."""
    for section in _sections(data):
        yield from section["layer_kinds"].values() if "layer_kinds" in section else [section]


def _push_down(section: Data) -> None:
    """Move the keys of layers from a section to its kinds of layers that use them."""
    moved = {
        key: section.pop(key)
        for key in [*section]
        if "layer_kinds" in section and is_layer_key(key)
    }
    for kind in section.get("layer_kinds", {}).values():
        known = set(keys_of_layer(kind.get("attention", moved.get("attention", "grouped"))))
        if kind.get("mlp", moved.get("mlp")) == "none":
            known.difference_update(_OF_MLP, _OF_MIXTURE)
        elif "n_experts" not in {**moved, **kind}:
            known.difference_update(_OF_MIXTURE)
        for key, value in moved.items():
            if key in known:
                kind.setdefault(key, value)


def _kind(layers: Data) -> type:
    return KINDS[layers.get("attention", "grouped")]


def _is_grouped(layers: Data) -> bool:
    return issubclass(_kind(layers), Grouped)


def _has_window(layers: Data) -> bool:
    return "window" in layers or "chunk" in layers
