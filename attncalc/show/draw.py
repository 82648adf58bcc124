"""Draw the picture of a report: into a file with matplotlib, or with characters."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import AttncalcError, known_tip
from ..search import grouped
from ..units import short, truncate
from .characters import printable
from .lists import WIDTH, screen_width
from .plot.chart import Areas, Bars, Chart, Lines, Picture, Stack
from .plot.scale import exact_count, thinned
from .report import LABEL, Column, Report, Table
from .write import deliver, saved, tell_written

# Values of x of a line in words.
_MOST_VALUES = 8


def chosen(picture: Picture, names: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the names of the charts to draw: `names`, or the default if None.

    Raises AttncalcError if there is no chart of a name.
    """
    if names is None:
        return picture.default
    known = tuple(dict.fromkeys(chart.name for chart in picture.charts))
    for name in names:
        if name not in known:
            raise AttncalcError(
                f"--show: there is no chart '{truncate(name)}'", known_tip(name, known)
            )
    return names


@contextmanager
def picture_file(
    picture: Picture,
    names: tuple[str, ...],
    file: Path,
    size: tuple[float, float | None] | None = None,
    *,
    force: bool,
) -> Iterator[None]:
    """Draw the charts of these names into a file, which gets its name when the block of the context
    ends without an error; its suffix selects the format.

    `size` is the width and the height in inches; a height of None is what the charts need.

    Raises CannotCheckError without matplotlib, and AttncalcError if the file exists (without
    `force`) or cannot be written, or the charts do not fit the size.
    """
    from .plot.picture import render

    with saved(render(_printable(picture), names, file.suffix.lower(), size), file, force=force):
        yield
    tell_written(file)


def print_picture(picture: Picture, names: tuple[str, ...], *, plain: bool = False) -> None:
    """Draw the charts of these names with characters, on standard output; `plain` prints their
    figures instead.
    """
    width = min(WIDTH, screen_width(sys.stdout))
    if plain:
        from . import text

        heading = tuple(filter(None, (picture.title, picture.subtitle)))
        charts = grouped((chart.name, chart) for chart in picture.charts)
        tables = [_in_words(chart) for name in names for chart in charts.get(name, ())]
        report = Report("plot", heading, {}, {}, (), tables=tuple(tables), notes=picture.caption)
        deliver(text.render(report, width=width, plain=True), None, force=False)
        return
    from .plot.text import render

    deliver(render(picture, names, width), None, force=False)


def _in_words(chart: Chart) -> Table:
    """Return the figures of a chart: of lines at no more values of x than a drawing has ticks."""
    if isinstance(chart, Lines | Areas):
        return _lines_in_words(chart)
    if isinstance(chart, Bars):
        texts = [(f"{chart.title}, {bar.label}", bar.text) for bar in chart.bars]
    elif isinstance(chart, Stack):
        texts = [(piece.label, piece.text) for piece in chart.pieces if piece.label]
        texts += [(mark.label, "") for mark in chart.marks]
    else:
        texts = [("roof", f"{chart.bandwidth_label}, then {chart.peak_label}; {chart.ridge_label}")]
        texts += [(step.label, ", ".join(step.details)) for step in chart.steps]
    return Table((LABEL, LABEL), tuple(texts))


def _lines_in_words(chart: Lines | Areas) -> Table:
    """Return a row per line, and a column per value of x."""
    if isinstance(chart, Areas) and chart.spans:
        return _phases_in_words(chart)
    known = {x for series in chart.series for x, _ in series.points}
    xs = thinned(sorted(known), _MOST_VALUES)
    columns = [Column(chart.title, "left")]
    for x in xs:
        columns.append(Column(exact_count(x) if x == int(x) else short(x, chart.x.unit)))
    lines = [(series.label, series.points) for series in chart.series]
    if isinstance(chart, Areas):
        lines.append(("sum", tuple(zip(chart.xs, chart.tops[-1], strict=True))))
    for series in chart.series:
        if series.measured:
            lines.append((f"{series.label}, measured", series.measured))
    rows = []
    for label, points in lines:
        by_x = dict(points)
        rows.append((label, *(_value(by_x, chart.y.unit, x) for x in xs)))
    return Table(tuple(columns), tuple(rows), above=chart.x.label)


def _phases_in_words(chart: Areas) -> Table:
    """Return a row per part, and a column per span, at its largest sum."""
    columns = [Column(chart.title, "left")]
    columns += [Column(span.label) for span in chart.spans]
    places = [chart.largest_in(span) for span in chart.spans]
    rows = []
    for series in reversed(chart.series):
        values = [series.points[i][1] for i in places]
        rows.append((series.label, *(short(value or 0, chart.y.unit) for value in values)))
    rows.append(("sum", *(short(chart.tops[-1][i], chart.y.unit) for i in places)))
    return Table(tuple(columns), tuple(rows))


def _value(points: Mapping[float, float | None], unit: str, x: float) -> str:
    y = points.get(x)
    if y is None:
        return "-"
    return short(y, unit)


def _printable(part: Any) -> Any:
    """Return a part of a picture without characters that would deceive a reader, or that XML does
    not allow.
    """
    if isinstance(part, str):
        return printable(part, "utf-8").replace("\n", " ")
    if isinstance(part, tuple):
        parts = [_printable(each) for each in part]
        if hasattr(part, "_fields"):
            return type(part)(*parts)
        return tuple(parts)
    return part
