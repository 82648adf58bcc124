"""The cache of Hugging Face transformers 5: one token less of a window than a query can see.

`DynamicSlidingWindowLayer` (cache_utils.py) keeps the last W - 1 tokens, since the next token makes
the W-th; a chunk is kept like a window. Everything else is the ideal: no pages, no padding; true
lengths of a ragged batch are padded to the longest.
"""

from __future__ import annotations

from ..attention import FULL, CacheSpec
from ..quantity import minimum, quantity
from ..units import DType
from ..workload import Workload
from . import ideal

NAME = "transformers"


def layer_bytes(cached: CacheSpec, workload: Workload, kv_dtype: DType) -> int:
    """Bytes that one layer keeps of `cached` for the whole batch."""
    cached = stored(cached)
    if cached.scales_with != "context" or cached.span.reach is None:
        return ideal.layer_bytes(cached, workload, kv_dtype)
    one = ideal.token_bytes(cached._replace(span=FULL), workload, kv_dtype)
    return workload.batch * minimum(workload.context, cached.span.reach - 1) * one


def token_bytes(cached: CacheSpec, workload: Workload, kv_dtype: DType) -> int:
    """Bytes that one more token of one sequence adds to what a layer keeps."""
    cached = stored(cached)
    if cached.scales_with == "context" and cached.span.reach is not None and workload.context >= cached.span.reach - 1:
        return quantity(0)
    return ideal.token_bytes(cached._replace(span=FULL), workload, kv_dtype)


def stored(cached: CacheSpec) -> CacheSpec:
    """What the class itself stores: Falcon's repeats K and V for every query head."""
    return cached._replace(rows=cached.rows * cached.repeated, repeated=1) if cached.repeated != 1 else cached
