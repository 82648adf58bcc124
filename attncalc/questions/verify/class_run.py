"""What `verify --engine transformers` does: it runs the model's own class with random weights and
its own cache, and compares both with `fit`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from ...check import Check
from ...config.local import named_gpus
from ...cost.common import compute_dtype
from ...errors import AttncalcError, CannotCheckError
from ...logs.startup_log import LogRefusal, StartupLog
from ...model import ModelSpec
from ...quantity import Quantity
from ...records import NamedTuple
from ...serving.fit import fit
from ...serving.request import FitRequest, resolve
from ...serving.weights import weights
from ...show.notes import beyond
from ...units import BYTES, count, human
from ...verify.engines import starter
from ...verify.engines.start import Guard, State
from ...verify.engines.transformers import ClassRun, read_run
from ...verify.host_memory import free_on_host
from ..options import WhatIfOptions
from .engine_question import TORCH_NAMES, EngineQuestion
from .engine_run import (
    LIBRARIES,
    NOT_HERE,
    EngineAnswer,
    check_memory,
    ended_early,
    in_memory,
    model_notes,
    read_source,
    read_written,
    request_of,
    verdict_check,
    write_config,
)

_TITLE = "transformers"
# Tokens of the context by default: a prefill of all but one, and a decode step.
_CONTEXT = 128
# A context has a prefill and a decode step.
_SHORTEST = 2


class _Asked(NamedTuple):
    """What the class is run with."""

    model: ModelSpec  # the model of the config.json that was written
    options: dict[str, Any]  # the options of `fit`
    request: FitRequest  # the same as a request, without a memory
    dtype: str  # the dtype of the weights, as 'bf16'


def verify_class(
    question: EngineQuestion, minutes: float, show: Callable[[str], None]
) -> EngineAnswer:
    """Run the class of a question, and return what it measured beside what `fit` predicts.

    Args:
        question: The model and its options.
        minutes: The time that the run may take.
        show: Shows what is being done.

    Raises CannotCheckError if transformers is not installed, does not know the model, needs more
    memory than this machine has, ends early, or takes too long. Raises AttncalcError as `fit` does.
    """
    engine = starter(question.engine)
    installed = engine.find()
    source = read_source(question, engine)
    show(f"1 of 3: writes the config.json of {source.model.title}")
    gpus = named_gpus()
    free = free_on_host()
    with Guard() as guard:
        path = write_config(guard, installed.python, source, question.what_if)
        asked = _read_asked(question, read_written(path, source.model))
        if not gpus:
            check_memory(asked.model, asked.request, int(_cache_of(asked.request)))
        command = engine.command(installed, path, _words(asked))
        guard.start(command, engine.environment(guard.folder, None))
        watched = guard.watch(
            _state, 60 * minutes, on_step=lambda log: show(f"2 of 3: {_TITLE} {_step(log)}")
        )
        show(f"3 of 3: stops {_TITLE}")
    run = read_run(watched.log)
    if run is None or not (run.is_complete or run.out_of_memory):
        raise ended_early(watched, _TITLE, minutes)
    answer = compare_class(question, source.model, asked.model, asked.options, run, free)
    on_gpu = run.device == "cuda" and gpus
    shown = [word if word != os.fspath(path) else question.model for word in command]
    return answer._replace(
        command=tuple(shown),
        machine=gpus[0].title if on_gpu else "the CPU",
        seconds=watched.seconds,
    )


def _read_asked(question: EngineQuestion, written: ModelSpec) -> _Asked:
    """Return what the class is run with.

    Raises CannotCheckError if its weights are quantized, AttncalcError if the context is too short
    or too long.
    """
    if written.quantization:
        raise CannotCheckError(
            f"{written.title} is quantized, and random weights are not",
            "leave quantization_config out of its config.json",
        )
    left_out = (*NOT_HERE, *WhatIfOptions.__annotations__)
    options = {name: value for name, value in question.options.items() if name not in left_out}
    if "context" not in options:
        options["context"] = str(min(_CONTEXT, written.max_context or _CONTEXT))
    request = request_of(written, options)
    tokens = request.workload.context
    if tokens < _SHORTEST:
        raise AttncalcError(
            f"--context {count(tokens)} is too short: a prefill and a decode step are run",
            f"give at least --context {_SHORTEST}",
        )
    for warning in beyond(written, request.workload):
        raise AttncalcError(warning.rstrip("."), "give a shorter --context")
    name = compute_dtype(written, request.workload).name
    if name not in TORCH_NAMES:
        raise CannotCheckError(
            f"random weights cannot be made in {name}", f"give --dtype {' or '.join(TORCH_NAMES)}"
        )
    return _Asked(written, options, request, name)


def _words(asked: _Asked) -> list[str]:
    """Return the options of the program that runs the class."""
    workload = resolve(in_memory(asked.request, 0)).workload
    words = ["--context", str(int(workload.context)), "--dtype", TORCH_NAMES[asked.dtype]]
    if workload.source:
        words += ["--source", str(int(workload.source))]
    return words


def _cache_of(request: FitRequest) -> Quantity:
    """Return the bytes of the cache that `fit` predicts."""
    return fit(in_memory(request, 0)).needed


def _state(log: bytes) -> State:
    """Return whether a log has all figures, or the reason why not."""
    run = read_run(log)
    if run and run.is_complete:
        return "complete"
    if run and run.out_of_memory:
        return "refused"
    return "unfinished"


def _step(log: bytes) -> str:
    """Return what the class is doing, by the last line that it printed."""
    text = log.decode("utf-8", "replace")
    steps = starter(_TITLE).STEPS
    found = [(text.rfind(sign), doing) for sign, doing in steps if sign in text]
    return max(found, default=(0, "starts"))[1]


# The comparison


def compare_class(
    question: EngineQuestion,
    model: ModelSpec,
    written: ModelSpec,
    options: dict[str, Any],
    run: ClassRun,
    free: int,
) -> EngineAnswer:
    """Return the answer, without the command and the machine.

    Args:
        question: What was asked.
        model: The model that was asked about.
        written: The model of the config.json that was written.
        options: The options of `fit` for that model.
        run: What the class printed.
        free: The bytes of the host's memory that were free before.
    """
    notes = [*model_notes(model, written)]
    request = request_of(written, {**options, "engine_version": run.version})
    try:
        resolve(in_memory(request, 0))
    except AttncalcError as error:  # a version that is not known here
        request = request_of(written, options)
        notes.append(f"The newest known version is compared: {error.message}.")
    held = int(weights(written, in_dtype=request.workload.dtype).total)
    if run.device == "cuda":
        request = request_of(written, {**options, "gpu": "local", "gpus": "1"})
        predicted = fit(request)
    else:
        predicted = fit(in_memory(request, max(0, free - held - LIBRARIES)))
    refusal = None
    if not run.is_complete:
        refusal = LogRefusal("out_of_memory", run.out_of_memory)
    log = StartupLog(_TITLE, run.version, None, {}, refusal=refusal)
    checks = (*_size_checks(request, held, run), verdict_check(predicted, log))
    notes += _notes_of(run)
    return EngineAnswer(question, model, request, predicted, log, checks, {}, tuple(notes))


def _size_checks(request: FitRequest, held: int, run: ClassRun) -> Iterator[Check]:
    """Yield the checks of the weights, and of the cache after each pass."""
    if run.name:
        note = f"bytes of the parameters and buffers of {run.name}, tied ones once"
        # fit counts parameters, and all of them in one dtype
        figures = (held, run.weights, run.buffers + run.wider)
        yield Check("weights", "weights", "weights", *figures, BYTES, note)
    for cache, after in zip(run.caches, ("prefill", "decode"), strict=False):
        of_tokens = request.with_workload(context=cache.tokens)
        label = f"cache, {count(cache.tokens)} tokens"
        note = f"bytes of the tensors in {cache.classes} after the {after}"
        predicted = int(_cache_of(of_tokens))
        yield Check("cache", f"cache_{after}", label, predicted, cache.size, 0, BYTES, note)


def _notes_of(run: ClassRun) -> Iterator[str]:
    """Yield the class, and the memory that views hold beyond their own elements."""
    if run.name:
        classes = dict.fromkeys(cache.classes for cache in run.caches)
        yield f"The class is {', '.join((run.name, *classes))}."
    if run.buffers:
        yield (
            f"{count(run.buffers)} B of the weights are buffers, such as the biases of routers, "
            "which fit does not count."
        )
    if run.wider:
        yield f"{count(run.wider)} B of the weights are due to parameters that stay in fp32."
    if run.caches and run.caches[0].held > run.caches[0].size:
        first = run.caches[0]
        yield (
            f"After the prefill the cache holds {human(first.held, BYTES)}: layers with windows "
            f"have views of all its {count(first.tokens)} tokens, until the next step."
        )
