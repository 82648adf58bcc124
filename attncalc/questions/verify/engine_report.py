"""The report of `attncalc verify --engine`: what `fit` predicts beside what the engine printed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from ...check import Check
from ...engines import find_engine
from ...show.lists import wrapped
from ...show.notes import WARNING
from ...show.report import LABEL, Column, Report, Table, heading, workload_facts
from ...units import BYTES, count, duration, human
from .checks import NOT_OK, OK, summary_facts
from .engine_run import EngineAnswer

_STARTED = {1: "started", 0: "did not start"}
_VERDICTS = {"fits": "FITS", "may_not_fit": "MAY NOT FIT", "does_not_fit": "DOES NOT FIT"}
# Columns of a line of the command.
_WIDTH = 78


def engine_report(answer: EngineAnswer, *, full: bool = False) -> Report:
    """Return the report. With `full` it has the command, and the last lines of the log."""
    resolved = answer.predicted.resolved
    title = find_engine(answer.log.engine).title
    version = f"{title} {answer.log.version}" if answer.log.version else title
    sentence = _verdict(answer.checks, f"{version} on {answer.machine}")
    failed = [check for check in answer.checks if not check.ok]
    notes = (*(_difference_note(check) for check in failed), *answer.notes, *_reasons(answer))
    workload = resolved.workload
    facts = (
        f"context {count(workload.context)}",
        f"cache in {resolved.args.kv_dtype.name}",
        "random weights",
        f"{duration(answer.seconds)} to the size of its cache",
    )
    return Report(
        "verify",
        heading(answer.model, version, *facts),
        answer.model.facts(),
        workload_facts(answer.model, workload, answer.log.engine),
        (),
        tables=tuple(_tables(answer, full=full)),
        notes=notes,
        checks=answer.checks,
        answer=sentence,
        extra=_json_facts(answer, version, sentence, notes),
    )


def _verdict(checks: Sequence[Check], where: str) -> str:
    """Return in a sentence whether all figures agree."""
    failed = sum(not check.ok for check in checks)
    if not failed:
        return f"AGREES: all {count(len(checks))} figures of {where} are as 'attncalc fit' says."
    verb = "DIFFERS" if failed == 1 else "DIFFER"
    return f"{count(failed)} of {count(len(checks))} figures {verb} from those of {where}."


def _difference_note(check: Check) -> str:
    return (
        f"{WARNING}{check.label}: predicted {_cell(check, check.predicted)}, measured "
        f"{_cell(check, check.measured)} ({check.note})."
    )


def _reasons(answer: EngineAnswer) -> Iterator[str]:
    """Yield the engine's own words if it did not start."""
    if answer.log.refusal is not None:
        yield f"The engine refused to start: {answer.log.refusal.line}."


def _tables(answer: EngineAnswer, *, full: bool) -> Iterator[Table]:
    rows: list[tuple[str, ...]] = []
    strong = set()
    for check in answer.checks:
        if not check.ok:
            strong.add(len(rows))
        rows.append(
            (
                check.label,
                _predicted(answer, check),
                _cell(check, check.measured),
                OK if check.ok else NOT_OK,
            )
        )
    columns = (LABEL, Column("predicted"), Column("measured"), LABEL)
    yield Table(columns, tuple(rows), frozenset(strong))
    if full:
        lines = wrapped(f"Command: {shlex.join(answer.command)}", "  ", _WIDTH)
        yield Table((LABEL,), tuple((line,) for line in lines))


def _predicted(answer: EngineAnswer, check: Check) -> str:
    """Return the predicted figure, or its range."""
    if check.section == "start":
        return _VERDICTS[answer.predicted.verdict]
    estimate = answer.estimates.get(check.name)
    if check.section != "memory" or estimate is None:
        return _cell(check, check.predicted)
    low, unit = human(estimate.low, BYTES).rsplit(" ", 1)
    high = human(estimate.high, BYTES)
    if high.endswith(f" {unit}"):
        return f"{low} to {high}"
    return f"{low} {unit} to {high}"


def _cell(check: Check, value: float) -> str:
    """Return a figure in its unit."""
    if check.section == "start":
        return _STARTED[int(value)]
    if check.section == "weights" or (check.section == "cache" and not check.tolerance):
        exact = check.unit == BYTES  # and not rounded, as in a log
    else:
        exact = False
    if exact:
        return f"{count(int(value))} B"
    if check.unit == BYTES:
        return human(int(value), BYTES)
    if isinstance(value, int):
        return count(value)
    return f"{value:,.2f}"


def _json_facts(
    answer: EngineAnswer, version: str, sentence: str, notes: Sequence[str]
) -> dict[str, Any]:
    """Return the keys of JSON, which are those of other reports of `verify`."""
    warning = "" if all(check.ok for check in answer.checks) else WARNING
    return {
        "notes": [warning + sentence, *notes],
        "verdict": sentence,
        "summary": summary_facts(answer.checks),
        "simulated": False,
        "checks": [check.facts() for check in answer.checks],
        "reported": [],
        "device": {
            "type": "engine",
            "name": f"{version} on {answer.machine}",
            "torch": "",
            "engine": answer.log.engine,
            "engine_version": answer.log.version,
            "command": shlex.join(answer.command),
            "seconds": round(answer.seconds, 1),
        },
        "times": [],
        "scaling": [],
    }
