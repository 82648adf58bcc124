"""Pictures of an answer, as plain data, and the two ways to draw them.

    chart.py      the charts: bars, lines, a roofline, a bar of a memory
    scale.py      where a value is on an axis, and the axis' ticks
    text.py       drawn with characters, in 80 columns
    picture/      drawn with matplotlib, into SVG, PNG or PDF; the only package that imports it

Reports make the charts. A chart carries its data, so both ways show the same figures.
"""

# Suffixes of the files that can be drawn.
SUFFIXES = (".svg", ".png", ".pdf")
