"""Changes that would make a workload fit. `fit` recalculates each changed request."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from heapq import heappop, heappush
from itertools import chain, combinations, islice, product
from typing import Any

from ..errors import AttncalcError
from ..model import plural
from ..records import NamedTuple
from ..units import GIB, count, dtype, long_option
from .fit import (
    NO_LIMIT,
    FitResult,
    budget_without_kv_memory,
    fit,
    possible_verdict,
    sure_limits,
    sure_sequences,
    with_other_gpus,
)
from .offload import with_least_offload
from .request import FitRequest, ResolvedRequest, file_type, half_dtype, parse_share, resolve
from .weight_format import weight_bits

# Combinations of changes that are suggested, and the single changes of which as many make a pair
# unnecessary.
MAX_PAIRS = 2


class Suggestion(NamedTuple):
    change: str  # the change in words: 'weights in fp8'
    flag: str  # the options to type: '--weights-dtype fp8'
    result: FitResult  # what fits after the change
    # What it costs: 0 for options that users do not notice, then a narrower cache, narrower
    # weights, less work, layers on the host, so few bits that answers suffer (a cache of 4, weights
    # of fewer), and 6 for other hardware
    cost: int = 0

    @property
    def needs_hardware(self) -> bool:
        """Whether it needs further or other GPUs."""
        return self.cost == _HARDWARE


class _Change(NamedTuple):
    """A change of a request that has not been tried yet."""

    words: str  # the change in words
    flag: str  # the options to type
    fields: Mapping[str, Any] = {}  # fields of the FitRequest with their new values
    workload: Mapping[str, Any] = {}  # fields of its workload
    engine_args: Mapping[str, Any] = {}  # the engine's arguments
    cost: int = 0  # what it costs, as in Suggestion

    def apply(self, request: FitRequest) -> FitRequest:
        changed = request.with_workload(**self.workload).with_engine_args(**self.engine_args)
        return dataclasses.replace(changed, **self.fields)


# The costs of changes, which order them; that of several is the largest. 0 is for what users do not
# notice.
_CACHE, _WEIGHTS, _WORK, _HOST, _ROUGH, _HARDWARE = range(1, 7)
# Returns changes of one kind, from the smallest to the largest.
_Kind = Callable[[ResolvedRequest], Iterator[_Change]]


def suggestions(result: FitResult, *, with_share: bool = True) -> tuple[Suggestion, ...]:
    """Return the changes that make the request fit for sure, the cheapest first; () if it does
    already, or none helps.

    They are ordered by `Suggestion.cost`. On the same GPUs there are two changes that change no
    answer and no length, each kind alone, a narrower cache with narrower weights, and as few as
    possible together of which fewer are not enough; then a shorter context, alone and with both
    narrower, and a smaller batch, more GPUs, and fewer of them with narrower weights. If nothing is
    enough, these are combined with one change on the same GPUs, or with all. For several requests,
    less than half of them or of their context is no answer, unless no GPUs are enough. A change
    that users do not notice comes with more GPUs if fewer of them are enough then: 4 with
    --enforce-eager, and not 64. `with_share` is whether a larger share of the GPU's memory is
    tried.
    """
    if result.verdict == "fits":
        return ()
    resolved = result.resolved
    request = result.request
    needed = _needed_to_start(result)
    if needed:
        return tuple(_first(needed, request))
    same_gpus, too_small = _on_the_same_gpus(resolved, with_share=with_share)
    same_gpus = [*_on_other_splits(resolved, same_gpus, with_share=with_share), *same_gpus]
    gpus = _on_more_gpus(resolved, too_small, is_combined=not same_gpus)
    smaller = list(_smaller_workload(resolved))
    if not same_gpus and not (smaller and result.refusal):
        smaller += _smaller_with_others(result, too_small, has_smaller=bool(smaller))
    if gpus:
        smaller = [change for change in smaller if not _is_much_less(change, request)]
    changes = sorted([*same_gpus, *smaller, *gpus], key=lambda change: change.cost)
    found = tuple(_fitting(changes, request))
    if found:
        return found
    narrowest = _narrow_weights(resolved, resolved.engine.narrowest_weight_dtypes)
    found = tuple(islice(_fitting(narrowest, request), 1))
    if found:
        return found
    return tuple(_with_possible_context(result, with_share=with_share))


def _needed_to_start(result: FitResult) -> _Change | None:
    """Return a change without which nothing starts: what is free of the GPU's memory, or less
    memory for the cache; None if none is needed.
    """
    resolved = result.resolved
    free = resolved.free_share
    if free:
        return _Change(
            f"{free} of the GPU's memory",
            f"{resolved.engine.share_option} {free}",
            {"gpu_memory_utilization": free},
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
    return _Change(f"{gib} GiB for the cache", f"--kv-memory {gib}GiB", {"kv_memory": size})


def _first(change: _Change, request: FitRequest) -> Iterator[Suggestion]:
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


def _on_more_gpus(
    resolved: ResolvedRequest, too_small: Sequence[Sequence[_Change]], *, is_combined: bool
) -> list[_Change]:
    """Return the fewest GPUs that are enough, and fewer of them with narrower weights; [] if none
    are.

    Args:
        resolved: The request.
        too_small: Changes on the same GPUs that are not enough, by kind.
        is_combined: Whether GPUs that are not enough alone are combined with those changes.
    """
    request = resolved.request
    more = next(_more_gpus(resolved), None)
    if more is None and is_combined:
        others = [*_narrow_cache(resolved), *(changes[-1] for changes in too_small)]
        if too_small:
            others.append(_largest_of(too_small))
        more = next(_with(_more_gpus, others, request), None)
    if more is None:
        return []
    more = _with_what_nobody_notices(more, resolved)
    below = partial(_more_gpus, below=more.fields["gpus"])
    return [more, *islice(_with(below, list(_narrow_weights(resolved)), request), 1)]


def _with_what_nobody_notices(more: _Change, resolved: ResolvedRequest) -> _Change:
    """Return more GPUs, or fewer of them that are enough with a change that users do not notice."""
    most = more.fields["gpus"]
    fewer_gpus = (fewer for fewer in with_other_gpus(resolved) if (fewer.gpus or 1) < most)
    if not any(possible_verdict(fewer) == "may_not_fit" for fewer in fewer_gpus):
        return more
    unnoticed: list[_Change] = []
    for kind in _kinds(with_share=False):
        if kind in _FREE:
            unnoticed += kind(resolved)
    fewer = _with(partial(_more_gpus, below=most), unnoticed, resolved.request)
    return min((more, *fewer), key=lambda change: change.fields["gpus"])


def _smaller_with_others(
    result: FitResult, too_small: Sequence[Sequence[_Change]], *, has_smaller: bool
) -> list[_Change]:
    """Return a smaller workload together with other changes, which leave more of the context.

    Args:
        result: What does not fit.
        too_small: Changes on the same GPUs that are not enough, by kind.
        has_smaller: Whether a smaller workload is enough alone. Then it is only combined with a
            narrower cache and narrower weights together.
    """
    resolved = result.resolved
    weights: list[_Change] = []
    if not result.refusal:
        weights = list(_narrow_weights(resolved))
    both = list(map(_both, _narrow_cache(resolved), weights))[:1]
    if has_smaller:
        return list(islice(_with(_smaller_workload, both, result.request), 1))
    others = [*weights, *both]
    if too_small:
        others.append(_largest_of(too_small))
    return list(islice(_with(_smaller_workload, others, result.request), 2))


def _on_the_same_gpus(
    resolved: ResolvedRequest, *, with_share: bool
) -> tuple[list[_Change], Sequence[Sequence[_Change]]]:
    """Return the changes that make the request fit on the same GPUs, and by kind those that are not
    enough alone.
    """
    request = resolved.request
    offload: list[_Kind] = [
        partial(_on_host, option=option) for option in resolved.engine.offload_options
    ]
    too_small: dict[_Kind, list[_Change]] = {}
    enough: dict[_Kind, _Change] = {}
    kinds = _kinds(with_share=with_share)
    if _is_below_default(resolved):  # the default costs nothing
        kinds.sort(key=lambda kind: kind is not _larger_share)
    for kind in (*kinds, *offload):
        for change in kind(resolved):
            verdict = possible_verdict(change.apply(request))
            if verdict == "fits":
                enough[kind] = change
                break
            if verdict:
                too_small.setdefault(kind, []).append(change)
    all_kinds = list(too_small.values())
    single = list(enough.values())
    free: list[_Change] = []
    if not enough.keys() & _FREE:
        free_kinds = [changes for kind, changes in too_small.items() if kind in _FREE]
        free = list(_together(free_kinds, request, most=2))[:1]
    pairs: list[_Change] = []
    if not (single or free):
        pairs = list(_together(all_kinds, request)) or _offload_narrow_weights(resolved, offload)
    elif len(single) + len(free) < MAX_PAIRS:
        pairs = [pair for pair in _together(all_kinds, request, most=2) if pair not in free]
    elif _narrow_cache in enough and _narrow_weights in enough:
        pairs = [_both(enough[_narrow_cache], enough[_narrow_weights])]
    return [*free, *single, *pairs], all_kinds


def _offload_narrow_weights(resolved: ResolvedRequest, offload: Sequence[_Kind]) -> list[_Change]:
    """Return the first change that narrows the weights and leaves some on the host; [] without
    one.
    """
    weights = list(_narrow_weights(resolved))
    changes = (_with(kind, weights, resolved.request) for kind in offload)
    return list(islice(chain.from_iterable(changes), 1))


def _is_below_default(resolved: ResolvedRequest) -> bool:
    """Return whether the engine's default is a larger share of the GPU's memory."""
    share = resolved.share
    if share is None:
        return False
    default = resolve(dataclasses.replace(resolved.request, gpu_memory_utilization=None)).share
    if default is None:
        return False
    return share.numerator * default.denominator < default.numerator * share.denominator


def _on_other_splits(
    resolved: ResolvedRequest, same_gpus: Sequence[_Change], *, with_share: bool
) -> Sequence[_Change]:
    """Return the first other split that is enough, or else the cheapest change together with one.

    Such a pair is left out if a change on the same GPUs costs no more without it.
    """
    splits = list(_other_split(resolved))
    enough = [split for split in splits if _works(split, resolved.request)][:1]
    if enough or not splits:
        return enough

    def changes_of(other: ResolvedRequest) -> Iterator[_Change]:
        yield from _on_the_same_gpus(other, with_share=with_share)[0]

    found = min(
        _with(changes_of, splits, resolved.request),
        key=lambda change: (change.cost, len(change.flag)),
        default=None,
    )
    least = min((change.cost for change in same_gpus), default=_HARDWARE)
    if found and found.cost < least:
        return [found]
    return []


def _with_possible_context(result: FitResult, *, with_share: bool) -> Iterator[Suggestion]:
    """Yield what makes the model's maximum context fit, if the engine refuses the requested one."""
    request = result.request
    maximum = result.request.model.max_context
    if result.refusal and maximum and result.resolved.workload.context > maximum:
        words = f"{count(maximum)} tokens of context"
        flag = f"--context {maximum}"
        for change in suggestions(
            fit(request.with_workload(context=maximum)), with_share=with_share
        ):
            if "--context" not in change.flag:
                yield change._replace(
                    change=f"{words}, {change.change}", flag=f"{flag} {change.flag}"
                )


