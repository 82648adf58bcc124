"""`compare`: one model's attention as every kind, or several models side by side."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..question import HasReport, Question
from .options import CompareOptions


def _command() -> Any:
    from .command import compare

    return compare


def _on_page(models: Sequence[Any], options: Mapping[str, Any], *, is_screen: bool) -> HasReport:
    from .page import compare

    return compare(*models, **options)


QUESTION = Question(
    "compare",
    example="attncalc compare llama2-70b --attention mla:512",
    command=_command,
    on_page=_on_page,
    takes_models=True,
    options=CompareOptions,
)
