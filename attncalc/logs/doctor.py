"""Why an engine did not start, by its log and the sizes of the model, and the changes with which it
would.

`cause.py` reads the log alone, and that is all for a message that says nothing about sizes, such as
one about host memory. Otherwise `fit` estimates what the model needs, with the memory that the log
has in place of the estimated one. If log and model contradict each other, no change is computed:
see `contradictions.py`.
"""

import dataclasses
from collections.abc import Iterable
from fractions import Fraction

from ..check import Check
from ..engines import find_engine
from ..model import ModelSpec
from ..records import NamedTuple
from ..serving.fit import FitResult, fit
from ..serving.request import FitRequest, LoggedExcess
from ..serving.suggestions import Suggestion, suggestions, tried_in_words
from ..units import GIB, count, long_option
from . import find_reader
from .advice import share_below
from .cause import (
    STAGES,
    Diagnosis,
    diagnose_alone,
    free_memory,
    free_share,
    missing_memory,
    size,
    taken_by_others,
)
from .comparison import without_gpu
from .contradictions import (
    NAME_THE_LOGS_MODEL,
    TOLERANCE,
    contradicting_figure,
    contradicting_memory,
    named_otherwise,
    other_model,
)
from .startup_log import LogMemory, LogRefusal, StartupLog

# By `LogRefusal.where`, failures about which the sizes of a model say nothing.
_NOT_OF_SIZES = ("host", "host_cache", "killed", "requests", "tokens", "other", "encoder")
# Options that vllm-metal refuses or ignores: a Mac has one GPU, and no kernels for fp8.
_NOT_ON_METAL = ("--kv-dtype", "--weights-dtype fp8", "--enforce-eager", "--tp", "--gpus")
# Why a start failed that fits by the estimate.
_OTHER_SETTINGS = "By the estimate it fits: the log's settings differ."
_BESIDE_OTHERS = (
    "By the estimate it fits: other processes may use the GPU's memory, or the log's settings "
    "differ."
)


class _Reason(NamedTuple):
    """Why a batch does not fit."""

    cause: str  # of CAUSES
    sentence: str  # the cause with its numbers


def diagnose(
    request: FitRequest,
    log: StartupLog,
    memory: LogMemory | None,
    checks: Iterable[Check] = (),
    named: ModelSpec | None = None,
) -> Diagnosis | None:
    """Return why the engine did not start; None if it did.

    Args:
        request: The request with the GPU, if it is known; without one only changes of the cache can
            be computed.
        log: What the engine printed.
        memory: The memory for the cache that it printed, or that follows from its figures.
        checks: Its figures beside the predicted ones. If they contradict each other, nothing is
            advised.
        named: The model that the log names, if it is known. If it has other sizes, nothing is
            advised.

    Raises AttncalcError as `fit` does.
    """
    refusal = log.refusal
    if refusal is None:
        return None
    if refusal.cause or refusal.kind == "overloaded":
        return _stated(request, log, refusal)
    reason = named_otherwise(request.model, log, named)
    if reason:
        return Diagnosis(refusal.line, "other_model", reason, notes=(NAME_THE_LOGS_MODEL,))
    contradiction = contradicting_figure(checks, request.workload.context)
    if contradiction:
        return _contradicted(request, log, refusal, contradiction, named)
    found = _without_sizes(request, log, refusal)
    if found is None:
        found = _computed(request, log, refusal, memory, named)
    if found.changes:
        return _with_notes(found, request, log)
    return found


# Diagnoses by the log alone, or almost


def _stated(request: FitRequest, log: StartupLog, refusal: LogRefusal) -> Diagnosis:
    """Return the diagnosis of a log that states the cause itself, or of a running server."""
    alone = diagnose_alone(log, request.gpu)
    if refusal.cause and refusal.tokens and request.gpu:
        return _longer_context(alone, request, refusal)
    return alone