def tried(resolved: ResolvedRequest, *, with_share: bool = True) -> str:
    """Return what `suggestions` tries for a request, in words."""
    words = []
    for kind in _kinds(with_share=with_share):
        if next(kind(resolved), None):
            words.append(_ON_THE_SAME_GPUS[kind])
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


def best_of_each_cost(
    changes: Sequence[Suggestion], lines: Sequence[int], room: int
) -> tuple[Suggestion, ...]:
    """Return the changes that a screen has room for: the first of each cost, then the second of
    each, and so on.

    The first change is never left out. Of the second of each cost, those that take fewer lines come
    first. `lines` are how many each of them takes, and `room` how many there are for all.
    """
    costs = [change.cost for change in changes]

    def worth(i: int) -> tuple[int, int, int]:
        earlier = costs[:i].count(costs[i])
        return earlier, lines[i] if earlier else 0, i

    kept = [0]
    for i in sorted(range(1, len(changes)), key=worth):
        if sum(lines[j] for j in (*kept, i)) <= room:
            kept.append(i)
    return tuple(changes[i] for i in sorted(kept))


def narrower_caches(result: FitResult) -> tuple[Suggestion, ...]:
    """Return what fits with each narrower dtype of the cache, the widest first, whether it is
    enough or not.
    """
    changes = _narrow_cache(result.resolved)
    return tuple(
        Suggestion(change.words, change.flag, fit(change.apply(result.request)))
        for change in changes
    )


