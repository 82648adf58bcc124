"""How fast a replica is at a load, and how large a load it serves within the targets of time."""

import itertools
import math
from collections.abc import Callable

from ...errors import AttncalcError
from ...quantity import Ratio, ratio, symbol
from ...records import NamedTuple
from ...search import first_true
from ...serving.load_bounds import LoadBounds, bounds_of_load
from ...serving.published import LOADS, PublishedRange, published_range
from .candidates import Candidate
from .demand import Demand

# Requests with which an engine without a limit is bounded.
NO_USERS_LIMIT = 1 << 20


class Speed(NamedTuple):
    """How fast one replica is at a load: the planning figures of `LoadBounds`, at the part of them
    that is reached.
    """

    ttft: Ratio  # seconds to the first token of a request that waits for no other
    tpot: Ratio  # seconds per output token
    tokens_per_second: Ratio  # output tokens per second of all its requests
    bounds: LoadBounds
    # the published runs whose median is that part; None with an efficiency
    runs: PublishedRange | None


def reached(
    candidate: Candidate, requests: int, demand: Demand
) -> tuple[Ratio, PublishedRange | None]:
    """Return the part of the best case that a replica reaches with so many requests, and the runs
    of which it is.

    It is the demand's efficiency, or what the median of published runs reached; all of it without
    such runs.
    """
    if demand.efficiency is not None:
        return demand.efficiency, None
    runs = published_range(candidate.resolved, candidate.load(requests))
    return ratio(round(1000 * runs.median) if runs else 1000, 1000), runs


def speed_of(candidate: Candidate, requests: int, demand: Demand) -> Speed | None:
    """Return how fast a replica is with so many concurrent requests; None without the GPU's
    FLOP/s.
    """
    try:
        bounds = bounds_of_load(candidate.resolved, candidate.load(requests))
    except AttncalcError:
        return None
    ttft = bounds.planning_ttft
    tpot = bounds.planning_tpot
    tokens = bounds.planning_tokens_per_second
    if tpot is None or tokens is None:
        return None
    efficiency, runs = reached(candidate, requests, demand)
    part = symbol(
        "efficiency", efficiency.numerator, f"of the best case, times {efficiency.denominator}"
    )
    scale = symbol("scale", efficiency.denominator, "scale of the efficiency")

    def longer(seconds: Ratio) -> Ratio:
        return ratio(seconds.numerator * scale, seconds.denominator * part)

    speed = ratio(tokens.numerator * part, tokens.denominator * scale)
    return Speed(longer(ttft), longer(tpot), speed, bounds, runs)


def loads_of_classes(most: int | None) -> list[tuple[int, int]]:
    """Return the (fewest, most) requests of each class of published runs up to `most`, the largest
    first.

    Times grow with the requests of a class, and not from one class to the next.
    """
    ends = [most or NO_USERS_LIMIT]
    ends += [end for end in sorted(LOADS, reverse=True) if end < ends[0]]
    return [(below + 1, end) for end, below in itertools.pairwise([*ends, 0])]


def most_in_time(is_quick: Callable[[int], bool], most: int | None) -> int:
    """Return the most requests, up to `most`, that are quick; 0 if none are."""
    for fewest, end in loads_of_classes(most):
        if is_quick(fewest):
            return first_true(lambda requests: not is_quick(requests), fewest, end + 1) - 1
    return 0


def missed_target(candidate: Candidate, requests: int, demand: Demand) -> str:
    """Return the option of the first target of time that so many concurrent requests miss, '--ttft'
    or '--tpot'; '' if they meet both.

    A replica whose speed is not known misses each target.
    """
    speed = speed_of(candidate, requests, demand)
    if demand.ttft is not None and (speed is None or float(speed.ttft) > demand.ttft):
        return "--ttft"
    if demand.tpot is not None and (speed is None or float(speed.tpot) > demand.tpot):
        return "--tpot"
    return ""


def within_times(candidate: Candidate, demand: Demand) -> Candidate | None:
    """Return a replica with no more requests than the targets of time allow; None if it serves none
    in that time.

    It is limited by the target that one request more would miss.
    """
    if not demand.has_times:
        return candidate
    quick = most_in_time(
        lambda requests: not missed_target(candidate, requests, demand), candidate.capacity
    )
    if quick == (candidate.capacity or NO_USERS_LIMIT):
        return candidate
    worst = quick if candidate.worst_capacity is None else min(quick, candidate.worst_capacity)
    if quick:
        return candidate._replace(
            capacity=quick,
            worst_capacity=worst,
            limited_by=missed_target(candidate, quick + 1, demand),
        )
    return None


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
    loads = loads_of_classes(candidate.capacity)

    def is_enough(requests: int) -> bool:
        return _served(candidate, requests, demand) >= demand.load / replicas

    fewest, end = next((load for load in reversed(loads) if is_enough(load[1])), loads[0])
    return first_true(is_enough, fewest - 1, end)


def _served(candidate: Candidate, requests: int, demand: Demand) -> float:
    """Return the requests per second of a replica with so many concurrent ones; 0 if its speed is
    not known.
    """
    speed = speed_of(candidate, requests, demand)
    if speed:
        return float(speed.tokens_per_second) / max(1, candidate.concurrency.traffic.output)
    return 0.0


def most_served(candidate: Candidate, demand: Demand) -> float:
    """Return the most requests per second of a replica, with any number of concurrent ones."""
    return max(_served(candidate, end, demand) for _, end in loads_of_classes(candidate.capacity))
