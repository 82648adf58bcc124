"""The page of `attncalc verify --record`: Markdown, made from nothing but the record's JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from ..check import Check, largest_difference
from ..model import plural
from ..units import BYTES, count, duration, human
from .markdown import escape
from .utilization import datasheet_shares, percent
from .verify_tables import number
from .verify_verdict import verdict

Document = Mapping[str, Any]
"""A record as plain data."""
PEAK = re.compile(r"peak_(prefill|decode)(?:_\d+)?_(\w+)")
"""The name of a peak: its phase and its kernel."""
OUTPUTS = re.compile(r"(\w+)_equals_reference_(\w+)")
"""The name of the check that compares a kernel's outputs with the definition: its kernel and its dtype."""
REPORT = (
    "To report a disagreement, open an issue with this page and its JSON file. "
    "Repeat a single row with `attncalc verify ARGUMENTS --full`; a run of more than a minute needs `--minutes` too."
)


class Run(NamedTuple):
    """One run of a record, with its checks."""

    facts: Mapping[str, Any]
    checks: tuple[Check, ...]

    @property
    def arguments(self) -> str:
        """The arguments of `attncalc verify`, as code."""
        return f"`{self.facts['arguments']}`"

    @property
    def dtype(self) -> str:
        """The dtype that the layers ran in."""
        return str(self.facts["dtype"])

    @property
    def peaks(self) -> list[tuple[str, str, Check]]:
        """The phase, the kernel and the check of each peak."""
        return [(match[1], match[2], check) for check in self.checks if (match := PEAK.fullmatch(check.name))]


def record_page(record: Document) -> str:
    """Return the page of a record: the verdict, the device, and a section per question."""
    runs = record_runs(record)
    blocks = [f"# {record['device']['title']}", *_answer(record, runs), _device_table(record)]
    blocks += record["device"].get("notes", [])
    sections = {
        "What disagrees": _disagreements(runs),
        "Runs": _runs_section(runs),
        "Kernels and dtypes": _kernel_section(runs),
        "Memory that other tools show": _memory_section(record, runs),
        "Time": _time_section(record, runs),
        "Growth with the context": _scaling_section(record, runs),
        "What was not run": _skipped_section(record),
        "What was not checked": _notes_section(runs),
    }
    for title, section in sections.items():
        lines = list(section)
        blocks += [f"## {title}", *lines] if lines else []
    return "\n\n".join(blocks) + "\n"


def record_verdict(record: Document) -> str:
    """Return the verdict of all runs in one or two sentences."""
    runs = record_runs(record)
    return verdict(_named_checks(runs), f"on {record['device']['name']}, in {plural(len(runs), 'run')}")


def agrees(record: Document) -> bool:
    """Whether all checks agree, and no step ended in an error that nobody expected."""
    return not any(run["disagree"] for run in record["runs"]) and not any(step["failed"] for step in record["skipped"])


def is_empty(record: Document) -> bool:
    """Whether nothing could be checked."""
    return not any(run["checks"] for run in record["runs"])


def record_runs(record: Document) -> list[Run]:
    """Return the runs of a record, with their checks."""
    return [_run(record, facts) for facts in record["runs"]]


def _run(record: Document, facts: Mapping[str, Any]) -> Run:
    columns = record["columns"]["checks"]
    return Run(facts, tuple(_check(dict(zip(columns, row, strict=True))) for row in facts["checks"]))


def _check(row: Mapping[str, Any]) -> Check:
    measured = math.nan if row["measured"] is None else row["measured"]
    return Check(
        "", row["name"], row["name"], row["predicted"], measured, row["tolerance"] or 0, row["unit"], of=row["of"]
    )


def _named_checks(runs: Sequence[Run]) -> list[Check]:
    """Return all checks; the layer of each is named with its run."""
    return [
        check._replace(of=", ".join(filter(None, (run.facts["arguments"], check.of))))
        for run in runs
        for check in run.checks
    ]


# The answer and the device