def _longer_context(alone: Diagnosis, request: FitRequest, refusal: LogRefusal) -> Diagnosis:
    """Return whether a context fits that holds the request of the log, which was longer than the
    server's; if not, with which changes it does.
    """
    own = request.model.max_context
    if own and refusal.tokens > own:
        return _beyond_the_model(alone, request.model.title, own)
    context = min(filter(None, (own, refusal.context)))
    result = fit(request.with_workload(context=context))
    fits = result.verdict == "fits"
    if alone.advice[0].known:  # a change of the request, which needs no other server
        note = f"A context of {count(context)} tokens does not fit too."
        if fits:
            note = f"A context of {count(context)} tokens fits too."
        return alone._replace(notes=(note,))
    if fits:
        words = f"{count(context)} tokens of context"
        return alone._replace(
            changes=(Suggestion(words, f"--context {context}", result),), advice=()
        )
    note = (
        f"A context of {count(context)} tokens, which holds the request, needs another change too."
    )
    changes = _changes(result)
    found = alone._replace(changes=changes, notes=(note,), tried=_tried(result))
    if changes:
        return found._replace(advice=())
    return found


def _beyond_the_model(alone: Diagnosis, title: str, max_context: int) -> Diagnosis:
    """Return the diagnosis that a request was longer than the model's maximum context too, without
    the advice for a longer context.
    """
    reason = f"{alone.reason[:-1]}, and {title} has at most {count(max_context)} tokens of context."
    shorter = []
    for each in alone.advice:
        if each.known or not each.option:
            shorter.append(each)
    return alone._replace(reason=reason, advice=tuple(shorter))


def _contradicted(
    request: FitRequest,
    log: StartupLog,
    refusal: LogRefusal,
    contradiction: str,
    named: ModelSpec | None,
) -> Diagnosis:
    """Return the diagnosis of a log with a figure that contradicts the model."""
    if named and refusal.kind == "out_of_memory":
        # of the model that the log names, an older build or other options
        alone = diagnose_alone(log, request.gpu)
        return alone._replace(notes=(f"No change is computed: {contradiction}.",))
    return other_model(request.model, log, refusal, contradiction, named)


def _without_sizes(request: FitRequest, log: StartupLog, refusal: LogRefusal) -> Diagnosis | None:
    """Return what the log alone says, if the sizes of the model say nothing about the failure;
    None if they do.
    """
    # LM Studio's own estimate is for its own context, which the log may lack
    is_estimate = refusal.where == "guardrail" and refusal.tried is not None
    if is_estimate and _assumes_context(request, log):
        note = "The log has no context: with --context, changes are computed."
        return diagnose_alone(log, request.gpu)._replace(notes=(note,))
    if refusal.where not in _NOT_OF_SIZES and not refusal.one_buffer:
        return None
    return diagnose_alone(log, request.gpu)


def _assumes_context(request: FitRequest, log: StartupLog) -> bool:
    """Return whether the log has no context, so that the model's maximum is assumed."""
    return "context" not in log.settings and request.workload.context == request.model.max_context


# Diagnoses with the sizes of the model


def _computed(
    request: FitRequest,
    log: StartupLog,
    refusal: LogRefusal,
    memory: LogMemory | None,
    named: ModelSpec | None,
) -> Diagnosis:
    """Return the diagnosis with the sizes of the model, as far as they say something about it."""
    share = request.gpu_memory_utilization if request.gpu else None
    printed = memory.printed if memory else None
    available = find_reader(log.engine).logged_room(log, printed, share)
    if request.gpu is None:
        found = _without_gpu(request, log, refusal, available)
    else:
        found = _with_gpu(request, log, refusal, available, named)
    needed = log.logged.get("kv_bytes_per_sequence")
    is_of_one = request.workload.batch == 1
    if needed and found.needed and is_of_one and found.needed < (1 - TOLERANCE) * needed.bytes:
        # with stages, vLLM wants room for all layers on each
        return diagnose_alone(log, request.gpu)
    return found


