"""The picture of a sweep: lines of each figure over a numeric axis, one per combination of the
other axes.
"""

from collections.abc import Iterator
from typing import Any

from ...engines import find_engine
from ...errors import AttncalcError
from ...show.figures import in_words
from ...show.picture import MAX_BARS, captions, own_dtype
from ...show.plot.chart import Picture
from ...units import count
from .axes import shown as as_text
from .charts import charts_of, value_text
from .columns import ERROR, MEMORY, PASS, unit_of
from .grid import default_figure
from .sweep import Sweep

# Cells of a picture.
MAX_CELLS = 100_000
# Models that a title names.
_MODELS = 6


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
    """Return the charts of the sweep's columns.

    Raises AttncalcError if no cell is possible, or no column has a number.
    """
    rows = list(sweep)
    errors = [row[ERROR] for row in rows if row[ERROR] is not None]
    if len(errors) == len(rows):
        raise AttncalcError(f"no cell is possible: {errors[0]}", "change one of the options")
    charts, left_out, others = charts_of(sweep, rows)
    if not charts:
        raise AttncalcError(
            "--plot: no cell has a number in these columns", "name other figures: --show kv_cache"
        )
    facts = [*_fixed(sweep, rows), *_defaults(sweep), *others]
    if errors:
        facts.append(f"{count(len(errors))} of {count(len(rows))} cells are not possible")
    if left_out:
        facts.append(f"{count(left_out)} of {count(left_out + MAX_BARS)} lines are left out")
    titles = [model.spec.title for model in sweep.models]
    title = ", ".join(titles) if len(titles) <= _MODELS else f"{len(titles)} models"
    names = tuple(dict.fromkeys(chart.name for chart in charts))
    return Picture(title, "", captions(facts), tuple(charts), names)


def _fixed(sweep: Sweep, rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the options that do not vary, with those that are not given: the batch, the context
    and the phase.
    """
    for axis in sweep.axes:
        if not axis.varies and axis.name != "model":
            yield value_text(axis.name, as_text(axis.values[0]))
    for name, value in sweep.flags.items():
        yield in_words(name) if value is True else f"{in_words(name)} {as_text(value)}"
    if "batch" not in sweep.by_name:
        yield "batch 1"
    contexts = {row["context"] for row in rows if row.get("context")}
    if "context" not in sweep.by_name and len(contexts) == 1:
        yield f"context {count(*contexts)}"
    elif "context" not in sweep.by_name and contexts:
        own = ", ".join(f"{row['model']} {count(row['context'])}" for row in rows[:_MODELS])
        yield f"each model's own context ({own})"
    of_pass = not {*PASS, *MEMORY}.isdisjoint(sweep.columns)
    if of_pass and "phase" not in sweep.by_name:
        yield "prefill"


def _defaults(sweep: Sweep) -> Iterator[str]:
    """Yield the engine and the dtypes that no axis gives."""
    given = sweep.by_name.keys()
    has_weights_dtype = not given.isdisjoint(("dtype", "weights_dtype"))
    has_kv_dtype = not given.isdisjoint(("kv_dtype", "kv_dtype_k", "kv_dtype_v"))
    if sweep.other is not None:
        yield f"other options as `attncalc {sweep.other.name}` has them by default"
        return
    if sweep.with_fit:
        yield from _served(
            sweep, with_engine="engine" not in given, with_dtype=not has_weights_dtype
        )
        if not has_kv_dtype:
            yield "cache in the engine's default dtype"
        return
    if "engine" not in given:
        yield "engine: ideal"
    if not (has_weights_dtype or has_kv_dtype):
        yield f"weights and cache in {_own_dtypes(sweep)}"
        return
    if not has_weights_dtype:
        yield f"weights in {_own_dtypes(sweep)}"
    if not has_kv_dtype:
        yield "cache in the dtype of the weights"


def _served(sweep: Sweep, *, with_engine: bool, with_dtype: bool) -> Iterator[str]:
    """Yield the engines and the dtypes of the weights, with the GPUs if they differ."""
    by_way: dict[str, list[str]] = {}
    for gpu, ways in sweep.deployments.items():
        for engine, dtype in ways:
            words = []
            if with_engine:
                words.append(f"engine: {find_engine(engine).title}")
            if with_dtype:
                words.append(f"weights in {dtype or _own_dtypes(sweep)}")
            gpus = by_way.setdefault(", ".join(words), [])
            if gpu not in gpus:
                gpus.append(gpu)
    for way, gpus in by_way.items():
        if way and len(by_way) == 1:
            yield way
        elif way:
            yield f"{way} ({', '.join(gpus)})"


def _own_dtypes(sweep: Sweep) -> str:
    """Return the dtypes of the models' weights, with the models if they differ."""
    by_dtype: dict[str, list[str]] = {}
    for name, spec in sweep.models:
        by_dtype.setdefault(own_dtype(spec), []).append(name)
    if len(by_dtype) == 1:
        return next(iter(by_dtype))
    return ", ".join(f"{dtype} ({', '.join(names)})" for dtype, names in by_dtype.items())
