"""`explain`: a term of the field on one screen."""

from typing import Any

from ..question import Question


def _command() -> Any:
    from .command import explain

    return explain


QUESTION = Question("explain", example="attncalc explain kv-cache", command=_command)
