"""The ideal engine: the tokens that each layer can still attend to, and nothing else.

It has no pages and no padding: min(T, W) tokens of a sliding window or a chunk, true lengths in a
ragged batch, and of a convolution of width 4 the 3 tokens that the next one needs.
It is a lower bound for real engines (except that transformers stores one token less of a window).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from ..attention import CacheSpec
from ..quantity import ceil_div, quantity, total
from ..units import DS_MLA, DType, dtype
from ..workload import Workload
from .engine import PerLayerEngine
from .pipeline import LayerCacheSpec, cut_into_stages, merge_equal

if TYPE_CHECKING:
    from .base import EngineArgs
    from .unpaged import UnpagedLayout


class Ideal(PerLayerEngine["EngineArgs"]):
    name = title = "ideal"
    splits = frozenset({"pp"})
    stores_formats = True

    @cached_property
    def args(self) -> type[EngineArgs]:
        # imported here because `attncalc kv` needs only layer_bytes and should start fast
        from .base import EngineArgs

        return EngineArgs

    def layer_bytes(self, cached: CacheSpec, workload: Workload, kv_dtype: DType) -> int:
        if cached.spare:
            cached = cached._replace(width=cached.width - cached.spare, spare=0)
        of_rows = row_bytes(cached, kv_dtype)
        if cached.per == "sequence":
            return workload.batch * of_rows
        if cached.per == "source token":
            return workload.batch * (workload.source or 0) * of_rows
        tokens = [run.sequences * cached.span.cached_tokens(run.context) for run in workload.runs]
        return (tokens[0] if len(tokens) == 1 else total(tokens)) * of_rows

    def token_bytes(self, cached: CacheSpec, workload: Workload, kv_dtype: DType) -> int:
        """Return the bytes that the next token of one sequence adds to one layer: 0 once its window
        is full.

        A token of a pool adds its share of the pool's row.
        """
        span = cached.span
        context = workload.context
        is_full = span.reach is not None and span.cached_tokens(context + 1) <= span.cached_tokens(
            context
        )
        if cached.per != "token" or is_full or not span.tokens_per_row:
            return quantity(0)
        of_rows = row_bytes(cached, kv_dtype)
        if int(span.tokens_per_row) > 1:
            return ceil_div(of_rows, span.tokens_per_row)
        return of_rows

    def layout(self, specs: Sequence[LayerCacheSpec], args: EngineArgs) -> UnpagedLayout:
        from .unpaged import UnpagedLayout, check_specs

        check_specs(specs, args)
        stages = tuple(merge_equal(stage) for stage in cut_into_stages(specs, args.pp))
        source = "the tokens that a layer's span can reach"
        return UnpagedLayout(stages, args.kv_dtype, args.source, self.layer_bytes, source)


ENGINE = Ideal()


def row_bytes(cached: CacheSpec, kv_dtype: DType) -> int:
    """Return the bytes of all rows of one token, or of a state."""
    if kv_dtype.name == DS_MLA and cached.per == "token":
        from . import ds_mla  # few models can have it

        return cached.rows * ds_mla.row_bytes(cached)
    if cached.dtype:
        return cached.rows * dtype(cached.dtype).row_bytes(cached.width, "state_bytes")
    return cached.rows * kv_dtype.row_bytes(cached.width)
