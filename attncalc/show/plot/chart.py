"""Charts as plain data: what a picture shows, before it is drawn."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from ...records import NamedTuple
from .scale import PERCENT, WIDE, Axis, Scale, scale, with_unit

if TYPE_CHECKING:
    from typing_extensions import Self


class Series(NamedTuple):
    """A line of a chart."""

    label: str  # its name, shown at its end
    points: tuple[tuple[float, float | None], ...]  # pairs of x and y; a y of None is a gap
    # Pairs of x and a measured y, drawn as points on the line; then the line has no marks of its
    # own
    measured: tuple[tuple[float, float | None], ...] | None = None


def known(points: Iterable[tuple[float, float | None]]) -> list[tuple[float, float]]:
    """Return the points that have a finite y."""
    found = []
    for x, y in points:
        if y is not None and math.isfinite(y):
            found.append((x, y))
    return found


def runs(points: Iterable[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """Return the points that have a finite y, in runs between those that have none."""
    found: list[list[tuple[float, float]]] = [[]]
    for point in points:
        shown = known([point])
        if shown:
            found[-1] += shown
        elif found[-1]:
            found.append([])
    return [*filter(None, found)]


class Mark(NamedTuple):
    """A place on an axis, and its name: a limit, or where two lines cross."""

    value: float
    label: str


class Lines(NamedTuple):
    """Lines over a numeric axis, whose ticks are values of the lines unless `own_ticks` is
    false.
    """

    name: str
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    own_ticks: bool = True
    marks: tuple[Mark, ...] = ()  # places of x, such as a crossing
    # further values that the vertical axis has to show, so that several charts share one
    shared: tuple[float, ...] = ()

    def scales(self, *, most_x: int, most_y: int) -> tuple[Scale, Scale]:
        """Return the scales of both axes, with at most so many ticks."""
        points: list[tuple[float, float | None]] = []
        for series in self.series:
            points += series.points
            points += series.measured or ()
        xs = sorted({x for x, _ in points})
        ys = [*self.shared, *(y for _, y in known(points))]
        across = scale(self.x, xs, most=most_x, own=xs if self.own_ticks else ())
        up = scale(self.y, ys, most=most_y, wide=10 if across.log else WIDE)
        return across, up


class Span(NamedTuple):
    """A part of a horizontal axis without numbers, such as a phase of a step."""

    label: str
    start: float
    end: float


class Areas(NamedTuple):
    """Parts of a whole, stacked over a horizontal axis.

    All series have the same x. Two points of one x are a jump.
    """

    name: str
    title: str
    x: Axis
    y: Axis  # of shares if its unit is PERCENT
    series: tuple[Series, ...]  # the parts, the lowest first
    ticks: tuple[float, ...] = ()  # values of x that are ticks
    marks: tuple[Mark, ...] = ()  # places of x, such as a crossing or the peak
    limits: tuple[Mark, ...] = ()  # values of y, such as the memory of a GPU
    spans: tuple[Span, ...] = ()  # in place of ticks
    # the number of the colour of each part; () for the first ones
    colours: tuple[int, ...] = ()

    @property
    def xs(self) -> list[float]:
        return [x for x, _ in self.series[0].points]

    @property
    def tops(self) -> list[list[float]]:
        """The upper edge of each part, at each x; the last one is the sum."""
        tops: list[list[float]] = []
        below = [0.0 for _ in self.xs]
        for series in self.series:
            below = [low + (y or 0.0) for low, (_, y) in zip(below, series.points, strict=True)]
            tops.append(below)
        return tops

    def largest_in(self, span: Span) -> int:
        """Return the number of the point of a span with the largest sum. At a border of two spans,
        the first point belongs to the one before.
        """
        inside = []
        for i, x in enumerate(self.xs):
            is_second = i > 0 and self.xs[i - 1] == x
            if x == span.start:
                is_inside = i == 0 or is_second
            elif x == span.end:
                is_inside = not is_second
            else:
                is_inside = span.start < x < span.end
            if is_inside:
                inside.append(i)
        return max(inside, key=lambda i: self.tops[-1][i])

    def scales(self, *, most_x: int, most_y: int) -> tuple[Scale, Scale]:
        """Return the scales of both axes, with at most so many ticks; the vertical one is
        linear.
        """
        if self.spans:
            across = Scale(False, self.xs[0], self.xs[-1], 0.0, (), with_unit(self.x, ""))
        else:
            across = scale(self.x, self.ticks, most=most_x, own=self.ticks)
        heights = [*self.tops[-1], *(limit.value for limit in self.limits)]
        is_share = self.y.unit == PERCENT
        return across, scale(self.y, heights, most=most_y, wide=math.inf, bar=is_share)


class Bar(NamedTuple):
    """One bar: its name, and its length in the axis' base unit, None if the figure does not
    apply.
    """

    label: str
    value: float | None
    text: str  # the value as text, shown at its end
    strong: bool = False  # whether it is emphasized, as the model as released is


class Bars(NamedTuple):
    """Bars of one figure, from zero; at least one has a number."""

    name: str
    title: str
    axis: Axis
    bars: tuple[Bar, ...]


class Piece(NamedTuple):
    """A piece of a stack, with its name and its size as text, from `start` to `end` in the axis'
    base unit.

    `kind` decides how it is drawn.
    """

    label: str
    text: str
    start: float
    end: float
    kind: Literal["weights", "runtime", "range", "cache"]


class Stack(NamedTuple):
    """One bar of pieces that follow each other, and the limits of the whole."""

    name: str
    title: str
    axis: Axis
    pieces: tuple[Piece, ...]
    marks: tuple[Mark, ...]

    @property
    def ends(self) -> list[float]:
        """The places of the ends of pieces, and of the limits."""
        return [*(piece.end for piece in self.pieces), *(mark.value for mark in self.marks)]


class Step(NamedTuple):
    label: str  # its name: 'prefill'
    intensity: float  # FLOP per byte
    speed: float  # FLOP/s that the roof allows
    # lines below the name: the lower bound of its time, and what bounds it
    details: tuple[str, ...]


class Roof(NamedTuple):
    """The roofline of a GPU, and steps on it."""

    name: str
    title: str
    peak: float  # FLOP/s; `peak_label` is the same as text
    peak_label: str
    bandwidth: float  # bytes/s
    bandwidth_label: str
    ridge_label: str  # the FLOP per byte at which the roof bends, as text
    x: Axis  # FLOP per byte
    y: Axis  # FLOP/s
    steps: tuple[Step, ...]

    @property
    def ridge(self) -> float:
        """FLOP per byte at which the roof bends."""
        return self.peak / self.bandwidth

    @property
    def x_range(self) -> tuple[float, float]:
        """The FLOP per byte that are shown: of every step and of the ridge, and some space beside
        them.
        """
        shown = [self.ridge, *(step.intensity for step in self.steps)]
        return min(min(shown) / 3, self.ridge / 100), max(max(shown) * 3, self.ridge * 10)

    @property
    def y_range(self) -> tuple[float, float]:
        """The FLOP/s that are shown: the lowest step is at 0.4 of the height, since its details are
        below it.
        """
        top = math.log(self.peak * 2.5)
        lowest = min((math.log(step.speed) for step in self.steps), default=top)
        bottom = (lowest - 0.4 * top) / 0.6
        return math.exp(min(bottom, math.log(self.x_range[0] * self.bandwidth))), math.exp(top)

    @property
    def roof(self) -> tuple[tuple[float, float], ...]:
        low, high = self.x_range
        return ((low, low * self.bandwidth), (self.ridge, self.peak), (high, self.peak))


Chart = Lines | Areas | Bars | Stack | Roof


class Picture(NamedTuple):
    """What `--plot` draws."""

    title: str  # the model or the models
    subtitle: str  # the answer, or the kind of the model; "" for none
    caption: tuple[str, ...]  # lines below: the workload, the engine, the dtypes
    charts: tuple[Chart, ...]  # every chart that `--show` can choose
    default: tuple[str, ...]  # the names of the charts that are drawn without `--show`

    def titled(self, title: str) -> Self:
        """Return the picture with another title; its own one and the subtitle begin the caption, so
        that it can be made again.
        """
        own = "; ".join(filter(None, (self.title, self.subtitle.rstrip("."))))
        first, *others = self.caption
        return self._replace(title=title, subtitle="", caption=(f"{own}; {first}", *others))

    def captioned(self, text: str) -> Self:
        """Return the picture with one more line in its caption."""
        return self._replace(caption=(*self.caption, text))

    def named(self, names: Sequence[str]) -> list[Chart]:
        """Return the charts of these names, in the order of the names."""
        charts: list[Chart] = []
        for name in names:
            charts += [chart for chart in self.charts if chart.name == name]
        return charts
