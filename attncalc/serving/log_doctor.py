"""Why an engine did not start, or why its requests wait, as its log says it, and the changes with which it would."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal

from ..check import Check
from ..engines import find_engine
from ..engines.startup_log import Advice, Load, LogMemory, LogRefusal, StartupLog, least
from ..hardware import Gpu
from ..model import ModelSpec, plural
from ..records import NamedTuple
from ..units import BYTES, GIB, count, human, truncate
from .fit import FitResult, fit
from .log_check import logged_weights, without_gpu
from .request import FitRequest, LoggedExcess
from .suggestions import Suggestion, suggestions, tried

_TOLERANCE = 0.05
"""The part of a logged figure by which the predicted one may differ: versions differ by a block or by padding."""
_OTHER_WEIGHTS = 1.4
"""The factor by which logged weights may differ from the estimated ones: towers and drafts may not be counted."""
_MARGIN = GIB // 4
"""Bytes that should stay free beyond an allocation that failed after the cache was there."""
_MOST_TAKEN = GIB
"""Bytes of other processes from which they are the cause: a desktop uses less."""
NAME_THE_LOGS_MODEL = "Leave MODEL out, or give the model of the log."
_TAKEN = "Other processes use the memory of the GPU."

Cause = Literal[
    "kv_too_small",
    "nothing_left",
    "weights_too_large",
    "memory_taken",
    "cache_too_large",
    "compute_too_large",
    "host_memory",
    "out_of_memory",
    "too_many_sequences",
    "context_too_long",
    "cache_full",
    "requests_limited",
    "other_model",
]
"""Why an engine did not start:

