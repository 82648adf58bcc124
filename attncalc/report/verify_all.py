"""The report of `attncalc verify` without a model: one row per preset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..check import VerifyResult
from ..model import plural
from ..units import count
from .notes import WARNING
from .report import LABEL, Column, Report, Table, workload_facts
from .verify import DeviceFacts, VerifiedModel, compared_with, json_facts
from .verify_tables import NOT_OK, OK, PEAKS, check_tables
from .verify_verdict import failure_notes, failure_sentences, verdict


def catalogue_report(verified: Sequence[VerifiedModel], device: DeviceFacts, *, full: bool = False) -> Report:
    """Return the report of several models: the verdict, and one row per model; with `full`, every check."""
    checks = tuple(
        check._replace(of=" ".join(filter(None, (v.model.name, check.of))))
        for v in verified
        for check in v.result.checks
    )
    reported = tuple(
        figure._replace(of=" ".join(filter(None, (v.model.name, figure.of))))
        for v in verified
        for figure in v.result.reported
    )
    result = VerifyResult(checks, reported=reported, simulated=any(v.result.simulated for v in verified))
    unverified = tuple(_unverified(verified))
    answer = verdict(checks, compared_with(device, result), result.simulated)
    facts = ({"name": v.model.name, "ok": v.result.ok, "checks": len(v.result.checks)} for v in verified)
    return Report(
        "verify",
        (f"{plural(len(verified), 'preset')}, one real layer per kind of attention", f"torch {device['torch']}"),
        {"name": "catalogue", "models": [v.model.name for v in verified]},
        workload_facts(verified[0].model, verified[0].workload),
        (),
        tuple((fact, ()) for fact in facts),
        (_model_table(verified), *check_tables(checks if full else [c for c in checks if not c.ok])),
        (*failure_notes(checks), *unverified, *_notes(verified, full=full)),
        extra=json_facts(result, device, answer, (*failure_sentences(checks), *unverified)),
        checks=checks,
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


def _unverified(verified: Sequence[VerifiedModel]) -> Iterator[str]:
    """Yield why a model could not be verified at all."""
    for model in verified:
        if not model.result.checks:
            yield from (f"{WARNING}not verified: {note}" for note in model.result.skipped)


def _notes(verified: Sequence[VerifiedModel], *, full: bool) -> Iterator[str]:
    """Yield the notes on what was not checked of each model, or their number."""
    of_verified = [v for v in verified if v.result.checks]
    yield from (f"{v.model.name}: {note}" for v in of_verified for note in v.result.limits)
    skipped = [f"{v.model.name}: {note}" for v in of_verified for note in v.result.skipped]
    if full:
        yield from skipped
    else:
        more = f" and {plural(len(skipped), 'note')} on what was not checked" if skipped else ""
        yield f"--full shows every check{more}."
