"""The title and the caption of a picture, and bars of a figure."""

from collections.abc import Iterable, Sequence

from ..model import ModelSpec
from ..units import PER_SECOND, SECONDS, human, quotient
from .plot.chart import Bar, Bars, Chart, Mark, Picture
from .plot.scale import Axis
from .report import number

# Bars of a chart. A model of 96 heads has 12 kinds of attention, one of 720 has 30.
MAX_BARS = 24


def picture(
    title: str,
    subtitle: str,
    facts: Sequence[str],
    charts: Sequence[Chart],
    default: Sequence[str],
    *,
    engine: str,
    dtypes: str,
) -> Picture | None:
    """Return a picture; None without charts.

    Args:
        title: The model or the models.
        subtitle: The answer, or the model's attention; "" for none.
        facts: Sentences of the caption, such as the workload.
        default: The names of the charts that are drawn without --show; those that are missing are
            left out.
    """
    names = {chart.name for chart in charts}
    if not names:
        return None
    shown = tuple(name for name in default if name in names) or (charts[0].name,)
    return Picture(
        title, subtitle, captions((*facts, f"engine: {engine}", dtypes)), tuple(charts), shown
    )


def captions(facts: Iterable[str]) -> tuple[str, ...]:
    """Return the lines of a caption: the facts that are not empty."""
    return ("; ".join(fact for fact in facts if fact),)


def bars(
    name: str,
    title: str,
    unit: str,
    values: Sequence[tuple[str, float | None]],
    strong: int | None = None,
) -> Bars | None:
    """Return bars of one figure; None if it applies to none of them.

    `values` are pairs of the name of a bar and its value; `strong` is the bar to emphasize.
    """
    if not any(value for _, value in values):
        return None
    kept = [(*values[i], i == strong) for i in shown(len(values), strong)]
    drawn = (Bar(label, value, _text(value, unit), is_strong) for label, value, is_strong in kept)
    return Bars(name, title, Axis(title, unit, name), tuple(drawn))


def own_dtype(model: ModelSpec) -> str:
    """Return how a model's weights are stored: 'bf16', or 'fp8 and bf16'."""
    if model.quantization and model.quantization.method:
        return f"{model.quantization.method} and {model.dtype}"
    return model.dtype


def maximum_marks(models: Iterable[ModelSpec], longest: int) -> tuple[Mark, ...]:
    """Return marks at the maximum context of each model that is taken beyond it."""
    names: dict[int, list[str]] = {}
    for model in models:
        if model.max_context and model.max_context < longest:
            names.setdefault(model.max_context, []).append(model.title)
    return tuple(
        Mark(context, f"maximum of {', '.join(dict.fromkeys(titles))}")
        for context, titles in sorted(names.items())
    )


def _text(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit in (SECONDS, PER_SECOND):  # also of a whole number of seconds
        return quotient(value, unit)
    if isinstance(value, int):
        return human(value, unit)
    return number(value)


def shown(n: int, strong: int | None) -> list[int]:
    """Return the indices of at most MAX_BARS of `n` bars: the first, the last, `strong`, and equal
    steps.
    """
    if n <= MAX_BARS:
        return list(range(n))
    at_steps = MAX_BARS if strong is None else MAX_BARS - 1
    steps = {round(i * (n - 1) / (at_steps - 1)) for i in range(at_steps)}
    return sorted(steps | ({strong} if strong is not None else set()))
