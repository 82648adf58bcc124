"""What fits if each GPU has attention and a cache of its own: DP attention."""

import dataclasses

from ..errors import AttncalcError
from ..records import NamedTuple
from .fit import FitResult, fit


class AttentionRanks(NamedTuple):
    """The same GPUs, each with attention and a cache of its own: DP attention."""

    flags: str  # the options that ask for it
    # what fits with it; None if each GPU has no room for all weights of attention
    result: FitResult | None


def with_attention_ranks(result: FitResult) -> AttentionRanks | None:
    """Return what fits with DP attention; None for a model or an engine that does not have it.

    It is for a model whose latents tensor parallelism only copies.
    """
    resolved = result.resolved
    request = result.request
    ranks = resolved.engine.attention_ranks(resolved.args, resolved.dp)
    if ranks is None or not request.model.has_experts:
        return None
    try:
        other = fit(dataclasses.replace(request, **ranks.fields, gpus=resolved.gpus))
    except AttncalcError:
        return None
    if other.fits:
        return AttentionRanks(ranks.flags, other)
    return AttentionRanks(ranks.flags, None)
