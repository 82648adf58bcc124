"""Draw a roofline: the roof, and each step as a point on it, with its bounds below."""

import math
from collections.abc import Callable

from matplotlib.axes import Axes

from ..chart import Roof, Step
from ..scale import scale
from . import style
from .canvas import Box, Canvas, Ruler, x_axis, y_axis, y_labels_width

_HEIGHT = 3.0
_AXIS = 0.52
_LINE = style.inches(style.TEXT)


def height(chart: Roof, ruler: Ruler, width: float) -> float:
    return style.HEAD + _HEIGHT + _AXIS


def draw(canvas: Canvas, ruler: Ruler, chart: Roof, box: Box) -> None:
    across = scale(chart.x, (), most=9, edges=chart.x_range)
    up = scale(chart.y, (), most=7, edges=chart.y_range)
    left = y_labels_width(ruler, up)
    width = box.width - left - 0.1
    axes = canvas.axes(Box(box.left + left, box.top, width, _HEIGHT))
    x_axis(axes, across)
    y_axis(axes, up)
    xs = [across.at(x) for x, _ in chart.roof]
    ys = [up.at(y) for _, y in chart.roof]
    axes.plot(xs, ys, color=style.INK, linewidth=2, zorder=2)
    x0, ridge, _ = xs
    y0, peak, _ = ys
    axes.plot(
        [ridge, ridge], [0, peak], color=style.GREY, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1
    )
    above = peak + 0.08 / _HEIGHT
    axes.text(1, above, chart.peak_label, fontsize=style.TEXT, ha="right", va="bottom")
    axes.text(
        ridge,
        above,
        chart.ridge_label,
        fontsize=style.TEXT,
        ha="right",
        va="bottom",
        color=style.GREY,
    )
    angle = math.degrees(math.atan2((peak - y0) * _HEIGHT, (ridge - x0) * width))
    axes.text(
        (x0 + ridge) / 2 - 0.07 * math.sin(math.radians(angle)) / width,
        (y0 + peak) / 2 + 0.07 * math.cos(math.radians(angle)) / _HEIGHT,
        chart.bandwidth_label,
        fontsize=style.TEXT,
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
        width,
        roof,
    )


def _draw_steps(
    axes: Axes,
    ruler: Ruler,
    placed: list[tuple[Step, float, float]],
    width: float,
    roof: Callable[[float], float],
) -> None:
    """Draw each step, a line to the axis, and below the roof its name with the details, which no
    other's cover.
    """
    taken: list[tuple[float, float, float]] = []
    for i, (step, x, y) in enumerate(placed):
        lines = (step.label, *step.details)
        wide = max(map(ruler.width, lines)) / width
        tall = _LINE * len(lines) / _HEIGHT
        if x + wide + 0.15 / width > 1:
            start = x - 0.12 / width - wide
            place = start + wide
            align = "right"
        else:
            start = x + 0.12 / width
            place = start
            align = "left"
        top = min(y, roof(start)) - 0.12 / _HEIGHT
        for left, right, bottom in taken:
            if start < right and start + wide > left and top > bottom:
                top = bottom
        taken.append((start, start + wide, top - tall))
        colour, mark, _ = style.of_series(i)
        axes.plot([x], [y], marker=mark, markersize=9, color=colour, zorder=3)
        axes.plot([x, x], [0, y], color=colour, linewidth=0.8, zorder=1)
        for k, line in enumerate(lines):
            axes.text(
                place,
                top - k * _LINE / _HEIGHT,
                line,
                fontsize=style.TEXT,
                ha=align,
                va="top",
                weight="normal" if k else "bold",
                color=style.INK,
                bbox=style.BEHIND,
            )
