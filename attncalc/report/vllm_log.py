"""The report of `attncalc fit --vllm-log`: what vLLM printed when it started, beside what is predicted."""

from __future__ import annotations

from ..check import Check
from ..engines.vllm.log import Log
from ..serving.log_check import Compared, compare
from ..serving.memory_budget import FitRequest
from ..units import BYTES, count, human
from .fit import fit_report
from .report import LABEL, Column, Report, Table

_TAKEN = {
    True: "the newest with which all figures agree",
    False: "and no other agrees; --engine-version says otherwise",
}


def log_report(request: FitRequest, log: Log, assumed: tuple[str, ...] = ()) -> Report:
    """What the log printed, beside what its memory and settings give; `extra["agrees"]` says whether all does.

    request: without a memory. AttncalcError: the log names neither a memory nor blocks to start from.
    """
    found = compare(request, log)
    report = fit_report(found.request, assumed)
    return report._replace(
        tables=(_table(found), *report.tables[:2], _verdict(found)),
        notes=(*_notes(found, log), *report.notes),
        checks=found.checks,
        extra={**report.extra, "agrees": found.agrees, "checks": [check.facts() for check in found.checks]},
        footer=(),  # the log has spoken
    )


def _table(found: Compared) -> Table:
    said = LABEL._replace(header=f"from {found.memory.said}")
    columns = (said, Column("printed"), Column("predicted"), Column("", "left"))
    return Table(
        columns,
        tuple((c.label, _shown(c, c.measured), _shown(c, c.predicted), _agreement(c)) for c in found.checks),
    )


def _shown(check: Check, value: int | float) -> str:
    if check.unit == BYTES:
        return human(int(value), BYTES)
    return f"{value:,.2f}" if check.name == "concurrency" else count(int(value))


def _agreement(check: Check) -> str:
    if not check.ok:
        return "differs"
    return f"agrees, within {_shown(check, check.tolerance)}" if check.tolerance else "agrees"


def _verdict(found: Compared) -> Table:
    agrees = "AGREES: all figures are within the log's rounding."
    return Table((LABEL,), ((agrees if found.agrees else "DIFFERS: see the figures above.",),), strong=frozenset({0}))


def _notes(found: Compared, log: Log) -> list[str]:
    notes, request = [], found.request
    if found.guessed:
        version = request.args.engine_version
        notes.append(f"The log names no version: {version} is taken, {_TAKEN[found.agrees]}.")
    if log.starts > 1:
        notes.append(f"The log has {log.starts} starts: this is of the last.")
    if found.agrees:
        return notes
    if log.model:
        notes.append(f"The log is of '{log.model}'; this is of {request.model.title}.")
    if len(log.available) < request.devices:
        notes.append("The log has one rank's memory; the rank with the least decides how many blocks there are.")
    return [*notes, "A setting that the log does not name may differ: an option says it, and goes before the log."]
