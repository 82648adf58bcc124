"""The options of transformers' caches, and their arguments."""

from typing import Annotated, TypedDict

from ...options import COUNT, Count, With
from ...records import dataclass
from ..base import EngineArgs


class TransformersOptions(TypedDict, total=False):
    """Arguments of transformers alone."""

    cache_implementation: Annotated[
        str | None, "dynamic, static or quantized.", With(metavar="NAME")
    ]
    residual_length: Annotated[
        Count | None, COUNT, "Newest tokens that a quantized cache keeps in the model's dtype."
    ]


@dataclass(frozen=True, eq=False, repr=False)
class TransformersArgs(EngineArgs):
    """The arguments of transformers: those of its options have their names."""

    # Fields of TransformersOptions, written by tests/test_engine_fields.py.
    cache_implementation: str | None = None
    residual_length: int | None = None
