"""`verify`: real torch layers on a device, measured and compared with the formulas."""

from typing import Any

from ..question import Question
from .catalogue import CATALOGUE, QUICK
from .options import RunOptions


def _command() -> Any:
    from .command import verify

    return verify


QUESTION = Question(
    "verify",
    example="attncalc verify --preset llama2-70b",
    command=_command,
    options=RunOptions,
    epilog=f"Without a model: {len(CATALOGUE)} presets, one line each; on a CPU {len(QUICK)}, and "
    "with --minutes all. For example: {example}",
)
