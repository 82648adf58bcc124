"""What fits: how an engine divides the memory for the cache, and how many sequences and tokens it
holds.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from ..cost.cache import layer_cache_specs
from ..engines.base import CacheLayout, Pool
from ..engines.engine import Refusal
from ..engines.without_cache import StepLayout
from ..errors import AttncalcError, is_valid
from ..model import ModelSpec
from ..quantity import Quantity, Ratio, least, most, named, quantity, symbol
from ..records import NamedTuple
from ..search import first_true
from ..units import BYTES, count, human
from .devices import (
    Device,
    HostMemory,
    device_memory,
    devices_of,
    each_device,
    host_limit,
    host_memory,
    layout_per_device,
    sharing_prefix,
)
from .memory_budget import End, MemoryBudget
from .request import FitRequest, ResolvedRequest, resolve

# Whether a request fits even with the least memory for the cache, only with more, or not even with
# the most.
Verdict = Literal["fits", "may_not_fit", "does_not_fit"]

# Tokens of context that are useful if none are asked for.
USEFUL_CONTEXT = 8192
# Tokens of context with which layers go to the host rather than fewer tokens: Ollama's on GPUs
# below 24 GiB.
LEAST_CONTEXT = 4096
# A search for the most sequences, or the longest context, stops here and reports that there is no
# limit.
NO_LIMIT = 2**50


class FitResult(NamedTuple):
    """The answer to a FitRequest. If devices differ, it is that of the device with room for the
    fewest sequences.

    Attributes:
        resolved: The complete request.
        budget: The memory of that device.
        layout: How the engine stores the cache there.
        pool: What the memory for the cache holds.
        needed: Bytes that the requested batch needs.
        verdict: Whether all devices have room for it, and the engine starts.
        refusal: Why the engine does not start, whatever the memory; None if it does.
        max_context: The longest context of the requested batch, at most the model's own; None
            without a limit, 0 if it never fits.
        max_batch: The most sequences of the requested context; None without a limit, 0 if not one
            fits.
        host: What is in host memory, if its size is known.
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
    host: HostMemory | None

    @property
    def host_needed(self) -> int | None:
        """Bytes that the request needs in host memory; None if no size of it is known."""
        if self.host:
            return self.host.needed(self.resolved.workload.batch, self.resolved.workload.context)
        return None

    @property
    def request(self) -> FitRequest:
        return self.resolved.request

    @property
    def step_tokens(self) -> Quantity | None:
        """The tokens of one step of a model without a cache; None for another model."""
        if not isinstance(self.layout, StepLayout):
            return None
        workload = self.resolved.workload
        return self.layout.tokens(workload.batch, int(workload.context))

    def step_texts(self, length: int) -> Quantity | None:
        """Return how many texts of `length` tokens one step computes; None for a model with a
        cache.
        """
        tokens = self.step_tokens
        if tokens is None or not isinstance(self.layout, StepLayout):
            return None
        return self.layout.texts(length, tokens)

    @property
    def ends_without_a_cache(self) -> bool:
        """Whether the engine ends, as one request of the context needs more than the memory for
        the cache.
        """
        if self.step_tokens is not None:
            return False
        if not self.resolved.engine.must_fit_one or self.max_batch != 0:
            return False
        return int(self.pool.figure("kv_bytes_per_sequence")) > self.budget.room()

    @property
    def log_lines(self) -> tuple[str, ...]:
        """The lines that the engine will log about the cache and about its runtime memory; only its
        message if it ends without a cache.
        """
        if self.ends_without_a_cache:
            engine = self.resolved.engine
            context = self.resolved.workload.context
            memory = self.budget.room()
            return (engine.too_small_message(self.resolved.args, self.pool, memory, context),)
        runtime = self.budget.reserve.runtime.log_lines if self.budget.reserve else ()
        gpu = self.resolved.gpu
        rows = device_memory(self.resolved)
        of_devices = self.resolved.engine.memory_lines(rows, gpu) if gpu and rows else ()
        return (*self.pool.log_lines, *runtime, *of_devices)

    @property
    def longest_request(self) -> int | None:
        """Tokens of the longest request, if the engine starts although not one request of the
        context fits.
        """
        if (
            self.refusal
            or self.verdict != "does_not_fit"
            or self.max_batch is None
            or self.max_batch
        ):
            return None
        if isinstance(self.layout, StepLayout):  # it refuses a text that is longer than a step
            if self.budget.room("low") < 0:
                return None
            return self.layout.max_tokens
        return self.resolved.engine.longest_request(self.pool)

    @property
    def starts(self) -> bool:
        """Whether the engine starts, if only for requests that are shorter than the context."""
        return self.fits or self.longest_request is not None

    @property
    def requests_of_all_replicas(self) -> int | None:
        """The most requests of this context that all replicas run concurrently; None without a
        limit.
        """
        if self.max_batch is None:
            return None
        return int(self.max_batch) * self.resolved.replicas

    @property
    def fits(self) -> bool:
        """Whether it may fit: the verdict is not 'does_not_fit'."""
        return self.verdict != "does_not_fit"


