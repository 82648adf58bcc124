"""Lay out a picture: its title, its charts in one or two columns, and its caption.

The module of a kind of chart has

    heading(chart)       its title, if its axes do not name it
    inner(chart, ruler)  the least and the usual height of its axes, in inches
    margins(...)         the inches at the left and at the right of the axes
    around(...)          the inches above and below them
    draw(...)            which draws it

All charts of one width have the same margins, so that their axes have one width.
"""

from types import ModuleType
from typing import Any

from ....errors import AttncalcError
from ....records import NamedTuple
from ..chart import Areas, Bars, Chart, Lines, Picture, Roof, Stack
from . import areas, bars, lines, roof, stack, style
from .canvas import Box, Canvas, Ruler

_DRAWN_BY: dict[type, ModuleType] = {
    Areas: areas,
    Bars: bars,
    Lines: lines,
    Stack: stack,
    Roof: roof,
}
# Inches of the longest name up to which two charts of bars, or of lines, fit side by side.
_NARROW_BAR = 1.4
_NARROW_LINE = 0.9
# Inches between charts beside and below each other.
_BETWEEN = 0.3
_BELOW = 0.2


class _Texts(NamedTuple):
    """The lines of text of a picture."""

    title: list[str]
    subtitle: list[str]
    caption: list[str]

    def above(self, sizes: style.Sizes) -> float:
        """Return the inches above the charts, with the margin."""
        texts = style.inches(sizes.title, len(self.title))
        texts += style.inches(sizes.text, len(self.subtitle))
        if not texts:
            return sizes.margin
        return sizes.margin + texts + (0.04 if sizes.is_column else 0.16)

    def below(self, sizes: style.Sizes) -> float:
        """Return the inches below the charts, with the margin."""
        return style.inches(sizes.caption, len(self.caption)) + sizes.margin


class _Placed:
    """A chart with the inches that it needs."""

    def __init__(self, chart: Chart, ruler: Ruler, width: float) -> None:
        self.chart = chart
        self.module: Any = _DRAWN_BY[type(chart)]
        self.ruler = ruler
        self.width = width
        self.least: float
        self.inner: float
        self.least, self.inner = self.module.inner(chart, ruler)
        self.left = 0.0
        self.right = 0.0

    @property
    def heading_height(self) -> float:
        if not self.module.heading(self.chart):
            return 0.0
        return style.inches(self.ruler.sizes.heading) + 0.04

    @property
    def stretches(self) -> bool:
        """Whether its axes may be higher than usual."""
        return self.least != self.inner

    def margins(self) -> tuple[float, float]:
        left, right = self.module.margins(self.chart, self.ruler, self.width, self.inner)
        return left, right

    def around(self) -> tuple[float, float]:
        """Return the inches above the axes, with the heading, and below them."""
        above: float
        below: float
        whole = Box(0.0, 0.0, self.width, self.inner)
        above, below = self.module.around(self.chart, self.ruler, whole, self._inside(0.0, 0.0))
        return self.heading_height + above, below

    def _inside(self, left: float, top: float) -> Box:
        """Return the box of the axes of a chart that begins at `left`, if the axes do at `top`."""
        width = self.width - self.left - self.right
        return Box(left + self.left, top, width, self.inner)

    @property
    def height(self) -> float:
        above, below = self.around()
        return above + self.inner + below

    def draw(self, canvas: Canvas, left: float, top: float) -> None:
        sizes = self.ruler.sizes
        heading = self.module.heading(self.chart)
        if heading:
            text = self.ruler.cut(heading, self.width, sizes.heading, "bold")
            canvas.text(left, top, text, sizes.heading, weight="bold")
        above, _ = self.around()
        inside = self._inside(left, top + above)
        whole = Box(left, top, self.width, self.height)
        self.module.draw(canvas, self.ruler, self.chart, whole, inside)


