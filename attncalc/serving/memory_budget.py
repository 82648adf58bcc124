"""The memory budget of one GPU: the share that the engine takes, less weights and reserve, is for the cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal, NamedTuple

from ..engines.runtime import RuntimeFacts
from ..model import ModelSpec
from ..quantity import Quantity, ceil_div, named, quantity, symbol
from .request import ResolvedRequest
from .reserve import Reserve, Share, estimated_reserve, given_reserve, with_excess
from .weights import Weights, multiplied_as, weights, with_draft

End = Literal["low", "expected", "high"]
"""Which end of the range of the memory for the cache: the least, the expected, or the most."""


class MemoryBudget(NamedTuple):
    """The memory of one GPU. Only `kv_memory` is set if the request gives the memory for the cache.

    Attributes:
        kv_memory: Bytes for the cache; 0 if weights and reserve leave none.
        memory: Bytes of the GPU that software sees.
        share: The share of it that the engine takes.
        usable: Bytes that the engine takes.
        weights: The weights on this GPU.
        reserve: What is reserved for activations, CUDA graphs and the driver.
        short: Bytes by which weights and reserve exceed `usable`.
        layers: The number of layers on this GPU, if it does not have all of them.
        facts: What the runtime memory was estimated from; None if it was given.
        reserve_for: Returns what is reserved for another batch and context; None if the reserve was given. It keeps
            its answers: a search asks again for each GPU, and GPUs with equal layers have one budget.
    """

    kv_memory: Quantity
    memory: Quantity | None = None
    share: Share | None = None
    usable: Quantity | None = None
    weights: Weights | None = None
    reserve: Reserve | None = None
    short: int = 0
    layers: int | None = None
    facts: RuntimeFacts[Any] | None = None
    reserve_for: Callable[[int, int], Reserve] | None = None

    def room(self, end: End = "expected") -> int:
        """Return the bytes for the cache; negative if weights and reserve are too large."""
        expected = int(self.kv_memory) - self.short
        if self.reserve is None:
            return expected
        return expected + int(self.reserve.total) - at(end, self.reserve)

    @property
    def kv_memory_low(self) -> int:
        """Bytes for the cache if the runtime memory is as large as it may be."""
        return max(0, self.room("low"))

    @property
    def kv_memory_high(self) -> int:
        """Bytes for the cache if the runtime memory is as small as it may be."""
        return max(0, self.room("high"))


def at(end: End, reserve: Reserve) -> int:
    """Return the bytes of the runtime memory at one end of the memory for the cache: the most at its low end."""
    return {"low": reserve.high, "expected": int(reserve.total), "high": reserve.low}[end]


def memory_budget(
    resolved: ResolvedRequest, part: ModelSpec | None = None, *, first: bool = True, last: bool = True
) -> MemoryBudget:
    """Return the budget of one GPU.

    Args:
        resolved: The complete request.
        part: The GPU's layers as a model; None if it has all layers.
        first: Whether the GPU has the first layer.
        last: Whether the GPU has the last layer.

    Raises AttncalcError as `weights` does.
    """
    gpu, share = resolved.gpu, resolved.share
    if gpu is None or share is None:
        return MemoryBudget(symbol("kv_memory", resolved.request.kv_memory or 0, "bytes for the cache on one device"))
    memory = symbol("memory", gpu.memory, f"bytes of one {gpu.title} that software sees")
    usable = quantity(
        memory if share.numerator == share.denominator else ceil_div(memory * share.numerator, share.denominator)
    )
    weights_on_gpu = weights(
        resolved.model,
        pp=resolved.args.pp,
        part=_held(part, resolved),
        in_dtype=resolved.workload.dtype,
        weights_dtype=resolved.weights_dtype,
        engine=resolved.engine,
        args=resolved.args,
    )
    if resolved.draft and last:
        weights_on_gpu = with_draft(weights_on_gpu, resolved.draft)
    facts = runtime_facts(resolved, part, int(weights_on_gpu.total), first=first, last=last)
    reserve_on_gpu = (
        estimated_reserve(resolved.engine, facts) if facts else given_reserve(resolved.request.reserve or 0)
    )
    reserve_on_gpu = _as_logged(reserve_on_gpu, resolved)
    kv_memory = (
        named(usable, "usable", "bytes that the engine takes")
        - named(weights_on_gpu.total, "weights", "bytes of the weights")
        - named(reserve_on_gpu.total, "reserve", "bytes reserved for activations, graphs and the driver")
    )
    short = max(0, int(weights_on_gpu.total) + int(reserve_on_gpu.total) - int(usable))
    return MemoryBudget(
        kv_memory=Quantity(0) if short else kv_memory,
        memory=memory,
        share=share,
        usable=usable,
        weights=weights_on_gpu,
        reserve=reserve_on_gpu,
        short=short,
        layers=part.main.n_layers if part else None,
        facts=facts,
        reserve_for=cache(partial(reserve_for, resolved, facts)) if facts else None,
    )


def _held(part: ModelSpec | None, resolved: ResolvedRequest) -> ModelSpec | None:
    """Return the layers whose weights the GPU holds: without the experts that llama.cpp leaves on the host."""
    if part is None or not resolved.engine.splits_by_layer:
        return part
    from .offload import held_layers

    return held_layers(part, resolved.args)


def runtime_facts(
    resolved: ResolvedRequest, part: ModelSpec | None, weights_on_gpu: int, *, first: bool, last: bool
) -> RuntimeFacts[Any] | None:
    """Return what the runtime memory of one GPU is estimated from; None if it was given, or without a GPU.

    Raises AttncalcError if the engine does not support an argument.
    """
    workload, gpu, share = resolved.workload, resolved.gpu, resolved.share
    limits = resolved.limits(workload.batch, workload.context)
    if resolved.request.reserve is not None or limits is None or gpu is None or share is None:
        return None
    return RuntimeFacts(
        model=part or resolved.model,
        whole=resolved.model,
        args=resolved.args,
        limits=limits,
        gpu=gpu,
        share=(share.numerator, share.denominator),
        batch=workload.batch,
        context=workload.context,
        weights=weights_on_gpu,
        weights_dtype=multiplied_as(resolved.model, resolved.args.dtype, resolved.weights_dtype).name,
        first=first,
        last=last,
    )


def reserve_for(resolved: ResolvedRequest, facts: RuntimeFacts[Any], batch: int, context: int) -> Reserve:
    """Return the runtime memory of the GPU with those facts, for `batch` sequences of `context` tokens."""
    limits = resolved.limits(batch, context) or facts.limits
    args = resolved.with_slots(resolved.slots(batch)) if resolved.engine.max_slots else facts.args
    facts = dataclasses.replace(facts, args=args, limits=limits, batch=batch, context=context)
    return _as_logged(estimated_reserve(resolved.engine, facts), resolved)


def _as_logged(reserve: Reserve, resolved: ResolvedRequest) -> Reserve:
    """Return the runtime memory with what a log shows beyond the estimate; as it is without a log."""
    excess = resolved.request.logged_excess
    if excess is None:
        return reserve
    return with_excess(reserve, excess.size, exact=excess.devices == resolved.devices)
