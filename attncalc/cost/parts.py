"""How parts become a whole: a total of several layer groups reads as the sum of its named parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..model import Layers, ModelSpec, Stack
from ..quantity import Quantity, named, quantity, total


class Part(NamedTuple):
    """A figure of one layer group; `name` is the figure's ('kv_cache'), `group` the layers'."""

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


def times(count: int, value: int) -> Quantity:
    """`value` of each of `count` layers."""
    return quantity(count * value)
