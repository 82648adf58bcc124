"""Draw bars: one horizontal bar per name, with its value at its end."""

from ..chart import Bars
from ..scale import scale
from . import style
from .canvas import Box, Canvas, Ruler, x_axis, x_axis_height

# Inches of a bar with the space below it: at least, and usually; more makes no bar easier to read.
_LEAST = 0.13
_USUAL = 0.26
# The share of the width that names may take.
_LONGEST_NAME = 0.42


def heading(chart: Bars) -> str:
    return ""


def inner(chart: Bars, ruler: Ruler) -> tuple[float, float]:
    """Return the least and the usual inches of the height of the axes."""
    usual = ruler.sizes.line * 1.1 if ruler.sizes.is_column else _USUAL
    return _LEAST * len(chart.bars), usual * len(chart.bars)


def margins(chart: Bars, ruler: Ruler, width: float, height: float) -> tuple[float, float]:
    """Return the inches of the names at the left and of the values at the right."""
    weights = ["bold" if bar.strong else "normal" for bar in chart.bars]
    names = zip(_names(chart, ruler, width), weights, strict=True)
    values = zip((bar.text for bar in chart.bars), weights, strict=True)
    left = max(ruler.width(name, weight=weight) for name, weight in names)
    right = max(ruler.width(text, weight=weight) for text, weight in values)
    return left + 0.1, right + 0.1


def _names(chart: Bars, ruler: Ruler, width: float) -> list[str]:
    names = []
    for bar in chart.bars:
        weight = "bold" if bar.strong else "normal"
        names.append(ruler.cut(bar.label, width * _LONGEST_NAME, weight=weight))
    return names


def around(chart: Bars, ruler: Ruler, whole: Box, inside: Box) -> tuple[float, float]:
    """Return the inches above and below the axes."""
    return 0.0, x_axis_height(ruler.sizes)


def draw(canvas: Canvas, ruler: Ruler, chart: Bars, whole: Box, inside: Box) -> None:
    """Draw the chart with axes `inside` the `whole`."""
    sizes = ruler.sizes
    axes = canvas.axes(inside)
    values = [bar.value for bar in chart.bars if bar.value is not None]
    across = scale(chart.axis, values, most=max(3, min(6, int(inside.width / 0.35))), bar=True)
    axes.set_ylim(len(chart.bars) - 0.5, -0.5)
    axes.set_yticks(range(len(chart.bars)), _names(chart, ruler, whole.width))
    axes.tick_params(axis="y", labelsize=sizes.text, labelcolor=style.INK, length=0)
    x_axis(axes, across, sizes)
    axes.grid(axis="x", color=style.LIGHT, linewidth=0.7)
    axes.set_axisbelow(True)
    for i, (bar, label) in enumerate(zip(chart.bars, axes.get_yticklabels(), strict=True)):
        weight = "bold" if bar.strong else "normal"
        label.set(fontweight=weight, va="center_baseline")
        end = across.at(bar.value or 0)
        axes.barh(i, end, 0.66, color=style.COLOURS[0] if bar.strong else "#9DC3DE")
        axes.text(
            end + 0.06 / inside.width,
            i,
            bar.text,
            fontsize=sizes.text,
            va="center_baseline",
            weight=weight,
            bbox=style.BEHIND,
        )