def _without_gpu(
    request: FitRequest, log: StartupLog, refusal: LogRefusal, available: int | None
) -> Diagnosis:
    """Return what the memory for the cache that the log has lacks; by the log alone if it has none.

    Args:
        request: The request without a GPU.
        log: What the engine printed.
        refusal: Its message.
        available: Bytes that were left for the cache; None if the log does not have them.
    """
    notes = (
        "The log does not name the GPU's memory. With --gpu, changes of the weights, the share "
        "and the number of GPUs are computed too.",
    )
    if available is None or refusal.kind in ("occupied", "out_of_memory"):
        return diagnose_alone(log)._replace(notes=notes)
    result = fit(without_gpu(request, available))
    cause, reason = _reason(result, available)
    if refusal.kind == "unfinished":
        alone = diagnose_alone(log)
        if result.fits:
            return alone._replace(notes=notes)
        reason = f"{alone.reason} {reason.capitalize()}"
    return Diagnosis(
        message=refusal.line,
        cause=cause,
        reason=reason,
        needed=int(result.needed),
        available=available,
        changes=_changes(result),
        notes=notes,
        tried=_tried(result),
    )


def _with_gpu(
    request: FitRequest,
    log: StartupLog,
    refusal: LogRefusal,
    available: int | None,
    named: ModelSpec | None,
) -> Diagnosis:
    """Return what is missing on the GPU, and the changes with which it fits.

    Args:
        request: The request with the GPU.
        log: What the engine printed.
        refusal: Its message.
        available: Bytes that were left for the cache; None if the log does not have them.
        named: The model that the log names, of the same sizes; None if it is not known.
    """
    alone = diagnose_alone(log, request.gpu)
    if find_engine(log.engine).typed_files and not (request.weights_dtype or request.model.stored):
        note = (
            "The log does not have the type of the file: with --weights-dtype, such as q4_k_m, "
            "changes are computed."
        )
        return alone._replace(notes=(note,))
    estimate = fit(request)
    if alone.cause == "memory_taken":
        return _memory_taken(estimate, log, refusal)
    excess = _excess(estimate, log, refusal, available)
    if excess is not None:
        logged = logged_excess(estimate, excess)
        estimate = fit(dataclasses.replace(request, logged_excess=logged))
    contradiction = ""
    # llama.cpp may have any part of the weights on the GPU, if the log lacks the number of layers
    if "n_gpu_layers" in log.settings or not find_engine(log.engine).splits_by_layer:
        contradiction = contradicting_memory(estimate, log, refusal, available)
    if contradiction and refusal.where == "serving":
        # its settings are often not in the lines of a running server
        note = f"No change is computed: {contradiction}. --weights-dtype may be missing."
        return alone._replace(notes=(note,))
    if contradiction:
        return other_model(request.model, log, refusal, contradiction, named)
    if STAGES[refusal.where].after == "cache":
        return _after_the_cache(estimate, refusal, alone)
    return _before_the_cache(estimate, refusal, excess, alone)


def _excess(
    estimate: FitResult, log: StartupLog, refusal: LogRefusal, available: int | None
) -> int | None:
    """Return the bytes that weights and runtime memory took beyond the estimate; None if the log
    does not say it.

    Example: by the estimate 8 GiB are left for the cache, and by the log 6.5. The excess is 1.5
    GiB.
    """
    if available is not None:
        return estimate.budget.room() - available
    # llama.cpp has no such line: its buffers are compared one by one
    loaded = log.budget.get("model_buffer")
    budget = estimate.budget
    if loaded is None or log.devices > 1 or budget.weights is None:
        return None
    excess = loaded.bytes - int(budget.weights.total)
    if refusal.where == "compute" and refusal.tried and budget.reserve:
        parts = budget.reserve.runtime.parts
        expected = sum(int(part.expected) for part in parts if part.name == "compute_buffer")
        excess += refusal.tried.bytes - expected
    return excess


def logged_excess(estimate: FitResult, excess: int) -> LoggedExcess:
    """Return an excess of so many bytes per GPU, with what was estimated for that start."""
    reserve = estimate.budget.reserve
    reserved = int(reserve.total) if reserve else 0
    return LoggedExcess(excess, estimate.resolved.devices, reserved)


# Failures before the cache had its size


