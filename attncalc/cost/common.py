"""What cost functions share: dtypes, names of layer groups, and totals that read as sums of named parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..model import Layers, ModelSpec, Stack
from ..quantity import Quantity, named, total
from ..units import DType, dtype
from ..workload import Workload


class Part(NamedTuple):
    """A figure of one layer group, by the group's name."""

    group: str
    value: Quantity


def group_name(model: ModelSpec, stack: Stack, layers: Layers) -> str:
    """'local', 'encoder', 'encoder_local': unique in the model, and a name a formula can hold."""
    if layers.name == "layers":
        return stack.name
    return f"{stack.name}_{layers.name}" if len(model.stacks) > 1 else layers.name


def sum_of(name: str, meaning: str, parts: Sequence[Part]) -> Quantity:
    """The sum of a figure over layer groups: one part stays its own formula, several are named."""
    nonzero = [part for part in parts if part.value]
    if len(nonzero) == 1:
        return nonzero[0].value
    return total(named(p.value, f"{name}_{p.group}", f"{meaning}, {p.group}") for p in nonzero)


def sum_named(parts: dict[str, tuple[int, str]]) -> Quantity:
    """The sum of named figures, {name: (value, meaning)}; zeros are left out."""
    nonzero = [named(value, name, meaning) for name, (value, meaning) in parts.items() if value]
    return nonzero[0] if len(nonzero) == 1 else total(nonzero)


def compute_dtype(model: ModelSpec, workload: Workload) -> DType:
    """The dtype of weights and activations: the workload's, or the model's own."""
    return dtype(workload.dtype or model.dtype, compute=True)


def cache_dtype(model: ModelSpec, workload: Workload) -> DType:
    """The dtype of the cache: its own, that of the activations, or the model's."""
    return dtype(workload.kv_dtype or workload.dtype or model.dtype)
