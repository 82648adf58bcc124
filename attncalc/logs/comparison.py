"""Compare a start-up log with the prediction from the model and the arguments in it.

The cache follows exactly from its memory, so its figures must agree within the log's rounding.
Weights and runtime memory are estimates: they are compared with their ranges.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from ..check import Check
from ..cost.cache import layer_cache_specs
from ..engines import find_engine
from ..errors import AttncalcError
from ..ggml import FILE_TYPES
from ..records import NamedTuple
from ..serving.fit import fit
from ..serving.memory_budget import MemoryBudget, memory_budget
from ..serving.request import FitRequest, ResolvedRequest, resolve, weights_of
from ..serving.weight_format import released_dtype
from ..serving.weights import weights
from ..units import GIB
from . import find_reader
from .startup_log import LogMemory, StartupLog

# The part of the logged weights by which those of a dtype may differ: groups and left-out layers
# are not known.
_SAME_WEIGHTS = Fraction(15, 100)
# More layers on GPUs than any model has.
_ALL_LAYERS = 1 << 20
# {what a log prints: (its label, the parts of the runtime memory that it consists of)}.
_PARTS = {
    "activations": ("activation peak", ("activations", "experts", "encoder", "received")),
    "outside_torch": ("outside PyTorch", ("outside_torch",)),
    "cuda_graphs": ("CUDA graphs", ("cuda_graphs",)),
    "captured_graphs": ("CUDA graphs, captured", ("cuda_graphs",)),
    "compute_buffer": ("compute buffer", ("compute_buffer",)),
    "draft_compute_buffer": ("drafter's compute buffer", ("draft_compute_buffer",)),
    "host_compute_buffer": ("compute buffer of the host", ("host_compute_buffer",)),
}
# The same for a log with "consumed memory": what lives on after the profile is in that, and the
# peak has graphs.
#
# Example: Qwen3-235B in fp8 on 4 RTX PRO 6000, vLLM 0.27.1: 55.19 GiB of weights, 0.70 outside
# PyTorch and 1.00 of the experts' workspace are the 56.89 that are logged.
_PARTS_BESIDE_CONSUMED = {
    "activations": (
        "activation peak and graphs",
        ("activations", "encoder", "received", "cuda_graphs"),
    ),
    "weights_and_outside": (
        "weights, workspaces and outside PyTorch",
        ("weights", "outside_torch", "experts", "gathered_latents", "sampler_states"),
    ),
}


class Estimate(NamedTuple):
    """A size that a log prints, and its estimate with a range, in bytes."""

    name: str  # its name in JSON
    label: str  # its name on screens
    logged: int  # as printed
    low: int  # the least to expect
    expected: int  # the estimate
    high: int  # the most to expect

    @property
    def inside(self) -> bool:
        """Whether the logged size is in the range."""
        return not self.outside

    @property
    def outside(self) -> int:
        """The bytes of the logged size above the range, negative below it; 0 inside."""
        return self.logged - min(max(self.logged, self.low), self.high)


class LogComparison(NamedTuple):
    """A log's figures, compared with predicted ones."""

    # the request with the log's memory and the version of the engine that it is compared with
    request: FitRequest
    # the log's memory for the cache; None if the engine did not get so far
    memory: LogMemory | None
    checks: tuple[Check, ...]  # each figure of the cache as printed and as predicted
    estimates: tuple[Estimate, ...]  # what was printed of the rest of the memory, and its estimates
    guessed: bool  # whether neither the log nor an option has the version

    @property
    def inferred(self) -> dict[str, Any]:
        """The arguments that the figures decide, if the log lacks them."""
        names = ("engine_version", "max_num_batched_tokens")
        return {name: given for name, given in self.request.engine_args.items() if name in names}

    @property
    def agrees(self) -> bool:
        """Whether every figure of the cache agrees."""
        return all(check.ok for check in self.checks)

    @property
    def misses(self) -> Estimate | None:
        """The KV memory if it is outside its range by over a tenth of the GPU's memory: another
        GPU, model or --tp.

        None if the log has the weights, which may be quantized: then it has what the difference
        consists of.
        """
        sizes = {one.name: one for one in self.estimates}
        if self.request.gpu is None or "weights" in sizes or "kv_memory" not in sizes:
            return None
        memory = sizes["kv_memory"]
        if abs(memory.outside) > self.request.gpu.memory // 10:
            return memory
        return None


