"""What `verify --engine` does: it starts the engine, reads its log, and compares it with `fit`."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

from ...check import Check
from ...config import load, load_with_config
from ...config.folder import LocalFile
from ...config.gguf.files import local_gguf, shard_names
from ...config.gguf.header import read_header
from ...config.local import named_gpus
from ...config.presets import preset_config, preset_of
from ...config.source import CONFIG
from ...cost.cache import layer_cache_specs
from ...cost.params import params
from ...engines import find_engine
from ...engines.pipeline import LayerCacheSpec, layer_by_layer
from ...errors import AttncalcError, CannotCheckError, is_valid
from ...logs.cause import diagnose_alone
from ...logs.comparison import Estimate, compare
from ...logs.log_file import lines_of, read_log
from ...logs.startup_log import Printed, StartupLog
from ...model import ModelSpec
from ...options import parsed
from ...quantity import ceil_div
from ...records import NamedTuple
from ...serving.fit import FitResult, fit
from ...serving.request import FitRequest, resolve
from ...serving.weights import weights
from ...units import BYTES, GIB, count, duration, human, long_option, truncate
from ...verify.engines import Starter, starter
from ...verify.engines.checkpoint import changes_of, preset_fields, write_checkpoint
from ...verify.engines.gguf import copy_header, write_model
from ...verify.engines.start import Guard, State, Watched
from ...verify.host_memory import free_on_host
from ..fit.options import FitOptions
from ..fit.request import fit_request
from ..inputs import read_model
from ..options import ModelOptions
from .engine_question import EngineQuestion

# Minutes that a start may take, unless --minutes names another number.
MINUTES = 10
# Options of `fit` that say where it runs, which is this machine here, or what is in the folder.
NOT_HERE = (
    "gpu",
    "gpus",
    "served_model",
    "weights_dtype",
    "keep",
    "weights_size",
    "revision",
    "kv_memory",
    "ram",
)
# Bytes that an engine and its libraries take of a machine's memory beside weights and cache.
LIBRARIES = 2 * GIB
# Characters of a line of a log that a message shows, and how many of the last lines.
_WIDTH = 160
_LINES = 6
# An error as Python prints it, of which a log's first one is the cause.
_ERROR = re.compile(r"\b[A-Z]\w{1,60}(?:Error|Exception): .{1,400}")
# Refusals after which an engine ends. A message that states another cause may be a warning.
_REFUSALS = ("too_small", "no_memory", "out_of_memory", "occupied", "too_many_sequences")


class EngineEndedError(CannotCheckError):
    """An engine ended, or was stopped, before its cache had a size.

    Attributes:
        lines: The last lines of its log.
    """

    def __init__(self, message: str, tip: str, lines: tuple[str, ...]) -> None:
        super().__init__(message, tip)
        self.lines = lines


class EngineAnswer(NamedTuple):
    """What was predicted of an engine's start, and what it printed."""

    question: EngineQuestion
    model: ModelSpec  # the model that was asked about
    request: FitRequest  # what the engine was started with
    predicted: FitResult  # what `fit` says of it
    log: StartupLog
    checks: tuple[Check, ...]  # all comparisons
    estimates: Mapping[str, Estimate]  # those of them that are ranges, by name
    notes: tuple[str, ...]
    command: tuple[str, ...] = ()  # the command, with the name of the model in place of its folder
    machine: str = ""  # where it ran: 'the CPU', '2 x NVIDIA H200'
    seconds: float = 0.0  # from the start to the size of the cache


