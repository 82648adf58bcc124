"""How a running server copes with its requests, by its log and the sizes of the model."""

import dataclasses

from ..records import NamedTuple
from ..serving.fit import FitResult, fit
from ..serving.request import FitRequest, resolve
from ..serving.suggestions import Suggestion, narrower_caches, suggestions
from .comparison import without_gpu
from .doctor import logged_excess
from .startup_log import Load, LogMemory, StartupLog


class LoadState(NamedTuple):
    """How a server copes with its requests, or with as many as are asked for."""

    load: Load | None  # what the log prints
    # tokens that a running request holds on average; the context without a load
    tokens_per_request: int
    fitting: int  # how many such requests the caches of all replicas hold
    requests: int  # how many there are: the batch, or those that run and wait
    is_asked: bool  # whether they are the batch, or one that is longer than the cache
    # tokens of the longest request, if the server runs with a cache for less than its context
    longest: int | None
    # The changes with which the cache holds more, the cheapest first: a narrower cache, and others
    # if they make it hold all requests. () if it does already
    changes: tuple[Suggestion, ...]


def load_state(
    request: FitRequest, log: StartupLog, memory: LogMemory | None, tokens: int
) -> LoadState | None:
    """Return the state of the load; None if there is neither a load nor a batch, or no memory for
    the cache.

    Args:
        request: The request with the GPU, if it is known; without one only changes of the cache can
            be computed.
        log: What the engine printed.
        memory: The memory for the cache that it printed, or that follows from its figures.
        tokens: The tokens that the cache holds in that memory.

    Raises AttncalcError as `fit` does.
    """
    load = log.load
    if memory is None:
        return None
    longest = None
    if load is None:
        longest = fit(without_gpu(request, memory.printed)).longest_request
    batch = request.workload.batch
    # a log's number of slots becomes the batch too, and nobody asks for it
    slots = int(request.engine_args.get("sequences") or 1)
    is_asked = longest is not None or batch > slots
    if load is None and not is_asked:
        return None
    request = dataclasses.replace(request, traffic=None)  # the requests are those of the log
    per_request = _tokens_per_request(load, request.workload.context, tokens)
    logged = _with_logged_memory(request, memory)
    replicas = resolve(logged).replicas  # a log counts the requests of one
    requests = batch
    if load and not is_asked:
        requests = (load.running + load.waiting) * replicas
    everything = fit(logged.with_workload(batch=requests, context=per_request))
    return LoadState(
        load=load,
        tokens_per_request=per_request,
        fitting=tokens // per_request * replicas,
        requests=requests,
        is_asked=is_asked,
        longest=longest,
        changes=_more_room(everything, with_shorter=longest is not None),
    )


def _tokens_per_request(load: Load | None, context: int, tokens: int) -> int:
    """Return the tokens that a running request holds on average, from 1 to the context.

    Example: 4 requests that run use half of a cache of 80,000 tokens, so each has 10,000.
    """
    if load is None:
        return context
    held = round(load.usage * tokens / max(1, load.running))
    return max(1, min(context, held))


def _with_logged_memory(request: FitRequest, memory: LogMemory) -> FitRequest:
    """Return the request with the log's memory for the cache: on the GPU, or without one."""
    if request.gpu is None:
        return without_gpu(request, memory.printed)
    estimate = fit(request)
    excess = logged_excess(estimate, estimate.budget.room() - memory.printed)
    return dataclasses.replace(request, logged_excess=excess)


def _more_room(everything: FitResult, *, with_shorter: bool) -> tuple[Suggestion, ...]:
    """Return the changes with which the cache holds more: a narrower cache, enough or not, and
    those that make it hold all requests.

    Args:
        everything: What fits of all requests.
        with_shorter: Whether a shorter context is a change too: one request exceeds the cache.
            Fewer requests are none.
    """
    if everything.verdict == "fits":
        return ()
    left_out: tuple[str, ...] = ("--batch", "--context")
    if with_shorter:
        left_out = ("--batch",)
    changes = list(narrower_caches(everything)[:1])
    known = {change.flag for change in changes}
    for change in suggestions(everything):
        if not change.flag.startswith(left_out) and change.flag not in known:
            changes.append(change)
    return tuple(changes)
