"""The ways to run a layer: a prefill and a decode step with each kernel."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

from torch import Tensor

from ..records import NamedTuple
from .kernels import REFERENCE
from .layers.cache import Cache
from .masks import NO_MASK, KernelMask
from .plan import RECURRENCE, Plan
from .real_layer import RealLayer, attend_with

# The kernel argument for a recurrent layer, which calls no kernel.
UNUSED_KERNEL = attend_with(REFERENCE, NO_MASK)

Phase = Literal["prefill", "decode"]


class Pass(NamedTuple):
    """One way to run a layer, which can be repeated. Sinks are left out: torch's kernels do not
    support them.
    """

    phase: Phase  # 'prefill' or 'decode'
    kernel: str  # the backend of torch's attention, or RECURRENCE
    tokens: int  # new tokens
    keys: int  # keys per query, masked ones included
    run: Callable[[], Tensor]  # runs the layer once and returns its output


def passes(layer: RealLayer, plan: Plan) -> Iterator[Pass]:
    """Yield every pass of the plan over this layer: first the prefills, then the decode steps."""
    tokens = layer.x.shape[1]
    if layer.is_recurrent:
        yield Pass(
            "prefill", RECURRENCE, tokens, tokens, partial(layer.prefill, tokens, UNUSED_KERNEL)
        )
        state = layer.new_state()
        layer.prefill(1, UNUSED_KERNEL, state)
        yield Pass(
            "decode", RECURRENCE, 1, 1, partial(layer.step, tokens - 1, UNUSED_KERNEL, state)
        )
        return
    for kernel in plan.kernels_of(layer.case, "prefill"):
        keys = tokens if layer.source is None else layer.source.shape[1]
        mask = layer.prefill_mask(tokens)
        yield Pass("prefill", kernel, tokens, keys, partial(_prefill, layer, tokens, kernel, mask))
    for kernel in plan.kernels_of(layer.case, "decode"):
        cache = layer.full_cache(plan.request.context)
        if layer.source is not None:
            keys = cache.length
        else:
            keys = cache.length_after(cache.tokens_seen + 1)
        mask = layer.decode_mask(cache)
        last = plan.request.context - 1
        yield Pass("decode", kernel, 1, keys, partial(_step, layer, last, kernel, mask, cache))


def _prefill(layer: RealLayer, tokens: int, kernel: str, mask: KernelMask) -> Tensor:
    return layer.prefill(tokens, attend_with(kernel, _copied(mask), with_sinks=False))


def _step(layer: RealLayer, position: int, kernel: str, mask: KernelMask, cache: Cache) -> Tensor:
    """Decode the last token, and restore the cache: after an error too, since the pass may be tried
    again.
    """
    seen = cache.tokens_seen
    try:
        return layer.step(position, attend_with(kernel, _copied(mask), with_sinks=False), cache)
    finally:
        cache.tokens_seen = seen  # later tokens overwrite their rows


def _copied(mask: KernelMask) -> KernelMask:
    """Return a copy of the mask. It is made within the pass, so that the measured peak includes a
    mask.
    """
    if mask.matrix is None:
        return mask
    return KernelMask(matrix=mask.matrix.clone())
