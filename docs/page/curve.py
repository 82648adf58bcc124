"""The curve of the page: the cache or the memory over the context, or GPUs over users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import attncalc
from attncalc.config import ModelLike
from attncalc.options import options_of
from attncalc.questions.fit.options import ALL, UserOptions
from attncalc.questions.train.chart import STATES
from attncalc.show.plot.chart import Areas, Lines, Series, known
from attncalc.show.plot.scale import Axis, exact_count, scale
from attncalc.show.report import Report
from attncalc.units import BYTES, NO_UNIT, TOKENS, human

if TYPE_CHECKING:
    from attncalc.questions.plan.plan import Plan

# As many as the page has colours for.
MOST_LINES = 8
# The first context, unless the model has no long one, and the longest that the last one has unless
# it is asked for.
SHORTEST = 1 << 10
LONGEST = 1 << 20
# The last context of a model without a maximum.
DEFAULT_LONGEST = 1 << 17
# The users of a plan's curve, or its requests per second, as factors of those of the question.
FACTORS = (0.125, 0.25, 0.5, 1, 2, 4, 8)


class Curve(NamedTuple):
    """A chart of lines.

    Attributes:
        lines: The lines.
        here: The x of the question; None if it is not on the chart.
        limit: A y that should not be exceeded, with what it is; None without one.
        linear: Whether y is linear whatever its values are.
        longest: The model's maximum context, if the chart goes on beyond it or ends there; else
            None.
    """

    lines: Lines
    here: float | None
    limit: tuple[int, str] | None = None
    linear: bool = False
    longest: int | None = None


def curve_of(
    command: str,
    models: Sequence[ModelLike],
    options: Mapping[str, Any],
    result: Any,
    report: Report,
) -> dict[str, Any] | None:
    """Return the curve of an answer as plain data, with places from 0 to 1; None if there is
    nothing to draw.

    Args:
        command: The command.
        models: The models of the question.
        options: Its options, as arguments in Python.
        result: The result of its call.
        report: Its report.

    Raises AttncalcError if a sweep does not have one of the options.
    """
    if command == "plan":
        curve = None if result.plan.demand.is_open else _users_curve(result.plan)
    elif command == "train":
        curve = _training_curve(report)
    elif command == "compare" and not all(row["released"] for row in result.rows):
        curve = _kinds_curve(models, options, report)
    else:
        curve = _context_curve(models, options, report)
    if curve and curve.lines.series and len(curve.lines.series) <= MOST_LINES:
        return _plain(curve)
    return None


def _context_curve(
    models: Sequence[ModelLike], options: Mapping[str, Any], report: Report
) -> Curve | None:
    """Return the cache over the context, and with a GPU what is free for it; None for many models
    or GPUs.
    """
    # before they are computed
    if not models or options.get("gpu") == ALL or len(models) > MOST_LINES:
        return None
    with_fit = "gpu" in options or "kv_memory" in options
    if with_fit:
        figure, title = ("kv_needed", "KV cache that is needed")
    else:
        figure, title = ("kv_cache", "KV cache")
    here = report.workload.get("context")
    left_out = {"context", *(option.parameter for option in options_of(UserOptions).values())}
    fixed = {
        name: value
        for name, value in options.items()
        if name not in left_out and not isinstance(value, list)
    }
    longest = report.model.get("max_context")
    # {model: its maximum, where its line ends unless the question goes beyond}, of several models
    ends: dict[str, int] = {}
    if len(models) > 1:
        ends = {spec.name: spec.max_context or LONGEST for spec in map(attncalc.load, models)}
        longest = max(ends.values())
    contexts = _contexts(here, longest)
    columns = [figure, "kv_memory"] if with_fit else [figure]
    found = list(attncalc.sweep(list(models), context=contexts, columns=columns, **fixed))
    points: dict[str, list[tuple[float, float | None]]] = {}
    for row in found:
        end = max(ends.get(row.get("model", ""), row["context"]), here or 0)
        if row[figure] is not None and row["context"] <= end:
            points.setdefault(row.get("model", ""), []).append((row["context"], row[figure]))
    if with_fit:
        free = next((row["kv_memory"] for row in found if row["kv_memory"] is not None), None)
    else:
        free = None
    return Curve(
        _lines(title, "context", {label: tuple(of_model) for label, of_model in points.items()}),
        here,
        None if free is None else (free, "free for the cache"),
        longest=None if ends else _longest(report, contexts),
    )


def _kinds_curve(words: Sequence[ModelLike], options: Mapping[str, Any], report: Report) -> Curve:
    """Return the cache of one model with each kind of attention over the context: of the kind as
    released, of the first and the last one in the table, and of as many others as have colours.
    """
    from attncalc.questions.compare.page import compare

    here = report.workload.get("context")
    contexts = _contexts(here, report.model.get("max_context"))
    found: Any = compare(*words, **{**options, "context": contexts})
    points: dict[str, list[tuple[float, float | None]]] = {}
    released = []
    for row in found.rows:
        points.setdefault(row["name"], []).append((row["context"], row["kv_cache"]))
        if row["released"]:
            released.append(row["name"])
    names = list(points)
    shown = [*dict.fromkeys([*released, names[0], names[-1], *names])][:MOST_LINES]
    series = {name: tuple(points[name]) for name in names if name in shown}
    return Curve(_lines("KV cache", "context", series), here, longest=_longest(report, contexts))


def _longest(report: Report, contexts: Sequence[int]) -> int | None:
    """Return the model's maximum context if it is one of the contexts."""
    longest: int | None = report.model.get("max_context")
    if longest in contexts:
        return longest
    return None


