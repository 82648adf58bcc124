"""Changes that would make a workload fit. `fit` recalculates each changed request."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import AttncalcError
from ..model import plural
from ..units import count, dtype
from .fit import FitRequest, FitResult, fit, possible_verdict, sure_limits, with_other_gpus
from .request import ResolvedRequest, resolve
from .weights import as_weights

_FEW_TOKENS = 2048
"""Tokens per step to suggest: vLLM's default on small GPUs."""


class Suggestion(NamedTuple):
    """A change that makes it fit.

    Attributes:
        change: The change in words: 'weights in fp8'.
        flag: The options to type: '--weights-dtype fp8'.
        result: What fits after the change.
    """

    change: str
    flag: str
    result: FitResult


class _Change(NamedTuple):
    """A change that has not been tried yet."""

    words: str
    flag: str
    request: FitRequest


def suggestions(result: FitResult) -> tuple[Suggestion, ...]:
    """Return the changes of which each makes the request fit for sure; () if it does already, or no change helps.

    Two changes are combined only if no single one is enough: narrow weights with a narrow cache, then a narrow cache
    with more GPUs.
    """
    if result.verdict == "fits":
        return ()
    resolved = result.resolved
    gpus = list(_working(_more_gpus(resolved), stop=True))
    narrow = [*_working(_narrow_weights(resolved), stop=True), *_working(_narrow_cache(resolved), stop=True)]
    if not narrow:
        both = (
            _Change("both smaller", f"{weights.flag} {cache.flag}", cache.request)
            for weights in _narrow_weights(resolved)
            for cache in _narrow_cache(resolve(weights.request))
        )
        narrow = list(_working(both, stop=True))
    if not (gpus or narrow):
        both = (
            _Change(f"{more.words}, {cache.words}", f"{cache.flag} {more.flag}", more.request)
            for cache in _narrow_cache(resolved)
            for more in _more_gpus(resolve(cache.request))
        )
        gpus = list(_working(both, stop=True))
    fewer = _working(_fewer_sequences(resolved), stop=True)
    return (*fewer, *gpus, *narrow, *_working(_shorter_context(result)), *_working(_smaller_batch(result)))


def _working(changes: Iterator[_Change], *, stop: bool = False) -> Iterator[Suggestion]:
    """Yield the changes that make the request fit; only the first one with `stop`."""
    for change in changes:
        try:
            result = fit(change.request)
        except AttncalcError:  # this engine or this model does not support it
            continue
        if result.verdict == "fits":
            yield Suggestion(change.words, change.flag, result)
            if stop:
                return


def _more_gpus(resolved: ResolvedRequest) -> Iterator[_Change]:
    current = resolved.gpus if resolved.whole_layers else resolved.devices * resolved.dp
    for request in with_other_gpus(resolved):
        if (request.gpus or 1) > current and possible_verdict(request) == "fits":
            tp = "" if resolved.whole_layers else f" --tp {request.tp}"
            pp = f" --pp {request.pp}" if request.pp > 1 else ""
            yield _Change(f"{count(request.gpus or 1)} GPUs", f"--gpus {request.gpus}{tp}{pp}", request)


def _narrow_weights(resolved: ResolvedRequest) -> Iterator[_Change]:
    if resolved.share is None:  # the memory for the cache was given: smaller weights do not change it
        return
    bits = as_weights(resolved.weights_dtype).bits if resolved.weights_dtype else 16
    for name in resolved.defaults.narrower_weight_dtypes:
        if as_weights(name).bits < bits:
            request = dataclasses.replace(resolved.request, weights_dtype=name)
            yield _Change(f"weights in {name}", f"--weights-dtype {name}", request)


def _narrow_cache(resolved: ResolvedRequest) -> Iterator[_Change]:
    args = resolved.args
    bits = max(d.bits for d in (args.kv_dtype_k or args.kv_dtype, args.kv_dtype_v or args.kv_dtype))
    for name in resolved.defaults.narrower_cache_dtypes:
        if dtype(name).bits < bits:
            request = resolved.request.with_workload(kv_dtype=name).with_engine_args(kv_dtype_k=None, kv_dtype_v=None)
            yield _Change(f"a cache in {name}", f"--kv-dtype {name}", request)


def _fewer_sequences(resolved: ResolvedRequest) -> Iterator[_Change]:
    """Yield smaller limits of a step: the sampler holds the logits of all its sequences.

    The tokens of a step are named too, since a default that is only assumed widens the range.
    """
    limits = resolved.limits(resolved.workload.batch, resolved.workload.context)
    for sequences in resolved.defaults.fewer_sequences:
        if limits is not None and resolved.workload.batch <= sequences < limits.sequences:
            tokens = min(limits.tokens, _FEW_TOKENS)
            changes = {"max_num_seqs": sequences, "max_num_batched_tokens": tokens}
            flag = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in changes.items())
            request = resolved.request.with_engine_args(**changes)
            yield _Change(f"{plural(sequences, 'sequence')} per step", flag, request)


def _shorter_context(result: FitResult) -> Iterator[_Change]:
    context, _ = sure_limits(result.resolved)
    if context:
        request = result.request.with_workload(context=context)
        yield _Change(f"{count(context)} tokens of context", f"--context {context}", request)


def _smaller_batch(result: FitResult) -> Iterator[_Change]:
    _, batch = sure_limits(result.resolved)
    if batch:
        yield _Change(plural(batch, "sequence"), f"--batch {batch}", result.request.with_workload(batch=batch))
