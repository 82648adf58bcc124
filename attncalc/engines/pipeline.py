"""What a model's layers cache, in order; layers cut into pipeline stages; bytes summed over
layers.
"""

import dataclasses
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby, pairwise
from typing import TypeVar

from ..attention import CacheSpec
from ..errors import AttncalcError
from ..model import ModelSpec, plural
from ..quantity import symbol_like
from ..records import NamedTuple
from ..search import grouped

Layer = TypeVar("Layer")
# The error, with its tip, of an engine's layout for a model without layers that cache.
NO_CACHE = (
    "this model has no cache",
    "it is an encoder: --engine vllm and --engine llamacpp have its memory, 'attncalc memory' its "
    "activations",
)


class LayerCacheSpec(NamedTuple):
    """What several consecutive layers cache, which all cache the same."""

    layers: int  # how many layers
    cached: tuple[CacheSpec, ...]  # what each of them caches; () for layers without a cache
    # The label of their attention ('GQA', 'GDN'), because engines treat some recurrent states
    # differently
    label: str = ""
    # Whether their attention has a window or chunks, also if they read the keys of earlier layers
    windowed: bool = False


def layer_by_layer(specs: Sequence[LayerCacheSpec]) -> list[LayerCacheSpec]:
    """Return one entry per layer: 3 equal layers become 3 entries."""
    return [layer for spec in specs for layer in [spec._replace(layers=1)] * spec.layers]


def cut(layers: Sequence[Layer], sizes: Sequence[int]) -> list[Sequence[Layer]]:
    """Return `layers` cut into consecutive parts of those sizes, for pipeline stages or GPUs."""
    return [layers[start:end] for start, end in pairwise(accumulate(sizes, initial=0))]


def cut_into_stages(
    specs: Sequence[LayerCacheSpec],
    pp: int,
    sizes: Callable[[int, int], Sequence[int]] | None = None,
) -> list[list[LayerCacheSpec]]:
    """Return the layers of each of `pp` pipeline stages, in order.

    `sizes` returns the layers of each stage for (layers, pp); `stage_sizes` by default. Raises
    AttncalcError if there are fewer layers than stages.
    """
    layers = layer_by_layer(specs)
    stages = cut(layers, (sizes or stage_sizes)(len(layers), pp))
    return [
        [spec._replace(layers=len(list(equal))) for spec, equal in groupby(stage)]
        for stage in stages
    ]


def check_stages(layers: int, pp: int) -> None:
    """Raise AttncalcError if there are fewer layers than pipeline stages."""
    if pp > layers:
        raise AttncalcError(
            f"--pp {pp} is more than the number of layers ({layers})", f"use at most --pp {layers}"
        )


