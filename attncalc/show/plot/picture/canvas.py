"""A figure of matplotlib that is laid out in inches from its upper left corner."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from ....records import NamedTuple
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

    def __init__(self, height: float) -> None:
        # the figure of matplotlib
        self.figure = Figure(figsize=(style.WIDTH, height), dpi=72, facecolor="white")
        self.height = height  # its height in inches

    def text(
        self, left: float, top: float, text: str, size: float = style.TEXT, **settings: Any
    ) -> None:
        """Write text whose upper left corner is at `left` and `top`."""
        settings = {"color": style.INK, "ha": "left", "va": "top", **settings}
        self.figure.text(left / style.WIDTH, 1 - top / self.height, text, fontsize=size, **settings)

    def axes(self, box: Box) -> Axes:
        """Return axes from 0 to 1 in both directions, without a frame or ticks."""
        axes: Axes = self.figure.add_axes(
            (
                box.left / style.WIDTH,
                1 - (box.top + box.height) / self.height,
                box.width / style.WIDTH,
                box.height / self.height,
            )
        )
        axes.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])
        axes.set_facecolor("none")
        for spine in axes.spines.values():
            spine.set_visible(False)
        return axes


class Ruler:
    """Measures text as matplotlib draws it."""

    def __init__(self) -> None:
        canvas: Any = FigureCanvasAgg(Figure(figsize=(1, 1), dpi=_FINE))
        self._renderer = canvas.get_renderer()

    def width(self, text: str, size: float = style.TEXT, weight: str = "normal") -> float:
        """Return the width of a line in inches."""
        font = FontProperties(size=size, weight=weight)
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

    def cut(self, text: str, width: float, size: float = style.TEXT, weight: str = "normal") -> str:
        """Return `text`, with '...' for its middle if it is wider than `width` inches."""
        if self.width(text, size, weight) <= width:
            return text
        for n in range(len(text) - 1, 1, -1):
            short = cut(text, n)
            if self.width(short, size, weight) <= width:
                return short
        return "..."


def x_axis(axes: Axes, across: Scale) -> None:
    """Draw the ticks of a horizontal axis, its label and its grid."""
    axes.set_xticks([tick.at for tick in across.ticks], [tick.label for tick in across.ticks])
    axes.tick_params(axis="x", labelsize=style.SMALL, colors=style.GREY, length=3, width=0.8)
    axes.set_xlabel(across.label, fontsize=style.TEXT, color=style.INK, labelpad=4)
    axes.spines["bottom"].set(visible=True, color=style.GREY, linewidth=0.8)


def y_axis(axes: Axes, up: Scale) -> None:
    """Draw the ticks of a vertical axis, and a grid; its label is the heading of the chart."""
    axes.set_yticks([tick.at for tick in up.ticks], [tick.label for tick in up.ticks])
    axes.tick_params(axis="y", labelsize=style.SMALL, colors=style.GREY, length=0)
    axes.grid(axis="y", color=style.LIGHT, linewidth=0.7)
    axes.set_axisbelow(True)


def y_labels_width(ruler: Ruler, up: Scale) -> float:
    """Return the inches that the labels of a vertical axis need."""
    return max((ruler.width(tick.label, style.SMALL) for tick in up.ticks), default=0.0) + 0.08
