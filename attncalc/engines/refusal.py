"""Why an engine does not start, whatever the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..model import ModelSpec
    from .base import EngineArgs


class Refusal(NamedTuple):
    """Why an engine does not start, whatever the memory.

    Attributes:
        reason: what it refuses, as a sentence without its period.
        tip: what to do instead, as sentences.
    """

    reason: str
    tip: str


def no_refusal(model: ModelSpec, args: EngineArgs) -> Refusal | None:
    """Return None: nothing that the engine refuses is known."""
    return None
