"""The charts of a sweep.

Figures of one unit share a chart if their lines are few, and the parts of one sum are stacked.
Other figures of one unit have charts of one scale.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...model import plural
from ...records import NamedTuple
from ...show.figures import in_words
from ...show.picture import bars, maximum_marks, shown
from ...show.plot.chart import Areas, Chart, Lines, Mark, Series
from ...show.plot.scale import PERCENT, exact_count, is_wide
from ...show.plot.scale import Axis as PlotAxis
from ...show.sums import MOMENTS, SUMS, whole_of
from ...units import BYTES, FLOP, NO_UNIT, PARAMS, SECONDS, TOKENS, human, short
from .axes import INNER, Axis
from .axes import shown as as_text
from .columns import title_of, unit_of
from .crossings import crossings
from .sweep import Sweep

# Lines of a chart with several figures.
_MOST_LINES = 6
# Units of axes; other numbers have none.
_UNITS = {
    "context": TOKENS,
    "source_context": TOKENS,
    "past": TOKENS,
    "prompt": TOKENS,
    "output": TOKENS,
    "window": TOKENS,
    "kv_memory": BYTES,
    "reserve": BYTES,
}
# What a dtype is that of.
_NOUNS = {
    "kv_dtype": "cache",
    "kv_dtype_k": "K",
    "kv_dtype_v": "V",
    "weights_dtype": "weights",
    "dtype": "model",
}
# What figures of one unit are together.
_TOGETHER = {
    BYTES: "memory",
    FLOP: "FLOPs",
    PARAMS: "parameters",
    SECONDS: "time",
    TOKENS: "tokens",
}

# A figure by the values of the axes that vary.
Values = Mapping[tuple[Any, ...], Any]


class _Figure(NamedTuple):
    """A figure of the sweep, as lines over an axis, or as bars."""

    name: str
    across: Axis | None  # the axis of lines; None for bars
    # {label of a line: {value of the axis: value of the figure}}
    groups: dict[str, dict[Any, Any]]
    left_out: int  # lines that are not drawn

    @property
    def unit(self) -> str:
        return unit_of(self.name) or NO_UNIT


def charts_of(
    sweep: Sweep, rows: Sequence[Mapping[str, Any]]
) -> tuple[list[Chart], int, list[str]]:
    """Return the charts, the number of lines that are left out, and sentences on what is not drawn
    and on the sums of shares.
    """
    varying = [axis for axis in sweep.axes if axis.varies]
    keys = [tuple(row[axis.name] for axis in varying) for row in rows]
    titles = {model.name: model.spec.title for model in sweep.models}
    if len({*titles.values()}) < len(titles):
        titles = {}
    by_name: dict[str, Values] = {}
    for name in sweep.columns:
        values = {key: row[name] for key, row in zip(keys, rows, strict=True)}
        if any(values.values()):
            by_name[name] = values
    figures = []
    for name, of_figure in by_name.items():
        kept = _kept(name, by_name, len(varying))
        figures.append(_figure(name, varying, kept, of_figure, titles))
    charts: list[Chart] = []
    facts = [*_not_drawn(sweep, by_name, varying)]
    for together in _together(figures):
        drawn, sums = _charts(sweep, together)
        charts += drawn
        facts += sums
    return charts, max((figure.left_out for figure in figures), default=0), facts


def _not_drawn(
    sweep: Sweep, by_name: Mapping[str, Values], varying: Sequence[Axis]
) -> Iterator[str]:
    """Yield the axes on which no figure depends, and the figures without a number above zero."""
    for i, axis in enumerate(varying):
        if by_name and not any(_depends(values, i) for values in by_name.values()):
            first = value_text(axis.name, as_text(axis.values[0]))
            yield f"the same from {first} to {as_text(axis.values[-1])}"
    missing = [title_of(name) for name in sweep.columns if name not in by_name]
    if missing:
        yield f"no number above zero: {', '.join(missing)}"


def _kept(name: str, by_name: Mapping[str, Values], n_axes: int) -> list[int]:
    """Return the axes on which a figure depends, or another figure with which it shares axes.

    Others are left out, as the batch on which the number of requests that fit does not depend.
    """
    unit = unit_of(name)
    together = [by_name[name]]
    if unit in _TOGETHER:
        together = [values for other, values in by_name.items() if unit_of(other) == unit]
    return [i for i in range(n_axes) if any(_depends(values, i) for values in together)]


def _figure(
    name: str,
    varying: Sequence[Axis],
    kept: Sequence[int],
    values: Values,
    titles: Mapping[str, str],
) -> _Figure:
    """Return a figure over the axes that are kept, as lines or as bars."""
    across = _across([varying[i] for i in kept])
    down = [i for i in kept if varying[i] is not across]
    groups: dict[str, dict[Any, Any]] = {}
    for key, value in values.items():
        label = ", ".join(value_text(varying[i].name, key[i], titles) for i in down)
        place = None if across is None else key[varying.index(across)]
        groups.setdefault(label, {}).setdefault(place, value)
    labels = [list(groups)[i] for i in shown(len(groups), None)]
    drawn = {label: groups[label] for label in labels}
    return _Figure(name, across, drawn, len(groups) - len(labels))


def _depends(values: Values, i: int) -> bool:
    """Return whether a figure depends on the axis `i`."""
    by_others: dict[tuple[Any, ...], Any] = {}
    for key, value in values.items():
        others = (*key[:i], *key[i + 1 :])
        if by_others.setdefault(others, value) != value:
            return True
    return False


def _across(varying: Sequence[Axis]) -> Axis | None:
    """Return the axis of numbers that has most values; of equals the innermost, as the context
    is.
    """
    numbers = [axis for axis in varying if all(isinstance(value, int) for value in axis.values)]
    return max(reversed(numbers), key=lambda axis: len(axis.values), default=None)


def value_text(name: str, value: Any, titles: Mapping[str, str] | None = None) -> str:
    """Return a value of an axis as people write it: 'batch 8', '4 GPUs', 'fp8 cache', 'GQA-8',
    'LLaMA-2 70B'.
    """
    if name == "model":
        return (titles or {}).get(value, str(value))
    if name == "attention":
        return str(value).upper().replace(":", "-")
    if name == "gpus":
        return plural(value, "GPU")
    if name in _NOUNS:
        return f"{value} {_NOUNS[name]}"
    if name in ("gpu", "engine", "mask", "phase"):
        return str(value)
    text = exact_count(value) if isinstance(value, int) else str(value)
    if _UNITS.get(name) == BYTES and isinstance(value, int):
        text = human(value, BYTES)
    return f"{in_words(name)} {text}"


def _together(figures: Sequence[_Figure]) -> list[list[_Figure]]:
    """Return the figures in lists of those that share a unit, an axis and the names of lines, in
    their order.
    """
    found: dict[Any, list[_Figure]] = {}
    for figure in figures:
        key: Any = (figure.unit, figure.across and figure.across.name, *figure.groups)
        if figure.unit not in _TOGETHER:
            key = figure.name
        found.setdefault(key, []).append(figure)
    return list(found.values())


def _charts(sweep: Sweep, figures: Sequence[_Figure]) -> tuple[list[Chart], list[str]]:
    """Return the charts of figures of one unit, and sentences on the sums of shares."""
    across = figures[0].across
    if across is None:
        return _bar_charts(figures), []
    whole = _stacked_whole(figures)
    if whole:
        parts = [figure for figure in figures if figure.name in SUMS[whole]]
        others = [figure for figure in figures if figure not in parts]
        if not _is_sum(others, parts, whole):
            drawn, sums = _stacks(sweep, parts, whole)
            if others:
                more, _ = _charts(sweep, others)
                drawn += more
            return drawn, sums
        return _stacks(sweep, parts, whole)
    if len(figures) == 1:
        return [_lines(sweep, figures[0])], []
    if sum(len(figure.groups) for figure in figures) <= _MOST_LINES:
        return [_one_chart(sweep, figures)], []
    shared = tuple(_heights(figures))
    return [_lines(sweep, figure, shared) for figure in figures], []


def _heights(figures: Sequence[_Figure]) -> Iterator[float]:
    """Yield all values of figures that have one."""
    for figure in figures:
        for line in figure.groups.values():
            for value in line.values():
                if value is not None:
                    yield value


def _stacked_whole(figures: Sequence[_Figure]) -> str:
    """Return the sum of which two or more of the figures are parts; '' without one."""
    for whole, parts in SUMS.items():
        found = [figure.name for figure in figures if figure.name in parts]
        if len(found) > 1 and whole_of(found) == whole:
            return whole
    return ""


def _is_sum(others: Sequence[_Figure], parts: Sequence[_Figure], whole: str) -> bool:
    """Return whether the only other figure is the sum of the parts, whose upper edge it is."""
    if [figure.name for figure in others] != [whole]:
        return False
    for label, line in others[0].groups.items():
        for x, value in line.items():
            of_parts = [part.groups[label].get(x) or 0 for part in parts]
            if value is not None and sum(of_parts) != value:
                return False
    return True


def _bar_charts(figures: Sequence[_Figure]) -> list[Chart]:
    """Return bars of each figure; several figures of one model are the bars of one chart."""
    first = figures[0]
    if len(figures) > 1 and len(first.groups) == 1:
        heights = []
        for figure in figures:
            (line,) = figure.groups.values()
            heights.append((title_of(figure.name), line[None]))
        name = ",".join(figure.name for figure in figures)
        found = [bars(name, _TOGETHER[first.unit], first.unit, heights)]
    else:
        found = []
        for figure in figures:
            title = title_of(figure.name)
            heights = [(label or title, line[None]) for label, line in figure.groups.items()]
            found.append(bars(figure.name, title, figure.unit, heights))
    return [chart for chart in found if chart]


def _x_axis(across: Axis) -> PlotAxis:
    return PlotAxis(in_words(across.name), _UNITS.get(across.name, NO_UNIT), across.name)


def _lines(sweep: Sweep, figure: _Figure, shared: tuple[float, ...] = ()) -> Lines:
    """Return the lines of one figure. `shared` has the values of all charts of its unit."""
    assert figure.across is not None
    title = title_of(figure.name)
    series = tuple(Series(label, tuple(line.items())) for label, line in figure.groups.items())
    axis = PlotAxis(title, figure.unit, figure.name)
    marks = _maxima(sweep, figure.across)
    return Lines(
        figure.name, title, _x_axis(figure.across), axis, series, marks=marks, shared=shared
    )


def _maxima(sweep: Sweep, across: Axis, of: str = "") -> tuple[Mark, ...]:
    """Return marks at the maxima of models beyond which the contexts go: of all models, or of those
    that a line's label names.
    """
    if across.name != "context":
        return ()
    names = of.split(", ")
    models = [model.spec for model in sweep.models]
    named = [spec for name, spec in sweep.models if not {name, spec.title}.isdisjoint(names)]
    return maximum_marks(named or models, max(across.values))


def _one_chart(sweep: Sweep, figures: Sequence[_Figure]) -> Lines:
    """Return the lines of several figures, with the places at which they cross."""
    across = figures[0].across
    assert across is not None
    unit = figures[0].unit
    series = []
    for figure in figures:
        for label, line in figure.groups.items():
            name = ", ".join(filter(None, (label, _lower(title_of(figure.name)))))
            series.append(Series(name, tuple(line.items())))
    marks = _marks(
        sweep, figures, {figure.name: _lower(title_of(figure.name)) for figure in figures}
    )
    names = ",".join(figure.name for figure in figures)
    title = _TOGETHER[unit]
    axis = PlotAxis(title, unit, names)
    return Lines(names, title, _x_axis(across), axis, tuple(series), marks=marks)


def _stacks(sweep: Sweep, figures: Sequence[_Figure], whole: str) -> tuple[list[Chart], list[str]]:
    """Return the parts of a sum, stacked: a chart for each line, and sentences on the sums of
    shares.

    Parts of sums that span a wide range are shares: the smallest sum would be a line on the axis.
    """
    across = figures[0].across
    assert across is not None
    in_order = sorted(figures, key=lambda figure: SUMS[whole].index(figure.name))
    parts = {figure.name: _part(figure.name) for figure in in_order}
    charts: list[Chart] = []
    facts = []
    sums = {label: _sums(in_order, label) for label in in_order[0].groups}
    is_share = any(is_wide(own.values()) for own in sums.values())
    for label, own in sums.items():
        series = []
        for figure in in_order:
            points = _points(figure.groups[label], own, is_share=is_share)
            series.append(Series(_part(figure.name), points))
        title = ", ".join(filter(None, (label, title_of(whole))))
        unit = figures[0].unit
        if is_share:
            these = "" if len(in_order) == len(SUMS[whole]) else "these "
            axis = PlotAxis(f"share of {these}{title}", PERCENT, whole)
            facts.append(_sum_text(label, across, own, unit))
        else:
            axis = PlotAxis(title, unit, whole)
        x = _x_axis(across)
        marks = _marks(sweep, in_order, parts, label)
        if whole in MOMENTS:
            series = _in_steps(series, list(own))
        charts.append(Areas(whole, title, x, axis, tuple(series), tuple(own), marks))
    return charts, facts


def _in_steps(series: Sequence[Series], xs: Sequence[int]) -> list[Series]:
    """Return lines that are level around each x, and jump between two of them.

    Each x has a moment of its own: between two, the parts do not go over into each other.
    """
    ends = [math.sqrt(low * high) for low, high in itertools.pairwise(xs)]
    starts = [xs[0], *ends]
    ends.append(xs[-1])
    found = []
    for one in series:
        points: list[tuple[float, float | None]] = []
        for start, (x, y), end in zip(starts, one.points, ends, strict=True):
            points += dict.fromkeys(((start, y), (x, y), (end, y)))
        found.append(Series(one.label, tuple(points)))
    return found


def _part(name: str) -> str:
    """Return the name of a part without that of the sum: 'MLP' of 'FLOPs: MLP'."""
    title = title_of(name)
    for prefix in ("FLOPs: ", "Parameters: ", "Parameters of "):
        title = title.removeprefix(prefix)
    return _lower(title)


def _lower(title: str) -> str:
    """Return a title within a sentence: 'peak math', but 'KV cache'."""
    return title[:1].lower() + title[1:] if title[1:2].islower() else title


def _short(names: Mapping[str, str]) -> dict[str, str]:
    """Return the names without the words before the last, if the last words differ."""
    last = {name: text.rpartition(" ")[2] for name, text in names.items()}
    return last if len({*last.values()}) == len(last) else dict(names)


def _sums(figures: Sequence[_Figure], label: str) -> dict[Any, int]:
    """Return {x: the sum}, of the values of x at which all figures have a value."""
    sums = {}
    for x in figures[0].groups[label]:
        values = [figure.groups[label].get(x) for figure in figures]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            sums[x] = sum(known)
    return sums


def _points(
    line: Mapping[Any, Any], sums: Mapping[Any, int], *, is_share: bool
) -> tuple[tuple[float, float | None], ...]:
    """Return the points of a part, in percent of the sums if they are shares."""
    if is_share:
        return tuple((x, 100 * line[x] / whole) for x, whole in sums.items())
    return tuple((x, line[x]) for x in sums)


def _sum_text(label: str, across: Axis, sums: Mapping[Any, int], unit: str) -> str:
    """Return the smallest and the largest x with their sums, in words."""
    ends = (min(sums), max(sums))
    texts = [f"{short(sums[x], unit)} at {value_text(across.name, x)}" for x in ends]
    of = f" of {label}" if label else ""
    return f"the sum{of} is {texts[0]}, {texts[1]}"


def _marks(
    sweep: Sweep, figures: Sequence[_Figure], names: Mapping[str, str], of: str = ""
) -> tuple[Mark, ...]:
    """Return the maxima of models, and of one line for each figure where one becomes larger than
    another. `of` is the label of the lines.
    """
    across = figures[0].across
    assert across is not None
    maxima = _maxima(sweep, across, of)
    if len(figures[0].groups) > 1 or across.name not in INNER:
        return maxima
    lines = {}
    for figure in figures:
        (line,) = figure.groups.values()
        lines[figure.name] = line
    return (*maxima, *_crossing_marks(sweep, across.name, lines, names))


def _crossing_marks(
    sweep: Sweep, axis: str, lines: Mapping[str, Mapping[int, Any]], names: Mapping[str, str]
) -> Iterator[Mark]:
    names = _short(names)
    for crossing in crossings(sweep, axis, lines):
        larger = names[crossing.larger]
        smaller = names[crossing.smaller]
        yield Mark(crossing.x, f"{larger} > {smaller} from {crossing.x:,}")
