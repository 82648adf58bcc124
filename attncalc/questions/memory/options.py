"""The options of `memory`, and what they ask."""

from collections.abc import Mapping
from typing import Any

from ...model import ModelSpec
from ...workload import Workload
from ..inputs import read_workload
from ..options import DtypeOptions, PaddedSizeOptions, PassOptions, ShardedModelOptions


class ActivationsOptions(
    ShardedModelOptions, PaddedSizeOptions, PassOptions, DtypeOptions, total=False
):
    """The options of `attncalc memory`."""


def read_memory(model: ModelSpec, options: Mapping[str, Any]) -> tuple[ModelSpec, Workload]:
    """Return the arguments of `memory_report`."""
    return model, read_workload(model, {"phase": "prefill", **options})
