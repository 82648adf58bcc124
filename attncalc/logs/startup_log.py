"""What a start-up log of an engine contains: its arguments, the figures that it printed, and why it
did not start.

Each engine's `log.py` reads it, with the functions of this file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from ..check import Check
from ..records import NamedTuple
from ..units import BYTES, GIB, TOKENS, hyphens, usual_dtype
from .lines import lines_of

MIB = 2**20
# How often a line is read at its first and at its last places in a long log, if only its digits
# differ.
REPEATED = 100
_TABLE = lines_of("any_engine")
_LINES = _TABLE["lines"]
READY = _LINES["ready"]
OUT_OF_MEMORY = _LINES["out_of_memory"]
# Characters that a line of the load has less than.
_LINE_OF_LOAD = 1000
# The usage from which the cache limits the requests: engines keep a few percent for the next
# tokens.
_FULL = 0.95
# Characters of relevant lines that are searched: a start-up has some tens of thousands.
_MOST = 1 << 20
# The figures of the caches of SGLang and llama.cpp.
SIZES = {
    "state_slots": "slots of states",
    "conv_state_size": "states of convolutions",
    "ssm_state_size": "recurrent states",
    "kv_tokens": "tokens",
    "full_kv_tokens": "tokens of the full pool",
    "swa_kv_tokens": "tokens of the window pool",
    "kv_size": "KV cache",
    "all_kv_size": "KV cache of all layers",
    "k_size": "K",
    "v_size": "V",
    "full_k_size": "K of the full pool",
    "full_v_size": "V of the full pool",
    "swa_k_size": "K of the window pool",
    "swa_v_size": "V of the window pool",
    "swa_kv_size": "KV cache of sliding windows",
    "csa_kv_size": "pools of 4",
    "hca_kv_size": "pools of 128",
    "indexer_kv_size": "keys of the indexer",
    "draft_kv_size": "KV cache of the drafter",
    "csa_state_size": "tokens to pool by 4",
    "hca_state_size": "tokens to pool by 128",
    "lid_state_size": "tokens to pool of the indexer",
    "recurrent_size": "recurrent states",
    "n_ctx": "n_ctx",
}


class Printed(NamedTuple):
    """A figure as the log prints it."""

    text: str  # its digits, whose number shows how it was rounded
    line: str  # the part of the line that has it
    unit: int = 1  # bytes of the unit that it is printed in; 1 for bytes and for counts
    margin: int | None = None  # bytes by which it may differ, if that is not half of its last digit

    @property
    def number(self) -> Fraction:
        """The figure in its own unit."""
        return Fraction(self.text)

    @property
    def bytes(self) -> int:
        """The size in bytes, rounded down."""
        return int(self.number * self.unit)

    @property
    def half(self) -> int:
        """Bytes by which the size may differ from what is printed: half of the last digit, rounded
        up.

        At most 0.005 GiB, because "4.8" is 4.80 without its zero. 5.625 GiB may be printed as 5.62
        or as 5.63.
        """
        if self.margin is not None:
            return self.margin
        if self.unit == 1:
            return 0
        digits = max(2, len(self.text.partition(".")[2]))
        return int(Fraction(self.unit, 2 * 10**digits)) + 1


# What the message of an engine says.
REFUSALS = {
    "too_small": "one request needs more than the memory for the cache",
    "no_memory": "there is no memory for the cache",
    "out_of_memory": "an allocation failed, or the process was killed",
    "occupied": "other processes hold the memory",
    "too_many_sequences": "the cache has fewer blocks of recurrent states than sequences",
    "too_long": "the context is longer than the model's",
    "stated": "it states its cause itself",
    "overloaded": "the log is that of a running server, without its start",
    "unfinished": "the log ends before the start does",
}


class InUse(NamedTuple):
    """What processes use of the GPU, as PyTorch lists them: bytes, and the number of processes; 0
    if it does not.
    """

    own: int = 0  # of the engine's process
    taken: int = 0  # of the others, or at least, without `own`
    processes: int = 0
    # of those that were started together, by their ids: a server's ranks and helpers
    together: int = 0


class LogRefusal(NamedTuple):
    """Why the engine did not start, as its log says it."""

    kind: str  # of REFUSALS
    line: str  # the message
    # The size of the allocation that failed, and what was free then. If other processes hold the
    # memory: what is free on another GPU, or after they released some. Numbers instead of bytes:
    # sequences, tokens of a context, and files.
    tried: Printed | None = None
    free: Printed | None = None
    # What was allocated on a GPU: 'weights', 'profile' (the activations of a full step), 'encoder'
    # (those of images in it), 'cache' ('pool' if its size follows from the engine's share),
    # 'compute' (llama.cpp's buffer), 'fit' (all of them, which llama.cpp only projects, or LM
    # Studio: 'guardrail'; 'fitting' where the log ends then), 'sampler', 'graphs', 'rest' for
    # anything else after the cache's size was decided, 'serving' for anything after the start,
    # 'requests' for a batch's request slots, 'tokens' for its tokens; 'host' for anything in host
    # memory, 'host_cache' for the cache in it, 'killed' if the kernel or somebody killed the
    # process, '' if the log does not say it.
    # Where a log ends: 'loading' the weights, 'error' within a message, 'other' after a message
    # that is not about memory
    where: str = ""
    use: InUse = InUse()  # of the GPU by processes, as the message has it
    unused: Printed | None = None  # what PyTorch has reserved and does not use, in pieces
    # Of Metal: what was allocated, and the most that it recommends
    needed: Printed | None = None
    limit: Printed | None = None
    stage: str = ""  # of `where`: in which a log ends, within an error
    one_buffer: bool = False  # whether the device has the memory, but not in one buffer
    # Of a message that states its cause (`messages.py`): the cause, of serving's CAUSES, as a
    # sentence, and what to change; the tokens of a request that was longer than the server's
    # context, and those of one that holds it, or 0
    cause: str = ""
    reason: str = ""
    advice: tuple[Advice, ...] = ()
    program: str = ""  # that printed it, if that is not the engine alone
    tokens: int = 0
    context: int = 0

    @property
    def counts(self) -> tuple[int, int]:
        """What was asked for and what there is, in sequences or tokens; 0 for none."""
        asked = int(self.tried.number) if self.tried else 0
        there = int(self.free.number) if self.free else 0
        return asked, there


class Advice(NamedTuple):
    """A change that a log alone suggests, without the sizes of the model."""

    change: str  # in words
    option: str = ""  # what to type; "" for a change of what surrounds the engine
    known: bool = False  # whether the log's own figures show that it starts with this change


class Load(NamedTuple):
    """What a running server prints about its load."""

    running: int  # requests that are computed; 0 if only the usage is known
    waiting: int  # requests that wait
    usage: float  # the part of the cache that the running ones use, from 0 to 1
    # lines that say that a running request lost its cache and will be computed again
    preempted: int

    @property
    def is_full(self) -> bool:
        """Whether the cache limits the requests: it has no room for one more of them."""
        one_more = self.usage + self.usage / max(1, self.running)
        return self.usage >= _FULL or one_more > 1 or self.preempted > 0

    @property
    def fitting(self) -> int:
        """How many such requests the cache holds."""
        if self.usage:
            return max(1, int(self.running / self.usage))
        return self.running


def is_about_load(line: str) -> bool:
    """Return whether a line can be about running, preempted or retracted requests: a quick look
    before the patterns.
    """
    return "unning" in line or "reempt" in line or "etract" in line


def busiest(
    lines: Iterable[str],
    start: re.Pattern[str],
    pattern: re.Pattern[str],
    preemption: re.Pattern[str],
) -> Load | None:
    """Return the load with most requests since the last start that served any; None if no line says
    that requests run.

    Args:
        start: matches the lines with which a start begins.
        pattern: matches a line of the load, with the groups `running`, `waiting`, and `percent` or
            `usage`.
        preemption: matches a line that says that requests were preempted.
    """
    load = None
    preempted = 0
    restarted = False
    for line in lines:
        restarted = restarted or start.search(line) is not None
        if not is_about_load(line):
            continue
        preempted += preemption.search(line) is not None
        for match in pattern.finditer(line):  # a paste may have lost the breaks between lines
            running = int(match["running"])
            waiting = int(match["waiting"] or 0)
            found = match.groupdict()
            if found.get("usage"):
                usage = float(found["usage"])
            else:
                usage = float(match["percent"]) / 100
            if not (running or waiting or usage):
                continue
            if restarted:
                load = None
                preempted = 0
                restarted = False
            if load is None or running + waiting >= load.running + load.waiting:
                load = Load(running, waiting, min(1.0, usage), 0)
    return load and load._replace(preempted=preempted)


def without_load(lines: Iterable[str], load: re.Pattern[str]) -> Iterable[str]:
    """Return the lines but those of the load and of HTTP requests, which are most of a server's
    log.

    A longer line may be a log whose line breaks a paste has lost.
    """
    for line in lines:
        is_short = len(line) < _LINE_OF_LOAD
        is_of_load = is_short and is_about_load(line) and load.search(line)
        if not (is_of_load or (is_short and _LINES["http"].search(line))):
            yield line


class Program(NamedTuple):
    """A program that contains an engine, and has options of its own."""

    title: str  # as people write it: 'Ollama'
    names: str  # how it calls the engine's options, as a sentence
    lacks: tuple[str, ...]  # the engine's options that it does not have
    options: Mapping[str, str]  # {what the engine's advice has: what is typed instead}


class StartupLog(NamedTuple):
    """The contents of a start-up log."""

    engine: str  # the engine that wrote it, by attncalc's name
    version: str | None  # its version, "v0" for vLLM's old engine; None if the log does not have it
    model: str | None  # the model as it was given to the engine; None if the log does not have it
    settings: dict[str, str]  # settings as text, by the names of `EngineArgs` and `attncalc fit`
    flags: frozenset[str] = frozenset()  # the flags that are set, by the names of `EngineArgs`
    available: tuple[Printed, ...] = ()  # the memory for the cache that each rank printed
    # The figures of the cache by name: they follow exactly from the memory and the settings
    logged: Mapping[str, Printed] = {}
    # what was printed of everything else in the GPU's memory, by name
    budget: Mapping[str, Printed] = {}
    refusal: LogRefusal | None = None  # why the engine did not start; None if it did
    path: str | None = None  # the file of the model, if the log has it besides its name
    gpu: str | None = None  # the GPU's name as printed
    devices: int = 0  # the number of GPUs that the log lists, or 0
    # how often the engine started in this log; everything else is from its last start
    starts: int = 1
    # without a version: those that its lines allow, the newest first; () for all
    releases: tuple[str, ...] = ()
    load: Load | None = None  # the load of the server when most requests ran and waited
    is_assumed: bool = False  # whether no line shows that this engine wrote the log
    # of the model's weights by its name, as 'fp8' of Qwen3-32B-FP8; None otherwise
    checkpoint_dtype: str | None = None
    # of the model as its file names it; None if the log does not have it
    architecture: str | None = None
    # of the model's file: llama.cpp's n_ctx_train and n_layer
    hyperparameters: Mapping[str, int] = {}
    is_dense: bool = False  # whether the model is known, and no mixture of experts
    within: Program | None = None  # the program that contains the engine and started it
    typed: Mapping[str, str] = {}  # the options of a pasted command with their values

    @property
    def served(self) -> str | None:
        """What the engine loaded, to start it again: a path or a repository; None if the log does
        not have it.
        """
        if self.engine == "llamacpp":
            return self.path
        return self.path or self.model


class LogMemory(NamedTuple):
    """The memory for the cache that a log has, in bytes."""

    # the memory as printed; negative if weights and reserve are larger than the engine's share
    printed: int
    source: str  # where the memory is from: the line of the log
    half: int = 0  # by how much it may differ, as its rounding leaves it
    # the line that the log lacks, whose part of the memory is predicted; "" for none
    missing: str = ""


# The memory for the cache, None if the engine did not get so far; and each figure beside the
# predicted one.
LogChecks = tuple[LogMemory | None, tuple[Check, ...]]


# Patterns, and the figures that they find


def last_start(
    lines: Iterable[str], start: re.Pattern[str], outcome: re.Pattern[str]
) -> tuple[str, int]:
    """Return the lines of the last start with an outcome, joined by blanks, and how many starts had
    one.

    Reports in Markdown often print the arguments last: such lines after the last outcome belong to
    it. Readers take the first mention of a setting, so what a further start was given changes
    nothing. `start` matches the first lines of a start; `outcome` the last: the size of its cache,
    or why it has none.
    """
    starts: list[list[str]] = [[]]
    ended = False
    for line in lines:
        if ended and start.search(line):
            starts.append([])
            ended = False
        starts[-1].append(line)
        ended = ended or outcome.search(line) is not None
    complete = [lines for lines in starts if any(map(outcome.search, lines))]
    found = complete[-1] if complete else starts[-1]
    if starts[-1] is not found:
        found = [*found, *filter(start.search, starts[-1])]
    text = " ".join(found)
    if len(text) > _MOST:
        text = f"{text[: _MOST // 2]} {text[-_MOST // 2 :]}"
    return text, max(1, len(complete))


def typed_options(text: str) -> dict[str, str]:
    """Return the options in a text with their values, '' for none; with hyphens."""
    found = re.findall(r"(?<![\w-])(--?[a-z][\w-]{0,80})(?:[ =]['\"]?([\w.]{1,80}))?", text)
    return {hyphens(name): value for name, value in found}


def first(pattern: re.Pattern[str], text: str) -> str | None:
    """Return the first group that matched, of the first match; None without a match."""
    match = pattern.search(text)
    if match:
        return next((group for group in match.groups() if group), None)
    return None


def printed(pattern: re.Pattern[str], text: str, unit: int = 1) -> list[Printed]:
    """Return the figure of every match: its first group that matched, without separators of
    thousands.
    """
    return [
        Printed(
            next(group for group in match.groups() if group).replace(",", "").replace("_", ""),
            match[0],
            unit,
        )
        for match in pattern.finditer(text)
    ]


def read_settings(patterns: Mapping[str, re.Pattern[str]], text: str) -> dict[str, str]:
    """Return the first mention of every setting that the log has."""
    found = {name: first(pattern, text) for name, pattern in patterns.items()}
    return {name: value for name, value in found.items() if value is not None}


def read_weights_dtype(method: re.Pattern[str], text: str) -> dict[str, str]:
    """Return the setting that a quantization method decides."""
    found = usual_dtype(first(method, text) or "")
    if found:
        return {"weights_dtype": found}
    return {}


def read_flags(patterns: Mapping[str, re.Pattern[str]], text: str) -> frozenset[str]:
    return frozenset(name for name, pattern in patterns.items() if pattern.search(text))


def read_budget(patterns: Mapping[str, re.Pattern[str]], text: str) -> dict[str, Printed]:
    """Return the sizes in GiB: of ranks that differ, the least memory of a GPU, and the most of
    what is in it.
    """
    sizes = {name: printed(pattern, text, GIB) for name, pattern in patterns.items()}
    found = {}
    for name, printed_sizes in sizes.items():
        if printed_sizes and name.endswith("memory"):
            found[name] = min(printed_sizes, key=lambda figure: figure.number)
        elif printed_sizes:
            found[name] = max(printed_sizes, key=lambda figure: figure.number)
    return found


def least(figures: Iterable[Printed]) -> Printed | None:
    """Return the smallest figure: if ranks print different ones, the least applies to all. None
    without any.
    """
    return min(figures, key=lambda figure: figure.number, default=None)


# Process ids that differ by less are of processes that were started together.
_NEAR = 300
# Bytes that CUDA, its libraries and NCCL take at most of a GPU for one process.
_OF_CONTEXTS = 2 * GIB
_UNITS = {"G": GIB, "M": MIB, "K": 1024, None: 1}


def torch_out_of_memory(
    text: str, where: str, stages: Mapping[str, re.Pattern[str]] = MappingProxyType({})
) -> LogRefusal | None:
    """Return what PyTorch says when an allocation fails; None if none did.

    `stages` are patterns of what was allocated, by the names of `LogRefusal.where`: `where` if none
    matches.
    """
    match = OUT_OF_MEMORY.search(text)
    if match is None:
        return None
    if READY.search(text, 0, match.start()):
        where = "serving"
    elif stage_of(text, stages):
        where = stage_of(text, stages)
    elif not where and "allocated in private pools" in text:
        where = "rest"  # with graphs in pools of their own, the cache was allocated
    return LogRefusal(
        "out_of_memory",
        match[0],
        tried=_amount("tried", text),
        free=_amount("free", text),
        where=where,
        use=_in_use(text),
        unused=_amount("reserved", text),
    )


def stage_of(text: str, stages: Mapping[str, re.Pattern[str]]) -> str:
    """Return the first of these stages whose lines a text has; '' if it has none."""
    for name, pattern in stages.items():
        if pattern.search(text):
            return name
    return ""


def _in_use(text: str) -> InUse:
    """Return what processes use of the GPU.

    In a container PyTorch lists its own process by a number: it is the one that uses little more
    than PyTorch has. If the message has not what that is, it may be any, and the others use at
    least what all but the largest use.
    """
    first = _TABLE["pytorch"]["in_use"].search(text)
    if first is None and "has 0 bytes memory in use" in text:
        return _in_hidden_list(text)
    if first is None:
        return _in_old_list(text)
    message = text[first.start() : first.start() + 4000].partition("Of the allocated memory")[0]
    listed: dict[str | None, int] = {}
    for match in _TABLE["pytorch"]["in_use"].finditer(message):
        used = int(Fraction(match[2]) * _UNITS[match[3]])
        if used:
            listed[match[1]] = used
        else:
            listed.pop(match[1], None)
    of_pytorch = 0
    for name in ("allocated", "reserved"):
        amount = _amount(name, text)
        if amount:
            of_pytorch += amount.bytes
    is_named = None in listed  # 'this process'
    own = _own_process(listed, of_pytorch)
    if own not in listed:
        return InUse(taken=sum(listed.values()), processes=len(listed))
    used = listed[own]
    together = 0
    for process, size in listed.items():
        if process and own and process != own and abs(int(process) - int(own)) < _NEAR:
            together += size
    return InUse(
        own=used if of_pytorch or is_named else 0,
        taken=sum(listed.values()) - used - together,
        processes=len(listed) - 1 if is_named else len(listed),
        together=together + used if together else 0,
    )


def _own_process(listed: Mapping[str | None, int], of_pytorch: int) -> str | None:
    """Return the engine's own process: 'this process' (None), or one that uses at least the bytes
    that PyTorch has; the largest if these are not known, '' if there is none.
    """
    if None in listed:
        return None
    enough = [name for name, size in listed.items() if size >= of_pytorch]
    if not enough:
        return ""
    likely = min if of_pytorch else max
    return likely(enough, key=lambda name: listed[name])


def _in_hidden_list(text: str) -> InUse:
    """Return the same of a message in a container whose driver hides what processes use: '0 bytes
    memory in use'.

    What is neither free nor PyTorch's is that of others, but for the contexts of CUDA.
    """
    total = _amount("total", text)
    free = _amount("free", text)
    allocated = _amount("allocated", text)
    reserved = _amount("reserved", text)
    if not (total and free and allocated):
        return InUse()
    own = allocated.bytes
    if reserved:
        own += reserved.bytes
    processes = {match[1] for match in _TABLE["pytorch"]["hidden"].finditer(text)}
    return InUse(own, _beside(total.bytes - free.bytes - own), len(processes))


def _in_old_list(text: str) -> InUse:
    """Return the same of a message without processes: the others use what is neither PyTorch's nor
    free.
    """
    found = _TABLE["pytorch"]["old_list"].search(text)
    if found is None:
        return InUse()
    total = int(Fraction(found["total"]) * GIB)
    own = int(Fraction(found["reserved"] or found["allocated"]) * GIB)
    free = int(Fraction(found["free"]) * _UNITS[found["unit"]])
    return InUse(own, _beside(total - own - free))


def _beside(size: int) -> int:
    """Return what other processes use of a size that is neither free nor PyTorch's; 0 if it may be
    CUDA's contexts.
    """
    if size > _OF_CONTEXTS:
        return size
    return 0


def _amount(name: str, text: str) -> Printed | None:
    """Return the size of that name in PyTorch's message."""
    match = _TABLE["pytorch"][name].search(text)
    if match:
        return Printed(match[1], match[0], _UNITS[match[2]])
    return None