- kv_too_small: one request needs more than is left for the cache.
- nothing_left: weights and runtime memory leave nothing for the cache.
- weights_too_large: the weights did not fit in the GPU's memory.
- memory_taken: other processes use the memory.
- cache_too_large: the cache is larger than what is free, or leaves too little for what is allocated after it.
- compute_too_large: activations or the compute buffer did not fit beside the weights and the cache.
- host_memory: an allocation in host memory failed.
- out_of_memory: an allocation failed, and neither log nor estimate say more.
- too_many_sequences: the cache has fewer blocks of recurrent states than a step may have sequences.
- context_too_long: the context is longer than the model's.
- cache_full: the server runs, and its cache has no room for the requests that wait.
- requests_limited: the server runs, and requests wait although its cache is not full.
- other_model: log and model contradict each other, so nothing is advised.
"""


class _Stage(NamedTuple):
    """What an engine allocates on its way."""

    failed: str  # that it failed
    cause: Cause
    after: Literal["", "weights", "cache"] = ""  # what is settled before: that weights are loaded, the cache's size


_STAGES = {
    "weights": _Stage("The weights did not fit", "weights_too_large"),
    "fit": _Stage("Weights, cache and buffers did not fit", "out_of_memory"),
    "cache": _Stage("The cache did not fit", "cache_too_large", "weights"),
    "encoder": _Stage("The images of the profile did not fit", "compute_too_large", "weights"),
    "profile": _Stage("The activations of a full step did not fit", "compute_too_large", "weights"),
    "compute": _Stage("The compute buffer did not fit", "compute_too_large", "weights"),
    "pool": _Stage("The pool of the cache did not fit", "cache_too_large", "cache"),
    "sampler": _Stage("The cache left too little for the warm-up of the sampler", "cache_too_large", "cache"),
    "graphs": _Stage("The cache left too little for the CUDA graphs", "cache_too_large", "cache"),
    "rest": _Stage("The cache left too little for the rest", "cache_too_large", "cache"),
    "serving": _Stage("The server started, and an allocation failed later", "cache_too_large", "cache"),
    "host": _Stage("Host memory is too small, not the GPU's", "host_memory"),
    "": _Stage("An allocation on the GPU failed", "out_of_memory"),
}
"""By `LogRefusal.where`."""


class Diagnosis(NamedTuple):
    """Why an engine did not start."""

    message: str  # the engine's own
    cause: Cause
    reason: str  # the cause as a sentence with its numbers
    needed: int | None = None  # bytes per GPU that were needed; None if the log and the estimate do not say it
    available: int | None = None  # bytes per GPU for that; below 0 if weights and runtime memory were too large
    changes: tuple[Suggestion, ...] = ()  # the changes with which it would start, the cheapest first
    notes: tuple[str, ...] = ()  # what the diagnosis rests on, one sentence each
    tried: str = ""  # which changes were computed, in words; "" for none
    advice: tuple[Advice, ...] = ()  # what the log alone suggests, if no changes were computed

    @property
    def missing(self) -> int | None:
        """Bytes per GPU that are missing."""
        return None if self.needed is None or self.available is None else max(0, self.needed - self.available)


def diagnose(
    request: FitRequest,
    log: StartupLog,
    memory: LogMemory | None,
    checks: Iterable[Check] = (),
    named: ModelSpec | None = None,
) -> Diagnosis | None:
    """Return why the engine did not start; None if it did.

    The log's own figures come first. What it lacks is estimated, and corrected by what the log has: with a GPU, the
    estimate of weights and runtime memory is replaced by what the log says that they left.

    Args:
        request: The request with the GPU, if it is known; without one only changes of the cache can be computed.
        log: What the engine printed.
        memory: The memory for the cache that it printed, or that follows from its figures.
        checks: Its figures beside the predicted ones. If they contradict each other, nothing is advised.
        named: The model that the log names, if it is known. If it has other sizes, nothing is advised.

    Raises AttncalcError as `fit` does.
    """
    refusal = log.refusal
    if refusal is None:
        return None
    if refusal.kind in ("too_many_sequences", "too_long", "overloaded"):
        return diagnose_alone(log, request.gpu)
    if reason := named_otherwise(request.model, log, named):
        return Diagnosis(refusal.line, "other_model", reason, notes=(NAME_THE_LOGS_MODEL,))
    for check in checks:
        if _contradicts(check):
            logged, predicted = _printed(check, check.measured), _printed(check, check.predicted)
            disagreement = f"{check.label} {logged} in the log, {predicted} with this model"
            return _other_model(request, log, refusal, disagreement, named)
    if refusal.where in ("host", "encoder") or refusal.one_buffer:
        return diagnose_alone(log, request.gpu)
    share = request.gpu_memory_utilization if request.gpu else None
    available = find_engine(log.engine).logged_room(log, memory.printed if memory else None, share)
    if request.gpu is None:
        found = _without_gpu(request, log, refusal, available)
    else:
        found = _with_gpu(request, log, refusal, available, named)
    if log.within and found.changes:
        lacks = log.within.lacks
        changes = tuple(change for change in found.changes if not any(option in change.flag for option in lacks))
        found = found._replace(changes=changes, notes=(*found.notes, log.within.names))
    context = request.workload.context
    if found.changes and "context" not in log.settings and context == request.model.max_context:
        maximum = f"the model's maximum, {count(context)} tokens"
        note = f"The log has no context: {maximum}, is assumed; --context sets another."
        found = found._replace(notes=(*found.notes, note))
    return found


def diagnose_alone(log: StartupLog, gpu: Gpu | None = None) -> Diagnosis:
    """Return why the engine did not start by its log alone, without the sizes of a model.

    Args:
        log: What the engine printed; it has a refusal.
        gpu: The GPU, if it is known; a log often has only its name.
    """
    refusal = log.refusal
    assert refusal is not None
    engine = find_engine(log.engine)
    advice = engine.log_advice(log)
    if refusal.kind == "too_small":
        cause, reason, needed, available = _too_small(log)
    elif refusal.kind == "too_many_sequences" and refusal.tried and refusal.free:
        asked, blocks = int(refusal.tried.number), int(refusal.free.number)
        reason = f"a step may have {count(asked)} sequences, and the cache has {count(blocks)} blocks of their states."
        cause, needed, available = "too_many_sequences", None, None
    elif refusal.kind == "too_long" and refusal.tried and refusal.free:
        longest, own = count(int(refusal.tried.number)), count(int(refusal.free.number))
        cause, needed, available = "context_too_long", None, None
        reason = f"a context of {longest} tokens was asked for, and the model's own is {own}."
    elif refusal.kind == "overloaded" and log.load:
        cause, reason, needed, available = _overloaded(log.load)
    elif refusal.kind == "no_memory":
        left, share = least(log.available), log.settings.get("gpu_memory_utilization")
        room = engine.logged_room(log, left.bytes if left else None, share)
        cause, reason, needed, available = _nothing_left(log, room)
    elif refusal.kind == "occupied" or refusal.taken > _MOST_TAKEN:
        cause, reason, needed, available = "memory_taken", f"{_taken_by_others(log)}.", None, _free(log)
        share = _free_share(log) if refusal.kind == "occupied" else ""
        others = advice if refusal.kind == "occupied" else ()
        advice = (Advice("end the other processes: nvidia-smi lists them"), *others)
        if share:
            words = f"the share that is free, {_size(_free(log) or 0)}, if the model fits in it"
            advice += (Advice(words, f"{engine.share_option} {share}"),)
    else:
        cause, reason, needed, available = _failed_allocation(log, gpu)
    return Diagnosis(refusal.line, cause, reason, needed, available, advice=advice)


_Found = tuple[Cause, str, int | None, int | None]
"""A cause, its sentence, and the bytes that were needed and available."""


def _too_small(log: StartupLog) -> _Found:
    context = log.settings.get("context")
    tokens = f"{count(int(context))} tokens" if context else "the whole context"
    needed, available = log.logged.get("kv_bytes_per_sequence"), least(log.available)
    if needed and available:
        reason = _missing(f"one request of {tokens} needs", needed.bytes, available.bytes)
        return "kv_too_small", reason, needed.bytes, available.bytes
    held = log.logged.get("kv_tokens")
    holds = f"and the cache holds {count(int(held.text))}" if held else "which is more than the cache holds"
    return "kv_too_small", f"one request may have {tokens}, {holds}.", None, None


def _overloaded(load: Load) -> _Found:
    requests = (
        f"{plural(load.running, 'request')} run, {count(load.waiting)} wait, {load.usage:.1%} of the cache is used"
    )
    if load.is_full:
        return "cache_full", f"{requests}: it holds {count(load.fitting)} such requests.", None, None
    return "requests_limited", f"{requests}: it is not full.", None, None


def _nothing_left(log: StartupLog, room: int | None) -> _Found:
    weights, total, graphs = (log.budget.get(name) for name in ("weights", "gpu_memory", "cuda_graphs"))
    share = log.settings.get("gpu_memory_utilization")
    parts = [f"Weights of {_size(weights.bytes)}"] if weights and weights.bytes else []
    parts += [f"CUDA graphs of {_size(graphs.bytes)}"] if graphs and graphs.number >= 1 else []
    of_share = f" ({share} of {_size(total.bytes)})" if share and total else f" ({share})" if share else ""
    subject = f"{' and '.join(parts)}, with the rest of the runtime memory," if parts else "Weights and runtime memory"
    if room is not None and room < 0:
        return "nothing_left", f"{subject} are {_size(-room)} larger than the engine's share{of_share}.", None, room
    return "nothing_left", f"{subject} leave nothing of the engine's share{of_share} for the cache.", None, room


def _failed_allocation(log: StartupLog, gpu: Gpu | None) -> _Found:
    """Return what the log says of an allocation that failed: what it was for, its size, and what was free."""
    refusal, total = log.refusal, log.budget.get("gpu_memory")
    assert refusal is not None
    what, cause, _ = _STAGES[refusal.where]
    needed, tried, free, limit = refusal.needed, refusal.tried, refusal.free, refusal.limit
    if needed and limit:
        sizes = f"{_size(needed.bytes)} are allocated, and Metal recommends at most {_size(limit.bytes)}"
        return cause, f"{what}: {sizes}.", needed.bytes, limit.bytes
    memory, of_memory = _memory_of_device(log, gpu)
    words = [f"{_size(tried.bytes)} were wanted"] if tried else []
    if not tried and memory and of_memory:
        words = [f"the GPU has {_size(memory)}{of_memory}"]
    if refusal.one_buffer:
        words.append("more than the device allows for one buffer")
    elif free:
        of_total = f" of {_size(total.bytes)}" if total else ""
        pieces = ", in smaller pieces" if tried and free.bytes >= tried.bytes else ""
        words.append(f"{_size(free.bytes)}{of_total} were free{pieces}")
    elif refusal.where != "host":
        held = _held_before(log)
        words += [f"{held} are there"] if held else []
        if tried and memory:
            although = "although " if of_memory and not held and tried.bytes < memory else ""
            words.append(f"{although}the GPU has {_size(memory)}{of_memory}")
        elif limit:
            words.append(f"Metal recommends at most {_size(limit.bytes)}")
    available = free.bytes if free else memory if tried and memory and tried.bytes > memory else None
    reason = f"{what}{': ' if words else ''}{', '.join(words)}."
    return cause, reason, tried.bytes if tried else None, available


def _held_before(log: StartupLog) -> str:
    """Return what a GPU held when the allocation failed, the weights and the cache; '' if the log does not have it."""
    model, cache = log.budget.get("model_buffer"), log.logged.get("kv_size") if log.devices <= 1 else None
    held = {"weights": model, "cache": cache}
    return " and ".join(f"{_size(size.bytes)} of {name}" for name, size in held.items() if size)


def _memory_of_device(log: StartupLog, gpu: Gpu | None) -> tuple[int | None, str]:
    """Return the bytes of a GPU, and ' free' if they are what was free before; None if they are unknown."""
    if (free := log.budget.get("free_memory")) and free.unit != 1:
        return free.bytes, " free"
    return (gpu.memory if gpu else None), ""


def _free(log: StartupLog) -> int | None:
    """Return the bytes of the GPU that other processes leave; None if the log does not have them."""
    free, total = log.budget.get("free_memory"), log.budget.get("gpu_memory")
    if log.refusal and log.refusal.taken:
        return total.bytes - log.refusal.taken if total else None
    if log.refusal and log.refusal.kind == "occupied" and log.refusal.free:
        return log.refusal.free.bytes
    # vLLM prints it without a unit, before "/total GiB"
    return int(free.number * GIB) if free else None


def _taken_by_others(log: StartupLog) -> str:
    free, total = _free(log), log.budget.get("gpu_memory")
    if log.refusal and log.refusal.kind == "occupied" and log.refusal.free and log.refusal.tried:
        least_free, more = _size(log.refusal.free.bytes), _size(log.refusal.tried.bytes)
        if log.refusal.where:
            return f"Other processes released memory during the start: {least_free} were free, then {more}"
        return f"The free memory of the GPUs is unequal: {least_free} are free on one, {more} on another"
    if free is None or total is None or free >= total.bytes:
        return _TAKEN.removesuffix(".")
    sizes = f"{_size(total.bytes - free)} of the GPU's {_size(total.bytes)}: {_size(free)} are free"
    return f"Other processes use {sizes}"


def _free_share(log: StartupLog) -> str:
    """Return the largest share that is free in hundredths; '' if none is, or it is unknown."""
    free, total = _free(log), log.budget.get("gpu_memory")
    hundredths = 100 * free // total.bytes if free and total and total.bytes else 0
    return f"0.{hundredths:02d}" if 0 < hundredths < 100 else ""


def named_otherwise(model: ModelSpec, log: StartupLog, named: ModelSpec | None) -> str:
    """Return that the log names a model of other sizes, `named`; '' if it does not."""
    if named is None or _sizes(named) == _sizes(model):
        return ""
    return f"The log is of '{truncate(log.model)}' ({_sizes(named)}), not of {model.title} ({_sizes(model)})."


def _sizes(model: ModelSpec) -> str:
    return f"{model.main.n_layers} layers of width {count(model.main.d_model)}"


def _contradicts(check: Check) -> bool:
    """Return whether a logged figure is so far from the predicted one that no rounding or free block explains it."""
    return not check.ok and abs(check.difference) > _TOLERANCE * abs(check.measured)


def _other_model(
    request: FitRequest, log: StartupLog, refusal: LogRefusal, disagreement: str, named: ModelSpec | None
) -> Diagnosis:
    """Return that the log was written with another model, or with other arguments. `named` has this model's sizes."""
    of_model = f"The log is of '{truncate(log.model)}'. " if log.model else ""
    of_model = "Give" if named else f"{of_model}Give that model, or"
    note = f"{of_model} options that the log lacks, such as --gpu, --tp, --kv-dtype and --context."
    reason = f"The log and {request.model.title} disagree: {disagreement}."
    return Diagnosis(refusal.line, "other_model", reason, notes=(note,))


