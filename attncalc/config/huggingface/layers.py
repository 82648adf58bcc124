"""Layers one after another, as the shortest pattern that says the same."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

Layer = tuple[tuple[str, ...], dict[str, Any]]
"""The names of what a layer is, as ('sliding', 'sparse'), and its keys."""


def laid_out(layers: Sequence[Layer]) -> dict[str, Any]:
    """The keys of a model file for `layers`: their common keys, and a pattern of the kinds that differ."""
    kinds: dict[str, dict[str, Any]] = {}
    order: list[str] = []
    tell = [i for i, names in enumerate(zip(*(names for names, _ in layers), strict=True)) if len(set(names)) > 1]
    for names, keys in layers:
        name = "_".join(names[i] for i in tell) or "layers"
        label = next((n for n, known in kinds.items() if known == keys and _stem(n) == _stem(name)), None)
        if label is None:
            label = name if name not in kinds else f"{name}_{sum(_stem(n) == _stem(name) for n in kinds) + 1}"
            kinds[label] = keys
        order.append(label)
    if len({str(keys) for keys in kinds.values()}) == 1:
        return layers[0][1]
    common = {
        key: value
        for key, value in layers[0][1].items()
        if all(keys.get(key) == value and key in keys for keys in kinds.values())
    }
    differing = {name: {key: value for key, value in keys.items() if key not in common} for name, keys in kinds.items()}
    return {**common, "pattern": _pattern(order), "layer_kinds": differing}


def _stem(name: str) -> str:
    head, _, tail = name.rpartition("_")
    return head if tail.isdigit() else name


def _pattern(order: Sequence[str]) -> list[str]:
    """The shortest period that gives `order`, '5 local' for five in a row."""
    period = next(n for n in range(1, len(order) + 1) if all(order[i] == order[i % n] for i in range(len(order))))
    runs = [(name, len(list(run))) for name, run in groupby(order[:period])]
    return [name if n == 1 else f"{n} {name}" for name, n in runs]
