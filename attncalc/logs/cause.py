"""Why an engine did not start, or why its requests wait, as its log alone says it, without the
sizes of a model.
"""

from collections.abc import Callable
from typing import Any, Literal

from ..engines import find_engine
from ..hardware import Gpu
from ..model import plural
from ..records import NamedTuple
from ..serving.suggestions import Suggestion
from ..units import BYTES, GIB, count, human, truncate
from . import find_reader
from .messages import LONGEST
from .startup_log import Advice, Load, LogRefusal, StartupLog, least, typed_options

# Bytes of other processes from which they are the cause: a desktop uses less.
_MOST_TAKEN = GIB
# The memory of a GB10 or AGX Thor only. Dropping its page cache gave a GB10 112.9 GiB instead of
# 101.5.
_UNIFIED = (119 * GIB, 124 * GIB)
# What is wanted over what is free, from which no option helps.
_FAR_TOO_LARGE = 2

# Why an engine did not start, or why requests wait.
CAUSES = {
    "kv_too_small": "one request needs more than is left for the cache",
    "nothing_left": "weights and runtime memory leave nothing for the cache",
    "weights_too_large": "the weights did not fit in the GPU's memory",
    "memory_taken": "other processes use the memory",
    "cache_too_large": "the cache is larger than what is free, or leaves too little for what is "
    "allocated after it",
    "compute_too_large": "activations, CUDA graphs or the compute buffer did not fit beside the "
    "weights and the cache",
    "host_memory": "an allocation in host memory failed, or the process was killed",
    "out_of_memory": "an allocation failed, and neither log nor estimate say more",
    "too_many_sequences": "the cache has fewer blocks of recurrent states than a step may have "
    "sequences",
    "context_too_long": "the context is longer than the model's",
    "request_too_long": "the server runs, and a request was longer than its context",
    "request_refused": "the server runs, and refused a request for another reason than its length",
    "option_value": "two options contradict each other, or one has a value that the engine does "
    "not take",
    "indivisible": "something cannot be shared evenly by that number of GPUs",
    "too_few_gpus": "there are fewer GPUs than the options ask for",
    "gpu_unsupported": "the GPU or the build lacks what a dtype or a kernel needs",
    "cache_full": "the server runs, and its cache has no room for more requests",
    "requests_limited": "the server runs, and requests wait although its cache is not full",
    "other_model": "log and model contradict each other, so no change is computed",
    "other_error": "the start ended with a message that is not about memory",
    "log_ends": "the log ends before the start does",
    "no_failure": "the server runs, or the engine goes on after the message",
}


_OTHER_GPU = Advice("another GPU, if there is one that is idle", "CUDA_VISIBLE_DEVICES=N")
_OF_RANKS = Advice("if they are ranks of one run: each needs a GPU of its own, by its LOCAL_RANK")


class Stage(NamedTuple):
    """What an engine allocates on its way."""

    failed: str  # that it failed
    cause: str  # of CAUSES
    # what is settled before: that weights are loaded, the cache's size
    after: Literal["", "weights", "cache"] = ""
    at: str = ""  # when that is, for a log that ends within it


