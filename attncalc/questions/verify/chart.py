"""The picture of `attncalc verify --scaling`: measured points on predicted lines."""

from collections.abc import Iterable, Iterator, Sequence

from ...check import ScalingRow
from ...search import grouped
from ...show.plot.chart import Chart, Lines, Series
from ...show.plot.scale import Axis
from ...units import BYTES, SECONDS, TOKENS

DEFAULT = ("time", "peak")
LEGEND = "points are measured, lines predicted: a time as FLOPs grow, through the last measured one"
_X = Axis("context", TOKENS, "context")


def scaling_charts(rows: Sequence[ScalingRow]) -> Iterator[Chart]:
    """Yield two charts per layer: the time of each kernel over the context, and the peak memory.

    The lines of the time grow as the FLOPs do, through the last measured time. Those of the memory
    are predictions.
    """
    groups = tuple(dict.fromkeys(row.of for row in rows))
    for group in groups:
        of = f", {group}" if len(groups) > 1 else ""
        kernels = grouped((row.kernel, row) for row in rows if row.of == group)
        times = [
            _time(kernel, own) for kernel, own in kernels.items() if any(row.ms for row in own)
        ]
        if times:
            axis = Axis(f"Time{of}", SECONDS, "time")
            yield Lines("time", axis.label, _X, axis, tuple(times))
        axis = Axis(f"Peak memory{of}", BYTES, "peak")
        yield Lines(
            "peak",
            axis.label,
            _X,
            axis,
            tuple(_peak(kernel, own) for kernel, own in kernels.items()),
        )


def _time(kernel: str, rows: Iterable[ScalingRow]) -> Series:
    measured = [(row.context, row.ms / 1000) for row in rows if row.ms]
    last = next(row for row in reversed(list(rows)) if row.ms)
    line = tuple((row.context, (last.ms or 0) / 1000 * row.flop / last.flop) for row in rows)
    return Series(kernel, line, tuple(measured))


def _peak(kernel: str, rows: Sequence[ScalingRow]) -> Series:
    measured = tuple((row.context, row.peak) for row in rows if row.peak is not None)
    return Series(kernel, tuple((row.context, row.peak_predicted) for row in rows), measured)
