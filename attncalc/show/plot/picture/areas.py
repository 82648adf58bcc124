"""Draw stacked areas, with their names beside them from the top to the bottom."""

from typing import Any

from ..chart import Areas
from . import legend, marks, style
from .canvas import Box, Canvas, Ruler, draw_axes, horizontal, vertical, x_axis_height, y_axis_width

_LEAST = 0.6
_USUAL = 3.0
_USUAL_IN_A_COLUMN = 1.6
# Inches between the axes and the legend.
_TO_LEGEND = 0.15


def heading(chart: Areas) -> str:
    return ""


def inner(chart: Areas, ruler: Ruler) -> tuple[float, float]:
    """Return the least and the usual inches of the height of the axes."""
    return _LEAST, _USUAL_IN_A_COLUMN if ruler.sizes.is_column else _USUAL


def margins(chart: Areas, ruler: Ruler, width: float, height: float) -> tuple[float, float]:
    """Return the inches at the left and at the right of the axes, which are `height` inches
    high.
    """
    right = 0.12
    if not ruler.sizes.is_column:
        right = _TO_LEGEND + min(legend.width(_entries(chart), ruler), width * 0.4)
    return y_axis_width(ruler, vertical(chart, height), height), right


def around(chart: Areas, ruler: Ruler, whole: Box, inside: Box) -> tuple[float, float]:
    """Return the inches above and below the axes."""
    across = horizontal(chart, ruler, inside.width)
    above = max(0.06, marks.height(chart.marks, across, ruler, whole, inside))
    below = x_axis_height(ruler.sizes)
    if ruler.sizes.is_column:
        below += legend.height_below(_entries(chart), ruler, whole.width)
    return above, below


def _entries(chart: Areas) -> list[legend.Entry]:
    """Return the names of the limits, then those of the areas, the highest first."""
    entries = [legend.Entry(limit.label, _limit()) for limit in chart.limits]
    for i in reversed(range(len(chart.series))):
        settings = {"facecolor": _colour(chart, i), "edgecolor": style.GREY, "linewidth": 0.3}
        entries.append(legend.Entry(chart.series[i].label, settings, is_area=True))
    return entries


def _colour(chart: Areas, i: int) -> str:
    number = chart.colours[i] if chart.colours else i
    return style.AREAS[number % len(style.AREAS)]


def _limit() -> dict[str, Any]:
    return {"color": style.INK, "linewidth": 1.3, "linestyle": (0, (5, 2))}


def draw(canvas: Canvas, ruler: Ruler, chart: Areas, whole: Box, inside: Box) -> None:
    """Draw the chart with axes `inside` the `whole`."""
    height = inside.height
    sizes = ruler.sizes
    across = horizontal(chart, ruler, inside.width)
    up = vertical(chart, height)
    axes = draw_axes(canvas, ruler, (across, up), whole, inside)
    xs = [across.at(x) for x in chart.xs]
    below = [up.at(0.0) for _ in xs]
    for i, top in enumerate(chart.tops):
        ys = [up.at(y) for y in top]
        axes.fill_between(
            xs, below, ys, facecolor=_colour(chart, i), edgecolor="white", linewidth=0.4, zorder=2
        )
        below = ys
    for limit in chart.limits:
        at = up.at(limit.value)
        axes.plot([0, 1], [at, at], zorder=4, **_limit())
    for span in chart.spans:
        start = across.at(span.start)
        middle = (start + across.at(span.end)) / 2
        axes.text(
            middle,
            -0.05 / height,
            span.label,
            fontsize=sizes.small,
            color=style.INK,
            ha="center",
            va="top",
        )
        if start > 0:
            axes.plot(
                [start, start],
                [-0.08 / height, 1],
                color=style.GREY,
                linewidth=0.6,
                clip_on=False,
                zorder=3,
            )
    if chart.spans:
        axes.xaxis.labelpad = 0.1 * 72 + sizes.small
    marks.draw(axes, chart.marks, across, ruler, whole, inside)
    if sizes.is_column:
        legend.draw_below(canvas, ruler, _entries(chart), whole, inside)
    else:
        left = inside.left + inside.width + _TO_LEGEND
        place = Box(left, inside.top, whole.left + whole.width - left, 0)
        legend.draw(canvas, ruler, _entries(chart), place)
