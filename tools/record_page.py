"""Write the page of a record of `attncalc verify --record`: Markdown, from nothing but its JSON.

`python tools/record_page.py docs/measured/nvidia-h200.json` writes nvidia-h200.md beside it.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from attncalc.check import Check, largest_difference  # noqa: E402
from attncalc.errors import AttncalcError  # noqa: E402
from attncalc.model import plural  # noqa: E402
from attncalc.questions.schemas import schema_name  # noqa: E402
from attncalc.questions.verify.checks import number  # noqa: E402
from attncalc.questions.verify.record import Document, Row, Run, record_runs, record_verdict  # noqa: E402
from attncalc.questions.verify.tables import datasheet_shares, percent  # noqa: E402
from attncalc.search import grouped  # noqa: E402
from attncalc.show.markdown import escape  # noqa: E402
from attncalc.show.write import save  # noqa: E402
from attncalc.units import BYTES, count, duration, human, truncate  # noqa: E402

# The name of the check that compares a kernel's outputs with the definition: its kernel and its
# dtype.
_OUTPUTS = re.compile(r"(\w+)_equals_reference_(\w+)")
_REPORT = (
    "To report a disagreement, open an issue with this page and its JSON file. "
    "Repeat a single row with `attncalc verify ARGUMENTS --full`; a run of more than a minute "
    "needs `--minutes` too."
)
# The header of the arguments of a run.
_RUN = "`attncalc verify`"
# Headers of the columns that are text; all others are numbers, which are aligned to the right.
_TEXTS = (
    _RUN,
    "arguments",
    "check",
    "compared",
    "dtype",
    "fact",
    "in",
    "kernel",
    "layer",
    "meaning",
    "note",
    "pass",
    "phase",
    "value",
    "why",
)
# Bytes of a record that is read; one of ten minutes has 150 KB.
LARGEST = 64 * 2**20
# What a record without some of its keys raises.
DAMAGES = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError)
HOW = "'attncalc verify --record DIR' writes a record; name its .json"


def record_page(record: Document) -> str:
    """Return the page of a record: the verdict, the device, and a section per question."""
    runs = record_runs(record)
    blocks = [f"# {record['device']['title']}", *_answer(record, runs), *_device_table(record)]
    blocks += record["device"].get("notes", [])
    sections = {
        "What disagrees": _disagreements(runs),
        "Runs": _runs_section(runs),
        "Kernels and dtypes": _kernel_section(runs),
        "Memory that other tools show": _memory_section(runs),
        "Time": _time_section(record, runs),
        "Growth with the context": _scaling_section(runs),
        "What was not run": _skipped_section(record),
        "What was not checked": _notes_section(runs),
    }
    for title, section in sections.items():
        lines = list(section)
        blocks += [f"## {title}", *lines] if lines else []
    blocks += ["## What the columns mean", *_column_table()]
    return "\n\n".join(blocks) + "\n"


_COLUMNS = {
    "dtype, batch, context": "what the layers ran with; the context may be shorter than asked",
    "checks that agree": "of all comparisons: parameters, cache, FLOPs, peaks, outputs, masks",
    "peaks": "peaks of memory that were compared: one per layer, phase and kernel",
    "largest error of a peak": "as a share of the predicted peak; up to 1 % agrees",
    "of any figure": "the same over all predicted figures; counts and bytes must be equal",
    "largest error of outputs": "of the check that is closest to its tolerance, as a share of the "
    "largest output",
    "of the matmul's rate": "FLOP/s of the passes as a share of a large matmul on the device; the "
    "median",
    "of the copy's rate": "bytes/s of the passes as a share of a large copy on the device; the "
    "median",
    "of the datasheet's FLOP/s, of its bytes/s": "the same as shares of what the vendor publishes",
    "best, of the bound": "the highest share of the lower bound of the time, with its run and ms",
}


def _column_table() -> Iterator[str]:
    yield from _table([{"column": name, "meaning": meaning} for name, meaning in _COLUMNS.items()])
    yield "Times are for information and are never checked."


# The answer and the device


def _answer(record: Document, runs: Sequence[Run]) -> Iterator[str]:
    yield f"**{record_verdict(record)}**"
    failed = [step for step in record["skipped"] if step["failed"]]
    if failed:
        yield (
            f"**{plural(len(failed), 'step')} ended in an error: see [What was not "
            "run](#what-was-not-run).**"
        )
    yield (
        "Each run builds real layers of a model with torch, and compares their parameters, "
        "cache, FLOPs, peak memory "
        "and outputs with the formulas of attncalc. [The columns](#what-the-columns-mean) are "
        "explained at the end."
    )


def _device_table(record: Document) -> Iterator[str]:
    device = record["device"]
    memory = device.get("memory")
    multiprocessors = device.get("multiprocessors")
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
    yield from _table(
        [{"fact": name, "value": str(value)} for name, value in facts.items() if value]
    )


def _clocks(clocks: Row) -> dict[str, str]:
    """Return the clocks and the power limit with their units."""
    names = {
        "clock at the start": ("sm_mhz", "MHz"),
        "highest clock": ("sm_max_mhz", "MHz"),
        "highest memory clock": ("memory_max_mhz", "MHz"),
        "power limit": ("power_limit_w", "W"),
    }
    return {
        label: f"{clocks[name]:,.0f} {unit}"
        for label, (name, unit) in names.items()
        if clocks.get(name)
    }


# Checks


def _disagreements(runs: Sequence[Run]) -> Iterator[str]:
    rows = [
        {
            "arguments": run.arguments,
            "layer": check["of"],
            "check": f"`{check['name']}`",
            "predicted": number(check["predicted"]),
            "measured": "no number" if check["measured"] is None else number(check["measured"]),
            "tolerance": number(check["tolerance"]),
            "compared": check["note"],
            "meaning": check["failure"],
        }
        for run in runs
        for check in run.facts["disagree"]
    ]
    if rows:
        yield from _table(rows)
        yield _REPORT


def _runs_section(runs: Sequence[Run]) -> Iterator[str]:
    rows = [
        {
            _RUN: run.arguments,
            "dtype": run.dtype,
            "batch": count(run.facts["batch"]),
            "context": count(run.facts["context"]),
            "checks that agree": _agreeing(run.checks),
            "peaks": count(len(run.peaks)) if run.peaks else "-",
            "largest error of a peak": _largest_error([check for _, check in run.peaks]),
            "of any figure": _largest_error(run.checks),
            "seconds": f"{run.facts['seconds']:,.0f}",
        }
        for run in runs
    ]
    yield from _table(rows)


def _agreeing(checks: Sequence[Check]) -> str:
    return f"{count(sum(check.ok for check in checks))} of {count(len(checks))}"


def _largest_error(checks: Sequence[Check]) -> str:
    """Return the largest difference of a predicted figure in percent: '0 %' if all are equal, '-'
    without figures.
    """
    if not any(check.unit and check.predicted for check in checks):
        return "-"
    largest = largest_difference(checks)
    if largest is None:
        return "0 %"
    share = abs(largest.relative_difference)
    if share >= 0.0001:
        return f"{100 * share:.2f} %"
    return "< 0.01 %"


def _kernel_section(runs: Sequence[Run]) -> Iterator[str]:
    peaks = grouped(
        ((kernel, run.dtype), (check, run)) for run in runs for kernel, check in run.peaks
    )
    named = ((_OUTPUTS.fullmatch(check.name), check) for run in runs for check in run.checks)
    outputs = grouped(((match[1], match[2]), check) for match, check in named if match)
    rows = []
    for kernel, dtype in dict.fromkeys(sorted((*peaks, *outputs))):
        of_kernel = peaks.get((kernel, dtype), [])
        checks = [check for check, _ in of_kernel]
        highest, run_of_highest = max(
            of_kernel, key=lambda pair: pair[0].predicted, default=(None, None)
        )
        worst = max(
            outputs.get((kernel, dtype), []), key=lambda check: check.tolerance_used, default=None
        )
        rows.append(
            {
                "kernel": kernel,
                "dtype": dtype,
                "peaks that agree": _agreeing(checks) if checks else "-",
                "largest error of a peak": _largest_error(checks),
                "highest peak predicted": human(int(highest.predicted), BYTES) if highest else "-",
                "measured": human(int(highest.measured), BYTES) if highest else "-",
                "in": run_of_highest.arguments if run_of_highest else "-",
                "largest error of outputs": f"{number(worst.measured)} of {number(worst.tolerance)}"
                if worst
                else "-",
            }
        )
    yield from _table(rows)


# What was measured for information


def _memory_section(runs: Sequence[Run]) -> Iterator[str]:
    """One row per run: the pass that allocates most."""
    rows = []
    for run in runs:
        measured = {(row["of"], row["name"]): row["measured"] for row in run.rows("reported")}
        allocated = {
            (of, name.removeprefix("allocated_")): value
            for (of, name), value in measured.items()
            if name.startswith("allocated_") and value is not None
        }
        if not allocated:
            continue
        of, label = max(allocated, key=lambda key: allocated[key])
        peak = next(
            (check for check in run.checks if (check.of, check.name) == (of, f"peak_{label}")), None
        )
        sizes = {
            "tensors predicted": peak and peak.predicted,
            "tensors measured": peak and peak.measured,
            **{
                name: measured.get((of, f"{name}_{label}"))
                for name in ("allocated", "reserved", "driver")
            },
        }
        cells = {
            name: "-" if size is None else human(int(size), BYTES) for name, size in sizes.items()
        }
        rows.append({_RUN: run.arguments, "pass": label.replace("_", ", "), **cells})
    if rows:
        yield from _table(rows)
        yield "\n".join(
            (
                "- **tensors**: the tensors that torch's operators return. This is what attncalc "
                "predicts and checks.",
                "- **allocated**: `torch.cuda.max_memory_allocated`. The same tensors in the "
                "allocator's blocks of at "
                "least 512 B, and what kernels allocate inside.",
                "- **reserved**: `torch.cuda.max_memory_reserved`. All memory that torch's "
                "allocator has taken from "
                "the driver and keeps, weights and caches included.",
                "- **driver**: the memory in use on the whole GPU, as nvidia-smi shows it. It "
                "includes the CUDA "
                "context, the kernels' code and other processes.",
            )
        )


def _time_section(record: Document, runs: Sequence[Run]) -> Iterator[str]:
    """One row per phase, kernel and dtype: the shares of the device's own rates."""
    timings = ((run, timing) for run in runs for timing in run.rows("times"))
    passes = grouped(
        ((timing["phase"], timing["kernel"], run.dtype), (run, timing)) for run, timing in timings
    )
    rows = []
    has_datasheet = bool(record["device"].get("datasheet"))
    for (phase, kernel, dtype), timed in sorted(
        passes.items(), key=lambda item: (item[0][0] == "decode", item[0])
    ):
        flop, moved = (
            median(timing[name] for _, timing in timed) for name in ("flop_share", "bytes_share")
        )
        run, best = max(timed, key=lambda pair: _share_of_bound(pair[1]))
        published = {}
        if has_datasheet:
            shares = zip(
                *(datasheet_shares(timing, record["device"], dtype) for _, timing in timed),
                strict=True,
            )
            known = [percent(median(share)) for share in shares if None not in share]
            published = dict(
                zip(
                    ("of the datasheet's FLOP/s", "of its bytes/s"),
                    (*known, "-", "-"),
                    strict=False,
                )
            )
        rows.append(
            {
                "phase": phase,
                "kernel": kernel,
                "dtype": dtype,
                "passes": count(len(timed)),
                "of the matmul's rate": f"{100 * flop:.0f} %",
                "of the copy's rate": f"{100 * moved:.0f} %",
                **published,
                "best, of the bound": f"{100 * _share_of_bound(best):.0f} %",
                "in": run.arguments,
                "ms": f"{best['ms']:,.3f}",
            }
        )
    if rows:
        yield from _table(rows)
        yield (
            "Each rate is the median over the passes, as a share of what this device's own large "
            "matmul (FLOP/s) and "
            "copy (bytes/s) reached in the same run. The bound is the time that they would take "
            "for the same work, "
            "whichever is longer. More than 100 % means that the data fits in a processor cache, "
            "or that the device "
            "was busy while its own rate was measured. Times are not checked."
        )


