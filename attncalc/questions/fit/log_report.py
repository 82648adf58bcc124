"""The report of `attncalc fit --log`: a start-up log beside the prediction, and why the engine did
not start.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ...check import Check
from ...engines import find_engine
from ...hardware import Gpu
from ...logs.cause import Diagnosis, diagnose_alone, preemptions_in_words, requests_in_words
from ...logs.comparison import (
    Estimate,
    LogComparison,
    compare,
    with_failed_cache,
    with_logged_weights,
    without_gpu,
)
from ...logs.contradictions import NAME_THE_LOGS_MODEL, named_otherwise
from ...logs.doctor import diagnose
from ...logs.load_state import LoadState, load_state
from ...logs.messages import PYTORCH
from ...logs.startup_log import REPEATED, Load, LogRefusal, StartupLog
from ...model import ModelSpec, plural
from ...records import NamedTuple
from ...serving.answer import Answer
from ...serving.fit import Verdict, fit
from ...serving.launch import launch_command
from ...serving.request import FitRequest, ResolvedRequest, resolve
from ...serving.suggestions import Suggestion
from ...show.blocks import NOTE, Form, bar_block, note_blocks, on_one_screen
from ...show.lists import WIDTH, wrapped
from ...show.notes import is_decisive
from ...show.report import LABEL, Column, Report, Section, Table, heading, times
from ...show.request import command_table, request_facts
from ...show.users import users_section
from ...units import BYTES, count, human, truncate
from .facts import changes_facts
from .figures import answer_figures, detail_figures
from .notes import fit_notes
from .report import answer_report, hardware, model_heading
from .tables import cache_tables, lines_table, precise_range

_REQUESTS = "concurrent requests"
_REST = "--full adds the figures of the log, the cache and notes."
_CHANGES_IN_FULL = "--full adds the figures of the log, all changes with their commands and notes."
_OF_REQUEST = (
    "'attncalc fit MODEL --gpu GPU --log FILE' computes whether a context that holds the request "
    "fits."
)
# {the cause that a message states: what it means for the engine}, if that did start.
_LABELS = {
    "request_too_long": "REQUEST REFUSED",
    "request_refused": "REQUEST REFUSED",
    "other_error": "ERROR",
    "out_of_memory": "OUT OF MEMORY",
    "cache_full": "LOAD",
    "requests_limited": "LOAD",
    "log_ends": "NO RESULT",
    "no_failure": "NO FAILURE",
}
_NOT_STARTED = "DID NOT START"
# Changes on the screen without --full, if there is room.
_MOST_CHANGES = 7
# What a screen loses first, if it has no room: of the notes, those on how the log was read before
# those that say what to do.
_BAR, _NOTES, _ADVICE = range(3)


class _Given(NamedTuple):
    """What the engine was started with, which a command must not change."""

    # the share in the log, with which it had its memory; a request without a GPU has none
    share: str | None
    # the dtype of the log's checkpoint, by its name or its size: it needs no option
    weights_dtype: str | None
    is_within: bool  # whether another program started it: then no command of the engine starts it
    resolved: ResolvedRequest  # by the log and the options


class _Reading(NamedTuple):
    """What follows from a log and the options beside it."""

    log: StartupLog
    request: FitRequest  # the options, with what only the log has
    comparison: LogComparison
    answer: Answer  # the prediction with the log's memory
    diagnosis: Diagnosis | None  # why the engine did not start; None if it did
    other_model: str  # why the log is of another model, as a sentence; '' if it is not
    load: LoadState | None  # how the server copes with its requests; None if that is not asked
    given: _Given

    @property
    def is_waiting(self) -> bool:
        """Whether requests wait, or the batch that is asked for is more than fits: the screen is
        about the load then.
        """
        if self.load is None or not self.comparison.agrees:
            return False
        return self.load.load is None or bool(self.load.load.waiting)


def log_report(
    request: FitRequest, log: StartupLog, named: ModelSpec | None = None, *, full: bool = False
) -> Report:
    """Return the log's figures and the predicted ones; `extra["agrees"]` is whether all of the
    cache's agree.

    Of a start that failed, the screen has the cause, the changes and one command; all else needs
    `full`. The request has no memory for the cache. `named` is the model that the log names, if it
    is known.

    Raises AttncalcError as `compare` and `diagnose` do.
    """
    read = _read(request, log, named)
    diagnosis = read.diagnosis
    comparison = read.comparison
    sentence, tables = _in_words(read)
    own_notes = dict(_notes(comparison, read.answer.resolved, log))
    report = answer_report(read.answer)
    report = report._replace(
        heading=(sentence, *_heading(read, full=full)),
        verdict=_verdict_of_colour(read, full=full),
        notes=(*own_notes, *report.notes),
        checks=comparison.checks,
        extra={**report.extra, **_facts(read)},
        footer=(),  # the log has the engine's own lines
    )
    if diagnosis:
        report = report._replace(notes=(*diagnosis.notes, *own_notes))
        if not full:
            return _refusal_on_one_screen(report, diagnosis, read.given)
        tables += [*_changes(diagnosis, read.given), *_compared_tables(comparison)]
        return report._replace(tables=tuple(tables), shown_notes=None)
    if read.is_waiting and not full:
        return report._replace(tables=tuple(tables), shown_notes=(_REST,))
    tables += _compared_tables(comparison)
    if read.other_model:
        return report._replace(tables=tuple(tables), shown_notes=(NAME_THE_LOGS_MODEL,))
    fitting = _fitting(read.answer, full=full)
    tables += fitting.tables
    notes = tuple(dict.fromkeys((*own_notes, *fitting.notes)))
    if full:
        return report._replace(tables=tuple(tables), shown_notes=notes)
    blocks = [bar_block(_BAR), [Form(tuple(tables))]]
    n_notes = len(notes)
    for note in notes:
        if note in own_notes or is_decisive(note):
            blocks += note_blocks([note], own_notes.get(note, _NOTES))
            n_notes -= 1
    return on_one_screen(
        report, blocks, lambda left_out: (_cache_in_full(n_notes + left_out.get(NOTE, 0)),)
    )


def _in_words(read: _Reading) -> tuple[str, list[Table]]:
    """Return the answer as a sentence, and tables with further sentences and changes of a load."""
    if read.diagnosis:
        sentence = f"{_label(read.diagnosis, read.log)}: {read.diagnosis.reason}"
    else:
        sentence = _verdict(read.comparison, read.other_model)
    if read.load is None:
        return sentence, []
    first, *others = _load_sentences(read.load, read.log.engine)
    tables = [*_load_changes(read.load), lines_table([sentence])]
    if others:
        tables.insert(0, lines_table(others))
    return first, tables


def _verdict_of_colour(read: _Reading, *, full: bool) -> Verdict:
    """Return the verdict that a terminal colours."""
    if read.diagnosis or not read.comparison.agrees:
        return "does_not_fit"
    if read.is_waiting and not full:
        return "may_not_fit"
    return "fits"


def _read(request: FitRequest, log: StartupLog, named: ModelSpec | None) -> _Reading:
    """Return what follows from the log. Raises AttncalcError as `compare` and `diagnose` do."""
    longest = request.model.max_context
    is_longer = longest is not None and request.workload.context > longest
    # an engine that wrote a log was not refused for it
    if is_longer and find_engine(log.engine).long_context_variable:
        request = request.with_engine_args(allow_long_max_model_len=True)
    asked = request
    request, by_size = _with_logged_sizes(asked, log)
    comparison = compare(request, log)
    request = request.with_engine_args(**comparison.inferred)
    diagnosis = diagnose(request, log, comparison.memory, comparison.checks, named)
    if diagnosis and diagnosis.cause != "other_model":
        noted = diagnosis._replace(notes=(*by_size, *diagnosis.notes))
        diagnosis = _with_context(noted, request, asked.workload.context)
    answer = Answer.to(comparison.request)
    resolved = answer.resolved
    if request.gpu:
        resolved = resolve(request)
    given = _Given(
        log.settings.get("gpu_memory_utilization"),
        _dtype_of_checkpoint(request, asked, log, named),
        log.within is not None,
        resolved,
    )
    other_model = ""
    if diagnosis is None and not comparison.agrees:
        other_model = named_otherwise(request.model, log, named)
    load = None
    if diagnosis is None and not other_model:
        tokens = int(answer.result.pool.tokens)
        printed = log.logged.get("kv_tokens")
        if printed and printed.number and not comparison.agrees:
            tokens = int(printed.number)
        load = load_state(request, log, comparison.memory, tokens)
    return _Reading(log, request, comparison, answer, diagnosis, other_model, load, given)


def _dtype_of_checkpoint(
    request: FitRequest, asked: FitRequest, log: StartupLog, named: ModelSpec | None
) -> str | None:
    """Return the dtype of the log's checkpoint, which needs no option; None if it is not known.

    A folder has a checkpoint of the dtype that its size shows; a repository with a preset's name is
    as released.
    """
    is_by_size = request.weights_dtype != asked.weights_dtype
    if is_by_size and log.served and (named is None or log.served.startswith(("/", ".", "~"))):
        return request.weights_dtype
    return log.checkpoint_dtype


def _refusal_on_one_screen(report: Report, diagnosis: Diagnosis, given: _Given) -> Report:
    """Return the report with as many changes as a screen has room for, and at least with the
    first.
    """
    forms = (Form(tuple(_changes(diagnosis, given, most))) for most in range(_MOST_CHANGES, 0, -1))
    notes = Form(notes=(*diagnosis.notes, _CHANGES_IN_FULL))
    return on_one_screen(report, [forms, [notes]])


def _cache_in_full(n_notes: int) -> str:
    """Return what --full adds: the cache, and so many notes."""
    if n_notes:
        return f"--full adds the cache, its blocks and {plural(n_notes, 'note')}."
    return "--full adds the cache and its blocks."


def _fitting(answer: Answer, *, full: bool) -> Section:
    """Return what fits beside the log's figures: the users that were asked for, and all notes; if
    `full`, also the cache.
    """
    users = users_section([answer])
    notes = (*fit_notes(answer), *users.notes)
    if not full:
        return users._replace(notes=notes)
    figures = answer_figures(answer)
    cache = cache_tables(answer, figures, detail_figures(answer.result, figures))
    return users._replace(tables=(*users.tables, *cache), notes=notes)


def _with_logged_sizes(asked: FitRequest, log: StartupLog) -> tuple[FitRequest, tuple[str, ...]]:
    """Return the request with the weights' dtype and the context that sizes in the log show, and a
    note about each.
    """
    logged = log.settings.get("context")
    # its figures are of the log's context
    if log.refusal and log.refusal.kind == "too_small" and logged:
        asked = asked.with_workload(context=int(logged))
    by_weights = with_logged_weights(asked, log)
    request = with_failed_cache(by_weights, log)
    notes = []
    if by_weights is not asked:
        in_dtype = f"Weights in {request.weights_dtype}: by their size in the log."
        if "tp" in log.settings:
            notes.append(f"{in_dtype} --weights-dtype sets another.")
        else:
            notes.append(
                f"{in_dtype} --weights-dtype, or --tp if the log is of one of several GPUs, sets "
                "another."
            )
    if request is not by_weights:
        tokens = count(request.workload.context)
        notes.append(
            f"Context {tokens}: by the size of the cache that did not fit. --context sets another."
        )
    return request, tuple(notes)


def _with_context(diagnosis: Diagnosis, request: FitRequest, context: int) -> Diagnosis:
    """Return the diagnosis with the shorter context of an option as the first change, if the logged
    memory holds it.
    """
    if context >= request.workload.context or not diagnosis.available:
        return diagnosis
    result = fit(without_gpu(request.with_workload(context=context), diagnosis.available))
    if result.verdict != "fits":
        return diagnosis._replace(
            notes=(*diagnosis.notes, f"With --context {context} it does not start either.")
        )
    change = Suggestion(f"{count(context)} tokens of context", f"--context {context}", result)
    return diagnosis._replace(changes=(change, *diagnosis.changes), advice=())


def _heading(read: _Reading, *, full: bool) -> tuple[str, ...]:
    """Return the heading. That of a start that failed has the request's GPUs, and without `full` it
    lacks the attention if that takes several lines.
    """
    if read.diagnosis is None:
        return model_heading(read.answer.result)
    request = read.request
    resolved = read.given.resolved
    gpus = hardware(resolved)
    if request.gpu is None and read.log.devices > 1:
        gpus = f"{read.log.devices} GPUs"
    first, *others = heading(
        request.model, f"{resolved.engine.title} on {gpus}", *request_facts(resolved)
    )
    if len(first) > WIDTH and not full:
        first = request.model.title
    version = ", ".join(read.answer.result.layout.facts)
    if version:
        others.append(version)
    return (first, *others)


def refusal_report(log: StartupLog, gpu: Gpu | None, reason: str) -> Report:
    """Return why a start failed by its log alone: without a model nothing of it is computed.

    `reason` is why there is no model, as a sentence.
    """
    diagnosis = diagnose_alone(log, gpu)
    refusal = log.refusal
    assert refusal is not None
    what = "start-up log without a model"
    if log.model:
        what = f"start-up log of '{truncate(log.model)}'"
    elif refusal.cause or refusal.program:
        what = "message"
    is_well = diagnosis.cause == "no_failure"
    notes = tuple(_refusal_notes(diagnosis, log, refusal, reason))
    facts = {
        "fits": is_well,
        "agrees": is_well,
        "engine": log.engine,
        "engine_version": log.version,
    }
    return Report(
        "diagnosis",
        (f"{_label(diagnosis, log)}: {diagnosis.reason}", f"{_program(log, refusal)}  {what}"),
        {},
        {},
        (),
        tables=(_advice_table(diagnosis),) if diagnosis.advice else (),
        notes=notes,
        verdict="fits" if is_well else "does_not_fit",
        extra={**facts, "gpu": gpu and gpu.name, "refusal": _refusal_facts(diagnosis, log)},
        shown_notes=notes,
    )


def _program(log: StartupLog, refusal: LogRefusal) -> str:
    """Return what wrote the log: 'Ollama (llama.cpp)', 'vLLM 0.11.0', or 'PyTorch'."""
    engine = find_engine(log.engine)
    if log.within:
        return f"{log.within.title} ({engine.title})"
    if refusal.program:
        return refusal.program
    if log.version:
        return f"{engine.title} {log.version}"
    return engine.title


def _refusal_notes(
    diagnosis: Diagnosis, log: StartupLog, refusal: LogRefusal, reason: str
) -> Iterator[str]:
    """Yield which engine is assumed, why there is no model, and what can be computed with one."""
    if log.is_assumed and refusal.program == PYTORCH:
        yield (
            "No line names a server: if one printed it, --engine vllm or --engine sglang has its "
            "options."
        )
    elif log.is_assumed and not (log.within or refusal.program):
        title = find_engine(log.engine).title
        yield f"No line names the engine: {title} is assumed; --engine names another."
    if refusal.cause or refusal.program:
        if refusal.tokens:
            yield _OF_REQUEST
        return
    yield reason
    only = "Only the log was read: 'attncalc fit MODEL --log FILE --gpu GPU' computes"
    if diagnosis.cause in ("cache_full", "requests_limited"):
        yield (
            f"{only} the tokens per request and what fits, if the log has the lines of the start "
            "too."
        )
    else:
        yield f"{only} which changes start, and how many requests then fit."


def _advice_table(diagnosis: Diagnosis) -> Table:
    title = "Change, or add to the command:"
    if diagnosis.cause in ("log_ends", "no_failure"):
        title = "Next:"
    texts = [title]
    for advice in diagnosis.advice:
        if advice.option:
            texts.append(f"{advice.option}: {advice.change}")
        else:
            texts.append(advice.change)
    return lines_table(texts)


def _refusal_facts(diagnosis: Diagnosis, log: StartupLog) -> dict[str, Any]:
    names = ("cause", "message", "reason", "needed", "available", "missing")
    facts = {name: getattr(diagnosis, name) for name in names}
    advice = [advice._asdict() for advice in diagnosis.advice]
    return {"kind": log.refusal.kind if log.refusal else None, **facts, "advice": advice}


def _facts(read: _Reading) -> dict[str, Any]:
    """Return the keys of JSON that only a log has."""
    comparison = read.comparison
    diagnosis = read.diagnosis
    load = None
    if read.load and read.load.load:
        load = _load_facts(read.load.load, read.load)
    facts = {
        "agrees": comparison.agrees and not comparison.misses,
        "checks": [check.facts() for check in comparison.checks],
        "estimates": [
            {**estimate._asdict(), "inside": estimate.inside} for estimate in comparison.estimates
        ],
        "suggestions": [],
        "load": load,
    }
    if diagnosis is None:
        return facts
    return {
        **facts,
        "agrees": diagnosis.cause == "no_failure",
        "suggestions": changes_facts(diagnosis.changes, partial(_command, given=read.given)),
        "fits": False,
        "verdict": "does_not_fit",
        "summary": diagnosis.reason,
        "refusal": _refusal_facts(diagnosis, read.log),
    }


def _label(diagnosis: Diagnosis, log: StartupLog) -> str:
    """Return what became of the engine, as the first words of the screen."""
    refusal = log.refusal
    if refusal and refusal.cause:
        return _LABELS.get(diagnosis.cause, _NOT_STARTED)
    if refusal is None:
        return _NOT_STARTED
    return _label_of_refusal(refusal, log)


def _label_of_refusal(refusal: LogRefusal, log: StartupLog) -> str:
    if refusal.kind == "overloaded":
        return "LOAD"
    if refusal.kind == "unfinished" and refusal.where != "other":
        return "NO RESULT"
    had_started = refusal.where in ("serving", "requests", "tokens", "killed")
    if had_started or (refusal.where == "other" and log.logged):
        return "STOPPED"
    # a message alone does not say whether the server had started
    is_alone = not log.logged and not log.budget.keys() - {"gpu_memory"}
    if is_alone and refusal.kind == "out_of_memory" and refusal.where in ("", "rest"):
        return "OUT OF MEMORY"
    return _NOT_STARTED


def _verdict(comparison: LogComparison, other_model: str) -> str:
    if other_model:
        return f"DIFFERS: {other_model}"
    if not comparison.checks:
        return "NOTHING TO COMPARE: the log has no figures of the cache."
    if comparison.misses and comparison.agrees:
        place = _place(comparison.misses)
        return (
            f"DIFFERS: the KV memory is {place} the estimate. Check --gpu, --tp and "
            "--weights-dtype."
        )
    if comparison.agrees:
        return "AGREES: all figures are within the log's rounding."
    return "DIFFERS: see the figures below."


def _load_facts(load: Load, state: LoadState) -> dict[str, Any]:
    """Return the keys of JSON about the load. A change has no command: it keeps the server's own
    context.
    """
    changes = [{**change, "launch_command": None} for change in changes_facts(state.changes)]
    return {
        **load._asdict(),
        "tokens_per_request": state.tokens_per_request,
        "requests_that_fit": state.fitting,
        "suggestions": changes,
    }


def _load_sentences(state: LoadState, engine: str) -> list[str]:
    """Return the load of an engine in words."""
    texts = []
    load = state.load
    tokens = f"{count(state.tokens_per_request)} tokens"
    if load:
        tokens = f"about {tokens}"
    held = count(state.fitting)
    if state.fitting < state.requests:
        held = f"{held} of {count(state.requests)}"
    if state.longest:
        part = state.longest / state.tokens_per_request
        texts.append(
            f"DOES NOT FIT: {part:.2f} x of one request of {tokens}. More than "
            f"{count(state.longest)} are refused."
        )
    elif state.is_asked:
        verdict = "DOES NOT FIT" if state.fitting < state.requests else "FITS"
        texts.append(f"{verdict}: the logged memory holds {held} requests of {tokens}.")
    if load is None:
        return texts
    of_load = f"LOAD: {requests_in_words(load)}: {tokens} per request."
    if not state.is_asked:
        of_load = f"{of_load} The cache holds {held} such requests."
    texts.append(of_load)
    if load.preempted:
        words = preemptions_in_words(load, engine)
        texts.append(f"{words[0].upper()}{words[1:]}.")
    if load.waiting and not load.is_full:
        texts.append(
            "The cache is not full: the limit of running requests is reached "
            f"({find_engine(engine).running_option}), or prompts are still computed."
        )
    return texts


def _load_changes(state: LoadState) -> Iterator[Table]:
    """Yield the changes with which the cache holds all requests, if it does not hold them now."""
    load = state.load
    is_too_much = load is not None and load.waiting and load.is_full
    if state.fitting >= state.requests or not (state.is_asked or is_too_much):
        return
    rows = []
    for change in state.changes:
        concurrency = change.result.pool.concurrency
        if state.longest:
            rows.append((change.flag, times(concurrency, 2)))
        else:
            in_all = int(concurrency) * change.result.resolved.replicas
            rows.append((change.flag, count(in_all)))
    if not rows:
        rows.append(("no change that was tried", ""))
    header = _REQUESTS if state.longest else f"of {count(state.requests)} run"
    yield Table((Column("change", "left"), Column(header)), tuple(rows))


def _changes(diagnosis: Diagnosis, given: _Given, most: int | None = None) -> list[Table]:
    """Return the table of the changes with which the engine would start, and their commands.

    `most` is the most changes, with the command of the first; None for all, each with its command.
    """
    if diagnosis.advice:
        return [_advice_table(diagnosis)]
    if diagnosis.cause in ("other_model", "other_error"):
        return []
    if not diagnosis.changes and diagnosis.tried:
        tried = diagnosis.tried
        text = f"No change that was computed makes it start, alone or combined: {tried}."
        return [lines_table([text])]
    if not diagnosis.changes:
        return [lines_table(["No change was computed."])]
    changes = diagnosis.changes[:most]
    tables = [_changes_table(changes, given)]
    for change in changes:
        command = _command(change.result.resolved, given)
        if command is None:
            continue
        which = "it"
        if len(changes) > 1:
            which = _typed(change, given)
        tables += command_table(command, f"with {which}:")
        if most is not None:
            break
    return tables


def _changes_table(changes: Sequence[Suggestion], given: _Given) -> Table:
    """Return each change, in several lines if it is long, and what then fits."""
    rows = []
    for change in changes:
        first, *others = wrapped(_typed(change, given), "  ", WIDTH - len(_REQUESTS) - 4)
        longest = change.result.longest_request
        if longest:
            rows.append((first, f"up to {count(longest)} tokens"))
        else:
            rows.append((first, times(change.result.pool.concurrency, 2)))
        rows += [(line, "") for line in others]
    return Table((Column("starts with", "left"), Column(_REQUESTS)), tuple(rows))


def _typed(change: Suggestion, given: _Given) -> str:
    """Return a change as it is typed in the engine's command, as '--kv-cache-dtype fp8'; of
    attncalc without one.
    """
    words = change.flag or change.change
    before = _command(given.resolved, given)
    after = _command(change.result.resolved, given)
    if not before or not after:
        return words
    options = _options(before)
    own = [option for option in _options(after) if option not in options]
    if own and not own[0].startswith("-"):
        own[0] = own[0].split()[-1]  # the model alone
    return " ".join(own) or words


def _options(command: str) -> list[str]:
    """Return the program with its arguments, then each option with its value."""
    return re.split(" (?=-)", command)


def _command(resolved: ResolvedRequest, given: _Given) -> str | None:
    """Return the command that starts the engine, or None.

    The memory that the log has for the cache is no argument of it.
    """
    if given.is_within:
        return None
    request = dataclasses.replace(resolved.request, kv_memory=None)
    if request.gpu is None and given.share:
        request = dataclasses.replace(request, gpu_memory_utilization=given.share)
    if given.weights_dtype and request.weights_dtype == given.weights_dtype:
        request = dataclasses.replace(request, weights_dtype=None)
    return launch_command(resolved._replace(request=request))


def _compared_tables(comparison: LogComparison) -> Iterator[Table]:
    """Yield the figures of the cache, then the estimates, each beside what the log has."""
    if comparison.checks:
        yield _checks_table(comparison)
    if comparison.estimates:
        yield _estimates_table(comparison.estimates)


def _checks_table(comparison: LogComparison) -> Table:
    source = ""
    if comparison.memory:
        source = "\n".join(wrapped(f"from {comparison.memory.source}", "", WIDTH // 2 - 4))
    cells = [
        (
            check.label,
            _cell(check, check.predicted),
            _cell(check, check.measured),
            _agreement(check),
        )
        for check in comparison.checks
    ]
    return _compared(source, cells)


def _compared(header: str, rows: list[tuple[str, str, str, str]]) -> Table:
    columns = (
        LABEL._replace(header=header),
        Column("predicted"),
        Column("logged"),
        Column("", "left"),
    )
    return Table(columns, tuple(rows))


def _cell(check: Check, value: int | float) -> str:
    if check.unit == BYTES:
        return human(int(value), BYTES)
    if check.name == "concurrency":
        return f"{value:,.2f}"
    return count(int(value))


def _agreement(check: Check) -> str:
    if not check.ok:
        return f"differs by {_cell(check, abs(check.difference))}"
    is_exact = check.unit == BYTES or not check.tolerance
    if is_exact:
        return "agrees"
    return f"agrees, within {_cell(check, check.tolerance)}"


def _estimates_table(estimates: tuple[Estimate, ...]) -> Table:
    cells = [
        (
            estimate.label,
            precise_range(estimate.low, estimate.high) or human(estimate.expected, BYTES),
            human(max(0, estimate.logged), BYTES),
            _place(estimate),
        )
        for estimate in estimates
    ]
    return _compared("estimates", cells)


def _place(estimate: Estimate) -> str:
    """Return where the logged size is: an estimate is not wrong inside its range."""
    if estimate.inside:
        return "in the range"
    size = human(abs(estimate.outside), BYTES)
    if estimate.outside > 0:
        return f"{size} above"
    return f"{size} below"


def _notes(
    comparison: LogComparison, resolved: ResolvedRequest, log: StartupLog
) -> Iterator[tuple[str, int]]:
    """Yield each note with its rank: _NOTES or _ADVICE."""
    if comparison.memory and comparison.memory.missing:
        missing = comparison.memory.missing
        yield (
            f"The log has no line '{missing}': the states are not compared. Their memory is the "
            "predicted one.",
            _NOTES,
        )
    if comparison.guessed:
        for note in _version_notes(comparison, resolved.args.engine_version, log):
            yield note, _NOTES
    if log.starts > 1:
        number = str(log.starts)
        if log.starts > REPEATED:
            number = f"more than {REPEATED}"
        yield f"The log has {number} starts: the last is compared.", _NOTES
    if any(estimate.name == "weights" and not estimate.inside for estimate in comparison.estimates):
        yield (
            "The log's weights are of another size than estimated: --weights-dtype sets the "
            "dtype of a quantized checkpoint; encoders and padding may not be counted.",
            _ADVICE,
        )
    if comparison.agrees:
        return
    title = resolved.request.model.title
    if log.model not in (None, title):
        other = f"The log is of '{truncate(log.model)}', and the prediction of {title}."
        yield other, _ADVICE
    if 0 < len(log.available) < resolved.devices:
        yield (
            "The log has the memory of one rank; the rank with the least memory limits the blocks.",
            _NOTES,
        )
    yield "If the log lacks an argument, give it as an option; options override the log.", _ADVICE


def _version_notes(
    comparison: LogComparison, version: str | None, log: StartupLog
) -> Iterator[str]:
    """Yield which version is assumed of a log without one."""
    without = "The log has no version"
    if not comparison.checks:
        if log.releases:
            yield f"{without}: {version} is the newest whose lines it may have."
    elif not comparison.agrees:
        yield (
            f"{without}: no known one agrees, so the newest, {version}, is compared; "
            "--engine-version sets another."
        )
    elif log.releases:
        yield f"{without}: by its lines, {version} is the newest with which all figures agree."
    else:
        yield f"{without}: {version} is the newest with which all figures agree."
