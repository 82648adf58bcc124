"""Places on the horizontal axis, such as a crossing: dotted lines, with their names above."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from ....records import NamedTuple
from ..chart import Mark
from ..scale import Scale
from . import style
from .canvas import Box, Ruler

# Inches between a name and its line or another name.
_SPACE = 0.05


class _Place(NamedTuple):
    """A mark in inches from the left edge of the axes."""

    at: float  # its line
    left: float  # where its name begins
    right: float  # where that ends
    label: str
    level: int = 0  # the line of text of its name: 0 is the lowest

    def covers(self, at: float) -> bool:
        """Return whether its name is above a place."""
        return self.left - _SPACE < at < self.right + _SPACE

    def touches(self, other: "_Place") -> bool:
        """Return whether both names could not be on one line."""
        return self.left < other.right + _SPACE and other.left < self.right + _SPACE


def height(marks: Sequence[Mark], across: Scale, ruler: Ruler, whole: Box, inside: Box) -> float:
    """Return the inches above the axes `inside` a chart that the names need."""
    places = _places(marks, across, ruler, whole, inside)
    levels = max((place.level + 1 for place in places), default=0)
    return levels * ruler.sizes.line + (0.04 if levels else 0.0)


def _places(
    marks: Sequence[Mark], across: Scale, ruler: Ruler, whole: Box, inside: Box
) -> list[_Place]:
    """Return the marks with a line of text for each, so that no name covers another or its line.

    All names are at the left of their lines if they have room there, else at the right.
    """
    first = whole.left - inside.left
    last = first + whole.width
    at_left = []
    at_right = []
    for mark in sorted(marks, key=lambda mark: mark.value):
        at = across.at(mark.value) * inside.width
        label = ruler.cut(mark.label, whole.width)
        wide = ruler.width(label)
        left = at - _SPACE - wide
        at_left.append(_Place(at, left, left + wide, label))
        left = min(at + _SPACE, last - wide)
        at_right.append(_Place(at, left, left + wide, label))
    if all(place.left >= first for place in at_left):
        return _with_levels(at_left)
    return _with_levels(at_right)


def _with_levels(places: list[_Place]) -> list[_Place]:
    """Return the marks on the lowest lines of text on which no line crosses a name."""
    found = list(places)
    for _ in places:
        for i, place in enumerate(found):
            level = place.level
            for j, other in enumerate(found):
                is_above = place.covers(other.at) and not other.covers(place.at)
                is_later = place.touches(other) and j < i
                is_later = is_later and (not other.covers(place.at) or place.covers(other.at))
                if j != i and (is_above or is_later):
                    level = max(level, other.level + 1)
            found[i] = place._replace(level=level)
    return found


def draw(
    axes: Axes, marks: Sequence[Mark], across: Scale, ruler: Ruler, whole: Box, inside: Box
) -> None:
    """Draw the marks on the axes `inside` a chart."""
    for place in _places(marks, across, ruler, whole, inside):
        foot = 1 + (0.03 + place.level * ruler.sizes.line) / inside.height
        at = place.at / inside.width
        # beside its name, unless that has no room there
        tip = foot
        if not place.left < place.at < place.right:
            tip += 0.6 * ruler.sizes.line / inside.height
        axes.plot(
            [at, at],
            [0, tip],
            color=style.INK,
            linewidth=0.9,
            linestyle=(0, (1.5, 1.5)),
            clip_on=False,
            zorder=4,
        )
        axes.text(
            place.left / inside.width,
            foot,
            place.label,
            fontsize=ruler.sizes.text,
            color=style.INK,
            va="bottom",
            zorder=5,
        )
