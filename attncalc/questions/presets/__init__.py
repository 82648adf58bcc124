"""`presets`: the built-in models and the supported model_types."""

from typing import Any

from ..question import Question


def _command() -> Any:
    from .command import presets

    return presets


QUESTION = Question(
    "presets",
    example="attncalc presets qwen 32b",
    command=_command,
    epilog="For example: {example}. 'attncalc presets list --help' shows the options of the list.",
)