def compare(request: FitRequest, log: StartupLog) -> LogComparison:
    """Return the log's figures and the predicted ones. `request` must not set a memory; the log's
    is used.

    If the log lacks a version that its figures depend on, the newest version that agrees is taken,
    or else the newest. If neither the log nor the request has the tokens of a step, on which
    windows depend, or the GPU, on which their default depends, those that agree are taken; so they
    are of a failed start.

    Raises AttncalcError if a running engine's log has neither a memory nor blocks, or no version
    supports the model.
    """
    found = _by_version(request, log)
    if found.agrees or request.engine_args.get("max_num_batched_tokens"):
        return found
    if request.gpu is not None and not log.refusal:
        return found
    version = found.request.engine_args.get("engine_version")
    for tokens in find_engine(log.engine).step_sizes:
        given = request.with_engine_args(engine_version=version, max_num_batched_tokens=tokens)
        other = _comparison(given, log, guessed=found.guessed)
        if other.agrees:
            return other
    return found


def _by_version(request: FitRequest, log: StartupLog) -> LogComparison:
    releases = log.releases or find_engine(log.engine).releases
    if not releases or request.engine_args.get("engine_version") is not None:
        return _comparison(request, log, guessed=False)
    differing: list[LogComparison] = []
    first_error: AttncalcError | None = None
    for version in releases:
        try:
            comparison = _comparison(
                request.with_engine_args(engine_version=version), log, guessed=True
            )
        except AttncalcError as error:  # this version does not support the model
            first_error = first_error or error
            continue
        if comparison.agrees:
            return comparison
        differing.append(comparison)
    if first_error and not differing:
        raise first_error
    return differing[0]


def with_logged_weights(request: FitRequest, log: StartupLog) -> FitRequest:
    """Return the request with the dtype of the weights that their size in the log shows.

    A log often names a quantized checkpoint only by its folder. The request is unchanged if it
    names a dtype, has no GPU, or agrees with the log, and if the engine started: its cache does not
    depend on the weights.
    """
    loaded = logged_weights(log) if log.refusal else None
    if (
        loaded is None
        or request.gpu is None
        or request.weights_dtype
        or released_dtype(request.model)
    ):
        return request
    engine = find_engine(log.engine)
    for name in (None, *engine.narrower_weight_dtypes):
        changed = dataclasses.replace(request, weights_dtype=name) if name else request
        with contextlib.suppress(AttncalcError):
            held = memory_budget(resolve(changed)).weights
            if held and abs(int(held.total) - loaded) <= _SAME_WEIGHTS * loaded:
                return changed
    return request


