"""`plan`: from users to GPUs."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..question import HasReport, Question
from .options import PlanOptions


def _command() -> Any:
    from .command import plan

    return plan


def _on_page(models: Sequence[Any], options: Mapping[str, Any], *, is_screen: bool) -> HasReport:
    from .answer import plan

    return plan(*models, **options)


QUESTION = Question(
    "plan",
    example="attncalc plan llama3.1-70b --users 500 --prompt 3K --output-len 500 --gpu "
    "h100,h200,mi300x",
    command=_command,
    on_page=_on_page,
    takes_models=True,
    options=PlanOptions,
)
