"""What fits of the ideal engine's bytes: the least, which every real engine needs."""

from __future__ import annotations

from collections.abc import Sequence

from ..base import EngineArgs
from ..defaults import EngineDefaults, Limits
from ..ideal import NAME, layer_bytes
from ..pipeline import LayerCacheSpec, gathered, stages
from . import Unpaged, check

DEFAULTS = EngineDefaults("ideal", lambda args: Limits(1, 1), keeps_back="nothing")


def layout(kept: Sequence[LayerCacheSpec], args: EngineArgs) -> Unpaged:
    """The least that those layers keep. AttncalcError: a setting of another engine, or they keep nothing."""
    args.only(NAME, frozenset({"pp"}))
    check(kept, args)
    runs = tuple(gathered(stage) for stage in stages(kept, args.pp))
    return Unpaged(runs, args.kv_dtype, args.source, layer_bytes, "the tokens that a layer's span can reach")
