"""What a decode step reads, and how many FLOPs it does for each byte it reads."""

from __future__ import annotations

from typing import NamedTuple

from ..mlp import Mlp
from ..model import Layers, ModelSpec, Stack
from ..quantity import Quantity, Ratio, minimum, named, quantity, ratio, symbol
from ..workload import Workload
from .cache import kv_cache
from .common import Part, compute_dtype, group_name, sum_named, sum_of
from .flops import flops


class Intensity(NamedTuple):
    """One decode step: bytes of weights and of cache that it reads once, and FLOP per byte.

    per_byte: all FLOPs over all bytes. per_cache_byte: the scores' FLOPs over the cache's bytes, what
    grouping heads changes whatever the batch.
    """

    weights: Quantity
    cache: Quantity
    per_byte: Ratio
    per_cache_byte: Ratio


def decode_intensity(model: ModelSpec, workload: Workload) -> Intensity:
    """The arithmetic intensity of the decode step `workload`.

    Of a mixture of experts it reads at most min(n_experts, B * n_experts_per_token) experts a layer;
    that bound is taken. Embedding rows looked up are not counted.
    """
    spent, cache = flops(model, workload), kv_cache(model, workload).total
    in_dtype = compute_dtype(model, workload)
    width = symbol("bytes", in_dtype.bits // 8, f"bytes of a weight in {in_dtype.name}")
    weights = quantity(named(weights_read(model, workload), "params_read", "parameters read in a step") * width)
    read = sum_named({"weights": (weights, "bytes of weights read"), "kv_cache": (cache, "bytes of cache read")})
    return Intensity(
        weights=weights,
        cache=cache,
        per_byte=ratio(named(spent.total, "flops_total", "FLOP of the step"), read),
        per_cache_byte=ratio(
            named(spent.scores, "flops_attention_scores", "FLOP of the scores"),
            named(cache, "kv_cache", "bytes of cache read"),
        ),
    )


def weights_read(model: ModelSpec, workload: Workload) -> Quantity:
    """Parameters that one decode step of the whole batch reads, on one device."""
    symbols, asked = model.symbolic(), workload.symbolic()
    stack = symbols.main
    parts = [
        Part(group_name(symbols, stack, layers), quantity(layers.count * _layer(symbols, stack, layers, asked)))
        for layers in stack.distinct()
    ]
    outside = int(stack.final_norm) + int(stack.embedding_norm)
    if outside:
        parts.append(Part("norms", quantity(outside * stack.norm_vectors * stack.d_model)))
    around = sum(m.params for m in symbols.extra if m.applied_to)
    if around:
        parts.append(Part("outside", quantity(around)))
    if symbols.head and symbols.vocab_size and symbols.head.kind == "lm":
        bias = symbols.vocab_size if symbols.head.bias else 0
        parts.append(Part("head", quantity(symbols.table_width * symbols.vocab_size + bias)))
    return sum_of("params_read", "parameters read", parts)


def experts_read(mlp: Mlp, tokens: int) -> int:
    """Experts of a layer that so many tokens read at the most; 1 where it is dense."""
    return routed_read(mlp, tokens) + (mlp.n_shared_experts or 0) if mlp.n_experts else 1


def routed_read(mlp: Mlp, tokens: int) -> int:
    """Of them those that a router picks; 0 where it is dense."""
    if not mlp.n_experts or not mlp.n_experts_per_token:
        return 0
    return minimum(mlp.n_experts, tokens * mlp.n_experts_per_token)


def _layer(model: ModelSpec, stack: Stack, layers: Layers, workload: Workload) -> int:
    read = sum(m.params for m in layers.attention.matrices(stack.d_model, stack.d_model))
    if layers.cross:  # keys and values of the source are in the cache already
        cross = layers.cross.matrices(stack.d_model, model.d_source)
        read += sum(m.params for m in cross if m.applied_to != "keys")
    if layers.mlp:
        touched = experts_read(layers.mlp, workload.batch)
        read += sum(m.params for m in (*layers.mlp.router(stack.d_model), *layers.mlp.shared(stack.d_model)))
        read += touched * sum(m.params for m in layers.mlp.expert(stack.d_model))
    read += sum(m.params for m in layers.extra)
    return read + layers.norms * stack.norm_vectors * stack.d_model