# By `LogRefusal.where`.
STAGES = {
    "weights": Stage(
        "The weights did not fit", "weights_too_large", at=", while it loaded the weights"
    ),
    "fit": Stage("Weights, cache and buffers did not fit", "out_of_memory"),
    "guardrail": Stage(
        "LM Studio did not load it: by its estimate the free memory is too small", "out_of_memory"
    ),
    "cache": Stage("The cache did not fit", "cache_too_large", "weights"),
    "encoder": Stage(
        "The images of the profile did not fit",
        "compute_too_large",
        "weights",
        ", while it profiled images",
    ),
    "profile": Stage(
        "The activations of a full step did not fit",
        "compute_too_large",
        "weights",
        ", while it measured a full step",
    ),
    "graph_profile": Stage(
        "The CUDA graphs of the memory profile, or the small cache for them, did not fit",
        "compute_too_large",
        "weights",
        ", while it measured CUDA graphs",
    ),
    "compute": Stage("The compute buffer did not fit", "compute_too_large", "weights"),
    "pool": Stage(
        "The pool of the cache did not fit",
        "cache_too_large",
        "cache",
        ", while it allocated the cache",
    ),
    "sampler": Stage(
        "The cache left too little for the warm-up of the sampler",
        "cache_too_large",
        "cache",
        ", while it warmed up the sampler",
    ),
    "graphs": Stage(
        "The cache left too little for the CUDA graphs",
        "cache_too_large",
        "cache",
        ", while it captured CUDA graphs",
    ),
    "rest": Stage("The cache left too little for the rest", "cache_too_large", "cache"),
    "serving": Stage(
        "The server ran, and a step ran out of memory",
        "cache_too_large",
        "cache",
        ", while it ran requests",
    ),
    "requests": Stage(
        "The server ran, and a batch got no request slots", "requests_limited", "cache"
    ),
    "tokens": Stage(
        "The server ran, and a batch got no tokens of its cache", "cache_full", "cache"
    ),
    "host": Stage("Host memory is too small, not the GPU's", "host_memory"),
    "host_cache": Stage("The cache did not fit in host memory", "host_memory"),
    "killed": Stage(
        "The process was killed, most often since host memory is full, not the GPU's", "host_memory"
    ),
    "other": Stage("The message is not known to be about memory", "other_error"),
    "error": Stage("The log ends within an error, before its message", "log_ends"),
    "fitting": Stage(
        "The log ends while llama.cpp chooses layers and a context that fit", "log_ends"
    ),
    "loading": Stage("The log ends while weights are loaded", "log_ends"),
    "buffer": Stage("Weights, KV cache or compute buffer did not fit", "out_of_memory"),
    "": Stage("An allocation on the GPU failed", "out_of_memory"),
}
_WITHOUT_A_MESSAGE = (
    Advice("give all lines, up to the last: the message, or the cache's size, is in the others"),
    Advice(
        "if nothing follows, the process was killed or still runs: 'dmesg -T' names killed "
        "processes"
    ),
)


class Diagnosis(NamedTuple):
    message: str  # the engine's own
    cause: str  # of CAUSES
    reason: str  # the cause as a sentence with its numbers
    # bytes per GPU that were needed; None if the log and the estimate do not say it
    needed: int | None = None
    # bytes per GPU for that; below 0 if weights and runtime memory were too large
    available: int | None = None
    # the changes with which it would start, the cheapest first
    changes: tuple[Suggestion, ...] = ()
    notes: tuple[str, ...] = ()  # what the diagnosis rests on, one sentence each
    tried: str = ""  # which changes were computed, in words; "" for none
    advice: tuple[Advice, ...] = ()  # what the log alone suggests, if no changes were computed

    @property
    def missing(self) -> int | None:
        """Bytes per GPU that are missing."""
        if self.needed is None or self.available is None:
            return None
        return max(0, self.needed - self.available)


def diagnose_alone(log: StartupLog, gpu: Gpu | None = None) -> Diagnosis:
    """Return why the engine did not start by its log alone.

    The log has a refusal. The GPU is given if it is known; a log often has only its name.
    """
    refusal = log.refusal
    assert refusal is not None
    if refusal.cause:
        return Diagnosis(refusal.line, refusal.cause, refusal.reason, advice=refusal.advice)
    is_taken = refusal.use.taken > max(_MOST_TAKEN, refusal.use.together)
    find = _memory_taken if is_taken else _BY_KIND.get(refusal.kind, _failed_allocation)
    return find(log, refusal, gpu)


def size(number: int) -> str:
    return human(number, BYTES)


def missing_memory(needs: str, needed: int, room: int) -> str:
    """Return that `needed` bytes are more than `room`, as a sentence; `needs` is its subject and
    verb.
    """
    return (
        f"{needs} {size(needed)}, {size(room)} are left for the cache: "
        f"{size(max(0, needed - room))} are missing."
    )


