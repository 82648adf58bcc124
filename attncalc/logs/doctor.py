"""Why an engine did not start, by its log and the model, and the changes with which it would; how a
server copes.
"""

import dataclasses
from collections.abc import Iterable
from fractions import Fraction
from itertools import compress

from ..check import Check
from ..engines import find_engine
from ..model import ModelSpec
from ..records import NamedTuple
from ..serving.fit import FitResult, fit
from ..serving.request import FitRequest, LoggedExcess, resolve
from ..serving.suggestions import Suggestion, narrower_caches, suggestions, tried_in_words
from ..units import BYTES, GIB, count, truncate
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
from .comparison import logged_weights, without_gpu
from .startup_log import Load, LogMemory, LogRefusal, StartupLog

# The part of a logged figure by which the predicted one may differ: versions differ by a block or
# by padding.
_TOLERANCE = 0.05
# By `LogRefusal.where`, what the sizes of a model say nothing about.
_ALONE = ("host", "host_cache", "killed", "requests", "tokens", "other", "encoder")
# Tokens to which builds of llama.cpp pad a context: 256, or 32 before that, or none.
_PADDING = 256
# The factor by which logged weights may differ from the estimated ones: towers and drafts may not
# be counted.
_OTHER_WEIGHTS = 1.4
# Why a start failed that fits by the estimate.
_OTHER_SETTINGS = "By the estimate it fits: the log's settings differ."
_BESIDE_OTHERS = (
    "By the estimate it fits: other processes may use the GPU's memory, or the log's settings "
    "differ."
)
NAME_THE_LOGS_MODEL = "Leave MODEL out, or give the model of the log."


