"""An engine of one file, as CONTRIBUTING.md tells to add one: pages of 100 tokens, and an option of
its own.
"""

from collections.abc import Sequence

from attncalc.engines.base import CacheLayout, EngineArgs
from attncalc.engines.engine import Engine
from attncalc.engines.ideal import ENGINE as IDEAL
from attncalc.engines.options import VersionOptions
from attncalc.engines.pipeline import LayerCacheSpec


class Toy(Engine[EngineArgs]):
    """The ideal layout, in half of the GPU's memory."""

    name = "toy"
    title = "Toy"
    args = EngineArgs
    options = (VersionOptions,)

    def share(self, args: EngineArgs, devices: int) -> str:
        return "0.5"

    def layout(self, specs: Sequence[LayerCacheSpec], args: EngineArgs) -> CacheLayout:
        return IDEAL.layout(specs, args)


ENGINE = Toy()
