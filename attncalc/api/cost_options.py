"""The options of the calls in costs.py and comparison.py, which are those of their commands."""

# Without `from __future__ import annotations`, a TypedDict has its types as objects, and not as strings.

from collections.abc import Sequence
from typing import Annotated

from ..options import Count, Option, options_of
from .models import ComparedModelOptions, ShardedModelOptions
from .workloads import CacheDtypeOptions, DtypeOptions, PaddedSizeOptions, PassOptions, SizeOptions


class KVCacheOptions(ShardedModelOptions, PaddedSizeOptions, CacheDtypeOptions, total=False):
    """The options of `attncalc kv`."""

    engine: Annotated[
        str,
        Option(
            "--engine",
            metavar="ENGINE",
            help="How the cache is stored: ideal (a lower bound) or transformers. Default: ideal.",
        ),
    ]


class FlopsOptions(ShardedModelOptions, PaddedSizeOptions, PassOptions, total=False):
    """The options of `attncalc flops`."""


class ActivationsOptions(ShardedModelOptions, PaddedSizeOptions, PassOptions, DtypeOptions, total=False):
    """The options of `attncalc memory`."""


class IntensityOptions(ShardedModelOptions, SizeOptions, CacheDtypeOptions, total=False):
    """The options of a decode step, as those of `attncalc compare`."""


class CompareOptions(ComparedModelOptions, CacheDtypeOptions, total=False):
    """The options of `attncalc compare`."""

    attention: Annotated[
        str | Sequence[str] | None,
        Option(
            "--attention",
            metavar="KIND",
            help="For one model: one more row, as mla:512; may be repeated.",
            repeated=True,
            common=True,
        ),
    ]
    batch: Annotated[Count | None, options_of(SizeOptions)["batch"]]
    context: Annotated[
        Count | Sequence[Count] | None,
        Option(
            *("--context", "-c", "--max-model-len"),
            metavar="N,N,...",
            help="Tokens of context, as 32K; several as 4K,32K,128K or 4K:128K:x2. Default: the longest of all models.",
            common=True,
        ),
    ]
    source_context: Annotated[Count | None, options_of(SizeOptions)["source_context"]]
