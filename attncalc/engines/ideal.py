"""The ideal engine: the tokens that a layer's span can reach, and nothing else.

No pages, no padding: min(T, W) tokens of a window or a chunk, true lengths in a ragged batch. Every
real engine keeps at least about this much (transformers' own cache one token less of a window).
"""

from __future__ import annotations

from ..attention import CacheSpec
from ..quantity import quantity, total
from ..units import DType, dtype
from ..workload import Workload

NAME = "ideal"


def layer_bytes(cached: CacheSpec, workload: Workload, kv_dtype: DType) -> int:
    """Bytes that one layer keeps of `cached` for the whole batch."""
    row = _token(cached, kv_dtype)
    if cached.scales_with == "never":
        return workload.batch * row
    if cached.scales_with == "source":
        return workload.batch * (workload.source or 0) * row
    kept = [run.sequences * cached.span.cached_tokens(run.context) for run in workload.runs]
    return (kept[0] if len(kept) == 1 else total(kept)) * row


def token_bytes(cached: CacheSpec, workload: Workload, kv_dtype: DType) -> int:
    """Bytes that one more token of one sequence adds to what a layer keeps; 0 once its span is full."""
    now, then = int(workload.context), int(workload.context) + 1
    if cached.scales_with != "context" or cached.span.cached_tokens(then) <= cached.span.cached_tokens(now):
        return quantity(0)
    return _token(cached, kv_dtype)


def _token(cached: CacheSpec, kv_dtype: DType) -> int:
    """Bytes of one token's rows, or of a state."""
    if cached.dtype:
        return cached.rows * dtype(cached.dtype).row_bytes(cached.width, "state_bytes")
    return cached.rows * kv_dtype.row_bytes(cached.width)