def narrower_weights(request: FitRequest) -> Iterator[Suggestion]:
    """Yield the narrower dtypes of the weights with which the request fits, the widest first."""
    return _fitting(_narrow_weights(resolve(request)), request)


def _fitting(changes: Iterable[_Change], request: FitRequest) -> Iterator[Suggestion]:
    """Yield the changes that make the request fit, with what fits then."""
    for change in changes:
        try:
            result = fit(change.apply(request))
        except AttncalcError:  # this engine or this model does not support it
            continue
        if result.verdict == "fits":
            yield Suggestion(change.words, change.flag, result, change.cost)


def _kinds(*, with_share: bool) -> list[_Kind]:
    if with_share:
        return list(_ON_THE_SAME_GPUS)
    return [kind for kind in _ON_THE_SAME_GPUS if kind is not _larger_share]


def _works(change: _Change, request: FitRequest) -> bool:
    return possible_verdict(change.apply(request)) == "fits"


def _both(one: _Change, other: _Change) -> _Change:
    return _Change(
        f"{one.words}, {other.words}",
        f"{one.flag} {other.flag}",
        {**one.fields, **other.fields},
        {**one.workload, **other.workload},
        {**one.engine_args, **other.engine_args},
        max(one.cost, other.cost),
    )


def _largest_of(kinds: Iterable[Sequence[_Change]]) -> _Change:
    """Return the largest changes of all kinds together."""
    return reduce(_both, (changes[-1] for changes in kinds))


