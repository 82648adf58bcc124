"""`fit`: how much GPU memory a model needs, and what fits on which GPUs."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..question import HasReport, Question
from .options import FitOptions


def _command() -> Any:
    from .command import fit

    return fit


def _on_page(models: Sequence[Any], options: Mapping[str, Any], *, is_screen: bool) -> HasReport:
    from .page import fit

    return fit(*models, is_screen=is_screen, **options)


QUESTION = Question(
    "fit",
    example="attncalc fit llama2-70b --gpu h100 --gpus 4",
    command=_command,
    on_page=_on_page,
    lists_models=True,
    options=FitOptions,
    epilog="Without --gpu: how much memory it needs. --context auto is the longest that fits. For "
    "example: {example}, or with a command that starts a server: attncalc fit --gpu h100 -- vllm "
    "serve MODEL",
)