def _printed(check: Check, value: float) -> str:
    return _size(int(value)) if check.unit == BYTES else count(int(value))


def _without_gpu(request: FitRequest, log: StartupLog, refusal: LogRefusal, available: int | None) -> Diagnosis:
    notes = (
        "The log does not name the GPU's memory. With --gpu, changes of the weights, the share and the number of GPUs "
        "are computed too.",
    )
    if available is None or refusal.kind in ("occupied", "out_of_memory"):
        return diagnose_alone(log)._replace(notes=notes)
    result = fit(without_gpu(request, available))
    cause, reason = _reason(result, available)
    changes = _changes(result)
    return Diagnosis(refusal.line, cause, reason, int(result.needed), available, changes, notes, _tried(result))


def _with_gpu(
    request: FitRequest, log: StartupLog, refusal: LogRefusal, available: int | None, named: ModelSpec | None
) -> Diagnosis:
    alone = diagnose_alone(log, request.gpu)
    if find_engine(log.engine).typed_files and not (request.weights_dtype or request.model.stored):
        note = "The log does not have the type of the file: with --weights-dtype, such as q4_k_m, changes are computed."
        return alone._replace(notes=(note,))
    estimate = fit(request)
    if alone.cause == "memory_taken":
        return _occupied(estimate, log, refusal)
    excess = _excess(estimate, log, available)
    if excess is not None:
        logged = LoggedExcess(excess, estimate.resolved.devices)
        estimate = fit(dataclasses.replace(request, logged_excess=logged))
    counts_layers = "n_gpu_layers" in log.settings or not find_engine(log.engine).splits_by_layer
    if counts_layers and (disagreement := _disagreement(estimate, log, refusal, available)):
        return _other_model(request, log, refusal, disagreement, named)
    if _STAGES[refusal.where].after == "cache":
        smaller = filter(None, (_smaller_share(estimate, refusal), _fewer_sequences(estimate)))
        changes = tuple(change for change in smaller if float(change.result.pool.concurrency) >= 1)
        return alone._replace(changes=changes, advice=()) if changes else alone
    return _before_the_cache(estimate, refusal, excess, alone)