def _advised(
    log: StartupLog,
    cause: str,
    reason: str,
    needed: int | None = None,
    available: int | None = None,
) -> Diagnosis:
    """Return the diagnosis with the advice of the engine."""
    refusal = log.refusal
    assert refusal is not None
    advice = refusal.advice or find_reader(log.engine).log_advice(log)
    advice = tuple(each for each in advice if not _is_given(each, log))
    return Diagnosis(refusal.line, cause, reason, needed, available, advice=advice)


def _is_given(advice: Advice, log: StartupLog) -> bool:
    """Return whether the command that was pasted with a log has the options already, or smaller
    numbers of them.
    """
    advised = typed_options(advice.option)
    names: dict[str, Any] = {}
    for known in find_engine(log.engine).commands:
        names |= known.names
    typed = {names.get(name, name): value for name, value in log.typed.items()}
    for name, value in advised.items():
        given = typed.get(names.get(name, name), "no")
        are_sizes = value.isdecimal() and given.isdecimal() and name not in ("-tp", "--tp")
        is_smaller = are_sizes and int(given) <= int(value)
        if given != value and not is_smaller:
            return False
    return bool(advised)


def _too_small(log: StartupLog, _refusal: LogRefusal, _gpu: Gpu | None) -> Diagnosis:
    context = log.settings.get("context")
    tokens = "the whole context"
    if context:
        tokens = f"{count(int(context))} tokens"
    needed = log.logged.get("kv_bytes_per_sequence")
    available = least(log.available)
    held = log.logged.get("kv_tokens")
    if needed and available:
        reason = missing_memory(f"one request of {tokens} needs", needed.bytes, available.bytes)
        return _advised(log, "kv_too_small", reason, needed.bytes, available.bytes)
    if held:
        reason = f"one request may have {tokens}, and the cache holds {count(int(held.text))}."
    else:
        reason = f"one request may have {tokens}, which is more than the cache holds."
    return _advised(log, "kv_too_small", reason)


def _unfinished(log: StartupLog, refusal: LogRefusal, _gpu: Gpu | None) -> Diagnosis:
    """Return where the log ends, and the memory that it has for the cache until then."""
    stage = STAGES[refusal.where]
    left = least(log.available)
    if refusal.where == "other":
        reason = f"{stage.failed}: {truncate(refusal.line, LONGEST)}"
        return Diagnosis(refusal.line, stage.cause, reason)
    reason = "The log ends before the cache has its size, without an error"
    if refusal.where:
        reason = stage.failed
    reason += STAGES[refusal.stage].at
    if refusal.tried and refusal.free:
        reason += f", {refusal.tried.text} of {refusal.free.text} files"
    if refusal.needed and refusal.limit:
        needed = size(refusal.needed.bytes)
        reason += f": all of it needs {needed}, and {size(refusal.limit.bytes)} are free"
    elif left:
        reason += f": {size(left.bytes)} were left for the cache"
    advice = [*_WITHOUT_A_MESSAGE]
    if refusal.stage:
        failed = refusal._replace(kind="out_of_memory", where=refusal.stage)
        found = find_reader(log.engine).log_advice(log._replace(refusal=failed))
        advice += [each._replace(change=f"if memory is short, {each.change}") for each in found[:2]]
    available = left.bytes if left else None
    return Diagnosis(
        refusal.line, "log_ends", f"{reason}.", available=available, advice=tuple(advice)
    )


def _overloaded(log: StartupLog, _refusal: LogRefusal, _gpu: Gpu | None) -> Diagnosis:
    load = log.load
    assert load is not None
    reason = requests_in_words(load)
    if load.is_full:
        if load.running:
            reason += f": it holds {plural(load.fitting, 'such request')}"
        if load.preempted:
            reason += f"; {preemptions_in_words(load, log.engine)}"
        if not (load.waiting or load.preempted):
            reason += "; when they grow, one is stopped and computed again"
        return _advised(log, "cache_full", f"{reason}.")
    if not load.waiting:
        return _advised(log, "no_failure", f"{reason}: no request waits, and the cache has room.")
    why = "the limit of running requests is reached, or prompts are still computed"
    return _advised(log, "requests_limited", f"{reason}, so it is not full: {why}.")


