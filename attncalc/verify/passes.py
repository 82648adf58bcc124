"""The ways in which a layer is run: a prefill and a decode step, by each kernel that runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from torch import Tensor

from .caches import Cache
from .masks import EVERY_KEY, Seen
from .plan import Plan
from .subject import RECURRENCE, REFERENCE, Layer, attend_by

NO_KERNEL = attend_by(REFERENCE, EVERY_KEY)
"""For a recurrent layer, which asks for none."""


class Pass(NamedTuple):
    """One way to run a layer, which can be run again and again.

    Without the layer's sinks, which torch's kernels have none of. tokens: new ones; keys: that each of
    them could see, were there no mask.
    """

    phase: str
    kernel: str
    tokens: int
    keys: int
    run: Callable[[], Tensor]


def passes(layer: Layer, plan: Plan) -> Iterator[Pass]:
    """Every pass of the plan over this layer: first the prefills, then the decode steps."""
    tokens = layer.x.shape[1]
    if layer.steps:
        yield Pass("prefill", RECURRENCE, tokens, tokens, partial(layer.prefill, tokens, NO_KERNEL))
        state = layer.kept()
        layer.prefill(1, NO_KERNEL, state)
        yield Pass("decode", RECURRENCE, 1, 1, partial(layer.step, tokens - 1, NO_KERNEL, state))
        return
    for kernel in plan.of(layer.subject, "prefill"):
        keys = tokens if layer.source is None else layer.source.shape[1]
        yield Pass("prefill", kernel, tokens, keys, partial(_prefill, layer, tokens, kernel, layer.seen(tokens)))
    for kernel in plan.of(layer.subject, "decode"):
        cache = layer.full_cache(plan.asked.context)
        seen, keys = layer.seen_by_next(cache), cache.kept if layer.source is not None else cache.held(cache.seen + 1)
        yield Pass("decode", kernel, 1, keys, partial(_step, layer, plan.asked.context - 1, kernel, seen, cache))


def _prefill(layer: Layer, tokens: int, kernel: str, seen: Seen) -> Tensor:
    return layer.prefill(tokens, attend_by(kernel, _fresh(seen), with_sinks=False))


def _step(layer: Layer, at: int, kernel: str, seen: Seen, cache: Cache) -> Tensor:
    """The last token, after which the cache is as before."""
    out = layer.step(at, attend_by(kernel, _fresh(seen), with_sinks=False), cache)
    if layer.source is None:
        cache.rewind(1)
    return out


def _fresh(seen: Seen) -> Seen:
    """The mask made anew, as a caller would make it: it is a part of what is alive."""
    return seen if seen.matrix is None else Seen(matrix=seen.matrix.clone())
