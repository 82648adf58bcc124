"""The KV cache: what a model's layers cache, in an engine's bytes."""

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from ..attention import CacheSpec, Variant
from ..engines import per_layer_engine
from ..engines.engine import PerLayerEngine
from ..engines.pipeline import LayerCacheSpec
from ..model import Layers, ModelSpec, Stack
from ..quantity import Quantity, quantity, total
from ..records import NamedTuple
from ..units import DType
from ..workload import Workload
from .common import Part, cache_dtype, group_name, sum_over_groups, symbolic


class LayerCache(NamedTuple):
    """The cache of one layer group, in bytes."""

    group: str  # the group's name
    layers: Layers  # the group
    context: Quantity  # bytes that grow with the context, in all layers of the group
    source: Quantity  # bytes that grow with the source, in all layers of the group
    state: Quantity  # bytes of a fixed size, in all layers of the group
    per_layer: Quantity  # bytes of all three, in one layer
    per_token_per_layer: Quantity  # bytes that the next token of one sequence adds to one layer

    @property
    def total(self) -> Quantity:
        """Return the bytes of the group's whole cache."""
        return total((self.context, self.source, self.state))


class KVCache:
    """The cache of a model for a workload, in bytes on one device. Each figure is computed when it
    is first used.
    """

    def __init__(
        self, model: ModelSpec, workload: Workload, engine: PerLayerEngine[Any], kv_dtype: DType
    ) -> None:
        self._model = model
        self._workload = workload
        self._engine = engine
        self._kv_dtype = kv_dtype

    @cached_property
    def groups(self) -> tuple[LayerCache, ...]:
        return self._groups(self._model, self._workload)

    @cached_property
    def total(self) -> Quantity:
        """The whole cache."""
        return _total(self.groups)

    @cached_property
    def per_sequence(self) -> Quantity:
        """The cache of one sequence of the full context."""
        return _total(
            self._groups(self._model, dataclasses.replace(self._workload, batch=1, lengths=None))
        )

    @cached_property
    def per_token(self) -> Quantity:
        """The bytes that the next token of one sequence adds at this context."""
        parts = [
            Part(g.group, quantity(g.layers.count * g.per_token_per_layer)) for g in self.groups
        ]
        return sum_over_groups("kv_cache_per_token", "bytes that the next token adds", parts)

    @cached_property
    def if_mha(self) -> Quantity:
        """The whole cache if every query head had its own K and V."""
        return _total(self._groups(self._model.with_variant(Variant("mha")), self._workload))

    @cached_property
    def recurrent_state(self) -> Quantity:
        """The part of the whole cache that has a fixed size."""
        return sum_over_groups(
            "state", "bytes of recurrent state", [Part(g.group, g.state) for g in self.groups]
        )

    @cached_property
    def cross_attention_cache(self) -> Quantity:
        """The part of the whole cache that holds K and V of the source."""
        return sum_over_groups(
            "cross",
            "bytes of cross-attention's cache",
            [Part(g.group, g.source) for g in self.groups],
        )

    @cached_property
    def without_windows(self) -> int:
        """The bytes of the whole cache if every layer had full attention, without windows and
        chunks.
        """
        size = 0
        for _, layers, specs in self._full_attention:
            for spec in specs:
                per_layer = self._engine.layer_bytes(spec, self._workload, self._kv_dtype)
                size += int(layers.count) * int(per_layer)
        return size

    @cached_property
    def per_token_without_windows(self) -> Quantity:
        """The bytes that the next token of one sequence adds if every layer had full attention.

        A model with windows takes as much per token until the first window is full.
        """
        tokens = []
        for stack, layers, specs in self._full_attention:
            token = total(
                self._engine.token_bytes(spec, self._workload, self._kv_dtype) for spec in specs
            )
            tokens.append(
                Part(group_name(self._model, stack, layers), quantity(layers.count * token))
            )
        return sum_over_groups("kv_cache_per_token_max", "bytes per token, no window full", tokens)

    @property
    def _full_attention(self) -> Iterator[tuple[Stack, Layers, tuple[CacheSpec, ...]]]:
        for stack, layers in self._model.groups():
            yield stack, layers, layers.with_full_attention().cache() if stack.has_cache else ()

    def _groups(self, model: ModelSpec, workload: Workload) -> tuple[LayerCache, ...]:
        return tuple(
            _layer_cache(
                group_name(model, stack, layers),
                stack,
                layers,
                workload,
                self._engine,
                self._kv_dtype,
            )
            for stack, layers in model.groups()
        )


def kv_cache(model: ModelSpec, workload: Workload, *, engine_name: str = "ideal") -> KVCache:
    """Return the cache of `model` at the workload's context, in bytes on one device.

    Raises AttncalcError for an unknown dtype or engine, or a dtype that the engine does not store.
    """
    engine = per_layer_engine(engine_name)
    kv_dtype = cache_dtype(model, workload)
    engine.check_cache_dtype(kv_dtype)
    return KVCache(*symbolic(model, workload), engine, kv_dtype)


def layer_cache_specs(model: ModelSpec) -> tuple[LayerCacheSpec, ...]:
    """Return what the layers of `model` cache on one device, in order, with ints or symbols as
    `model` has them.
    """
    specs = []
    for stack in model.stacks:
        if stack.input != "target":
            continue
        for layers in stack.layers:
            attention = layers.attention
            caches = layers.cache() if stack.has_cache else ()
            has_window = attention.span.reach is not None
            specs.append(LayerCacheSpec(int(layers.count), caches, attention.label, has_window))
    return tuple(specs)


def _layer_cache(
    group: str,
    stack: Stack,
    layers: Layers,
    workload: Workload,
    engine: PerLayerEngine[Any],
    kv_dtype: DType,
) -> LayerCache:
    specs = layers.cache() if stack.has_cache else ()
    size = {}
    for per in ("token", "source token", "sequence"):
        of_kind = [spec for spec in specs if spec.per == per]
        size[per] = total(engine.layer_bytes(spec, workload, kv_dtype) for spec in of_kind)
    return LayerCache(
        group,
        layers,
        context=quantity(layers.count * size["token"]),
        source=quantity(layers.count * size["source token"]),
        state=quantity(layers.count * size["sequence"]),
        per_layer=total(size.values()),
        per_token_per_layer=total(engine.token_bytes(c, workload, kv_dtype) for c in specs),
    )


def _total(groups: tuple[LayerCache, ...]) -> Quantity:
    parts = []
    for g in groups:
        parts += [
            Part(g.group, g.context),
            Part(f"{g.group}_source", g.source),
            Part(f"{g.group}_state", g.state),
        ]
    return sum_over_groups("kv_cache", "bytes of the cache", parts)