# vLLM's share before 0.20, and the memory of most GPUs that serve: what is assumed if a log has
# neither.
_USUAL_SHARE = "0.9"
_USUAL_MEMORY = 80 * GIB
# Bytes that should stay free beyond an allocation that failed after the cache was there.
_MARGIN = GIB // 4


def smaller_share(log: StartupLog, otherwise: str) -> dict[str, str]:
    """Return the figures of a share with which an allocation that failed after the cache would have
    had room.

    It is `otherwise` if the log, which has a refusal, lacks the one that failed.
    """
    refusal = log.refusal
    total = log.budget.get("gpu_memory")
    share = log.settings.get("gpu_memory_utilization")
    if refusal is None or share is None:
        return {"smaller_share": otherwise, "than_it_has": " than it has"}
    hundredths = share_below(refusal, Fraction(share), total.bytes if total else 0)
    return {"smaller_share": f"0.{max(1, hundredths):02d}", "than_it_has": ""}


def share_below(refusal: LogRefusal, share: Fraction, total: int) -> int:
    """Return the hundredths of a share that is smaller by what an allocation lacked; `total` bytes
    of a GPU, or 0.

    Of graphs that failed for a small piece, what the next pieces need is not known.
    """
    if refusal.tried and refusal.free:
        missing = max(0, refusal.tried.bytes - refusal.free.bytes)
    else:
        missing = 0
    is_piece = refusal.where == "graphs" and bool(refusal.tried) and missing < MIB * 64
    if total and not is_piece:
        part = Fraction(missing + _MARGIN, total)
    else:
        part = Fraction(1, 20)
    return min(99, int(100 * (share - part)))


