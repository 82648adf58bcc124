"""Draw lines, each with its name at its end, or in a legend below."""

from typing import Any

from matplotlib.axes import Axes

from ..chart import Lines, Series, known, runs
from ..scale import Scale
from . import legend, marks, style
from .canvas import Box, Canvas, Ruler, draw_axes, horizontal, vertical, x_axis_height, y_axis_width

# Inches of the least height of the axes, and of their usual height.
_LEAST = 0.6
_USUAL = 2.7
_USUAL_IN_A_COLUMN = 1.6
# The share of the width that names may take, and in a column of a paper.
_LONGEST_NAME = 0.34
_LONGEST_IN_A_COLUMN = 0.26
# Points of a line up to which those of all lines are marked.
_MARKED = 24
# Inches between a line's end and its name.
_TO_NAME = 0.33


def heading(chart: Lines) -> str:
    return ""


def inner(chart: Lines, ruler: Ruler) -> tuple[float, float]:
    """Return the least and the usual inches of the height of the axes."""
    usual = _USUAL_IN_A_COLUMN if ruler.sizes.is_column else _USUAL
    names = ruler.sizes.line * (len(chart.series) + 1)
    return _LEAST, max(usual, names)


def margins(chart: Lines, ruler: Ruler, width: float, height: float) -> tuple[float, float]:
    """Return the inches at the left and at the right of the axes, which are `height` inches
    high.
    """
    right = 0.12
    if not _is_below(chart, ruler, width, height):
        names = (ruler.width(name) for name in _names(chart, ruler, width))
        right = max(names, default=0.0) + _TO_NAME
    return y_axis_width(ruler, vertical(chart, height), height), right


def _names(chart: Lines, ruler: Ruler, width: float) -> list[str]:
    return [ruler.cut(series.label, width * _LONGEST_NAME) for series in chart.series]


def _is_below(chart: Lines, ruler: Ruler, width: float, height: float) -> bool:
    """Return whether the names are in a legend below: in a column that is too narrow or too low."""
    if not ruler.sizes.is_column or not any(series.label for series in chart.series):
        return False
    longest = max(ruler.width(series.label) for series in chart.series)
    return longest > width * _LONGEST_IN_A_COLUMN or ruler.sizes.line * len(chart.series) > height


def around(chart: Lines, ruler: Ruler, whole: Box, inside: Box) -> tuple[float, float]:
    """Return the inches above and below the axes."""
    across = horizontal(chart, ruler, inside.width)
    above = max(0.06, marks.height(chart.marks, across, ruler, whole, inside))
    below = x_axis_height(ruler.sizes)
    if _is_below(chart, ruler, whole.width, inside.height):
        below += legend.height_below(_entries(chart, ruler), ruler, whole.width)
    return above, below


def _entries(chart: Lines, ruler: Ruler) -> list[legend.Entry]:
    return [
        legend.Entry(series.label, _settings(i, ruler.sizes))
        for i, series in enumerate(chart.series)
    ]


def _settings(i: int, sizes: style.Sizes) -> dict[str, Any]:
    """Return how the line `i` is drawn."""
    colour, mark, dashes = style.of_series(i)
    return {
        "color": colour,
        "marker": mark,
        "markersize": sizes.marker,
        "linestyle": dashes,
        "linewidth": sizes.stroke,
    }


def draw(canvas: Canvas, ruler: Ruler, chart: Lines, whole: Box, inside: Box) -> None:
    """Draw the chart with axes `inside` the `whole`."""
    height = inside.height
    across = horizontal(chart, ruler, inside.width)
    up = vertical(chart, height)
    axes = draw_axes(canvas, ruler, (across, up), whole, inside)
    is_marked = all(len(series.points) <= _MARKED for series in chart.series)
    for i, series in enumerate(chart.series):
        settings = _settings(i, ruler.sizes)
        _draw_line(axes, (across, up), series, settings, is_marked=is_marked)
    marks.draw(axes, chart.marks, across, ruler, whole, inside)
    if _is_below(chart, ruler, whole.width, height):
        legend.draw_below(canvas, ruler, _entries(chart, ruler), whole, inside)
    else:
        _draw_names(axes, ruler, chart, (across, up), whole, inside)


def _draw_names(
    axes: Axes, ruler: Ruler, chart: Lines, scales: tuple[Scale, Scale], whole: Box, inside: Box
) -> None:
    """Draw the name of each line at its end, none over another."""
    across, up = scales
    names = _names(chart, ruler, whole.width)
    ends = {}
    for i, series in enumerate(chart.series):
        points = known(series.points) or known(series.measured or ())
        if points:
            x, y = points[-1]
            ends[i] = (across.at(x), up.at(y))
    wanted = [y * inside.height for _, y in ends.values()]
    places = style.spread(wanted, ruler.sizes.line, 0.0, inside.height)
    one_inch = 1 / inside.width
    start = 1 + 0.2 * one_inch
    for (i, (x, y)), place in zip(ends.items(), places, strict=True):
        if not names[i]:
            continue
        colour, mark, _ = style.of_series(i)
        at = place / inside.height
        xs = [x, 1 + 0.05 * one_inch, start]
        axes.plot(xs, [y, y, at], color=colour, linewidth=0.6, alpha=0.6, clip_on=False, zorder=1)
        axes.plot(
            [start], [at], color=colour, marker=mark, markersize=ruler.sizes.marker, clip_on=False
        )
        axes.text(
            start + 0.08 * one_inch,
            at,
            names[i],
            fontsize=ruler.sizes.text,
            color=style.INK,
            va="center_baseline",
        )


def _draw_line(
    axes: Axes,
    scales: tuple[Scale, Scale],
    series: Series,
    settings: dict[str, Any],
    *,
    is_marked: bool,
) -> None:
    """Draw one line, with a gap where a y is missing, and its points."""
    across, up = scales
    own_marks = settings.pop("marker")
    for run in runs(series.points):
        xs = [across.at(x) for x, _ in run]
        ys = [up.at(y) for _, y in run]
        mark = own_marks if is_marked and series.measured is None else ""
        axes.plot(xs, ys, marker=mark, clip_on=False, **settings)
    if series.measured:
        measured = known(series.measured)
        xs = [across.at(x) for x, _ in measured]
        ys = [up.at(y) for _, y in measured]
        size = 1.5 * settings["markersize"]
        settings |= {"linestyle": "", "markersize": size, "markerfacecolor": "white"}
        axes.plot(xs, ys, marker=own_marks, clip_on=False, **settings)
