"""The KV cache without windows and chunks: all its bytes, and the bytes per token."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ..engines import per_layer_engine
from ..engines.engine import PerLayerEngine
from ..model import ModelSpec
from ..quantity import Quantity, quantity, total
from ..units import DType
from ..workload import Workload
from .common import Part, cache_dtype, group_name, sum_over_groups


class WithoutWindows:
    """The cache on one device if every layer with a window or a chunk had full attention.

    Each figure is computed when it is first used.
    """

    def __init__(self, model: ModelSpec, workload: Workload, engine: PerLayerEngine[Any], kv_dtype: DType) -> None:
        self._model = model
        self._workload = workload
        self._engine = engine
        self._kv_dtype = kv_dtype

    @cached_property
    def total(self) -> int:
        """The bytes of the whole cache at the workload's context."""
        return sum(
            int(layers.count)
            * sum(int(self._engine.layer_bytes(spec, self._workload, self._kv_dtype)) for spec in specs)
            for stack, layers in self._model.symbolic().groups()
            for specs in [layers.with_full_attention().cache() if stack.has_cache else ()]
        )

    @cached_property
    def per_token(self) -> Quantity:
        """The bytes that the next token of one sequence adds.

        A model with windows takes as much per token until the first window is full.
        """
        tokens = []
        symbols = self._workload.symbolic()
        for stack, layers in self._model.symbolic().groups():
            specs = layers.with_full_attention().cache() if stack.has_cache else ()
            token = total(self._engine.token_bytes(spec, symbols, self._kv_dtype) for spec in specs)
            tokens.append(Part(group_name(self._model, stack, layers), quantity(layers.count * token)))
        return sum_over_groups("kv_cache_per_token_max", "bytes per token, no window full", tokens)


def without_windows(model: ModelSpec, workload: Workload, *, engine_name: str = "ideal") -> WithoutWindows:
    """Return what the cache of `model` would take without windows and chunks.

    Raises AttncalcError if the dtype or the engine is unknown.
    """
    return WithoutWindows(model, workload, per_layer_engine(engine_name), cache_dtype(model, workload))