# Bytes of weights that are assumed on a GPU if the log does not have them: a small model's in bf16.
_LEAST_WEIGHTS = 2 * GIB


def more_gpus(log: StartupLog, option: str) -> str:
    """Return the option for twice as many tensor-parallel GPUs as the log has, or for as many as
    hold one request.

    Example: one request needs 36 GiB, and 7.84 are left. Four GPUs hold 9 GiB each where 3/4 of 2
    GiB of weights are gone: '--tp 4'. '' if not even eight times as many do.
    """
    needed = log.logged.get("kv_bytes_per_sequence")
    left = least(log.available)
    weights = log.budget.get("weights")
    held = weights.bytes if weights else _LEAST_WEIGHTS
    for factor in (2, 4, 8):
        if not (needed and left) or needed.bytes <= factor * left.bytes + (factor - 1) * held:
            return f"{option} {factor * int(log.settings.get('tp', '1'))}"
    return ""


def larger_share(
    log: StartupLog, largest: str, least: Fraction | int, missing: int = 0
) -> str | None:
    """Return in words the largest share that engines start with; None if the log has such a share,
    or more is needed.

    Args:
        least: The share that is just not enough; 0 if the log does not show it.
        missing: Bytes that are missing, if the log shows them, and not the GPU's memory.
    """
    share = log.settings.get("gpu_memory_utilization")
    most = Fraction(largest)
    if missing > (most - Fraction(share or _USUAL_SHARE)) * _USUAL_MEMORY:
        return None
    if max(Fraction(share or 0), least) >= most:
        return None
    if not least:
        return "a larger share"
    digits = 2
    if math.ceil(100 * least) >= 100 * most:
        digits = 3
    return f"a share above 0.{math.ceil(10**digits * least):0{digits}d}"