def _before_the_cache(
    estimate: FitResult, refusal: LogRefusal, excess: int | None, alone: Diagnosis
) -> Diagnosis:
    """Return what is missing for the cache, or for the weights.

    Args:
        estimate: What fits; by the log's figures if it has them.
        refusal: The engine's message.
        excess: Bytes by which the log's figures differ from the estimate of attncalc; None if the
            log has none.
        alone: What the log alone says.
    """
    found = _missing(estimate, refusal, excess, alone)
    fits = found.needed <= found.room
    reason = found.reason
    if refusal.kind == "unfinished" and fits:
        return alone._replace(notes=("By the estimate the GPU's memory is enough.",))
    if refusal.kind == "unfinished":
        reason = f"{alone.reason} By the estimate, {reason[0].lower()}{reason[1:]}"
    # a larger share leaves less for what failed
    with_share = refusal.kind != "out_of_memory"
    changes = _changes(estimate, with_share=with_share)
    graphs = estimate.resolved.engine.without_graphs
    if refusal.where == "graph_profile" and graphs:  # without any, vLLM does not get there
        option = long_option(graphs)
        changes = tuple(sorted(changes, key=lambda change: option not in change.flag))
    diagnosis = alone._replace(
        changes=changes,
        notes=(found.note, *_enough_to_go_on(estimate, refusal, alone, changes)),
        tried=_tried(estimate, with_share=with_share),
    )
    if not fits or diagnosis.changes:
        diagnosis = diagnosis._replace(advice=())
    # the estimate may err, and the log does not
    if fits or alone.cause == "compute_too_large":
        return diagnosis
    return diagnosis._replace(
        cause=found.cause, reason=reason, needed=found.needed, available=found.room
    )


def _enough_to_go_on(
    estimate: FitResult, refusal: LogRefusal, alone: Diagnosis, changes: Iterable[Suggestion]
) -> tuple[str, ...]:
    """Return the share above which the log itself shows a cache, if no change has one: an engine
    that starts with less than one request's cache goes on with it.
    """
    engine = estimate.resolved.engine
    is_listed = any(engine.share_option in change.flag for change in changes)
    if engine.must_fit_one or is_listed or refusal.kind != "no_memory":
        return ()
    for advice in alone.advice:
        is_share = advice.option.startswith(engine.share_option)
        if is_share and advice.change.startswith("a share above"):
            return (f"{engine.title} goes on with {advice.option}: {advice.change}.",)
    return ()


class _Missing(NamedTuple):
    """What is needed by the estimate, and what there is for it."""

    cause: str  # of CAUSES
    reason: str  # the cause as a sentence with its numbers
    needed: int  # bytes that are needed
    room: int  # bytes that there are for them
    note: str  # what this rests on, as a sentence


def _missing(
    estimate: FitResult, refusal: LogRefusal, excess: int | None, alone: Diagnosis
) -> _Missing:
    """Return what is missing for the cache, or for weights that are larger than the GPU."""
    room = estimate.budget.room()
    cause, reason = _reason(estimate, room)
    note = "The log does not say how much memory was left: the changes rest on the estimate."
    if excess is not None:
        note = _measured(excess)
    found = _Missing(cause, reason, int(estimate.needed), room, note)
    if excess is not None or estimate.budget.weights is None or estimate.resolved.gpu is None:
        return found
    return _missing_for_weights(found, estimate, refusal, alone)


def _missing_for_weights(
    found: _Missing, estimate: FitResult, refusal: LogRefusal, alone: Diagnosis
) -> _Missing:
    """Return what is missing, by the estimate of the weights: the log does not have what was left
    for the cache, which may have had no room at all.
    """
    gpu = estimate.resolved.gpu
    assert estimate.budget.weights is not None
    assert gpu is not None
    weights = int(estimate.budget.weights.total)
    need = f"{size(weights)}{_on_each_gpu(estimate)}"
    tried = refusal.tried
    if weights > gpu.memory:
        reason = f"The weights need {need}, and the GPU has {size(gpu.memory)}."
        if refusal.where == "weights" and tried and tried.bytes > gpu.memory:
            reason = alone.reason  # the log has the size of the weights
        found = found._replace(
            cause="weights_too_large", reason=reason, needed=weights, room=gpu.memory
        )
    elif refusal.kind == "out_of_memory" and tried and refusal.free:
        reason = (
            f"An allocation of {size(tried.bytes)} failed, {size(refusal.free.bytes)} were free. "
            f"By the estimate, the weights need {need} of the GPU's {size(gpu.memory)}."
        )
        found = found._replace(reason=reason)
    if refusal.where == "weights":
        found = found._replace(cause="weights_too_large")
    if found.needed > found.room:
        return found
    if refusal.use.own:
        return found._replace(note=_OTHER_SETTINGS)
    return found._replace(note=_BESIDE_OTHERS)


