"""How many layers of a model are trained so that all kinds of layers are known."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

from ...cost.common import group_name
from ...model import Layers, ModelSpec, Stack

LENGTHS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers")
"""Names of the number of layers in config files."""


def few_layers(model: ModelSpec) -> int:
    """Return the least number of leading layers that has every kind of layer, but two if the model has them.

    The first layer also saves what all layers share, such as RoPE's cosines.
    """
    most = 1
    for stack in model.stacks:
        kinds = [dataclasses.replace(layers, count=1, name="") for layers in stack.layers for _ in range(layers.count)]
        most = max(most, min(2, len(kinds)), *(kinds.index(kind) + 1 for kind in kinds))
    return most


def layers_of_one(model: ModelSpec, config: Mapping[str, Any]) -> int:
    """Return how many layers of the model are one of the class: 2 for Falcon-H1, which has attention beside Mamba-2."""
    parts = [config, *(value for value in config.values() if isinstance(value, dict))]
    lengths = (part[name] for part in parts for name in LENGTHS if isinstance(part.get(name), int))
    length = next(lengths, 0)
    is_multiple = length and not model.encoder and model.main.n_layers % length == 0
    return model.main.n_layers // length if is_multiple else 1


def shortened(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """Return a copy of `config` with its first `layers` layers; lists, and tables by layer, are cut too."""
    short: dict[str, Any] = copy.deepcopy(dict(config))
    for part in [short, *(value for value in short.values() if isinstance(value, dict))]:
        for name in [name for name in LENGTHS if isinstance(part.get(name), int)]:
            for field, value in part.items():
                if isinstance(value, (list, str)) and len(value) == part[name] > 1:
                    part[field] = value[:layers]
                elif isinstance(value, dict) and value and all(str(key).isdigit() for key in value):
                    part[field] = {key: entry for key, entry in value.items() if int(key) < layers}
            part[name] = min(layers, part[name])
    return short


def layer_groups(model: ModelSpec) -> list[str]:
    """Return the name of each layer's group, in the order of the layers."""
    return [
        group_name(model, stack, layers)
        for stack in model.stacks
        for layers in stack.layers
        for _ in range(int(layers.count))
    ]


def leading(model: ModelSpec, layers: int) -> ModelSpec:
    """Return the model with the first `layers` layers of each stack."""
    return dataclasses.replace(model, stacks=tuple(_leading(stack, layers) for stack in model.stacks))


def _leading(stack: Stack, layers: int) -> Stack:
    kept: list[Layers] = []
    for group in stack.layers:
        if layers > 0:
            kept.append(dataclasses.replace(group, count=min(int(group.count), layers)))
        layers -= int(group.count)
    return dataclasses.replace(stack, layers=tuple(kept))
