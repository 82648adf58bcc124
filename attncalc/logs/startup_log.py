"""What a start-up log of an engine contains: its arguments, the figures that it printed, and why it
did not start.

The module of an engine reads it, with the functions of this file. `pytorch.py` reads what PyTorch
says, and `endings.py` how a log ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

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
    # (those of images in it), 'graph_profile' (CUDA graphs that vLLM captures to measure them),
    # 'cache' ('pool' if its size follows from the engine's share), 'compute' (llama.cpp's buffer),
    # 'fit' (all of them, which llama.cpp only projects, or LM Studio: 'guardrail'; 'fitting' where
    # the log ends then), 'sampler', 'graphs', 'rest' for anything else after the cache's size was
    # decided, 'serving' for anything after the start, 'requests' for a batch's request slots,
    # 'tokens' for its tokens; 'host' for anything in host memory, 'host_cache' for the cache in it,
    # 'killed' if the kernel or somebody killed the process, '' if the log does not say it.
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
        if preemption.search(line):
            preempted += 1
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
    on_metal: bool = False  # whether vLLM runs on a Mac's GPU: it has one, and no cache in fp8

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


def stage_of(text: str, stages: Mapping[str, re.Pattern[str]]) -> str:
    """Return the first of these stages whose lines a text has; '' if it has none."""
    for name, pattern in stages.items():
        if pattern.search(text):
            return name
    return ""


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

    names = [name for name in SIZES if name in log.logged.keys() & predicted.keys()]
    return tuple(check(name) for name in names if name != given)
