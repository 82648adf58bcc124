"""The report of `attncalc verify`: predicted and measured figures check by check, or one line per model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..check import Check, ScalingRow, VerifyResult
from ..model import ModelSpec, plural
from ..quantity import Quantity
from ..units import BYTES, column, count
from ..workload import Workload
from .layers import attention_source
from .notes import WARNING, context_notes, model_notes
from .report import LABEL, Column, Figure, Report, Table, heading, workload_facts

DeviceFacts = Mapping[str, Any]
"""The device as plain data."""
SECTIONS = (
    "parameters",
    "per rank",
    "cache",
    "FLOPs",
    "peak memory",
    "layer behaviour",
    "kernels vs reference",
    "mask effect, pairs",
    "softmax sum error",
    "model",
)
"""The sections of checks, in the order of the screen."""
UNITS = {"cache": "bytes", "peak memory": "bytes"}
"""Units that the screen shows next to the name of a section."""
OK, NOT_OK = "ok", "NO"
MAX_DIGITS = 14
"""Characters of a number in the table of checks; longer ones are rounded."""
MAX_TENSORS, MAX_TENSORS_OF_SEVERAL = 4, 2
"""Tensors named per peak, for one layer and for several, whose longer labels leave less room."""


class VerifiedModel(NamedTuple):
    """A model and how it was verified.

    Attributes:
        model: the model.
        workload: the sizes that were run.
        kernels: the attention kernels that were requested; none for `--against`.
        result: the checks.
    """

    model: ModelSpec
    workload: Workload
    kernels: tuple[str, ...]
    result: VerifyResult


def verify_report(verified: VerifiedModel, device: DeviceFacts, tp: int = 1) -> Report:
    """Return the report of one model: every check, and the times of its layers."""
    model, result = verified.model, verified.result
    groups = list(dict.fromkeys(check.of for check in result.checks if check.of))
    figures = _figures(verified)
    return Report(
        "verify",
        heading(model, *_conditions(verified, device), f"split over {tp} processes" if tp > 1 else ""),
        model.facts(),
        workload_facts(model, verified.workload),
        tuple(f for f in figures if not f.of),
        tuple(({"name": group}, tuple(f for f in figures if f.of == group)) for group in groups),
        tuple(_tables(result, groups)),
        _notes(verified),
        extra=_facts(result, device),
        checks=result.checks,
    )


def catalogue_report(verified: Sequence[VerifiedModel], device: DeviceFacts) -> Report:
    """Return the report of several models: one row each, and the checks that disagree."""
    rows = tuple(map(_model_row, verified))
    checks = tuple(
        check._replace(of=" ".join(filter(None, (v.model.name, check.of))))
        for v in verified
        for check in v.result.checks
    )
    columns = (
        Column("model", "left"),
        Column("attention", "left"),
        Column("context"),
        Column("dtype"),
        Column("checks"),
        Column("largest error\nof a peak, %"),
        LABEL,
    )
    facts = ({"name": v.model.name, "ok": v.result.ok, "checks": len(v.result.checks)} for v in verified)
    return Report(
        "verify",
        (f"{plural(len(verified), 'preset')}, one real layer per kind of attention", _device_name(device)),
        {"name": "catalogue", "models": [v.model.name for v in verified]},
        workload_facts(verified[0].model, verified[0].workload),
        (),
        tuple((fact, ()) for fact in facts),
        (Table(columns, rows),),
        (_verdict(checks), *_failures(checks), *_unverified(verified)),
        extra=_facts(VerifyResult(checks), device),
        checks=checks,
    )


def _facts(result: VerifyResult, device: DeviceFacts) -> dict[str, Any]:
    """Return what JSON contains for this command only."""
    return {
        "checks": [check.facts() for check in result.checks],
        "device": dict(device),
        "times": [timing.facts() for timing in result.times],
        "scaling": [row.facts() for row in result.scaling],
    }


def _conditions(verified: VerifiedModel, device: DeviceFacts) -> tuple[str, ...]:
    """Return the facts of the heading: device, dtype and sizes."""
    workload = verified.workload
    return (
        _device_name(device),
        f"{workload.dtype}",
        f"batch {count(workload.batch)}",
        f"context {count(workload.context)}",
        f"source {count(workload.source)}" if workload.source else "",
        "the whole model without weights" if device["type"] == "meta" else "one real layer per kind",
    )


def _device_name(device: DeviceFacts) -> str:
    return f"{device['name']}, torch {device['torch']}"


def _figures(verified: VerifiedModel) -> list[Figure]:
    """Return the predictions that have a formula."""
    source = attention_source(verified.model)
    return [
        Figure(check.name, f"{check.label} ({check.section})", check.predicted, check.unit, source, check.of)
        for check in verified.result.checks
        if isinstance(check.predicted, Quantity)
    ]


def _tables(result: VerifyResult, groups: Sequence[str]) -> Iterator[Table]:
    for group in (*groups, ""):
        checks = [check for check in result.checks if check.of == group]
        if checks:
            yield _check_table(group, checks)
    if result.scaling:
        yield from _scaling_tables(result.scaling)
    peaks = [check for check in result.checks if check.section == "peak memory" and not result.scaling]
    if peaks:
        yield _peak_table(peaks)
    if result.times:
        yield _time_table(result)


def _check_table(group: str, checks: Sequence[Check]) -> Table:
    names = ("predicted", "measured", "diff", "tolerance")
    header = (Column(group or "the whole model", "left"), *map(Column, names), LABEL)
    rows: list[tuple[str, ...]] = []
    strong = set()
    for section in sorted({check.section for check in checks}, key=SECTIONS.index):
        if group:
            title = f"{section}, {UNITS[section]}" if section in UNITS else section
            rows.append((title, "", "", "", "", ""))
        for check in (c for c in checks if c.section == section):
            if not check.ok:
                strong.add(len(rows))
            rows.append(_check_row(check, "  " if group else ""))
    return Table(header, tuple(rows), strong=frozenset(strong))


def _check_row(check: Check, indent: str) -> tuple[str, ...]:
    numbers = (_number(check.predicted), _number(check.measured), _difference(check), _tolerance(check))
    return (indent + check.label, *numbers, OK if check.ok else NOT_OK)


def _difference(check: Check) -> str:
    """Return the difference, in percent for a peak; '' if the measured figure is a difference itself."""
    if not check.predicted:
        return ""
    if check.unit == BYTES and check.tolerance:
        return f"{100 * check.difference / check.predicted:.2f} %"
    return _number(check.difference) if isinstance(check.difference, int) else f"{check.difference:.4f}"


def _tolerance(check: Check) -> str:
    if not check.tolerance:
        return "0"
    if check.unit == BYTES:
        return f"{100 * check.tolerance / max(1, check.predicted):.0f} %"
    return f"{check.tolerance:.1g}"


def _number(value: float) -> str:
    if isinstance(value, int):
        text = count(value)
        return text if len(text) <= MAX_DIGITS else f"{int(value):.7e}"
    return f"{value:.2e}" if abs(value) < 0.01 else f"{value:.4g}"


def _peak_table(checks: Sequence[Check]) -> Table:
    """Return the table of each peak: when it occurs, and the largest tensors held at that time."""
    several = len({check.of for check in checks}) > 1
    rows = []
    for check in checks:
        label = f"{check.of}, {check.label}" if several else check.label
        moment, _, tensors = check.note.partition(": ")
        rows.append((label, moment, _first(tensors.split(", "), MAX_TENSORS_OF_SEVERAL if several else MAX_TENSORS)))
    columns = (Column("tensors at the peak", "left"), Column("peak during", "left"), Column("largest tensors", "left"))
    return Table(columns, tuple(rows))


def _first(names: Sequence[str], limit: int) -> str:
    return ", ".join(names[:limit]) + (", ..." if len(names) > limit else "")


def _time_table(result: VerifyResult) -> Table:
    several = len({timing.of for timing in result.times}) > 1
    rows = []
    for t in result.times:
        label = f"{t.phase}, {t.kernel}"
        rates = t.flop / t.ms / 1e6, t.bytes / t.ms / 1e6
        rows.append(
            (
                f"{t.of}, {label}" if several else label,
                f"{t.ms:,.3f}",
                *(f"{rate:,.1f}" for rate in rates),
                f"{t.least_ms:,.3f}",
                f"{t.least_ms / t.ms:.0%}" if t.least_ms <= t.ms else "cached",
            )
        )
    names = ("ms", "GFLOP/s", "GB/s", "bound, ms", "bound / time")
    return Table((Column("time per layer", "left"), *map(Column, names)), tuple(rows))


def _scaling_tables(scaling: Sequence[ScalingRow]) -> Iterator[Table]:
    """Yield one table per layer: time and peak at each context, and their ratios to the context before."""
    names = ("tokens", "ms", "time\nx", "FLOP\nx")
    for group in dict.fromkeys(row.of for row in scaling):
        table_rows: list[tuple[str, ...]] = []
        group_rows = [row for row in scaling if row.of == group]
        unit, peaks = column([row.peak or 0 for row in group_rows], BYTES)
        for i, row in enumerate(group_rows):
            before = group_rows[i - 1] if i and group_rows[i - 1].kernel == row.kernel else None
            ratios = ("", "", "", "")
            if before:
                ratios = (
                    f"{row.ms / before.ms:.2f}",
                    f"{row.flop / before.flop:.2f}",
                    f"{row.peak / before.peak:.2f}" if row.peak and before.peak else "-",
                    f"{row.peak_predicted / before.peak_predicted:.2f}",
                )
            label = row.kernel if before is None else ""
            peak = peaks[i] if row.peak is not None else "-"
            table_rows.append((label, count(row.context), f"{row.ms:,.2f}", *ratios[:2], peak, *ratios[2:]))
        header = (*names, f"peak\n{unit}", "measured\nx", "predicted\nx")
        yield Table((Column(group, "left"), *map(Column, header)), tuple(table_rows))


def _model_row(verified: VerifiedModel) -> tuple[str, ...]:
    """Return the row of one model among several."""
    model, result = verified.model, verified.result
    tags = "/".join(dict.fromkeys(kind.tag for _, group in model.groups() for kind in group.attentions))
    peaks = [abs(c.difference) / max(1, c.predicted) for c in result.checks if c.section == "peak memory"]
    return (
        model.name,
        tags,
        count(result.context),
        str(verified.workload.dtype),
        f"{sum(c.ok for c in result.checks)} of {len(result.checks)}",
        f"{100 * max(peaks):.2f}" if peaks else "-",
        OK if result.ok else NOT_OK if result.checks else "not verified",
    )


def _notes(verified: VerifiedModel) -> tuple[str, ...]:
    model, result = verified.model, verified.result
    notes = [_verdict(result.checks), *_failures(result.checks), *result.skipped]
    if any("*" in check.label for check in result.checks):
        notes.append(
            "* Projections only: torch counts 0 FLOP for its fused attention on a CPU (pytorch#195460). "
            "Other prefill FLOPs are dense: torch counts masked pairs too."
        )
    has_sinks = any(kind.facts().get("sinks") for _, group in model.groups() for kind in group.attentions)
    if verified.kernels and has_sinks:
        notes.append("Torch's attention has no sinks: numerics are checked with them, FLOPs, peaks and times without.")
    if result.times:
        notes.append(
            "Bound: the time that this device's own large matmul or copy takes for the FLOP of visible pairs, or for "
            "the weights, tokens and cache, whichever is longer. 'cached': faster than that copy, because the data "
            "fits in a processor cache. Times are not checked."
        )
    if result.scaling:
        notes.append(
            "x: ratio to the context before. The time would grow as FLOP does if it were compute-bound; it "
            "is not checked."
        )
    return (*notes, *context_notes(model, verified.workload), *model_notes(model))


def _unverified(verified: Sequence[VerifiedModel]) -> Iterator[str]:
    """Yield why a model could not be verified at all."""
    for model in verified:
        if not model.result.checks:
            yield from (f"{WARNING}not verified: {note}" for note in model.result.skipped)


def _verdict(checks: Sequence[Check]) -> str:
    failed = sum(not check.ok for check in checks)
    if failed:
        return f"{WARNING}{count(failed)} of {plural(len(checks), 'check')} DISAGREE{'S' if failed == 1 else ''}."
    return f"All {plural(len(checks), 'check')} agree."


def _failures(checks: Sequence[Check]) -> Iterator[str]:
    for check in checks:
        if not check.ok:
            group = f"{check.of}, " if check.of else ""
            yield (
                f"{WARNING}{group}{check.section}, {check.label}: predicted {_number(check.predicted)}, measured "
                f"{_number(check.measured)} ({check.note}). Meaning: {check.failure}."
            )