def _together(
    kinds: Sequence[Sequence[_Change]], request: FitRequest, most: int | None = None
) -> Iterator[_Change]:
    """Yield MAX_PAIRS combinations of as few kinds of changes as possible that make the request fit
    together.

    At most one combination for the same kinds. The largest changes are tried first, of all kinds
    and then of those that are combined: if they are not enough, smaller or fewer ones are not
    either. `kinds` are the changes of each kind from the smallest to the largest, none of which is
    enough alone; `most` kinds are combined, by default all.
    """

    def of_size(size: int) -> Iterator[_Change]:
        for chosen in combinations(kinds, size):
            *smaller, largest = (reduce(_both, changes) for changes in product(*chosen))
            if _works(largest, request):
                yield next((change for change in smaller if _works(change, request)), largest)

    if len(kinds) < 2 or not _works(_largest_of(kinds), request):
        return
    for size in range(2, (most or len(kinds)) + 1):
        found = list(islice(of_size(size), MAX_PAIRS))
        if found:
            yield from found
            return


def _with(kind: _Kind, changes: Sequence[_Change], request: FitRequest) -> Iterator[_Change]:
    """Yield each of the changes together with those of a kind."""
    for change in changes:
        try:
            yield from (_both(change, other) for other in kind(resolve(change.apply(request))))
        except AttncalcError:  # this engine or this model does not support it
            continue


# The changes on the same GPUs, each kind from the smallest change to the largest