def verify_engine(
    question: EngineQuestion, minutes: float, show: Callable[[str], None]
) -> EngineAnswer:
    """Start the engine of a question, and return what it printed beside what `fit` predicts.

    Args:
        question: The model, and the command's options.
        minutes: The time that the start may take.
        show: Shows what is being done.

    Raises CannotCheckError if the engine is not installed, cannot load the model, needs more memory
    than this machine has, ends without a cache, or takes too long. Raises AttncalcError as `fit`
    does.
    """
    engine = starter(question.engine)
    installed = engine.find()
    source = read_source(question, engine)
    model = source.model
    show(f"1 of 3: writes the files of {model.title}")
    gpus = named_gpus()
    with Guard() as guard:
        if engine.LOADS_GGUF:
            path = _write_gguf(guard.folder, source)
        else:
            path = write_config(guard, installed.python, source, question.what_if)
        written = read_written(path, model)
        options, words, cache = _settings(question, written, engine, on_gpu=bool(gpus))
        command = engine.command(installed, path, words)
        space = None
        if cache is not None and "kv_memory" not in question.options:
            space = cache // GIB
        environment = {**engine.environment(guard.folder, space), **question.variables}
        guard.start(command, environment)
        title = find_engine(question.engine).title
        watched = guard.watch(
            lambda log: _state(log, question.engine, engine),
            60 * minutes,
            on_step=lambda log: show(f"2 of 3: {title} {_step(log, engine)}"),
        )
        show(f"3 of 3: stops {title}")
    log = _log_of(watched, question.engine, minutes)
    if cache is not None:
        log = _with_memory(log, cache)
    if not gpus and "cpu_compute_buffer" in log.budget:
        log = log._replace(budget={"compute_buffer": log.budget["cpu_compute_buffer"]})
    machine = "the CPU"
    used = int(options.get("gpus", len(gpus)))
    if gpus:
        machine = gpus[0].title if used == 1 else f"{used} x {gpus[0].title}"
    shown = [word if word != os.fspath(path) else question.model for word in command]
    answer = compare_start(
        question, model, written, options, cache, log, is_plan=installed.is_library
    )
    return answer._replace(command=tuple(shown), machine=machine, seconds=watched.seconds)


class Source(NamedTuple):
    """Where the model's sizes are from."""

    model: ModelSpec  # the model that was asked about
    config: dict[str, Any]  # the fields of its config.json; {} of a GGUF file
    is_preset: bool = False
    gguf: Path | None = None  # its GGUF file


def read_source(question: EngineQuestion, engine: Starter) -> Source:
    """Return the model and where its sizes are from.

    Raises CannotCheckError if the engine cannot load it.
    """
    name = question.model
    if engine.LOADS_GGUF:
        gguf = local_gguf(name) if os.path.exists(name) else None
        model = read_model(name, question.options, ModelOptions)
        if gguf and question.what_if:
            raise CannotCheckError(
                "a GGUF file has the sizes that it has", "leave out the options that change them"
            )
        return Source(model, {}, gguf=gguf)
    preset = None if os.path.exists(name) else preset_of(name)
    if preset is None:
        spec, config = load_with_config(name)
    else:
        spec = load(preset)
        config = preset_config(preset)
    if config is None:
        raise CannotCheckError(
            f"'{truncate(name)}' has no config.json, which the engine needs",
            "give the model's config.json, a folder that contains it, or org/name on the hub",
        )
    model = read_model(spec, question.options, ModelOptions)
    if not model.main.has_cache or not each_cache(model):
        raise CannotCheckError(
            f"{model.title} has no cache that an engine could log",
            "leave --engine out: its layers are checked then",
        )
    return Source(model, config, is_preset=preset is not None)


def write_config(guard: Guard, python: Path, source: Source, what_if: Mapping[str, Any]) -> Path:
    """Write the model's config.json, with the options that change it, and return its folder.

    Raises CannotCheckError if the engine's transformers does not know the model.
    """
    fields = {**source.config, **(preset_fields(source.model) if source.is_preset else {})}
    return write_checkpoint(guard, python, fields, changes_of(source.model, what_if))


