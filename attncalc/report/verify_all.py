"""The report of `attncalc verify` without a model: one row per preset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..check import VerifyResult
from ..model import plural
from ..units import count
from .notes import WARNING
from .report import LABEL, Column, Report, Table, workload_facts
from .verify import DeviceFacts, VerifiedModel, compared_with, device_notes, json_facts, skipped_notes
from .verify_tables import NOT_OK, OK, PEAKS, came_from, check_tables, reported_tables
from .verify_verdict import failure_notes, failure_sentences, verdict


def catalogue_report(
    verified: Sequence[VerifiedModel], device: DeviceFacts, unreached: Sequence[str] = (), *, full: bool = False
) -> Report:
    """Return the report of several models: the verdict, and one row per model; with `full`, every check.

    A note names the models that were not reached before the time or the run ended.
    """
    result = _combined(verified)
    unverified = tuple(_unverified(verified, unreached))
    answer = verdict(result.checks, compared_with(device, result), result.simulated)
    failed = sum(not v.result.checks for v in verified)
    if failed:
        answer += f" {plural(failed, 'preset')} could not be verified."
    if unreached:
        answer += f" {plural(len(unreached), 'preset')} {'was' if len(unreached) == 1 else 'were'} not reached."
    facts = ({"name": v.model.name, "ok": v.result.ok, "checks": len(v.result.checks)} for v in verified)
    return Report(
        "verify",
        (f"{plural(len(verified), 'preset')}, one real layer per kind of attention", f"torch {device['torch']}"),
        {"name": "catalogue", "models": [v.model.name for v in verified]},
        workload_facts(verified[0].model, verified[0].workload),
        (),
        tuple((fact, ()) for fact in facts),
        (
            _model_table(verified),
            *check_tables(result.checks if full else [c for c in result.checks if not c.ok], came_from(result)),
            *reported_tables(result.reported, came_from(result), full=full),
        ),
        (
            *failure_notes(result.checks),
            *unverified,
            *result.limits,
            *skipped_notes(result, full, "every check"),
            *device_notes(device),
        ),
        extra=json_facts(
            result, device, answer, (*failure_sentences(result.checks), *unverified, *result.limits, *result.skipped)
        ),
        checks=result.checks,
        answer=answer,
    )


def _model_table(verified: Sequence[VerifiedModel]) -> Table:
    columns = (
        Column("model", "left"),
        Column("attention", "left"),
        Column("context"),
        Column("dtype"),
        Column("checks"),
        Column("largest error\nof a peak, %"),
        LABEL,
    )
    failed = (i for i, v in enumerate(verified) if not v.result.ok)
    return Table(columns, tuple(map(_model_row, verified)), strong=frozenset(failed))


def _model_row(verified: VerifiedModel) -> tuple[str, ...]:
    model, result = verified.model, verified.result
    tags = "/".join(dict.fromkeys(kind.tag for _, group in model.groups() for kind in group.attentions))
    peaks = [abs(c.relative_difference) for c in result.checks if c.section == PEAKS]
    return (
        model.name,
        tags,
        count(result.context),
        str(verified.workload.dtype),
        f"{sum(c.ok for c in result.checks)} of {len(result.checks)}",
        f"{100 * max(peaks):.2f}" if peaks else "-",
        OK if result.ok else NOT_OK if result.checks else "not verified",
    )


def _combined(verified: Sequence[VerifiedModel]) -> VerifyResult:
    """Return the results of the models that were verified as one, in which each check and note names its model."""
    results = [(v.model.name, v.result) for v in verified if v.result.checks]
    return VerifyResult(
        tuple(c._replace(of=" ".join(filter(None, (name, c.of)))) for name, r in results for c in r.checks),
        skipped=tuple(f"{name}: {note}" for name, r in results for note in r.skipped),
        limits=tuple(f"{name}: {note}" for name, r in results for note in r.limits),
        reported=tuple(f._replace(of=" ".join(filter(None, (name, f.of)))) for name, r in results for f in r.reported),
        simulated=any(r.simulated for _, r in results),
    )


def _unverified(verified: Sequence[VerifiedModel], unreached: Sequence[str]) -> Iterator[str]:
    """Yield why a model could not be verified at all, and which models were not reached."""
    for model in verified:
        if not model.result.checks:
            yield f"{WARNING}not verified: {' '.join(model.result.skipped)}"
    if unreached:
        yield f"{WARNING}not reached: {', '.join(unreached)}. --minutes N sets the time."