def _on_each_gpu(estimate: FitResult) -> str:
    """Return ' on each GPU' if several GPUs divide the weights, or ''."""
    resolved = estimate.resolved
    if resolved.devices > 1 or (resolved.whole_layers and resolved.gpus > 1):
        return " on each GPU"
    return ""


def _measured(excess: int) -> str:
    """Return that the changes are computed with the log's figures, and how far these are from the
    estimate.
    """
    if abs(excess) < GIB // 20:
        return "The changes are computed with the log's weights and runtime memory."
    sizes = f"The log's weights and runtime memory are {size(abs(excess))}"
    computed = "the changes are computed with the log's"
    if excess > 0:
        return f"{sizes} larger than the estimate; {computed}."
    return f"{sizes} smaller than the estimate; {computed}."


def _reason(result: FitResult, room: int) -> _Reason:
    """Return why the batch does not fit in `room` bytes."""
    workload = result.resolved.workload
    needed = int(result.needed)
    needs = f"{count(workload.batch)} requests of {count(workload.context)} tokens need"
    if workload.batch == 1:
        needs = f"one request of {count(workload.context)} tokens needs"
    if room < 0:
        larger = f"weights and runtime memory are {size(-room)} larger than the engine's share"
        return _Reason("nothing_left", f"{needs} {size(needed)}, and {larger}.")
    if needed <= room:
        left = f"{size(room)} are left for the cache"
        return _Reason("out_of_memory", f"{needs} {size(needed)}, and {left}.")
    return _Reason("kv_too_small", missing_memory(needs, needed, room))


# Failures after the cache had its size


def _after_the_cache(estimate: FitResult, refusal: LogRefusal, alone: Diagnosis) -> Diagnosis:
    """Return the changes that leave more memory for what is allocated after the cache."""
    found = (_smaller_share(estimate, refusal), _fewer_sequences(estimate))
    changes = tuple(change for change in filter(None, found) if change.result.starts)
    if changes:
        return alone._replace(changes=changes, advice=())
    return alone


def _smaller_share(result: FitResult, refusal: LogRefusal) -> Suggestion | None:
    """Return a smaller share of the GPU's memory, which leaves what the allocation lacked; None if
    the engine would not start with it.
    """
    share = result.budget.share
    gpu = result.resolved.gpu
    if share is None or gpu is None:
        return None
    hundredths = share_below(refusal, Fraction(share.numerator, share.denominator), gpu.memory)
    if hundredths < 1:
        return None
    text = f"0.{hundredths:02d}"
    changed = fit(dataclasses.replace(result.request, gpu_memory_utilization=text))
    if changed.starts:
        return Suggestion(f"{text} of the GPU's memory", f"{share.option} {text}", changed)
    return None


def _fewer_sequences(result: FitResult) -> Suggestion | None:
    """Return a quarter of the sequences in one step: the sampler warms up with all of them.

    None for an engine without such a limit.
    """
    resolved = result.resolved
    limits = resolved.limits(resolved.workload.batch, resolved.workload.context)
    if limits is None or not resolved.engine.fewer_sequences:
        return None
    fewer = limits.max_num_seqs // 4
    if fewer < 1:
        return None
    changed = fit(result.request.with_engine_args(max_num_seqs=fewer))
    return Suggestion(
        f"{count(fewer)} sequences per step",
        f"{changed.resolved.engine.running_option} {fewer}",
        changed,
    )


# Memory that other processes use