def without_a_start(
    load: Load | None,
    lines: Sequence[str],
    start: re.Pattern[str],
    stages: Mapping[str, re.Pattern[str]],
) -> LogRefusal | None:
    """Return how a server copes, or how it ended, of a log without its start; None without a load
    or a line of one.

    `stages` are patterns of what was allocated, as in `torch_out_of_memory`: of an error whose
    message is missing.
    """
    last = lines[-_LAST:]
    ended = unfinished(lines, start)
    if ended and ended.where == "error":
        ended = ended._replace(stage=stage_of(" ".join(last), stages))
    if load is None:
        return ended
    if ended and is_end(ended, last) and not (load.waiting or load.preempted):
        return ended
    return LogRefusal(
        "overloaded", f"{load.running} running, {load.waiting} waiting, {load.usage:.1%} used"
    )


def of_load(log: StartupLog) -> str:
    """Return the name of the advice for requests that wait: for a full cache, or else for more
    running requests; '' if none wait.
    """
    if log.load and log.load.is_full:
        return "overloaded"
    if log.load and log.load.waiting:
        return "waiting"
    return ""


def figures_of_load(log: StartupLog) -> dict[str, Any]:
    """Return the figures of the advice for requests that wait."""
    load = log.load
    return {
        "default_cache": "kv_dtype" not in log.settings,
        "fitting": load.fitting if load and load.preempted and load.running else None,
    }


