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


def _places(marks: Sequence[Mark], across: Scale, ruler: Ruler, width: float) -> list[_Place]:
    """Return the marks with a line of text for each, so that no name covers another or its line.

    All names are at the left of their lines if they have room there, else at the right; one that
    has no room at that side is moved into the axes.
    """
    space = 0.05 / width
    wide = {mark: (ruler.width(mark.label) + 0.05) / width for mark in marks}
    ordered = sorted(marks, key=lambda mark: mark.value)
    at_left = sum(across.at(mark.value) < wide[mark] for mark in ordered)
    at_right = sum(across.at(mark.value) + wide[mark] > 1 for mark in ordered)
    is_right = at_right < at_left
    if is_right:
        ordered.reverse()
    placed: list[_Place] = []
    for mark in ordered:
        at = across.at(mark.value)
        left = at + space if is_right else at - wide[mark]
        left = max(0.0, min(left, 1 - wide[mark]))
        right = left + wide[mark]
        level = 0
        for other in placed:
            if other.left < right and left < other.right:
                level = max(level, other.level + 1)
        placed.append(_Place(at, left, right, ruler.cut(mark.label, width), level))
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
