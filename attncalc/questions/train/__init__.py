"""`train`: whether a training run fits on its GPUs, and what a step costs."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..question import HasReport, Question
from ..swept import SweptRows
from .options import TrainOptions


def _command() -> Any:
    from .command import train

    return train


def _on_page(models: Sequence[Any], options: Mapping[str, Any], *, is_screen: bool) -> HasReport:
    from .page import train

    return train(*models, **options)


def _rows() -> SweptRows:
    from .rows import ROWS

    return ROWS


QUESTION = Question(
    "train",
    example="attncalc train llama3-8b --gpu rtx-4090 --lora r=16 --weights-dtype nf4 -c 2048",
    command=_command,
    rows=_rows,
    on_page=_on_page,
    lists_models=True,
    options=TrainOptions,
)
