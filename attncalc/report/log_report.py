"""The report of `attncalc fit --log`: a start-up log beside the prediction, and why the engine did not start."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..check import Check
from ..engines import find_engine
from ..engines.startup_log import StartupLog
from ..model import plural
from ..serving.answer import Answer
from ..serving.launch import launch_command
from ..serving.log_check import Estimate, LogComparison, compare
from ..serving.log_doctor import Diagnosis, diagnose
from ..serving.log_load import LoadState, load_state
from ..serving.request import FitRequest, ResolvedRequest
from ..units import BYTES, count, human
from .fit import answer_report, model_heading
from .fit_facts import changes_facts
from .fit_figures import answer_figures, detail_figures
from .fit_tables import cache_tables, command_table, lines_table, precise_range
from .lists import WIDTH, wrapped
from .report import LABEL, Column, Report, Table, times
from .users import users_section

_MOST_CHANGES = 7
"""Changes on the screen without --full: with the cause and a command they take 24 rows."""


def log_report(request: FitRequest, log: StartupLog, *, full: bool = False) -> Report:
    """Return the log's figures and the predicted ones; `extra["agrees"]` is whether all of the cache's agree.

    Of a start that failed, the screen has the cause, the changes and one command; all else needs `full`. The request
    has no memory for the cache. Raises AttncalcError as `compare` and `diagnose` do.
    """
    if request.workload.context > (request.model.max_context or request.workload.context):
        # an engine that wrote a log was not refused for its context
        request = request.with_engine_args(**find_engine(log.engine).long_context_options)
    comparison = compare(request, log)
    request = request.with_engine_args(engine_version=comparison.request.engine_args.get("engine_version"))
    diagnosis = diagnose(request, log, comparison.memory, comparison.checks)
    answer = Answer.to(comparison.request)
    load = None if diagnosis else load_state(request, log, comparison.memory, int(answer.result.pool.tokens))
    report, notes = answer_report(answer), _notes(comparison, answer.resolved, log)
    tables, shown = [lines_table([_verdict(comparison, diagnosis)], strong=True)], None
    if diagnosis:
        tables += _changes(diagnosis, full=full)
        if not full:
            shown = (*diagnosis.notes, "--full adds the figures of the log, all changes with their commands and notes.")
    if load:
        tables += _load_tables(load)
    if comparison.checks and shown is None:
        tables.append(_checks_table(comparison))
    if comparison.estimates and shown is None:
        tables.append(_estimates_table(comparison.estimates))
    if diagnosis is None:
        tables += users_section([answer]).tables
        figures = answer_figures(answer)
        tables += cache_tables(answer, figures, detail_figures(answer.result, figures))
    return report._replace(
        heading=model_heading(answer.result),
        verdict=None,
        shown_notes=shown,
        tables=tuple(tables),
        notes=(*diagnosis.notes, *notes) if diagnosis else (*notes, *report.notes),
        checks=comparison.checks,
        extra={**report.extra, **_facts(comparison, diagnosis, load, log)},
        footer=(),  # the log has the engine's own lines
    )


def _facts(
    comparison: LogComparison, diagnosis: Diagnosis | None, load: LoadState | None, log: StartupLog
) -> dict[str, Any]:
    """Return the keys of JSON that only a log has."""
    facts = {
        "agrees": comparison.agrees and diagnosis is None,
        "checks": [check.facts() for check in comparison.checks],
        "estimates": [{**estimate._asdict(), "inside": estimate.inside} for estimate in comparison.estimates],
        "suggestions": changes_facts(diagnosis.changes, _command) if diagnosis else [],
        "load": load and _load_facts(load),
    }
    if diagnosis is None:
        return facts
    refusal = {
        "kind": log.refusal.kind if log.refusal else None,
        "cause": diagnosis.cause,
        "message": diagnosis.message,
        "reason": diagnosis.reason,
        "needed": diagnosis.needed,
        "available": diagnosis.available,
        "missing": diagnosis.missing,
    }
    return {**facts, "fits": False, "verdict": "does_not_fit", "summary": diagnosis.reason, "refusal": refusal}


def _verdict(comparison: LogComparison, diagnosis: Diagnosis | None) -> str:
    if diagnosis:
        return f"DID NOT START: {diagnosis.reason}"
    if not comparison.checks:
        return "NOTHING TO COMPARE: the log has no figures of the cache."
    if comparison.agrees:
        return "AGREES: all figures are within the log's rounding."
    return "DIFFERS: see the figures below."


def _load_facts(state: LoadState) -> dict[str, Any]:
    """Return the keys of JSON about the load. A change has no command: it keeps the server's own context."""
    changes = [{**change, "launch_command": None} for change in changes_facts(state.changes)]
    return {
        **state.load._asdict(),
        "tokens_per_request": state.tokens_per_request,
        "requests_that_fit": state.fitting,
        "suggestions": changes,
    }


