"""Charts drawn with characters, in 80 columns or as few as a terminal has.

Only characters that characters.py of the report can replace by ASCII are used. A library would do
less here: plotext 6 has no dependencies, but takes longer to import than a command takes, has no
names at the ends of lines, and needs an encoding with block characters.
"""

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence

from ...units import common_unit, short
from .chart import Areas, Bars, Chart, Lines, Picture, Roof, Series, Stack, known, runs
from .scale import PERCENT, Scale, exact_count, scale, thinned

WIDTH = 80
# Rows of the lines of a chart: with its axes, a title and a caption it has 20.
HEIGHT = 10
# Rows of a chart of bars, and of a table.
_MOST_ROWS = 13
MARKS = "ox+*#@%&=~"
_CELL = "·"
_FILLS = {"weights": "█", "runtime": "▓", "range": "▒", "cache": "░"}


def render(picture: Picture, names: tuple[str, ...], width: int = WIDTH) -> str:
    """Return the charts of these names as text of at most `width` columns, between the title and
    the caption.
    """
    blocks = [[*_wrapped(picture.title, width), *_wrapped(picture.subtitle, width)]]
    blocks += [lines_of(chart, width) for chart in picture.named(names)]
    caption: list[str] = []
    for text in picture.caption:
        caption += _wrapped(text, width)
    blocks.append(caption)
    texts = ["\n".join(map(str.rstrip, lines)) for lines in blocks]
    return "\n\n".join(texts) + "\n"


def lines_of(chart: Chart, width: int = WIDTH) -> list[str]:
    """Return the chart as lines of at most `width` columns."""
    if isinstance(chart, Bars):
        return _bars(chart, width)
    if isinstance(chart, Stack):
        return _stack(chart, width)
    if isinstance(chart, Roof):
        return _roof(chart, width)
    if isinstance(chart, Areas):
        return _table_of_areas(chart, width)
    drawn = _lines(chart, width)
    if drawn is None:
        return _table_of_lines(chart, width)
    return drawn


def _lines(chart: Lines, width: int) -> list[str] | None:
    """Return the lines in a frame; None if one would hide most of another, or their names need more
    rows.
    """
    if len(chart.series) >= HEIGHT:
        return None
    across, up = chart.scales(most_x=8, most_y=5)
    series = list(chart.series)
    if _is_hidden(across, up, series, width):
        return None
    lines = _drawn(across, up, up.label, series, HEIGHT, MARKS, width)
    return [*lines, *_marks(chart, width)]


def _is_hidden(across: Scale, up: Scale, series: list[Series], width: int) -> bool:
    """Return whether most points of a line have points of other lines in their place."""
    places = []
    for one in series:
        shown = known(one.points if one.measured is None else one.measured)
        places.append(
            {(round(across.at(x) * width * 0.7), round(up.at(y) * HEIGHT)) for x, y in shown}
        )
    for i, own in enumerate(places):
        others = {place for later in places[i + 1 :] for place in later}
        if len(own & others) * 2 > len(own):
            return True
    return False


def _marks(chart: Lines | Areas, width: int) -> list[str]:
    """Return the names of places such as a crossing."""
    if not chart.marks:
        return []
    return _wrapped(f"  {'; '.join(mark.label for mark in chart.marks)}", width)


def _table_of_lines(chart: Lines, width: int) -> list[str]:
    """Return a row for each line, with its values at some x."""
    rows: list[tuple[str, dict[float, float | None]]] = []
    for series in chart.series:
        rows.append((series.label, dict(series.points)))
        if series.measured:
            rows.append((f"{series.label}, measured", dict(series.measured)))
    xs = sorted({x for _, points in rows for x in points})
    columns = [(exact_count(x) if x == int(x) else short(x, chart.x.unit), x) for x in xs]
    lines = _table(chart, columns, rows, width)
    return [*lines, *_marks(chart, width)]


def _table_of_areas(chart: Areas, width: int) -> list[str]:
    """Return a row for each part, the highest first, their sum and the limits, at some x."""
    sums = chart.tops[-1]
    places = dict(zip(chart.xs, range(len(chart.xs)), strict=True))
    columns: list[tuple[str, float]] = []
    if chart.spans:
        columns = [(span.label, chart.largest_in(span)) for span in chart.spans]
    else:
        columns = [(exact_count(x), places[x]) for x in chart.ticks]
    rows: list[tuple[str, dict[float, float | None]]] = []
    for series in reversed(chart.series):
        rows.append((series.label, {i: y for i, (_, y) in enumerate(series.points)}))
    rows.append(("sum", dict(enumerate(sums))))
    lines = _table(chart, columns, rows, width)
    limits = [line for limit in chart.limits for line in _wrapped(f"  {limit.label}", width)]
    return [*lines, *limits, *_marks(chart, width)]


