"""What a model's layers keep, in its order: what an engine is given, and how it sums over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

from ..attention import CacheSpec
from ..errors import AttncalcError
from ..quantity import Quantity, named, symbol


class LayerCacheSpec(NamedTuple):
    """`layers` equal layers in a row that each keep `cached`; () for layers that keep nothing.

    label: what their attention calls itself ('GQA', 'GDN'), where an engine treats kinds of states apart.
    """

    layers: int
    cached: tuple[CacheSpec, ...]
    label: str = ""


def stages(
    kept: Sequence[LayerCacheSpec], pp: int, sizes: Callable[[int, int], Sequence[int]] | None = None
) -> list[list[LayerCacheSpec]]:
    """The layers of each of `pp` pipeline stages, in order, as `sizes` cuts them: `stage_sizes` unless said.

    AttncalcError: fewer layers than stages.
    """
    layers = [run._replace(layers=1) for run in kept for _ in range(run.layers)]
    ends = list(accumulate((sizes or stage_sizes)(len(layers), pp), initial=0))
    cut = [layers[start:end] for start, end in pairwise(ends)]
    return [[one._replace(layers=len(list(same))) for one, same in groupby(stage)] for stage in cut]


def stage_sizes(layers: int, pp: int) -> list[int]:
    """How many of `layers` each of `pp` pipeline stages has.

    Layers that do not divide go to the stages before the last, from the back, and to the first last of
    all. Source: vLLM's get_pp_indices (vllm/distributed/utils.py). AttncalcError: fewer layers than stages.
    """
    if pp > layers:
        raise AttncalcError(f"--pp {pp}: there are {layers} layers", "give each stage at least one layer")
    sizes = [layers // pp] * pp
    for i in range(2, layers % pp + 2):
        sizes[-i] += 1
    return sizes


def gathered(kept: Sequence[LayerCacheSpec]) -> tuple[LayerCacheSpec, ...]:
    """Equal layers in one run, in the order of their first; layers that keep nothing left out."""
    counts: dict[tuple[CacheSpec, ...], int] = {}
    for run in kept:
        if run.cached:
            counts[run.cached] = counts.get(run.cached, 0) + run.layers
    return tuple(LayerCacheSpec(layers, cached) for cached, layers in counts.items())


def summed(runs: Sequence[LayerCacheSpec], one: Callable[[LayerCacheSpec], int], name: str, meaning: str) -> int:
    """What `one` says of a layer of each run, times the layers, over all runs.

    One run's formula stays as it is; of several, which may use a symbol for different numbers, each sum is
    named: `name`_1, `name`_2. Plain where `one` answers in plain ints.
    """
    found = []
    for run in runs:
        each = one(run)
        shown = isinstance(each, Quantity)
        found.append((run, (symbol("L", run.layers, "layers") if shown else run.layers) * each))
    found = [(run, part) for run, part in found if part]
    if len(found) < 2 or not any(isinstance(part, Quantity) for _, part in found):
        return sum(part for _, part in found)
    return sum(
        named(part, f"{name}_{i}", f"{meaning}, {run.layers} layer{'s'[: run.layers != 1]} that keep {words(run)}")
        for i, (run, part) in enumerate(found, start=1)
    )


def words(run: LayerCacheSpec) -> str:
    """What one of its layers keeps, for people: 'K and V (window 1,024)'."""
    spans = (
        f" ({c.span.label})" if c.scales_with == "context" and c.span.reach is not None else "" for c in run.cached
    )
    return " and ".join(f"{c.name}{span}" for c, span in zip(run.cached, spans, strict=True))
