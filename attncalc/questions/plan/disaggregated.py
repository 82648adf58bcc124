"""Prefill and decode on separate GPUs: how many each pool needs, and the bytes of cache that move
between them.

A request is prefilled on a GPU of one pool, and its cache moves to a GPU of the other, which
decodes. By Little's law N users of O output tokens are N / (TTFT + (O - 1) * TPOT) requests per
second. So many prompts per second are prefilled, one after the other on each replica, and so many
caches move. Neither the time of moving them nor of waiting is counted.
"""

import dataclasses
import math
from collections.abc import Sequence

from ...cost.cache import kv_cache
from ...errors import AttncalcError
from ...search import grouped
from ...serving.load_bounds import steps_of
from .candidates import Candidate
from .demand import Demand
from .plan import Pool, Pools
from .speed import NO_USERS_LIMIT, most_in_time, reached


def disaggregated(candidates: Sequence[Candidate], demand: Demand) -> tuple[Pools, ...]:
    """Return the pools with the fewest GPUs of each model, kind of GPU and dtypes, the fewest or
    the cheapest first.
    """
    groups = grouped(
        (candidate.group, candidate) for candidate in candidates if candidate.verdict == "fits"
    )
    found = (_smallest(of_group, demand) for of_group in groups.values())
    best = [pools for pools in found if pools]
    return tuple(sorted(best, key=lambda pools: (pools.price or 0.0, pools.gpus)))


def _smallest(candidates: Sequence[Candidate], demand: Demand) -> Pools | None:
    """Return the pools of a group: each with the fewest GPUs, of equal ones the quicker; None if
    none is in time.
    """
    decodes = [found for found in (_decode(one, demand) for one in candidates) if found]
    prefills = []
    for one in candidates:
        times = _times(one, 1, demand)
        if times and (demand.ttft is None or times[0] <= demand.ttft):
            prefills.append((one, times[0]))
    if not decodes or not prefills:
        return None
    decode = min(
        decodes, key=lambda found: (_decoders(found, demand) * found[0].split.gpus, found[2])
    )
    pools = min(
        (_pools(prefill, decode, demand) for prefill in prefills),
        key=lambda pools: (pools.prefill.gpus, pools.ttft),
    )
    if demand.max_gpus is None or pools.gpus <= demand.max_gpus:
        return pools
    return None


def _times(candidate: Candidate, requests: int, demand: Demand) -> tuple[float, float] | None:
    """Return the seconds of a prefill, and of a decode step of so many requests; None without the
    GPU's FLOP/s.

    A pool that prefills one prompt after the other is as busy as a replica with all its requests.
    """
    try:
        steps = steps_of(candidate.resolved, candidate.load(requests), "expected")
    except AttncalcError:
        return None
    of_load, of_many = (
        float(reached(candidate, n, demand)[0])
        for n in (requests, candidate.capacity or NO_USERS_LIMIT)
    )
    return float(steps.ttft) / of_many, float(steps.tpot) / of_load


def _decode(candidate: Candidate, demand: Demand) -> tuple[Candidate, int, float] | None:
    """Return a replica with the most requests that it decodes in time, and the time of their step;
    None for none.
    """

    def tpot(requests: int) -> float:
        times = _times(candidate, requests, demand)
        if times:
            return times[1]
        return math.inf

    limit = math.inf if demand.tpot is None else demand.tpot
    most = most_in_time(lambda requests: math.inf > tpot(requests) <= limit, candidate.capacity)
    if not most:
        return None
    if demand.requested is not None:
        most = min(most, demand.requested)
    return candidate, most, tpot(most)


def _decoders(decode: tuple[Candidate, int, float], demand: Demand) -> int:
    candidate, most, tpot = decode
    if demand.requested is not None:
        return -(-demand.requested // most)
    return max(1, math.ceil(demand.load * _steps(candidate) * tpot / most))


def _steps(candidate: Candidate) -> int:
    """Return the decode steps of a request; the prefill yields its first token."""
    return max(0, candidate.concurrency.traffic.output - 1)


def _pools(
    prefill: tuple[Candidate, float], decode: tuple[Candidate, int, float], demand: Demand
) -> Pools:
    prefiller, ttft = prefill
    decoder, _, tpot = decode
    if demand.requested is None:
        rate = demand.load
    else:
        rate = demand.requested / (ttft + _steps(decoder) * tpot)
    pools = (
        Pool(prefiller, max(1, math.ceil(rate * ttft - 1e-9))),
        Pool(decoder, _decoders(decode, demand)),
    )
    price = demand.prices.get(decoder.gpu.rented)
    if price is None:
        cost = None
    else:
        cost = (pools[0].gpus + pools[1].gpus) * price.numerator / price.denominator
    return Pools(*pools, rate, ttft, tpot, _cache_of_prompt(decoder), cost)


def _cache_of_prompt(candidate: Candidate) -> int:
    """Return the bytes of cache of a prompt, with all layers and heads; cached tokens do not
    move.
    """
    request = candidate.resolved.request
    traffic = candidate.concurrency.traffic
    moved = traffic.prompt
    if candidate.concurrency.shares_prefix:
        moved -= traffic.shared_tokens
    workload = dataclasses.replace(
        candidate.resolved.workload, batch=1, context=max(1, moved), lengths=None
    )
    return int(kv_cache(request.model, workload).total)
