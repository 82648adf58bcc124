"""What DP attention would give a model whose latents tensor parallelism only copies."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from ..errors import AttncalcError
from .expert_parallel import has_experts
from .fit import FitResult, fit


class AttentionRanks(NamedTuple):
    """The same GPUs, each with attention and a cache of its own.

    Attributes:
        flags: The options that ask for it.
        before: Concurrent requests on all GPUs without it.
        after: Concurrent requests on all GPUs with it; None if each GPU has no room for all weights of attention.
    """

    flags: str
    before: float
    after: float | None


def with_attention_ranks(result: FitResult) -> AttentionRanks | None:
    """Return what fits with DP attention; None for a model or an engine that does not have it."""
    resolved, request = result.resolved, result.request
    ranks = resolved.engine.attention_ranks(resolved.args, resolved.dp)
    if ranks is None or not has_experts(request.model):
        return None
    flags, changes = ranks
    try:
        other = fit(dataclasses.replace(request, **changes, gpus=resolved.gpus))
    except AttncalcError:
        return None
    before = float(result.pool.concurrency) * resolved.replicas
    after = float(other.pool.concurrency) * other.resolved.replicas
    return AttentionRanks(flags, before, None if other.verdict == "does_not_fit" else after)