def _smaller_steps(resolved: ResolvedRequest) -> Iterator[_Change]:
    """Yield smaller passes: they hold fewer logits and activations."""
    if resolved.gpu is None:
        return
    for step in resolved.engine.smaller_steps(resolved.args, resolved.workload.batch):
        yield _Change(step.words, step.flag, engine_args=step.args)


def _fewer_requests(resolved: ResolvedRequest) -> Iterator[_Change]:
    """Yield fewer running requests, not fewer than the batch of all ranks, if each of them takes
    memory of its own.
    """
    for requests in resolved.engine.fewer_requests(resolved.args):
        if resolved.workload.batch * resolved.args.attn_dp <= requests:
            args = {"max_running_requests": requests}
            yield _Change(
                plural(requests, "running request"),
                f"--max-running-requests {requests}",
                engine_args=args,
            )


def _without_graphs(resolved: ResolvedRequest) -> Iterator[_Change]:
    option = resolved.engine.without_graphs
    if option and resolved.gpu and not getattr(resolved.args, option):
        yield _with_flag("no CUDA graphs", option)


def _text_only(resolved: ResolvedRequest) -> Iterator[_Change]:
    """Yield the model without its towers, which changes nothing for users who send text."""
    option = resolved.engine.text_only(resolved.args)
    if option and resolved.gpu and resolved.model.towers:
        yield _with_flag("text only", option)


def _with_flag(words: str, option: str) -> _Change:
    return _Change(words, long_option(option), engine_args={option: True})


def _larger_share(resolved: ResolvedRequest) -> Iterator[_Change]:
    if resolved.gpu and resolved.gpu.shares_with_host:  # even the default share may not start
        return
    for text in resolved.engine.larger_shares:
        larger = parse_share(text, "")
        share = resolved.share
        if share and larger.numerator * share.denominator > share.numerator * larger.denominator:
            yield _Change(
                f"{text} of the GPU's memory",
                f"{share.option} {text}",
                {"gpu_memory_utilization": text},
            )


def _narrow_cache(resolved: ResolvedRequest) -> Iterator[_Change]:
    bits = max(each.bits for each in resolved.engine.cache_dtypes(resolved.args))
    of_k_or_v = {"kv_dtype_k": None, "kv_dtype_v": None}
    for name in resolved.engine.narrower_cache_dtypes:
        if dtype(name).bits < bits:
            cost = _CACHE if dtype(name).bits >= 8 else _ROUGH
            yield _Change(
                f"a cache in {name}", f"--kv-dtype {name}", {}, {"kv_dtype": name}, of_k_or_v, cost
            )


def _narrow_weights(
    resolved: ResolvedRequest, names: Sequence[str] | None = None
) -> Iterator[_Change]:
    """Yield weights in narrower dtypes: in those of `names`, by default the engine's."""
    # the memory for the cache was given: smaller weights do not change it
    if resolved.share is None:
        return
    stored = resolved.request.model.stored
    if stored and stored.kind == "GGUF":  # another file has other weights
        return
    in_half = None
    if resolved.args.dtype.name == "fp32":
        half = half_dtype(resolved.request, resolved.engine)
        if half:
            in_half = _Change(
                f"computing in {half}", f"--dtype {half}", workload={"dtype": half}, cost=_CACHE
            )
            yield in_half
    current = file_type(resolved.model) or resolved.weights_dtype or resolved.args.dtype.name
    if names is None:
        names = resolved.engine.narrower_weight_dtypes
    for name in names:
        bits = weight_bits(name)
        if bits < weight_bits(current):
            change = _Change(
                f"weights in {name}",
                f"--weights-dtype {name}",
                {"weights_dtype": name},
                cost=_WEIGHTS if bits >= 4 else _ROUGH,
            )
            if in_half:  # kernels of quantized weights compute in 16 bits
                change = _both(in_half, change)
            yield change


