"""The options of `compare`."""

from collections.abc import Sequence
from typing import Annotated

from ...options import Count, With, options_of
from ..options import (
    TP,
    CacheDtypeOptions,
    OtherSizeOptions,
    ReadOptions,
    ShardedModelOptions,
    SizeOptions,
)


class ComparedModelOptions(ReadOptions, total=False):
    """The options of each model of a comparison."""

    tp: Annotated[Count | None, TP]


class CompareOptions(ComparedModelOptions, OtherSizeOptions, CacheDtypeOptions, total=False):
    attention: Annotated[
        str | Sequence[str] | None,
        "For one model: one more row, as mla:512; may be repeated.",
        With(metavar="KIND", common=True, repeated=True),
    ]
    same_params: Annotated[
        bool, "For one model: each row with the d_ff that keeps the number of parameters."
    ]
    batch: Annotated[Count | None, options_of(SizeOptions)["batch"]]
    context: Annotated[
        Count | Sequence[Count] | None,
        options_of(SizeOptions)["context"].but(
            metavar="N,N,...",
            parse=None,
            help="Tokens of context, as 32K; several as 4K,32K,128K or 4K:128K:x2. Default: the "
            "longest of all models.",
        ),
    ]
    source_context: Annotated[Count | None, options_of(SizeOptions)["source_context"]]


class IntensityOptions(ShardedModelOptions, SizeOptions, CacheDtypeOptions, total=False):
    """The options of a decode step, as those of `attncalc compare`."""
