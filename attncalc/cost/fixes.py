"""What would make it fit: each change is tried by asking the whole question again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from ..engines import habits
from ..errors import AttncalcError
from ..units import count, dtype
from .fit import Fit, Question, fit, on_gpus, possible
from .weights import as_weights


class Fix(NamedTuple):
    """A change after which it fits. flag: what to type; change: in words; fit: the answer then."""

    change: str
    flag: str
    fit: Fit


def fixes(found: Fit) -> tuple[Fix, ...]:
    """The changes that make it fit, each alone; () where nothing does.

    Weights and cache are narrowed together only where neither alone is enough, and then more GPUs are tried
    with a narrow cache where they do not do alone.
    """
    if found.fits:
        return ()
    asked = found.asked
    worked = list(_tried(_more_gpus(asked), stop=True))
    narrow = [*_tried(_narrow_weights(asked), stop=True), *_tried(_narrow_cache(asked), stop=True)]
    if not narrow:
        both = (_joined("both smaller", a, b) for a in _narrow_weights(asked) for b in _narrow_cache(a[2]))
        narrow = list(_tried(both, stop=True))
    if not (worked or narrow):
        more = (_joined(f"{b[0]}, {a[0]}", a, b) for a in _narrow_cache(asked) for b in _more_gpus(a[2]))
        worked = list(_tried(more, stop=True))
    return (*worked, *narrow, *_tried(_shorter(found)), *_tried(_fewer(found)))


_Change = tuple[str, str, Question]


def _tried(changes: Iterator[_Change], *, stop: bool = False) -> Iterator[Fix]:
    """Those after which it fits; only the first with `stop`."""
    for change, flag, asked in changes:
        try:
            answer = fit(asked)
        except AttncalcError:  # this engine, or this model, cannot have it
            continue
        if answer.fits:
            yield Fix(change, flag, answer)
            if stop:
                return


def _more_gpus(asked: Question) -> Iterator[_Change]:
    for more in on_gpus(asked):
        if more.gpus > (asked.gpus if asked.spread else asked.devices) and possible(more):
            pp = f" --pp {asked.settings.pp}" if asked.settings.pp > 1 else ""
            tp = "" if asked.spread else f" --tp {more.settings.tp}"
            yield f"{count(more.gpus)} GPUs", f"--gpus {more.gpus}{tp}{pp}", more


def _narrow_weights(asked: Question) -> Iterator[_Change]:
    if asked.gpu is None:
        return
    now = as_weights(asked.held_in).bits if asked.held_in else 16
    for name in habits(asked.engine).narrower_weights:
        if as_weights(name).bits < now:
            yield f"weights in {name}", f"--weights-dtype {name}", dataclasses.replace(asked, weights_dtype=name)


def _narrow_cache(asked: Question) -> Iterator[_Change]:
    settings = asked.settings
    now = max(d.bits for d in (settings.kv_dtype_k or settings.kv_dtype, settings.kv_dtype_v or settings.kv_dtype))
    for name in habits(asked.engine).narrower:
        if dtype(name).bits < now:
            changed = dataclasses.replace(settings, kv_dtype=dtype(name), kv_dtype_k=None, kv_dtype_v=None)
            narrow = dataclasses.replace(asked, settings=changed, kv_default=False)
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
            dataclasses.replace(found.asked, context=tokens),
        )


def _fewer(found: Fit) -> Iterator[_Change]:
    if found.max_batch:
        most = int(found.max_batch)
        yield (
            f"{count(most)} sequence{'s'[: most != 1]}",
            f"--batch {most}",
            dataclasses.replace(found.asked, batch=most),
        )