def requests_in_words(load: Load) -> str:
    """Return how many requests are running and waiting, and how full the cache is, without a full
    stop.
    """
    used = f"{load.usage:.1%} of the cache is used"
    if not (load.running or load.waiting):
        return used
    running = "1 request is running"
    if load.running != 1:
        running = f"{count(load.running)} requests are running"
    return f"{running}, {count(load.waiting)} waiting, {used}"


def preemptions_in_words(load: Load, engine: str) -> str:
    """Return that running requests were preempted, in the engine's own word, without a full stop;
    '' if none were.
    """
    if not load.preempted:
        return ""
    word = find_reader(engine).PREEMPTED
    return f"running requests were {word}: they lost their cache and are computed again"


def _nothing_left(log: StartupLog, _refusal: LogRefusal, _gpu: Gpu | None) -> Diagnosis:
    left = least(log.available)
    share = log.settings.get("gpu_memory_utilization")
    room = find_reader(log.engine).logged_room(log, left.bytes if left else None, share)
    weights = log.budget.get("weights")
    total = log.budget.get("gpu_memory")
    parts = []
    if weights and weights.bytes:
        parts.append(f"Weights of {size(weights.bytes)}")
    for name, label in (("activations", "activations"), ("cuda_graphs", "CUDA graphs")):
        part = log.budget.get(name)
        if part and part.number >= 1:
            parts.append(f"{label} of {size(part.bytes)}")
    subject = "Weights and runtime memory"
    if parts:
        subject = f"{' and '.join(parts)}, with the rest of the runtime memory,"
    of_share = "the engine's share"
    if share and total:
        of_share += f" ({share} of {size(total.bytes)})"
    elif share:
        of_share += f" ({share})"
    reason = f"{subject} leave nothing of {of_share} for the cache."
    if room is not None and room < 0:
        reason = f"{subject} are {size(-room)} larger than {of_share}."
    return _advised(log, "nothing_left", reason, None, room)


def _memory_taken(log: StartupLog, refusal: LogRefusal, gpu: Gpu | None) -> Diagnosis:
    total = log.budget.get("gpu_memory")
    if (gpu and gpu.shares_with_host) or (total and _UNIFIED[0] < total.bytes < _UNIFIED[1]):
        advice = [
            Advice(
                "drop the page cache, and end other programs of the host",
                "sudo sysctl vm.drop_caches=3",
            )
        ]
    else:
        advice = [Advice("end the other processes: nvidia-smi lists them"), _OTHER_GPU]
    if refusal.use.processes > 2:
        advice.append(_OF_RANKS)
    engine = find_engine(log.engine)
    share = free_share(log)
    if refusal.kind == "occupied":
        advice += find_reader(log.engine).log_advice(log)
    if share and not (log.is_assumed or engine.splits_by_layer):
        words = f"the share that is free, {size(free_memory(log) or 0)}, if the model fits in it"
        advice.append(Advice(words, f"{engine.share_option} {share}"))
    reason = f"{taken_by_others(log, refusal)}."
    return Diagnosis(
        refusal.line,
        "memory_taken",
        reason,
        None,
        free_memory(log),
        advice=(*advice, *refusal.advice),
    )


def _failed_allocation(log: StartupLog, refusal: LogRefusal, gpu: Gpu | None) -> Diagnosis:
    """Return what the log says of an allocation that failed: what it was for, its size, and what
    was free.
    """
    stage = STAGES[refusal.where]
    if refusal.needed and refusal.limit:
        needed = refusal.needed.bytes
        limit = refusal.limit.bytes
        sizes = f"{size(needed)} are allocated, and Metal recommends at most {size(limit)}"
        return _advised(log, stage.cause, f"{stage.failed}: {sizes}.", needed, limit)
    if refusal.where in ("requests", "tokens"):
        return _failed_batch(log, refusal)
    found = _failed_buffer(log, refusal, gpu)
    advice = (*found.advice, *_of_pieces(refusal))
    host: tuple[Advice, ...] = ()
    if stage.cause == "host_memory":
        host = _for_the_host(log, gpu)
    elif refusal.use.together:
        host = (_OF_RANKS,)
    tried = refusal.tried
    free = refusal.free
    is_of_file = refusal.where in ("host", "weights")
    if is_of_file and tried and free and tried.bytes > _FAR_TOO_LARGE * free.bytes:
        most = size(int(0.8 * free.bytes))  # a fifth for the cache and the buffers
        smaller = Advice(f"a smaller model, or fewer bits: a file of at most {most}")
        return found._replace(advice=(smaller, *host))
    # a shorter context costs less than memory
    if refusal.where == "host_cache" or refusal.use.together:
        return found._replace(advice=(*advice, *host))
    return found._replace(advice=(*host, *advice))


