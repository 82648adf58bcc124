"""The options of `flops`, and what they ask."""

from collections.abc import Mapping
from typing import Any

from ...model import ModelSpec
from ...workload import Workload
from ..inputs import read_workload
from ..options import PaddedSizeOptions, PassOptions, ShardedModelOptions, TrainingOptions


class FlopsOptions(
    ShardedModelOptions, PaddedSizeOptions, PassOptions, TrainingOptions, total=False
):
    """The options of `attncalc flops`."""


def usual_phase(options: Mapping[str, Any]) -> str:
    """Return the phase by default: only a training step recomputes."""
    if options.get("recompute", "none") != "none":
        return "train"
    return "prefill"


def read_flops(model: ModelSpec, options: Mapping[str, Any]) -> tuple[ModelSpec, Workload]:
    """Return the arguments of `flops_report`."""
    return model, read_workload(model, {"phase": usual_phase(options), **options})