def _on_host(resolved: ResolvedRequest, option: str) -> Iterator[_Change]:
    """Yield the fewest layers on the host, or the fewest whose experts are."""
    # then the host's memory is the GPU's too
    is_shared = resolved.gpu is not None and resolved.gpu.unified
    if option in resolved.engine.offload_options and resolved.share and not is_shared:
        changed = with_least_offload(resolved.request, option)
        if changed:
            layers = changed.engine_args[option]
            words = resolved.engine.offload_options[option].format(plural(layers, "layer"))
            flag = f"{long_option(option)} {layers}"
            yield _Change(words, flag, engine_args={option: layers}, cost=_HOST)


# The kinds of changes that need no other GPUs, in words. A larger share is late: the engine may run
# out of memory later. Layers in host memory come after them: they are slow.
_ON_THE_SAME_GPUS: dict[_Kind, str] = {
    _smaller_steps: "fewer sequences or tokens per step",
    _fewer_requests: "fewer running requests",
    _without_graphs: "no CUDA graphs",
    _text_only: "text only",
    _narrow_cache: "a narrower cache",
    _narrow_weights: "narrower weights",
    _larger_share: "a larger share of the GPU's memory",
}
# Those that change no answer and no length.
_FREE = frozenset({_smaller_steps, _fewer_requests, _without_graphs, _text_only, _larger_share})


# Other changes


def _other_split(resolved: ResolvedRequest) -> Iterator[_Change]:
    """Yield other splits of the same GPUs: attention on ranks of its own, then fewer copies of the
    model.
    """
    request = resolved.request
    args = resolved.args
    gpus = resolved.gpus
    if resolved.gpu is None or resolved.whole_layers or gpus == 1 or args.attn_dp > 1:
        return
    # the ranks share the experts
    if resolved.engine.ranks_share_tp and resolved.dp > 1 and request.model.has_experts:
        tp = args.tp * resolved.dp
        fields = {"tp": tp, "attn_dp": resolved.dp, "dp": 1}
        yield _Change(
            "DP attention instead of replicas", f"--tp {tp} --enable-dp-attention", fields
        )
    if "MLA" in args.attentions:  # tensor parallelism only makes copies of latents
        ranks = resolved.engine.attention_ranks(args, resolved.dp)
        if ranks and request.model.has_experts:
            yield _Change("DP attention", ranks[0], {**ranks[1], "gpus": gpus})
        if "dcp" in resolved.engine.splits and args.dcp == 1 < args.tp:
            yield _Change("decode context parallelism", f"--dcp {args.tp}", {"dcp": args.tp})
    if resolved.copies > 1:
        yield from _fewer_copies(resolved)