def lay_out(
    picture: Picture, names: tuple[str, ...], size: tuple[float, float | None] | None = None
) -> Canvas:
    """Return the canvas with the charts of these names drawn on it.

    `size` is the width and the height in inches; a height of None is what the charts need.

    Raises AttncalcError if the charts do not fit.
    """
    width, height = size or (style.WIDTH, None)
    sizes = style.sizes(width)
    ruler = Ruler(sizes)
    texts = _texts(picture, ruler)
    rows = _rows(picture.named(names), ruler)
    _set_margins(rows)
    fixed = texts.above(sizes) + texts.below(sizes)
    if height is not None:
        _stretch(rows, height - fixed, size=(width, fixed))
    canvas = Canvas(width, height or fixed + _height(rows))
    canvas.text(
        sizes.margin,
        sizes.margin,
        "\n".join(texts.title),
        sizes.title,
        weight="bold",
        linespacing=style.LINE,
    )
    below_title = sizes.margin + style.inches(sizes.title, len(texts.title))
    canvas.text(
        sizes.margin,
        below_title,
        "\n".join(texts.subtitle),
        sizes.text,
        color=style.GREY,
        linespacing=style.LINE,
    )
    top = texts.above(sizes)
    for row in rows:
        left = sizes.margin
        for placed in row:
            placed.draw(canvas, left, top)
            left += placed.width + _BETWEEN
        top += max(placed.height for placed in row) + _below(sizes)
    canvas.text(
        sizes.margin,
        canvas.height - texts.below(sizes),
        "\n".join(texts.caption),
        sizes.caption,
        color=style.GREY,
        linespacing=style.LINE,
    )
    return canvas


def _below(sizes: style.Sizes) -> float:
    return 0.06 if sizes.is_column else _BELOW


def _texts(picture: Picture, ruler: Ruler) -> _Texts:
    sizes = ruler.sizes
    caption: list[str] = []
    for text in picture.caption:
        caption += ruler.wrapped(text, sizes.inner, sizes.caption)
    return _Texts(
        ruler.wrapped(picture.title, sizes.inner, sizes.title, "bold"),
        ruler.wrapped(picture.subtitle, sizes.inner, sizes.text),
        caption,
    )


def _height(rows: list[list[_Placed]]) -> float:
    """Return the inches of the charts, and of what is between and below them."""
    heights = [max(placed.height for placed in row) for row in rows]
    return sum(heights) + sum(_below(row[0].ruler.sizes) for row in rows)


def _set_margins(rows: list[list[_Placed]]) -> None:
    """Give all charts of one width the same margins."""
    by_width: dict[float, list[_Placed]] = {}
    for row in rows:
        for placed in row:
            by_width.setdefault(placed.width, []).append(placed)
    for same in by_width.values():
        margins = [placed.margins() for placed in same]
        left = max(left for left, _ in margins)
        right = max(right for _, right in margins)
        for placed in same:
            placed.left = left
            placed.right = right


def _stretch(rows: list[list[_Placed]], available: float, *, size: tuple[float, float]) -> None:
    """Make the axes as high as `available` inches allow.

    `size` is the width of the picture, and the inches of its texts. Raises AttncalcError if the
    charts do not fit.
    """
    width, fixed = size
    stretching = [row for row in rows if any(placed.stretches for placed in row)]
    for _ in range(4):  # what is around the axes depends on their height
        more = (available - _height(rows)) / max(1, len(stretching))
        for row in stretching:
            for placed in row:
                placed.inner = max(placed.least, placed.inner + more * placed.stretches)
        _set_margins(rows)
    if _height(rows) > available + 0.01:
        least = fixed + _height(rows)
        raise AttncalcError(
            f"--size: these charts do not fit {fixed + available:g} inches of height",
            f"at this width they need {least:.1f}: --size {width:g}x{least + 0.05:.1f}in, or fewer "
            "charts with --show",
        )


def _rows(charts: list[Chart], ruler: Ruler) -> list[list[_Placed]]:
    """Return the charts in rows: two side by side if both are narrow, else one."""
    rows: list[list[Chart]] = []
    for chart in charts:
        if (
            rows
            and len(rows[-1]) == 1
            and _is_narrow(rows[-1][0], ruler)
            and _is_narrow(chart, ruler)
        ):
            rows[-1].append(chart)
        else:
            rows.append([chart])
    inner = ruler.sizes.inner
    half = (inner - _BETWEEN) / 2
    is_one_of_two = any(len(row) == 2 for row in rows)
    placed: list[list[_Placed]] = []
    for row in rows:
        # a last chart without a neighbour is as wide as those above it
        width = half if is_one_of_two and _is_narrow(row[0], ruler) else inner
        placed.append([_Placed(chart, ruler, width) for chart in row])
    return placed


def _is_narrow(chart: Chart, ruler: Ruler) -> bool:
    if ruler.sizes.is_column:
        return False
    if isinstance(chart, Bars):
        return all(ruler.width(bar.label) <= _NARROW_BAR for bar in chart.bars)
    if isinstance(chart, Lines):
        return all(ruler.width(series.label) <= _NARROW_LINE for series in chart.series)
    return False
