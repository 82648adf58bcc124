"""Why an engine did not start, as its log says it, and the changes with which it would."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal, NamedTuple

from ..check import Check
from ..engines import find_engine
from ..engines.startup_log import LogMemory, LogRefusal, StartupLog
from ..units import BYTES, GIB, count, human
from .fit import FitResult, fit
from .log_check import without_gpu
from .request import FitRequest, LoggedExcess
from .suggestions import Suggestion, suggestions, tried

_TOLERANCE = 0.05
"""The part of a logged figure by which the predicted one may differ: versions differ by a block or by padding."""
_MARGIN = GIB // 4
"""Bytes that should stay free beyond an allocation that failed after the cache was there."""
_TAKEN = "Other processes use the memory of the GPU."

Cause = Literal[
    "kv_too_small",
    "nothing_left",
    "weights_too_large",
    "memory_taken",
    "cache_too_large",
    "out_of_memory",
    "other_model",
]
"""Why an engine did not start:

- kv_too_small: one request needs more than is left for the cache.
- nothing_left: weights and runtime memory leave nothing for the cache.
- weights_too_large: the weights alone exceed the GPU's memory.
- memory_taken: other processes use the memory.
- cache_too_large: the cache leaves too little for what is allocated after it.
- out_of_memory: an allocation failed, and neither log nor estimate say more.
- other_model: log and model contradict each other, so nothing is advised.
"""


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

    @property
    def missing(self) -> int | None:
        """Bytes per GPU that are missing."""
        return None if self.needed is None or self.available is None else max(0, self.needed - self.available)


def diagnose(
    request: FitRequest, log: StartupLog, memory: LogMemory | None, checks: Iterable[Check] = ()
) -> Diagnosis | None:
    """Return why the engine did not start; None if it did.

    The log's own figures come first. What it lacks is estimated, and corrected by what the log has: with a GPU, the
    estimate of weights and runtime memory is replaced by what the log says that they left.

    Args:
        request: The request with the GPU, if it is known; without one only changes of the cache can be computed.
        log: What the engine printed.
        memory: The memory for the cache that it printed, or that follows from its figures.
        checks: Its figures beside the predicted ones. If they contradict each other, nothing is advised.

    Raises AttncalcError as `fit` does.
    """
    refusal = log.refusal
    if refusal is None:
        return None
    for check in checks:
        if _contradicts(check):
            logged, predicted = _printed(check, check.measured), _printed(check, check.predicted)
            disagreement = f"{check.label} {logged} in the log, {predicted} with this model"
            return _other_model(request, log, refusal, disagreement)
    share = request.gpu_memory_utilization if request.gpu else None
    available = find_engine(log.engine).logged_room(log, memory.printed if memory else None, share)
    if request.gpu is None:
        return _without_gpu(request, refusal, available)
    return _with_gpu(request, log, refusal, available)


def _contradicts(check: Check) -> bool:
    """Return whether a logged figure is so far from the predicted one that no rounding or free block explains it."""
    return not check.ok and abs(check.difference) > _TOLERANCE * abs(check.measured)


def _other_model(request: FitRequest, log: StartupLog, refusal: LogRefusal, disagreement: str) -> Diagnosis:
    """Return that the log was written with another model, or with other arguments."""
    of_model = f"The log is of '{log.model}'. " if log.model else ""
    note = f"{of_model}Give that model, or options that the log lacks, such as --tp, --kv-dtype and --context."
    reason = f"The log and {request.model.title} disagree: {disagreement}."
    return Diagnosis(refusal.line, "other_model", reason, notes=(note,))


def _printed(check: Check, value: float) -> str:
    return _size(int(value)) if check.unit == BYTES else count(int(value))


def _without_gpu(request: FitRequest, refusal: LogRefusal, available: int | None) -> Diagnosis:
    notes = (
        "The log does not name the GPU's memory. With --gpu, changes of the weights, the share and the number of GPUs "
        "are computed too.",
    )
    if refusal.kind == "occupied":
        return Diagnosis(refusal.line, "memory_taken", _TAKEN, notes=notes)
    if refusal.where in ("sampler", "graphs"):
        return _after_the_cache(refusal, (), notes)
    if available is None:
        reason = f"The memory of the GPU was not enough: {refusal.line}."
        return Diagnosis(refusal.line, "out_of_memory", reason, notes=notes)
    result = fit(without_gpu(request, available))
    cause, reason = _reason(result, available)
    changes = suggestions(result)
    return Diagnosis(refusal.line, cause, reason, int(result.needed), available, changes, notes, _tried(result))


def _with_gpu(request: FitRequest, log: StartupLog, refusal: LogRefusal, available: int | None) -> Diagnosis:
    estimate = fit(request)
    if refusal.kind == "occupied":
        return _occupied(estimate, log, refusal)
    excess = _excess(estimate, log, available)
    if excess is not None:
        logged = LoggedExcess(excess, estimate.resolved.devices)
        estimate = fit(dataclasses.replace(request, logged_excess=logged))
    if refusal.where in ("sampler", "graphs"):
        smaller = _smaller_share(estimate, refusal), _fewer_sequences(estimate)
        return _after_the_cache(refusal, tuple(filter(None, smaller)), ())
    needed, room = int(estimate.needed), estimate.budget.room()
    if available is not None and refusal.kind == "too_small" and needed <= room:
        disagreement = f"one batch needs {_size(needed)} with this model, and {_size(room)} were left for the cache"
        return _other_model(request, log, refusal, disagreement)
    return _before_the_cache(estimate, refusal, excess, needed, room)


def _before_the_cache(
    estimate: FitResult, refusal: LogRefusal, excess: int | None, needed: int, room: int
) -> Diagnosis:
    """Return what is missing for the cache, or for the weights.

    Args:
        estimate: What fits; by the log's figures if it has them.
        refusal: The engine's message.
        excess: Bytes by which the log's figures differ from the estimate of attncalc; None if the log has none.
        needed: Bytes that the batch needs.
        room: Bytes for the cache; negative if weights and reserve are too large.
    """
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
        each = " on each GPU" if estimate.resolved.devices > 1 else ""
        need = f"the weights need {_size(int(weights.total))}{each}"
        if int(weights.total) > gpu.memory:
            cause, reason = "weights_too_large", f"T{need[1:]}, and the GPU has {_size(gpu.memory)}."
            needed, room = int(weights.total), gpu.memory
        elif refusal.tried and refusal.free:
            reason = (
                f"An allocation of {_size(refusal.tried.bytes)} failed, {_size(refusal.free.bytes)} were free. By the "
                f"estimate, {need} of the GPU's {_size(gpu.memory)}."
            )
        if needed <= room:
            cause = "out_of_memory"
            note = "By the estimate it fits: other processes may use the GPU's memory, or the log's settings differ."
    changes = suggestions(estimate)
    words = _tried(estimate)
    if needed <= room:
        return Diagnosis(refusal.line, cause, reason, changes=changes, notes=(note,), tried=words)
    return Diagnosis(refusal.line, cause, reason, needed, room, changes, (note,), words)


def _excess(estimate: FitResult, log: StartupLog, available: int | None) -> int | None:
    """Return the bytes that weights and reserve took beyond the estimate; None if the log does not say it."""
    if available is not None:
        return estimate.budget.room() - available
    loaded = log.budget.get("model_buffer") if log.devices <= 1 else None
    if loaded is not None and estimate.budget.weights is not None:
        return loaded.bytes - int(estimate.budget.weights.total)
    return None


def _occupied(estimate: FitResult, log: StartupLog, refusal: LogRefusal) -> Diagnosis:
    """Return the largest share that is free, and what else has to change with it."""
    free, total = log.budget.get("free_memory"), log.budget.get("gpu_memory")
    if free is None or total is None or not total.number:
        return Diagnosis(refusal.line, "memory_taken", _TAKEN)
    # free_memory has no unit of its own: it is printed before "/total GiB"
    free_bytes = int(free.number * GIB)
    reason = (
        f"Other processes use {_size(total.bytes - free_bytes)} of the GPU's {_size(total.bytes)}: "
        f"{_size(free_bytes)} are free"
    )

    def diagnosis(reason: str, needed: int | None, changes: tuple[Suggestion, ...], *notes: str) -> Diagnosis:
        words = tried(estimate.resolved, with_share=False)
        return Diagnosis(refusal.line, "memory_taken", f"{reason}.", needed, free_bytes, changes, notes, words)

    hundredths = 100 * free.number // total.number
    if not 0 < hundredths < 100:
        return diagnosis(reason, None, ())
    engine, share = estimate.resolved.engine, f"0.{hundredths:02d}"
    result = fit(dataclasses.replace(estimate.request, gpu_memory_utilization=share))
    smaller = Suggestion(f"{share} of the GPU's memory", f"{engine.share_option} {share}", result)
    if result.verdict == "fits":
        note = f"End the other processes, or give {engine.title} the share that is free: {smaller.flag}."
        return diagnosis(reason, None, (smaller,), note)
    needed = int(result.needed)
    if result.budget.weights and int(result.budget.weights.total) >= free_bytes:
        needed = int(result.budget.weights.total)
        reason += f", and the weights alone need {_size(needed)}"
    else:
        reason += f", and the cache gets {_size(max(0, result.budget.room()))} of them; it needs {_size(needed)}"
    changes = tuple(
        change._replace(flag=f"{smaller.flag} {change.flag}", change=f"{smaller.change}, {change.change}")
        for change in suggestions(result, with_share=False)
    )
    return diagnosis(reason, needed, changes, f"End the other processes. Beside them, {smaller.flag} is not enough.")


def _after_the_cache(refusal: LogRefusal, changes: tuple[Suggestion, ...], notes: tuple[str, ...]) -> Diagnosis:
    """Return that the cache left too little for what comes after it."""
    reason = "The cache left too little memory for what follows it: the warm-up of the sampler, or graphs."
    if not refusal.tried or not refusal.free:
        return Diagnosis(refusal.line, "cache_too_large", reason, changes=changes, notes=notes)
    wanted, free = refusal.tried.bytes, refusal.free.bytes
    reason = f"{reason} {_size(wanted)} were wanted, {_size(free)} were free."
    return Diagnosis(refusal.line, "cache_too_large", reason, wanted, free, changes, notes)


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
    workload = result.resolved.workload
    batch = "one request" if workload.batch == 1 else f"{count(workload.batch)} requests"
    needs = "needs" if workload.batch == 1 else "need"
    needed = f"{batch} of {count(workload.context)} tokens {needs} {_size(result.needed)}"
    if room < 0:
        return (
            "nothing_left",
            f"{needed}, and weights and runtime memory are {_size(-room)} larger than the engine's share.",
        )
    missing = int(result.needed) - room
    if missing <= 0:
        return "out_of_memory", f"{needed}, and {_size(room)} are left for the cache."
    return "kv_too_small", f"{needed}, {_size(room)} are left for the cache: {_size(missing)} are missing."


def _size(size: int) -> str:
    return human(size, BYTES)