def _answer(record: Document, runs: Sequence[Run]) -> Iterator[str]:
    yield f"**{record_verdict(record)}**"
    failed = [step for step in record["skipped"] if step["failed"]]
    if failed:
        yield f"**{plural(len(failed), 'step')} ended in an error: see [What was not run](#what-was-not-run).**"
    yield (
        "Each run builds real layers of a model with torch, and compares their parameters, cache, FLOPs, peak memory "
        "and outputs with the formulas of attncalc. [About these pages](README.md) explains every column."
    )


def _device_table(record: Document) -> str:
    device = record["device"]
    memory, multiprocessors = device.get("memory"), device.get("multiprocessors")
    facts = {
        "device": device["name"],
        "memory": human(memory, BYTES) if memory else None,
        "compute capability": device.get("compute_capability"),
        "multiprocessors": count(multiprocessors) if multiprocessors else None,
        "driver": device.get("driver"),
        **_clocks(device.get("clocks") or {}),
        "CUDA": device.get("cuda"),
        "ROCm": device.get("rocm"),
        "cuDNN": device.get("cudnn"),
        "torch": device["torch"],
        "attncalc": record["attncalc"],
        "processor": device.get("processor"),
        "system": device.get("system"),
        "Python": device.get("python"),
        "date": record["date"],
        "time taken": f"{record['seconds']:,.0f} s",
        "command": f"`{record['command']}`",
    }
    return _table(("fact", "value"), [(name, str(value)) for name, value in facts.items() if value])


