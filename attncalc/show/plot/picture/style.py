"""How pictures look: sizes, and colours that differ in greyscale and for people who see fewer
colours.
"""

from typing import Any

from ....records import NamedTuple

# Okabe and Ito 2008, 'Color Universal Design', without its yellow, which is too light on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# Areas that follow each other in a stack differ in lightness too.
AREAS = (
    "#0072B2",
    "#8CC8EE",
    "#D55E00",
    "#009E73",
    "#8FD6C0",
    "#3C6E5F",
    "#D9F0E8",
    "#E69F00",
    "#F6DFA6",
    "#CC79A7",
    "#8C8C8C",
    "#F0D0E2",
)
INK = "#222222"
GREY = "#666666"
LIGHT = "#DDDDDD"
# What is behind text that a line may cross.
BEHIND = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}

PNG_DPI = 300
# Height of a line of text, times its size.
LINE = 1.25
# Inches of a picture without --size.
WIDTH = 8.6
# Inches below which a picture is a column of a paper, with smaller text.
_COLUMN = 5.0


class Sizes(NamedTuple):
    """The width of a picture in inches, and the sizes of its text in points."""

    width: float
    margin: float  # inches around it
    title: float
    heading: float  # of a chart
    text: float  # of the names of axes, lines and bars
    small: float  # of ticks
    caption: float
    marker: float  # of the points of a line
    stroke: float  # the width of a line

    @property
    def inner(self) -> float:
        """The inches between the margins."""
        return self.width - 2 * self.margin

    @property
    def is_column(self) -> bool:
        """Whether it is as narrow as a column of a paper."""
        return self.width < _COLUMN

    @property
    def line(self) -> float:
        """The height of a line of text, in inches."""
        return inches(self.text)


def sizes(width: float) -> Sizes:
    """Return the sizes of a picture that is `width` inches wide."""
    if width < _COLUMN:
        return Sizes(
            width,
            0.05,
            title=8.0,
            heading=7.5,
            text=7.0,
            small=6.5,
            caption=5.5,
            marker=3.0,
            stroke=1.1,
        )
    return Sizes(
        width,
        0.2,
        title=12.0,
        heading=10.0,
        text=9.0,
        small=8.5,
        caption=8.5,
        marker=4.0,
        stroke=1.5,
    )


SETTINGS: dict[Any, Any] = {
    # The first comes with matplotlib; a reader of an SVG who lacks it may have the second, which is
    # as wide.
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "attncalc",  # names of elements are otherwise random
    "pdf.fonttype": 42,  # the same for PDF
    "text.parse_math": False,  # a '$' in a title is a '$'
    "axes.unicode_minus": False,
}


def inches(size: float, lines: int = 1) -> float:
    """Return the height of lines of text of `size` points."""
    return size * LINE * lines / 72


def of_series(i: int) -> tuple[str, str, Any]:
    """Return the colour, the mark and the dashes of the series `i`."""
    return COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)], DASHES[i % len(DASHES)]


def spread(wanted: list[float], gap: float, low: float, high: float) -> list[float]:
    """Return places near the wanted ones, in their order, at least `gap` apart and from `low` to
    `high` if they fit.

    Neighbours that are too close become a group around the middle of their wanted places; groups
    that touch merge.
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    groups: list[list[int]] = []
    centres: list[float] = []

    def bounded(group: list[int]) -> float:
        half = gap * (len(group) - 1) / 2
        middle = sum(wanted[i] for i in group) / len(group)
        return max(low + half, min(high - half, middle))

    for i in order:
        groups.append([i])
        centres.append(bounded([i]))
        while (
            len(groups) > 1
            and centres[-1] - centres[-2] < gap * (len(groups[-1]) + len(groups[-2])) / 2 - 1e-9
        ):
            merged = groups[-2] + groups.pop()
            centres.pop()
            groups[-1] = merged
            centres[-1] = bounded(merged)
    places = [0.0 for _ in wanted]
    for group, centre in zip(groups, centres, strict=True):
        for k, i in enumerate(group):
            places[i] = centre + gap * (k - (len(group) - 1) / 2)
    return places
