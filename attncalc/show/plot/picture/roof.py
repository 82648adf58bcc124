"""Draw a roofline: the roof, and each step as a point on it, with its bounds below."""

import math
from collections.abc import Callable

from matplotlib.axes import Axes

from ..chart import Roof, Step
from ..scale import Scale, scale
from . import style
from .canvas import Box, Canvas, Ruler, draw_axes, most_ticks, x_axis_height, y_axis_width

# Inches of the least height of the axes, and of their usual height.
_LEAST = 1.1
_USUAL = 3.0
_USUAL_IN_A_COLUMN = 1.7


def heading(chart: Roof) -> str:
    return chart.title


def inner(chart: Roof, ruler: Ruler) -> tuple[float, float]:
    """Return the least and the usual inches of the height of the axes."""
    return _LEAST, _USUAL_IN_A_COLUMN if ruler.sizes.is_column else _USUAL


def margins(chart: Roof, ruler: Ruler, width: float, height: float) -> tuple[float, float]:
    """Return the inches at the left and at the right of the axes."""
    return y_axis_width(ruler, _up(chart, height), height), 0.12


def _up(chart: Roof, height: float) -> Scale:
    return scale(chart.y, (), most=most_ticks(height), edges=chart.y_range)


def around(chart: Roof, ruler: Ruler, whole: Box, inside: Box) -> tuple[float, float]:
    """Return the inches above and below the axes."""
    above = ruler.sizes.line if _labels_meet(chart, ruler, inside.width) else 0.0
    return above, x_axis_height(ruler.sizes)


def _labels_meet(chart: Roof, ruler: Ruler, axes_width: float) -> bool:
    """Return whether the names of the ridge and of the peak need two lines."""
    low, high = chart.x_range
    right_of_ridge = math.log(high / chart.ridge) / math.log(high / low)
    return ruler.width(chart.peak_label) + 0.1 > right_of_ridge * axes_width


def draw(canvas: Canvas, ruler: Ruler, chart: Roof, whole: Box, inside: Box) -> None:
    """Draw the chart with axes `inside` the `whole`."""
    width = inside.width
    height = inside.height
    size = ruler.sizes.text
    across = scale(chart.x, (), most=max(3, min(9, int(width / 0.6))), edges=chart.x_range)
    up = _up(chart, height)
    axes = draw_axes(canvas, ruler, (across, up), whole, inside)
    xs = [across.at(x) for x, _ in chart.roof]
    ys = [up.at(y) for _, y in chart.roof]
    axes.plot(xs, ys, color=style.INK, linewidth=2, zorder=2)
    x0, ridge, _ = xs
    y0, peak, _ = ys
    axes.plot(
        [ridge, ridge], [0, peak], color=style.GREY, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1
    )
    above = peak + 0.08 / height
    above_peak = above
    if _labels_meet(chart, ruler, width):
        above_peak += ruler.sizes.line / height
    axes.text(1, above, chart.peak_label, fontsize=size, ha="right", va="bottom")
    axes.text(
        ridge,
        above_peak,
        chart.ridge_label,
        fontsize=size,
        ha="right",
        va="bottom",
        color=style.GREY,
    )
    angle = math.degrees(math.atan2((peak - y0) * height, (ridge - x0) * width))
    axes.text(
        (x0 + ridge) / 2 - 0.07 * math.sin(math.radians(angle)) / width,
        (y0 + peak) / 2 + 0.07 * math.cos(math.radians(angle)) / height,
        chart.bandwidth_label,
        fontsize=size,
        ha="center",
        va="bottom",
        rotation=angle,
        rotation_mode="anchor",
    )

    def roof(x: float) -> float:
        return peak + min(0.0, (x - ridge) * (peak - y0) / (ridge - x0))

    _draw_steps(
        axes,
        ruler,
        [(step, across.at(step.intensity), up.at(step.speed)) for step in chart.steps],
        inside,
        roof,
    )


def _draw_steps(
    axes: Axes,
    ruler: Ruler,
    placed: list[tuple[Step, float, float]],
    inside: Box,
    roof: Callable[[float], float],
) -> None:
    """Draw each step, a line to the axis, and below the roof its name with the details, which no
    other's cover.
    """
    taken: list[tuple[float, float, float]] = []
    width = inside.width
    height = inside.height
    size = ruler.sizes.text
    line_height = ruler.sizes.line / height
    for i, (step, x, y) in enumerate(placed):
        lines = (step.label, *step.details)
        wide = max(map(ruler.width, lines)) / width
        tall = line_height * len(lines)
        if x + wide + 0.15 / width > 1:
            start = x - 0.12 / width - wide
            place = start + wide
            align = "right"
        else:
            start = x + 0.12 / width
            place = start
            align = "left"
        top = min(y, roof(start)) - 0.12 / height
        for left, right, bottom in taken:
            if start < right and start + wide > left and top > bottom:
                top = bottom
        taken.append((start, start + wide, top - tall))
        colour, mark, _ = style.of_series(i)
        axes.plot([x], [y], marker=mark, markersize=2 * ruler.sizes.marker, color=colour, zorder=3)
        axes.plot([x, x], [0, y], color=colour, linewidth=0.8, zorder=1)
        for k, line in enumerate(lines):
            axes.text(
                place,
                top - k * line_height,
                line,
                fontsize=size,
                ha=align,
                va="top",
                weight="normal" if k else "bold",
                color=style.INK,
                bbox=style.BEHIND,
            )
