"""Draw bars: one horizontal bar per name, with its value at its end."""

from ..chart import Bars
from ..scale import scale
from . import style
from .canvas import Box, Canvas, Ruler, x_axis

# Inches of a bar and the space below it.
_BAR = 0.26
# Inches of the axis below.
_AXIS = 0.5
# The share of the width that names may take.
_LONGEST_NAME = 0.42


def height(chart: Bars, ruler: Ruler, width: float) -> float:
    return style.HEAD + _BAR * len(chart.bars) + _AXIS


def draw(canvas: Canvas, ruler: Ruler, chart: Bars, box: Box) -> None:
    weights = []
    names = []
    widest_name = 0.0
    widest_text = 0.0
    for bar in chart.bars:
        weight = "bold" if bar.strong else "normal"
        name = ruler.cut(bar.label, box.width * _LONGEST_NAME, weight=weight)
        weights.append(weight)
        names.append(name)
        widest_name = max(widest_name, ruler.width(name, weight=weight))
        widest_text = max(widest_text, ruler.width(bar.text, weight=weight))
    left = widest_name + 0.1
    right = widest_text + 0.1
    axes = canvas.axes(
        Box(box.left + left, box.top, box.width - left - right, _BAR * len(chart.bars))
    )
    values = [bar.value for bar in chart.bars if bar.value is not None]
    across = scale(chart.axis, values, most=5, bar=True)
    axes.set_ylim(len(chart.bars) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", labelsize=style.TEXT, labelcolor=style.INK, length=0)
    x_axis(axes, across)
    axes.grid(axis="x", color=style.LIGHT, linewidth=0.7)
    axes.set_axisbelow(True)
    for i, (bar, label, weight) in enumerate(
        zip(chart.bars, axes.get_yticklabels(), weights, strict=True)
    ):
        label.set(fontweight=weight, va="center_baseline")
        end = across.at(bar.value or 0)
        axes.barh(i, end, 0.66, color=style.COLOURS[0] if bar.strong else "#9DC3DE")
        axes.text(
            end + 0.06 / (box.width - left - right),
            i,
            bar.text,
            fontsize=style.TEXT,
            va="center_baseline",
            weight=weight,
            bbox=style.BEHIND,
        )
