"""The picture of a sweep: lines of each figure over a numeric axis, one per combination of the
other axes.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from ...engines import find_engine
from ...errors import AttncalcError
from ...model import plural
from ...show.picture import MAX_BARS, bars, captions, shown
from ...show.plot.chart import Chart, Lines, Picture, Series
from ...show.plot.scale import Axis as PlotAxis
from ...show.plot.scale import exact_count
from ...units import BYTES, NO_UNIT, TOKENS, count
from .axes import Axis
from .axes import shown as as_text
from .columns import ERROR, title_of, unit_of
from .grid import default_figure
from .sweep import Sweep

# Cells of a picture.
MAX_CELLS = 100_000
# Units of axes; other numbers have none.
_UNITS = {
    "context": TOKENS,
    "source_context": TOKENS,
    "past": TOKENS,
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


def for_picture(sweep: Sweep, *, chosen: bool) -> Sweep:
    """Return the sweep with the columns that are drawn: the chosen ones, or else one figure.

    Raises AttncalcError if there are too many cells, or a chosen column is text.
    """
    if len(sweep) > MAX_CELLS:
        raise AttncalcError(
            f"a picture shows at most {count(MAX_CELLS)} cells, and the sweep has "
            f"{count(len(sweep))}",
            "give fewer values",
        )
    if not chosen:
        return sweep.with_columns([default_figure(sweep)])
    for name in sweep.columns:
        if unit_of(name) is None:
            raise AttncalcError(
                f"--plot cannot draw {name}, which is text", "name figures: --show kv_cache"
            )
    return sweep


def sweep_picture(sweep: Sweep) -> Picture:
    """Return a chart of every column of the sweep.

    Raises AttncalcError if no cell is possible, or no column has a number.
    """
    rows = list(sweep)
    errors = [row[ERROR] for row in rows if row[ERROR] is not None]
    if len(errors) == len(rows):
        raise AttncalcError(f"no cell is possible: {errors[0]}", "change one of the options")
    varying = [axis for axis in sweep.axes if axis.varies]
    keys = [tuple(row[axis.name] for axis in varying) for row in rows]
    charts = []
    left_out = 0
    for name in sweep.columns:
        values = {key: row[name] for key, row in zip(keys, rows, strict=True)}
        chart, others = _chart(name, varying, values)
        if chart:
            charts.append(chart)
        left_out = max(left_out, others)
    if not charts:
        raise AttncalcError(
            "--plot: no cell has a number in these columns", "name other figures: --show kv_cache"
        )
    facts = []
    for axis in sweep.axes:
        if not axis.varies and axis.name != "model":
            facts.append(_value(axis.name, as_text(axis.values[0])))
    if errors:
        facts.append(f"{count(len(errors))} of {count(len(rows))} cells are not possible")
    if left_out:
        facts.append(f"{count(left_out)} of {count(left_out + MAX_BARS)} lines are left out")
    if sweep.other is None:
        facts += _defaults(sweep)
    names = tuple(chart.name for chart in charts)
    titles = [model.spec.title for model in sweep.models]
    title = ", ".join(titles) if len(titles) <= 6 else f"{len(titles)} models"
    return Picture(title, "", captions(facts), tuple(charts), names)


# A figure by the values of the axes that vary.
Values = Mapping[tuple[Any, ...], Any]


def _chart(name: str, varying: Sequence[Axis], values: Values) -> tuple[Chart | None, int]:
    """Return a figure as lines over an axis, or as bars, and the number of lines that are left out.

    An axis on which the figure does not depend is left out, as the batch on which the number of
    requests that fit does not depend. There is no chart without a number above zero.
    """
    if not any(values.values()):
        return None, 0
    kept = [i for i in range(len(varying)) if _depends(values, i)]
    across = _across([varying[i] for i in kept])
    down = [i for i in kept if varying[i] is not across]
    groups: dict[str, dict[Any, Any]] = {}
    title = title_of(name)
    for key, value in values.items():
        label = ", ".join(_value(varying[i].name, key[i]) for i in down)
        place = None if across is None else key[varying.index(across)]
        groups.setdefault(label or title, {}).setdefault(place, value)
    labels = [list(groups)[i] for i in shown(len(groups), None)]
    unit = unit_of(name) or NO_UNIT
    if across is None:
        heights = [(label, groups[label][None]) for label in labels]
        return bars(name, title, unit, heights), len(groups) - len(labels)
    series = tuple(Series(label, tuple(groups[label].items())) for label in labels)
    x = PlotAxis(across.name.replace("_", " "), _UNITS.get(across.name, NO_UNIT), across.name)
    return Lines(name, title, x, PlotAxis(title, unit, name), series), len(groups) - len(labels)


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


def _value(name: str, value: Any) -> str:
    """Return a value of an axis as people write it: 'batch 8', '4 GPUs', 'fp8 cache', 'GQA-8',
    'llama2-70b'.
    """
    if name == "attention":
        return str(value).upper().replace(":", "-")
    if name == "gpus":
        return plural(value, "GPU")
    if name in _NOUNS:
        return f"{value} {_NOUNS[name]}"
    words = name.replace("_", " ")
    if isinstance(value, int):
        return f"{words} {exact_count(value)}"
    return str(value)


def _defaults(sweep: Sweep) -> Iterator[str]:
    """Yield the engine and the dtypes that no axis gives."""
    given = sweep.by_name.keys()
    has_engine = "engine" in given
    has_weights_dtype = not given.isdisjoint(("dtype", "weights_dtype"))
    has_kv_dtype = not given.isdisjoint(("kv_dtype", "kv_dtype_k", "kv_dtype_v"))
    if sweep.with_fit:
        deployments = [*chain(*sweep.deployments.values())]
        engines = dict.fromkeys(find_engine(engine).title for engine, _ in deployments)
        weights = dict.fromkeys(f"in {name}" if name else "as released" for _, name in deployments)
        if not has_engine:
            yield f"engine: {' or '.join(engines)}"
        if not has_weights_dtype:
            yield f"weights {' or '.join(weights)}"
        if not has_kv_dtype:
            yield "cache in the engine's default dtype"
    else:
        dtypes = dict.fromkeys(model.spec.dtype for model in sweep.models)
        if not has_engine:
            yield "engine: ideal"
        if not has_weights_dtype:
            yield f"weights in {' or '.join(dtypes)}"
        if not has_kv_dtype:
            yield "cache in the dtype of the weights"
