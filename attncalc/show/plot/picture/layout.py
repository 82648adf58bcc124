"""Lay out a picture: its title, its charts in one or two columns, and its caption.

The module of a kind of chart has `height(chart, ruler, width)`, the inches that it needs with its
heading, and `draw(canvas, ruler, chart, box)`, which draws it below that.
"""

from types import ModuleType

from ..chart import Bars, Chart, Lines, Picture, Roof, Stack
from . import bars, lines, roof, stack, style
from .canvas import Box, Canvas, Ruler

_DRAWN_BY: dict[type, ModuleType] = {Bars: bars, Lines: lines, Stack: stack, Roof: roof}
# Inches of the longest name up to which two charts of bars or lines fit side by side.
_NARROW_NAME = 1.4
# Inches between charts.
_BETWEEN = 0.3


def lay_out(picture: Picture, names: tuple[str, ...]) -> Canvas:
    """Return the canvas with the charts of these names drawn on it."""
    ruler = Ruler()
    width = style.WIDTH - 2 * style.MARGIN
    title = ruler.wrapped(picture.title, width, style.TITLE, "bold")
    subtitle = ruler.wrapped(picture.subtitle, width, style.TEXT)
    caption: list[str] = []
    for text in picture.caption:
        caption += ruler.wrapped(text, width, style.SMALL)
    rows = _rows(picture.named(names), ruler)
    boxes: list[tuple[Chart, Box]] = []
    below_title = style.MARGIN + style.inches(style.TITLE, len(title))
    top = below_title + style.inches(style.TEXT, len(subtitle)) + 0.16
    for row in rows:
        each = (width - _BETWEEN * (len(row) - 1)) / len(row)
        heights = [_DRAWN_BY[type(chart)].height(chart, ruler, each) for chart in row]
        for i, chart in enumerate(row):
            boxes.append((chart, Box(style.MARGIN + i * (each + _BETWEEN), top, each, heights[i])))
        top += max(heights) + 0.2
    caption_height = style.inches(style.SMALL, len(caption))
    canvas = Canvas(top + caption_height + style.MARGIN)
    canvas.text(
        style.MARGIN,
        style.MARGIN,
        "\n".join(title),
        style.TITLE,
        weight="bold",
        linespacing=style.LINE,
    )
    canvas.text(
        style.MARGIN, below_title, "\n".join(subtitle), color=style.GREY, linespacing=style.LINE
    )
    for chart, box in boxes:
        heading = chart.heading if isinstance(chart, Lines) else chart.title
        heading = ruler.cut(heading, box.width, style.HEADING, "bold")
        canvas.text(box.left, box.top, heading, style.HEADING, weight="bold")
        _DRAWN_BY[type(chart)].draw(canvas, ruler, chart, box._replace(top=box.top + style.HEAD))
    canvas.text(
        style.MARGIN, top, "\n".join(caption), style.SMALL, color=style.GREY, linespacing=style.LINE
    )
    return canvas


def _rows(charts: list[Chart], ruler: Ruler) -> list[list[Chart]]:
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
    return rows


def _is_narrow(chart: Chart, ruler: Ruler) -> bool:
    if isinstance(chart, Bars):
        labels = [bar.label for bar in chart.bars]
    elif isinstance(chart, Lines):
        labels = [series.label for series in chart.series]
    else:
        return False
    return all(ruler.width(label) <= _NARROW_NAME for label in labels)
