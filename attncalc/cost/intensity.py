"""What a decode step reads, and how many FLOPs it does for each byte it reads."""

from ..errors import AttncalcError
from ..model import Layers, ModelSpec, Stack
from ..quantity import Quantity, Ratio, named, quantity, ratio, symbol
from ..records import NamedTuple
from ..workload import Workload
from .cache import kv_cache
from .common import Part, compute_dtype, group_name, sum_named, sum_over_groups
from .experts import Routing, experts_read
from .flops import flops
from .params import lm_head, outer_norms


class Intensity(NamedTuple):
    """The arithmetic intensity of one decode step, which reads weights and cache once."""

    weights: Quantity  # bytes of weights
    cache: Quantity  # bytes of cache
    per_byte: Ratio  # all FLOPs per byte of weights and cache
    # The scores' FLOPs per byte of cache. It does not depend on the batch; query heads that share a
    # KV head raise it
    per_cache_byte: Ratio


def decode_intensity(model: ModelSpec, workload: Workload) -> Intensity:
    """Return the arithmetic intensity of the decode step `workload`.

    Of a mixture the expected number of experts is read. Embedding rows that are looked up are not
    counted.

    Raises AttncalcError if `workload` is not a decode step.
    """
    if workload.phase != "decode":
        raise AttncalcError(
            f"a {workload.phase} is not a decode step", "give Workload.decode(batch, context)"
        )
    step_flops = flops(model, workload)
    cache = kv_cache(model, workload).total
    weight_dtype = compute_dtype(model, workload)
    width = symbol("bytes", weight_dtype.bits // 8, f"bytes of a weight in {weight_dtype.name}")
    weights = quantity(
        named(weights_read(model, workload, "expected"), "params_read", "parameters read in a step")
        * width
    )
    bytes_read = sum_named(
        {"weights": (weights, "bytes of weights read"), "kv_cache": (cache, "bytes of cache read")}
    )
    return Intensity(
        weights=weights,
        cache=cache,
        per_byte=ratio(named(step_flops.total, "flops_total", "FLOP of the step"), bytes_read),
        per_cache_byte=ratio(
            named(step_flops.scores, "flops_attention_scores", "FLOP of the scores"),
            named(cache, "kv_cache", "bytes of cache read"),
        ),
    )


def weights_read(model: ModelSpec, workload: Workload, routing: Routing = "fewest") -> Quantity:
    """Return the number of parameters that one decode step of the whole batch reads, on one
    device.
    """
    symbols = model.symbolic()
    workload = workload.symbolic()
    stack = symbols.main
    parts = [
        Part(
            group_name(symbols, stack, layers),
            quantity(layers.count * _layer_params_read(symbols, stack, layers, workload, routing)),
        )
        for layers in stack.distinct()
    ]
    norms = outer_norms(stack)
    if norms:
        parts.append(Part("norms", quantity(norms)))
    outside = sum(m.params for m in symbols.extra if m.applied_to)
    if outside:
        parts.append(Part("outside", quantity(outside)))
    if symbols.head and symbols.vocab_size and symbols.head.kind == "lm":
        parts.append(Part("head", quantity(lm_head(symbols).params)))
    return sum_over_groups("params_read", "parameters read", parts)


def _layer_params_read(
    model: ModelSpec, stack: Stack, layers: Layers, workload: Workload, routing: Routing
) -> int:
    """Return the parameters of one layer that the step reads."""
    params = sum(m.params for m in layers.attention.matrices(stack.d_model, stack.d_model))
    if layers.cross:  # K and V of the source are in the cache, so W_k and W_v are not read
        cross = layers.cross.matrices(stack.d_model, model.d_source)
        params += sum(m.params for m in cross if m.applied_to != "keys")
    if layers.mlp:
        params += sum(
            m.params for m in (*layers.mlp.router(stack.d_model), *layers.mlp.shared(stack.d_model))
        )
        expert = sum(m.params for m in layers.mlp.expert(stack.d_model))
        params += experts_read(expert, layers.mlp, workload.batch, routing)
    params += sum(m.params for m in layers.extra)
    return params + layers.norms * stack.norm_vectors * stack.d_model