def _memory_taken(estimate: FitResult, log: StartupLog, refusal: LogRefusal) -> Diagnosis:
    """Return what starts when the other processes end, and what starts beside them with the share
    that is free.
    """
    free = free_memory(log)
    reason = taken_by_others(log, refusal)
    found = Diagnosis(refusal.line, "memory_taken", f"{reason}.", available=free)
    if estimate.verdict != "fits":
        reason = (
            f"{reason}. End these processes (nvidia-smi lists them) or take another GPU; the "
            "changes are for then."
        )
        return found._replace(reason=reason, changes=suggestions(estimate), tried=_tried(estimate))
    ended = Suggestion("the other processes ended", "", estimate)
    share = free_share(log)
    if not share:
        return found._replace(changes=(ended,), notes=("End the other processes.",))
    beside = fit(dataclasses.replace(estimate.request, gpu_memory_utilization=share))
    if beside.verdict != "fits":
        found = _too_little_free(found, reason, beside)
        return _with_changes_beside(found, ended, beside, share)
    engine = estimate.resolved.engine
    option = f"{engine.share_option} {share}"
    note = f"End the other processes, or give {engine.title} the share that is free: {option}."
    change = Suggestion(f"{share} of the GPU's memory", option, beside)
    return found._replace(changes=(change, ended), notes=(note,))


def _too_little_free(found: Diagnosis, reason: str, beside: FitResult) -> Diagnosis:
    """Return the diagnosis with what the free share is too small for: the weights, or the cache.

    Args:
        found: The diagnosis with the bytes that are free as `available`.
        reason: What other processes use, without a full stop.
        beside: What fits with the share that is free.
    """
    held = beside.budget.weights
    weights = int(held.total) if held else 0
    if weights >= (found.available or 0):
        reason = f"{reason}, and the weights alone need {size(weights)}."
        return found._replace(reason=reason, needed=weights)
    needed = int(beside.needed)
    room = size(max(0, beside.budget.room()))
    reason = f"{reason}, and the cache gets {room} of them; it needs {size(needed)}."
    return found._replace(reason=reason, needed=needed)


def _with_changes_beside(
    found: Diagnosis, ended: Suggestion, beside: FitResult, share: str
) -> Diagnosis:
    """Return the diagnosis with the end of the other processes, and with the changes that fit
    beside them.

    Args:
        found: The diagnosis.
        ended: The end of the other processes as a change.
        beside: What fits with the share that is free.
        share: That share.
    """
    resolved = beside.resolved
    option = f"{resolved.engine.share_option} {share}"
    changes = tuple(
        change._replace(
            change=f"{share} of the GPU's memory, {change.change}", flag=f"{option} {change.flag}"
        )
        for change in suggestions(beside, with_share=False)
        if not change.needs_hardware
    )
    note = f"End the other processes. Beside them, {option} is not enough."
    if resolved.gpu and resolved.gpu.shares_with_host:  # much is the system's, which does not end
        return found._replace(changes=(*changes, ended), notes=(note,))
    return found._replace(changes=(ended, *changes), notes=(note,))


# Changes


def _with_notes(found: Diagnosis, request: FitRequest, log: StartupLog) -> Diagnosis:
    """Return the diagnosis with what its changes assume, and without those that a program around
    the engine, such as Ollama, lacks.
    """
    changes = list(found.changes)
    notes = list(found.notes)
    if log.within:
        notes.append(log.within.names)
        for option in log.within.lacks:
            changes = [change for change in changes if option not in change.flag]
    if log.on_metal:
        changes = [one for one in changes if not any(map(one.flag.__contains__, _NOT_ON_METAL))]
    if _assumes_context(request, log):
        maximum = f"the model's maximum, {count(request.workload.context)} tokens"
        notes.append(f"The log has no context: {maximum}, is assumed; --context sets another.")
    return found._replace(changes=tuple(changes), notes=tuple(notes))


def _changes(result: FitResult, *, with_share: bool = True) -> tuple[Suggestion, ...]:
    """Return the changes with which it starts; first, if the users' requests are known, a context
    that holds them.
    """
    traffic = result.request.traffic
    context = result.resolved.workload.context
    longest = int(traffic.worst_tokens) if traffic else context
    changes = suggestions(result, with_share=with_share)
    if longest < context and result.verdict != "fits":
        shorter = fit(result.request.with_workload(context=longest))
        if shorter.verdict == "fits":
            words = f"{count(longest)} tokens of context, as many as the users' requests have"
            return (Suggestion(words, f"--context {longest}", shorter), *changes)
    return changes


def _tried(result: FitResult, *, with_share: bool = True) -> str:
    """Return which changes were computed, in words; '' for none, since by the estimate it fits."""
    if result.verdict == "fits":
        return ""
    return tried_in_words(result.resolved, with_share=with_share)