def _share_of_bound(timing: Row) -> float:
    return float(timing["least_ms"] / timing["ms"])


def _scaling_section(runs: Sequence[Run]) -> Iterator[str]:
    rows = [
        {
            _RUN: run.arguments,
            "kernel": row["kernel"],
            "context": count(row["context"]),
            "ms": f"{row['ms']:,.2f}",
            "peak predicted": human(row["peak_predicted"], BYTES),
            "measured": "-" if row["peak"] is None else human(row["peak"], BYTES),
        }
        for run in runs
        for row in run.rows("scaling")
    ]
    yield from _table(rows)


# What is missing


def _skipped_section(record: Document) -> Iterator[str]:
    steps = record["skipped"]
    yield from _table(
        [
            {_RUN: _step(step), "why": ("error: " if step["failed"] else "") + step["reason"]}
            for step in steps
            if step["seconds"] is None
        ]
    )
    late = [
        f"{_step(step)} ({duration(step['seconds'])})"
        for step in steps
        if step["seconds"] is not None
    ]
    if late:
        yield (
            f"No time was left for these; in brackets, how long each would take: {', '.join(late)}."
        )


def _step(step: Row) -> str:
    return f"`{step['arguments']}`" + (" and longer contexts" if step["longer"] else "")


def _notes_section(runs: Sequence[Run]) -> Iterator[str]:
    """Group equal notes: what was left out, and in which runs."""
    notes = grouped((note, run.arguments) for run in runs for note in run.facts["notes"])
    yield from _table(
        [{"note": note, "in": ", ".join(dict.fromkeys(where))} for note, where in notes.items()]
    )