# Lines at the end of a log in which its end is searched.
_LAST = 200


def unfinished(lines: Iterable[str], start: re.Pattern[str]) -> LogRefusal | None:
    """Return where a log ends that has neither a cache nor a message about memory; None without a
    line of a start.
    """
    found: dict[str, re.Match[str]] = {}
    step = None
    for line in lines:
        for name in ("killed", "resident", "message"):
            match = _LINES[name].search(line) if name not in found else None
            if match:
                found[name] = match
        step = _LINES["step"].search(line) or start.search(line) or step
    reached = step.groupdict() if step else {}
    message = found.get("message")
    killed = found.get("killed")
    # what a shell says after an error: the engine killed its own processes
    order = [*found]
    is_after = message is None or (
        killed is not None and order.index("killed") > order.index("message")
    )
    follows = killed is not None and killed.string == "Killed" and is_after
    if killed and not (follows and reached.get("error")):
        resident = found.get("resident")
        held = Printed(resident[1], resident[0], 1024) if resident else None
        return LogRefusal("out_of_memory", killed.string, held, where="killed")
    if step is None:
        return None
    if reached.get("error") and message:
        return LogRefusal("unfinished", message[0], where="other")
    if reached.get("error"):
        return LogRefusal("unfinished", step.string, where="error")
    loaded = None
    files = None
    if reached.get("loaded"):
        loaded = Printed(reached["loaded"], step[0])
        files = Printed(reached["files"], step[0])
    where = "loading" if reached.get("loading") else ""
    return LogRefusal("unfinished", step.string, loaded, files, where)