def _write_gguf(folder: Path, source: Source) -> Path:
    """Write a GGUF file of the model's sizes, without weights, and return its path; of several
    files, the first one.
    """
    if source.gguf is None:
        return write_model(folder / "model.gguf", source.model)
    for name in shard_names(source.gguf.name):
        path = source.gguf.with_name(name)
        start = read_header(LocalFile(path)).data_start
        copy_header(path, start, path.stat().st_size, folder / name)
    return folder / source.gguf.name


def read_written(path: Path, model: ModelSpec) -> ModelSpec:
    """Return the model of those files as attncalc reads it.

    Raises CannotCheckError if it has another cache than the model that was asked about.
    """
    try:
        written = load(path)
    except AttncalcError as error:
        reason = error.message.removeprefix(f"{path / CONFIG}: ")
        raise CannotCheckError(
            f"the file that was written for {model.title} cannot be read: {reason}",
            "leave out what-if options, or give a file of the model",
        ) from None
    if each_cache(written) != each_cache(model):
        raise CannotCheckError(
            f"the file that was written for {model.title} has other layers than asked for",
            "leave out --attention, --pattern and --window, or give a file of the model",
        )
    return dataclasses.replace(written, title=model.title, name=model.name)


def each_cache(model: ModelSpec) -> list[LayerCacheSpec]:
    """Return what each layer caches, in order: neighbours may be grouped in another way."""
    return layer_by_layer(layer_cache_specs(model.plain()))


def _settings(
    question: EngineQuestion, model: ModelSpec, engine: Starter, *, on_gpu: bool
) -> tuple[dict[str, Any], tuple[str, ...], int | None]:
    """Return the options of `fit`, the words of the command, and the bytes of a cache on a CPU.

    On a CPU the engine has defaults of its own for steps and blocks: the command says those of a
    GPU, where it can.
    """
    left_out = (*NOT_HERE, *question.what_if)
    options = {name: value for name, value in question.options.items() if name not in left_out}
    words = list(question.words)
    if on_gpu:
        options["gpu"] = "local"
        if not find_engine(question.engine).splits_by_layer:
            options["gpus"] = str(_ranks(options))  # and not all that there are
        return options, tuple(words), None
    if not engine.CPU_SPACE:
        return {**options, "gpu": "cpu"}, tuple(words), None
    request = in_memory(request_of(model, options), GIB)
    args = resolve(request).args
    limits = find_engine(question.engine).limits(args)
    has_states = any(each.per == "sequence" for spec in each_cache(model) for each in spec.cached)
    for name, value in engine.cpu_defaults(args, limits, has_states=has_states).items():
        changed = {**options, name: value}
        # DeepSeek-V4 has blocks of its own
        if name not in options and is_valid(_fit_in_gib, model, changed):
            options = changed
            words += [long_option(name), value]
    for name in engine.CPU_FLAGS:
        if name not in options:
            options[name] = True
            words.append(long_option(name))
    options |= engine.CPU_FACTS
    cache = _cache_on_cpu(question, request_of(model, options), engine)
    check_memory(model, request, _ranks(options) * cache)
    return options, tuple(words), cache


def _cache_on_cpu(question: EngineQuestion, request: FitRequest, engine: Starter) -> int:
    """Return the bytes of a cache on a CPU: as an option or a variable sets them, or the GiB that
    one request needs.
    """
    given: int | None = parsed(question.options, FitOptions).get("kv_memory")
    if given is not None:
        return given
    space = question.variables.get(engine.CPU_SPACE) or os.environ.get(engine.CPU_SPACE) or ""
    if space.isdecimal() and int(space):
        return int(space) * GIB
    needed = int(fit(in_memory(request, GIB)).needed)
    return max(1, ceil_div(needed, GIB)) * GIB


def _fit_in_gib(model: ModelSpec, options: Mapping[str, Any]) -> FitResult:
    """Return what fits in 1 GiB for the cache. Raises AttncalcError as `fit` does."""
    return fit(in_memory(request_of(model, options), GIB))


