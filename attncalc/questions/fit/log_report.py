"""The report of `attncalc fit --log`: a start-up log beside the prediction, and why the engine did
not start.
"""

from __future__ import annotations

import dataclasses
import re
from functools import partial
from typing import Any

from ...check import Check
from ...engines import find_engine
from ...hardware import Gpu
from ...logs.cause import Diagnosis, diagnose_alone, requests_in_words
from ...logs.comparison import (
    Estimate,
    LogComparison,
    compare,
    with_failed_cache,
    with_logged_weights,
    without_gpu,
)
from ...logs.doctor import NAME_THE_LOGS_MODEL, LoadState, diagnose, load_state, named_otherwise
from ...logs.messages import PYTORCH
from ...logs.startup_log import REPEATED, Load, StartupLog
from ...model import ModelSpec, plural
from ...records import NamedTuple
from ...serving.answer import Answer
from ...serving.fit import fit
from ...serving.launch import launch_command
from ...serving.request import FitRequest, ResolvedRequest, resolve
from ...serving.suggestions import Suggestion
from ...show.lists import WIDTH, wrapped
from ...show.notes import is_decisive
from ...show.report import LABEL, Column, Report, Section, Table, heading, times
from ...show.request import command_table, request_facts
from ...show.text import first_that_fits
from ...show.users import users_section
from ...units import BYTES, count, human, truncate
from .facts import changes_facts
from .figures import answer_figures, detail_figures
from .notes import fit_notes
from .report import answer_report, hardware, model_heading
from .tables import cache_tables, lines_table, precise_range

_REQUESTS = "concurrent requests"
_REST = "--full adds the figures of the log, the cache and notes."
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
# Changes on the screen without --full, if there is room.
_MOST_CHANGES = 7


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
    is_longer = request.workload.context > (request.model.max_context or request.workload.context)
    # an engine that wrote a log was not refused for it
    if is_longer and find_engine(log.engine).long_context_variable:
        request = request.with_engine_args(allow_long_max_model_len=True)
    asked, (request, by_size) = request, _with_logged_sizes(request, log)
    comparison = compare(request, log)
    request = request.with_engine_args(**comparison.inferred)
    # a folder has a checkpoint of that dtype; a repository with a preset's name is as released
    is_by_size = request.weights_dtype != asked.weights_dtype
    is_stored = (
        is_by_size and log.served and (named is None or log.served.startswith(("/", ".", "~")))
    )
    weights_dtype = request.weights_dtype if is_stored else log.checkpoint_dtype
    share = log.settings.get("gpu_memory_utilization")
    diagnosis = diagnose(request, log, comparison.memory, comparison.checks, named)
    if diagnosis and diagnosis.cause != "other_model":
        noted = diagnosis._replace(notes=(*by_size, *diagnosis.notes))
        diagnosis = _with_context(noted, request, asked.workload.context)
    answer = Answer.to(comparison.request)
    resolved = resolve(request) if request.gpu else answer.resolved
    given = _Given(share, weights_dtype, log.within is not None, resolved)
    other_model = (
        "" if diagnosis or comparison.agrees else named_otherwise(request.model, log, named)
    )
    printed = None if comparison.agrees else log.logged.get("kv_tokens")
    tokens = (printed and printed.number) or answer.result.pool.tokens
    load = (
        None
        if diagnosis or other_model
        else load_state(request, log, comparison.memory, int(tokens))
    )
    report, notes = answer_report(answer), _notes(comparison, answer.resolved, log)
    verdict = _why(diagnosis, log) if diagnosis else _verdict(comparison, other_model)
    tables = [lines_table([verdict])]
    is_waiting = (
        load and (load.load is None or load.load.waiting) and comparison.agrees and not full
    )
    shown: tuple[str, ...] | None = (_REST,) if is_waiting else None
    if diagnosis and full:
        tables += _changes(diagnosis, given)
    elif diagnosis:
        shown = (
            *diagnosis.notes,
            "--full adds the figures of the log, all changes with their commands and notes.",
        )
    if load:
        tables = [*_load_tables(load, answer.resolved.engine.running_option), *tables]
    if comparison.checks and shown is None:
        tables.append(_checks_table(comparison))
    if comparison.estimates and shown is None:
        tables.append(_estimates_table(comparison.estimates))
    if other_model:
        shown = (NAME_THE_LOGS_MODEL,)
    elif diagnosis is None and not is_waiting:
        fitting = _fitting(answer, full=full)
        tables += fitting.tables
        shown = tuple(dict.fromkeys((*notes, *fitting.notes)))
    head = (
        model_heading(answer.result)
        if diagnosis is None
        else _heading(request, answer, log, full=full)
    )
    words, *others = tables
    (first,), *rest = words.rows
    report = report._replace(
        heading=(first, *head),
        verdict="does_not_fit"
        if diagnosis or not comparison.agrees
        else "may_not_fit"
        if is_waiting
        else "fits",
        shown_notes=shown,
        tables=(*([words._replace(rows=tuple(rest))] if rest else []), *others),
        notes=(*diagnosis.notes, *notes) if diagnosis else (*notes, *report.notes),
        checks=comparison.checks,
        extra={**report.extra, **_facts(comparison, diagnosis, load, log, given)},
        footer=(),  # the log has the engine's own lines
    )
    return report if diagnosis is None or full else _within_a_screen(report, diagnosis, given)


