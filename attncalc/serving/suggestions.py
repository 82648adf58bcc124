"""Changes that would make a workload fit. `fit` recalculates each changed request."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice, takewhile
from typing import NamedTuple

from ..errors import AttncalcError
from ..model import plural
from ..units import count, dtype
from .expert_parallel import has_experts
from .fit import FitRequest, FitResult, fit, possible_verdict, sure_limits, with_other_gpus
from .gpu_layers import with_experts_on_host, with_layers_on_host
from .request import ResolvedRequest, resolve
from .reserve import parse_share
from .weights import as_weights

MAX_PAIRS = 2
"""Pairs of changes that are suggested, and the single changes of which as many make a pair unnecessary."""

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
    """A change that has not been tried yet; `apply` returns the changed request."""

    words: str
    flag: str
    apply: Callable[[FitRequest], FitRequest]


def suggestions(result: FitResult) -> tuple[Suggestion, ...]:
    """Return the changes that make the request fit for sure, the cheapest first; () if it does already, or none helps.

    Changes on the same GPUs come first: each alone, a narrower cache with narrower weights, and two together of which
    neither is enough. More GPUs, a shorter context and a smaller batch follow.
    """
    if result.verdict == "fits":
        return ()
    resolved, request = result.resolved, result.request
    kinds = [list(kind(resolved)) for kind in _ON_THE_SAME_GPUS]
    too_small = [list(takewhile(lambda change: not _works(change, request), kind)) for kind in kinds]
    enough = {
        kind: changes[len(small)]
        for kind, changes, small in zip(_ON_THE_SAME_GPUS, kinds, too_small, strict=True)
        if len(small) < len(changes)
    }
    single, pairs = list(enough.values()), []
    if len(single) < MAX_PAIRS:
        pairs = list(islice(_pairs(too_small, request), MAX_PAIRS))
    elif _narrow_cache in enough and _narrow_weights in enough:
        pairs = [_both(enough[_narrow_cache], enough[_narrow_weights])]
    gpus = list(islice(_more_gpus(resolved), 1))
    if not (gpus or single or pairs):
        gpus = list(islice(_more_gpus_with_a_narrow_cache(resolved), 1))
    changes = [
        *single,
        *pairs,
        *_ranks_of_attention(resolved),
        *gpus,
        *_shorter_context(result),
        *_smaller_batch(result),
    ]
    return tuple(_fitting(changes, request))


def with_fewest_options(changes: Sequence[Suggestion], lines: Sequence[int], room: int) -> tuple[Suggestion, ...]:
    """Return the changes that a screen has room for; those with the longest options are left out first.

    The first change is never left out.

    Args:
        changes: One change or more.
        lines: How many lines each of them takes.
        room: How many lines there are for all.
    """
    kept = [0]
    for i in sorted(range(1, len(changes)), key=lambda i: len(changes[i].flag)):
        if sum(lines[j] for j in (*kept, i)) > room:
            break
        kept.append(i)
    return tuple(changes[i] for i in sorted(kept))


def _fitting(changes: Iterable[_Change], request: FitRequest) -> Iterator[Suggestion]:
    """Yield the changes that make the request fit, with what fits then."""
    for change in changes:
        try:
            result = fit(change.apply(request))
        except AttncalcError:  # this engine or this model does not support it
            continue
        if result.verdict == "fits":
            yield Suggestion(change.words, change.flag, result)


def _works(change: _Change, request: FitRequest) -> bool:
    return possible_verdict(change.apply(request)) == "fits"


def _both(one: _Change, other: _Change) -> _Change:
    return _Change(
        f"{one.words}, {other.words}", f"{one.flag} {other.flag}", lambda request: other.apply(one.apply(request))
    )


def _pairs(kinds: Sequence[Sequence[_Change]], request: FitRequest) -> Iterator[_Change]:
    """Yield two changes that make the request fit together, at most one pair for every two kinds of changes."""
    for first, second in combinations(kinds, 2):
        pairs = (_both(one, other) for one in first for other in second)
        yield from islice((pair for pair in pairs if _works(pair, request)), 1)


# The changes on the same GPUs, each kind from the smallest change to the largest


def _fewer_sequences(resolved: ResolvedRequest) -> Iterator[_Change]:
    """Yield smaller limits of a step: the sampler holds the logits of all its sequences.

    The tokens of a step are named too, since a default that is only assumed widens the range.
    """
    limits = resolved.limits(resolved.workload.batch, resolved.workload.context)
    for sequences in resolved.engine.fewer_sequences:
        if limits is not None and resolved.workload.batch <= sequences < limits.sequences:
            changes = {"max_num_seqs": sequences, "max_num_batched_tokens": min(limits.tokens, _FEW_TOKENS)}
            flag = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in changes.items())
            yield _Change(f"{plural(sequences, 'sequence')} per step", flag, _with_limits(changes))


def _with_limits(changes: Mapping[str, int]) -> Callable[[FitRequest], FitRequest]:
    return lambda request: request.with_engine_args(**changes)


def _larger_share(resolved: ResolvedRequest) -> Iterator[_Change]:
    for text in resolved.engine.larger_shares:
        larger, share = parse_share(text, ""), resolved.share
        if share and larger.numerator * share.denominator > share.numerator * larger.denominator:
            yield _Change(f"{text} of the GPU's memory", f"{share.option} {text}", _with_share(text))


def _with_share(text: str) -> Callable[[FitRequest], FitRequest]:
    return lambda request: dataclasses.replace(request, gpu_memory_utilization=text)


def _narrow_cache(resolved: ResolvedRequest) -> Iterator[_Change]:
    bits = max(each.bits for each in resolved.engine.cache_dtypes(resolved.args))
    for name in resolved.engine.narrower_cache_dtypes:
        if dtype(name).bits < bits:
            yield _Change(f"a cache in {name}", f"--kv-dtype {name}", _with_cache_dtype(name))


def _with_cache_dtype(name: str) -> Callable[[FitRequest], FitRequest]:
    return lambda request: request.with_workload(kv_dtype=name).with_engine_args(kv_dtype_k=None, kv_dtype_v=None)


def _narrow_weights(resolved: ResolvedRequest) -> Iterator[_Change]:
    if resolved.share is None:  # the memory for the cache was given: smaller weights do not change it
        return
    stored = resolved.request.model.stored
    if stored and stored.kind == "GGUF":  # another file has other weights
        return
    bits = as_weights(resolved.weights_dtype or resolved.args.dtype.name).bits
    for name in resolved.engine.narrower_weight_dtypes:
        if as_weights(name).bits < bits:
            yield _Change(f"weights in {name}", f"--weights-dtype {name}", _with_weights_dtype(name))


def _with_weights_dtype(name: str) -> Callable[[FitRequest], FitRequest]:
    return lambda request: dataclasses.replace(request, weights_dtype=name)


def _experts_on_host(resolved: ResolvedRequest) -> Iterator[_Change]:
    """Yield the fewest layers whose experts llama.cpp must leave in host memory."""
    if resolved.whole_layers:
        changed = with_experts_on_host(resolved.request)
        if changed:
            layers = changed.engine_args["n_cpu_moe"]
            yield _Change(f"experts of {plural(layers, 'layer')} on the host", f"--n-cpu-moe {layers}", _as(changed))


def _layers_on_host(resolved: ResolvedRequest) -> Iterator[_Change]:
    """Yield the most layers that llama.cpp can put on the GPUs."""
    if resolved.whole_layers and resolved.share:
        changed = with_layers_on_host(resolved.request)
        if changed:
            layers = changed.engine_args["n_gpu_layers"]
            yield _Change(f"{plural(layers, 'layer')} on GPUs", f"--n-gpu-layers {layers}", _as(changed))


def _as(changed: FitRequest) -> Callable[[FitRequest], FitRequest]:
    return lambda request: dataclasses.replace(request, engine_args=changed.engine_args)


_ON_THE_SAME_GPUS = (_fewer_sequences, _narrow_cache, _narrow_weights, _larger_share, _experts_on_host, _layers_on_host)
"""The kinds of changes that need no other GPUs. A larger share is late: the engine may run out of memory later. Layers
in host memory are last: they are slow."""


# Other changes


def _ranks_of_attention(resolved: ResolvedRequest) -> Iterator[_Change]:
    """Yield ranks that divide the experts instead of SGLang's replicas of a mixture, on the same GPUs."""
    if resolved.engine.ranks_share_tp and resolved.dp > 1 and has_experts(resolved.request.model):
        tp, ranks = resolved.args.tp * resolved.dp, resolved.dp
        yield _Change(
            "DP attention instead of replicas",
            f"--tp {tp} --enable-dp-attention",
            lambda request: dataclasses.replace(request, tp=tp, attn_dp=ranks, dp=1),
        )