def with_failed_cache(request: FitRequest, log: StartupLog) -> FitRequest:
    """Return the request with about the context of the cache that did not fit, if neither log nor
    request has one.

    The cache of 262,144 tokens has 16 GiB, and 2 GiB did not fit: the context was 32,768.
    """
    refusal = log.refusal
    most = request.model.max_context
    tried = refusal.tried if refusal and refusal.where == "cache" else None
    # of the layers, on one GPU of several
    is_part = log.devices > 1 or (tried and tried.line[-1:] in "123456789")
    known = log.settings.keys() & {"context", "n_gpu_layers"}
    if tried is None or most is None or known or is_part or request.workload.context != most:
        return request
    tokens = most * tried.bytes // max(1, int(fit(without_gpu(request, 0)).needed))
    if 1024 < tokens < most * 9 // 10:
        return request.with_workload(context=-(-tokens // 1024) * 1024)
    return request


def logged_weights(log: StartupLog) -> int | None:
    """Return the bytes of the weights that one GPU loaded; None if the log has not those of all
    layers.
    """
    loaded = log.budget.get("model_buffer") or log.budget.get("weights")
    if loaded and log.devices <= 1 and "n_gpu_layers" not in log.settings:
        return loaded.bytes
    return None


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
    # the layout does not depend on the memory, but on the GPU's default of batched tokens
    resolved = resolve(dataclasses.replace(without_gpu(request, 0), gpu=request.gpu))
    cache_layout = resolved.engine.layout(layer_cache_specs(resolved.model.plain()), resolved.args)
    memory, checks = find_reader(log.engine).log_checks(
        log, cache_layout, resolved.args, resolved.workload.context
    )
    memory_request = without_gpu(request, memory.printed if memory else 0)
    if memory:
        memory_request = dataclasses.replace(
            memory_request,
            gpu=request.gpu,
            weights_dtype=request.weights_dtype if request.gpu else None,
            has_started=log.refusal is None,
        )
        # the memory is that of all layers, also of those on the host
        if resolved.engine.splits_by_layer:
            memory_request = memory_request.with_engine_args(n_gpu_layers=None)
    return LogComparison(
        memory_request, memory, checks, tuple(_estimates(request, log, memory)), guessed
    )


# The rest of the memory


def _estimates(
    request: FitRequest, log: StartupLog, memory: LogMemory | None
) -> Iterator[Estimate]:
    """Yield what the log prints of weights and runtime memory, with its estimate. The latter needs
    a GPU.
    """
    gpu = request.gpu
    resolved = resolve(
        dataclasses.replace(request, kv_memory=None) if gpu else without_gpu(request, 0)
    )
    loaded = log.budget.get("model_buffer") or log.budget.get("weights")
    if gpu is None:
        on_gpu = int(log.settings.get("n_gpu_layers", _ALL_LAYERS))
        if loaded and on_gpu > resolved.model.main.n_layers:
            found = _weights_range(resolved, _held_without_gpu(request, resolved))
            yield Estimate("weights", "weights", loaded.bytes, *found)
        return
    if resolved.whole_layers:
        budget = fit(resolved.request).budget
    else:
        budget = memory_budget(resolved)
    parts = _runtime_parts(budget)
    if budget.weights:
        parts["weights"] = _weights_range(resolved, int(budget.weights.total))
        if loaded:
            yield Estimate("weights", "weights", loaded.bytes, *parts["weights"])
    yield from _part_estimates(log, parts)
    if memory is not None and not memory.missing and not resolved.whole_layers:
        low, high = (max(0, budget.room(end)) for end in ("low", "high"))
        yield Estimate("kv_memory", "KV memory", memory.printed, low, int(budget.kv_memory), high)


def _held_without_gpu(request: FitRequest, resolved: ResolvedRequest) -> int:
    """Return the bytes of the weights that the engine holds."""
    model = resolved.model
    weights_dtype = _weights_dtype(request)
    if weights_dtype in FILE_TYPES and resolved.engine.splits_by_layer:
        model, weights_dtype = weights_of(request)
    held = weights(
        model,
        pp=resolved.args.pp,
        in_dtype=resolved.workload.dtype,
        weights_dtype=weights_dtype,
        engine=resolved.engine if resolved.args.changes_weights else None,
        args=resolved.args,
    )
    return int(held.total)


def _part_estimates(
    log: StartupLog, parts: Mapping[str, tuple[int, int, int]]
) -> Iterator[Estimate]:
    """Yield each part of the runtime memory that the log prints."""
    groups = _PARTS
    if "weights_and_outside" in log.budget:
        groups = _PARTS | _PARTS_BESIDE_CONSUMED
    for name, (label, of) in groups.items():
        printed = log.budget.get(name)
        ranges = [parts[part] for part in of if part in parts]
        if printed is None or not ranges:
            continue
        if name == "captured_graphs" and "cuda_graphs" in log.budget:
            continue
        low, expected, high = (sum(values) for values in zip(*ranges, strict=True))
        least = max(0, low - printed.half)
        yield Estimate(name, label, printed.bytes, least, expected, high + printed.half)


def _weights_dtype(request: FitRequest) -> str | None:
    """Return the dtype of the weights as the checkpoint stores them, unless a dtype was given."""
    is_given = request.weights_dtype is not None or request.workload.dtype is not None
    if is_given:
        return request.weights_dtype
    return released_dtype(request.model)


def _weights_range(resolved: ResolvedRequest, expected: int) -> tuple[int, int, int]:
    """Return the least, expected and most bytes of the weights, with 0.05 GiB for what a loader
    adds.
    """
    below, above = (
        int(expected * Fraction(part, 100)) + GIB // 20
        for part in find_reader(resolved.engine.name).WEIGHTS_TOLERANCE
    )
    return max(0, expected - below), expected, expected + above


def _runtime_parts(budget: MemoryBudget) -> dict[str, tuple[int, int, int]]:
    """Return the least, expected and most bytes of each part of the runtime memory by name."""
    if budget.reserve is None:
        return {}
    runtime = budget.reserve.runtime
    parts = {
        part.name: (part.low, int(part.expected), part.high)
        for part in (*runtime.parts, *runtime.outside)
    }
    for detail in runtime.details:
        size = int(detail.quantity)  # ggml aligns tensors
        parts.setdefault(detail.name, (size * 98 // 100, size, size * 102 // 100))
    return parts