def _ranks(options: Mapping[str, Any]) -> int:
    """Return the devices that a command uses, each with a cache of its own."""
    return prod(int(options.get(name, 1)) for name in ("tp", "pp", "dp"))


def check_memory(model: ModelSpec, request: FitRequest, cache: int) -> None:
    """Raise CannotCheckError if weights and cache are more than this machine's free memory."""
    held = int(weights(model, in_dtype=request.workload.dtype).total)
    free = free_on_host()
    if held + cache + LIBRARIES > free:
        raise CannotCheckError(
            f"{model.title} needs {human(held, BYTES)} for its weights and {human(cache, BYTES)} "
            f"for the cache; {human(free, BYTES)} of this machine's memory are free",
            "fewer layers have the same cache each: --layers 2",
        )


def in_memory(request: FitRequest, memory: int) -> FitRequest:
    """Return the request with that memory for the cache."""
    return dataclasses.replace(request, kv_memory=memory)


def request_of(model: ModelSpec, options: Mapping[str, Any]) -> FitRequest:
    return fit_request(model, options, {}, is_logged=True)


# The log


def _read_text(log: bytes, engine: str) -> StartupLog | None:
    """Return the contents of a log; None if it has neither a cache nor a reason yet."""
    try:
        return read_log(log, "the log", engine)
    except AttncalcError:
        return None


def _state(log: bytes, name: str, engine: Starter) -> State:
    """Return whether a log has the size of the cache, or why there is none."""
    found = _read_text(log, name)
    if found is None:
        return "unfinished"
    if any(name in found.logged or name in found.budget for name in engine.COMPLETE):
        return "complete"
    if found.refusal and found.refusal.kind in _REFUSALS:
        return "refused"
    return "unfinished"


def _step(log: bytes, engine: Starter) -> str:
    """Return what the engine is doing, by the last sign in its log."""
    text = log.decode("utf-8", "replace")
    found = [(text.rfind(sign), doing) for sign, doing in engine.STEPS if sign in text]
    return max(found, default=(0, "starts"))[1]


def _log_of(watched: Watched, engine: str, minutes: float) -> StartupLog:
    """Return the contents of the log of a start that came to a cache, or was refused one.

    Raises CannotCheckError, with the last lines, if it came to neither.
    """
    title = find_engine(engine).title
    log = _read_text(watched.log, engine)
    if watched.ending == "complete":
        assert log is not None
        return log
    refusal = log.refusal if log else None
    if log and refusal and refusal.kind in ("too_small", "no_memory"):
        return log  # what `fit` can be compared with
    reason = ""
    if log and refusal and refusal.kind != "unfinished":
        reason = diagnose_alone(log).reason
    raise ended_early(watched, title, minutes, reason)


def ended_early(watched: Watched, title: str, minutes: float, reason: str = "") -> EngineEndedError:
    """Return the error of an engine that was stopped, or ended by itself, before its cache had a
    size.

    Args:
        watched: What it printed, and how it ended.
        title: Its name.
        minutes: The time that it had.
        reason: Why it ended; by default the first error in its log.
    """
    lines = [line for line in lines_of(watched.log) if line.strip()]
    last = tuple(truncate(line, _WIDTH) for line in lines[-_LINES:])
    if watched.ending == "late":
        return EngineEndedError(
            f"{title} was stopped after {duration(60 * minutes)}, before its cache had a size",
            "--minutes N gives it more time",
            last,
        )
    reason = reason or _first_error(lines)
    tip = "its last lines are above" if last else "the command alone may say more"
    sentence = f"{title} ended{_how(watched.code)} before its cache had a size"
    return EngineEndedError(f"{sentence}: {reason}" if reason else sentence, tip, last)


def _first_error(lines: list[str]) -> str:
    """Return the first error in a log: those that follow are of the processes that waited for it;
    '' without any.
    """
    for line in lines:
        found = _ERROR.search(line)
        if found and "WARNING" not in line:
            return truncate(found[0], _WIDTH)
    return ""


