"""The report of `attncalc verify`: predicted beside measured, check by check, or a line a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..check import Check, Verified
from ..model import ModelSpec, plural
from ..quantity import Quantity
from ..units import BYTES, column, count
from ..workload import Workload
from .layers import attention_source
from .notes import WARNING, context_notes, model_notes
from .report import LABEL, Column, Figure, Report, Table, heading, workload_facts

Device = Mapping[str, Any]
"""The device as plain data."""
SECTIONS = (
    "parameters",
    "each rank",
    "cache",
    "FLOPs",
    "peak memory",
    "layer",
    "kernel = reference",
    "pairs that change an output",
    "weights of a query sum to 1",
    "model",
)
"""In the order of the screen."""
OK, NOT_OK = "ok", "NO"
LONGEST = 14
"""Characters of a number in the table of checks; longer ones are rounded."""


class Run(NamedTuple):
    """A model, the sizes it was run at, the kernels that were asked for, and what was found."""

    model: ModelSpec
    workload: Workload
    kernels: tuple[str, ...]
    found: Verified


def verify_report(run: Run, device: Device, tp: int = 1) -> Report:
    """One model: every check, and how long its layers take."""
    model, found = run.model, run.found
    groups = list(dict.fromkeys(check.of for check in found.checks if check.of))
    figures = _figures(run)
    return Report(
        "verify",
        heading(model, *_asked(run, device), f"split over {tp} processes" if tp > 1 else ""),
        model.facts(),
        workload_facts(model, run.workload),
        tuple(f for f in figures if not f.of),
        tuple(({"name": of}, tuple(f for f in figures if f.of == of)) for of in groups),
        tuple(_tables(found, groups)),
        _notes(run),
        extra={
            "checks": [check.facts() for check in found.checks],
            "device": dict(device),
            "times": [timing.facts() for timing in found.times],
            "scaling": [row.facts() for row in found.scaled],
        },
        checks=found.checks,
    )


def catalogue_report(runs: Sequence[Run], device: Device) -> Report:
    """Every model there is, one line each; what disagrees is named."""
    rows = tuple(_line(run) for run in runs)
    checks = tuple(c._replace(of=f"{run.model.name} {c.of}".strip()) for run in runs for c in run.found.checks)
    columns = (
        LABEL,
        Column("attention", "left"),
        Column("context"),
        Column("dtype"),
        Column("checks"),
        Column("peaks off by\nat most, %"),
        Column("", "left"),
    )
    return Report(
        "verify",
        (f"{plural(len(runs), 'preset')}  one real layer of each kind of attention in it", _place(device)),
        {"name": "catalogue", "models": [run.model.name for run in runs]},
        workload_facts(runs[0].model, runs[0].workload),
        (),
        tuple(({"name": run.model.name, "ok": run.found.ok, "checks": len(run.found.checks)}, ()) for run in runs),
        (Table(columns, rows),),
        (_verdict(checks), *_failures(checks), *_unchecked(runs)),
        extra={"checks": [check.facts() for check in checks], "device": dict(device), "times": [], "scaling": []},
        checks=checks,
    )


def _asked(run: Run, device: Device) -> tuple[str, ...]:
    workload = run.workload
    return (
        _place(device),
        f"{workload.dtype}",
        f"batch {count(workload.batch)}",
        f"context {count(workload.context)}",
        f"source {count(workload.source)}" if workload.source else "",
        "built whole, without weights" if device["type"] == "meta" else "one real layer of each kind",
    )


def _place(device: Device) -> str:
    return f"{device['name']}, torch {device['torch']}"


def _figures(run: Run) -> list[Figure]:
    """What was predicted with a formula."""
    source = attention_source(run.model)
    return [
        Figure(check.name, f"{check.label} ({check.section})", check.predicted, check.unit, source, check.of)
        for check in run.found.checks
        if isinstance(check.predicted, Quantity)
    ]


def _tables(found: Verified, groups: Sequence[str]) -> Iterator[Table]:
    for of in (*groups, ""):
        checks = [check for check in found.checks if check.of == of]
        if checks:
            yield _check_table(of, checks)
    if found.scaled:
        yield from _scaling_tables(found)
    alive = [check for check in found.checks if check.section == "peak memory" and not found.scaled]
    if alive:
        yield _alive_table(alive)
    if found.times:
        yield _time_table(found)


def _check_table(of: str, checks: Sequence[Check]) -> Table:
    names = ("predicted", "measured", "off by", "within")
    header = (Column(of or "the whole model", "left"), *map(Column, names), LABEL)
    rows: list[tuple[str, ...]] = []
    strong = set()
    for section in sorted({check.section for check in checks}, key=SECTIONS.index):
        if of:
            unit = {"cache": ", bytes", "peak memory": ", bytes"}.get(section, "")
            rows.append((section + unit, "", "", "", "", ""))
        for check in (c for c in checks if c.section == section):
            if not check.ok:
                strong.add(len(rows))
            rows.append(_check_row(check, "  " if of else ""))
    return Table(header, tuple(rows), strong=frozenset(strong))


def _check_row(check: Check, indent: str) -> tuple[str, ...]:
    shown = (_number(check.predicted), _number(check.measured), _off_by(check), _within(check))
    return (indent + check.label, *shown, OK if check.ok else NOT_OK)


def _off_by(check: Check) -> str:
    """The difference; of a peak in percent; nothing where what is measured is a difference itself."""
    if not check.predicted:
        return ""
    if check.unit == BYTES and check.tolerance:
        return f"{100 * check.difference / check.predicted:.2f} %"
    return _number(check.difference)


def _number(value: float) -> str:
    if isinstance(value, int):
        text = count(value)
        return text if len(text) <= LONGEST else f"{int(value):.7e}"
    return f"{value:.2e}" if abs(value) < 0.01 else f"{value:.4g}"


def _within(check: Check) -> str:
    if not check.tolerance:
        return "0"
    if check.unit == BYTES:
        return f"{100 * check.tolerance / max(1, check.predicted):.0f} %"
    return f"{check.tolerance:.1g}"


def _alive_table(checks: Sequence[Check]) -> Table:
    several = len({check.of for check in checks}) > 1
    rows = []
    for check in checks:
        label = f"{check.of}, {check.label}" if several else check.label
        when, _, names = check.note.partition(": ")
        rows.append((label, when, _folded(names)))
    return Table((Column("alive at the peak", "left"), LABEL, LABEL), tuple(rows))


def _folded(names: str, most: int = 4) -> str:
    """The largest few of a list."""
    found = names.split(", ")
    return ", ".join(found[:most]) + (", ..." if len(found) > most else "")


def _time_table(found: Verified) -> Table:
    several = len({timing.of for timing in found.times}) > 1
    rows = []
    for t in found.times:
        label = f"{t.phase}, {t.kernel}"
        per_second = t.flop / t.ms / 1e6, t.bytes / t.ms / 1e6
        rows.append(
            (
                f"{t.of}, {label}" if several else label,
                f"{t.ms:,.3f}",
                *(f"{value:,.1f}" for value in per_second),
                f"{t.least_ms:,.3f}",
                f"{t.least_ms / t.ms:.0%}" if t.least_ms <= t.ms else "cached",
            )
        )
    header = ("time of one layer", "ms", "GFLOP/s", "GB/s", "bound, ms", "reached")
    return Table((Column(header[0], "left"), *map(Column, header[1:])), tuple(rows))


def _scaling_tables(found: Verified) -> Iterator[Table]:
    """Each doubling beside the one before: its time and its peak, and what the formulas say of both."""
    for of in dict.fromkeys(row.of for row in found.scaled):
        rows: list[tuple[str, ...]] = []
        mine = [row for row in found.scaled if row.of == of]
        unit, peaks = column([row.peak or 0 for row in mine], BYTES)
        for i, row in enumerate(mine):
            before = mine[i - 1] if i and mine[i - 1].kernel == row.kernel else None
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
            rows.append((label, count(row.context), f"{row.ms:,.2f}", *ratios[:2], peak, *ratios[2:]))
        header = ("tokens", "ms", "time\nx", "FLOP\nx", f"peak\n{unit}", "measured\nx", "predicted\nx")
        yield Table((Column(of, "left"), *map(Column, header)), tuple(rows))


def _line(run: Run) -> tuple[str, ...]:
    found = run.found
    tags = "/".join(dict.fromkeys(kind.tag for _, group in run.model.groups() for kind in group.attentions))
    peaks = [abs(c.difference) / max(1, c.predicted) for c in found.checks if c.section == "peak memory"]
    return (
        run.model.name,
        tags,
        count(found.context),
        str(run.workload.dtype),
        f"{sum(c.ok for c in found.checks)} of {len(found.checks)}",
        f"{100 * max(peaks):.2f}" if peaks else "-",
        OK if found.ok else NOT_OK if found.checks else "not checked",
    )


def _notes(run: Run) -> tuple[str, ...]:
    found = run.found
    notes = [_verdict(found.checks), *_failures(found.checks), *found.skipped]
    if any("*" in check.label for check in found.checks):
        notes.append(
            "* Projections alone: torch counts 0 FLOP for its fused attention on a CPU (pytorch#195460). "
            "Other FLOPs of a prefill are dense: torch counts masked pairs too."
        )
    if run.kernels and any(kind.facts().get("sinks") for _, group in run.model.groups() for kind in group.attentions):
        notes.append("Torch's attention has no sinks: FLOPs, peaks and times are without them, numerics with.")
    if found.times:
        notes.append(
            "Bound: what this device's own large matmul or copy would need for the FLOP that the mask allows, or for "
            "the weights, tokens and cache, whichever is longer; cached: faster than that copy, as it fits in a "
            "cache. For information: no time is checked."
        )
    if found.scaled:
        notes.append("FLOP x is what the formula says of the time, were it bound by FLOP alone; no time is checked.")
    return (*notes, *context_notes(run.model, run.workload), *model_notes(run.model))


def _unchecked(runs: Sequence[Run]) -> Iterator[str]:
    """Why a model could not be checked at all."""
    for run in runs:
        if not run.found.checks:
            yield from (f"{WARNING}not checked: {note}" for note in run.found.skipped)


def _verdict(checks: Sequence[Check]) -> str:
    failed = sum(not check.ok for check in checks)
    if failed:
        return f"{WARNING}{count(failed)} of {plural(len(checks), 'check')} DISAGREE{'S' if failed == 1 else ''}."
    return f"All {plural(len(checks), 'check')} agree."


def _failures(checks: Sequence[Check]) -> Iterator[str]:
    for check in checks:
        if not check.ok:
            of = f"{check.of}, " if check.of else ""
            yield (
                f"{WARNING}{of}{check.section}, {check.label}: predicted {_number(check.predicted)}, measured "
                f"{_number(check.measured)} ({check.note}). It means: {check.failure}."
            )
