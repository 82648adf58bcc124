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
from ...records import NamedTuple
from ...search import grouped
from .candidates import Candidate
from .demand import Demand
from .plan import Pool, Pools
from .speed import estimate, most_in_time


class _Times(NamedTuple):
    """The times of a replica with a number of concurrent requests, in seconds."""

    prefill: float  # of one prompt, in which the GPUs are busy
    ttft: float  # to the first token
    decode_step: float  # of one step of all these requests


class _Prefiller(NamedTuple):
    """A replica that prefills one prompt after the other."""

    candidate: Candidate
    prefill: float  # seconds of the prefill of a prompt
    ttft: float  # seconds to the first token


class _Decoder(NamedTuple):
    """A replica that decodes as many requests as it can in time."""

    candidate: Candidate
    requests: int  # concurrent requests
    tpot: float  # seconds of a decode step of these requests

    @property
    def steps(self) -> int:
        """Decode steps of a request; the prefill yields its first token."""
        return max(0, self.candidate.concurrency.traffic.output - 1)

    def replicas(self, demand: Demand) -> int:
        """Return how many such replicas decode all requests."""
        if demand.requested is not None:
            return -(-demand.requested // self.requests)
        # Little's law: requests per second, times the seconds of each, run concurrently
        return max(1, math.ceil(demand.load * self.steps * self.tpot / self.requests))


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
    decoders = [found for found in (_decoder(one, demand) for one in candidates) if found]
    prefillers = [found for found in (_prefiller(one, demand) for one in candidates) if found]
    if not decoders or not prefillers:
        return None

    def gpus_and_time(decoder: _Decoder) -> tuple[int, float]:
        return decoder.replicas(demand) * decoder.candidate.split.gpus, decoder.tpot

    decoder = min(decoders, key=gpus_and_time)
    pools = min(
        (_pools(prefiller, decoder, demand) for prefiller in prefillers),
        key=lambda pools: (pools.prefill.gpus, pools.ttft),
    )
    if demand.max_gpus is None or pools.gpus <= demand.max_gpus:
        return pools
    return None


def _prefiller(candidate: Candidate, demand: Demand) -> _Prefiller | None:
    """Return a replica that prefills a prompt in time; None if it is too slow, or its times are not
    known.
    """
    times = _times(candidate, 1, demand)
    if times is None or (demand.ttft is not None and times.ttft > demand.ttft):
        return None
    return _Prefiller(candidate, times.prefill, times.ttft)


def _decoder(candidate: Candidate, demand: Demand) -> _Decoder | None:
    """Return a replica with the most requests that it decodes in time; None if not even one is."""

    def tpot(requests: int) -> float:
        times = _times(candidate, requests, demand)
        if times:
            return times.decode_step
        return math.inf

    limit = math.inf if demand.tpot is None else demand.tpot
    most = most_in_time(lambda requests: math.inf > tpot(requests) <= limit, candidate.capacity)
    if not most:
        return None
    if demand.requested is not None:
        most = min(most, demand.requested)
    return _Decoder(candidate, most, tpot(most))


def _times(candidate: Candidate, requests: int, demand: Demand) -> _Times | None:
    """Return the times with so many concurrent requests; None without the GPU's FLOP/s."""
    served = estimate(candidate, requests, demand)
    if served is None:
        return None
    return _Times(served.prefill, served.idle_ttft, served.decode_step)


def _pools(prefiller: _Prefiller, decoder: _Decoder, demand: Demand) -> Pools:
    """Return as many of both replicas as the demand needs, with the price of their GPUs."""
    if demand.requested is None:
        rate = demand.load
    else:
        rate = demand.requested / (prefiller.ttft + decoder.steps * decoder.tpot)
    # 1e-9: a rounding error of the product is no further replica
    prefill = Pool(prefiller.candidate, max(1, math.ceil(rate * prefiller.prefill - 1e-9)))
    decode = Pool(decoder.candidate, decoder.replicas(demand))
    price = demand.prices.get(decoder.candidate.gpu.rented)
    cost = None
    if price is not None:
        cost = (prefill.gpus + decode.gpus) * price.numerator / price.denominator
    return Pools(
        prefill=prefill,
        decode=decode,
        rate=rate,
        ttft=prefiller.ttft,
        tpot=decoder.tpot,
        cache_per_prompt=_cache_of_prompt(decoder.candidate),
        price=cost,
    )


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
