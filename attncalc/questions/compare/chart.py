"""The picture of `attncalc compare`: bars of each figure, one per variant or model; lines over
several contexts.
"""

from collections.abc import Sequence

from ...config.presets import preset_names
from ...search import grouped
from ...show.picture import bars, maximum_marks, picture, shown
from ...show.plot.chart import Chart, Lines, Picture, Series
from ...show.plot.scale import Axis
from ...show.report import workload_facts
from ...units import TOKENS
from .figures import CHARTS, FIGURES, Row


def compare_picture(
    rows: Sequence[Sequence[Row]], heading: Sequence[str], released: int | None = None
) -> Picture | None:
    """Return a chart of every figure that has a number.

    `rows` has a row per context for each variant or model; `released` is the variant to emphasize,
    None for models.
    """
    title, _, attention = heading[0].partition("  ")
    charts = [_chart(name, rows, released) for name in rows[0][0].figures]
    subtitle = ""
    facts = list(heading[1:])
    if released is not None:
        subtitle = attention
        facts.append(_own_attention(rows[released][0]))
    n_left_out = len(rows) - len(shown(len(rows), released))
    if n_left_out:
        facts.append(f"{n_left_out} of {len(rows)} are left out")
    return picture(
        title,
        subtitle,
        facts,
        [chart for chart in charts if chart],
        CHARTS,
        engine="ideal",
        dtypes=_dtypes(rows),
    )


def _chart(name: str, rows: Sequence[Sequence[Row]], released: int | None) -> Chart | None:
    """Return a figure as bars, or as lines over several contexts if it differs between them."""
    figures = [[row.figures[name] for row in own] for own in rows]
    labels = _labels(rows, released)
    first = figures[0][0]
    title = first.label[:1].upper() + first.label[1:]
    if name in CHARTS:
        title = FIGURES[name].chart_title
    if all(len({figure.value for figure in own}) == 1 for own in figures):
        values = [
            (label, own[0].figures[name].value) for label, own in zip(labels, rows, strict=True)
        ]
        return bars(name, title, first.unit, values, released)
    series = []
    for i in shown(len(rows), released):
        points = sorted((int(row.workload.context), row.figures[name].value) for row in rows[i])
        label = labels[i]
        if i == released:
            label = f"{label} *"
        series.append(Series(label, tuple(points)))
    longest = max(int(row.workload.context) for row in rows[0])
    marks = maximum_marks((own[0].model for own in rows), longest)
    return Lines(
        name,
        title,
        Axis("context", TOKENS, "context"),
        Axis(title, first.unit, name),
        tuple(series),
        marks=marks,
    )


def _labels(rows: Sequence[Sequence[Row]], released: int | None) -> list[str]:
    """Return the names of variants, or the titles of models if those differ."""
    titles = [own[0].model.title for own in rows]
    if released is not None or len({*titles}) < len(titles):
        return [own[0].name for own in rows]
    return titles


def _own_attention(row: Row) -> str:
    """Return which variant the model has: a built-in one was released, one's own was not."""
    if row.model.name in preset_names():
        return f"{row.name} is as released"
    return f"{row.name} is the model's own"


def _dtypes(rows: Sequence[Sequence[Row]]) -> str:
    """Return 'weights in bf16, cache in fp8' or 'weights and cache in bf16', with names of models
    that differ.
    """
    facts = {own[0].name: workload_facts(own[0].model, own[0].workload) for own in rows}
    parts: dict[str, list[str]] = {}
    for label, key in (("weights", "dtype"), ("cache", "kv_dtype")):
        by_dtype = grouped((str(workload[key]), name) for name, workload in facts.items())
        listed = list(by_dtype)
        if len(by_dtype) > 1:
            listed = [f"{dtype} ({', '.join(names)})" for dtype, names in by_dtype.items()]
        parts.setdefault(", ".join(listed), []).append(label)
    return ", ".join(f"{' and '.join(labels)} in {dtypes}" for dtypes, labels in parts.items())