def _how(code: int | None) -> str:
    """Return how a program ended, for a sentence."""
    if code is None:
        return ""
    if code < 0:
        return f" by signal {-code}"
    return f" with exit code {code}"


def _with_memory(log: StartupLog, memory: int) -> StartupLog:
    """Return the log with the memory of the cache that a variable set."""
    exact = Printed(str(memory), f"{count(memory)} B, as set")
    return log._replace(logged={**log.logged, "kv_memory": exact})


# The comparison


def compare_start(
    question: EngineQuestion,
    model: ModelSpec,
    written: ModelSpec,
    options: dict[str, Any],
    cache: int | None,
    log: StartupLog,
    *,
    is_plan: bool,
) -> EngineAnswer:
    """Return the answer, without the command and the machine.

    Args:
        question: What was asked.
        model: The model that was asked about.
        written: The model of the files that the engine loaded.
        options: The options of `fit` for those files.
        cache: The bytes of a cache on a CPU; None on a GPU.
        log: What the engine printed.
        is_plan: Whether the engine allocated nothing.
    """
    notes = [*model_notes(model, written)]
    try:
        request = request_of(written, {**options, "engine_version": log.version})
        resolve(in_memory(request, GIB))
    except AttncalcError as error:  # a version that is not known here
        if log.version is None:
            raise
        request = request_of(written, options)
        notes.append(f"The newest known version is compared: {error.message}.")
    comparison = compare(request, log)
    memory = parsed(question.options, FitOptions).get("kv_memory")
    if cache is not None:
        memory = cache
    predicted = fit(request if memory is None else in_memory(request, memory))
    estimates = {estimate.name: estimate for estimate in comparison.estimates}
    if not starter(log.engine).SIZES_CACHE:
        estimates.pop("kv_memory", None)
    checks = (
        *map(_check_of, estimates.values()),
        *(check._replace(section="cache") for check in comparison.checks),
    )
    if is_plan:
        notes.append(
            "The library of llama.cpp planned its buffers and made none: whether they fit is not "
            "checked. llama-server on PATH is started in its place."
        )
    else:
        checks = (*checks, verdict_check(predicted, log))
    return EngineAnswer(question, model, request, predicted, log, checks, estimates, tuple(notes))


def _check_of(estimate: Estimate) -> Check:
    """Return the check of a size that is a range: its tolerance is the end of the range on the side
    of the measured size.
    """
    if estimate.logged > estimate.expected:
        tolerance = estimate.high - estimate.expected
    else:
        tolerance = estimate.expected - estimate.low
    return Check(
        "memory",
        estimate.name,
        estimate.label,
        estimate.expected,
        estimate.logged,
        tolerance,
        BYTES,
        f"predicted from {human(estimate.low, BYTES)} to {human(estimate.high, BYTES)}",
    )


def verdict_check(predicted: FitResult, log: StartupLog) -> Check:
    """Return whether the engine started, 1 or 0, beside the verdict of `fit`.

    MAY NOT FIT agrees with both.
    """
    expected = 0 if predicted.verdict == "does_not_fit" else 1
    started = 1 if log.refusal is None else 0
    tolerance = 1 if predicted.verdict == "may_not_fit" else 0
    words = {
        "fits": "fit says FITS",
        "may_not_fit": "fit says MAY NOT FIT",
        "does_not_fit": "fit says DOES NOT FIT",
    }
    return Check(
        "start", "starts", "starts", expected, started, tolerance, "", words[predicted.verdict]
    )


def model_notes(model: ModelSpec, written: ModelSpec) -> Iterator[str]:
    """Yield how the model that was loaded differs from the one that was asked about."""
    if params(model).total != params(written).total:
        yield (
            f"The model that was loaded has {count(int(params(written).total))} parameters, and "
            f"{count(int(params(model).total))} were asked for."
        )
    if model.quantization and not written.quantization:
        yield "The weights are not quantized: the config.json of a preset has no quantization."
