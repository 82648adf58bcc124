"""What a training step of one model with one set of options needs, as a function of batch and context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ..api.train_options import TrainOptions
from ..api.train_request import TrainRequest, read_train_request
from ..api.training import request_answer
from ..model import ModelSpec
from ..report.train import train_figures
from .fits import Need


class Trains:
    """The figures of `train` of one model, for any batch and context."""

    def __init__(self, model: ModelSpec, options: Mapping[str, Any], columns: Sequence[str], need: Need) -> None:
        self._model, self._options, self._columns, self._prices = model, options, columns, need.prices
        self._request: TrainRequest | None = None

    def figures(self, batch: int, context: int) -> tuple[Any, ...]:
        """Return the figures. Raises AttncalcError as `train` does."""
        if self._request is None:
            options = cast("TrainOptions", {**self._options, "batch": batch, "context": context})
            self._request = read_train_request(self._model, options)
        request = self._request.at(batch, context)
        price = self._prices.get(request.run.gpu.name) if request.run.gpu else None
        request = request._replace(price=price and float(price))
        of = request_answer(request, with_changes=False, plain=True)
        values: dict[str, Any] = {figure.name: figure.value for figure in train_figures(of)}
        values |= {"verdict": of.result.verdict, "fits": of.result.fits, "price": of.time and of.time.money}
        return tuple([values[name] for name in self._columns])