def _fitting(answer: Answer, *, full: bool) -> Section:
    """Return what fits beside the log's figures: the users that were asked for; if `full`, also the
    cache and notes.
    """
    users = users_section([answer])
    figures = answer_figures(answer)
    notes = (*fit_notes(answer), *users.notes)
    if not full:
        return users._replace(
            notes=(*filter(is_decisive, notes), "--full adds the cache, its blocks and notes.")
        )
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
        if "tp" in log.settings:
            of_ranks = ""
        else:
            of_ranks = ", or --tp if the log is of one of several GPUs,"
        dtype = request.weights_dtype
        notes.append(
            f"Weights in {dtype}: by their size in the log. --weights-dtype{of_ranks} sets another."
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


def _within_a_screen(report: Report, diagnosis: Diagnosis, given: _Given) -> Report:
    """Return the report with as many changes as a screen has room for, and at least with the
    first.
    """
    changes = (_changes(diagnosis, given, most) for most in range(_MOST_CHANGES, 0, -1))
    return first_that_fits(report._replace(tables=(*report.tables, *tables)) for tables in changes)


def _heading(
    request: FitRequest, answer: Answer, log: StartupLog, *, full: bool
) -> tuple[str, ...]:
    """Return the heading with the request's GPUs. The short one lacks the attention if that takes
    several lines.
    """
    resolved = resolve(request) if request.gpu else answer.resolved
    if request.gpu or log.devices < 2:
        gpus = hardware(resolved)
    else:
        gpus = f"{log.devices} GPUs"
    first, *others = heading(
        request.model, f"{resolved.engine.title} on {gpus}", *request_facts(resolved)
    )
    version = ", ".join(answer.result.layout.facts)
    return (
        first if full or len(first) <= WIDTH else request.model.title,
        *others,
        *filter(None, (version,)),
    )


def refusal_report(log: StartupLog, gpu: Gpu | None, reason: str) -> Report:
    """Return why a start failed by its log alone: without a model nothing of it is computed.

    `reason` is why there is no model, as a sentence.
    """
    engine = find_engine(log.engine)
    diagnosis = diagnose_alone(log, gpu)
    refusal = log.refusal
    assert refusal is not None
    stated = refusal.cause or refusal.program
    of = f"of '{truncate(log.model)}'" if log.model else "without a model"
    if log.within:
        name = f"{log.within.title} ({engine.title})"
    else:
        name = " ".join(filter(None, (engine.title, log.version)))
    if refusal.program and not log.within:
        name = refusal.program
    what = "message" if stated and not log.model else f"start-up log {of}"
    computed = "which changes start, and how many requests then fit."
    if diagnosis.cause in ("cache_full", "requests_limited"):
        computed = (
            "the tokens per request and what fits, if the log has the lines of the start too."
        )
    notes = [
        reason,
        f"Only the log was read: 'attncalc fit MODEL --log FILE --gpu GPU' computes {computed}",
    ]
    if stated:
        notes = [_OF_REQUEST] if refusal.tokens else []
    if log.is_assumed and refusal.program == PYTORCH:
        notes.insert(
            0,
            "No line names a server: if one printed it, --engine vllm or --engine sglang has its "
            "options.",
        )
    elif log.is_assumed and not (log.within or refusal.program):
        notes.insert(
            0, f"No line names the engine: {engine.title} is assumed; --engine names another."
        )
    is_well = diagnosis.cause == "no_failure"
    facts = {
        "fits": is_well,
        "agrees": is_well,
        "engine": log.engine,
        "engine_version": log.version,
    }
    return Report(
        "diagnosis",
        (_why(diagnosis, log), f"{name}  {what}"),
        {},
        {},
        (),
        tables=(_advice_table(diagnosis),) if diagnosis.advice else (),
        notes=tuple(notes),
        verdict="fits" if is_well else "does_not_fit",
        extra={**facts, "gpu": gpu and gpu.name, "refusal": _refusal_facts(diagnosis, log)},
        shown_notes=tuple(notes),
    )


def _advice_table(diagnosis: Diagnosis) -> Table:
    texts = [
        f"{each.option}: {each.change}" if each.option else each.change for each in diagnosis.advice
    ]
    if diagnosis.cause in ("log_ends", "no_failure"):
        title = "Next:"
    else:
        title = "Change, or add to the command:"
    return lines_table([title, *texts])


def _refusal_facts(diagnosis: Diagnosis, log: StartupLog) -> dict[str, Any]:
    names = ("cause", "message", "reason", "needed", "available", "missing")
    facts = {name: getattr(diagnosis, name) for name in names}
    advice = [advice._asdict() for advice in diagnosis.advice]
    return {"kind": log.refusal.kind if log.refusal else None, **facts, "advice": advice}


def _facts(
    comparison: LogComparison,
    diagnosis: Diagnosis | None,
    load: LoadState | None,
    log: StartupLog,
    given: _Given,
) -> dict[str, Any]:
    """Return the keys of JSON that only a log has."""
    facts = {
        "agrees": comparison.agrees and not comparison.misses
        if diagnosis is None
        else diagnosis.cause == "no_failure",
        "checks": [check.facts() for check in comparison.checks],
        "estimates": [
            {**estimate._asdict(), "inside": estimate.inside} for estimate in comparison.estimates
        ],
        "suggestions": changes_facts(diagnosis.changes, partial(_command, given=given))
        if diagnosis
        else [],
        "load": load and load.load and _load_facts(load.load, load),
    }
    if diagnosis is None:
        return facts
    refusal = _refusal_facts(diagnosis, log)
    return {
        **facts,
        "fits": False,
        "verdict": "does_not_fit",
        "summary": diagnosis.reason,
        "refusal": refusal,
    }


def _why(diagnosis: Diagnosis, log: StartupLog) -> str:
    kind, where = (log.refusal.kind, log.refusal.where) if log.refusal else ("", "")
    # a message alone does not say whether the server had started
    printed = (log.logged, log.budget.keys() - {"gpu_memory"})
    label = "DID NOT START"
    if log.refusal and log.refusal.cause:
        label = _LABELS.get(diagnosis.cause, label)
    elif kind == "overloaded":
        label = "LOAD"
    elif kind == "unfinished" and where != "other":
        label = "NO RESULT"
    elif where in ("serving", "requests", "tokens", "killed") or (where == "other" and log.logged):
        label = "STOPPED"
    elif kind == "out_of_memory" and where in ("", "rest") and not any(printed):
        label = "OUT OF MEMORY"
    return f"{label}: {diagnosis.reason}"


def _verdict(comparison: LogComparison, other_model: str) -> str:
    if other_model:
        return f"DIFFERS: {other_model}"
    if not comparison.checks:
        return "NOTHING TO COMPARE: the log has no figures of the cache."
    if comparison.agrees and (memory := comparison.misses):
        return (
            f"DIFFERS: the KV memory is {_place(memory)} the estimate. Check --gpu, --tp and "
            "--weights-dtype."
        )
    agrees = "AGREES: all figures are within the log's rounding."
    if comparison.agrees:
        return agrees
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


def _load_tables(state: LoadState, running_option: str) -> list[Table]:
    """Return the load in words, and the changes with which the cache holds all requests.

    `running_option` is the engine's that limits the running requests.
    """
    load = state.load
    texts = list[str]()
    tokens = f"{'about ' if load else ''}{count(state.tokens_per_request)} tokens"
    if state.fitting < state.requests:
        verdict, of = ("DOES NOT FIT", f" of {count(state.requests)}")
    else:
        verdict, of = ("FITS", "")
    if state.longest:
        part = f"{state.longest / state.tokens_per_request:.2f} x"
        texts.append(
            f"DOES NOT FIT: {part} of one request of {tokens}. More than {count(state.longest)} "
            "are refused."
        )
    elif state.is_asked:
        texts.append(
            f"{verdict}: the logged memory holds {count(state.fitting)}{of} requests of {tokens}."
        )
    if load:
        if state.is_asked:
            holds = ""
        else:
            holds = f" The cache holds {count(state.fitting)}{of} such requests."
        texts.append(f"LOAD: {requests_in_words(load)}: {tokens} per request.{holds}")
    if load and load.preempted:
        texts.append(
            "Running requests lost their cache and are computed again "
            f"({plural(load.preempted, 'line')})."
        )
    if load and load.waiting and not load.is_full:
        texts.append(
            "The cache is not full: the limit of running requests is reached "
            f"({running_option}), or prompts are still computed."
        )
    tables = [lines_table(texts)]
    if state.fitting < state.requests and (
        state.is_asked or (load and load.waiting and load.is_full)
    ):
        columns = (
            Column("change", "left"),
            Column(_REQUESTS if state.longest else f"of {count(state.requests)} run"),
        )
        results = [
            (change.flag, change.result.pool.concurrency, change.result.resolved)
            for change in state.changes
        ]
        rows = tuple(
            (flag, times(each, 2) if state.longest else count(int(each) * resolved.replicas))
            for flag, each, resolved in results
        )
        tables.append(Table(columns, rows or (("no change that was tried", ""),)))
    return tables


class _Given(NamedTuple):
    """What the engine was started with, which a command must not change."""

    # the share in the log, with which it had its memory; a request without a GPU has none
    share: str | None
    # the dtype of the log's checkpoint, by its name or its size: it needs no option
    weights_dtype: str | None
    is_within: bool  # whether another program started it: then no command of the engine starts it
    resolved: ResolvedRequest  # by the log and the options


def _changes(diagnosis: Diagnosis, given: _Given, most: int | None = None) -> list[Table]:
    """Return the table of the changes with which the engine would start, and their commands.

    `most` is the most changes, with the command of the first; None for all, each with its command.
    """
    if diagnosis.advice:
        return [_advice_table(diagnosis)]
    if diagnosis.cause in ("other_model", "other_error"):
        return []
    if not diagnosis.changes:
        text = "No change was computed."
        if diagnosis.tried:
            text = (
                f"No change that was computed makes it start, alone or combined: {diagnosis.tried}."
            )
        return [lines_table([text])]
    changes = diagnosis.changes[:most]
    rows = []
    for change in changes:
        first, *others = wrapped(_typed(change, given), "  ", WIDTH - len(_REQUESTS) - 4)
        longest = change.result.longest_request
        if longest:
            room = f"up to {count(longest)} tokens"
        else:
            room = times(change.result.pool.concurrency, 2)
        rows += [(first, room), *((line, "") for line in others)]
    tables = [Table((Column("starts with", "left"), Column(_REQUESTS)), tuple(rows))]
    commands = [
        (change, command)
        for change in changes
        if (command := _command(change.result.resolved, given))
    ]
    for change, command in commands if most is None else commands[:1]:
        which = _typed(change, given) if len(changes) > 1 else "it"
        tables += command_table(command, f"with {which}:")
    return tables


def _typed(change: Suggestion, given: _Given) -> str:
    """Return a change as it is typed in the engine's command, as '--kv-cache-dtype fp8'; of
    attncalc without one.
    """
    before, after = (_command(one, given) for one in (given.resolved, change.result.resolved))
    options = [re.split(" (?=-)", command or "") for command in (before, after)]
    if before and after:
        own = [option for option in options[1] if option not in options[0]]
    else:
        own = []
    # the model alone
    if own:
        own[:1] = [own[0] if own[0].startswith("-") else own[0].split()[-1]]
    else:
        own[:1] = []
    return " ".join(own) or change.flag or change.change


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


def _checks_table(comparison: LogComparison) -> Table:
    memory = comparison.memory
    if memory:
        source = "\n".join(wrapped(f"from {memory.source}", "", WIDTH // 2 - 4))
    else:
        source = ""
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
    return f"{human(abs(estimate.outside), BYTES)} {'above' if estimate.outside > 0 else 'below'}"


def _notes(comparison: LogComparison, resolved: ResolvedRequest, log: StartupLog) -> list[str]:
    notes = []
    version = resolved.args.engine_version
    if comparison.memory and comparison.memory.missing:
        notes.append(
            f"The log has no line '{comparison.memory.missing}': the states are not compared. "
            "Their memory is the predicted one."
        )
    if comparison.guessed and log.releases and not comparison.checks:
        notes.append(f"The log has no version: {version} is the newest whose lines it may have.")
    elif comparison.guessed and comparison.checks:
        if comparison.agrees:
            by_lines = "by its lines, " if log.releases else ""
            notes.append(
                f"The log has no version: {by_lines}{version} is the newest with which all "
                "figures agree."
            )
        else:
            notes.append(
                f"The log has no version: no known one agrees, so the newest, {version}, is "
                "compared; --engine-version sets another."
            )
    if log.starts > 1:
        number = f"more than {REPEATED}" if log.starts > REPEATED else log.starts
        notes.append(f"The log has {number} starts: the last is compared.")
    if any(estimate.name == "weights" and not estimate.inside for estimate in comparison.estimates):
        notes.append(
            "The log's weights are of another size than estimated: --weights-dtype sets the "
            "dtype of a quantized checkpoint; encoders and padding may not be counted."
        )
    if comparison.agrees:
        return notes
    if log.model not in (None, title := resolved.request.model.title):
        notes.append(f"The log is of '{truncate(log.model)}', and the prediction of {title}.")
    if 0 < len(log.available) < resolved.devices:
        notes.append(
            "The log has the memory of one rank; the rank with the least memory limits the blocks."
        )
    return [*notes, "If the log lacks an argument, give it as an option; options override the log."]
