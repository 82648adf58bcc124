"""Compare a start-up log with the prediction from the model and the arguments in it.

The cache follows exactly from its memory, so its figures must agree within the log's rounding. Weights and runtime
memory are estimates: they are compared with their ranges.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from ..check import Check
from ..cost.cache import layer_cache_specs
from ..engines import layout
from ..engines.base import CacheLayout, Pool
from ..engines.llamacpp.log import figures_of as llamacpp_figures_of
from ..engines.sglang.log import figures_of as sglang_figures_of
from ..engines.startup_log import Printed, StartupLog
from ..engines.vllm.versions import RELEASES
from ..errors import AttncalcError
from ..search import first_true
from ..units import BYTES, GIB, TOKENS, count
from .fit import fit
from .memory_budget import MemoryBudget, memory_budget
from .request import FitRequest, ResolvedRequest, resolve
from .weights import weights

_LABELS = {
    "kv_block_size": "tokens per block",
    "kv_blocks": "blocks",
    "cpu_blocks": "blocks in host memory",
    "kv_tokens": "tokens",
    "concurrency": "concurrency",
    "kv_bytes_per_sequence": "needed for one request",
    "max_context": "longest context",
}
"""The figures of vLLM's cache."""
_SIZES = {
    "state_slots": "slots of states",
    "conv_state_size": "states of convolutions",
    "ssm_state_size": "recurrent states",
    "kv_tokens": "tokens",
    "full_kv_tokens": "tokens of the full pool",
    "swa_kv_tokens": "tokens of the window pool",
    "kv_size": "KV cache",
    "k_size": "K",
    "v_size": "V",
    "full_k_size": "K of the full pool",
    "full_v_size": "V of the full pool",
    "swa_k_size": "K of the window pool",
    "swa_v_size": "V of the window pool",
    "swa_kv_size": "KV cache of sliding windows",
    "indexer_kv_size": "keys of the indexer",
    "recurrent_size": "recurrent states",
    "n_ctx": "n_ctx",
}
"""The figures of the caches of SGLang and llama.cpp."""
_WEIGHTS_RANGE = {"llamacpp": (Fraction(12, 100), Fraction(2, 100)), "": (Fraction(2, 100), Fraction(2, 100))}
"""The range of the weights below and above, besides 0.05 GiB for what a loader adds.

A GGUF file may have its output matrix quantized, which the estimate has in 16 bits: 7,670 MiB of Qwen3-8B in Q8_0
instead of 8,220.
"""
_PARTS = {
    "activations": ("activation peak", ("activations", "experts", "encoder", "received")),
    "outside_torch": ("outside PyTorch", ("outside_torch",)),
    "cuda_graphs": ("CUDA graphs", ("cuda_graphs",)),
    "captured_graphs": ("CUDA graphs, captured", ("cuda_graphs",)),
    "weights_and_outside": ("weights and outside PyTorch", ("weights", "outside_torch")),
    "compute_buffer": ("compute buffer", ("compute_buffer",)),
    "host_compute_buffer": ("compute buffer of the host", ("host_compute_buffer",)),
}
"""{what a log prints: (its label, the parts of the runtime memory that it consists of)}."""
_BEYOND = 2**60
"""More bytes than any device has: where a search for the memory ends."""


class LogMemory(NamedTuple):
    """The memory for the cache that a log has, in bytes, and the bounds that its rounding leaves.

    Attributes:
        low: The least memory that would be printed so.
        printed: The memory as printed; negative if weights and reserve are larger than the engine's share.
        high: The most memory that would be printed so.
        source: Where the memory is from: the line of the log.
    """

    low: int
    printed: int
    high: int
    source: str


class Estimate(NamedTuple):
    """A size that a log prints, and its estimate with a range, in bytes.

    Attributes:
        name: Its name in JSON.
        label: Its name on screens.
        logged: As printed.
        low: The least to expect.
        expected: The estimate.
        high: The most to expect.
    """

    name: str
    label: str
    logged: int
    low: int
    expected: int
    high: int

    @property
    def inside(self) -> bool:
        """Whether the logged size is in the range."""
        return self.low <= self.logged <= self.high


