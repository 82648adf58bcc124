"""The tables of `attncalc verify`: checks, peak memory and time, scaling, and figures for information."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..check import Check, Reported, ScalingRow, Timing, VerifyResult
from ..units import BYTES, column, count, human
from .report import LABEL, Column, Table

SECTIONS = (
    "parameters",
    "per rank",
    "cache",
    "FLOPs",
    "peak memory",
    "kernel buffers",
    "layer behaviour",
    "kernels vs reference",
    "mask effect, pairs",
    "softmax sum error",
    "model",
)
"""The sections of checks, in the order of the screen."""
PEAKS = "peak memory"
UNITS = {"cache": "bytes", PEAKS: "bytes"}
"""Units that the screen shows next to the name of a section."""
OK, NOT_OK = "ok", "NO"
MAX_DIGITS = 14
"""Characters of a number in the table of checks; longer ones are rounded."""
MAX_TENSORS, MAX_TENSORS_OF_SEVERAL = 3, 2
"""Tensors named per peak, for one layer and for several, whose longer labels leave less room."""


def groups_of(checks: Iterable[Check]) -> tuple[str, ...]:
    """Return the layer groups of the checks, in order, without '' for the whole model."""
    return tuple(dict.fromkeys(check.of for check in checks if check.of))


def sections_of(checks: Iterable[Check]) -> list[str]:
    """Return the sections of the checks, in the order of the screen."""
    return sorted({check.section for check in checks}, key=SECTIONS.index)


# Checks


def came_from(result: VerifyResult) -> str:
    """Return the heading of the figures that predictions are compared with."""
    return "simulated" if result.simulated else "measured"


def check_tables(checks: Sequence[Check], source: str = "measured") -> Iterator[Table]:
    """Yield the table of each layer group, then that of the whole model: one row per check. `source` is `came_from`."""
    for group in (*groups_of(checks), ""):
        of_group = [check for check in checks if check.of == group]
        if of_group:
            yield _check_table(group, of_group, source)


def _check_table(group: str, checks: Sequence[Check], source: str) -> Table:
    names = ("predicted", source, "diff", "tolerance")
    header = (Column(group or "the whole model", "left"), *map(Column, names), LABEL)
    rows: list[tuple[str, ...]] = []
    strong = set()
    for section in sections_of(checks):
        if group:
            title = f"{section}, {UNITS[section]}" if section in UNITS else section
            rows.append((title, "", "", "", "", ""))
        for check in (c for c in checks if c.section == section):
            if not check.ok:
                strong.add(len(rows))
            rows.append(_check_row(check, "  " if group else ""))
    return Table(header, tuple(rows), strong=frozenset(strong))


def _check_row(check: Check, indent: str) -> tuple[str, ...]:
    numbers = (number(check.predicted), number(check.measured), difference(check), tolerance(check))
    return (indent + check.label, *numbers, OK if check.ok else NOT_OK)


def number(value: float) -> str:
    """Return a predicted or a measured figure: an exact whole number, or about three digits."""
    if isinstance(value, int):
        text = count(value)
        return text if len(text) <= MAX_DIGITS else f"{int(value):.7e}"
    return f"{value:.2e}" if abs(value) < 0.01 else f"{value:.4g}"


def difference(check: Check) -> str:
    """Return the difference in the unit of `tolerance`; '' if the measured figure is a difference itself."""
    if not check.predicted:
        return ""
    if _is_in_percent(check):
        return f"{100 * check.relative_difference:.2f} %"
    if check.unit == BYTES and check.tolerance:
        return f"{count(int(check.difference))} B"
    return number(check.difference) if isinstance(check.difference, int) else f"{check.difference:.4f}"


def tolerance(check: Check) -> str:
    """Return the tolerance, in percent for a peak; in bytes if it is less than 0.1 %."""
    if not check.tolerance:
        return "0"
    if _is_in_percent(check):
        return f"{100 * check.tolerance / max(1, check.predicted):.0f} %"
    return f"{count(int(check.tolerance))} B" if check.unit == BYTES else f"{check.tolerance:.1g}"


def _is_in_percent(check: Check) -> bool:
    """Whether the difference and the tolerance of a peak are shares of it, of at least 0.1 %."""
    return check.unit == BYTES and 1000 * check.tolerance >= max(1, check.predicted)


# Peak memory and time


def pass_tables(result: VerifyResult) -> Iterator[Table]:
    """Yield one table of the peak memory and the time of each pass over a layer; none if neither was measured."""
    passes = _passes(result)
    if not passes:
        return
    groups = tuple(dict.fromkeys(group for group, _ in passes))
    several = len(groups) > 1
    columns = [Column("" if several else groups[0], "left")]
    cells = [["  " + label if several else label] for _, label in passes]
    peaks, times = zip(*passes.values(), strict=True)
    for more_columns, more_cells in (_peak_cells(peaks, came_from(result)), _time_cells(times)):
        columns += more_columns
        cells = [row + more for row, more in zip(cells, more_cells, strict=True)]
    rows: list[tuple[str, ...]] = []
    strong = set()
    for i, ((group, _), (peak, _)) in enumerate(passes.items()):
        if several and group not in [row[0] for row in rows]:
            rows.append((group, *[""] * (len(columns) - 1)))
        if peak and not peak.ok:
            strong.add(len(rows))
        rows.append(tuple(cells[i]))
    yield Table(tuple(columns), tuple(rows), strong=frozenset(strong))


def _peak_cells(peaks: Sequence[Check | None], source: str) -> tuple[list[Column], list[list[str]]]:
    """Return the columns of peaks, and their cells for each pass; no columns without a peak."""
    measured = [check for check in peaks if check]
    if not measured:
        return [], [[] for _ in peaks]
    unit, numbers = column([n for check in measured for n in (int(check.predicted), int(check.measured))], BYTES)
    of_check = iter(numbers)
    columns = [Column(f"peak, {unit}\npredicted"), Column(f"peak, {unit}\n{source}"), Column("diff")]
    return columns, [[next(of_check), next(of_check), difference(check)] if check else ["-"] * 3 for check in peaks]


def _time_cells(times: Sequence[Timing | None]) -> tuple[list[Column], list[list[str]]]:
    """Return the columns of times, and their cells for each pass; no columns without a time."""
    if not any(times):
        return [], [[] for _ in times]
    columns = [Column("ms"), Column("share of\nbound")]
    return columns, [[f"{timing.ms:,.3f}", _share_of_bound(timing)] if timing else ["-"] * 2 for timing in times]


def _passes(result: VerifyResult) -> dict[tuple[str, str], tuple[Check | None, Timing | None]]:
    """Return the check of the peak and the time of each pass, by layer group and 'prefill, math'."""
    peaks = {(check.of, check.label): check for check in result.checks if check.section == PEAKS}
    times = {(timing.of, f"{timing.phase}, {timing.kernel}"): timing for timing in result.times}
    return {key: (peaks.get(key), times.get(key)) for key in (*peaks, *times)}


def _share_of_bound(timing: Timing) -> str:
    """Return the lower bound of the time as a share of it."""
    return f"{timing.least_ms / timing.ms:.0%}" if timing.least_ms <= timing.ms else "cached"


def peak_tables(checks: Sequence[Check]) -> Iterator[Table]:
    """Yield one table of all peaks: when each occurs, and the largest tensors held at that time."""
    peaks = [check for check in checks if check.section == PEAKS]
    several = len(groups_of(peaks)) > 1
    rows = []
    for check in peaks:
        label = f"{check.of}, {check.label}" if several else check.label
        moment, _, tensors = check.note.partition(": ")
        rows.append((label, moment, _first(tensors.split(", "), MAX_TENSORS_OF_SEVERAL if several else MAX_TENSORS)))
    columns = (Column("tensors at the peak", "left"), Column("peak during", "left"), Column("largest tensors", "left"))
    if rows:
        yield Table(columns, tuple(rows))


def _first(names: Sequence[str], limit: int) -> str:
    return ", ".join(names[:limit]) + (", ..." if len(names) > limit else "")


def time_tables(times: Sequence[Timing]) -> Iterator[Table]:
    """Yield one table of all times: the rates that each reaches in its median time, and its lower bound."""
    several = len({timing.of for timing in times}) > 1
    rows = []
    for t in times:
        label = f"{t.phase}, {t.kernel}"
        rates = t.flop / t.ms / 1e6, t.bytes / t.ms / 1e6
        rows.append(
            (
                f"{t.of}, {label}" if several else label,
                *(f"{ms:,.3f}" for ms in (t.ms_min, t.ms, t.ms_p90)),
                *(f"{rate:,.1f}" for rate in rates),
                f"{t.least_ms:,.3f}",
                _share_of_bound(t),
            )
        )
    names = ("ms,\nmin", "ms,\nmedian", "ms,\np90", "GFLOP/s", "GB/s", "bound,\nms", "bound /\nmedian")
    if rows:
        yield Table((Column("time per layer", "left"), *map(Column, names)), tuple(rows))


# Scaling


def scaling_tables(scaling: Sequence[ScalingRow], source: str) -> Iterator[Table]:
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
                    f"{row.ms / before.ms:.2f}" if row.ms and before.ms else "-",
                    f"{row.flop / before.flop:.2f}",
                    f"{row.peak / before.peak:.2f}" if row.peak and before.peak else "-",
                    f"{row.peak_predicted / before.peak_predicted:.2f}",
                )
            label = row.kernel if before is None else ""
            peak = peaks[i] if row.peak is not None else "-"
            table_rows.append(
                (label, count(row.context), f"{row.ms:,.2f}" if row.ms else "-", *ratios[:2], peak, *ratios[2:])
            )
        header = (*names, f"peak\n{unit}", f"{source}\nx", "predicted\nx")
        yield Table((Column(group, "left"), *map(Column, header)), tuple(table_rows))


# Figures for information


def reported_tables(reported: Sequence[Reported], source: str, *, full: bool) -> Iterator[Table]:
    """Yield one table of the figures that are not checked: the largest of each section, or all of them."""
    sections = {section: [f for f in reported if f.section == section] for section in _reported_sections(reported)}
    rows = []
    for section, figures in sections.items():
        shown = figures if full else [max(figures, key=lambda figure: figure.size)]
        for i, figure in enumerate(shown):
            numbers = (_rounded(figure.predicted, figure.unit), _rounded(figure.measured, figure.unit))
            label = ", ".join(filter(None, (figure.of, figure.label)))
            rows.append((section if i == 0 else "", *numbers, label))
    if rows:
        of = "of" if full else "largest of"
        columns = (Column("not checked", "left"), Column("predicted"), Column(source), Column(of, "left"))
        yield Table(columns, tuple(rows))


def reported_notes(reported: Sequence[Reported]) -> Iterator[str]:
    """Yield what each of these figures is, once per section."""
    yield from dict.fromkeys(f"{figure.section}: {figure.note}." for figure in reported if figure.note)


def _reported_sections(reported: Sequence[Reported]) -> Iterable[str]:
    return dict.fromkeys(figure.section for figure in reported)


def _rounded(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return human(value, unit) if isinstance(value, int) else f"{number(value)} {unit}".strip()
