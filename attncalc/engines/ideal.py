"""The ideal engine: exactly what a later token can still need, and nothing else.

No pages, no padding: min(T, W) tokens of a window, true lengths in a ragged batch. It is the lower
bound that every real engine is measured against.
"""

from __future__ import annotations

from ..attention import Cached
from ..quantity import quantity, total
from ..units import DType, dtype
from ..workload import Workload

NAME = "ideal"


def layer_bytes(cached: Cached, workload: Workload, kv_dtype: DType) -> int:
    """Bytes that one layer keeps of `cached` for the whole batch."""
    stored = dtype(cached.dtype) if cached.dtype else kv_dtype
    row = cached.rows * stored.row_bytes(cached.width)
    if cached.grows == "never":
        return workload.batch * row
    if cached.grows == "source":
        return workload.batch * (workload.source or 0) * row
    kept = [run.sequences * cached.span.kept(run.context) for run in workload.runs]
    return (kept[0] if len(kept) == 1 else total(kept)) * row


def token_bytes(cached: Cached, workload: Workload, kv_dtype: DType) -> int:
    """Bytes that one more token of one sequence adds to what a layer keeps; 0 once its span is full."""
    now, then = int(workload.context), int(workload.context) + 1
    if cached.grows != "context" or cached.span.kept(then) == cached.span.kept(now):
        return quantity(0)
    return cached.rows * kv_dtype.row_bytes(cached.width)
