"""The rows of `attncalc sweep --train`: of a training step each."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict, cast

from ...model import ModelSpec
from ...options import With
from ...quantity import Ratio
from ...units import NO_UNIT
from ..swept import SweptRows
from .answer import request_answer
from .figures import FIGURES, train_figures
from .options import StepOptions, TrainOptions
from .request import TrainRequest, read_train_request, usual_context


class TrainFlag(TypedDict, total=False):
    """Whether the rows of a sweep are those of `train`."""

    train: Annotated[
        bool, "Rows of a training step, with the options of `attncalc train`.", With(common=True)
    ]


# The verdict is no number: 'fits', 'may_not_fit' or 'does_not_fit'.
_VERDICT: dict[str, str | None] = {"verdict": None}
_DEFAULTS = (
    "weights",
    "optimizer_states",
    "gradients",
    "activations",
    "logits",
    "temporary",
    "communication",
    "allocated",
    "needed_low",
    "needed",
    "needed_high",
    "flops_per_step",
)
# With --tokens.
_TIMES = ("training_seconds", "gpu_hours", "price")
# The columns of a screen, which is 80 characters wide.
_ON_SCREEN = ("verdict", "weights", "optimizer_states", "activations", "needed_low", "needed_high")
_TIMES_ON_SCREEN = ("verdict", "needed_low", "needed_high", *_TIMES)


def _default_columns(options: Mapping[str, Any], has_price: bool) -> tuple[str, ...]:
    columns = [*_DEFAULTS]
    if "gpu" in options:
        columns.insert(0, "verdict")
    if "tokens" in options:
        columns += _TIMES if has_price else _TIMES[:-1]
    return tuple(columns)


def _screen_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    shown = _TIMES_ON_SCREEN if _TIMES[0] in columns else _ON_SCREEN
    return tuple(name for name in shown if name in columns)


class _Trains:
    """The figures of `train` of one model, for any batch and context."""

    def __init__(
        self,
        model: ModelSpec,
        options: Mapping[str, Any],
        columns: Sequence[str],
        prices: Mapping[str, Ratio],
    ) -> None:
        self._model = model
        self._options = options
        self._columns = columns
        self._prices = prices
        self._request: TrainRequest | None = None

    def figures(self, batch: int, context: int) -> tuple[Any, ...]:
        """Return the figures. Raises AttncalcError as `train` does."""
        if self._request is None:
            options = cast("TrainOptions", {**self._options, "batch": batch, "context": context})
            self._request = read_train_request(self._model, options)
        request = self._request.at(batch, context)
        price = self._prices.get(request.run.gpu.rented) if request.run.gpu else None
        request = request._replace(price=price and float(price))
        of = request_answer(request, with_changes=False, plain=True)
        values: dict[str, Any] = {figure.name: figure.value for figure in train_figures(of)}
        values |= {"verdict": of.result.verdict, "price": of.time and of.time.money}
        return tuple([values[name] for name in self._columns])


ROWS = SweptRows(
    "train",
    flag=TrainFlag,
    meaning="rows of a training step",
    options=TrainOptions,
    axes=StepOptions,
    heading="Training",
    own_axes=("weights_dtype",),
    columns={**_VERDICT, **{row.name: row.unit for row in FIGURES.values()}, "price": NO_UNIT},
    rows=FIGURES,
    default_columns=_default_columns,
    screen_columns=_screen_columns,
    main_column="needed",
    known_column="allocated",
    default_context=usual_context,
    figures=lambda *values: _Trains(*values).figures,
)