def with_end(log: StartupLog, lines: Sequence[str]) -> StartupLog:
    """Return a log of a cache with its size, with why the process ended after that, if its last
    lines say it.
    """
    last = after_the_cache(log, lines)
    end = unfinished(last, _LINES["step"])
    if end and is_end(end, last):
        return log._replace(refusal=end)
    return log


def is_end(end: LogRefusal, last: Sequence[str]) -> bool:
    """Return whether the last lines say that the process ended, and not only that something failed
    in it.
    """
    return end.where == "killed" or (
        end.where == "other" and any(map(_LINES["fatal"].search, last))
    )


def after_the_cache(log: StartupLog, lines: Sequence[str]) -> list[str]:
    """Return the last lines, of those after the sizes of the cache and the start."""
    sizes = [figure.line for figure in log.logged.values()]
    last = [*lines[-_LAST:]]
    before = [
        i
        for i, line in enumerate(last)
        if READY.search(line) or any(size in line for size in sizes)
    ]
    if before:
        return last[before[-1] + 1 :]
    return last


def printed_gpu_memory(log: StartupLog) -> int | None:
    """Return the bytes of the GPU's whole memory that a log has; None if it has none."""
    if "gpu_memory" in log.budget:
        return log.budget["gpu_memory"].bytes
    return None


# The comparison with predicted figures


def size_checks(
    log: StartupLog,
    predicted: Mapping[str, Printed],
    given: str = "",
    *,
    ends: Sequence[Mapping[str, Printed]] = (),
) -> tuple[Check, ...]:
    """Return the checks of printed figures with predicted ones that are rounded alike; not of the
    given one.

    `ends` are the figures predicted from the least and from the most memory, if the log's memory is
    rounded.
    """

    def check(name: str) -> Check:
        printed = log.logged[name]
        expected = predicted[name].bytes
        is_size = name.endswith("_size")
        tolerance = 2 * printed.half
        note = "exact"
        unit = TOKENS
        if is_size:
            note = "both are rounded"
            unit = BYTES
        if ends:
            tolerance = max(abs(end[name].bytes - expected) for end in ends)
            note = "the log's memory is rounded"
        return Check("log", name, SIZES[name], expected, printed.bytes, tolerance, unit, note)

    return tuple(
        check(name) for name in SIZES if name in log.logged and name in predicted and name != given
    )
