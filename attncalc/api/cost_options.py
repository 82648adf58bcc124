"""The options of the calls in costs.py and comparison.py, which are those of their commands."""

# Without `from __future__ import annotations`, a TypedDict has its types as objects, and not as strings.

from collections.abc import Sequence

from .models import ComparedModelOptions, Count, ShardedModelOptions
from .workloads import CacheDtypeOptions, DtypeOptions, PaddedSizeOptions, PassOptions, SizeOptions


class KVCacheOptions(ShardedModelOptions, PaddedSizeOptions, CacheDtypeOptions, total=False):
    """The options of `attncalc kv`.

    Attributes:
        engine: how the cache is stored: 'ideal' (the default, a lower bound) or 'transformers'.
    """

    engine: str


class FlopsOptions(ShardedModelOptions, PaddedSizeOptions, PassOptions, total=False):
    """The options of `attncalc flops`."""


class ActivationsOptions(ShardedModelOptions, PaddedSizeOptions, PassOptions, DtypeOptions, total=False):
    """The options of `attncalc memory`."""


class IntensityOptions(ShardedModelOptions, SizeOptions, CacheDtypeOptions, total=False):
    """The options of a decode step, as those of `attncalc compare`."""


class CompareOptions(ComparedModelOptions, CacheDtypeOptions, total=False):
    """The options of `attncalc compare`.

    Attributes:
        attention: for one model: one more row, as 'mla:512', or several.
        batch: sequences in the batch; by default 1.
        context: tokens of context: '32K', '4K:128K:x2' or [4096, 8192]; by default the longest of all models.
        source_context: tokens on the encoder's side; by default the encoder's maximum.
    """

    attention: str | Sequence[str] | None
    batch: Count | None
    context: Count | Sequence[Count] | None
    source_context: Count | None
