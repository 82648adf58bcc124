"""The load of a running server, as its log prints it: how many such requests its cache holds, and what holds more."""

from __future__ import annotations

import dataclasses

from ..engines.startup_log import Load, LogMemory, StartupLog
from ..records import NamedTuple
from .fit import FitResult, fit
from .log_check import without_gpu
from .request import FitRequest, LoggedExcess, resolve
from .suggestions import Suggestion, narrower_caches, suggestions


class LoadState(NamedTuple):
    """How a server copes with its requests."""

    load: Load  # what the log prints
    tokens_per_request: int  # tokens that a running request holds on average
    fitting: int  # how many such requests the cache holds
    # The changes with which the cache holds more, the cheapest first: a narrower cache, and others if they make it hold
    # all that run and wait. () if it does already
    changes: tuple[Suggestion, ...]


def load_state(request: FitRequest, log: StartupLog, memory: LogMemory | None, tokens: int) -> LoadState | None:
    """Return the state of the load; None if the log has none, or no memory for the cache.

    Args:
        request: The request with the GPU, if it is known; without one only changes of the cache can be computed.
        log: What the engine printed.
        memory: The memory for the cache that it printed, or that follows from its figures.
        tokens: The tokens that the cache holds in that memory.

    Raises AttncalcError as `fit` does.
    """
    load = log.load
    if load is None or memory is None:
        return None
    request = dataclasses.replace(request, traffic=None)  # the requests are those of the log
    per_request = max(1, min(request.workload.context, round(load.usage * tokens / load.running)))
    if request.gpu:
        estimate = fit(request)
        excess = LoggedExcess(estimate.budget.room() - memory.printed, estimate.resolved.devices)
        logged = dataclasses.replace(request, logged_excess=excess)
    else:
        logged = without_gpu(request, memory.printed)
    requests = (load.running + load.waiting) * resolve(logged).replicas  # a log counts those of one replica
    everything = fit(logged.with_workload(batch=requests, context=per_request))
    return LoadState(load, per_request, tokens // per_request, _more_room(everything))


def _more_room(everything: FitResult) -> tuple[Suggestion, ...]:
    """Return the changes for these requests: not for fewer or for shorter ones."""
    if everything.verdict == "fits":
        return ()
    narrower = narrower_caches(everything)[:1]
    others = [change for change in suggestions(everything) if not change.flag.startswith(("--context", "--batch"))]
    return (*narrower, *(change for change in others if change.flag not in {known.flag for known in narrower}))
