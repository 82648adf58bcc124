"""The KV cache: what a model's layers keep, in an engine's bytes."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from ..attention import Variant
from ..engines import Engine, engine
from ..engines.pipeline import LayerCacheSpec
from ..model import Layers, ModelSpec, Stack
from ..quantity import Quantity, quantity, total
from ..units import DType
from ..workload import Workload
from .common import Part, cache_dtype, group_name, sum_of


class LayerCache(NamedTuple):
    """What the layers of one group keep, in bytes, in all of them together.

    context, source, state: by what it scales_with with (the tokens, the source, nothing). one_layer: all
    three in one layer. one_token: what one more token of one sequence adds to one layer.
    """

    group: str
    layers: Layers
    context: Quantity
    source: Quantity
    state: Quantity
    one_layer: Quantity
    one_token: Quantity

    @property
    def total(self) -> Quantity:
        """Bytes of the group's whole cache."""
        return total((self.context, self.source, self.state))


class KVCache(NamedTuple):
    """Bytes of the cache on one device.

    per_token: what one more token of one sequence adds at this context. if_mha: the total if every
    query head had its own K and V. recurrent_state and cross_attention_cache are inside the total.
    """

    total: Quantity
    per_sequence: Quantity
    per_token: Quantity
    if_mha: Quantity
    recurrent_state: Quantity
    cross_attention_cache: Quantity
    groups: tuple[LayerCache, ...]


def kv_cache(model: ModelSpec, workload: Workload, *, engine_name: str = "ideal") -> KVCache:
    """The cache of `model` at the workload's context, in bytes on one device.

    AttncalcError: for a dtype or an engine that there is not.
    """
    store = engine(engine_name)
    stored = cache_dtype(model, workload)
    symbols, asked = model.symbolic(), workload.symbolic()
    groups = _groups(symbols, asked, store, stored)
    alone = _groups(symbols, dataclasses.replace(asked, batch=1, lengths=None), store, stored)
    as_mha = _groups(symbols.with_variant(Variant("mha")), asked, store, stored)
    tokens = [Part(g.group, quantity(g.layers.count * g.one_token)) for g in groups]
    return KVCache(
        total=_total(groups),
        per_sequence=_total(alone),
        per_token=sum_of("kv_cache_per_token", "bytes of one more token", tokens),
        if_mha=_total(as_mha),
        recurrent_state=sum_of("state", "bytes of state", [Part(g.group, g.state) for g in groups]),
        cross_attention_cache=sum_of("cross", "bytes kept of the source", [Part(g.group, g.source) for g in groups]),
        groups=groups,
    )


def cache_bytes(model: ModelSpec, workload: Workload, store: Engine) -> Quantity:
    """`KVCache.total` alone, in the bytes of any store."""
    return _total(_groups(model.symbolic(), workload.symbolic(), store, cache_dtype(model, workload)))


def layer_cache_specs(model: ModelSpec) -> tuple[LayerCacheSpec, ...]:
    """What the layers of `model` keep on one device, in their order, as `model` has it: ints or symbols."""
    return tuple(
        LayerCacheSpec(int(layers.count), layers.cache() if stack.has_cache else (), layers.attention.label)
        for stack in model.stacks
        if stack.input == "target"
        for layers in stack.layers
    )


def _groups(model: ModelSpec, workload: Workload, store: Engine, stored: DType) -> tuple[LayerCache, ...]:
    return tuple(
        _layer_cache(group_name(model, stack, layers), stack, layers, workload, store, stored)
        for stack, layers in model.groups()
    )


def _layer_cache(
    group: str, stack: Stack, layers: Layers, workload: Workload, store: Engine, stored: DType
) -> LayerCache:
    kept = layers.cache() if stack.has_cache else ()
    one = {
        scales_with: total(store.layer_bytes(c, workload, stored) for c in kept if c.scales_with == scales_with)
        for scales_with in ("context", "source", "never")
    }
    return LayerCache(
        group,
        layers,
        context=quantity(layers.count * one["context"]),
        source=quantity(layers.count * one["source"]),
        state=quantity(layers.count * one["never"]),
        one_layer=total(one.values()),
        one_token=total(store.token_bytes(c, workload, stored) for c in kept),
    )


def _total(groups: tuple[LayerCache, ...]) -> Quantity:
    parts = []
    for g in groups:
        parts += [
            Part(g.group, g.context),
            Part(f"{g.group}_source", g.source),
            Part(f"{g.group}_state", g.state),
        ]
    return sum_of("kv_cache", "bytes of the cache", parts)