def _disagreement(estimate: FitResult, log: StartupLog, refusal: LogRefusal, available: int | None) -> str:
    """Return what contradicts that this model wrote the log; '' if nothing does."""
    loaded, weights = logged_weights(log), estimate.budget.weights
    if loaded and weights and not 1 / _OTHER_WEIGHTS < loaded / int(weights.total) < _OTHER_WEIGHTS:
        return f"weights of {_size(loaded)} in the log, of {_size(int(weights.total))} with this model"
    gpu = estimate.resolved.gpu
    after = _STAGES[refusal.where].after
    is_loaded = after or refusal.kind == "too_small"
    if weights and gpu and is_loaded and int(weights.total) > gpu.memory:
        return f"the weights were loaded, and this model's need {_size(int(weights.total))} of {_size(gpu.memory)}"
    needed, room = int(estimate.needed), estimate.budget.room()
    if needed > room or after == "cache":
        return ""
    if available is not None and refusal.kind == "too_small":
        return f"one batch needs {_size(needed)} with this model, and {_size(room)} were left for the cache"
    if refusal.own > (most := _most_before_the_cache(estimate)):
        return f"{_size(refusal.own)} were in use before there was a cache, and this model takes at most {_size(most)}"
    return ""


def _most_before_the_cache(estimate: FitResult) -> int:
    """Return the most bytes per GPU that weights and runtime memory take by the estimate."""
    weights, reserve = estimate.budget.weights, estimate.budget.reserve
    if weights is None or reserve is None:
        return estimate.resolved.gpu.memory if estimate.resolved.gpu else 0
    parts = (*reserve.runtime.parts, *reserve.runtime.outside)
    return int(weights.total) + int(weights.total) // 20 + sum(part.high for part in parts)