def _contexts(here: int | None, longest: int | None) -> list[int]:
    """Return powers of two up to the model's maximum, with it and the context of the question."""
    end = max(min(longest or DEFAULT_LONGEST, LONGEST), here or 0)
    first = min(SHORTEST, max(1, end // 16))
    powers = [1 << n for n in range(first.bit_length() - 1, end.bit_length()) if 1 << n < end]
    marked = [each for each in (here, longest) if each and each <= end]
    return sorted({*powers, end, *marked})


def _training_curve(report: Report) -> Curve | None:
    """Return the peak of a GPU's memory over the context, and what is held for the whole run."""
    drawn = report.draw()
    if drawn is None:
        return None
    memory = next(figure.value for figure in report.figures if figure.name == "gpu_memory")
    chart = next(chart for chart in drawn.charts if isinstance(chart, Areas))
    places = [chart.xs.index(context) for context in chart.ticks]
    always = [each.points for each in chart.series if each.label in STATES]
    parts = {
        "weights and optimizer states": tuple(
            (chart.xs[i], sum(points[i][1] or 0 for points in always)) for i in places
        ),
        "allocated": tuple((chart.xs[i], chart.tops[-1][i]) for i in places),
    }
    limit = (int(memory), "the GPU has") if memory else None
    return Curve(
        _lines(chart.title, "context", parts), report.workload.get("context"), limit, linear=True
    )


def _users_curve(plan: Plan) -> Curve:
    """Return the fewest GPUs over the users, or over the requests per second, for each model."""
    from attncalc.questions.plan.rows import rows, sorted_rows

    points: dict[str, list[tuple[float, float | None]]] = {
        request.model.name: [] for request in plan.requests
    }
    for asked, demand in {each.load: each for each in map(plan.demand.times, FACTORS)}.items():
        best = sorted_rows(rows(plan.found.candidates, demand), "gpus")
        for model, of_model in points.items():
            of_model.append(
                (asked, next((row.gpus for row in best if row.candidate.group[0] == model), None))
            )
    x_label = "users" if plan.demand.requested else "requests per second"
    lines = _lines(
        "GPUs", x_label, {model: tuple(of_model) for model, of_model in points.items()}, NO_UNIT
    )
    return Curve(lines, plan.demand.load)


def _lines(
    title: str,
    x_label: str,
    series: Mapping[str, tuple[tuple[float, float | None], ...]],
    unit: str = BYTES,
) -> Lines:
    x = Axis(x_label, TOKENS if unit == BYTES else NO_UNIT)
    named = [Series(label, points) for label, points in series.items() if known(points)]
    return Lines("curve", title, x, Axis(title, unit), tuple(named))


def _plain(curve: Curve) -> dict[str, Any]:
    lines = curve.lines
    limit = curve.limit
    unit = curve.lines.y.unit
    if limit:
        level = [Series("", tuple((x, limit[0]) for x, _ in lines.series[0].points))]
    else:
        level = []
    whole = lines._replace(series=(*lines.series, *level))
    x, y = whole.scales(most_x=6, most_y=5)
    if curve.linear:
        y = scale(
            lines.y,
            [size for each in whole.series for _, size in known(each.points)],
            most=5,
            bar=True,
        )
    found = [dict(known(each.points)) for each in lines.series]
    return {
        "title": y.label,
        "x_label": lines.x.label,
        "x_ticks": [tick._asdict() for tick in x.ticks],
        # half a GPU is no tick
        "y_ticks": [tick._asdict() for tick in y.ticks if unit or "." not in tick.label],
        "series": [
            {
                "label": each.label,
                "points": [{"x": x.at(at), "y": y.at(size)} for at, size in points.items()],
            }
            for each, points in zip(lines.series, found, strict=True)
        ],
        "rows": [
            [
                exact_count(at),
                *(human(int(points[at]), unit) if at in points else "" for points in found),
            ]
            for at in sorted(set().union(*found))
        ],
        "limit": limit and {"y": y.at(limit[0]), "label": f"{limit[1]}: {human(limit[0], unit)}"},
        "here": x.at(curve.here) if curve.here else None,
        "longest": x.at(curve.longest) if curve.longest else None,
    }
