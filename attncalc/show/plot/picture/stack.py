"""Draw a stack: one bar of pieces, with their names above and the limits below."""

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

from ....records import NamedTuple
from ..chart import Stack
from ..scale import Scale, scale
from . import style
from .canvas import Box, Canvas, Ruler, x_axis, x_axis_height

# Inches of the bar.
_BAR = 0.42
_BAR_IN_A_COLUMN = 0.25
# Inches between a line and its text.
_SPACE = 0.06
_STYLES: dict[str, dict[str, Any]] = {
    "weights": {"facecolor": "#0072B2"},
    "runtime": {"facecolor": "#E69F00"},
    "range": {"facecolor": "#F6D99A", "hatch": "////"},
    "cache": {"facecolor": "#BFE5D8"},
}


class _Label(NamedTuple):
    """A text with the line that leads to it."""

    text: str
    at: float  # the place of the line, from 0 to 1
    left: float  # where the text begins
    right: float  # where it ends
    above: bool  # whether the line ends below the text, and not at its side
    level: int  # its line of text: 0 is the nearest to the bar


def heading(chart: Stack) -> str:
    return ""


def inner(chart: Stack, ruler: Ruler) -> tuple[float, float]:
    """Return the inches of the bar, which is never higher."""
    size = _BAR_IN_A_COLUMN if ruler.sizes.is_column else _BAR
    return size, size


def margins(chart: Stack, ruler: Ruler, width: float, height: float) -> tuple[float, float]:
    """Return the inches at the left and at the right of the bar: half of a tick's label."""
    return 0.12, 0.12


def around(chart: Stack, ruler: Ruler, whole: Box, inside: Box) -> tuple[float, float]:
    """Return the inches of the names above the bar, and of the limits and the axis below."""
    line = ruler.sizes.line
    above = _rows(_names(chart, ruler, inside.width)) * line + 0.1
    limits = _rows(_limits(chart, ruler, inside.width)) * line + 0.14
    return above, limits + x_axis_height(ruler.sizes)


def draw(canvas: Canvas, ruler: Ruler, chart: Stack, whole: Box, inside: Box) -> None:
    """Draw the chart with its bar `inside` the `whole`."""
    across = _across(chart)
    names = _names(chart, ruler, inside.width)
    limits = _limits(chart, ruler, inside.width)
    size = ruler.sizes.text
    line = ruler.sizes.line / inside.height
    axes = canvas.axes(inside)
    for piece in chart.pieces:
        start = across.at(piece.start)
        end = across.at(piece.end)
        axes.barh(
            0.5, end - start, 1, left=start, edgecolor="white", linewidth=0.8, **_STYLES[piece.kind]
        )
    space = _SPACE / inside.width
    for name in names:
        foot = 1 + 0.07 / inside.height + name.level * line
        tip = foot if name.above else foot + 0.8 * line
        axes.plot([name.at, name.at], [1, tip], color=style.GREY, linewidth=0.6, clip_on=False)
        axes.text(name.left + space, foot, name.text, fontsize=size, va="bottom", color=style.INK)
    for limit in limits:
        foot = -0.1 / inside.height - (limit.level + 1) * line
        axes.plot([limit.at, limit.at], [1, foot], color=style.INK, linewidth=1.2, clip_on=False)
        if limit.left < limit.at:
            place = limit.right - space
            align = "right"
        else:
            place = limit.left + space
            align = "left"
        axes.text(place, foot, limit.text, fontsize=size, ha=align, va="bottom", color=style.INK)
    top = inside.top + inside.height + _rows(limits) * ruler.sizes.line + 0.14
    below = canvas.axes(Box(inside.left, top, inside.width, 0.001))
    x_axis(below, across, ruler.sizes)


def _across(chart: Stack) -> Scale:
    return scale(chart.axis, chart.ends, most=9, bar=True)


def _rows(labels: Sequence[_Label]) -> int:
    return max((label.level + 1 for label in labels), default=0)


def _names(chart: Stack, ruler: Ruler, width: float) -> list[_Label]:
    """Return the names of the pieces, on the fewest lines of text on which no name and no line
    crosses another.

    The name of a wide piece is above its middle, that of a narrow one at either side of a line, or
    above the line at the end of the bar.
    """
    across = _across(chart)
    choices: list[list[_Label]] = []
    for piece in chart.pieces:
        if not piece.label:
            continue
        text = f"{piece.label} {piece.text}"
        wide = (ruler.width(text) + 2 * _SPACE) / width
        start = across.at(piece.start)
        end = across.at(piece.end)
        middle = (start + end) / 2
        if wide <= end - start:
            choices.append([_Label(text, middle, middle - wide / 2, middle + wide / 2, True, 0)])
            continue
        places = [
            _Label(text, middle, middle, middle + wide, False, 0),
            _Label(text, middle, middle - wide, middle, False, 0),
            _Label(text, middle, 1 - wide, 1, True, 0),
        ]
        inside = [place for place in places if 0 <= place.left <= middle <= place.right <= 1]
        of_piece: list[_Label] = []
        for level in range(len(chart.pieces)):
            of_piece += [place._replace(level=level) for place in inside]
        choices.append(of_piece)
    fewest_rows = sorted(
        product(*choices), key=lambda labels: [sum(label.level for label in labels), _rows(labels)]
    )
    for labels in fewest_rows:
        if not any(_touch(*pair) for pair in combinations(labels, 2)):
            return list(labels)
    return list(fewest_rows[0])


def _touch(label: _Label, other: _Label) -> bool:
    """Return whether one text covers the other, or the other's line."""
    if label.level == other.level and label.left < other.right and other.left < label.right:
        return True
    low, high = sorted((label, other), key=lambda one: one.level)
    return low.level < high.level and low.left < high.at < low.right


def _limits(chart: Stack, ruler: Ruler, width: float) -> list[_Label]:
    """Return the names of the limits, all at the same side of their lines, so that no line crosses
    a name.
    """
    across = _across(chart)
    at_left = []
    at_right = []
    last = len(chart.marks) - 1
    for i, mark in enumerate(chart.marks):
        at = across.at(mark.value)
        wide = (ruler.width(mark.label) + _SPACE) / width
        at_left.append(_Label(mark.label, at, at - wide, at, False, i))
        at_right.append(_Label(mark.label, at, at, at + wide, False, last - i))
    if all(label.left >= 0 for label in at_left):
        return at_left
    return at_right
