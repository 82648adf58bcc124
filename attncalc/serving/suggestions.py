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
    if free := resolved.free_share:
        words = f"{free} of the GPU's memory"
        flag = f"{resolved.engine.share_option} {free}"
        left = dataclasses.replace(request, gpu_memory_utilization=free)
        return tuple(_first(words, flag, fit(left)))
    if (
        result.refusal
        and (budget := budget_without_kv_memory(resolved))
        and budget.kv_memory_high < (request.kv_memory or 0)
        and (size := budget.kv_memory_low // GIB * GIB)
    ):
        left = dataclasses.replace(request, kv_memory=size)
        return tuple(
            _first(f"{size // GIB} GiB for the cache", f"--kv-memory {size // GIB}GiB", fit(left))
        )
    same_gpus, too_small = _on_the_same_gpus(resolved, with_share=with_share)
    same_gpus = [*_on_other_splits(resolved, same_gpus, with_share=with_share), *same_gpus]
    gpus = list(islice(_more_gpus(resolved), 1))
    smaller = list(_smaller_workload(resolved))
    everything = [_largest_of(too_small)] if too_small else []
    if not (gpus or same_gpus):
        one = (changes[-1] for changes in too_small)
        gpus = list(
            islice(_with(_more_gpus, [*_narrow_cache(resolved), *one, *everything], request), 1)
        )
    most = gpus[0].fields["gpus"] if gpus else 0
    fewer_gpus = (fewer for fewer in with_other_gpus(resolved) if (fewer.gpus or 1) < most)
    if gpus and any(possible_verdict(fewer) == "may_not_fit" for fewer in fewer_gpus):
        unnoticed = [
            change
            for kind in _kinds(with_share=False)
            if kind in _FREE
            for change in kind(resolved)
        ]
        unnoticed_fewer = _with(partial(_more_gpus, below=most), unnoticed, request)
        gpus = [min((*gpus, *unnoticed_fewer), key=lambda change: change.fields["gpus"])]
    if gpus:
        fewer = _with(
            partial(_more_gpus, below=gpus[0].fields["gpus"]),
            list(_narrow_weights(resolved)),
            request,
        )
        gpus += islice(fewer, 1)
    if not (same_gpus or (smaller and result.refusal)):
        weights = [] if result.refusal else list(_narrow_weights(resolved))
        # they leave more of the context
        both = list(map(_both, _narrow_cache(resolved), weights))[:1]
        others = both if smaller else [*weights, *both, *everything]
        smaller += islice(_with(_smaller_workload, others, request), 2 - bool(smaller))
    changes = [
        *same_gpus,
        *(change for change in smaller if not (gpus and _is_much_less(change, request))),
        *gpus,
    ]
    found = tuple(_fitting(sorted(changes, key=lambda change: change.cost), request))
    narrowest = _fitting(
        _narrow_weights(resolved, resolved.engine.narrowest_weight_dtypes), request
    )
    return (
        found
        or tuple(islice(narrowest, 1))
        or tuple(_with_possible_context(result, with_share=with_share))
    )


def _first(words: str, flag: str, changed: FitResult) -> Iterator[Suggestion]:
    """Yield a change without which nothing starts, alone if it is enough, or with the changes that
    it needs.
    """
    if changed.verdict == "fits":
        yield Suggestion(words, flag, changed)
    for change in suggestions(changed, with_share=False):
        yield change._replace(change=f"{words}, {change.change}", flag=f"{flag} {change.flag}")


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
    usual = (
        resolve(dataclasses.replace(request, gpu_memory_utilization=None)).share
        if resolved.share
        else None
    )
    share = resolved.share  # the default costs nothing
    if (
        share
        and usual
        and share.numerator * usual.denominator < usual.numerator * share.denominator
    ):
        kinds.sort(key=lambda kind: kind is not _larger_share)
    for kind in (*kinds, *offload):
        for change in kind(resolved):
            verdict = possible_verdict(change.apply(request))
            if verdict == "fits":
                enough[kind] = change
                break
            if verdict:
                too_small.setdefault(kind, []).append(change)
    single, free, all_kinds = list(enough.values()), list[_Change](), list(too_small.values())
    if not enough.keys() & _FREE:
        free = list(
            _together([too_small[kind] for kind in too_small if kind in _FREE], request, most=2)
        )[:1]
    pairs = []
    if not (single or free):
        with_weights = (_with(kind, list(_narrow_weights(resolved)), request) for kind in offload)
        pairs = list(_together(all_kinds, request)) or list(
            islice(chain.from_iterable(with_weights), 1)
        )
    elif len(single) + len(free) < MAX_PAIRS:
        pairs = [pair for pair in _together(all_kinds, request, most=2) if pair not in free]
    elif _narrow_cache in enough and _narrow_weights in enough:
        pairs = [_both(enough[_narrow_cache], enough[_narrow_weights])]
    return [*free, *single, *pairs], all_kinds


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
    words = [
        _ON_THE_SAME_GPUS[kind]
        for kind in _kinds(with_share=with_share)
        if any(True for _ in kind(resolved))
    ]
    if resolved.share and resolved.gpu:
        has_host = resolved.engine.offload_options and not (
            resolved.gpu.is_cpu or resolved.gpu.unified
        )
        words += ["layers on the host"] if has_host else []
        words += ["more GPUs"] if any(True for _ in with_other_gpus(resolved)) else []
    words += ["a shorter context", *(["a smaller batch"] if resolved.workload.batch > 1 else [])]
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
    earlier = [costs[:i].count(cost) for i, cost in enumerate(costs)]
    kept = [0]
    for i in sorted(
        range(1, len(changes)), key=lambda i: (earlier[i], lines[i] * (earlier[i] > 0), i)
    ):
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
    return [kind for kind in _ON_THE_SAME_GPUS if with_share or kind is not _larger_share]


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
    sizes = range(2, (most or len(kinds)) + 1)
    yield from next(filter(None, (list(islice(of_size(size), MAX_PAIRS)) for size in sizes)), [])


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
    if resolved.args.dtype.name == "fp32":
        half = half_dtype(resolved.request, resolved.engine)
    else:
        half = None
    if half:
        yield (
            in_half := _Change(
                f"computing in {half}", f"--dtype {half}", workload={"dtype": half}, cost=_CACHE
            )
        )
    bits = weight_bits(
        file_type(resolved.model) or resolved.weights_dtype or resolved.args.dtype.name
    )
    for name in resolved.engine.narrower_weight_dtypes if names is None else names:
        if weight_bits(name) < bits:
            cost = _WEIGHTS if weight_bits(name) >= 4 else _ROUGH
            change = _Change(
                f"weights in {name}", f"--weights-dtype {name}", {"weights_dtype": name}, cost=cost
            )
            # kernels of quantized weights compute in 16 bits
            yield _both(in_half, change) if half else change


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
    for other in with_other_gpus(resolved) if resolved.copies > 1 else ():
        tp = other.tp or 1
        copy = (other.tp or 1) * other.pp
        if resolved.devices < copy <= gpus and gpus % copy == 0:
            fields = {"tp": tp, "pp": other.pp}
            if resolved.dp > 1:
                fields["dp"] = gpus // copy
            flag = " ".join(
                f"--{name} {n}" for name, n in fields.items() if name != "pp" or n != args.pp
            )
            yield _Change(plural(gpus // copy, "replica"), flag, {**fields, "gpus": gpus})


def _more_gpus(resolved: ResolvedRequest, below: int = NO_LIMIT) -> Iterator[_Change]:
    """Yield larger numbers of GPUs, the fewest first: --gpus 8 --tp 2, with as many replicas as the
    batch needs.

    GPUs of replicas that are there hold fewer copies first. Of equally many GPUs, those of one copy
    come before further replicas, if it is in one node. Only numbers `below` another one are tried.
    """
    current = resolved.gpus if resolved.whole_layers else resolved.devices * resolved.dp
    waiting: list[tuple[tuple[int, bool, bool, int], _Change]] = []
    for request in with_other_gpus(resolved):
        copy = request.gpus or current
        if resolved.whole_layers or resolved.gpus % copy:
            there = 1
        else:
            there = max(1, resolved.gpus // copy)
        if copy >= below:
            break
        # all that follow have at least the GPUs of this copy
        while waiting and waiting[0][0] < (copy,):
            yield from _if_enough(heappop(waiting)[1], resolved)
        is_less = copy < current or (resolved.whole_layers and copy == current)
        needed = 0 if is_less else _copies(request, resolved.request.workload.batch)
        gpus = copy * max(needed, there)
        if not needed or not resolved.gpus < gpus < below:
            continue
        tp = "" if resolved.whole_layers else f" --tp {request.tp}"
        pp = f" --pp {request.pp}" if request.pp > 1 else ""
        if gpus == copy:
            words = f"{count(gpus)} GPUs"
        else:
            words = f"{count(copy)} GPUs per replica"
        if copy == current:
            words = plural(gpus // copy, "replica")
        fields = {"gpus": gpus, "tp": request.tp, "pp": request.pp}
        cost = 0 if gpus <= (resolved.request.gpus_there or 0) else _HARDWARE
        change = _Change(words, f"--gpus {gpus}{tp}{pp}", fields, cost=cost)
        crosses_nodes = resolved.gpu is not None and copy > resolved.gpu.per_node
        heappush(waiting, ((gpus, crosses_nodes, needed > there, copy), change))
    while waiting:
        yield from _if_enough(heappop(waiting)[1], resolved)


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
        if sequences := sure_sequences(resolved):
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
    return AttentionRanks(flags, other if other.fits else None)
