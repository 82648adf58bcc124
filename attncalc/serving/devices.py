"""The GPUs of a request that have layers of their own: their memory, and how the engine stores the cache there."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..cost.cache import layer_cache_specs
from ..engines.base import CacheLayout
from ..model import ModelSpec
from ..quantity import Quantity, named
from .memory_budget import End, MemoryBudget, at, memory_budget
from .request import ResolvedRequest
from .stages import split_into_stages


class Device(NamedTuple):
    """A GPU, or a memory that an engine reported.

    Attributes:
        resolved: The complete request.
        model: The layers on this device, as a model.
        budget: The device's memory.
        layout: How the engine stores these layers' cache, in plain ints.
        start: The layout of which one request must fit for the engine to start, if it is not `layout`.
        name: 'gpu_2' or 'stage_2' if devices have layers of their own, else ''.
    """

    resolved: ResolvedRequest
    model: ModelSpec
    budget: MemoryBudget
    layout: CacheLayout
    start: CacheLayout | None = None
    name: str = ""

    def slack(self, batch: int, context: int, end: End = "expected") -> int:
        """Return the bytes that `batch` sequences of `context` tokens leave free; negative if they do not fit."""
        return self.budget.room(end) - self._extra_reserve(batch, context, end) - self.needed(batch, context)

    def has_room(self, batch: int, context: int, end: End = "expected") -> bool:
        """Return whether there is room for the sequences, and the engine can run that many."""
        limit = self.layout.max_sequences
        return (limit is None or batch <= limit) and self.slack(batch, context, end) >= 0

    def needed(self, batch: int, context: int) -> int:
        """Return the bytes that `batch` sequences need, at least those that one needs for the engine to start."""
        needed = self.layout.needed(batch, context)
        return max(needed, self.start.needed(1, context)) if self.start else needed

    def kv_memory(self, batch: int, context: int, main: Device) -> Quantity:
        """Return the bytes for the cache of that many sequences; the symbol names the device if it is not `main`."""
        name, meaning = "kv_memory", "bytes for the cache"
        if self.name != main.name:
            name, meaning = f"kv_memory_{self.name}", f"bytes for the cache on {self.name.replace('_', ' ')}"
        extra = self._extra_reserve(batch, context, "expected")
        if extra:
            name, meaning = f"{name}_then", f"{meaning}, less what a pass over these sequences takes"
        return named(max(0, self.budget.room() - extra), name, meaning)

    def _extra_reserve(self, batch: int, context: int, end: End) -> int:
        """Return the bytes that the runtime memory for `batch` sequences has beyond that for the requested ones.

        0 unless the engine's runtime memory depends on the batch and the context (`runtime_grows`).
        """
        budget = self.budget
        if budget.reserve is None or budget.reserve_for is None or not self.resolved.engine.runtime_grows:
            return 0
        return at(end, budget.reserve_for(batch, context)) - at(end, budget.reserve)


def devices_of(resolved: ResolvedRequest) -> list[Device]:
    """Return one device per GPU, or per pipeline stage, that has its own layers; a single one if all are equal."""
    return list(each_device(resolved))


def each_device(resolved: ResolvedRequest, *, most_layers_first: bool = False) -> Iterator[Device]:
    """Yield the devices, each of which is computed when it is asked for.

    Args:
        resolved: The complete request.
        most_layers_first: Whether those with the most layers, which fill first, come before the others.
    """
    model, pp = resolved.model, resolved.args.pp
    whole = resolved.engine.layout(layer_cache_specs(model.plain()), resolved.args_without_slots)
    if resolved.whole_layers:
        from .offload import spread_over_gpus  # other engines need none of llama.cpp's code

        kind, parts = "gpu", spread_over_gpus(model, resolved.gpus, resolved.args)
    elif resolved.gpu and pp > 1:
        kind, parts = "stage", split_into_stages(model, pp, resolved.engine.stage_sizes)
    else:
        yield Device(resolved, model, memory_budget(resolved), whole)
        return
    layouts = layout_per_device(whole, len(parts))
    start = _layout_to_start(resolved) if kind == "stage" else None
    budgets: dict[tuple[ModelSpec, bool, bool], MemoryBudget] = {}  # equal parts in the middle have equal budgets
    numbered = [
        (i, part, part_layout) for i, (part, part_layout) in enumerate(zip(parts, layouts, strict=True), start=1)
    ]
    if most_layers_first:
        numbered.sort(key=lambda numbered_part: -numbered_part[1].main.n_layers)
    for i, part, part_layout in numbered:
        first, last = i == 1, i == len(parts)
        budget = budgets.get((part, first, last)) or memory_budget(resolved, part, first=first, last=last)
        budgets[part, first, last] = budget
        yield Device(resolved, part, budget, part_layout, start, f"{kind}_{i}")


def _layout_to_start(resolved: ResolvedRequest) -> CacheLayout | None:
    """Return the layout of all layers on one stage, if the engine starts only if one request fits in it."""
    if not resolved.engine.checks_all_layers(resolved.args):
        return None
    args = dataclasses.replace(resolved.args_without_slots, pp=1)
    return resolved.engine.layout(layer_cache_specs(resolved.model.plain()), args)


def layout_per_device(whole: CacheLayout, devices: int) -> Sequence[CacheLayout]:
    """Return the layout of each device: its own (`parts`), or the same for all if the engine has only one."""
    return whole.parts if len(whole.parts) == devices else (whole,) * devices