def _table(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield a table of Markdown of rows with the same headers; none without rows. Text in backticks
    is code.
    """
    if not rows:
        return
    headers = tuple(rows[0])
    marks = tuple("---" if header in _TEXTS else "---:" for header in headers)
    lines = (headers, marks, *(tuple(map(_cell, row.values())) for row in rows))
    yield "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    parts = text.split("`")
    return "`".join(
        part.replace("|", "\\|") if i % 2 else escape(part) for i, part in enumerate(parts)
    )


# Files


def read_record(path: Path) -> dict[str, Any]:
    """Return the record in a JSON file. Raises AttncalcError if it cannot be read, or is no
    record.
    """
    name = truncate(path)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or "cannot be read").lower()
        raise AttncalcError(f"{name}: {reason}", HOW) from None
    if len(content) > LARGEST:
        raise AttncalcError(f"{name}: larger than 64 MiB", HOW)
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        raise AttncalcError(f"{name}: not JSON", HOW) from None
    schema = record.get("schema") if isinstance(record, dict) else None
    if schema != schema_name("record"):
        if isinstance(schema, str):
            found = f"its schema is {truncate(schema)}"
        else:
            found = "it names no schema"
        raise AttncalcError(f"{name}: not a record of this version: {found}", HOW)
    return dict(record)


def damaged(name: object, error: Exception) -> AttncalcError:
    """Return the error of a record that lacks what its schema has."""
    reason = truncate(f"{type(error).__name__}: {error}", 80)
    return AttncalcError(
        f"{truncate(name)}: a damaged record: {reason}", "its schema: attncalc schema record"
    )


def write_page(data: Path) -> Path:
    """Write the page of a record beside its JSON file, and return the page's path. Raises
    AttncalcError if the record cannot be read or the page cannot be written.
    """
    record = read_record(data)
    try:
        text = record_page(record)
    except DAMAGES as error:
        raise damaged(data, error) from None
    page = data.with_suffix(".md")
    save(text, page, force=True)
    return page


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, and return the exit code: 2 if a record or page is an error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", nargs="+", type=Path, metavar="RECORD.json")
    options = parser.parse_args(arguments)
    for data in options.records:
        try:
            page = write_page(data)
        except AttncalcError as error:
            sys.stderr.write(f"error: {error}\n")
            return 2
        sys.stdout.write(f"Written: {page}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
