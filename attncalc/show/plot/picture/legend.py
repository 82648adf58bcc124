"""The legend of a chart: at its right or below it, never over the data."""

from collections.abc import Sequence
from typing import Any

from ....records import NamedTuple
from . import style
from .canvas import Box, Canvas, Ruler, x_axis_height

# Inches of the line or the area before a name, and after it.
_HANDLE = 0.22
_SPACE = 0.06
_BETWEEN = 0.14
# Inches between a horizontal axis and the legend below it.
_TO_AXIS = 0.04


class Entry(NamedTuple):
    """A name, and how its line or area is drawn."""

    label: str
    settings: dict[str, Any]  # of a line, or of an area
    is_area: bool = False


def width(entries: Sequence[Entry], ruler: Ruler) -> float:
    """Return the inches of the longest entry."""
    names = max((ruler.width(entry.label) for entry in entries), default=0.0)
    return _HANDLE + _SPACE + names


def height_below(entries: Sequence[Entry], ruler: Ruler, available: float) -> float:
    """Return the inches that a legend below a horizontal axis needs."""
    return _rows(entries, ruler, available) * ruler.sizes.line + _TO_AXIS


def _rows(entries: Sequence[Entry], ruler: Ruler, available: float) -> int:
    """Return the rows of a legend that is at most `available` inches wide."""
    return -(-len(entries) // _columns(entries, ruler, available))


def _columns(entries: Sequence[Entry], ruler: Ruler, available: float) -> int:
    return max(1, int((available + _BETWEEN) / (width(entries, ruler) + _BETWEEN)))


def draw_below(
    canvas: Canvas, ruler: Ruler, entries: Sequence[Entry], whole: Box, inside: Box
) -> None:
    """Draw the entries below the horizontal axis of the axes `inside` the `whole`."""
    top = inside.top + inside.height + x_axis_height(ruler.sizes) + _TO_AXIS
    draw(canvas, ruler, entries, Box(whole.left, top, whole.width, 0))


def draw(canvas: Canvas, ruler: Ruler, entries: Sequence[Entry], box: Box) -> None:
    """Draw the entries in columns from the upper left corner of `box`, which limits their width."""
    line = ruler.sizes.line
    n_rows = _rows(entries, ruler, box.width)
    n_columns = -(-len(entries) // n_rows)
    each = min(width(entries, ruler), (box.width + _BETWEEN) / n_columns - _BETWEEN)
    axes = canvas.axes(Box(box.left, box.top, box.width, n_rows * line))
    axes.set(xlim=(0, box.width), ylim=(n_rows * line, 0))
    for i, entry in enumerate(entries):
        column, row = divmod(i, n_rows)
        left = column * (each + _BETWEEN)
        middle = (row + 0.5) * line
        if entry.is_area:
            height = 0.62 * line
            axes.fill_between(
                [left, left + _HANDLE], middle - height / 2, middle + height / 2, **entry.settings
            )
        else:
            xs = [left, left + _HANDLE / 2, left + _HANDLE]
            axes.plot(xs, [middle] * 3, markevery=[1], clip_on=False, **entry.settings)
        axes.text(
            left + _HANDLE + _SPACE,
            middle,
            ruler.cut(entry.label, max(0.3, each - _HANDLE - _SPACE) + 0.001),
            fontsize=ruler.sizes.text,
            color=style.INK,
            va="center_baseline",
        )