def _load_tables(state: LoadState) -> list[Table]:
    """Return the load in words, and the changes with which the cache holds all requests."""
    load, tokens = state.load, count(state.tokens_per_request)
    texts = [
        f"LOAD: {plural(load.running, 'request')} run, {count(load.waiting)} wait, {load.usage:.1%} of the cache is "
        f"used: about {tokens} tokens per request. The cache holds {count(state.fitting)} such requests."
    ]
    if load.preempted:
        texts.append(f"Running requests lost their cache and are computed again ({plural(load.preempted, 'line')}).")
    if load.waiting and not state.is_full:
        texts.append(
            "The cache is not full: the limit of running requests is reached (--max-num-seqs of vLLM, "
            "--max-running-requests of SGLang), or prompts are still computed."
        )
    tables = [lines_table(texts, strong=True)]
    if load.waiting and state.is_full:
        columns = (
            Column(f"room for more of the {count(load.running + load.waiting)}", "left"),
            Column("such requests"),
        )
        rows = tuple((change.flag, times(change.result.pool.concurrency, 2)) for change in state.changes)
        tables.append(Table(columns, rows or (("no change that was tried", ""),)))
    return tables


def _changes(diagnosis: Diagnosis, *, full: bool) -> list[Table]:
    """Return the table of the changes with which the engine would start, and the command of the first or of all."""
    if diagnosis.cause == "other_model":
        return []
    if not diagnosis.changes:
        text = "No change was computed."
        if diagnosis.tried:
            text = f"No change that was computed makes it start, alone or combined: {diagnosis.tried}."
        return [lines_table([text])]
    changes = diagnosis.changes if full else diagnosis.changes[:_MOST_CHANGES]
    columns = (Column("starts with", "left"), Column("concurrent requests"))
    rows = ((change.flag, times(change.result.pool.concurrency, 2)) for change in changes)
    tables = [Table(columns, tuple(rows))]
    for change in changes if full else changes[:1]:
        tables += command_table(_command(change.result.resolved), f"with {change.flag}:")
    return tables


def _command(resolved: ResolvedRequest) -> str | None:
    """Return the command that starts the engine. The memory that the log has for the cache is no argument of it."""
    return launch_command(resolved._replace(request=dataclasses.replace(resolved.request, kv_memory=None)))


def _checks_table(comparison: LogComparison) -> Table:
    memory = comparison.memory
    source = "\n".join(wrapped(f"from {memory.source}", "", WIDTH // 2 - 4)) if memory else ""
    cells = [
        (check.label, _cell(check, check.predicted), _cell(check, check.measured), _agreement(check))
        for check in comparison.checks
    ]
    return _compared(source, cells)


def _compared(header: str, rows: list[tuple[str, str, str, str]]) -> Table:
    columns = (LABEL._replace(header=header), Column("predicted"), Column("logged"), Column("", "left"))
    return Table(columns, tuple(rows))


def _cell(check: Check, value: int | float) -> str:
    if check.unit == BYTES:
        return human(int(value), BYTES)
    return f"{value:,.2f}" if check.name == "concurrency" else count(int(value))


def _agreement(check: Check) -> str:
    if not check.ok:
        return f"differs by {_cell(check, abs(check.difference))}"
    if check.unit == BYTES or not check.tolerance:
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
    if estimate.logged < estimate.low:
        return f"{human(estimate.low - estimate.logged, BYTES)} below"
    return f"{human(estimate.logged - estimate.high, BYTES)} above"


def _notes(comparison: LogComparison, resolved: ResolvedRequest, log: StartupLog) -> list[str]:
    notes = []
    version = resolved.args.engine_version
    if comparison.memory and comparison.memory.missing:
        notes.append(
            f"The log has no line '{comparison.memory.missing}': the states are not compared. Their memory is the "
            "predicted one."
        )
    if comparison.guessed and log.releases and not comparison.checks:
        notes.append(f"The log has no version: {version} is the newest whose lines it may have.")
    elif comparison.guessed and comparison.checks:
        if comparison.agrees:
            by_lines = "by its lines, " if log.releases else ""
            notes.append(f"The log has no version: {by_lines}{version} is the newest with which all figures agree.")
        else:
            notes.append(
                f"The log has no version: no known one agrees, so the newest, {version}, is compared; "
                "--engine-version sets another."
            )
    if log.starts > 1:
        notes.append(f"The log has {log.starts} starts: the last is compared.")
    if any(estimate.name == "weights" and not estimate.inside for estimate in comparison.estimates):
        notes.append(
            "The log's weights are of another size than estimated: --weights-dtype sets the dtype of a quantized "
            "checkpoint; encoders and padding may not be counted."
        )
    if comparison.agrees:
        return notes
    if log.model:
        notes.append(f"The log is of '{log.model}', and the prediction of {resolved.request.model.title}.")
    if 0 < len(log.available) < resolved.devices:
        notes.append("The log has the memory of one rank; the rank with the least memory limits the blocks.")
    return [*notes, "If the log lacks an argument, give it as an option; options override the log."]