def _before_the_cache(estimate: FitResult, refusal: LogRefusal, excess: int | None, alone: Diagnosis) -> Diagnosis:
    """Return what is missing for the cache, or for the weights.

    Args:
        estimate: What fits; by the log's figures if it has them.
        refusal: The engine's message.
        excess: Bytes by which the log's figures differ from the estimate of attncalc; None if the log has none.
        alone: What the log alone says.
    """
    needed, room = int(estimate.needed), estimate.budget.room()
    cause, reason = _reason(estimate, room)
    note = "The log does not say how much memory was left: the changes rest on the estimate."
    weights, gpu = estimate.budget.weights, estimate.resolved.gpu
    if excess is not None:
        more = "larger" if excess > 0 else "smaller"
        note = (
            f"The log's weights and runtime memory are {_size(abs(excess))} {more} than the estimate; the changes are "
            "computed with the log's."
        )
    elif weights and gpu:
        resolved = estimate.resolved
        each = " on each GPU" if resolved.devices > 1 or (resolved.whole_layers and resolved.gpus > 1) else ""
        need = f"the weights need {_size(int(weights.total))}{each}"
        if int(weights.total) > gpu.memory:
            cause, reason = "weights_too_large", f"T{need[1:]}, and the GPU has {_size(gpu.memory)}."
            needed, room = int(weights.total), gpu.memory
        elif refusal.tried and refusal.free:
            reason = (
                f"An allocation of {_size(refusal.tried.bytes)} failed, {_size(refusal.free.bytes)} were free. By the "
                f"estimate, {need} of the GPU's {_size(gpu.memory)}."
            )
        if refusal.where == "weights":
            cause = "weights_too_large"
        if needed <= room:
            others = "" if refusal.own else "other processes may use the GPU's memory, or "
            note = f"By the estimate it fits: {others}the log's settings differ."
    changes = _changes(estimate)
    words = _tried(estimate)
    if needed <= room:
        advice = () if changes else alone.advice
        return alone._replace(changes=changes, notes=(note,), tried=words, advice=advice)
    if alone.cause == "compute_too_large":  # the estimate may err, and the log does not
        return alone._replace(changes=changes, notes=(note,), tried=words, advice=())
    return Diagnosis(refusal.line, cause, reason, needed, room, changes, (note,), words)


