"""Why an engine did not start, as its log says it, and the changes with which it would."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from ..engines import find_engine
from ..engines.startup_log import LogMemory, LogRefusal, StartupLog
from ..quantity import Quantity
from ..units import BYTES, GIB, count, human
from .fit import FitResult, fit
from .log_check import without_gpu
from .request import FitRequest, LoggedExcess
from .suggestions import Suggestion, suggestions

_MARGIN = GIB // 4
"""Bytes that should stay free beyond an allocation that failed after the cache was there."""


class Diagnosis(NamedTuple):
    """Why an engine did not start."""

    message: str  # the engine's own
    reason: str  # what is missing, as a sentence
    missing: int | None = None  # bytes per GPU that are missing; None if the log and the estimate do not say it
    changes: tuple[Suggestion, ...] = ()  # the changes with which it would start, the cheapest first
    notes: tuple[str, ...] = ()  # what the diagnosis rests on, one sentence each


def diagnose(request: FitRequest, log: StartupLog, memory: LogMemory | None) -> Diagnosis | None:
    """Return why the engine did not start; None if it did.

    Args:
        request: The request with the GPU, if it is known; without one only changes of the cache can be computed.
        log: What the engine printed.
        memory: The memory for the cache that it printed, or that follows from its figures.

    Raises AttncalcError as `fit` does.
    """
    refusal = log.refusal
    if refusal is None:
        return None
    if refusal.kind == "occupied":
        return _occupied(request, log, refusal)
    if refusal.where in ("sampler", "graphs"):
        return _after_the_cache(request, refusal)
    share = request.gpu_memory_utilization if request.gpu else None
    available = find_engine(log.engine).logged_room(log, memory.printed if memory else None, share)
    if request.gpu is None:
        return _without_gpu(request, refusal, available)
    return _with_gpu(request, log, refusal, available)


def _without_gpu(request: FitRequest, refusal: LogRefusal, available: int | None) -> Diagnosis:
    notes = (
        "The log does not name the GPU's memory. With --gpu, changes of the weights, the share and the number of GPUs "
        "are computed too.",
    )
    if available is None:
        return Diagnosis(refusal.line, f"The memory of the GPU was not enough: {refusal.line}.", notes=notes)
    result = fit(without_gpu(request, available))
    missing = int(result.needed) - available
    return Diagnosis(refusal.line, _reason(result, available, missing), max(0, missing), suggestions(result), notes)


def _with_gpu(request: FitRequest, log: StartupLog, refusal: LogRefusal, available: int | None) -> Diagnosis:
    """Return the changes, computed from the log's own figures where it has them, else from the estimate."""
    estimate = fit(request)
    excess = _excess(estimate, log, available)
    if excess is None:
        missing = int(estimate.needed) - estimate.budget.room()
        notes = ["The log does not say how much memory was left: the changes rest on the estimate."]
        if missing <= 0:
            notes = ["By the estimate it fits: other processes may use the GPU's memory, or the log's settings differ."]
        if refusal.tried and refusal.free:
            reason = f"An allocation of {_size(refusal.tried.bytes)} failed, {_size(refusal.free.bytes)} were free."
        else:
            reason = _reason(estimate, estimate.budget.room(), missing)
        return Diagnosis(refusal.line, reason, missing if missing > 0 else None, suggestions(estimate), tuple(notes))
    logged = LoggedExcess(excess, estimate.resolved.devices)
    result = fit(dataclasses.replace(request, logged_excess=logged))
    room = result.budget.room()
    missing = int(result.needed) - room
    note = (
        f"The log's weights and runtime memory are {_size(abs(excess))} "
        f"{'larger' if excess > 0 else 'smaller'} than the estimate; the changes are computed with the log's."
    )
    return Diagnosis(refusal.line, _reason(result, room, missing), max(0, missing), suggestions(result), (note,))


def _excess(estimate: FitResult, log: StartupLog, available: int | None) -> int | None:
    """Return the bytes that weights and reserve took beyond the estimate; None if the log does not say it."""
    if available is not None:
        return estimate.budget.room() - available
    loaded = log.budget.get("model_buffer") if log.devices <= 1 else None
    if loaded is not None and estimate.budget.weights is not None:
        return loaded.bytes - int(estimate.budget.weights.total)
    return None


def _occupied(request: FitRequest, log: StartupLog, refusal: LogRefusal) -> Diagnosis:
    """Return the largest share that is free, and what else has to change with it."""
    free, total = log.budget.get("free_memory"), log.budget.get("gpu_memory")
    if free is None or total is None or not total.number or request.gpu is None:
        return Diagnosis(refusal.line, "Other processes use the memory of the GPU.")
    # free_memory has no unit of its own: it is printed before "/total GiB"
    free_bytes = int(free.number * GIB)
    hundredths = 100 * free.number // total.number
    reason = f"Other processes use {_size(total.bytes - free_bytes)} of the GPU: {_size(free_bytes)} are free."
    if not 0 < hundredths < 100:
        return Diagnosis(refusal.line, reason)
    share = f"0.{hundredths:02d}"
    result = fit(dataclasses.replace(request, gpu_memory_utilization=share))
    option = result.resolved.engine.share_option
    note = f"End the other processes, or give vLLM the share that is free: {option} {share}."
    smaller = Suggestion(f"{share} of the GPU's memory", f"{option} {share}", result)
    if result.verdict == "fits":
        return Diagnosis(refusal.line, reason, changes=(smaller,), notes=(note,))
    changes = tuple(
        change._replace(flag=f"{smaller.flag} {change.flag}", change=f"{smaller.change}, {change.change}")
        for change in suggestions(result)
        if option not in change.flag
    )
    return Diagnosis(refusal.line, reason, changes=changes, notes=(note,))


def _after_the_cache(request: FitRequest, refusal: LogRefusal) -> Diagnosis:
    """Return smaller shares and fewer sequences: the cache left too little for what comes after it."""
    reason = "The cache left too little memory for what follows it: the warm-up of the sampler, or graphs."
    missing = None
    if refusal.tried and refusal.free:
        missing = max(0, refusal.tried.bytes - refusal.free.bytes)
        reason = f"{reason} {_size(refusal.tried.bytes)} were wanted, {_size(refusal.free.bytes)} were free."
    if request.gpu is None:
        note = "A smaller share leaves more; with --gpu, the share is computed."
        return Diagnosis(refusal.line, reason, missing, notes=(note,))
    result = fit(request)
    changes = [_smaller_share(result, missing or _MARGIN), _fewer_sequences(result)]
    return Diagnosis(refusal.line, reason, missing, tuple(change for change in changes if change))


def _smaller_share(result: FitResult, missing: int) -> Suggestion | None:
    share, gpu = result.budget.share, result.resolved.gpu
    if share is None or gpu is None:
        return None
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
    return Suggestion(f"{count(fewer)} sequences per step", f"--max-num-seqs {fewer}", changed)


def _reason(result: FitResult, room: int, missing: int) -> str:
    workload = result.resolved.workload
    batch = "one request" if workload.batch == 1 else f"{count(workload.batch)} requests"
    needed = (
        f"{batch} of {count(workload.context)} tokens need{'s' if workload.batch == 1 else ''} {_size(result.needed)}"
    )
    if room < 0:
        return f"{needed}, and weights and runtime memory are {_size(-room)} larger than the engine's share."
    if missing <= 0:
        return f"{needed}, and {_size(room)} are left for the cache."
    return f"{needed}, {_size(room)} are left for the cache: {_size(missing)} are missing."


def _size(size: int) -> str:
    return human(Quantity(int(size)), BYTES)
