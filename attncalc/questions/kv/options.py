"""The options of `kv`, and what they ask."""

from collections.abc import Mapping
from typing import Annotated, Any

from ...engines.options import SplitCacheOptions
from ...model import ModelSpec
from ...options import With
from ...workload import Workload
from ..inputs import read_workload
from ..options import CacheDtypeOptions, PaddedSizeOptions, ShardedModelOptions


class KVCacheOptions(
    ShardedModelOptions, PaddedSizeOptions, CacheDtypeOptions, SplitCacheOptions, total=False
):
    """The options of `attncalc kv`."""

    engine: Annotated[
        str,
        "How the cache is stored: ideal (a lower bound) or transformers. Default: ideal.",
        With(metavar="ENGINE"),
    ]


def read_kv(model: ModelSpec, options: Mapping[str, Any]) -> tuple[ModelSpec, Workload, str]:
    """Return the arguments of `kv_report`."""
    return model, read_workload(model, options), options.get("engine", "ideal")
