"""What a page asks: `train`, with a model or without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..arguments import takes
from ..question import Answered, HasReport
from .answer import train as train_of
from .answer import trainable_report
from .options import TrainOptions
from .request import asks_for_models

if TYPE_CHECKING:
    from typing_extensions import Unpack


@takes(TrainOptions)
def train(model: Any = None, **options: Unpack[TrainOptions]) -> HasReport:
    """Return what `attncalc train` answers: what a step needs, or without a model what a GPU can
    train.

    Raises AttncalcError as the command does.
    """
    if asks_for_models(options, has_model=model is not None):
        return Answered(trainable_report(options))
    return train_of(model, **options)
