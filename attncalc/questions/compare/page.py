"""What a page asks: `compare`, where kinds of attention may stand behind a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..arguments import takes
from ..question import HasReport
from .answer import compare as compare_of
from .answer import models_and_kinds
from .options import CompareOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack


@takes(CompareOptions)
def compare(*words: Any, **options: Unpack[CompareOptions]) -> HasReport:
    """Return what `attncalc compare` answers. Raises AttncalcError as the command does."""
    models, kinds = models_and_kinds(words)
    if kinds:
        options = {**options, "attention": [*(options.get("attention") or ()), *kinds]}
    return compare_of(*models, **options)
