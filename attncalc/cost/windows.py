"""The KV cache without windows and chunks: all its bytes, and the bytes per token."""

from __future__ import annotations

from typing import NamedTuple

from ..engines import per_layer_engine
from ..model import ModelSpec
from ..quantity import Quantity, quantity, total
from ..workload import Workload
from .common import Part, cache_dtype, group_name, sum_over_groups


class WithoutWindows(NamedTuple):
    """Bytes of the cache on one device if every layer with a window or a chunk had full attention.

    Attributes:
        total: the whole cache at the workload's context.
        per_token: what the next token of one sequence adds. A model with windows takes as much per token until the
            first window is full.
    """

    total: int
    per_token: Quantity


def without_windows(model: ModelSpec, workload: Workload, *, engine_name: str = "ideal") -> WithoutWindows:
    """Return what the cache of `model` would take without windows and chunks.

    Raises AttncalcError if the dtype or the engine is unknown.
    """
    engine, kv_dtype = per_layer_engine(engine_name), cache_dtype(model, workload)
    total_bytes = 0
    tokens = []
    symbols = workload.symbolic()
    for stack, layers in model.symbolic().groups():
        specs = layers.with_full_attention().cache() if stack.has_cache else ()
        token = total(engine.token_bytes(spec, symbols, kv_dtype) for spec in specs)
        tokens.append(Part(group_name(model, stack, layers), quantity(layers.count * token)))
        total_bytes += int(layers.count) * sum(int(engine.layer_bytes(spec, workload, kv_dtype)) for spec in specs)
    return WithoutWindows(
        total_bytes, sum_over_groups("kv_cache_per_token_max", "bytes per token, no window full", tokens)
    )