class LogComparison(NamedTuple):
    """A log's figures, compared with predicted ones.

    Attributes:
        request: The request with the log's memory and the version of the engine that it is compared with.
        memory: The log's memory for the cache; None if the engine did not get so far.
        checks: Each figure of the cache as printed and as predicted.
        estimates: What was printed of the rest of the memory, and its estimates.
        guessed: Whether neither the log nor an option has the version.
    """

    request: FitRequest
    memory: LogMemory | None
    checks: tuple[Check, ...]
    estimates: tuple[Estimate, ...]
    guessed: bool

    @property
    def agrees(self) -> bool:
        """Whether every figure of the cache agrees."""
        return all(check.ok for check in self.checks)


def compare(request: FitRequest, log: StartupLog) -> LogComparison:
    """Return the log's figures and the predicted ones. The request has no memory: the log has it.

    Without a version of vLLM, the result is that of the newest version that agrees, or of the newest one if none does.

    Raises AttncalcError if a running engine's log has neither a memory nor blocks, or no version supports the model.
    """
    if log.engine != "vllm" or request.engine_args.get("engine_version") is not None:
        return _comparison(request, log, guessed=False)
    differing: list[LogComparison] = []
    first_error: AttncalcError | None = None
    for version in RELEASES:
        try:
            comparison = _comparison(request.with_engine_args(engine_version=version), log, guessed=True)
        except AttncalcError as error:  # this version does not support the model
            first_error = first_error or error
            continue
        if comparison.agrees:
            return comparison
        differing.append(comparison)
    if first_error and not differing:
        raise first_error
    return differing[0]


def without_gpu(request: FitRequest, kv_memory: int) -> FitRequest:
    """Return the request with that memory for the cache instead of a GPU."""
    return dataclasses.replace(
        request,
        gpu=None,
        gpus=None,
        gpu_memory_utilization=None,
        weights_dtype=None,
        logged_excess=None,
        kv_memory=max(0, kv_memory),
    )


def _comparison(request: FitRequest, log: StartupLog, *, guessed: bool) -> LogComparison:
    resolved = resolve(without_gpu(request, 0))  # the layout does not depend on the memory
    cache_layout = layout(resolved.engine, layer_cache_specs(resolved.model.plain()), resolved.args)
    memory, checks = _CHECKS[log.engine](log, cache_layout, resolved)
    memory_request = without_gpu(request, memory.printed if memory else 0)
    return LogComparison(memory_request, memory, checks, tuple(_estimates(request, log, memory)), guessed)


# The figures of the cache


_Checks = tuple[LogMemory | None, tuple[Check, ...]]


def _vllm_checks(log: StartupLog, cache_layout: CacheLayout, resolved: ResolvedRequest) -> _Checks:
    context = resolved.workload.context
    memory = _vllm_memory(log, cache_layout, context)
    if memory is None:
        return None, ()
    ends = [max(0, end) for end in (memory.low, memory.printed, memory.high)]
    pools = [cache_layout.pool(size, context) for size in ends]
    logged = {name: figure for name, figure in log.logged.items() if name in _LABELS}
    if resolved.args.pp > 1:  # versions differ in which stage's layers they count
        logged.pop("max_context", None)
    checks = [
        _vllm_check(name, logged[name], [_figure(name, pool) for pool in pools])
        for name in _LABELS
        if name in logged and name != "max_context"
    ]
    if "max_context" in logged:
        longest = [_longest(cache_layout, end, context) for end in ends]
        checks.append(_vllm_check("max_context", logged["max_context"], longest))
    return memory, tuple(checks)


def _vllm_memory(log: StartupLog, cache_layout: CacheLayout, context: int) -> LogMemory | None:
    """Return the least memory that a rank printed; if none did, that of the printed number of blocks.

    None if the engine did not get so far. Raises AttncalcError if it did.
    """
    if "kv_memory" in log.logged:
        exact = int(log.logged["kv_memory"].text)
        return LogMemory(exact, exact, exact, f"{count(exact)} B of the log")
    if log.available:
        least = min(log.available, key=lambda figure: figure.number)
        return LogMemory(least.bytes - least.half, least.bytes, least.bytes + least.half, least.line)
    if "kv_blocks" in log.logged:
        blocks = int(log.logged["kv_blocks"].text)
        block = next(d.quantity for d in cache_layout.pool(0, context).details if d.name == "kv_bytes_per_block")
        size_of_blocks = blocks * int(float(block))
        return LogMemory(size_of_blocks, size_of_blocks, size_of_blocks, f"{count(blocks)} blocks, as printed")
    if log.refusal is not None:
        return None
    raise AttncalcError(
        "the log has neither the memory for the cache nor the number of blocks",
        "give the memory with --kv-memory instead, or a log with 'Available KV cache memory: ... GiB'",
    )


