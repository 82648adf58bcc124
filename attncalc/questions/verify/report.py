"""The reports of `attncalc verify`: of one model, of several, and the line of `--smoke`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ... import __version__
from ...check import Check, Reported, VerifyResult
from ...model import ModelSpec, plural
from ...quantity import Quantity
from ...records import NamedTuple
from ...show.layers import attention_source
from ...show.notes import WARNING, context_notes, model_notes
from ...show.picture import picture
from ...show.report import LABEL, Column, Figure, Report, Table, heading, workload_facts
from ...units import count, tokens_in_short
from ...workload import Workload
from .chart import DEFAULT, LEGEND, scaling_charts
from .checks import (
    NOT_MEASURED,
    NOT_OK,
    OK,
    PEAKS,
    came_from,
    check_tables,
    failure_notes,
    failure_sentences,
    full_name,
    groups_of,
    section_table,
    summary_facts,
    verdict,
)
from .tables import (
    measured_peaks_table,
    peak_tables,
    reported_notes,
    reported_tables,
    scaling_tables,
    time_facts,
    time_tables,
    utilization_tables,
)

# The device as plain data.
DeviceFacts = Mapping[str, Any]
# Notes on what was not checked that the screen shows without --full; of more it shows the number.
_MAX_SKIPPED = 2


class VerifiedModel(NamedTuple):
    model: ModelSpec
    workload: Workload  # the sizes that were run
    kernels: tuple[str, ...]  # the attention kernels that were requested; none for `--against`
    result: VerifyResult
    requested_context: int | None = None  # tokens that were asked for; None for those that were run


def verify_report(
    verified: VerifiedModel, device: DeviceFacts, *, full: bool = False, to_paste: str = ""
) -> Report:
    """Return the report of one model: the verdict and a row per section of checks; with `full`,
    every check.

    `--against` has few checks, which are always listed. `to_paste` is the line of
    `--smoke`.
    """
    model = verified.model
    result = verified.result
    dtype = str(verified.workload.dtype)
    where = _compared_with(device, result)
    conditions = _conditions(verified, device)
    answer = verdict(result.checks, f"{where} in {dtype}", result.simulated)
    source = attention_source(model)
    figures: list[Figure] = []
    for check in result.checks:
        if isinstance(check.predicted, Quantity):
            label = f"{check.label} ({check.section})"
            figure = Figure(check.name, label, check.predicted, check.unit, source, check.of)
            figures.append(figure)
    lists_checks = full or _is_meta(device)
    times = [time_facts(timing, device, dtype) for timing in result.times]
    pasted = [f"To paste into an issue: {to_paste}"] if to_paste else []
    return Report(
        "verify",
        heading(model, *conditions),
        model.facts(),
        workload_facts(model, verified.workload),
        tuple(f for f in figures if not f.of),
        tuple(
            ({"name": group}, tuple(f for f in figures if f.of == group))
            for group in groups_of(result.checks)
        ),
        tuple(_tables(result, times, full=full, lists_checks=lists_checks)),
        (*_notes(verified, full=full, lists_checks=lists_checks), *_device_notes(device), *pasted),
        extra={
            **_json_facts(result, device, answer, (*_json_notes(verified), *pasted)),
            "times": times,
        },
        checks=result.checks,
        answer=answer,
        draw=lambda: picture(
            model.title,
            f"{came_from(result)} {where}",
            [LEGEND, ", ".join(fact for fact in conditions if fact)],
            tuple(scaling_charts(result.scaling)),
            DEFAULT,
            engine="torch",
            dtypes=f"computed in {dtype}",
        ),
    )


def _json_facts(
    result: VerifyResult, device: DeviceFacts, answer: str, notes: Iterable[str]
) -> dict[str, Any]:
    """Return what JSON contains for this command only. Its notes do not depend on `--full`."""
    warning = "" if result.ok else WARNING
    return {
        "notes": [warning + answer, *notes, *_device_notes(device)],
        "verdict": answer,
        "summary": summary_facts(result.checks),
        "simulated": result.simulated,
        "checks": [check.facts() for check in result.checks],
        "reported": [figure.facts() for figure in result.reported],
        "device": {name: fact for name, fact in device.items() if name != "notes"},
        "times": [],
        "scaling": [row.facts() for row in result.scaling],
    }


def _device_notes(device: DeviceFacts) -> list[str]:
    """Return what a reader should know about the device."""
    notes = device.get("notes")
    if isinstance(notes, list):
        return notes
    return []


def _compared_with(device: DeviceFacts, result: VerifyResult) -> str:
    """Return what the predictions were compared with: 'on cpu (2 threads)', 'with transformers
    5.23.0, ...'.
    """
    if result.simulated:
        return f"with a simulation of {device['name']}"
    if _is_meta(device):
        return f"with {device['name']}"
    return f"on {device['name']}"


def _is_meta(device: DeviceFacts) -> bool:
    """Whether a class of another library was built without weights, and not layers on a device."""
    return bool(device["type"] == "meta")


def _conditions(verified: VerifiedModel, device: DeviceFacts) -> tuple[str, ...]:
    """Return the facts of the heading: the version of torch, and the sizes."""
    workload = verified.workload
    return (
        f"torch {device['torch']}",
        f"batch {count(workload.batch)}",
        f"context {count(workload.context)}",
        f"source {count(workload.source)}" if workload.source else "",
        "the whole model without weights" if _is_meta(device) else "one real layer per kind",
    )


def _tables(
    result: VerifyResult, times: Sequence[Mapping[str, Any]], *, full: bool, lists_checks: bool
) -> Iterator[Table]:
    source = came_from(result)
    yield from check_tables(
        result.checks if lists_checks else [c for c in result.checks if not c.ok], source
    )
    if result.scaling:
        yield from scaling_tables(result.scaling, source)
    elif full:
        yield from peak_tables(result.checks)
        yield from time_tables(result.times)
        yield from utilization_tables(times)
    elif not lists_checks:
        yield section_table(result.checks)
        yield from measured_peaks_table(result.checks, source)
    yield from reported_tables(result.reported, source, full=full)


# Notes


def _notes(verified: VerifiedModel, *, full: bool, lists_checks: bool) -> Iterator[str]:
    result = verified.result._replace(skipped=_skipped(verified))
    more = ["" if lists_checks else "every check"]
    if result.times:
        more.append("the times (not checked)")
    yield from failure_notes(result.checks)
    yield from result.limits
    yield from _measurement_notes(verified, full=full, lists_checks=lists_checks)
    yield from reported_notes(result.reported)
    yield from _model_notes(verified)
    yield from _skipped_notes(result, full, *more)


def _skipped_notes(result: VerifyResult, full: bool, *more: str) -> Iterator[str]:
    """Yield the notes on what was not checked, and what the screen shows with `--full`.

    `more` is what else it shows; '' for nothing.
    """
    if full:
        yield from result.skipped
        return
    folds = len(result.skipped) > _MAX_SKIPPED
    yield from () if folds else result.skipped
    if folds:
        number = f"{plural(len(result.skipped), 'note')} on what was not checked"
    else:
        number = ""
    *first, last = [part for part in (*more, number) if part] or [""]
    if last:
        listed = f"{', '.join(first)} and {last}" if first else last
        yield f"--full shows {listed}."


def _json_notes(verified: VerifiedModel) -> Iterator[str]:
    """Yield all notes, for JSON, without the verdict."""
    result = verified.result
    yield from failure_sentences(result.checks)
    yield from (*result.limits, *_skipped(verified))
    yield from _measurement_notes(verified, full=True, lists_checks=True)
    yield from _model_notes(verified)


def _skipped(verified: VerifiedModel) -> tuple[str, ...]:
    """Return the notes on what was not checked, and why."""
    kinds = [kind for _, group in verified.model.groups() for kind in group.attentions]
    if verified.kernels and any(kind.facts().get("sinks") for kind in kinds):
        sinks = (
            "Torch's attention has no sinks: numerics are checked with them, FLOPs, peaks and "
            "times without."
        )
        return (*verified.result.skipped, sinks)
    return verified.result.skipped


def _measurement_notes(verified: VerifiedModel, *, full: bool, lists_checks: bool) -> Iterator[str]:
    """Yield the notes that explain columns and marks of the tables."""
    result = verified.result
    if lists_checks and any("*" in check.label for check in result.checks):
        yield (
            "* Projections only: torch counts 0 FLOP for its fused attention on a CPU "
            "(pytorch#195460). Other prefill FLOPs are dense: torch counts masked pairs too."
        )
    if result.times and full:
        yield (
            "Bound: the time that this device's own large matmul or copy takes for the FLOP of "
            "visible pairs, or for "
            "the weights, tokens and cache, whichever is longer. 'cached': faster than that "
            "copy, because the data fits in a processor cache. Times are not checked."
        )
    if result.scaling:
        yield (
            "x: ratio to the context before. The time would grow as FLOP does if it were "
            "compute-bound; it is not checked."
        )


def _model_notes(verified: VerifiedModel) -> tuple[str, ...]:
    return (*context_notes(verified.model, verified.workload), *model_notes(verified.model))


# Several models


def catalogue_report(
    verified: Sequence[VerifiedModel],
    device: DeviceFacts,
    unreached: Sequence[str] = (),
    *,
    full: bool = False,
) -> Report:
    """Return the report of several models: the verdict, and one row per model; with `full`, every
    check.

    A note names the models that were not reached before the time or the run ended.
    """
    result = _combined(verified)
    unverified = tuple(_unverified(verified, unreached))
    answer = verdict(result.checks, _compared_with(device, result), result.simulated)
    failed = sum(not v.result.checks for v in verified)
    if failed:
        answer += f" {plural(failed, 'model')} could not be verified."
    if unreached:
        answer += (
            f" {plural(len(unreached), 'model')} {'was' if len(unreached) == 1 else 'were'} not "
            "reached."
        )
    layers: list[tuple[dict[str, Any], tuple[Figure, ...]]] = []
    for one in verified:
        checks = one.result.checks
        layers.append(({"name": one.model.name, "ok": one.result.ok, "checks": len(checks)}, ()))
    return Report(
        "verify",
        (
            f"{plural(len(verified), 'model')}, one real layer per kind of attention",
            f"torch {device['torch']}",
        ),
        {"name": "catalogue", "models": [v.model.name for v in verified]},
        workload_facts(verified[0].model, verified[0].workload),
        (),
        tuple(layers),
        (
            _model_table(verified),
            *check_tables(
                result.checks if full else [c for c in result.checks if not c.ok], came_from(result)
            ),
            *reported_tables(result.reported, came_from(result), full=full),
        ),
        (
            *failure_notes(result.checks),
            *unverified,
            *_limits(result),
            *_skipped_notes(result, full, "every check"),
            *_device_notes(device),
        ),
        extra=_json_facts(
            result,
            device,
            answer,
            (*failure_sentences(result.checks), *unverified, *result.limits, *result.skipped),
        ),
        checks=result.checks,
        answer=answer,
    )


def _limits(result: VerifyResult) -> Iterator[str]:
    """Yield the limits of several models; one line for all shortened contexts, which the table
    has.
    """
    shortened = [note for note in result.limits if ": shortened to " in note]
    yield from (note for note in result.limits if note not in shortened)
    if shortened:
        yield (
            f"The context of {plural(len(shortened), 'preset')} is shortened; --minutes N sets "
            "the time."
        )


def _outcome(result: VerifyResult) -> str:
    """Return what the last column has of a model."""
    if result.ok:
        return OK
    if result.checks:
        return NOT_OK
    return "not verified"


def _model_table(verified: Sequence[VerifiedModel]) -> Table:
    columns = (
        Column("model", "left"),
        Column("attention", "left"),
        *map(Column, ("context", "dtype", "checks", "peak's\nerror, %")),
        LABEL,
    )
    rows = tuple(map(_model_row, verified))
    strong = frozenset(i for i, one in enumerate(verified) if not one.result.ok)
    return Table(columns, rows, strong=strong, missing=NOT_MEASURED)


def _model_row(verified: VerifiedModel) -> tuple[str, ...]:
    """Return the cells of a model: its attention, what was run, and its checks."""
    result = verified.result
    kinds = [kind for _, group in verified.model.groups() for kind in group.attentions]
    agree = sum(check.ok for check in result.checks)
    peaks = [check for check in result.checks if check.section == PEAKS]
    error = max((abs(check.relative_difference) for check in peaks), default=None)
    context = count(result.context)
    asked = verified.requested_context
    if asked is not None and asked != result.context:
        context = f"{tokens_in_short(result.context)}/{tokens_in_short(asked)}"
    return (
        verified.model.name,
        "/".join(dict.fromkeys(kind.tag for kind in kinds)),
        context,
        str(verified.workload.dtype),
        f"{agree} of {len(result.checks)}",
        "-" if error is None else f"{100 * error:.2f}",
        _outcome(result),
    )


def _combined(verified: Sequence[VerifiedModel]) -> VerifyResult:
    """Return the results of the models that were verified as one, in which each check and note
    names its model.
    """
    checks: list[Check] = []
    skipped: list[str] = []
    limits: list[str] = []
    reported: list[Reported] = []
    simulated = False
    for one in verified:
        result = one.result
        if not result.checks:
            continue
        name = one.model.name
        checks += [check._replace(of=f"{name} {check.of}".rstrip()) for check in result.checks]
        skipped += [f"{name}: {note}" for note in result.skipped]
        limits += [f"{name}: {note}" for note in result.limits]
        reported += [one._replace(of=f"{name} {one.of}".rstrip()) for one in result.reported]
        simulated |= result.simulated
    return VerifyResult(
        tuple(checks),
        skipped=tuple(skipped),
        limits=tuple(limits),
        reported=tuple(reported),
        simulated=simulated,
    )


def _unverified(verified: Sequence[VerifiedModel], unreached: Sequence[str]) -> Iterator[str]:
    """Yield why a model could not be verified at all, and which models were not reached."""
    for model in verified:
        if not model.result.checks:
            yield f"{WARNING}not verified: {' '.join(model.result.skipped)}"
    if unreached:
        yield f"{WARNING}not reached: {', '.join(unreached)}. --minutes N sets the time."


# A line to paste


def smoke_line(verified: VerifiedModel, machine: Mapping[str, Any]) -> str:
    """Return one line: versions, the GPU and its driver, the checks that agree, the kernels that
    ran.
    """
    checks = verified.result.checks
    failed = [full_name(check) for check in checks if not check.ok]
    names = {name for check in checks for name in check.name.split("_")}
    ran = [kernel for kernel in verified.kernels if set(kernel.split("_")) <= names]
    left_out = [kernel for kernel in verified.kernels if kernel not in ran]
    versions = {
        "compute capability": machine.get("compute_capability"),
        "driver": machine.get("driver"),
        "CUDA": machine.get("cuda"),
        "ROCm": machine.get("rocm"),
        "torch": machine["torch"],
        "attncalc": __version__,
    }
    facts = [
        machine["title"],
        *(f"{name} {version}" for name, version in versions.items() if version),
    ]
    agree = f"{len(checks) - len(failed)} of {len(checks)} checks agree"
    if failed:
        agree += f", not {'; '.join(failed)}"
    without = f", not {', '.join(left_out)}" if left_out else ""
    return (
        f"{', '.join(facts)}: {agree}, in {verified.workload.dtype}; {', '.join(ran)} ran{without}."
    )