def _fewer_copies(resolved: ResolvedRequest) -> Iterator[_Change]:
    """Yield splits of the same GPUs with fewer copies of the model, on more GPUs each."""
    gpus = resolved.gpus
    for other in with_other_gpus(resolved):
        tp = other.tp or 1
        copy = tp * other.pp
        if resolved.devices < copy <= gpus and gpus % copy == 0:
            fields = {"tp": tp, "pp": other.pp}
            flag = f"--tp {tp}"
            if other.pp != resolved.args.pp:
                flag += f" --pp {other.pp}"
            if resolved.dp > 1:
                fields["dp"] = gpus // copy
                flag += f" --dp {gpus // copy}"
            yield _Change(plural(gpus // copy, "replica"), flag, {**fields, "gpus": gpus})


def _more_gpus(resolved: ResolvedRequest, below: int = NO_LIMIT) -> Iterator[_Change]:
    """Yield larger numbers of GPUs, the fewest first: --gpus 8 --tp 2, with as many replicas as the
    batch needs.

    GPUs of replicas that are there hold fewer copies first. Of equally many GPUs, those of one copy
    come before further replicas, if it is in one node. Only numbers `below` another one are tried.
    """
    current = resolved.devices * resolved.dp
    if resolved.whole_layers:
        current = resolved.gpus
    # (GPUs, whether a copy crosses nodes, whether there are more replicas, GPUs of a copy)
    waiting: list[tuple[tuple[int, bool, bool, int], _Change]] = []
    for request in with_other_gpus(resolved):
        copy = request.gpus or current
        if copy >= below:
            break
        # all that follow have at least the GPUs of this copy
        while waiting and waiting[0][0] < (copy,):
            yield from _if_enough(heappop(waiting)[1], resolved)
        if copy < current or (resolved.whole_layers and copy == current):
            continue
        needed = _copies(request, resolved.request.workload.batch)
        there = 1
        if not resolved.whole_layers and resolved.gpus % copy == 0:
            there = max(1, resolved.gpus // copy)
        gpus = copy * max(needed, there)
        # 32 GPUs as --tp 8 --pp 4 may hold what --tp 32 does not
        is_same_split = (request.tp, request.pp) == (resolved.args.tp, resolved.args.pp)
        is_one_copy = gpus == copy == current == resolved.gpus
        is_other_split = is_one_copy and not (resolved.whole_layers or is_same_split)
        is_more = resolved.gpus < gpus
        if needed and (is_more or is_other_split) and gpus < below:
            change = _on_gpus(request, gpus, copy, current, resolved)
            crosses_nodes = resolved.gpu is not None and copy > resolved.gpu.per_node
            heappush(waiting, ((gpus, crosses_nodes, needed > there, copy), change))
    while waiting:
        yield from _if_enough(heappop(waiting)[1], resolved)


def _on_gpus(
    request: FitRequest, gpus: int, copy: int, current: int, resolved: ResolvedRequest
) -> _Change:
    """Return the change to so many GPUs, of which each copy of the model has `copy`, instead of
    `current`.
    """
    if gpus == resolved.gpus:
        words = "another split of these GPUs"
    elif copy == current:
        words = plural(gpus // copy, "replica")
    elif copy == gpus:
        words = f"{count(gpus)} GPUs"
    else:
        words = f"{count(copy)} GPUs per replica"
    flag = f"--gpus {gpus}"
    if not resolved.whole_layers:
        flag += f" --tp {request.tp}"
    if request.pp > 1:
        flag += f" --pp {request.pp}"
    cost = _HARDWARE
    if gpus <= (resolved.request.gpus_there or 0):
        cost = 0
    return _Change(words, flag, {"gpus": gpus, "tp": request.tp, "pp": request.pp}, cost=cost)


def _if_enough(change: _Change, resolved: ResolvedRequest) -> Iterator[_Change]:
    # `_copies` has tried whole layers
    if resolved.whole_layers or _works(change, resolved.request):
        yield change


def _copies(request: FitRequest, batch: int) -> int:
    """Return how many copies of a request's GPUs hold the batch for sure; 0 if none do, or it is
    not possible.
    """
    try:
        resolved = resolve(request)
        if resolved.whole_layers:
            return int(possible_verdict(request) == "fits")
        sequences = sure_sequences(resolved)
        if sequences:
            return -(-batch // (sequences * resolved.replicas))
        return int(possible_verdict(request) == "fits")  # without a limit
    except AttncalcError:
        return 0


def _smaller_workload(resolved: ResolvedRequest) -> Iterator[_Change]:
    """Yield a shorter context, and a smaller batch."""
    context, batch = sure_limits(resolved)
    if context:
        words = f"{count(context)} tokens of context"
        yield _Change(words, f"--context {context}", workload={"context": context}, cost=_WORK)
    if batch:
        batch *= resolved.replicas
        yield _Change(
            plural(batch, "sequence"), f"--batch {batch}", workload={"batch": batch}, cost=_WORK
        )


def _is_much_less(change: _Change, request: FitRequest) -> bool:
    context = request.workload.context
    batch = request.workload.batch
    new = {"context": context, "batch": batch, **change.workload}
    return batch > 1 and (2 * new["context"] < context or 2 * new["batch"] < batch)


# Notes of the report


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
    flags, changes = ranks
    try:
        other = fit(dataclasses.replace(request, **changes, gpus=resolved.gpus))
    except AttncalcError:
        return None
    if other.fits:
        return AttentionRanks(flags, other)
    return AttentionRanks(flags, None)
