"""`schema`: JSON Schemas of what commands print, and of the files that users write."""

from typing import Any

from ..question import Question


def _command() -> Any:
    from .command import schema

    return schema


QUESTION = Question("schema", example="attncalc schema kv -o kv.schema.json", command=_command)