def _more_gpus(resolved: ResolvedRequest) -> Iterator[_Change]:
    """Yield larger numbers of GPUs for one copy of the model; GPUs of replicas are used first: --gpus 8 --tp 2."""
    current = resolved.gpus if resolved.whole_layers else resolved.devices * resolved.dp
    for request in with_other_gpus(resolved):
        gpus = request.gpus or current
        if gpus > current and possible_verdict(request) == "fits":
            replicas = 1 if resolved.whole_layers or resolved.gpus % gpus else resolved.gpus // gpus
            tp = "" if resolved.whole_layers else f" --tp {request.tp}"
            pp = f" --pp {request.pp}" if request.pp > 1 else ""
            words = f"{count(gpus)} GPUs{' per replica' if replicas > 1 else ''}"
            flag = f"--gpus {gpus * replicas}{tp}{pp}"
            yield _Change(words, flag, _on_gpus_of(dataclasses.replace(request, gpus=gpus * replicas)))


def _on_gpus_of(other: FitRequest) -> Callable[[FitRequest], FitRequest]:
    return lambda request: dataclasses.replace(request, gpus=other.gpus, tp=other.tp, pp=other.pp)


def _more_gpus_with_a_narrow_cache(resolved: ResolvedRequest) -> Iterator[_Change]:
    for cache in _narrow_cache(resolved):
        for more in _more_gpus(resolve(cache.apply(resolved.request))):
            yield _both(cache, more)


def _shorter_context(result: FitResult) -> Iterator[_Change]:
    context, _ = sure_limits(result.resolved)
    if context:
        words = f"{count(context)} tokens of context"
        yield _Change(words, f"--context {context}", lambda request: request.with_workload(context=context))


def _smaller_batch(result: FitResult) -> Iterator[_Change]:
    _, batch = sure_limits(result.resolved)
    if batch:
        yield _Change(plural(batch, "sequence"), f"--batch {batch}", lambda request: request.with_workload(batch=batch))
