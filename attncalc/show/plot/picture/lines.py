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
    widest = max(ruler.width(tick.label, style.SMALL) for tick in across.ticks)
    if len(across.ticks) * (widest + 0.12) > box.width - left - right:
        across, _ = chart.scales(
            most_x=max(2, int((box.width - left - right) / (widest + 0.12))), most_y=7
        )
    axes = canvas.axes(Box(box.left + left, box.top, box.width - left - right, inner))
    x_axis(axes, across)
    y_axis(axes, up)
    ends = []
    for i, series in enumerate(chart.series):
        _draw_line(axes, across, up, series, i)
        points = known(series.points) or known(series.measured or ())
        ends.append((across.at(points[-1][0]), up.at(points[-1][1])) if points else None)
    shown = [i for i, end in enumerate(ends) if end]
    places = style.spread([end[1] * inner for end in ends if end], _GAP, 0.0, inner)
    one_inch = 1 / (box.width - left - right)
    start = 1 + 0.24 * one_inch
    for i, place in zip(shown, places, strict=True):
        x, y = ends[i] or (0.0, 0.0)
        (colour, mark, _), at = style.of_series(i), place / inner
        way = [x, 1 + 0.06 * one_inch, start], [y, y, at]
        axes.plot(*way, color=colour, linewidth=0.6, alpha=0.6, clip_on=False, zorder=1)
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
        measured = [(across.at(x), up.at(y)) for x, y in known(series.measured)]
        xs = [x for x, _ in measured]
        ys = [y for _, y in measured]
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