def _table(
    chart: Lines | Areas,
    columns: Sequence[tuple[str, float]],
    rows: Sequence[tuple[str, Mapping[float, float | None]]],
    width: int,
) -> list[str]:
    """Return a table in one unit with as many columns as have room, the last one among them.

    `columns` are pairs of a header and the key of its values in each of `rows`.
    """
    values: list[float] = []
    for _, points in rows:
        values += (value for value in points.values() if value is not None)
    unit, size = common_unit(max(values, default=0.0), chart.y.unit)
    of_x = f" ({chart.x.unit})" if chart.x.unit else ""
    of_y = f" ({unit})" if unit else ""
    label = chart.y.label or chart.title
    title = f"{label[:1].upper()}{label[1:]}{of_y} by {chart.x.label}{of_x}"
    digits = 0 if size == 1 and all(value == int(value) for value in values) else 2
    if unit == PERCENT:
        digits = 1
    kept = list(rows)
    left_out = len(rows) - _MOST_ROWS
    if left_out > 0:
        kept = [*rows[: _MOST_ROWS - 1], rows[-1]]
    names = [cut(label, width * 4 // 10) for label, _ in kept]
    widest = max(map(len, names), default=0)
    for most in range(len(columns), 0, -1):
        chosen = thinned(columns, most)
        texts = [[header for header, _ in chosen]]
        for _, points in kept:
            texts.append([_value(points, key, size, digits) for _, key in chosen])
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        if 2 + widest + sum(widths) + 2 * len(widths) <= width:
            break
    lines = [cut(title, width)]
    for name, cells in zip(["", *names], texts, strict=True):
        aligned = [f"{cell:>{size}}" for cell, size in zip(cells, widths, strict=True)]
        lines.append(f"  {name:<{widest}}  {'  '.join(aligned)}"[:width])
    if left_out > 0:
        lines.append(f"  {left_out} of {len(rows)} lines are left out")
    return lines


def _value(points: Mapping[float, float | None], key: float, size: float, digits: int) -> str:
    """Return a value in units of `size`, with so many digits after the point."""
    value = points.get(key)
    return "-" if value is None else f"{value / size:,.{digits}f}"


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)


def cut(text: str, width: int) -> str:
    """Return `text` in at most `width` characters, with '...' for its middle: the ends of names
    tell them apart.
    """
    if len(text) <= width:
        return text
    end = max(0, width - 3) // 2
    return f"{text[: max(0, width - 3) - end]}...{text[len(text) - end :]}"


def _bars(chart: Bars, width: int) -> list[str]:
    """Return a line per bar: its name, the bar, its value; the last ones are left out."""
    names = []
    left_out = len(chart.bars) - _MOST_ROWS
    shown = chart.bars
    if left_out > 0:
        last = sum(bar.strong for bar in chart.bars[_MOST_ROWS:])
        first = chart.bars[: _MOST_ROWS - last]
        shown = (*first, *(bar for bar in chart.bars[_MOST_ROWS - last :] if bar.strong))
    for bar in shown:
        name = cut(bar.label, width * 3 // 10)
        names.append(f"{name} *" if bar.strong else name)
    widest = max(map(len, names))
    room = width - 2 - widest - 2 - max(len(bar.text) for bar in shown) - 2
    longest = max(bar.value or 0 for bar in chart.bars) or 1
    lines = [chart.title]
    for name, bar in zip(names, shown, strict=True):
        cells = math.ceil((bar.value or 0) / longest * room - 1e-9)
        fill = "█" if bar.strong else "▒"
        lines.append(f"  {name:<{widest}}  {fill * cells}  {bar.text}")
    if len(shown) < len(chart.bars):
        lines.append(f"  {len(chart.bars) - len(shown)} of {len(chart.bars)} bars are left out")
    return lines


def _stack(chart: Stack, columns: int) -> list[str]:
    """Return the bar, a legend and the limits."""
    width = columns - 6
    across = scale(chart.axis, chart.ends, most=9, bar=True)
    cells = list(f"{'':{width}}")
    for piece in chart.pieces:
        for i in range(round(across.at(piece.start) * width), round(across.at(piece.end) * width)):
            cells[min(i, width - 1)] = _FILLS[piece.kind]
    feet = list(f"{'':{width + 1}}")
    for mark in chart.marks:
        feet[round(across.at(mark.value) * width)] = "^"
    legend = []
    for piece in chart.pieces:
        fill = _FILLS[piece.kind]
        legend.append(f"{fill} {piece.label} {piece.text}" if piece.label else fill)
    entries = "   ".join(legend).replace("▓   ▒", "▓▒")
    marks = "; ".join(mark.label for mark in chart.marks)
    return [
        chart.title,
        f"  [{''.join(cells)}]",
        f"   {''.join(feet)}",
        *_wrapped(f"  {entries}", columns),
        *_wrapped(f"  ^ {marks}", columns),
    ]


def _roof(chart: Roof, width: int) -> list[str]:
    """Return the roof as a line with the steps on it, and their bounds below."""
    steps = [Series(step.label, (), ((step.intensity, step.speed),)) for step in chart.steps]
    across = scale(chart.x, (), most=7, edges=chart.x_range)
    up = scale(chart.y, (), most=5, edges=(chart.x_range[0] * chart.bandwidth, chart.y_range[1]))
    lines = _drawn(
        across,
        up,
        f"{chart.title}: {up.label}",
        [Series("", chart.roof, ()), *steps],
        HEIGHT - 2,
        MARKS[-1] + MARKS,
        width,
    )
    lines += _wrapped(
        f"  roof: {chart.bandwidth_label}, then {chart.peak_label}; {chart.ridge_label}", width
    )
    for i, step in enumerate(chart.steps):
        lines += _wrapped(f"  {MARKS[i]} {step.label}: {', '.join(step.details)}", width)
    return lines


def _drawn(
    across: Scale,
    up: Scale,
    title: str,
    series: list[Series],
    height: int,
    marks: str,
    columns: int,
) -> list[str]:
    """Return lines in a frame, with ticks at the left and below, and the names of the lines at the
    right.
    """
    left = max(len(tick.label) for tick in up.ticks)
    # a long number leaves little for the names: '1,000,000,000,000,000,000'
    room = (columns - left) // 2 - 5
    names = [cut(one.label, min(columns * 3 // 10, room)) if room > 0 else "" for one in series]
    right = max((len(name) + 3 for name in names if name), default=0)
    width = columns - 1 - left - 2 - right
    cells = [list(f"{'':{width}}") for _ in range(height)]

    def cell(x: float, y: float) -> tuple[int, int]:
        return round(across.at(x) * (width - 1)), round((1 - up.at(y)) * (height - 1))

    for one in series:
        for run in runs(one.points):
            for start, end in itertools.pairwise(run):
                _draw_segment(cells, cell(*start), cell(*end))
    ends: list[tuple[int, int]] = []
    for i, one in enumerate(series):
        shown = known(one.points if one.measured is None else one.measured)
        row = 0
        for x, y in shown:
            column, row = cell(x, y)
            cells[row][column] = marks[i % len(marks)]
        if shown and names[i]:
            ends.append((row, i))  # that of the last point
    labels = _beside(ends, height)
    ticks = {round((1 - tick.at) * (height - 1)): tick.label for tick in up.ticks}
    lines = [title]
    for row in range(height):
        if row in labels:
            name = f" {marks[labels[row] % len(marks)]} {names[labels[row]]}"
        else:
            name = ""
        frame = "┤" if row in ticks else "│"
        lines.append(f" {ticks.get(row, ''):>{left}}{frame}{''.join(cells[row])}{name}")
    return [*lines, *_below(across, left, width, columns)]


def _draw_segment(cells: list[list[str]], start: tuple[int, int], end: tuple[int, int]) -> None:
    """Draw a straight line of dots."""
    x0, y0 = start
    x1, y1 = end
    n = max(abs(x1 - x0), abs(y1 - y0), 1)
    for i in range(n + 1):
        row = round(y0 + (y1 - y0) * i / n)
        column = round(x0 + (x1 - x0) * i / n)
        if 0 <= row < len(cells) and 0 <= column < len(cells[0]):
            cells[row][column] = _CELL


def _beside(ends: list[tuple[int, int]], height: int) -> dict[int, int]:
    """Return {row: line} with each line's name near the row of its end, one name per row."""
    rows: list[int] = []
    lines: list[int] = []
    free = 0
    for wanted, line in sorted(ends):
        rows.append(max(wanted, free))
        lines.append(line)
        free = rows[-1] + 1
    for i in reversed(range(len(rows))):  # push back what went below the last row
        rows[i] = min(rows[i], height - len(rows) + i)
    return dict(zip(rows, lines, strict=True))


def _below(across: Scale, left: int, width: int, columns: int) -> list[str]:
    """Return the horizontal axis: the frame with its ticks, their labels, the axis' label."""
    frame = list(f"{'':─<{width}}")
    labels = list(f"{'':{width + left + 10}}")
    free = 0
    for tick in across.ticks:
        column = round(tick.at * (width - 1))
        start = max(0, left + 2 + column - len(tick.label) // 2)
        start = min(start, columns - len(tick.label))
        if start < free:
            continue
        frame[column] = "┬"
        labels[start : start + len(tick.label)] = tick.label
        free = start + len(tick.label) + 1
    return [
        f" {'':>{left}}└{''.join(frame)}",
        "".join(labels),
        f" {across.label:^{left * 2 + width}}".rstrip(),
    ]
