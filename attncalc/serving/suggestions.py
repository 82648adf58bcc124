"""Changes that would make a workload fit. `fit` recalculates each changed request.

`changes.py` and `more_gpus.py` have the changes. Here they are tried, alone and together.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import combinations, islice, product

from ..errors import AttncalcError
from ..records import NamedTuple
from ..units import GIB, count
from .changes import (
    HARDWARE,
    ON_THE_SAME_GPUS,
    UNNOTICED,
    UNNOTICED_KINDS,
    Change,
    Kind,
    both,
    each_with,
    is_smaller_share,
    larger_share,
    narrow_cache,
    narrow_weights,
    on_host,
    other_split,
    smaller_workload,
    works,
)
from .fit import FitResult, budget_without_kv_memory, fit, possible_verdict, with_other_gpus
from .more_gpus import more_gpus
from .request import FitRequest, ResolvedRequest, resolve

# The most combinations of kinds that are suggested.
_MOST_COMBINATIONS = 2
# With so many changes that are enough alone, no combinations are suggested.
_ENOUGH_ALONE = 2


class Suggestion(NamedTuple):
    """A change that makes a request fit, with what fits then."""

    change: str  # the change in words: 'weights in fp8'
    flag: str  # the options to type: '--weights-dtype fp8'
    result: FitResult  # what fits after the change
    cost: int = UNNOTICED  # what it costs: a constant of changes.py, from UNNOTICED to HARDWARE

    @property
    def needs_hardware(self) -> bool:
        """Whether it needs further or other GPUs."""
        return self.cost == HARDWARE


class _Tried(NamedTuple):
    """The changes on the same GPUs, each tried alone. A kind may be in both: a cache in fp8 is too
    small a change, and one in fp4 is enough.
    """

    enough: Mapping[Kind, Change]  # the smallest change of each kind that is enough
    too_small: Mapping[Kind, Sequence[Change]]  # those that are not enough, the smallest first

    @property
    def kinds_to_combine(self) -> list[Sequence[Change]]:
        """The changes of each kind that are not enough alone."""
        return list(self.too_small.values())


def suggestions(result: FitResult, *, with_share: bool = True) -> tuple[Suggestion, ...]:
    """Return the changes that make the request fit for sure, the cheapest first; () if it fits
    already, or none helps.

    They are ordered by `Suggestion.cost`. These are tried:

    1. a change without which nothing starts. If one is needed, all suggestions begin with it.
    2. the kinds of changes on the same GPUs that keep the workload, alone and together
    3. another split of the same GPUs
    4. a shorter context, and a smaller batch
    5. more GPUs, and fewer of them with narrower weights

    If 2 and 3 are not enough, 4 and 5 are combined with changes of 2. If nothing at all is enough,
    weights of so few bits that answers suffer are tried, and then the model's maximum context.

    Example: the 131 GiB of Llama 3.1 70B do not fit on one H100. No kind of 2 is enough alone, but
    --kv-dtype fp8 with --weights-dtype int4 is. Of 5, --gpus 4 --tp 4 is enough, and so is --gpus 2
    --tp 2 with --weights-dtype fp8.

    Args:
        result: What does not fit.
        with_share: Whether a larger share of the GPU's memory is tried.
    """
    if result.verdict == "fits":
        return ()
    needed = _needed_to_start(result)
    if needed:
        return tuple(_beginning_with(needed, result.request))
    found = tuple(_fitting(_likely_changes(result, with_share=with_share), result.request))
    if found:
        return found
    resolved = result.resolved
    narrowest = narrow_weights(resolved, resolved.engine.narrowest_weight_dtypes)
    found = tuple(islice(_fitting(narrowest, result.request), 1))
    if found:
        return found
    return tuple(_with_possible_context(result, with_share=with_share))


def narrower_caches(result: FitResult) -> tuple[Suggestion, ...]:
    """Return what fits with each narrower dtype of the cache, the widest first, whether it is
    enough or not.
    """
    changes = narrow_cache(result.resolved)
    return tuple(
        Suggestion(change.words, change.flag, fit(change.apply(result.request)))
        for change in changes
    )


def narrower_weights(request: FitRequest) -> Iterator[Suggestion]:
    """Yield the narrower dtypes of the weights with which the request fits, the widest first."""
    return _fitting(narrow_weights(resolve(request)), request)


def tried_in_words(resolved: ResolvedRequest, *, with_share: bool = True) -> str:
    """Return what `suggestions` tries for a request: 'a narrower cache, more GPUs and a shorter
    context'.
    """
    words = []
    for kind in _kinds(with_share=with_share):
        if next(kind(resolved), None):
            words.append(ON_THE_SAME_GPUS[kind])
    if resolved.share and resolved.gpu:
        has_host = not (resolved.gpu.is_cpu or resolved.gpu.unified)
        if has_host and resolved.engine.offload_options:
            words.append("layers on the host")
        if next(with_other_gpus(resolved), None):
            words.append("more GPUs")
    words.append("a shorter context")
    if resolved.workload.batch > 1:
        words.append("a smaller batch")
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _fitting(changes: Iterable[Change], request: FitRequest) -> Iterator[Suggestion]:
    """Yield the changes that make the request fit, with what fits then."""
    for change in changes:
        try:
            result = fit(change.apply(request))
        except AttncalcError:  # this engine or this model does not support it
            continue
        if result.verdict == "fits":
            yield Suggestion(change.words, change.flag, result, change.cost)


def _likely_changes(result: FitResult, *, with_share: bool) -> list[Change]:
    """Return the changes that are enough by their verdicts, or by the limits of the workload, the
    cheapest first.
    """
    resolved = result.resolved
    tried = _try_on_the_same_gpus(resolved, with_share=with_share)
    same_gpus = _on_the_same_gpus(resolved, tried)
    same_gpus = [*_on_other_splits(resolved, same_gpus, with_share=with_share), *same_gpus]
    gpus = _on_more_gpus(resolved, tried, is_combined=not same_gpus)
    smaller = list(smaller_workload(resolved))
    # what the engine refuses is often the length, and then a shorter context is the answer
    if not same_gpus and not (smaller and result.refusal):
        smaller += _smaller_with_others(result, tried, has_smaller=bool(smaller))
    if gpus:
        smaller = [change for change in smaller if not _is_much_less(change, result.request)]
    return sorted([*same_gpus, *smaller, *gpus], key=lambda change: change.cost)


# 1. Changes without which nothing starts


def _needed_to_start(result: FitResult) -> Change | None:
    """Return a change without which nothing starts: what is free of the GPU's memory, or less
    memory for the cache; None if none is needed.
    """
    resolved = result.resolved
    free = resolved.free_share  # '' if that is enough for the engine
    if free:
        return Change(
            f"{free} of the GPU's memory",
            f"{resolved.engine.share_option} {free}",
            fields={"gpu_memory_utilization": free},
        )
    if not result.refusal:
        return None
    budget = budget_without_kv_memory(resolved)
    if not budget or budget.kv_memory_high >= (result.request.kv_memory or 0):
        return None
    size = budget.kv_memory_low // GIB * GIB
    if not size:
        return None
    gib = size // GIB
    return Change(f"{gib} GiB for the cache", f"--kv-memory {gib}GiB", fields={"kv_memory": size})


def _beginning_with(change: Change, request: FitRequest) -> Iterator[Suggestion]:
    """Yield a change without which nothing starts, alone if it is enough, or with the changes that
    it needs.
    """
    changed = fit(change.apply(request))
    if changed.verdict == "fits":
        yield Suggestion(change.words, change.flag, changed)
    for other in suggestions(changed, with_share=False):
        yield other._replace(
            change=f"{change.words}, {other.change}", flag=f"{change.flag} {other.flag}"
        )


# 2. Changes on the same GPUs


def _try_on_the_same_gpus(resolved: ResolvedRequest, *, with_share: bool) -> _Tried:
    """Return which changes on the same GPUs are enough alone, and which are not."""
    kinds = _kinds(with_share=with_share)
    if _is_below_default(resolved):  # the default share costs nothing, so it comes first
        kinds.sort(key=lambda kind: kind is not larger_share)
    enough: dict[Kind, Change] = {}
    too_small: dict[Kind, list[Change]] = {}
    for kind in (*kinds, *_offload_kinds(resolved)):
        for change in kind(resolved):
            verdict = possible_verdict(change.apply(resolved.request))
            if verdict == "fits":
                enough[kind] = change
                break
            if verdict:
                too_small.setdefault(kind, []).append(change)
    return _Tried(enough, too_small)


def _kinds(*, with_share: bool) -> list[Kind]:
    """Return the kinds of changes on the same GPUs, with a larger share or without."""
    if with_share:
        return list(ON_THE_SAME_GPUS)
    return [kind for kind in ON_THE_SAME_GPUS if kind is not larger_share]


def _offload_kinds(resolved: ResolvedRequest) -> list[Kind]:
    """Return a kind for each option of the engine that leaves layers, or their experts, on the
    host.
    """
    return [partial(on_host, option=option) for option in resolved.engine.offload_options]


def _is_below_default(resolved: ResolvedRequest) -> bool:
    """Return whether the engine's default is a larger share of the GPU's memory."""
    share = resolved.share
    if share is None:
        return False
    default = resolve(dataclasses.replace(resolved.request, gpu_memory_utilization=None)).share
    if default is None:
        return False
    return is_smaller_share(share, default)


def _on_the_same_gpus(resolved: ResolvedRequest, tried: _Tried) -> list[Change]:
    """Return the changes that are enough on the same GPUs: a pair that users do not notice, each
    kind alone, and combinations of several kinds.
    """
    alone = list(tried.enough.values())
    unnoticed: list[Change] = []
    if not tried.enough.keys() & UNNOTICED_KINDS:
        kinds = [changes for kind, changes in tried.too_small.items() if kind in UNNOTICED_KINDS]
        unnoticed = list(_together(kinds, resolved.request, most=2))[:1]
    combined = _combined(resolved, tried, [*unnoticed, *alone])
    return [*unnoticed, *alone, *combined]


def _combined(
    resolved: ResolvedRequest, tried: _Tried, found: Sequence[Change]
) -> Sequence[Change]:
    """Return the combinations of kinds that are suggested beside the changes that were found: any
    without such a change, pairs with few, and else the narrower cache with narrower weights.
    """
    kinds = tried.kinds_to_combine
    request = resolved.request
    if not found:
        return list(_together(kinds, request)) or _offload_with_narrow_weights(resolved)
    if len(found) < _ENOUGH_ALONE:
        return [pair for pair in _together(kinds, request, most=2) if pair not in found]
    if narrow_cache in tried.enough and narrow_weights in tried.enough:
        return [both(tried.enough[narrow_cache], tried.enough[narrow_weights])]
    return []


def _offload_with_narrow_weights(resolved: ResolvedRequest) -> list[Change]:
    """Return the first change that narrows the weights and leaves some on the host; [] without
    one.
    """
    weights = list(narrow_weights(resolved))
    for kind in _offload_kinds(resolved):
        for change in each_with(weights, kind, resolved.request):
            return [change]
    return []


def _together(
    kinds: Sequence[Sequence[Change]], request: FitRequest, most: int | None = None
) -> Iterator[Change]:
    """Yield combinations of as few kinds of changes as possible that make the request fit together:
    at most _MOST_COMBINATIONS, each of other kinds.

    The largest changes of all kinds are tried first: if they are not enough, nothing else is.

    Args:
        kinds: The changes of each kind, the smallest first. None of them is enough alone.
        request: The request.
        most: How many kinds are combined; by default all.
    """
    if len(kinds) < 2 or not works(_largest_of(kinds), request):
        return
    for size in range(2, (most or len(kinds)) + 1):
        found = list(islice(_of_size(size, kinds, request), _MOST_COMBINATIONS))
        if found:
            yield from found
            return


def _of_size(size: int, kinds: Sequence[Sequence[Change]], request: FitRequest) -> Iterator[Change]:
    """Yield the smallest combination that is enough of each choice of `size` kinds.

    The largest changes of a choice are tried first, as in `_together`.
    """
    for chosen in combinations(kinds, size):
        *smaller, largest = (reduce(both, changes) for changes in product(*chosen))
        if works(largest, request):
            yield next((change for change in smaller if works(change, request)), largest)


def _largest_of(kinds: Iterable[Sequence[Change]]) -> Change:
    """Return the largest changes of all kinds together."""
    return reduce(both, (changes[-1] for changes in kinds))


# 3. Another split of the same GPUs


def _on_other_splits(
    resolved: ResolvedRequest, same_gpus: Sequence[Change], *, with_share: bool
) -> Sequence[Change]:
    """Return the first other split that is enough, or else the cheapest change together with one.

    Such a pair is left out if a change on the same GPUs costs no more without it.
    """
    splits = list(other_split(resolved))
    enough = [split for split in splits if works(split, resolved.request)][:1]
    if enough or not splits:
        return enough

    def changes_of(other: ResolvedRequest) -> Iterator[Change]:
        tried = _try_on_the_same_gpus(other, with_share=with_share)
        yield from _on_the_same_gpus(other, tried)

    found = min(
        each_with(splits, changes_of, resolved.request),
        key=lambda change: (change.cost, len(change.flag)),
        default=None,
    )
    least = min((change.cost for change in same_gpus), default=HARDWARE)
    if found and found.cost < least:
        return [found]
    return []


# 4. A smaller workload


def _smaller_with_others(result: FitResult, tried: _Tried, *, has_smaller: bool) -> list[Change]:
    """Return a smaller workload together with other changes, which leave more of the context.

    Args:
        result: What does not fit.
        tried: The changes on the same GPUs.
        has_smaller: Whether a smaller workload is enough alone. Then it is only combined with a
            narrower cache and narrower weights together.
    """
    weights: list[Change] = []
    if not result.refusal:
        weights = list(narrow_weights(result.resolved))
    narrow_both = list(map(both, narrow_cache(result.resolved), weights))[:1]
    if has_smaller:
        return list(islice(each_with(narrow_both, smaller_workload, result.request), 1))
    others = [*weights, *narrow_both]
    if tried.too_small:
        others.append(_largest_of(tried.kinds_to_combine))
    return list(islice(each_with(others, smaller_workload, result.request), 2))


def _is_much_less(change: Change, request: FitRequest) -> bool:
    """Return whether a change leaves less than half of several requests, or of their context. That
    is no answer if more GPUs are one.
    """
    context = request.workload.context
    batch = request.workload.batch
    new = {"context": context, "batch": batch, **change.workload}
    return batch > 1 and (2 * new["context"] < context or 2 * new["batch"] < batch)


# 5. More GPUs


def _on_more_gpus(resolved: ResolvedRequest, tried: _Tried, *, is_combined: bool) -> list[Change]:
    """Return the fewest GPUs that are enough, and fewer of them with narrower weights; [] if none
    are.

    Args:
        resolved: The request.
        tried: The changes on the same GPUs.
        is_combined: Whether GPUs that are not enough alone are combined with those changes.
    """
    request = resolved.request
    more = next(more_gpus(resolved), None)
    if more is None and is_combined:
        kinds = tried.kinds_to_combine
        others = [*narrow_cache(resolved), *(changes[-1] for changes in kinds)]
        if kinds:
            others.append(_largest_of(kinds))
        more = next(each_with(others, more_gpus, request), None)
    if more is None:
        return []
    more = _on_fewer_unnoticed(more, resolved)
    fewer = partial(more_gpus, below=more.fields["gpus"])
    return [more, *islice(each_with(list(narrow_weights(resolved)), fewer, request), 1)]


def _on_fewer_unnoticed(more: Change, resolved: ResolvedRequest) -> Change:
    """Return more GPUs, or fewer of them that are enough with a change that users do not notice: 4
    with --enforce-eager, and not 64.
    """
    most = more.fields["gpus"]
    fewer_gpus = (fewer for fewer in with_other_gpus(resolved) if (fewer.gpus or 1) < most)
    if not any(possible_verdict(fewer) == "may_not_fit" for fewer in fewer_gpus):
        return more
    unnoticed: list[Change] = []
    for kind in _kinds(with_share=False):
        if kind in UNNOTICED_KINDS:
            unnoticed += kind(resolved)
    fewer = each_with(unnoticed, partial(more_gpus, below=most), resolved.request)
    return min((more, *fewer), key=lambda change: change.fields["gpus"])


# If nothing else is enough


def _with_possible_context(result: FitResult, *, with_share: bool) -> Iterator[Suggestion]:
    """Yield what makes the model's maximum context fit, if the engine refuses the requested one."""
    maximum = result.request.model.max_context
    if not (result.refusal and maximum and result.resolved.workload.context > maximum):
        return
    words = f"{count(maximum)} tokens of context"
    flag = f"--context {maximum}"
    shorter = fit(result.request.with_workload(context=maximum))
    for change in suggestions(shorter, with_share=with_share):
        if "--context" not in change.flag:
            yield change._replace(change=f"{words}, {change.change}", flag=f"{flag} {change.flag}")
