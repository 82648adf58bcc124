"""Changes that would make a workload fit. Each is tried by answering the changed request."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import AttncalcError
from ..model import plural
from ..units import count, dtype
from .fit import FitRequest, FitResult, fit, fits, with_other_gpus
from .request import ResolvedRequest, resolve
from .weights import as_weights


class Suggestion(NamedTuple):
    """A change that makes it fit.

    Attributes:
        change: The change in words: 'weights in fp8'.
        flag: The options to type: '--weights-dtype fp8'.
        result: What fits then.
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
    """Return the changes that make it fit, each on its own; () if it fits already, or nothing helps.

    Narrow weights and a narrow cache are combined only if neither is enough; more GPUs and a narrow cache only if
    nothing so far is.
    """
    if result.fits:
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
    return (*gpus, *narrow, *_working(_shorter_context(result)), *_working(_smaller_batch(result)))


def _working(changes: Iterator[_Change], *, stop: bool = False) -> Iterator[Suggestion]:
    """Yield the changes that make it fit; only the first with `stop`."""
    for change in changes:
        try:
            result = fit(change.request)
        except AttncalcError:  # this engine or this model does not support it
            continue
        if result.fits:
            yield Suggestion(change.words, change.flag, result)
            if stop:
                return


def _more_gpus(resolved: ResolvedRequest) -> Iterator[_Change]:
    now = resolved.gpus if resolved.whole_layers else resolved.devices
    for request in with_other_gpus(resolved):
        if (request.gpus or 1) > now and fits(request):
            tp = "" if resolved.whole_layers else f" --tp {request.tp}"
            pp = f" --pp {request.pp}" if request.pp > 1 else ""
            yield _Change(f"{count(request.gpus or 1)} GPUs", f"--gpus {request.gpus}{tp}{pp}", request)


def _narrow_weights(resolved: ResolvedRequest) -> Iterator[_Change]:
    if resolved.gpu is None:
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


def _shorter_context(result: FitResult) -> Iterator[_Change]:
    if result.max_context:
        context = int(result.max_context)
        request = result.request.with_workload(context=context)
        yield _Change(f"{count(context)} tokens of context", f"--context {context}", request)


def _smaller_batch(result: FitResult) -> Iterator[_Change]:
    if result.max_batch:
        batch = int(result.max_batch)
        yield _Change(plural(batch, "sequence"), f"--batch {batch}", result.request.with_workload(batch=batch))