def _changes(result: FitResult) -> tuple[Suggestion, ...]:
    """Return the changes with which it starts; first, if the users' requests are known, a context that holds them."""
    traffic, context = result.request.traffic, result.resolved.workload.context
    longest = int(traffic.worst_tokens) if traffic else context
    changes = suggestions(result)
    if longest < context and result.verdict != "fits":
        shorter = fit(result.request.with_workload(context=longest))
        if shorter.verdict == "fits":
            words = f"{count(longest)} tokens of context, as many as the users' requests have"
            return (Suggestion(words, f"--context {longest}", shorter), *changes)
    return changes


def _excess(estimate: FitResult, log: StartupLog, available: int | None) -> int | None:
    """Return the bytes that weights and reserve took beyond the estimate; None if the log does not say it."""
    if available is not None:
        return estimate.budget.room() - available
    loaded, budget = log.budget.get("model_buffer") if log.devices <= 1 else None, estimate.budget
    if loaded is None or budget.weights is None:
        return None
    excess, tried = loaded.bytes - int(budget.weights.total), log.refusal.tried if log.refusal else None
    if tried and budget.reserve and log.refusal and log.refusal.where == "compute":
        parts = budget.reserve.runtime.parts
        excess += tried.bytes - sum(int(part.expected) for part in parts if part.name == "compute_buffer")
    return excess


