"""The report of `attncalc fit --vllm-log`: the figures of a start-up log of vLLM beside the predicted ones."""

from __future__ import annotations

from ..check import Check
from ..engines.vllm.log import Log
from ..serving.fit import fit
from ..serving.log_check import LogComparison, compare
from ..serving.request import FitRequest, ResolvedRequest, resolve
from ..units import BYTES, count, human
from .fit import aligned, budget_table, detail_figures, fit_report, lines_table, model_heading, pool_table
from .report import LABEL, Column, Report, Table


def log_report(request: FitRequest, log: Log) -> Report:
    """Return the log's figures and the predicted ones; `extra["agrees"]` is whether all of them agree.

    The request has neither a GPU nor a memory. Raises AttncalcError as `compare` does.
    """
    # an engine that wrote a log was not refused
    comparison = compare(request.with_engine_args(allow_long_max_model_len=True), log)
    report, result = fit_report(comparison.request), fit(comparison.request)
    details = detail_figures(result, report.figures)
    budget, pool = aligned(budget_table(result, report.figures), pool_table(result, report.figures, details))
    return report._replace(
        heading=model_heading(result),
        verdict=None,
        shown_notes=None,
        tables=(lines_table([_verdict(comparison)], strong=True), _table(comparison), budget, pool),
        notes=(*_notes(comparison, resolve(comparison.request), log), *report.notes),
        checks=comparison.checks,
        extra={**report.extra, "agrees": comparison.agrees, "checks": [check.facts() for check in comparison.checks]},
        footer=(),  # the log has the engine's own lines
    )


def _table(comparison: LogComparison) -> Table:
    source = LABEL._replace(header=f"from {comparison.memory.source}")
    columns = (source, Column("printed"), Column("predicted"), Column("", "left"))
    return Table(
        columns,
        tuple(
            (check.label, _cell(check, check.measured), _cell(check, check.predicted), _agreement(check))
            for check in comparison.checks
        ),
    )


def _cell(check: Check, value: int | float) -> str:
    if check.unit == BYTES:
        return human(int(value), BYTES)
    return f"{value:,.2f}" if check.name == "concurrency" else count(int(value))


def _agreement(check: Check) -> str:
    if not check.ok:
        return "differs"
    return f"agrees, within {_cell(check, check.tolerance)}" if check.tolerance else "agrees"


def _verdict(comparison: LogComparison) -> str:
    if comparison.agrees:
        return "AGREES: all figures are within the log's rounding."
    return "DIFFERS: see the figures below."


def _notes(comparison: LogComparison, resolved: ResolvedRequest, log: Log) -> list[str]:
    notes = []
    if comparison.guessed:
        version = resolved.args.engine_version
        if comparison.agrees:
            notes.append(f"The log has no version: {version} is the newest with which all figures agree.")
        else:
            notes.append(
                f"The log has no version: no known one agrees, so the newest, {version}, is compared; "
                "--engine-version sets another."
            )
    if log.starts > 1:
        notes.append(f"The log has {log.starts} starts: the last is compared.")
    if comparison.agrees:
        return notes
    if log.model:
        notes.append(f"The log is of '{log.model}', and the prediction of {resolved.request.model.title}.")
    if len(log.available) < resolved.devices:
        notes.append("The log has the memory of one rank; the rank with the least memory limits the blocks.")
    return [*notes, "An argument that is not in the log may differ: give it as an option, which goes before the log."]
