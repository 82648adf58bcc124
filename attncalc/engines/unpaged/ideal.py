"""What fits of the ideal engine's bytes: the least, which every real engine needs."""

from __future__ import annotations

from collections.abc import Sequence

from ..ideal import NAME, layer_bytes
from ..kept import Kept, gathered, stages
from ..layouts import Settings
from ..serving import Habits, Limits
from . import Unpaged, check

HABITS = Habits("ideal", lambda settings: Limits(1, 1), keeps_back="nothing")


def layout(kept: Sequence[Kept], settings: Settings) -> Unpaged:
    """The least that those layers keep. AttncalcError: a setting of another engine, or they keep nothing."""
    settings.only(NAME, frozenset({"pp"}))
    check(kept, settings)
    runs = tuple(gathered(stage) for stage in stages(kept, settings.pp))
    return Unpaged(runs, settings.kv_dtype, settings.source, layer_bytes, "the tokens that a layer's span can reach")
