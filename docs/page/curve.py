"""The curve of the page: the cache over the context, and the memory that is free for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attncalc
from attncalc.api.fit_options import UserOptions
from attncalc.options import options_of
from attncalc.plot.chart import Lines, Series
from attncalc.plot.scale import Axis, exact_count
from attncalc.report.report import Report
from attncalc.units import BYTES, TOKENS, human

MOST_MODELS = 6
"""As many as the page has colours for."""
SHORTEST, LONGEST = 1 << 10, 1 << 20
"""The first context, and the longest that the last one has unless it is asked for."""
DEFAULT_LONGEST = 1 << 17
"""The last context of a model without a maximum."""


def context_curve(models: Sequence[str], options: Mapping[str, Any], report: Report) -> dict[str, Any] | None:
    """Return the chart as plain data, with places from 0 to 1; None if there is nothing to draw.

    Args:
        models: The models of the question.
        options: Its options, as arguments in Python.
        report: Its answer.

    Raises AttncalcError if a sweep does not have one of the options.
    """
    if len(models) > MOST_MODELS:
        return None
    with_fit = "gpu" in options or "kv_memory" in options
    figure, title = ("kv_needed", "KV cache that is needed") if with_fit else ("kv_cache", "KV cache")
    here = report.workload.get("context")
    left_out = {"context", *(option.parameter for option in options_of(UserOptions).values())}
    fixed = {name: value for name, value in options.items() if name not in left_out and not isinstance(value, list)}
    rows = list(
        attncalc.sweep(
            list(models),
            context=_contexts(here, report.model.get("max_context")),
            columns=[figure, "kv_memory"] if with_fit else [figure],
            **fixed,
        )
    )
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row[figure] is not None:
            points.setdefault(row.get("model", ""), []).append((row["context"], row[figure]))
    if not points:
        return None
    series = [Series(name, tuple(of_model)) for name, of_model in points.items()]
    limit = next((row["kv_memory"] for row in rows if row["kv_memory"] is not None), None) if with_fit else None
    level = [] if limit is None else [Series("", tuple((row["context"], limit) for row in rows))]
    chart = Lines("curve", title, Axis("context", TOKENS), Axis(title, BYTES), (*series, *level))
    x, y = chart.scales(most_x=6, most_y=5)
    return {
        "title": y.label,
        "x_label": "tokens of context",
        "x_ticks": [tick._asdict() for tick in x.ticks],
        "y_ticks": [tick._asdict() for tick in y.ticks],
        "series": [
            {
                "label": each.label,
                "points": [
                    {"x": x.at(tokens), "y": y.at(size), "text": f"{exact_count(tokens)}: {human(int(size), BYTES)}"}
                    for tokens, size in points[each.label]
                ],
            }
            for each in series
        ],
        "limit": None
        if limit is None
        else {"y": y.at(limit), "label": f"free for the cache: {human(int(limit), BYTES)}"},
        "here": x.at(here) if here else None,
    }


def _contexts(here: int | None, longest: int | None) -> list[int]:
    """Return powers of two up to the model's maximum, with it and the context of the question."""
    end = max(min(longest or DEFAULT_LONGEST, LONGEST), here or 0, 2 * SHORTEST)
    powers = [1 << n for n in range(SHORTEST.bit_length() - 1, end.bit_length()) if 1 << n < end]
    return sorted({*powers, end, *([here] if here else [])})
