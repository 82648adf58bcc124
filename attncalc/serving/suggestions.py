"""What would make it fit: each change is tried by asking the whole question again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from ..engines import engine_defaults
from ..errors import AttncalcError
from ..units import count, dtype
from .fit import Fit, FitRequest, fit, on_gpus, possible
from .weights import as_weights


class Suggestion(NamedTuple):
    """A change after which it fits. flag: what to type; change: in words; fit: the answer then."""

    change: str
    flag: str
    fit: Fit


def suggestions(found: Fit) -> tuple[Suggestion, ...]:
    """The changes that make it fit, each alone; () where nothing does.

    Weights and cache are narrowed together only where neither alone is enough, and then more GPUs are tried
    with a narrow cache where they do not do alone.
    """
    if found.fits:
        return ()
    request = found.request
    worked = list(_tried(_more_gpus(request), stop=True))
    narrow = [*_tried(_narrow_weights(request), stop=True), *_tried(_narrow_cache(request), stop=True)]
    if not narrow:
        both = (_joined("both smaller", a, b) for a in _narrow_weights(request) for b in _narrow_cache(a[2]))
        narrow = list(_tried(both, stop=True))
    if not (worked or narrow):
        more = (_joined(f"{b[0]}, {a[0]}", a, b) for a in _narrow_cache(request) for b in _more_gpus(a[2]))
        worked = list(_tried(more, stop=True))
    return (*worked, *narrow, *_tried(_shorter(found)), *_tried(_fewer(found)))


_Change = tuple[str, str, FitRequest]


def _tried(changes: Iterator[_Change], *, stop: bool = False) -> Iterator[Suggestion]:
    """Those after which it fits; only the first with `stop`."""
    for change, flag, request in changes:
        try:
            answer = fit(request)
        except AttncalcError:  # this engine, or this model, cannot have it
            continue
        if answer.fits:
            yield Suggestion(change, flag, answer)
            if stop:
                return


def _more_gpus(request: FitRequest) -> Iterator[_Change]:
    for more in on_gpus(request):
        if more.gpus > (request.gpus if request.spread else request.devices) and possible(more):
            pp = f" --pp {request.args.pp}" if request.args.pp > 1 else ""
            tp = "" if request.spread else f" --tp {more.args.tp}"
            yield f"{count(more.gpus)} GPUs", f"--gpus {more.gpus}{tp}{pp}", more


def _narrow_weights(request: FitRequest) -> Iterator[_Change]:
    if request.gpu is None:
        return
    now = as_weights(request.held_in).bits if request.held_in else 16
    for name in engine_defaults(request.engine).narrower_weights:
        if as_weights(name).bits < now:
            yield f"weights in {name}", f"--weights-dtype {name}", dataclasses.replace(request, weights_dtype=name)


def _narrow_cache(request: FitRequest) -> Iterator[_Change]:
    args = request.args
    now = max(d.bits for d in (args.kv_dtype_k or args.kv_dtype, args.kv_dtype_v or args.kv_dtype))
    for name in engine_defaults(request.engine).narrower:
        if dtype(name).bits < now:
            changed = dataclasses.replace(args, kv_dtype=dtype(name), kv_dtype_k=None, kv_dtype_v=None)
            narrow = dataclasses.replace(request, args=changed, kv_default=False)
            yield f"a cache in {name}", f"--kv-dtype {name}", narrow


def _joined(words: str, first: _Change, second: _Change) -> _Change:
    """Two changes as one, where the second was made of the first."""
    return words, f"{first[1]} {second[1]}", second[2]


def _shorter(found: Fit) -> Iterator[_Change]:
    if found.max_context:
        tokens = int(found.max_context)
        yield (
            f"{count(tokens)} tokens of context",
            f"--context {tokens}",
            dataclasses.replace(found.request, context=tokens),
        )


def _fewer(found: Fit) -> Iterator[_Change]:
    if found.max_batch:
        most = int(found.max_batch)
        yield (
            f"{count(most)} sequence{'s'[: most != 1]}",
            f"--batch {most}",
            dataclasses.replace(found.request, batch=most),
        )
