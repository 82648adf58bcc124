"""A figure of matplotlib that is laid out in inches from its upper left corner."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from ....records import NamedTuple
from ..chart import Areas, Lines
from ..scale import Scale
from ..text import cut
from . import style

# Dots per inch at which text is measured: at 72, the width of each letter is a whole number of
# dots.
_FINE = 720


class Box(NamedTuple):
    """A rectangle in inches from the upper left corner of the figure."""

    left: float
    top: float
    width: float
    height: float


class Canvas:
    """A figure under construction."""

    def __init__(self, width: float, height: float) -> None:
        # the figure of matplotlib
        self.figure = Figure(figsize=(width, height), dpi=72, facecolor="white")
        self.width = width  # its width in inches
        self.height = height  # its height in inches

    def text(self, left: float, top: float, text: str, size: float, **settings: Any) -> None:
        """Write text whose upper left corner is at `left` and `top`."""
        settings = {"color": style.INK, "ha": "left", "va": "top", **settings}
        self.figure.text(left / self.width, 1 - top / self.height, text, fontsize=size, **settings)

    def axes(self, box: Box) -> Axes:
        """Return axes from 0 to 1 in both directions, without a frame or ticks."""
        axes: Axes = self.figure.add_axes(
            (
                box.left / self.width,
                1 - (box.top + box.height) / self.height,
                box.width / self.width,
                box.height / self.height,
            )
        )
        axes.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])
        axes.set_facecolor("none")
        for spine in axes.spines.values():
            spine.set_visible(False)
        return axes


class Ruler:
    """Measures text as matplotlib draws it, in a picture with these sizes of text."""

    def __init__(self, sizes: style.Sizes) -> None:
        canvas: Any = FigureCanvasAgg(Figure(figsize=(1, 1), dpi=_FINE))
        self._renderer = canvas.get_renderer()
        self.sizes = sizes

    def width(self, text: str, size: float | None = None, weight: str = "normal") -> float:
        """Return the width of a line in inches, of names if no size is given."""
        font = FontProperties(size=size or self.sizes.text, weight=weight)
        width, _, _ = self._renderer.get_text_width_height_descent(text, font, ismath=False)
        return float(width) / _FINE

    def wrapped(self, text: str, width: float, size: float, weight: str = "normal") -> list[str]:
        """Return `text` in lines of at most `width` inches; a longer word is cut."""
        lines = [""] if text else []
        for word in text.split():
            longer = f"{lines[-1]} {word}".strip()
            if lines[-1] and self.width(longer, size, weight) > width:
                lines.append(word)
            else:
                lines[-1] = longer
        return [self.cut(line, width, size, weight) for line in lines]

    def cut(
        self, text: str, width: float, size: float | None = None, weight: str = "normal"
    ) -> str:
        """Return `text`, with '...' for its middle if it is wider than `width` inches."""
        if self.width(text, size, weight) <= width:
            return text
        for n in range(len(text) - 1, 1, -1):
            short = cut(text, n)
            if self.width(short, size, weight) <= width:
                return short
        return "..."


# The most ticks of a horizontal axis.
_MOST_TICKS = 16


def most_ticks(height: float) -> int:
    """Return the most ticks of a vertical axis that is `height` inches high: one in 0.18 inches."""
    return max(3, min(7, int(height / 0.18)))


def horizontal(chart: Areas | Lines, ruler: Ruler, width: float) -> Scale:
    """Return the horizontal scale with as many ticks as have room in `width` inches."""
    across, _ = chart.scales(most_x=_MOST_TICKS, most_y=7)
    labels = [ruler.width(tick.label, ruler.sizes.small) for tick in across.ticks]
    each = max(labels, default=0.0) + 0.12
    if len(labels) * each > width:
        across, _ = chart.scales(most_x=max(2, int(width / each)), most_y=7)
    return across


def vertical(chart: Areas | Lines, height: float) -> Scale:
    """Return the vertical scale of axes that are `height` inches high."""
    _, up = chart.scales(most_x=_MOST_TICKS, most_y=most_ticks(height))
    return up


def draw_axes(
    canvas: Canvas, ruler: Ruler, scales: tuple[Scale, Scale], whole: Box, inside: Box
) -> Axes:
    """Draw axes `inside` the `whole` with their horizontal and their vertical scale, and return
    them.
    """
    across, up = scales
    axes = canvas.axes(inside)
    x_axis(axes, across, ruler.sizes)
    y_axis(canvas, ruler, axes, up, Box(whole.left, inside.top, whole.width, inside.height))
    return axes


def x_axis(axes: Axes, across: Scale, sizes: style.Sizes) -> None:
    """Draw the ticks of a horizontal axis, its label and its grid."""
    axes.set_xticks([tick.at for tick in across.ticks], [tick.label for tick in across.ticks])
    axes.tick_params(
        axis="x",
        labelsize=sizes.small,
        colors=style.GREY,
        labelcolor=style.INK,
        length=3,
        width=0.8,
    )
    axes.set_xlabel(across.label, fontsize=sizes.text, color=style.INK, labelpad=2)
    # above the background of text that ends at it
    axes.spines["bottom"].set(visible=True, color=style.GREY, linewidth=0.8, zorder=4)


def x_axis_height(sizes: style.Sizes) -> float:
    """Return the inches that a horizontal axis with its label needs below the axes."""
    return 0.1 + style.inches(sizes.small) + style.inches(sizes.text)


def y_axis(canvas: Canvas, ruler: Ruler, axes: Axes, up: Scale, box: Box) -> None:
    """Draw the ticks of a vertical axis, a grid, and its label at the left of `box`."""
    sizes = ruler.sizes
    axes.set_yticks([tick.at for tick in up.ticks], [tick.label for tick in up.ticks])
    axes.tick_params(
        axis="y", labelsize=sizes.small, colors=style.GREY, labelcolor=style.INK, length=0
    )
    axes.grid(axis="y", color=style.LIGHT, linewidth=0.7)
    axes.set_axisbelow(True)
    lines = y_label(ruler, up, box.height)
    canvas.figure.text(
        box.left / canvas.width,
        1 - (box.top + box.height / 2) / canvas.height,
        "\n".join(lines),
        fontsize=sizes.text,
        color=style.INK,
        rotation=90,
        ha="left",
        va="center",
        multialignment="center",
        linespacing=style.LINE,
    )


def y_label(ruler: Ruler, up: Scale, height: float) -> list[str]:
    """Return the label of a vertical axis of `height` inches, in at most three lines."""
    size = ruler.sizes.text
    lines = ruler.wrapped(up.label, height, size)
    if len(lines) <= 3:
        return lines
    return [*lines[:2], ruler.cut(" ".join(lines[2:]), height, size)]


def y_axis_width(ruler: Ruler, up: Scale, height: float) -> float:
    """Return the inches that the label and the ticks of a vertical axis need."""
    sizes = ruler.sizes
    ticks = max((ruler.width(tick.label, sizes.small) for tick in up.ticks), default=0.0)
    label = len(y_label(ruler, up, height)) * sizes.line
    return label + ticks + 0.12
