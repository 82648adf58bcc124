"""What fits: how an engine divides the memory for the cache, and how many sequences and tokens it holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from ..cost.cache import layer_cache_specs
from ..engines.base import CacheLayout, Pool
from ..engines.engine import Refusal
from ..errors import AttncalcError
from ..model import ModelSpec
from ..quantity import Quantity, least, most, named, quantity, symbol
from ..search import first_true
from .devices import Device, devices_of, each_device, layout_per_device
from .memory_budget import End, MemoryBudget
from .request import FitRequest, ResolvedRequest, resolve

__all__ = [
    "FitRequest",
    "FitResult",
    "Verdict",
    "fit",
    "min_gpus",
    "most_sequences",
    "possible_verdict",
    "sure_limits",
    "with_other_gpus",
]

Verdict = Literal["fits", "may_not_fit", "does_not_fit"]
"""Whether a request fits even with the least memory for the cache, only with more, or not even with the most."""

NO_LIMIT = 2**50
"""A search for the most sequences, or the longest context, stops here and reports that there is no limit."""


class FitResult(NamedTuple):
    """The answer to a FitRequest. If devices differ, it is that of the device with room for the fewest sequences.

    Attributes:
        resolved: The complete request.
        budget: The memory of that device.
        layout: How the engine stores the cache there.
        pool: What the memory for the cache holds.
        needed: Bytes that the requested batch needs.
        verdict: Whether all devices have room for it, and the engine starts.
        refusal: Why the engine does not start, whatever the memory; None if it does.
        max_context: The longest context of the requested batch; None without a limit, 0 if it never fits.
        max_batch: The most sequences of the requested context; None without a limit, 0 if not one fits.

    max_context and max_batch are the engine's limits, whatever context the model was trained for.
    """

    resolved: ResolvedRequest
    budget: MemoryBudget
    layout: CacheLayout
    pool: Pool
    needed: Quantity
    verdict: Verdict
    refusal: Refusal | None
    max_context: Quantity | None
    max_batch: Quantity | None

    @property
    def request(self) -> FitRequest:
        """The request that was answered."""
        return self.resolved.request

    @property
    def log_lines(self) -> tuple[str, ...]:
        """The lines that the engine will log about the cache and about its runtime memory."""
        runtime = self.budget.reserve.runtime.log_lines if self.budget.reserve else ()
        if not self.resolved.whole_layers or self.resolved.gpu is None:
            return (*self.pool.log_lines, *runtime)
        from .device_memory import breakdown_lines, device_memory

        breakdown = breakdown_lines(device_memory(self.resolved), self.resolved.gpu)
        return (*self.pool.log_lines, *runtime, *breakdown)

    @property
    def fits(self) -> bool:
        """Whether it may fit: the verdict is not 'does_not_fit'."""
        return self.verdict != "does_not_fit"


class MostSequences(NamedTuple):
    """The most sequences of one context that fit.

    Attributes:
        sequences: Their number; None without a limit.
        needed: Bytes of the cache that they need on the device with the least room; None without a limit.
    """

    sequences: Quantity | None
    needed: Quantity | None


def fit(request: FitRequest) -> FitResult:
    """Return what fits.

    Raises AttncalcError if a value is not possible, or the engine does not support the model or an argument.
    """
    deployment = Deployment(resolve(request))
    workload = deployment.resolved.workload
    return deployment.result(workload.batch, workload.context)


class Deployment:
    """A complete request with its devices, which answers for any batch and context that its devices do not depend on.

    The memory for vLLM's cache depends on neither, except on the context with some models; llama.cpp's compute buffer
    depends on both. A sweep keeps a Deployment for the cells that share it.

    Attributes:
        resolved: The complete request.
        devices: Its devices, in plain ints.
        layouts: How the engine stores the cache on each device with the slots of the request, in plain ints. Those of
            `devices` have slots for any batch.
    """

    def __init__(self, resolved: ResolvedRequest) -> None:
        self.resolved = resolved
        self.devices = devices_of(resolved)
        self.layouts: Sequence[CacheLayout] = [device.layout for device in self.devices]
        if resolved.engine.max_slots:
            whole = resolved.engine.layout(layer_cache_specs(resolved.model.plain()), resolved.args)
            self.layouts = layout_per_device(whole, len(self.devices))

    def result(self, batch: int, context: int) -> FitResult:
        """Return what fits, with the formulas of `needed` and `pool`. Raises AttncalcError as `fit` does."""
        resolved = self.resolved
        whole = resolved.engine.layout(layer_cache_specs(resolved.model.symbolic(gathered=False)), resolved.args)
        layouts = layout_per_device(whole, len(self.devices))
        pools = self.pools(context, layouts)
        tightest, pool = self.tightest(pools, batch, context)
        refusal = self.refusal(context)
        return FitResult(
            resolved=resolved,
            budget=self.devices[tightest].budget,
            layout=layouts[tightest],
            pool=pool,
            needed=self.needed(batch, context, tightest, layouts[tightest]),
            verdict="does_not_fit" if refusal else self.verdict(batch, context),
            refusal=refusal,
            max_context=self.max_context(batch, tightest),
            max_batch=self.max_batch(context, tightest),
        )

    def pools(self, context: int, layouts: Sequence[CacheLayout] | None = None) -> list[Pool]:
        """Return what the memory of each device holds, for sequences of `context` tokens.

        Args:
            context: Tokens of each sequence.
            layouts: `layouts` in symbols, for formulas; by default in plain ints.
        """
        return [
            device_layout.pool(int(device.budget.kv_memory), context)
            for device, device_layout in zip(self.devices, layouts or self.layouts, strict=True)
        ]

    def needed(self, batch: int, context: int, i: int, device_layout: CacheLayout | None = None) -> Quantity:
        """Return the bytes that the batch needs on the i-th device, with their formula if its layout is in symbols."""
        sequences, tokens = symbol("B", batch, "sequences"), symbol("T", context, "tokens of each")
        if device_layout is None:
            needed = quantity(self.layouts[i].needed(batch, context))
        else:
            needed = quantity(device_layout.needed(sequences, tokens))
        start = self.devices[i].start
        to_start = start.needed(1, context) if start else 0
        if to_start > needed:
            return symbol("start", to_start, "bytes of one request in all layers, to start")
        return needed

    def tightest(self, pools: Sequence[Pool], batch: int, context: int) -> tuple[int, Pool]:
        """Return the index of the device with room for the fewest sequences, and its pool."""
        tightest = _tightest(self.devices, pools, batch, context)
        return tightest, _with_fewest_tokens(pools, tightest, self.devices)

    def refusal(self, context: int) -> Refusal | None:
        """Return why the engine does not start with that context, whatever the memory; None if it does."""
        resolved = self.resolved
        args = dataclasses.replace(resolved.args, max_model_len=context)
        return resolved.engine.refusal(resolved.request.model, args)

    def verdict(self, batch: int, context: int) -> Verdict:
        """Return whether all devices have room for the sequences."""
        return _verdict(self.devices, batch, context)

    def resolved_at(self, batch: int, context: int) -> ResolvedRequest:
        """Return the complete request with another batch and context."""
        workload = dataclasses.replace(self.resolved.workload, batch=batch, context=context)
        request = self.resolved.request.with_workload(batch=batch, context=context)
        return self.resolved._replace(workload=workload, request=request)

    def max_context(self, batch: int, tightest: int) -> Quantity | None:
        """Return the longest context of `batch` sequences; `tightest` is the device whose symbols have short names."""
        return _max_context(self.devices, self.devices[tightest], batch)

    def max_batch(self, context: int, tightest: int) -> Quantity | None:
        """Return the most sequences of `context` tokens; `tightest` is the device whose symbols have short names."""
        return _max_batch(self.devices, self.devices[tightest], context)


def possible_verdict(request: FitRequest) -> Verdict | None:
    """Return whether the request fits; None if it is not possible, or the engine refuses it.

    A search asks this of many requests. Most fail on the device with the most layers, and the others are not computed
    then.
    """
    try:
        resolved = resolve(request)
        if resolved.refusal:
            return None
        devices = each_device(resolved, most_layers_first=True)
        return _verdict(devices, resolved.workload.batch, resolved.workload.context)
    except AttncalcError:
        return None


def sure_limits(resolved: ResolvedRequest) -> tuple[int, int]:
    """Return the longest context of the requested batch, and the most sequences of the requested context, that fit.

    Both fit even with the least memory for the cache. They are 0 if none does, and without a limit. The context is at
    most the model's maximum.
    """
    devices, batch, context = devices_of(resolved), resolved.workload.batch, resolved.workload.context
    longest = _largest(lambda tokens: _all_have_room(devices, batch, tokens, "low"))
    maximum = resolved.request.model.max_context
    if maximum and (longest is None or longest > maximum):
        longest = maximum
    most_sequences = _largest(lambda sequences: _all_have_room(devices, sequences, context, "low"))
    return longest or 0, most_sequences or 0


def most_sequences(
    resolved: ResolvedRequest, contexts: Sequence[int], shared_prefix: int = 0
) -> tuple[tuple[MostSequences, ...], bool]:
    """Return the most sequences of each of those contexts, and whether they share the prefix.

    Args:
        resolved: The complete request.
        contexts: Tokens of each sequence.
        shared_prefix: Tokens with which all sequences start, fewer than each context. The engine stores them once, if
            it caches prefixes.

    Raises AttncalcError as `fit` does.
    """
    devices = devices_of(resolved)
    layouts = [device.layout.with_shared_prefix(shared_prefix) for device in devices] if shared_prefix else []
    sharing = [device._replace(layout=shared) for device, shared in zip(devices, layouts, strict=False) if shared]
    if sharing:
        devices = sharing
    most_by_context = []
    for context in contexts:
        tightest = min(devices, key=lambda device: device.slack(1, int(context)))
        sequences = _max_batch(devices, tightest, int(context))
        needed = None
        if sequences is not None:
            batch, tokens = symbol("B", int(sequences), "sequences"), symbol("T", int(context), "tokens of each")
            needed = quantity(tightest.layout.needed(batch, tokens) if sequences else 0)
        most_by_context.append(MostSequences(sequences, needed))
    return tuple(most_by_context), bool(sharing)


def with_longest_context(request: FitRequest) -> FitRequest:
    """Return the request with the longest context that fits, at most the model's maximum; unchanged if none fits.

    Raises AttncalcError as `fit` does.
    """
    context, _ = sure_limits(resolve(request))
    return request.with_workload(context=context) if context else request


def _tightest(devices: Sequence[Device], pools: Sequence[Pool], batch: int, context: int) -> int:
    """Return the index of the device with room for the fewest sequences."""
    if len(devices) == 1:
        return 0
    from fractions import Fraction  # takes 2 ms to import, and most requests have one device

    def room(i: int) -> tuple[bool, Fraction, int]:
        slack, concurrency = devices[i].slack(batch, context), pools[i].concurrency
        return slack >= 0, Fraction(concurrency.numerator, concurrency.denominator), slack

    return min(range(len(devices)), key=room)


def _with_fewest_tokens(pools: Sequence[Pool], tightest: int, devices: Sequence[Device]) -> Pool:
    """Return the tightest device's pool, with the tokens of the device that has the fewest."""
    fewest = min(range(len(pools)), key=lambda i: int(pools[i].tokens))
    pool = pools[tightest]
    if pools[fewest].tokens >= pool.tokens:
        return pool
    name = devices[fewest].name
    meaning = f"tokens on {name.replace('_', ' ')}, the fewest"
    return pool._replace(tokens=named(pools[fewest].tokens, f"kv_tokens_{name}", meaning))


