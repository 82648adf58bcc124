"""What fits: what an engine makes of the memory that is left for the cache, and how far that goes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from ..cost.cache import layer_cache_specs
from ..engines import engine_defaults, layout
from ..engines.base import CacheLayout, Pool
from ..errors import AttncalcError
from ..model import ModelSpec
from ..quantity import Quantity, least, most, named, quantity, symbol
from ..search import first_true
from .memory_budget import FitRequest, MemoryBudget, kept_back, memory_budget
from .weights import spread, staged

__all__ = ["Fit", "FitRequest", "MemoryBudget", "fit", "holds", "min_gpus", "on_gpus", "possible", "splits"]

FAR = 2**50
"""Sequences, or tokens of a sequence, beyond which a cache is said to have no limit."""


class Fit(NamedTuple):
    """The answer to a FitRequest, on one device: of several that differ, the one with room for the fewest sequences.

    needed: bytes for the batch asked about. max_context: the longest for that batch; max_batch: the most
    sequences of that context; None without a limit, 0 where not one fits. Both are the engine's, whatever
    the model was made for.
    """

    request: FitRequest
    budget: MemoryBudget
    layout: CacheLayout
    pool: Pool
    needed: Quantity
    fits: bool
    max_context: Quantity | None
    max_batch: Quantity | None


class _Device(NamedTuple):
    """A GPU, or a memory that an engine reported, and what the engine makes of it.

    model: what the GPU has of it. name: of a GPU, or a pipeline stage, with layers of its own.
    """

    request: FitRequest
    model: ModelSpec
    budget: MemoryBudget
    plain: CacheLayout
    name: str = ""

    def slack(self, batch: int, context: int) -> int:
        """Bytes that are left with so many sequences; below 0 for those that lack."""
        return self.budget.room - self._more(batch, context) - self.plain.needed(batch, context)

    def memory(self, batch: int, context: int, shown: _Device) -> Quantity:
        """Bytes for the cache with so many sequences; of another device than the one shown under its name."""
        name, meaning = "kv_memory", "bytes for the cache"
        if self.name != shown.name:
            name, meaning = f"kv_memory_{self.name}", f"bytes for the cache on {self.name.replace('_', ' ')}"
        more = self._more(batch, context)
        if more:
            name, meaning = f"{name}_then", f"{meaning}, less what these take in a pass"
        return named(max(0, self.budget.room - more), name, meaning)

    def _more(self, batch: int, context: int) -> int:
        """Bytes that a pass over so many sequences takes beyond those asked about, where it takes all at once."""
        held = self.budget.reserve
        if held is None or not engine_defaults(self.request.engine).whole_prompts:
            return 0
        then = dataclasses.replace(self.request, batch=batch, context=context)
        return int(kept_back(then, self.model).total) - int(held.total)


def fit(request: FitRequest) -> Fit:
    """What fits. AttncalcError: the engine has no layout for the model, or a setting cannot be."""
    model = request.model.shard(request.args.tp)
    devices = _devices(request, model)
    whole = layout(request.engine, layer_cache_specs(model.symbolic(gathered=False)), request.started())
    shown = _each(whole, len(devices))
    pools = [
        each.pool(int(device.budget.kv_memory), request.context) for device, each in zip(devices, shown, strict=True)
    ]

    def room(i: int) -> tuple[bool, Fraction, int]:
        slack = devices[i].slack(request.batch, request.context)
        return slack >= 0, _times(pools[i]), slack

    tightest = min(range(len(devices)), key=room)
    pool = pools[tightest]
    fewest = min(range(len(pools)), key=lambda i: int(pools[i].tokens))
    if pools[fewest].tokens < pool.tokens:
        name = devices[fewest].name
        tokens = named(pools[fewest].tokens, f"kv_tokens_{name}", f"tokens on {name.replace('_', ' ')}, the fewest")
        pool = pool._replace(tokens=tokens)
    limiting = devices[tightest]
    batch, context = symbol("B", request.batch, "sequences"), symbol("T", request.context, "tokens of each")
    return Fit(
        request=request,
        budget=limiting.budget,
        layout=shown[tightest],
        pool=pool,
        needed=quantity(shown[tightest].needed(batch, context)),
        fits=_hold(devices, request.batch, request.context),
        max_context=_longest(devices, limiting, request.batch),
        max_batch=_sequences(devices, limiting, request.context),
    )


def holds(request: FitRequest) -> bool:
    """Whether it fits: the verdict alone. AttncalcError: as `fit`."""
    return _hold(_devices(request, request.model.shard(request.args.tp)), request.batch, request.context)


def _devices(request: FitRequest, model: ModelSpec) -> list[_Device]:
    """The devices that differ: one for all, but where each GPU, or pipeline stage, has layers of its own."""
    whole = layout(request.engine, layer_cache_specs(model.plain()), request.told())
    if request.gpu is None or not (request.spread or request.args.pp > 1):
        return [_Device(request, model, memory_budget(request, model), whole)]
    if request.spread:
        of, parts = "gpu", spread(model, request.gpus)
    else:
        of, parts = "stage", staged(model, request.args.pp, engine_defaults(request.engine).stage_sizes)
    budgets: dict[ModelSpec, MemoryBudget] = {}
    for part in parts:
        if part not in budgets:
            budgets[part] = memory_budget(request, model, part)
    return [
        _Device(request, part, budgets[part], mine, f"{of}_{i}")
        for i, (part, mine) in enumerate(zip(parts, _each(whole, len(parts)), strict=True), start=1)
    ]


def _each(whole: CacheLayout, devices: int) -> Sequence[CacheLayout]:
    """The layout of each device. Where one stands for all, each has what the fullest needs."""
    return whole.parts if devices > 1 and whole.parts else (whole,) * devices


def _hold(devices: Sequence[_Device], batch: int, context: int) -> bool:
    """Whether all devices have room for the sequences, and the engine runs so many."""
    most = devices[0].plain.max_sequences
    return (most is None or batch <= most) and all(each.slack(batch, context) >= 0 for each in devices)


def _times(pool: Pool) -> Fraction:
    """How many sequences at once, for comparison."""
    return Fraction(pool.concurrency.numerator, pool.concurrency.denominator)


def min_gpus(request: FitRequest) -> Quantity | None:
    """The fewest GPUs of this kind that hold the model and the batch, by tensor parallelism at the requested pp.

    None where no number that divides the model does, and without a GPU.
    """
    for more in on_gpus(request):
        if possible(more):
            tightest = min(
                _devices(more, request.model.shard(more.args.tp)), key=lambda d: d.slack(request.batch, request.context)
            )
            have = named(tightest.budget.kv_memory, "kv_memory_at", "bytes for the cache with so many")
            need = named(
                tightest.plain.needed(request.batch, request.context), "needed_at", "bytes that the batch needs then"
            )
            return least("gpus", more.gpus, "GPUs", have, need, ">=")
    return None


def on_gpus(request: FitRequest) -> Iterator[FitRequest]:
    """The same question on one copy's GPUs, the fewest first; nothing without a GPU."""
    if request.spread:
        yield from (dataclasses.replace(request, gpus=n) for n in range(1, request.model.main.n_layers + 1))
    elif request.gpu:
        for tp in splits(request.model):
            args = dataclasses.replace(request.args, tp=tp)
            yield dataclasses.replace(request, args=args, gpus=tp * args.pp)