def _clocks(clocks: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the clocks and the power limit with their units."""
    units = {"sm_mhz": "MHz", "sm_max_mhz": "MHz", "memory_max_mhz": "MHz", "power_limit_w": "W"}
    labels = ("clock at the start", "highest clock", "highest memory clock", "power limit")
    values = (clocks.get(name) for name in units)
    return {
        label: f"{value:,.0f} {unit}" if value else None
        for label, value, unit in zip(labels, values, units.values(), strict=True)
    }


# Checks


def _disagreements(runs: Sequence[Run]) -> Iterator[str]:
    rows = [
        (run.arguments, check["of"], f"`{check['name']}`", *_figures(check), check["note"], check["failure"])
        for run in runs
        for check in run.facts["disagree"]
    ]
    if rows:
        names = ("arguments", "layer", "check", "predicted", "measured", "tolerance", "compared", "meaning")
        yield _table(names, rows, numbers=(3, 4, 5))
        yield REPORT


def _figures(check: Mapping[str, Any]) -> tuple[str, str, str]:
    measured = "no number" if check["measured"] is None else number(check["measured"])
    return number(check["predicted"]), measured, number(check["tolerance"])


def _runs_section(runs: Sequence[Run]) -> Iterator[str]:
    rows = []
    for run in runs:
        facts, agreeing = run.facts, sum(check.ok for check in run.checks)
        rows.append(
            (
                run.arguments,
                facts["dtype"],
                count(facts["batch"]),
                count(facts["context"]),
                f"{count(agreeing)} of {count(len(run.checks))}",
                count(len(run.peaks)) if run.peaks else "-",
                _largest_error([check for *_, check in run.peaks]),
                _largest_error(run.checks),
                f"{facts['seconds']:,.0f}",
            )
        )
    names = ("`attncalc verify`", "dtype", "batch", "context", "checks that agree", "peaks", "largest error of a peak")
    if rows:
        yield _table((*names, "of any figure", "seconds"), rows, numbers=range(2, 9))


def _largest_error(checks: Sequence[Check]) -> str:
    """Return the largest difference of a predicted figure in percent: '0 %' if all are equal, '-' without figures."""
    if not any(check.unit and check.predicted for check in checks):
        return "-"
    largest = largest_difference(checks)
    return _percent(abs(largest.relative_difference)) if largest else "0 %"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %" if share >= 0.0001 else "< 0.01 %"


def _kernel_section(runs: Sequence[Run]) -> Iterator[str]:
    peaks: dict[tuple[str, str], list[tuple[Check, Run]]] = {}
    outputs: dict[tuple[str, str], list[Check]] = {}
    for run in runs:
        for _, kernel, check in run.peaks:
            peaks.setdefault((kernel, run.dtype), []).append((check, run))
        for check in run.checks:
            if match := OUTPUTS.fullmatch(check.name):
                outputs.setdefault((match[1], match[2]), []).append(check)
    rows = []
    for kernel, dtype in dict.fromkeys(sorted((*peaks, *outputs))):
        of_kernel = peaks.get((kernel, dtype), [])
        highest = max(of_kernel, key=lambda pair: pair[0].predicted, default=None)
        compared = outputs.get((kernel, dtype), [])
        worst = max(compared, key=lambda check: check.tolerance_used, default=None)
        rows.append(
            (
                kernel,
                dtype,
                f"{count(sum(check.ok for check, _ in of_kernel))} of {count(len(of_kernel))}" if of_kernel else "-",
                _largest_error([check for check, _ in of_kernel]),
                human(int(highest[0].predicted), BYTES) if highest else "-",
                human(int(highest[0].measured), BYTES) if highest else "-",
                highest[1].arguments if highest else "-",
                f"{number(worst.measured)} of {number(worst.tolerance)}" if worst else "-",
            )
        )
    names = ("kernel", "dtype", "peaks that agree", "largest error of a peak", "highest peak predicted", "measured")
    if rows:
        yield _table((*names, "in", "largest error of outputs"), rows, numbers=(2, 3, 4, 5, 7))


# What was measured for information


def _memory_section(record: Document, runs: Sequence[Run]) -> Iterator[str]:
    """One row per run: the pass that allocates most."""
    rows = []
    columns = record["columns"]["reported"]
    for run in runs:
        figures = {
            (row["of"], row["name"]): row for row in (dict(zip(columns, r, strict=True)) for r in run.facts["reported"])
        }
        passes = {
            (of, name.partition("_")[2]): row["measured"]
            for (of, name), row in figures.items()
            if name.startswith("allocated_") and row["measured"] is not None
        }
        if not passes:
            continue
        of, label = max(passes, key=lambda key: passes[key])
        peak = next((check for check in run.checks if (check.of, check.name) == (of, f"peak_{label}")), None)
        shown = [
            figures.get((of, f"{name}_{label}"), {}).get("measured") for name in ("allocated", "reserved", "driver")
        ]
        tensors = (peak.predicted, peak.measured) if peak else (None, None)
        cells = [human(int(value), BYTES) if value is not None else "-" for value in (*tensors, *shown)]
        rows.append((run.arguments, label.replace("_", ", "), *cells))
    if rows:
        names = (
            "`attncalc verify`",
            "pass",
            "tensors predicted",
            "tensors measured",
            "allocated",
            "reserved",
            "driver",
        )
        yield _table(names, rows, numbers=range(2, 7))
        yield "\n".join(
            (
                "- **tensors**: the tensors that torch's operators return. This is what attncalc predicts and checks.",
                "- **allocated**: `torch.cuda.max_memory_allocated`. The same tensors in the allocator's blocks of at "
                "least 512 B, and what kernels allocate inside.",
                "- **reserved**: `torch.cuda.max_memory_reserved`. All memory that torch's allocator has taken from "
                "the driver and keeps, weights and caches included.",
                "- **driver**: the memory in use on the whole GPU, as nvidia-smi shows it. It includes the CUDA "
                "context, the kernels' code and other processes.",
            )
        )


def _time_section(record: Document, runs: Sequence[Run]) -> Iterator[str]:
    """One row per phase, kernel and dtype: the shares of the device's own rates."""
    columns = record["columns"]["times"]
    passes: dict[tuple[str, str, str], list[tuple[Run, Mapping[str, Any]]]] = {}
    for run in runs:
        for row in run.facts["times"]:
            timing = dict(zip(columns, row, strict=True))
            passes.setdefault((timing["phase"], timing["kernel"], run.dtype), []).append((run, timing))
    rows = []
    has_datasheet = bool(record["device"].get("datasheet"))
    for (phase, kernel, dtype), timed in sorted(passes.items(), key=lambda item: (item[0][0] == "decode", item[0])):
        flop, moved = (median(timing[name] for _, timing in timed) for name in ("flop_share", "bytes_share"))
        run, best = max(timed, key=lambda pair: _share_of_bound(pair[1]))
        own = (f"{100 * share:.0f} %" for share in (flop, moved))
        of_datasheet = [_datasheet_shares(timing, record, dtype) for _, timing in timed] if has_datasheet else []
        published = (percent(median(share)) for share in zip(*of_datasheet, strict=True) if None not in share)
        shares = (*own, *((*published, "-", "-")[:2] if has_datasheet else ()), f"{100 * _share_of_bound(best):.0f} %")
        rows.append((phase, kernel, dtype, count(len(timed)), *shares, run.arguments, f"{best['ms']:,.3f}"))
    if rows:
        names = (
            "phase",
            "kernel",
            "dtype",
            "passes",
            "of the matmul's rate",
            "of the copy's rate",
            *(("of the datasheet's FLOP/s", "of its bytes/s") if has_datasheet else ()),
            "best, of the bound",
        )
        last = len(names) + 1
        yield _table((*names, "in", "ms"), rows, numbers=(*range(3, last - 1), last))
        yield (
            "Each rate is the median over the passes, as a share of what this device's own large matmul (FLOP/s) and "
            "copy (bytes/s) reached in the same run. The bound is the time that they would take for the same work, "
            "whichever is longer. More than 100 % means that the data fits in a processor cache, or that the device "
            "was busy while its own rate was measured. Times are not checked."
        )


def _datasheet_shares(timing: Mapping[str, Any], record: Document, dtype: str) -> tuple[float | None, ...]:
    per_s = 1000 / timing["ms"]
    return datasheet_shares(timing["flop"] * per_s, timing["bytes"] * per_s, record["device"], dtype)


def _share_of_bound(timing: Mapping[str, Any]) -> float:
    return float(timing["least_ms"] / timing["ms"])


def _scaling_section(record: Document, runs: Sequence[Run]) -> Iterator[str]:
    columns = record["columns"]["scaling"]
    rows = []
    for run in runs:
        for values in run.facts["scaling"]:
            cells = dict(zip(columns, values, strict=True))
            peak = "-" if cells["peak"] is None else human(cells["peak"], BYTES)
            predicted = human(cells["peak_predicted"], BYTES)
            rows.append(
                (run.arguments, cells["kernel"], count(cells["context"]), f"{cells['ms']:,.2f}", predicted, peak)
            )
    if rows:
        names = ("`attncalc verify`", "kernel", "context", "ms", "peak predicted", "measured")
        yield _table(names, rows, numbers=range(2, 6))


# What is missing


def _skipped_section(record: Document) -> Iterator[str]:
    steps = record["skipped"]
    reasons = [step for step in steps if step["seconds"] is None]
    if reasons:
        rows = [(_step(step), ("error: " if step["failed"] else "") + step["reason"]) for step in reasons]
        yield _table(("`attncalc verify`", "why"), rows)
    late = [f"{_step(step)} ({duration(step['seconds'])})" for step in steps if step["seconds"] is not None]
    if late:
        yield f"No time was left for these; in brackets, how long each would take: {', '.join(late)}."


def _step(step: Mapping[str, Any]) -> str:
    return f"`{step['arguments']}`" + (" and longer contexts" if step["longer"] else "")


def _notes_section(runs: Sequence[Run]) -> Iterator[str]:
    """Group equal notes: what was left out, and in which runs."""
    notes: dict[str, list[str]] = {}
    for run in runs:
        for note in run.facts["notes"]:
            notes.setdefault(note, []).append(run.arguments)
    if notes:
        yield _table(("note", "in"), [(note, ", ".join(dict.fromkeys(where))) for note, where in notes.items()])


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Return a table of Markdown; the columns of `numbers` are aligned to the right. Text in backticks is code."""
    marks = ("---:" if i in numbers else "---" for i in range(len(names)))
    lines = (names, tuple(marks), *(tuple(map(_cell, row)) for row in rows))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    parts = text.split("`")
    return "`".join(part.replace("|", "\\|") if i % 2 else escape(part) for i, part in enumerate(parts))
