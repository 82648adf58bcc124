"""Draw lines, each with its name at its end."""

from matplotlib.axes import Axes

from ..chart import Lines, Series, known, runs
from ..scale import Scale
from . import style
from .canvas import Box, Canvas, Ruler, x_axis, y_axis, y_labels_width

# Inches of the axis below.
_AXIS = 0.52
# Inches of the least height of the axes.
_LEAST = 2.7
# The share of the width that names may take.
_LONGEST_NAME = 0.34
# Points up to which each of a line is marked.
_MARKED = 24
_MOST_TICKS = 16
_GAP = style.inches(style.TEXT)


def height(chart: Lines, ruler: Ruler, width: float) -> float:
    return style.HEAD + _axes_height(chart) + _AXIS


def _axes_height(chart: Lines) -> float:
    return max(_LEAST, _GAP * (len(chart.series) + 1))


def draw(canvas: Canvas, ruler: Ruler, chart: Lines, box: Box) -> None:
    inner = _axes_height(chart)
    across, up = chart.scales(most_x=_MOST_TICKS, most_y=7)
    names = [ruler.cut(series.label, box.width * _LONGEST_NAME) for series in chart.series]
    left = y_labels_width(ruler, up)
    right = max((ruler.width(name) for name in names), default=0.0) + 0.37
    width = box.width - left - right
    widest = max(ruler.width(tick.label, style.SMALL) for tick in across.ticks)
    if len(across.ticks) * (widest + 0.12) > width:
        across, _ = chart.scales(most_x=max(2, int(width / (widest + 0.12))), most_y=7)
    axes = canvas.axes(Box(box.left + left, box.top, width, inner))
    x_axis(axes, across)
    y_axis(axes, up)
    ends = {}
    for i, series in enumerate(chart.series):
        _draw_line(axes, across, up, series, i)
        points = known(series.points) or known(series.measured or ())
        if points:
            x, y = points[-1]
            ends[i] = (across.at(x), up.at(y))
    places = style.spread([y * inner for _, y in ends.values()], _GAP, 0.0, inner)
    one_inch = 1 / width
    start = 1 + 0.24 * one_inch
    for (i, (x, y)), place in zip(ends.items(), places, strict=True):
        colour, mark, _ = style.of_series(i)
        at = place / inner
        xs = [x, 1 + 0.06 * one_inch, start]
        ys = [y, y, at]
        axes.plot(xs, ys, color=colour, linewidth=0.6, alpha=0.6, clip_on=False, zorder=1)
        axes.plot([start], [at], color=colour, marker=mark, markersize=4, clip_on=False)
        text_x = start + 0.09 * one_inch
        axes.text(text_x, at, names[i], fontsize=style.TEXT, color=style.INK, va="center_baseline")


def _draw_line(axes: Axes, across: Scale, up: Scale, series: Series, i: int) -> None:
    """Draw one line, with a gap where a y is missing, and its points."""
    colour, mark, dashes = style.of_series(i)
    for run in runs(series.points):
        xs = [across.at(x) for x, _ in run]
        ys = [up.at(y) for _, y in run]
        marks = mark if series.measured is None and len(series.points) <= _MARKED else ""
        axes.plot(
            xs,
            ys,
            color=colour,
            linestyle=dashes,
            linewidth=1.6,
            marker=marks,
            markersize=5,
            clip_on=False,
        )
    if series.measured:
        measured = known(series.measured)
        xs = [across.at(x) for x, _ in measured]
        ys = [up.at(y) for _, y in measured]
        axes.plot(
            xs,
            ys,
            color=colour,
            linestyle="",
            marker=mark,
            markersize=6,
            markerfacecolor="white",
            clip_on=False,
        )