def stage_sizes(layers: int, pp: int) -> list[int]:
    """Return how many of `layers` each of `pp` pipeline stages has.

    If the layers do not divide evenly, the stages before the last get one more each, from the back,
    and the first stage gets one last: 10 layers in 4 stages are 2, 3, 3, 2.

    Source: vLLM's get_pp_indices (vllm/distributed/utils.py). Raises AttncalcError if there are
    fewer layers than stages.
    """
    check_stages(layers, pp)
    sizes = [layers // pp] * pp
    for i in range(2, layers % pp + 2):
        sizes[-i] += 1
    return sizes


def merge_equal(specs: Sequence[LayerCacheSpec]) -> tuple[LayerCacheSpec, ...]:
    """Return one entry per distinct cache, with the number of its layers, in order of appearance.

    Layers that cache nothing are left out.
    """
    counts = grouped((spec.cached, spec.layers) for spec in specs if spec.cached).items()
    return tuple(LayerCacheSpec(sum(layers), cached) for cached, layers in counts)


def sum_over_layers(
    specs: Sequence[LayerCacheSpec],
    bytes_per_layer: Callable[[LayerCacheSpec], int],
    name: str,
    meaning: str,
) -> int:
    """Return the sum of layers times `bytes_per_layer` over all entries.

    Two entries may use one symbol for different numbers (d_head 128 and 256). A formula with
    several entries therefore shows each product under a name of its own: `name`_1 + `name`_2.
    """
    products = []
    for spec in specs:
        layer_bytes = bytes_per_layer(spec)
        product = symbol_like(layer_bytes, "L", spec.layers, "layers") * layer_bytes
        if product:
            products.append((spec, product))
    total_bytes = sum(product for _, product in products)
    if len(products) < 2:
        return total_bytes
    named = [
        (f"{name}_{i}", product, f"{meaning}, {plural(spec.layers, 'layer')} with {describe(spec)}")
        for i, (spec, product) in enumerate(products, start=1)
    ]
    return sum(symbol_like(total_bytes, *each) for each in named)


def describe(spec: LayerCacheSpec) -> str:
    """Return what one layer caches, for people: 'K and V (window 1,024)'."""
    spans = (
        f" ({c.span.label})" if c.per == "token" and c.span.reach is not None else ""
        for c in spec.cached
    )
    return " and ".join(f"{c.name}{span}" for c, span in zip(spec.cached, spans, strict=True))


def split_into_stages(
    model: ModelSpec, pp: int, sizes: Callable[[int, int], Sequence[int]] = stage_sizes
) -> list[ModelSpec]:
    """Return the model that each of `pp` pipeline stages has.

    The embedding is on the first stage, the head on the last; a head that is tied to the embedding
    is a copy there. `model` is one tensor-parallel device's share; `sizes` returns the layers of
    each stage for (layers, pp).

    Raises AttncalcError if there are fewer layers than stages, or the model has an encoder.
    """
    if pp == 1:
        return [model]
    if model.encoder:
        raise AttncalcError(
            f"--pp {pp}: an encoder-decoder cannot be split into pipeline stages",
            "leave --pp out; --tp splits it",
        )
    layers = tuple(sizes(model.main.n_layers, pp))
    return model.kept(("stages", layers), lambda: parts_of(model, layers))


def parts_of(
    model: ModelSpec, sizes: Sequence[int], *, output: int | None = None, numbered: bool = False
) -> list[ModelSpec]:
    """Return the model cut into consecutive parts of those sizes. The first has the embedding and
    other tables.

    Args:
        model: One tensor-parallel device's share.
        output: The index of the part that has the final norm and the head; None for the last.
        numbered: Whether the order and the numbers of the layers must stay known, as with a
            quantization that leaves out single layers.
    """
    numbered = numbered or model.quantization is not None
    output = len(sizes) - 1 if output is None else output
    single = [
        layer
        for run in model.main.layers
        for layer in [dataclasses.replace(run, count=1)] * run.count
    ]
    parts = []
    start = model.first_layer
    for i, layers in enumerate(cut(single, sizes)):
        stack = dataclasses.replace(model.main, layers=tuple(layers))
        stack = dataclasses.replace(
            stack,
            layers=stack.layers if numbered else stack.distinct(),
            final_norm=i == output and stack.final_norm,
            learned_positions=None if i else stack.learned_positions,
            embedding_norm=not i and stack.embedding_norm,
        )
        # the first layer has the relative positions of all, as in T5
        if not layers or start > model.first_layer:
            stack = dataclasses.replace(stack, relative_position_buckets=None)
        head = model.head if i == output else None
        # `vocab_size` counts its matrix, so the head must not do so again
        if head and head.kind == "lm" and i:
            head = head._replace(tied=True)
        part = dataclasses.replace(
            model,
            stacks=(stack,),
            head=head,
            vocab_size=model.vocab_size if not i or (head and head.kind == "lm") else None,
            token_types=None if i else model.token_types,
            extra=() if i else model.extra,
            stored=None,
            first_layer=start if numbered else 0,
        )
        parts.append(part)
        start += len(layers)
    return parts