class Limits(NamedTuple):
    """What fits with one end of the memory for the cache, in one replica; None without a limit."""

    kv_tokens: int | None
    concurrency: Ratio
    max_context: int | None
    max_batch: int | None


class MostSequences(NamedTuple):
    """The most sequences of one context that fit."""

    sequences: Quantity | None  # their number; None without a limit
    # bytes of the cache that they need on the device with the least room; None without a limit
    needed: Quantity | None


def fit(request: FitRequest) -> FitResult:
    """Return what fits.

    Raises AttncalcError if a value is not possible, or the engine does not support the model or an
    argument.
    """
    deployment = Deployment(resolve(request))
    workload = deployment.resolved.workload
    return deployment.result(workload.batch, workload.context)


def budget_without_kv_memory(resolved: ResolvedRequest) -> MemoryBudget | None:
    """Return the budget of the whole GPU with the least room, if the memory for its cache was
    given; else None.
    """
    if resolved.request.kv_memory is None or resolved.gpu is None or resolved.gpu.is_cpu:
        return None
    whole = dataclasses.replace(resolved.request, kv_memory=None, gpu_memory_utilization="1.0")
    return min(
        (device.budget for device in devices_of(resolve(whole))),
        key=lambda budget: budget.room("high"),
    )


class Deployment:
    """A complete request with its devices, which answers for any batch and context that its devices
    do not depend on.

    The memory for vLLM's cache depends on neither, except on the context with some models;
    llama.cpp's compute buffer depends on both. A sweep keeps a Deployment for the cells that share
    it.
    """

    def __init__(self, resolved: ResolvedRequest, devices: list[Device] | None = None) -> None:
        """Take a complete request, and its devices if they are known already."""
        self.resolved = resolved
        # its devices, in plain ints
        self.devices = devices_of(resolved) if devices is None else devices
        # what is in host memory, if its size is known
        self.host = host_memory(resolved, self.devices[0])
        # how the engine stores the cache on each device with the slots of the request, in plain
        # ints. Those of `devices` have slots for any batch.
        self.layouts: Sequence[CacheLayout] = [device.layout for device in self.devices]
        if resolved.args_without_slots is not resolved.args:
            self.layouts = self._layouts(resolved.model.plain())

    def _layouts(self, model: ModelSpec) -> Sequence[CacheLayout]:
        whole = self.resolved.engine.layout(layer_cache_specs(model), self.resolved.args)
        return layout_per_device(sharing_prefix(whole, self.resolved), len(self.devices))

    @property
    def shares_prefix(self) -> bool:
        """Whether users' requests have a shared prefix, and the engine stores it once."""
        tokens = self.resolved.request.shared_tokens
        return tokens > 0 and self.layouts[0].with_shared_prefix(tokens) is not None

    def result(self, batch: int, context: int) -> FitResult:
        """Return what fits, with the formulas of `needed` and `pool`. Raises AttncalcError as `fit`
        does.
        """
        layouts = self._layouts(self.resolved.model.symbolic(gathered=False))
        pools = self.pools(context, layouts)
        tightest, pool = self.tightest(pools, batch, context)
        refusal = self.refusal(context)
        return FitResult(
            resolved=self.resolved,
            budget=self.devices[tightest].budget,
            layout=layouts[tightest],
            pool=pool,
            needed=self.needed(batch, context, tightest, layouts[tightest]),
            verdict="does_not_fit" if refusal else self.verdict(batch, context),
            refusal=refusal,
            max_context=self.max_context(batch, tightest),
            max_batch=self.max_batch(context, tightest),
            host=self.host,
        )

    def pools(self, context: int, layouts: Sequence[CacheLayout] | None = None) -> list[Pool]:
        """Return what the memory of each device holds, for sequences of `context` tokens.

        `layouts` are `self.layouts` in symbols, for formulas; by default in plain ints.
        """
        return [
            device_layout.pool(int(device.budget.kv_memory), context)
            for device, device_layout in zip(self.devices, layouts or self.layouts, strict=True)
        ]

    def needed(
        self, batch: int, context: int, i: int, device_layout: CacheLayout | None = None
    ) -> Quantity:
        """Return the bytes that the batch needs on the i-th device, with their formula if its
        layout is in symbols.
        """
        if device_layout is None:
            needed = quantity(self.layouts[i].needed(batch, context))
        else:
            needed = _needed(device_layout, batch, context)
        start = self.devices[i].start
        to_start = start.needed(1, context) if start else 0
        if to_start > needed:
            return symbol("start", to_start, "bytes of one request in all layers, to start")
        return needed

    def tightest(self, pools: Sequence[Pool], batch: int, context: int) -> tuple[int, Pool]:
        """Return the index of the device with room for the fewest sequences, and its pool.

        The pool has the tokens of the device that has the fewest.
        """
        tightest = self._tightest(pools, batch, context)
        pool = pools[tightest]
        fewest = min(range(len(pools)), key=lambda i: int(pools[i].tokens))
        if pools[fewest].tokens >= pool.tokens:
            return tightest, pool
        name = self.devices[fewest].name
        meaning = f"tokens on {name.replace('_', ' ')}, the fewest"
        return tightest, pool._replace(
            tokens=named(pools[fewest].tokens, f"kv_tokens_{name}", meaning)
        )

    def _tightest(self, pools: Sequence[Pool], batch: int, context: int) -> int:
        if len(pools) == 1:
            return 0
        from fractions import Fraction  # takes 2 ms to import, and most requests have one device

        def room(i: int) -> tuple[bool, Fraction, int]:
            slack = self.devices[i].slack(batch, context)
            concurrency = pools[i].concurrency
            return slack >= 0, Fraction(concurrency.numerator, concurrency.denominator), slack

        return min(range(len(pools)), key=room)

    def refusal(self, context: int) -> Refusal | None:
        """Return why the engine does not start with that context, whatever the memory; None if it
        does.
        """
        resolved = self.resolved
        args = dataclasses.replace(resolved.args, max_model_len=context)
        return (
            resolved.refusal_with(args) or self._exceeds_the_gpu() or self._too_few_blocks(context)
        )

    def _exceeds_the_gpu(self) -> Refusal | None:
        """Return that the given memory for the cache is more than weights and the least runtime
        leave of the GPU; None if these leave nothing, as an engine reported this memory.

        vLLM does not compare them: with --kv-cache-memory-bytes it skips profiling, and runs out of
        memory.
        """
        if self.resolved.request.has_started:
            return None
        tightest = budget_without_kv_memory(self.resolved)
        size = self.resolved.request.kv_memory or 0
        if (
            not (tightest and tightest.weights and tightest.memory)
            or not tightest.kv_memory_high
            or size <= tightest.kv_memory_high
        ):
            return None
        sizes = (size, tightest.weights.total, tightest.memory, tightest.kv_memory_high)
        cache, held, memory, left = (human(one, BYTES) for one in sizes)
        return Refusal(
            f"a cache of {cache} and weights of {held} do not fit in {memory} with the runtime "
            "memory",
            f"Weights and runtime memory leave at most {left} for the cache.",
        )

    def _too_few_blocks(self, context: int) -> Refusal | None:
        """Return that a request has room, and a step may have more sequences than the most blocks
        for their states.
        """
        missing = [device.missing_blocks(context, "high") for device in self.devices]
        if not any(missing) or not self.has_room(1, context, "high"):
            return None
        sequences, blocks = min((both for both in missing if both), key=lambda both: both[1])
        missing_low = [device.missing_blocks(context, "low") for device in self.devices]
        least = min(both[1] for both in missing_low if both)
        return Refusal(
            f"a step may have {count(sequences)} sequences, and the cache has at most "
            f"{count(blocks)} blocks of states",
            f"Use --max-num-seqs {max(1, least)} or less: each sequence of a step needs a block "
            "for its states.",
        )

    def has_room(self, batch: int, context: int, end: End = "expected") -> bool:
        """Return whether every device has room for the sequences, and the engine can run that
        many.
        """
        on_host = self.host is None or self.host.has_room(batch, context)
        return on_host and all(device.has_room(batch, context, end) for device in self.devices)

    def verdict(self, batch: int, context: int) -> Verdict:
        """Return whether all devices, and the host, have room for the sequences."""
        return _verdict(self.devices, batch, context, self.host)

    def resolved_at(self, batch: int, context: int) -> ResolvedRequest:
        """Return the complete request with another batch and context; the batch is that of all
        replicas.
        """
        per_replica = self.resolved.per_replica(batch)
        workload = dataclasses.replace(self.resolved.workload, batch=per_replica, context=context)
        request = self.resolved.request.with_workload(batch=batch, context=context)
        return self.resolved._replace(workload=workload, request=request)

    def max_context(self, batch: int, tightest: int, end: End = "expected") -> Quantity | None:
        """Return the longest context of `batch` sequences: what fits, or the model's own; None
        without a limit.

        The device with the index `tightest` has short names in the formula.
        """
        own = self.resolved.request.model.max_context
        layout = self.layouts[tightest]
        if own and self.has_room(batch, own, end):
            return symbol("max_positions", own, "tokens of the model's own maximum context")
        if isinstance(layout, StepLayout) and layout.max_tokens is not None:
            return self._longest_text(layout.max_tokens, batch, end)
        return self._most(
            "T", "tokens of each sequence", tightest, lambda tokens: (batch, tokens), end
        )

    def _longest_text(self, tokens: int, batch: int, end: End) -> Quantity:
        """Return the longest of `batch` texts that a step of so many tokens computes; 0 if the
        memory is not enough.
        """
        longest = tokens // symbol("B", batch, "texts")
        if not longest or not self.has_room(batch, int(longest), end):
            return Quantity(0)
        return quantity(longest)

    def limits(self, batch: int, context: int, end: End) -> Limits:
        """Return the limits with one end of the memory for the cache."""
        memories = [max(0, device.budget.room(end)) for device in self.devices]
        pools = [
            layout.pool(memory, context)
            for layout, memory in zip(self.layouts, memories, strict=True)
        ]
        tokens = min(int(pool.tokens) for pool in pools)
        most = self.max_batch(context, 0, end)
        longest = self.max_context(batch, 0, end)
        return Limits(
            None if tokens >= NO_LIMIT else tokens,
            min((pool.concurrency for pool in pools), key=float),
            None if longest is None else int(longest),
            None if most is None else int(most),
        )

    def max_batch(self, context: int, tightest: int, end: End = "expected") -> Quantity | None:
        """Return the most sequences of `context` tokens: what fits, or the engine's own limit; None
        without a limit.

        The device with the index `tightest` has short names in the formula.
        """
        limit = self.devices[0].layout.max_num_seqs
        layout = self.layouts[tightest]
        if isinstance(layout, StepLayout) and layout.max_tokens is not None:
            if self.has_room(1, context, end):
                return layout.most_texts(context)
            return Quantity(0)
        found = self._most(
            "B",
            "sequences",
            tightest,
            lambda sequences: (sequences, context),
            end,
            guess=self._guessed_batch(context, end),
        )
        if found is None or found != limit:
            return found
        return symbol("max_sequences", limit, "concurrent sequences that the engine runs")

    def _guessed_batch(self, context: int, end: End) -> int:
        """Return about the most sequences: as many as fit if each further one needs as much as the
        second. It is 1 if the runtime memory grows with them.
        """
        if self.resolved.engine.runtime_grows:
            return 1
        guesses = []
        for device in self.devices:
            of_one = device.needed(1, context)
            more = device.needed(2, context) - of_one
            if more > 0:
                guesses.append(1 + max(0, device.budget.room(end) - of_one) // more)
            if device.layout.max_num_seqs:
                guesses.append(device.layout.max_num_seqs)
        return max(1, min(guesses, default=1))

    def _most(
        self,
        name: str,
        meaning: str,
        tightest: int,
        size: Callable[[int], tuple[int, int]],
        end: End = "expected",
        guess: int = 1,
    ) -> Quantity | None:
        """Return the largest number whose `size`, a batch and a context, has room; None without a
        limit.

        Only that with the expected memory has a formula. The search starts at `guess`.
        """
        largest = _largest(lambda n: self.has_room(*size(n), end), guess)
        if not largest or end != "expected":
            if largest is None:
                return None
            return Quantity(largest)
        main = self.devices[tightest]
        limiting = min(
            self.devices, key=lambda device: (device.slack(*size(largest + 1)), device is not main)
        )
        if self.host and self.host.limit - self.host.needed(*size(largest + 1)) < limiting.slack(
            *size(largest + 1)
        ):
            on_host = named(
                self.host.needed(*size(largest)),
                "needed_on_host",
                "bytes that these need on the host",
            )
            return most(
                name,
                largest,
                meaning,
                on_host,
                symbol("ram", self.host.limit, "bytes of host memory"),
            )
        needed = named(limiting.needed(*size(largest)), "needed", "bytes that these need")
        return most(name, largest, meaning, needed, limiting.kv_memory(*size(largest), main))


def _needed(layout: CacheLayout, batch: int, context: int) -> Quantity:
    """Return the bytes that sequences need, with their formula."""
    return quantity(
        layout.needed(symbol("B", batch, "sequences"), symbol("T", context, "tokens of each"))
    )


def possible_verdict(request: FitRequest) -> Verdict | None:
    """Return whether the request fits; None if it is not possible, or the engine refuses it.

    A search asks this of many requests, and of some again. Most fail on the device with the most
    layers, and the others are not computed then.
    """
    return request.kept("verdict", lambda: _possible_verdict(request))


def _possible_verdict(request: FitRequest) -> Verdict | None:
    try:
        resolved = resolve(request)
        if resolved.refusal:
            return None
        batch = resolved.workload.batch
        context = resolved.workload.context
        verdict = _verdict(each_device(resolved, most_layers_first=True), batch, context)
        if verdict != "does_not_fit" and host_limit(resolved):
            return Deployment(resolved).verdict(batch, context)
        return verdict
    except AttncalcError:
        return None


def sure_limits(resolved: ResolvedRequest) -> tuple[int, int]:
    """Return the longest context of the requested batch, and the most sequences of the requested
    context, that fit.

    Both fit even with the least memory for the cache. They are 0 if none does, and without a limit.
    The context is at most the model's maximum.
    """
    deployment = Deployment(resolved)
    return int(deployment.max_context(resolved.workload.batch, 0, "low") or 0), _sure_sequences(
        deployment
    )


def sure_sequences(resolved: ResolvedRequest) -> int:
    """Return the most sequences of the requested context that fit in one replica even with the
    least memory.

    0 if none does, and without a limit.
    """
    return _sure_sequences(Deployment(resolved))


def _sure_sequences(deployment: Deployment) -> int:
    return int(deployment.max_batch(deployment.resolved.workload.context, 0, "low") or 0)


def most_sequences(
    deployment: Deployment, contexts: Sequence[int], end: End = "expected"
) -> tuple[MostSequences, ...]:
    """Return the most sequences of each of those contexts. Raises AttncalcError as `fit` does."""
    most = {context: _most_sequences(deployment, context, end) for context in map(int, contexts)}
    return tuple(most[int(context)] for context in contexts)


def _most_sequences(deployment: Deployment, context: int, end: End) -> MostSequences:
    devices = deployment.devices
    tightest = min(range(len(devices)), key=lambda i: devices[i].slack(1, context))
    sequences = deployment.max_batch(context, tightest, end)
    if sequences is None:
        return MostSequences(None, None)
    if not sequences:
        return MostSequences(sequences, quantity(0))
    needed = _needed(devices[tightest].layout, int(sequences), context)
    return MostSequences(sequences, needed)


def with_longest_context(request: FitRequest) -> FitRequest:
    """Return the request with the longest context that fits, at most the model's maximum; unchanged
    if none fits.

    If none is sure to fit, it is the longest with the expected memory, and then that with the most.

    Raises AttncalcError as `fit` does.
    """
    resolved = resolve(request)
    ends: tuple[End, ...] = ("low", "expected", "high")
    deployment = Deployment(resolved)
    batch = resolved.workload.batch
    context = int(next(filter(None, (deployment.max_context(batch, 0, end) for end in ends)), 0))
    if context:
        return request.with_workload(context=context)
    return request


def _verdict(
    devices: Iterable[Device], batch: int, context: int, host: HostMemory | None = None
) -> Verdict:
    """Return whether the sequences fit with the least memory for the cache, only with more, or not
    with the most.

    They may not fit either where the engine may run out of memory outside its share.
    """
    verdict: Verdict = "fits"
    if host and not host.has_room(batch, context):
        return "does_not_fit"
    for device in devices:
        if not device.has_room(batch, context, "low"):
            if not device.has_room(batch, context, "high"):
                return "does_not_fit"
            verdict = "may_not_fit"
        elif device.missing_blocks(context, "low"):
            if device.missing_blocks(context, "high"):
                return "does_not_fit"
            verdict = "may_not_fit"
        elif device.budget.reserve and device.budget.reserve.runtime.may_run_out:
            verdict = "may_not_fit"
    return verdict


def _largest(holds: Callable[[int], bool], guess: int = 1) -> int | None:
    """Return the largest number for which `holds` is true, by binary search; 0 if there is none,
    None from NO_LIMIT.

    If `holds` is true for a number, it must be true for all smaller ones. The search goes up or
    down from `guess`, in steps that double: a right guess takes three questions.
    """
    if not holds(1):
        return 0
    step = 1
    if guess > 1 and not holds(guess):
        high = guess
        while high > step and not holds(high - step):
            high -= step
            step *= 2
        low = max(1, high - step)
    else:
        low = guess
        while holds(low + step):
            low += step
            step *= 2
            if low >= NO_LIMIT:
                return None
        high = low + step
    largest = first_true(lambda n: not holds(n), low, high) - 1
    if largest >= NO_LIMIT:
        return None
    return largest


def on_fewest_gpus(resolved: ResolvedRequest) -> FitRequest | None:
    """Return the request on the fewest GPUs of this kind that hold the model once and the batch of
    one replica.

    The pipeline stages and the data-parallel ranks are the requested ones, or more stages where a
    GPU's node has fewer GPUs than a layer is split over. None without a GPU, and if no number of
    GPUs is enough.
    """
    batch = resolved.workload.batch
    context = resolved.workload.context
    for request in with_other_gpus(resolved):
        if possible_verdict(request) in (None, "does_not_fit"):
            continue
        deployment = Deployment(resolve(request))
        missing = any(device.missing_blocks(context, "expected") for device in deployment.devices)
        if deployment.has_room(batch, context) and not missing:
            return request
    return None


def min_gpus(resolved: ResolvedRequest) -> Quantity | None:
    """Return the number of GPUs of `on_fewest_gpus`; None if there is none."""
    # vLLM's ranks divide the experts of a mixture; all others hold the model once each
    divides_experts = resolved.request.model.has_experts and not resolved.engine.ranks_share_tp
    if resolved.dp > 1 and not divides_experts:
        one = dataclasses.replace(resolved.request, dp=1, gpus=resolved.gpus // resolved.dp)
        resolved = resolve(one.with_workload(batch=resolved.workload.batch))
    batch = resolved.workload.batch
    context = resolved.workload.context
    request = on_fewest_gpus(resolved)
    if request is None:
        return None
    deployment = Deployment(resolve(request))
    tightest = min(deployment.devices, key=lambda device: device.slack(batch, context))
    available = named(tightest.budget.kv_memory, "kv_memory_at", "bytes for the cache with so many")
    needed = named(tightest.needed(batch, context), "needed_at", "bytes that the batch needs then")
    return least("gpus", request.gpus or 1, "GPUs", available, needed, ">=")


def with_other_gpus(resolved: ResolvedRequest) -> Iterator[FitRequest]:
    """Yield the request on each number of GPUs that can hold the model once, the fewest first; none
    without a GPU.

    The batch is that of one replica. A Mac and a laptop have one.
    """
    found = _with_other_gpus(resolved)
    yield from (
        (one for one in found if one.gpus == 1) if resolved.gpu and resolved.gpu.is_alone else found
    )


def _with_other_gpus(resolved: ResolvedRequest) -> Iterator[FitRequest]:
    request = resolved.request
    copies = resolved.replicas // (resolved.dp * resolved.args.attn_dp)
    if copies > 1:
        batch = resolved.workload.batch * resolved.replicas // copies
        request = _changed(request, workload=dataclasses.replace(request.workload, batch=batch))
    if resolved.whole_layers and request.kv_memory is None:
        n_layers = request.model.main.n_layers
        for gpus in range(
            _fewest_for_weights(resolved), min(n_layers, resolved.engine.max_gpus or n_layers) + 1
        ):
            yield _changed(request, gpus=gpus)
    elif (
        resolved.gpu and not resolved.gpu.is_cpu and request.kv_memory is None
    ):  # on more GPUs the memory for the cache would be another
        for attention_tp in tensor_parallel_sizes(request.model):
            tp = attention_tp * request.attn_dp
            nodes = 1
            # stages: each layer stays within a node
            if request.attn_dp == 1 and tp % resolved.gpu.per_node == 0:
                nodes = tp // resolved.gpu.per_node
                tp = resolved.gpu.per_node
            pp = request.pp * nodes
            yield _changed(request, tp=tp, pp=pp, gpus=tp * pp * request.dp)


def _changed(request: FitRequest, **fields: Any) -> FitRequest:
    """Return the request with other fields: for the same ones the same object, which keeps its
    verdict.
    """
    return request.kept(tuple(fields.items()), lambda: dataclasses.replace(request, **fields))


def _fewest_for_weights(resolved: ResolvedRequest) -> int:
    """Return a number of GPUs below which their memory is smaller than the weights that they share,
    at least 1.
    """
    budgets = [device.budget for device in devices_of(resolved)]
    weights = sum(int(budget.weights.total) for budget in budgets if budget.weights)
    usable = max(int(budget.usable) for budget in budgets if budget.usable)
    return max(1, weights // usable)


def tensor_parallel_sizes(model: ModelSpec) -> Iterator[int]:
    """Yield the tensor-parallel sizes that divide the model, the smallest first; powers of two if
    it has no heads.
    """
    heads = max(
        int(kind.widths().n_heads) for _, layers in model.groups() for kind in layers.attentions
    )
    sizes = [1, 2, 4, 8, 16, 32, 64]
    if heads:
        sizes = [tp for tp in range(1, heads + 1) if heads % tp == 0]
    for tp in sizes:
        # something else in the model may not divide, as a second kind's heads
        if is_valid(model.shard, tp):
            yield tp