def diagnose(
    request: FitRequest,
    log: StartupLog,
    memory: LogMemory | None,
    checks: Iterable[Check] = (),
    named: ModelSpec | None = None,
) -> Diagnosis | None:
    """Return why the engine did not start; None if it did.

    The log's own figures come first. What it lacks is estimated, and corrected by what the log has:
    with a GPU, the estimate of weights and runtime memory is replaced by what the log says that
    they left.

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
    if refusal.cause and refusal.tokens and request.gpu:
        return _longer_context(request, log, refusal)
    if refusal.cause or refusal.kind == "overloaded":
        return diagnose_alone(log, request.gpu)
    reason = named_otherwise(request.model, log, named)
    if reason:
        return Diagnosis(refusal.line, "other_model", reason, notes=(NAME_THE_LOGS_MODEL,))
    return _computed(request, log, refusal, memory, checks, named)


def _computed(
    request: FitRequest,
    log: StartupLog,
    refusal: LogRefusal,
    memory: LogMemory | None,
    checks: Iterable[Check],
    named: ModelSpec | None,
) -> Diagnosis:
    """Return the diagnosis with the sizes of the model, as far as they say something about it."""
    context = request.workload.context
    disagreement = next(filter(None, (_contradiction(check, context) for check in checks)), "")
    if disagreement and named and refusal.kind == "out_of_memory":
        # of the model that the log names, an older build or other options
        alone = diagnose_alone(log, request.gpu)
        return alone._replace(notes=(f"No change is computed: {disagreement}.",))
    if disagreement:
        return _other_model(request, log, refusal, disagreement, named)
    is_assumed = "context" not in log.settings and context == request.model.max_context
    # of LM Studio's own context
    is_estimate = refusal.where == "guardrail" and refusal.tried is not None
    if refusal.where in _ALONE or refusal.one_buffer or (is_estimate and is_assumed):
        alone = diagnose_alone(log, request.gpu)
        notes: tuple[str, ...] = ()
        if is_estimate:
            notes = ("The log has no context: with --context, changes are computed.",)
        return alone._replace(notes=notes)
    share = request.gpu_memory_utilization if request.gpu else None
    printed = memory.printed if memory else None
    available = find_reader(log.engine).logged_room(log, printed, share)
    if request.gpu is None:
        found = _without_gpu(request, log, refusal, available)
    else:
        found = _with_gpu(request, log, refusal, available, named)
    needed = log.logged.get("kv_bytes_per_sequence")
    is_of_one = request.workload.batch == 1
    if needed and found.needed and is_of_one and found.needed < (1 - _TOLERANCE) * needed.bytes:
        # with stages, vLLM wants room for all layers on each
        found = diagnose_alone(log, request.gpu)
    if found.changes:
        return _with_notes(found, request, log)
    return found


def _longer_context(request: FitRequest, log: StartupLog, refusal: LogRefusal) -> Diagnosis:
    """Return whether a context that holds a refused request fits, or with which changes it does."""
    alone = diagnose_alone(log, request.gpu)
    own = request.model.max_context
    if own and refusal.tokens > own:
        reason = (
            f"{alone.reason[:-1]}, and {request.model.title} has at most {count(own)} tokens of "
            "context."
        )
        shorter = []
        for each in alone.advice:
            if each.known or not each.option:
                shorter.append(each)
        return alone._replace(reason=reason, advice=tuple(shorter))
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
    changes = _changes(result)
    note = (
        f"A context of {count(context)} tokens, which holds the request, needs another change too."
    )
    found = alone._replace(changes=changes, notes=(note,), tried=_tried(result))
    if changes:
        return found._replace(advice=())
    return found


def _with_notes(found: Diagnosis, request: FitRequest, log: StartupLog) -> Diagnosis:
    """Return the diagnosis with what its changes assume, and without those that a program around
    the engine lacks.
    """
    changes = found.changes
    notes = found.notes
    context = request.workload.context
    if log.within:
        lacks = log.within.lacks
        has_all = [all(option not in change.flag for option in lacks) for change in changes]
        changes = tuple(compress(changes, has_all))
        notes = (*notes, log.within.names)
    if "context" not in log.settings and context == request.model.max_context:
        maximum = f"the model's maximum, {count(context)} tokens"
        notes = (*notes, f"The log has no context: {maximum}, is assumed; --context sets another.")
    return found._replace(changes=changes, notes=notes)


def named_otherwise(model: ModelSpec, log: StartupLog, named: ModelSpec | None) -> str:
    """Return that the log names a model of other sizes, `named`; '' if it does not."""
    if named is None or _sizes(named) == _sizes(model):
        return ""
    return (
        f"The log is of '{truncate(log.model)}' ({_sizes(named)}), not of {model.title} "
        f"({_sizes(model)})."
    )


def _sizes(model: ModelSpec) -> str:
    return f"{model.main.n_layers} layers of width {count(model.main.d_model)}"


def _contradiction(check: Check, context: int) -> str:
    """Return that a logged figure is further from the predicted one than rounding or padding
    explains, or ''.
    """
    tolerance = max(_TOLERANCE, _PADDING / context)
    if check.ok or abs(check.difference) <= tolerance * abs(check.measured):
        return ""
    shown = size if check.unit == BYTES else count
    logged = shown(int(check.measured))
    return f"{check.label} {logged} in the log, {shown(int(check.predicted))} with this model"


def _other_model(
    request: FitRequest,
    log: StartupLog,
    refusal: LogRefusal,
    disagreement: str,
    named: ModelSpec | None,
) -> Diagnosis:
    """Return that the log was written with another model, or with other arguments. `named` has this
    model's sizes.
    """
    options = "options that the log lacks, such as --gpu, --tp, --kv-dtype and --context"
    if named:
        note = f"Give {options}."
    elif log.model:
        note = f"The log is of '{truncate(log.model)}'. Give that model, or {options}."
    else:
        note = f"Give that model, or {options}."
    reason = f"The log and {request.model.title} disagree: {disagreement}."
    return Diagnosis(refusal.line, "other_model", reason, notes=(note,))


def _without_gpu(
    request: FitRequest, log: StartupLog, refusal: LogRefusal, available: int | None
) -> Diagnosis:
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
    changes = _changes(result)
    return Diagnosis(
        refusal.line, cause, reason, int(result.needed), available, changes, notes, _tried(result)
    )


def _with_gpu(
    request: FitRequest,
    log: StartupLog,
    refusal: LogRefusal,
    available: int | None,
    named: ModelSpec | None,
) -> Diagnosis:
    alone = diagnose_alone(log, request.gpu)
    if find_engine(log.engine).typed_files and not (request.weights_dtype or request.model.stored):
        note = (
            "The log does not have the type of the file: with --weights-dtype, such as q4_k_m, "
            "changes are computed."
        )
        return alone._replace(notes=(note,))
    estimate = fit(request)
    if alone.cause == "memory_taken":
        return _occupied(estimate, log, refusal)
    excess = _excess(estimate, log, available)
    if excess is not None:
        logged = _logged_excess(estimate, excess)
        estimate = fit(dataclasses.replace(request, logged_excess=logged))
    counts_layers = "n_gpu_layers" in log.settings or not find_engine(log.engine).splits_by_layer
    disagreement = ""
    if counts_layers:
        disagreement = _disagreement(estimate, log, refusal, available)
    if disagreement:
        # its settings are often not in the lines of a running server
        if refusal.where == "serving":
            return alone._replace(
                notes=(f"No change is computed: {disagreement}. --weights-dtype may be missing.",)
            )
        return _other_model(request, log, refusal, disagreement, named)
    if STAGES[refusal.where].after == "cache":
        found = filter(None, (_smaller_share(estimate, refusal), _fewer_sequences(estimate)))
        changes = tuple(change for change in found if change.result.starts)
        return alone._replace(changes=changes, advice=() if changes else alone.advice)
    return _before_the_cache(estimate, refusal, excess, alone)


def _logged_excess(estimate: FitResult, excess: int) -> LoggedExcess:
    reserve = estimate.budget.reserve
    reserved = int(reserve.total) if reserve else 0
    return LoggedExcess(excess, estimate.resolved.devices, reserved)


def _disagreement(
    estimate: FitResult, log: StartupLog, refusal: LogRefusal, available: int | None
) -> str:
    """Return what contradicts that this model wrote the log; '' if nothing does."""
    loaded = logged_weights(log)
    weights = estimate.budget.weights
    if loaded and weights and not 1 / _OTHER_WEIGHTS < loaded / int(weights.total) < _OTHER_WEIGHTS:
        return (
            f"weights of {size(loaded)} in the log, of {size(int(weights.total))} with this model"
        )
    gpu = estimate.resolved.gpu
    after = STAGES[refusal.where].after
    is_loaded = after or refusal.kind == "too_small"
    if weights and gpu and is_loaded and int(weights.total) > gpu.memory:
        return (
            f"the weights were loaded, and this model's need {size(int(weights.total))} of "
            f"{size(gpu.memory)}"
        )
    needed = int(estimate.needed)
    room = estimate.budget.room()
    if needed > room or after == "cache":
        return ""
    if available is not None and refusal.kind == "too_small":
        return (
            f"one batch needs {size(needed)} with this model, and {size(room)} were left for the "
            "cache"
        )
    # a message alone, without the lines of the start, may have come after those of the cache
    is_before = (after or refusal.where) == "weights" or (log.model and not refusal.where)
    most = _most_before_the_cache(estimate)
    if is_before and refusal.use.own > most:
        return (
            f"{size(refusal.use.own)} were in use before there was a cache, and this model takes "
            f"at most {size(most)}"
        )
    return ""


def _most_before_the_cache(estimate: FitResult) -> int:
    """Return the most bytes per GPU that weights and runtime memory take by the estimate."""
    weights = estimate.budget.weights
    reserve = estimate.budget.reserve
    if weights is None or reserve is None:
        if estimate.resolved.gpu:
            return estimate.resolved.gpu.memory
        return 0
    parts = (*reserve.runtime.parts, *reserve.runtime.outside)
    return int(weights.total) + int(weights.total) // 20 + sum(part.high for part in parts)


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
    diagnosis = alone._replace(
        changes=_changes(estimate, with_share=with_share),
        notes=(found.note,),
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


class _Missing(NamedTuple):
    """What is needed by the estimate, and what there is for it."""

    cause: str
    reason: str
    needed: int
    room: int
    note: str


def _missing(
    estimate: FitResult, refusal: LogRefusal, excess: int | None, alone: Diagnosis
) -> _Missing:
    """Return what is missing for the cache, or for weights that are larger than the GPU."""
    needed = int(estimate.needed)
    room = estimate.budget.room()
    cause, reason = _reason(estimate, room)
    weights = estimate.budget.weights
    gpu = estimate.resolved.gpu
    if excess is not None:
        return _Missing(cause, reason, needed, room, _measured(excess))
    note = "The log does not say how much memory was left: the changes rest on the estimate."
    if weights is None or gpu is None:
        return _Missing(cause, reason, needed, room, note)
    tried = refusal.tried
    need = f"{size(int(weights.total))}{_on_each_gpu(estimate)}"
    if int(weights.total) > gpu.memory:
        cause = "weights_too_large"
        reason = f"The weights need {need}, and the GPU has {size(gpu.memory)}."
        if refusal.where == "weights" and tried and tried.bytes > gpu.memory:
            reason = alone.reason  # the log has the size of the weights
        needed = int(weights.total)
        room = gpu.memory
    elif refusal.kind == "out_of_memory" and tried and refusal.free:
        reason = (
            f"An allocation of {size(tried.bytes)} failed, {size(refusal.free.bytes)} were free. "
            f"By the estimate, the weights need {need} of the GPU's {size(gpu.memory)}."
        )
    if refusal.where == "weights":
        cause = "weights_too_large"
    if needed <= room:
        note = _OTHER_SETTINGS if refusal.use.own else _BESIDE_OTHERS
    return _Missing(cause, reason, needed, room, note)


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


def _excess(estimate: FitResult, log: StartupLog, available: int | None) -> int | None:
    """Return the bytes that weights and reserve took beyond the estimate; None if the log does not
    say it.
    """
    if available is not None:
        return estimate.budget.room() - available
    loaded = log.budget.get("model_buffer")
    budget = estimate.budget
    if loaded is None or log.devices > 1 or budget.weights is None:
        return None
    excess = loaded.bytes - int(budget.weights.total)
    tried = log.refusal.tried if log.refusal else None
    if tried and budget.reserve and log.refusal and log.refusal.where == "compute":
        parts = budget.reserve.runtime.parts
        excess += tried.bytes - sum(
            int(part.expected) for part in parts if part.name == "compute_buffer"
        )
    return excess


def _occupied(estimate: FitResult, log: StartupLog, refusal: LogRefusal) -> Diagnosis:
    """Return what starts when the other processes end, and what starts beside them with the share
    that is free.
    """
    free = free_memory(log)
    reason = taken_by_others(log, refusal)
    found = Diagnosis(refusal.line, "memory_taken", f"{reason}.", None, free)
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
    engine = estimate.resolved.engine
    gpu = estimate.resolved.gpu
    option = f"{engine.share_option} {share}"
    words = f"{share} of the GPU's memory"
    result = fit(dataclasses.replace(estimate.request, gpu_memory_utilization=share))
    if result.verdict == "fits":
        note = f"End the other processes, or give {engine.title} the share that is free: {option}."
        return found._replace(changes=(Suggestion(words, option, result), ended), notes=(note,))
    needed = int(result.needed)
    held = result.budget.weights
    weights = int(held.total) if held else 0
    if weights >= (free or 0):
        needed = weights
        reason = f"{reason}, and the weights alone need {size(weights)}"
    else:
        room = size(max(0, result.budget.room()))
        reason = f"{reason}, and the cache gets {room} of them; it needs {size(needed)}"
    beside = tuple(
        change._replace(flag=f"{option} {change.flag}", change=f"{words}, {change.change}")
        for change in suggestions(result, with_share=False)
        if not change.needs_hardware
    )
    changes = (ended, *beside)
    if gpu and gpu.shares_with_host:  # much is the system's, which does not end
        changes = (*beside, ended)
    note = f"End the other processes. Beside them, {option} is not enough."
    return found._replace(reason=f"{reason}.", needed=needed, changes=changes, notes=(note,))


def _smaller_share(result: FitResult, refusal: LogRefusal) -> Suggestion | None:
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
    """Return a quarter of the sequences in one step: the sampler warms up with all of them."""
    limits = result.resolved.limits(
        result.resolved.workload.batch, result.resolved.workload.context
    )
    if limits is None or not result.resolved.engine.fewer_sequences:
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


def _tried(result: FitResult, *, with_share: bool = True) -> str:
    """Return which changes were computed, in words; '' for none, since by the estimate it fits."""
    if result.verdict == "fits":
        return ""
    return tried_in_words(result.resolved, with_share=with_share)


def _reason(result: FitResult, room: int) -> tuple[str, str]:
    """Return why the batch does not fit in `room` bytes, as a code and as a sentence."""
    workload = result.resolved.workload
    needed = int(result.needed)
    needs = f"{count(workload.batch)} requests of {count(workload.context)} tokens need"
    if workload.batch == 1:
        needs = f"one request of {count(workload.context)} tokens needs"
    if room < 0:
        larger = f"weights and runtime memory are {size(-room)} larger than the engine's share"
        return "nothing_left", f"{needs} {size(needed)}, and {larger}."
    if needed <= room:
        return "out_of_memory", f"{needs} {size(needed)}, and {size(room)} are left for the cache."
    return "kv_too_small", missing_memory(needs, needed, room)


class LoadState(NamedTuple):
    """How a server copes with its requests, or with as many as are asked for."""

    load: Load | None  # what the log prints
    # tokens that a running request holds on average; the context without a load
    tokens_per_request: int
    fitting: int  # how many such requests the caches of all replicas hold
    requests: int  # how many there are: the batch, or those that run and wait
    is_asked: bool  # whether they are the batch, or one that is longer than the cache
    # tokens of the longest request, if the server runs with a cache for less than its context
    longest: int | None
    # The changes with which the cache holds more, the cheapest first: a narrower cache, and others
    # if they make it hold all requests. () if it does already
    changes: tuple[Suggestion, ...]


def load_state(
    request: FitRequest, log: StartupLog, memory: LogMemory | None, tokens: int
) -> LoadState | None:
    """Return the state of the load; None if there is neither a load nor a batch, or no memory for
    the cache.

    Args:
        request: The request with the GPU, if it is known; without one only changes of the cache can
            be computed.
        log: What the engine printed.
        memory: The memory for the cache that it printed, or that follows from its figures.
        tokens: The tokens that the cache holds in that memory.

    Raises AttncalcError as `fit` does.
    """
    load = log.load
    batch = request.workload.batch
    if memory and not load:
        longest = fit(without_gpu(request, memory.printed)).longest_request
    else:
        longest = None
    # and not a log's number of slots
    is_asked = longest is not None or batch > int(request.engine_args.get("sequences") or 1)
    if memory is None or not (load or is_asked):
        return None
    request = dataclasses.replace(request, traffic=None)  # the requests are those of the log
    if load:
        held = round(load.usage * tokens / max(1, load.running))
    else:
        held = request.workload.context
    per_request = max(1, min(request.workload.context, held))
    if request.gpu:
        estimate = fit(request)
        excess = _logged_excess(estimate, estimate.budget.room() - memory.printed)
        logged = dataclasses.replace(request, logged_excess=excess)
    else:
        logged = without_gpu(request, memory.printed)
    replicas = resolve(logged).replicas  # a log counts the requests of one
    if load and not is_asked:
        requests = (load.running + load.waiting) * replicas
    else:
        requests = batch
    everything = fit(logged.with_workload(batch=requests, context=per_request))
    changes = _more_room(everything, with_shorter=longest is not None)
    return LoadState(
        load, per_request, tokens // per_request * replicas, requests, is_asked, longest, changes
    )


def _more_room(everything: FitResult, *, with_shorter: bool) -> tuple[Suggestion, ...]:
    """Return the changes for these requests: not for fewer, nor for shorter ones unless one exceeds
    the cache.
    """
    if everything.verdict == "fits":
        return ()
    narrower = narrower_caches(everything)[:1]
    known = {change.flag for change in narrower}
    left_out = ("--batch",) if with_shorter else ("--batch", "--context")
    changes = [*narrower]
    for change in suggestions(everything):
        if not change.flag.startswith(left_out) and change.flag not in known:
            changes.append(change)
    return tuple(changes)
