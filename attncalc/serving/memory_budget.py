"""The memory budget of one GPU: the share that the engine takes, less weights and reserve, is for the cache."""

from __future__ import annotations

from typing import NamedTuple

from ..model import ModelSpec
from ..quantity import Quantity, ceil_div, named, quantity, symbol
from .request import ResolvedRequest
from .reserve import Reserve, Share, reserve
from .weights import Weights, weights


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
    """

    kv_memory: Quantity
    memory: Quantity | None = None
    share: Share | None = None
    usable: Quantity | None = None
    weights: Weights | None = None
    reserve: Reserve | None = None
    short: int = 0
    layers: int | None = None

    @property
    def room(self) -> int:
        """Bytes for the cache; negative if weights and reserve are too large."""
        return int(self.kv_memory) - self.short


def memory_budget(resolved: ResolvedRequest, part: ModelSpec | None = None) -> MemoryBudget:
    """Return the budget of one GPU.

    Args:
        resolved: The complete request.
        part: The GPU's layers as a model; None if it has all layers.

    Raises AttncalcError as `weights` and `reserve` do.
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
        part=part,
        in_dtype=resolved.workload.dtype,
        weights_dtype=resolved.weights_dtype,
        engine=resolved.engine,
        args=resolved.args,
    )
    reserve_on_gpu = reserve_for(resolved, part or resolved.model, resolved.workload.batch, resolved.workload.context)
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
    )


def reserve_for(resolved: ResolvedRequest, model: ModelSpec, batch: int, context: int) -> Reserve:
    """Return the reserve of a GPU with `model`, or a part of one, for `batch` sequences of `context` tokens.

    Raises AttncalcError as `reserve` does.
    """
    limits = resolved.limits(batch, context)
    if resolved.request.reserve is not None or limits is None:
        return Reserve(symbol("reserve", resolved.request.reserve or 0, "bytes reserved, as given"), (), "")
    return reserve(model, resolved.engine, limits, resolved.args.pp, in_dtype=resolved.workload.dtype)