def splits(model: ModelSpec) -> Iterator[int]:
    """Tensor-parallel sizes that its heads allow, the least first; powers of two for a model without heads."""
    heads = [int(kind.widths().n_heads) for _, layers in model.groups() for kind in layers.attentions]
    most_heads = max(heads)
    for tp in range(1, (most_heads or 64) + 1):
        if most_heads % tp == 0 if most_heads else tp & (tp - 1) == 0:
            try:
                model.shard(tp)
            except AttncalcError:  # something else of it does not divide
                continue
            yield tp


def possible(request: FitRequest) -> bool:
    """`holds`, where what cannot be does not hold."""
    try:
        return holds(request)
    except AttncalcError:
        return False


def _longest(devices: Sequence[_Device], shown: _Device, batch: int) -> Quantity | None:
    """The longest context of so many sequences."""
    found = _most(lambda tokens: _hold(devices, batch, tokens))
    if not found:
        return None if found is None else Quantity(0)
    limit = min(devices, key=lambda each: (each.slack(batch, found + 1), each is not shown))
    need = named(limit.plain.needed(batch, found), "needed", "bytes that these need")
    return most("T", found, "tokens of each sequence", need, limit.memory(batch, found, shown))


def _sequences(devices: Sequence[_Device], shown: _Device, context: int) -> Quantity | None:
    """The most sequences of that context, which may be all that the engine runs."""
    found = _most(lambda batch: _hold(devices, batch, context))
    if not found:
        return None if found is None else Quantity(0)
    if found == devices[0].plain.max_sequences:
        return symbol("most_at_once", found, "sequences that the engine runs at once")
    limit = min(devices, key=lambda each: (each.slack(found + 1, context), each is not shown))
    need = named(limit.plain.needed(found, context), "needed", "bytes that these need")
    return most("B", found, "sequences", need, limit.memory(found, context, shown))


def _most(fits: Callable[[int], bool]) -> int | None:
    """The most for which `fits` holds, which it does up to some number; 0 for none, None beyond FAR."""
    if not fits(1):
        return 0
    high = 2
    while fits(high):
        high *= 2
        if high > FAR:
            return None
    return first_true(lambda n: not fits(n), high // 2, high) - 1