def _vllm_check(name: str, printed: Printed, predicted: Sequence[int | float]) -> Check:
    """Return the check of one figure; its tolerance is what the log's rounding allows."""
    low, middle, high = predicted
    note = "the log's memory is rounded" if low != high else "exact"
    if name == "kv_bytes_per_sequence":
        return Check("log", name, _LABELS[name], middle, printed.bytes, printed.half, BYTES, note)
    measured = float(printed.text) if name == "concurrency" else int(printed.text)
    # Concurrency is printed with two decimals: 44.625 as 44.62 or 44.63.
    half = 0.005 + 1e-9 if name == "concurrency" else 0
    tolerance = (high - middle if measured > middle else middle - low) + half
    unit = TOKENS if name in ("kv_tokens", "kv_block_size", "max_context") else ""
    return Check("log", name, _LABELS[name], middle, measured, tolerance, unit, note)


def _figure(name: str, pool: Pool) -> int | float:
    if name == "concurrency":
        return float(pool.concurrency)
    if name == "kv_tokens":
        return int(pool.tokens)
    if name == "kv_blocks":
        return int(pool.blocks or 0)
    return next((int(float(d.quantity)) for d in pool.details if d.name == name), 0)


def _longest(cache_layout: CacheLayout, memory: int, context: int) -> int:
    """Return the longest context up to `context` of which one request fits in that memory, as vLLM estimates it.

    Unlike `needed`, vLLM's check leaves out the block that it keeps free.
    """

    def needed(tokens: int) -> int:
        return int(_figure("kv_bytes_per_sequence", cache_layout.pool(memory, tokens)))

    return first_true(lambda tokens: needed(tokens) > memory, 0, context + 1) - 1


def _sglang_checks(log: StartupLog, cache_layout: CacheLayout, resolved: ResolvedRequest) -> _Checks:
    """Return the sizes of the pools that have as many tokens, or slots, as printed. The log has no memory."""
    context = resolved.workload.context
    named = {"state_slots": "state_slots", "full_kv_tokens": "kv_tokens", "kv_tokens": "kv_tokens"}
    given = next((name for name in ("kv_tokens", "full_kv_tokens", "state_slots") if name in log.logged), None)
    if given is None:
        return None, ()
    printed = int(log.logged[given].text)

    def counted(memory: int) -> int:
        return int(_figure(named[given], cache_layout.pool(memory, context)))

    bounds = None if given == "state_slots" else _with_as_many_slots(log, cache_layout, context)
    if bounds is None:
        low, high = 0, 1
        while counted(high) < printed and high < _BEYOND:
            low, high = high, 2 * high
        bounds = low, high
    memory = first_true(lambda size: counted(size) >= printed, *bounds)
    source = f"{count(printed)} {_SIZES[given]}, as printed"
    predicted = sglang_figures_of(cache_layout.pool(memory, context).log_lines)
    total = sum(figure.bytes for name, figure in log.logged.items() if name.endswith("_size")) or memory
    return LogMemory(total, total, total, source), _size_checks(log, predicted, given)


def _with_as_many_slots(log: StartupLog, cache_layout: CacheLayout, context: int) -> tuple[int, int] | None:
    """Return the least memory with the printed number of slots of states, and the least with more.

    Only within one number of slots does more memory hold more tokens, since a further slot takes all its bytes at once.
    None if the log has no slots, or their number does not depend on the memory.
    """
    if "state_slots" not in log.logged:
        return None
    printed = int(log.logged["state_slots"].text)

    def slots(memory: int) -> int:
        return int(_figure("state_slots", cache_layout.pool(memory, context)))

    if slots(_BEYOND) <= printed:
        return None
    low = first_true(lambda memory: slots(memory) >= printed, 0, _BEYOND)
    return low, first_true(lambda memory: slots(memory) > printed, low, _BEYOND)