def _failed_buffer(log: StartupLog, refusal: LogRefusal, gpu: Gpu | None) -> Diagnosis:
    """Return what was allocated, with its size and what was free as far as the log has them."""
    stage = STAGES[refusal.where]
    reason = stage.failed
    sequences = log.settings.get("max_num_seqs")
    if refusal.where == "sampler" and sequences:
        reason += f" with {count(int(sequences))} requests"
    before = log.budget.get("free_memory")
    memory = None
    if before:
        memory = before.bytes
    elif gpu:
        memory = gpu.memory
    words = _sizes_of(log, refusal)
    if not (refusal.free or refusal.one_buffer) and stage.cause != "host_memory":
        words += _room(log, refusal, memory, " free" if before else "")
    if words:
        reason += f": {', '.join(words)}"
    tried = refusal.tried
    available = None
    if refusal.free:
        available = refusal.free.bytes
    elif tried and memory and tried.bytes > memory:
        available = memory
    return _advised(log, stage.cause, f"{reason}.", tried.bytes if tried else None, available)


def _failed_batch(log: StartupLog, refusal: LogRefusal) -> Diagnosis:
    """Return that a batch got no request slots, or no tokens."""
    stage = STAGES[refusal.where]
    reason = stage.failed
    if refusal.tried:
        asked, there = refusal.counts
        unit = "tokens"
        if refusal.where == "requests":
            unit = "request slots"
        were = "was" if there == 1 else "were"
        reason += f": {count(asked)} {unit} were wanted, {count(there)} {were} free"
    if log.load:
        reason += f"; {requests_in_words(log.load)}"
    return _advised(log, stage.cause, f"{reason}.")


def _sizes_of(log: StartupLog, refusal: LogRefusal) -> list[str]:
    """Return what was wanted, what was free, and what the processes of the server use, as the
    message has them.
    """
    tried = refusal.tried
    free = refusal.free
    total = log.budget.get("gpu_memory")
    words = []
    if tried and tried.unit == 10**9:
        words.append(f"{tried.text} GB ({size(tried.bytes)}) were wanted")
    elif tried and refusal.where == "killed":
        words.append(f"{size(tried.bytes)} were used")
    elif tried:
        words.append(f"{size(tried.bytes)} were wanted")
    if refusal.one_buffer:
        words.append("more than the device allows for one buffer")
    elif free:
        were_free = f"{size(free.bytes)} were free"
        if total:
            were_free = f"{size(free.bytes)} of {size(total.bytes)} were free"
        if tried and free.bytes >= tried.bytes:
            were_free += ", in smaller pieces"
        words.append(were_free)
    if refusal.use.together:
        words.append(
            "and processes that were started together, as ranks of a server, use "
            f"{size(refusal.use.together)}"
        )
    return words


def _of_pieces(refusal: LogRefusal) -> tuple[Advice, ...]:
    """Return what may give an allocation the memory that PyTorch holds in pieces, if that is as
    much as it lacked.
    """
    tried = refusal.tried
    free = refusal.free
    unused = refusal.unused
    if not (tried and free and unused and free.bytes < tried.bytes <= free.bytes + unused.bytes):
        return ()
    words = f"may free the {size(unused.bytes)} that PyTorch holds in pieces"
    return (Advice(words, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),)


