"""Other tables of `attncalc verify`: peak memory and time, shares of rates, scaling, and figures
for information.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...check import Check, Reported, ScalingRow, Timing
from ...search import grouped
from ...show.report import Column, Table
from ...units import BYTES, column, count, human
from .checks import NOT_MEASURED, PEAKS, difference, groups_of, number

# Tensors named per peak, for one layer and for several, whose longer labels leave less room.
_MAX_TENSORS = 3
_MAX_TENSORS_OF_SEVERAL = 2

# Peak memory and time


def measured_peaks_table(checks: Sequence[Check], source: str) -> Iterator[Table]:
    """Yield one table of the peak memory of each pass over a layer; none if none was measured.

    A decode step of the math kernel has no row where another kernel runs it: nobody uses it.
    """
    measured = [check for check in checks if check.section == PEAKS]
    peaks = [check for check in measured if not _is_folded(check, measured)]
    if not peaks:
        return
    groups = tuple(dict.fromkeys(peak.of for peak in peaks))
    several = len(groups) > 1
    more_columns, cells = _peak_cells(peaks, source)
    columns = [Column("" if several else groups[0], "left"), *more_columns]
    rows: list[tuple[str, ...]] = []
    strong = set()
    for peak, more in zip(peaks, cells, strict=True):
        if several and peak.of not in [row[0] for row in rows]:
            rows.append((peak.of, *[""] * len(more_columns)))
        if not peak.ok:
            strong.add(len(rows))
        rows.append(("  " + peak.label if several else peak.label, *more))
    yield Table(tuple(columns), tuple(rows), strong=frozenset(strong), missing=NOT_MEASURED)


def _is_folded(peak: Check, peaks: Sequence[Check]) -> bool:
    """Whether a peak has no row: that of a decode step of the math kernel that another kernel runs
    too, unless it disagrees.
    """
    if peak.label != "decode, math" or not peak.ok:
        return False
    return any(
        one.of == peak.of and one.label.startswith("decode, ") and one.label != peak.label
        for one in peaks
    )


def _peak_cells(peaks: Sequence[Check], source: str) -> tuple[list[Column], list[list[str]]]:
    """Return the columns of peaks, and their cells for each pass."""
    peaks_of_all = [n for check in peaks for n in (int(check.predicted), int(check.measured))]
    unit, numbers = column(peaks_of_all, BYTES)
    # a decode step has KiB beside a prefill's GiB
    of_check = iter(
        [
            text if text.strip("0.") else human(n, BYTES)
            for n, text in zip(peaks_of_all, numbers, strict=True)
        ]
    )
    columns = [
        Column(f"peak, {unit}\npredicted"),
        Column(f"peak, {unit}\n{source}"),
        Column("diff"),
    ]
    return columns, [[next(of_check), next(of_check), difference(check)] for check in peaks]


def _pass(timing: Timing) -> str:
    """Return the name of a pass: 'prefill, math'."""
    return f"{timing.phase}, {timing.kernel}"


def _share_of_bound(timing: Timing) -> str:
    """Return the lower bound of the time as a share of it."""
    if timing.least_ms <= timing.ms:
        return f"{100 * timing.least_ms / timing.ms:.0f} %"
    return "cached"


def peak_tables(checks: Sequence[Check]) -> Iterator[Table]:
    """Yield one table of all peaks: when each occurs, and the largest tensors held at that time."""
    peaks = [check for check in checks if check.section == PEAKS]
    limit = _MAX_TENSORS_OF_SEVERAL if len(groups_of(peaks)) > 1 else _MAX_TENSORS
    rows = []
    for label, check in zip(
        _labels([(check.of, check.label) for check in peaks]), peaks, strict=True
    ):
        moment, _, tensors = check.note.partition(": ")
        names = tensors.split(", ")
        rows.append(
            (label, moment, ", ".join(names[:limit]) + (", ..." if len(names) > limit else ""))
        )
    columns = (
        Column("tensors at the peak", "left"),
        Column("peak during", "left"),
        Column("largest tensors", "left"),
    )
    if rows:
        yield Table(columns, tuple(rows))


def _labels(named: Sequence[tuple[str, str]]) -> list[str]:
    """Return the labels of pairs of a layer group and a label, with the group if there are
    several.
    """
    several = len({group for group, _ in named}) > 1
    return [f"{group}, {label}" if several else label for group, label in named]


def time_tables(times: Sequence[Timing]) -> Iterator[Table]:
    """Yield one table of all times: the rates that each reaches in its median time, and its lower
    bound.
    """
    rows = tuple(
        (
            label,
            *(f"{ms:,.3f}" for ms in (t.ms_min, t.ms, t.ms_p90)),
            *(f"{amount / t.ms / 1e6:,.1f}" for amount in (t.flop, t.bytes)),
            f"{t.least_ms:,.3f}",
            _share_of_bound(t),
        )
        for label, t in zip(_labels([(t.of, _pass(t)) for t in times]), times, strict=True)
    )
    names = (
        "ms,\nmin",
        "ms,\nmedian",
        "ms,\np90",
        "GFLOP/s",
        "GB/s",
        "bound,\nms",
        "bound /\nmedian",
    )
    if rows:
        yield Table((Column("time per layer", "left"), *map(Column, names)), rows)


# The shares of a device's rates

# The shares in JSON, and their headers.
_SHARES = {
    "flop_share": "FLOP/s, of\nown matmul",
    "bytes_share": "bytes/s, of\nown copy",
    "flop_share_datasheet": "FLOP/s, of\ndatasheet",
    "bytes_share_datasheet": "bytes/s, of\ndatasheet",
}


def datasheet_shares(
    timing: Mapping[str, Any], device: Mapping[str, Any], dtype: str
) -> tuple[float | None, float | None]:
    """Return a time's shares of the datasheet's FLOP/s in this dtype and of its bytes/s; None if
    unknown.
    """
    datasheet = device.get("datasheet") or {}
    peak = datasheet.get("flop_per_s", {}).get(dtype)
    bandwidth = datasheet.get("bytes_per_s")
    flop_per_s, bytes_per_s = (timing[name] / timing["ms"] * 1000 for name in ("flop", "bytes"))
    return (flop_per_s / peak if peak else None), (bytes_per_s / bandwidth if bandwidth else None)


def time_facts(timing: Timing, device: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """Return a time as plain data with its shares of the datasheet, for JSON."""
    facts = timing.facts()
    flop, moved = datasheet_shares(facts, device, dtype)
    return {**facts, "flop_share_datasheet": flop, "bytes_share_datasheet": moved}


def utilization_tables(times: Sequence[Mapping[str, Any]]) -> Iterator[Table]:
    """Yield one table of the shares of each pass; those of a datasheet only for a GPU that has
    one.
    """
    shares = {
        name: header
        for name, header in _SHARES.items()
        if any(timing[name] is not None for timing in times)
    }
    if not shares:
        return
    labels = _labels([(timing["of"], f"{timing['phase']}, {timing['kernel']}") for timing in times])
    rows = tuple(
        (label, *(percent(timing[name]) for name in shares))
        for label, timing in zip(labels, times, strict=True)
    )
    yield Table(
        (Column("utilization", "left"), *map(Column, shares.values())), rows, missing=NOT_MEASURED
    )


def percent(share: float | None) -> str:
    """Return a share: '41 %', '0.8 %'; '-' without one."""
    if share is None:
        return "-"
    if share >= 0.1:
        return f"{100 * share:.0f} %"
    return f"{100 * share:.1f} %"


# Scaling


def scaling_tables(scaling: Sequence[ScalingRow], source: str) -> Iterator[Table]:
    """Yield one table per layer: time and peak at each context, and their ratios to the context
    before.
    """
    names = ("tokens", "ms", "time\nx", "FLOP\nx")
    for group in dict.fromkeys(row.of for row in scaling):
        table_rows: list[tuple[str, ...]] = []
        group_rows = [row for row in scaling if row.of == group]
        unit, peaks = column([row.peak or 0 for row in group_rows], BYTES)
        for i, row in enumerate(group_rows):
            if i and group_rows[i - 1].kernel == row.kernel:
                before = group_rows[i - 1]
            else:
                before = None
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
                (
                    label,
                    count(row.context),
                    f"{row.ms:,.2f}" if row.ms else "-",
                    *ratios[:2],
                    peak,
                    *ratios[2:],
                )
            )
        header = (*names, f"peak\n{unit}", f"{source}\nx", "predicted\nx")
        yield Table(
            (Column(group, "left"), *map(Column, header)), tuple(table_rows), missing=NOT_MEASURED
        )


# Figures for information


def reported_tables(reported: Sequence[Reported], source: str, *, full: bool) -> Iterator[Table]:
    """Yield one table of the figures that are not checked: the largest of each section, or all of
    them.
    """
    rows = []
    for section, figures in grouped((figure.section, figure) for figure in reported).items():
        shown = figures if full else [max(figures, key=lambda figure: figure.size)]
        for i, figure in enumerate(shown):
            numbers = (
                _rounded(figure.predicted, figure.unit),
                _rounded(figure.measured, figure.unit),
            )
            label = ", ".join(filter(None, (figure.of, figure.label)))
            rows.append((section if i == 0 else "", *numbers, label))
    if rows:
        of = "of" if full else "largest of"
        columns = (
            Column("not checked", "left"),
            Column("predicted"),
            Column(source),
            Column(of, "left"),
        )
        yield Table(columns, tuple(rows))


def reported_notes(reported: Sequence[Reported]) -> Iterator[str]:
    """Yield what each of these figures is, once per section."""
    yield from dict.fromkeys(
        f"{figure.section}: {figure.note}." for figure in reported if figure.note
    )


def _rounded(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return human(value, unit)
    return f"{number(value)} {unit}".strip()