def _llamacpp_checks(log: StartupLog, cache_layout: CacheLayout, resolved: ResolvedRequest) -> _Checks:
    """Return the sizes of the caches: they follow from the context and the slots, not from the memory."""
    predicted = llamacpp_figures_of(cache_layout.pool(0, resolved.workload.context).log_lines)
    total = sum(figure.bytes for name, figure in log.logged.items() if name.endswith("_size"))
    if not total:
        total = sum(figure.bytes for name, figure in predicted.items() if name.endswith("_size"))
        return LogMemory(total, total, total, "the cache as computed"), ()
    return LogMemory(total, total, total, "the printed sizes"), _size_checks(log, predicted)


def _size_checks(log: StartupLog, predicted: dict[str, Printed], given: str = "") -> tuple[Check, ...]:
    """Return the checks of printed figures with predicted ones that are rounded alike; not of the given one."""
    return tuple(
        Check(
            "log",
            name,
            _SIZES[name],
            predicted[name].bytes,
            log.logged[name].bytes,
            2 * log.logged[name].half,  # both are rounded
            BYTES if name.endswith("_size") else TOKENS,
            "both are rounded" if name.endswith("_size") else "exact",
        )
        for name in _SIZES
        if name in log.logged and name in predicted and name != given
    )


_CHECKS: dict[str, Callable[[StartupLog, CacheLayout, ResolvedRequest], _Checks]] = {
    "vllm": _vllm_checks,
    "sglang": _sglang_checks,
    "llamacpp": _llamacpp_checks,
}


# The rest of the memory


def _estimates(request: FitRequest, log: StartupLog, memory: LogMemory | None) -> Iterator[Estimate]:
    """Yield what the log prints of weights and runtime memory, with its estimate. The latter needs a GPU."""
    gpu = request.gpu
    resolved = resolve(dataclasses.replace(request, kv_memory=None) if gpu else without_gpu(request, 0))
    loaded = log.budget.get("model_buffer") or log.budget.get("weights")
    if gpu is None:
        if loaded:
            size = weights(
                resolved.model,
                pp=resolved.args.pp,
                in_dtype=resolved.workload.dtype,
                weights_dtype=_weights_dtype(request),
            )
            yield _weights_estimate(log.engine, loaded, int(size.total))
        return
    budget = fit(resolved.request).budget if resolved.whole_layers else memory_budget(resolved)
    if loaded and budget.weights:
        yield _weights_estimate(log.engine, loaded, int(budget.weights.total))
    parts = _runtime_parts(budget)
    if budget.weights:
        parts["weights"] = _weights_range(log.engine, int(budget.weights.total))
    for name, (label, of) in _PARTS.items():
        ranges = [parts[part] for part in of if part in parts]
        if name in log.budget and ranges and not (name == "captured_graphs" and "cuda_graphs" in log.budget):
            low, expected, high = (sum(values) for values in zip(*ranges, strict=True))
            printed = log.budget[name]
            yield Estimate(name, label, printed.bytes, max(0, low - printed.half), expected, high + printed.half)
    if memory is not None and log.engine != "llamacpp":
        low, high = (max(0, budget.room(end)) for end in ("low", "high"))
        yield Estimate("kv_memory", "KV memory", memory.printed, low, int(budget.kv_memory), high)


def _weights_dtype(request: FitRequest) -> str | None:
    if request.weights_dtype is not None or request.workload.dtype is not None or request.model.stored is not None:
        return request.weights_dtype
    return request.model.weights_dtype or request.model.experts_dtype


def _weights_estimate(engine: str, loaded: Printed, expected: int) -> Estimate:
    return Estimate("weights", "weights", loaded.bytes, *_weights_range(engine, expected))


def _weights_range(engine: str, expected: int) -> tuple[int, int, int]:
    """Return the least, expected and most bytes of the weights."""
    below, above = (int(expected * share) + GIB // 20 for share in _WEIGHTS_RANGE.get(engine, _WEIGHTS_RANGE[""]))
    return max(0, expected - below), expected, expected + above


def _runtime_parts(budget: MemoryBudget) -> dict[str, tuple[int, int, int]]:
    """Return the least, expected and most bytes of each part of the runtime memory by name."""
    if budget.reserve is None:
        return {}
    runtime = budget.reserve.runtime
    parts = {part.name: (part.low, int(part.expected), part.high) for part in (*runtime.parts, *runtime.outside)}
    for detail in runtime.details:
        size = int(float(detail.quantity))  # ggml aligns tensors
        parts.setdefault(detail.name, (size * 98 // 100, size, size * 102 // 100))
    return parts
