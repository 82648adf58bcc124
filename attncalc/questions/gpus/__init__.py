"""`gpus`: the known GPUs."""

from typing import Any

from ..question import Question


def _command() -> Any:
    from .command import gpus

    return gpus


QUESTION = Question("gpus", example="attncalc gpus h100-80gb", command=_command)