def _verdict(devices: Iterable[Device], batch: int, context: int) -> Verdict:
    """Return whether the sequences fit with the least memory for the cache, only with more, or not with the most."""
    verdict: Verdict = "fits"
    for device in devices:
        if not device.has_room(batch, context, "low"):
            if not device.has_room(batch, context, "high"):
                return "does_not_fit"
            verdict = "may_not_fit"
    return verdict


def _all_have_room(devices: Sequence[Device], batch: int, context: int, end: End = "expected") -> bool:
    """Return whether every device has room for the sequences, and the engine can run that many."""
    return all(device.has_room(batch, context, end) for device in devices)


def _max_context(devices: Sequence[Device], main: Device, batch: int) -> Quantity | None:
    """Return the longest context of `batch` sequences; None without a limit."""
    context = _largest(lambda tokens: _all_have_room(devices, batch, tokens))
    if not context:
        return None if context is None else Quantity(0)
    limiting = min(devices, key=lambda device: (device.slack(batch, context + 1), device is not main))
    needed = named(limiting.needed(batch, context), "needed", "bytes that these need")
    return most("T", context, "tokens of each sequence", needed, limiting.kv_memory(batch, context, main))


def _max_batch(devices: Sequence[Device], main: Device, context: int) -> Quantity | None:
    """Return the most sequences of `context` tokens: what fits, or the engine's own limit; None without a limit."""
    batch = _largest(lambda sequences: _all_have_room(devices, sequences, context))
    if not batch:
        return None if batch is None else Quantity(0)
    if batch == devices[0].layout.max_sequences:
        return symbol("max_sequences", batch, "concurrent sequences that the engine runs")
    limiting = min(devices, key=lambda device: (device.slack(batch + 1, context), device is not main))
    needed = named(limiting.needed(batch, context), "needed", "bytes that these need")
    return most("B", batch, "sequences", needed, limiting.kv_memory(batch, context, main))


