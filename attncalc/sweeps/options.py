"""The options of `attncalc sweep`: those of other commands, most of which take lists."""

from ..api.fit_options import DeploymentOptions, EngineOptions, TrafficOptions
from ..api.options import CacheDtypeOptions, PassOptions, SizeOptions, WhatIfOptions


class SweepOptions(
    WhatIfOptions,
    SizeOptions,
    PassOptions,
    TrafficOptions,
    CacheDtypeOptions,
    DeploymentOptions,
    EngineOptions,
    total=False,
):
    """The options of `attncalc sweep` besides the models."""