def _occupied(estimate: FitResult, log: StartupLog, refusal: LogRefusal) -> Diagnosis:
    """Return what starts when the other processes end, and what starts beside them with the share that is free."""
    free, reason = _free(log), _taken_by_others(log)
    found = Diagnosis(refusal.line, "memory_taken", f"{reason}.", None, free)
    if estimate.verdict != "fits":
        note = "End the other processes first: the changes are computed with their memory free."
        return found._replace(changes=suggestions(estimate), notes=(note,), tried=_tried(estimate))
    ended = Suggestion("the other processes ended", "", estimate)
    share = _free_share(log)
    if not share:
        return found._replace(changes=(ended,), notes=("End the other processes.",))
    engine, gpu = estimate.resolved.engine, estimate.resolved.gpu
    option, words = f"{engine.share_option} {share}", f"{share} of the GPU's memory"
    result = fit(dataclasses.replace(estimate.request, gpu_memory_utilization=share))
    if result.verdict == "fits":
        note = f"End the other processes, or give {engine.title} the share that is free: {option}."
        return found._replace(changes=(Suggestion(words, option, result), ended), notes=(note,))
    needed, weights = int(result.needed), int(result.budget.weights.total) if result.budget.weights else 0
    if weights >= (free or 0):
        needed, reason = weights, f"{reason}, and the weights alone need {_size(weights)}"
    else:
        room = _size(max(0, result.budget.room()))
        reason = f"{reason}, and the cache gets {room} of them; it needs {_size(needed)}"
    beside = tuple(
        change._replace(flag=f"{option} {change.flag}", change=f"{words}, {change.change}")
        for change in suggestions(result, with_share=False)
        if not change.needs_hardware
    )
    # of unified memory much is the system's, which does not end
    changes = (*beside, ended) if gpu and gpu.shares_with_host else (ended, *beside)
    note = f"End the other processes. Beside them, {option} is not enough."
    return found._replace(reason=f"{reason}.", needed=needed, changes=changes, notes=(note,))


def _smaller_share(result: FitResult, refusal: LogRefusal) -> Suggestion | None:
    share, gpu = result.budget.share, result.resolved.gpu
    if share is None or gpu is None:
        return None
    missing = _MARGIN
    if refusal.tried and refusal.free:
        missing = max(0, refusal.tried.bytes - refusal.free.bytes) or _MARGIN
    left = share.numerator * gpu.memory // share.denominator - missing - _MARGIN
    hundredths = 100 * left // gpu.memory
    if hundredths < 1:
        return None
    text = f"0.{hundredths:02d}"
    changed = fit(dataclasses.replace(result.request, gpu_memory_utilization=text))
    return Suggestion(f"{text} of the GPU's memory", f"{share.option} {text}", changed) if changed.fits else None


def _fewer_sequences(result: FitResult) -> Suggestion | None:
    """Return a quarter of the sequences in one step: the sampler warms up with all of them."""
    limits = result.resolved.limits(result.resolved.workload.batch, result.resolved.workload.context)
    if limits is None or not result.resolved.engine.fewer_sequences:
        return None
    fewer = limits.sequences // 4
    if fewer < 1:
        return None
    changed = fit(result.request.with_engine_args(max_num_seqs=fewer))
    return Suggestion(
        f"{count(fewer)} sequences per step", f"{changed.resolved.engine.running_option} {fewer}", changed
    )


def _tried(result: FitResult) -> str:
    """Return which changes were computed, in words; '' for none, since by the estimate it fits."""
    return "" if result.verdict == "fits" else tried(result.resolved)


def _reason(result: FitResult, room: int) -> tuple[Cause, str]:
    """Return why the batch does not fit in `room` bytes, as a code and as a sentence."""
    workload, needed = result.resolved.workload, int(result.needed)
    batch = "one request" if workload.batch == 1 else f"{count(workload.batch)} requests"
    needs = f"{batch} of {count(workload.context)} tokens {'needs' if workload.batch == 1 else 'need'}"
    if room < 0:
        larger = f"weights and runtime memory are {_size(-room)} larger than the engine's share"
        return "nothing_left", f"{needs} {_size(needed)}, and {larger}."
    if needed <= room:
        return "out_of_memory", f"{needs} {_size(needed)}, and {_size(room)} are left for the cache."
    return "kv_too_small", _missing(needs, needed, room)


def _missing(needs: str, needed: int, room: int) -> str:
    missing = _size(max(0, needed - room))
    return f"{needs} {_size(needed)}, {_size(room)} are left for the cache: {missing} are missing."


def _size(size: int) -> str:
    return human(size, BYTES)
