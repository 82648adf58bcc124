"""How fast a replica is at a load, and how large a load it serves within the targets of time."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable

from ...errors import AttncalcError
from ...records import NamedTuple
from ...search import first_true
from ...serving.load_bounds import LoadBounds, bounds_of_load
from ...serving.step_times import Constants, ServedLoad, best_case, constants_of, served_load
from .candidates import Candidate
from .demand import Demand

# Requests up to 2^20: all up to 32, and then 32 in each doubling.
_GRID = tuple(
    dict.fromkeys(
        [*range(1, 33), *(n << octave for octave in range(1, 16) for n in range(32, 64)), 1 << 20]
    )
)
# Requests with which an engine without a limit is bounded.
NO_USERS_LIMIT = 1 << 20


class Speed(NamedTuple):
    """How fast one replica is at a load: an estimate, and its bounds."""

    served: ServedLoad  # the estimate
    bounds: LoadBounds
    # whether published runs decided the constants, and not --efficiency or --measured
    is_published: bool


def constants(candidate: Candidate, demand: Demand) -> Constants:
    """Return the constants of a replica: those of --efficiency, or of published runs, scaled to
    --measured.
    """
    if demand.efficiency is not None:
        return best_case(float(demand.efficiency))
    known = constants_of(candidate.resolved)
    scale = demand.scales.get(candidate.gpu.rented)
    if scale is None:
        return known
    return known._replace(scale=scale)


def speed_of(candidate: Candidate, requests: int, demand: Demand) -> Speed | None:
    """Return how fast a replica is with so many concurrent requests; None without the GPU's FLOP/s,
    and with drafts.
    """
    load = candidate.load(requests, demand.network)
    try:
        bounds = bounds_of_load(candidate.resolved, load)
    except AttncalcError:
        return None
    known = constants(candidate, demand)
    served = served_load(candidate.resolved, load, known, candidate.computed)
    if served is None:
        return None
    return Speed(served, bounds, bool(known.runs) and known.scale == 1)


def estimate(candidate: Candidate, requests: int, demand: Demand) -> ServedLoad | None:
    """Return the estimate of `speed_of` alone, which a search asks for often."""
    load = candidate.load(requests, demand.network)
    known = constants(candidate, demand)
    return served_load(candidate.resolved, load, known, candidate.computed)


def most_in_time(is_quick: Callable[[int], bool], most: int | None) -> int:
    """Return the most requests, up to `most`, that are quick; 0 if none are.

    Times grow with the requests. Below `most` the answer is one of _GRID, at most 3 % fewer than
    are quick: GPUs and splits then ask for the same loads, which are computed once.
    """
    end = most or NO_USERS_LIMIT
    if is_quick(end):
        return end
    within = bisect_left(_GRID, end)
    late = first_true(lambda i: not is_quick(_GRID[i]), -1, within)
    return _GRID[late - 1] if late else 0


def missed_target(candidate: Candidate, requests: int, demand: Demand) -> str:
    """Return the option of the first target of time that so many concurrent requests miss, '--ttft'
    or '--tpot'; '' if they meet both.

    A replica whose speed is not known misses each target that was asked for.
    """
    served = estimate(candidate, requests, demand)
    if served is None and demand.ttft is None and demand.has_usual_tpot:
        return ""
    if demand.ttft is not None and (served is None or served.ttft > demand.ttft):
        return "--ttft"
    if demand.tpot is not None and (served is None or served.tpot > demand.tpot):
        return "--tpot"
    return ""


def within_times(candidate: Candidate, demand: Demand) -> Candidate | None:
    """Return a replica with no more requests than the targets of time allow; None if it serves none
    in that time.

    It is limited by the target that the next load would miss.
    """
    if not demand.has_times:
        return candidate
    most = candidate.capacity or NO_USERS_LIMIT
    if not missed_target(candidate, most, demand):
        return candidate
    quick = most_in_time(
        lambda requests: not missed_target(candidate, requests, demand), candidate.capacity
    )
    if not quick:
        return None
    missed = missed_target(candidate, min(most, _GRID[bisect_right(_GRID, quick)]), demand)
    worst = quick if candidate.worst_capacity is None else min(quick, candidate.worst_capacity)
    return candidate._replace(capacity=quick, worst_capacity=worst, limited_by=missed)


def load_served(candidate: Candidate, demand: Demand) -> float:
    """Return the users that a replica serves, or the requests per second if these are asked for.

    0 if it is too slow; infinite without a limit.
    """
    within = within_times(candidate, demand)
    if within is None:
        return 0.0
    if demand.rate is None:
        return within.capacity or math.inf
    return most_served(within, demand)


def requests_for_rate(candidate: Candidate, replicas: int, demand: Demand) -> int:
    """Return the fewest concurrent requests with which each of so many replicas keeps up with the
    rate.

    This is Little's law with the time at that load.
    """

    def is_enough(requests: int) -> bool:
        return _served(candidate, requests, demand) >= demand.load / replicas

    return first_true(is_enough, 0, candidate.capacity or NO_USERS_LIMIT)


def _served(candidate: Candidate, requests: int, demand: Demand) -> float:
    """Return the requests per second of a replica with so many concurrent ones; 0 if its speed is
    not known.
    """
    served = estimate(candidate, requests, demand)
    if served:
        return served.tokens_per_second / max(1, candidate.concurrency.traffic.output)
    return 0.0


def most_served(candidate: Candidate, demand: Demand) -> float:
    """Return the most requests per second of a replica, with as many concurrent ones as it runs."""
    return _served(candidate, candidate.capacity or NO_USERS_LIMIT, demand)