def _room(log: StartupLog, refusal: LogRefusal, memory: int | None, of_memory: str) -> list[str]:
    """Return what the GPU held when an allocation failed, and its memory: ' free' if it is what was
    free before.
    """
    buffers = {"weights": log.budget.get("model_buffer"), "cache": log.logged.get("kv_size")}
    if log.devices > 1:
        del buffers["cache"]
    if refusal.where == "buffer":  # it may be any of them
        buffers = {}
    buffers.pop(refusal.where, None)
    held = " and ".join(f"{size(it.bytes)} of {name}" for name, it in buffers.items() if it)
    words = []
    if held:
        words.append(f"{held} are there")
    tried = refusal.tried
    if memory and (tried or of_memory):
        has_memory = f"the GPU has {size(memory)}{of_memory}"
        if of_memory and not held and tried and tried.bytes < memory:
            has_memory = f"although {has_memory}"
        words.append(has_memory)
    elif refusal.limit:
        words.append(f"Metal recommends at most {size(refusal.limit.bytes)}")
    return words


def _for_the_host(log: StartupLog, gpu: Gpu | None) -> tuple[Advice, ...]:
    """Return more host memory, and a smaller share of a GPU that has the host's."""
    engine = find_engine(log.engine)
    share = log.settings.get("gpu_memory_utilization")
    more = Advice("more host memory or swap, or a higher limit of the container or of WSL")
    if engine.splits_by_layer or (gpu and not gpu.shares_with_host):
        return (more,)
    option = ""  # without the share of the log, the default is not known
    if share:
        option = f"{engine.share_option} {float(share) * 0.9:.2f}"
    return (more, Advice("a smaller share, if the GPU's memory is the host's", option))


# By `LogRefusal.kind`; all others are allocations that failed.
_BY_KIND: dict[str, Callable[[StartupLog, LogRefusal, Gpu | None], Diagnosis]] = {
    "too_small": _too_small,
    "no_memory": _nothing_left,
    "occupied": _memory_taken,
    "overloaded": _overloaded,
    "unfinished": _unfinished,
}


# What other processes leave


def free_memory(log: StartupLog) -> int | None:
    """Return the bytes of the GPU that other processes leave; None if the log does not have
    them.
    """
    free = log.budget.get("free_memory")
    total = log.budget.get("gpu_memory")
    refusal = log.refusal
    if refusal and refusal.use.taken:
        if total:
            return total.bytes - refusal.use.taken
        return None
    if refusal and refusal.kind == "occupied" and refusal.free:
        return refusal.free.bytes
    if free:
        return free.bytes
    return None


def taken_by_others(log: StartupLog, refusal: LogRefusal) -> str:
    """Return what other processes use, without a full stop."""
    free = free_memory(log)
    total = log.budget.get("gpu_memory")
    share = log.settings.get("gpu_memory_utilization")
    if refusal.kind == "occupied" and refusal.free and refusal.tried:
        least_free = size(refusal.free.bytes)
        more = size(refusal.tried.bytes)
        if refusal.where:
            return (
                f"Other processes released memory during the start: {least_free} were free, then "
                f"{more}"
            )
        return (
            f"The free memory of the GPUs is unequal: {least_free} are free on one, {more} on "
            "another"
        )
    if free is None or total is None or free >= total.bytes:
        return "Other processes use the memory of the GPU"
    used = f"{size(total.bytes - free)} of the GPU's {size(total.bytes)}"
    if refusal.tried and refusal.free:
        if not refusal.use.own:
            used = f"at least {used}"
        wanted = size(refusal.tried.bytes)
        left = size(refusal.free.bytes)
        return f"{wanted} were wanted, {left} were free: other processes use {used}"
    reason = f"Other processes use {used}: {size(free)} are free"
    if share:
        wanted = size(int(float(share) * total.bytes))
        reason += f", and the engine's share ({share}) is {wanted}"
    return reason


def free_share(log: StartupLog) -> str:
    """Return the largest share that is free in hundredths; '' if none is, or it is unknown."""
    free = free_memory(log)
    total = log.budget.get("gpu_memory")
    if not free or total is None or not total.bytes:
        return ""
    hundredths = 100 * free // total.bytes
    if 0 < hundredths < 100:
        return f"0.{hundredths:02d}"
    return ""
