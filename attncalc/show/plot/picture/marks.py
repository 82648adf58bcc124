"""Places on the horizontal axis, such as a crossing: dotted lines, with their names above."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from ....records import NamedTuple
from ..chart import Mark
from ..scale import Scale
from . import style
from .canvas import Ruler


class _Place(NamedTuple):
    """A mark's place from 0 to 1, where its name begins and ends, and its line of text."""

    at: float
    left: float
    right: float
    label: str
    level: int


def height(marks: Sequence[Mark], across: Scale, ruler: Ruler, width: float) -> float:
    """Return the inches above axes of `width` inches that the names need."""
    places = _places(marks, across, ruler, width)
    levels = max((place.level + 1 for place in places), default=0)
    return levels * ruler.sizes.line + (0.04 if levels else 0.0)


def _places(
    marks: Sequence[Mark], across: Scale, ruler: Ruler, width: float
) -> list[_Place]:
    """Return the marks with the lowest line of text for each on which it covers no other."""
    placed: list[_Place] = []
    for mark in sorted(marks, key=lambda one: one.value):
        at = across.at(mark.value)
        label = ruler.cut(mark.label, width)
        wide = ruler.width(label) / width
        left = min(max(0.0, at - wide / 2), 1 - wide)
        space = 0.1 / width
        level = 0
        while any(other.level == level and other.right + space > left for other in placed):
            level += 1
        placed.append(_Place(at, left, left + wide, label, level))
    return placed


def draw(
    axes: Axes, marks: Sequence[Mark], across: Scale, ruler: Ruler, width: float, inner: float
) -> None:
    """Draw the marks on axes that are `width` inches wide and `inner` inches high."""
    for place in _places(marks, across, ruler, width):
        foot = 1 + (0.03 + place.level * ruler.sizes.line) / inner
        axes.plot(
            [place.at, place.at],
            [0, foot],
            color=style.INK,
            linewidth=0.9,
            linestyle=(0, (1.5, 1.5)),
            clip_on=False,
            zorder=4,
        )
        axes.text(
            place.left,
            foot,
            place.label,
            fontsize=ruler.sizes.text,
            color=style.INK,
            va="bottom",
            bbox=style.BEHIND,
            zorder=5,
        )