def _largest(holds: Callable[[int], bool]) -> int | None:
    """Return the largest number for which `holds` is true, by binary search; 0 if there is none, None from NO_LIMIT.

    If `holds` is true for a number, it must be true for all smaller ones.
    """
    if not holds(1):
        return 0
    high = 2
    while holds(high):
        high *= 2
        if high > NO_LIMIT:
            return None
    return first_true(lambda n: not holds(n), high // 2, high) - 1


def min_gpus(resolved: ResolvedRequest) -> Quantity | None:
    """Return the fewest GPUs of this kind that hold the model and the batch, with the requested pipeline stages.

    None without a GPU, and if no number of GPUs is enough.
    """
    batch, context = resolved.workload.batch, resolved.workload.context
    for request in with_other_gpus(resolved):
        if possible_verdict(request) in (None, "does_not_fit"):
            continue
        devices = devices_of(resolve(request))
        if _all_have_room(devices, batch, context):
            tightest = min(devices, key=lambda device: device.slack(batch, context))
            available = named(tightest.budget.kv_memory, "kv_memory_at", "bytes for the cache with so many")
            needed = named(tightest.needed(batch, context), "needed_at", "bytes that the batch needs then")
            return least("gpus", request.gpus or 1, "GPUs", available, needed, ">=")
    return None


def with_other_gpus(resolved: ResolvedRequest) -> Iterator[FitRequest]:
    """Yield the request on each number of GPUs that can hold the model once, the fewest first; none without a GPU."""
    request = resolved.request
    if resolved.whole_layers and request.kv_memory is None:
        n_layers = request.model.main.n_layers
        for gpus in range(_fewest_for_weights(resolved), min(n_layers, resolved.engine.max_gpus or n_layers) + 1):
            yield dataclasses.replace(request, gpus=gpus)
    elif resolved.gpu and request.kv_memory is None:  # on more GPUs the memory for the cache would be another
        for attention_tp in tensor_parallel_sizes(request.model):
            tp = attention_tp * request.attn_dp
            yield dataclasses.replace(request, tp=tp, gpus=tp * request.pp * request.dp)


def _fewest_for_weights(resolved: ResolvedRequest) -> int:
    """Return a number of GPUs below which their memory is smaller than the weights that they share, at least 1."""
    budgets = [device.budget for device in devices_of(resolved)]
    weights = sum(int(budget.weights.total) for budget in budgets if budget.weights)
    usable = max(int(budget.usable) for budget in budgets if budget.usable)
    return max(1, weights // usable)


def tensor_parallel_sizes(model: ModelSpec) -> Iterator[int]:
    """Yield the tensor-parallel sizes that divide the model, the smallest first; powers of two if it has no heads."""
    heads = max(int(kind.widths().n_heads) for _, layers in model.groups() for kind in layers.attentions)
    for tp in range(1, (heads or 64) + 1):
        if heads % tp == 0 if heads else tp & (tp - 1) == 0:
            try:
                model.shard(tp)
            except AttncalcError:  # something else in the model does not divide, as a second kind's heads
                continue
            yield tp
