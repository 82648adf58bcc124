"""Which of two models is cheaper at which contexts: by its cache, and by its decode step."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial

from ..model import ModelSpec
from ..records import NamedTuple
from ..search import first_true
from ..tracing import Compiled
from ..workload import Workload
from .cache import kv_cache
from .flops import flops

# The longest context of a comparison, if no model has a shorter maximum.
LONGEST = 2**20
# Steps of contexts that are tried. Pools of 4 or 128 tokens and chunks of 8,192 fill up within the
# last two.
_STEPS = (1, 128, 8192)
_MAX_PIECES = 2000


class Cheaper(NamedTuple):
    figure: str  # 'kv_cache' or 'flops_decode'
    limit: int  # the longest context that was considered
    # the contexts are multiples of it: 1, or more if a figure rises and falls within so many tokens
    step: int
    # (first context, sign) of each range of contexts: -1 if the first model is cheaper, 1 if the
    # second is, 0 if they are equal
    ranges: tuple[tuple[int, int], ...]


def cheaper(
    models: Sequence[ModelSpec], workloads: Sequence[Workload], limit: int
) -> list[Cheaper]:
    """Return which of two models has the smaller cache and the fewer FLOPs in a decode step, up to
    a context.

    A figure is left out if it rises and falls in steps that do not divide 8,192 tokens. Without a
    cache in both models the list is empty.
    """
    if not all(model.main.has_cache for model in models):
        return []
    sides = [_figures(model, workload) for model, workload in zip(models, workloads, strict=True)]
    found = []
    for i, figure in enumerate(("kv_cache", "flops_decode")):
        difference = lru_cache(maxsize=None)(
            lambda context, i=i: sides[0](context)[i] - sides[1](context)[i]
        )
        for step in _STEPS:
            ranges = _ranges(difference, limit, step)
            if ranges:
                found.append(Cheaper(figure, limit, step, tuple(ranges)))
                break
    return found


def _figures(model: ModelSpec, workload: Workload) -> Callable[[int], tuple[int, ...]]:
    """Return a function from a context to the bytes of the cache and the FLOPs of a decode step."""

    def compute(context: int) -> list[int]:
        step = dataclasses.replace(workload, phase="decode", new=1, context=context)
        return [kv_cache(model, step).total, flops(model, step).total]

    return Compiled(compute, ("T",))


def _ranges(difference: Callable[[int], int], limit: int, step: int) -> list[tuple[int, int]]:
    """Return (first context, sign of the difference) of each range of the multiples of `step` up to
    `limit`.

    Returns an empty list if there are no such multiples, or the difference has too many bends.
    """

    def sign(k: int) -> int:
        value = difference(k * step)
        if value > 0:
            return 1
        return -1 if value < 0 else 0

    def differs(before: int, k: int) -> bool:
        return sign(k) != before

    ranges: list[tuple[int, int]] = []
    for pieces, (low, high) in enumerate(
        _linear_pieces(lambda k: difference(k * step), limit // step)
    ):
        if pieces == _MAX_PIECES:
            return []
        if not ranges:
            ranges.append((low * step, sign(low)))
        start = low
        # a line has one sign, then 0 at most once, then the other
        before = ranges[-1][1]
        while before != sign(high):
            start = first_true(partial(differs, before), start, high)
            before = sign(start)
            ranges.append((start * step, before))
    return ranges


def _linear_pieces(value: Callable[[int], int], limit: int) -> Iterator[tuple[int, int]]:
    """Yield pieces of 1 to `limit` on which `value` is a line, from left to right; two pieces share
    their end.

    A piece is taken for a line if three values between its ends are on the line between these. One
    bend, as of a window that is full, always moves one of them. Sevenths are not all multiples of
    128, so they also see pools that fill up.
    """
    waiting = [(1, limit)] if limit else []
    while waiting:
        low, high = waiting.pop()
        between = {low + (high - low) * i // 7 for i in (2, 3, 5)} - {low}
        left = value(low)
        right = value(high)
        if all((value(k) - left) * (high - low) == (right - left) * (k - low) for k in between):
            yield low, high
        else:
            middle = (low + high) // 2
            waiting += [(middle, high), (low, middle)]
