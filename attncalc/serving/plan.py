"""From users to GPUs: which GPUs, how many of them, and how a model is split over them.

A candidate is one replica: what `fit` answers for its GPUs, and how many of the users' requests it runs. As many
replicas as the users need are a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ..errors import AttncalcError
from ..hardware import Gpu
from ..units import count
from .fit import Deployment, Verdict
from .plan_space import Space, Split, splits
from .request import FitRequest, ResolvedRequest, resolve
from .users import Users, users
from .weights import weights

MOST_CANDIDATES = 1_000_000
"""Candidates of the largest plan."""
SORT_KEYS = ("gpus", "price", "headroom")


class Candidate(NamedTuple):
    """One replica.

    Attributes:
        resolved: The complete request for its GPUs.
        split: How these share the model.
        verdict: Whether one request of the context fits.
        users: The concurrent requests of the replica.
        most: Requests that it serves concurrently, on average; None without a limit.
        worst: Those that it serves at worst; None without a limit.
        limited_by: What limits them: 'cache', or the engine's option.
    """

    resolved: ResolvedRequest
    split: Split
    verdict: Verdict
    users: Users
    most: int | None
    worst: int | None
    limited_by: str

    @property
    def gpu(self) -> Gpu:
        assert self.resolved.gpu is not None
        return self.resolved.gpu

    @property
    def group(self) -> tuple[str, str, str | None, str | None]:
        """What rows are compared within: the model, the GPU, and the dtypes of weights and cache."""
        request = self.resolved.request
        return request.model.name, self.gpu.name, request.weights_dtype, request.workload.kv_dtype


class Demand(NamedTuple):
    """What the replicas must serve together, and what their GPUs cost.

    Attributes:
        users: Concurrent requests.
        spread: Whether the rest must serve them if one node fails.
        max_gpus: The most GPUs; None without a limit.
        prices: {name of a GPU: price of an hour, as numerator and denominator}.
    """

    users: int
    spread: bool = False
    max_gpus: int | None = None
    prices: Mapping[str, tuple[int, int]] = MappingProxyType({})


class Row(NamedTuple):
    """As many replicas as the users need.

    Attributes:
        candidate: One of them.
        replicas: Their number.
        nodes: The nodes that they take.
        demand: What they serve.
    """

    candidate: Candidate
    replicas: int
    nodes: int
    demand: Demand

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.replicas * self.candidate.split.gpus

    @property
    def users(self) -> int | None:
        """Requests that all replicas serve concurrently; None without a limit."""
        return None if self.candidate.most is None else self.replicas * self.candidate.most

    @property
    def headroom(self) -> float:
        """The part of the users that could be added: 0.22 if 500 ask and 612 are served; infinite without a limit."""
        return float("inf") if self.users is None else self.users / self.demand.users - 1

    @property
    def price(self) -> float | None:
        """Price of an hour; None if that of the GPU is not given."""
        price = self.demand.prices.get(self.candidate.gpu.name)
        return None if price is None else self.gpus * price[0] / price[1]


class Found(NamedTuple):
    """What a search found.

    Attributes:
        requests: What was asked, per model, GPU and dtype.
        candidates: The replicas that may fit and serve at least one request.
        tried: How many splits were computed.
        pruned: How many splits were left out, because their weights alone exceed the memory.
        refused: {GPU: why no split of the model is possible on it}, for those on which none is.
        complete: Whether the search ended; False after Ctrl-C.
    """

    requests: tuple[FitRequest, ...]
    candidates: tuple[Candidate, ...]
    tried: int
    pruned: int
    refused: dict[str, str]
    complete: bool


def search(requests: Sequence[FitRequest], space: Space, on_step: Callable[[str], None] = lambda _: None) -> Found:
    """Return the replicas of every request and split; after Ctrl-C those found so far.

    Args:
        requests: A request per model, GPU and dtype, each with users' requests and without a split.
        space: The splits.
        on_step: Is told what is computed now.

    Raises AttncalcError if there are more than MOST_CANDIDATES, or none is possible.
    """
    size = len(requests) * math.prod(len(sizes) for sizes in space.sizes if sizes)
    if size > MOST_CANDIDATES:
        raise AttncalcError(
            f"the plan has {count(size)} candidates, and may have {count(MOST_CANDIDATES)}",
            "name fewer GPUs, dtypes or sizes, as --gpu h100,h200 --tp 4,8",
        )
    search = _Search()
    try:
        for i, request in enumerate(requests):
            assert request.gpu is not None
            on_step(f"{request.model.name} on {request.gpu.name}: {i + 1} of {count(len(requests))}")
            search.run(request, splits(request, space))
    except KeyboardInterrupt:
        return search.found(requests, complete=False)
    return search.found(requests, complete=True)


class _Search:
    """What was found so far."""

    def __init__(self) -> None:
        self._candidates: list[Candidate] = []
        self._tried = self._pruned = 0
        self._refused: dict[str, str] = {}

    def run(self, request: FitRequest, groups: Iterable[Iterable[Split]]) -> None:
        """Try the splits of one request, group after group until one fits."""
        assert request.gpu is not None
        least, reasons = _least_weights(request), list[str]()
        for group in groups:
            before = len(self._candidates)
            for split in group:
                if request.gpu.memory * split.gpus < least:
                    self._pruned += 1
                    continue
                self._tried += 1
                try:
                    self._candidates += replica(split.of(request), split)
                except AttncalcError as error:
                    reasons.append(error.message)
            found = self._candidates[before:]
            if any(candidate.verdict == "fits" and candidate.split.dp == 1 for candidate in found):
                return
        if reasons:
            self._refused[request.gpu.name] = reasons[0]

    def found(self, requests: Sequence[FitRequest], *, complete: bool) -> Found:
        """Return what was found."""
        return Found(tuple(requests), tuple(self._candidates), self._tried, self._pruned, self._refused, complete)


def _least_weights(request: FitRequest) -> int:
    """Return a lower bound of the bytes of weights that all GPUs of a replica hold together; 0 if none is known.

    Towers are left out, which not every engine loads; a device holds its part of the rest, rounded up.
    """
    try:
        resolved = resolve(Split(1).of(request))
        if resolved.engine.splits_by_layer:  # layers may stay on the host
            return 0
        held = weights(
            resolved.model, in_dtype=resolved.workload.dtype, weights_dtype=resolved.weights_dtype, engine=None
        )
    except AttncalcError:  # the errors of splits say more
        return 0
    return int(held.total) - sum(int(part.size) for part in held.extra)


def replica(request: FitRequest, split: Split) -> list[Candidate]:
    """Return one replica; none if it does not fit, or serves no request. Raises AttncalcError as `fit` does."""
    resolved = resolve(request)
    deployment = Deployment(resolved)
    batch, context = resolved.workload.batch, resolved.workload.context
    if deployment.refusal(context) or deployment.verdict(batch, context) == "does_not_fit":
        return []
    answer = users(resolved, deployment=deployment)
    assert answer is not None
    most, worst = (None if n is None else int(n) * resolved.replicas for n in (answer.average, answer.worst))
    if most == 0:
        return []
    limit = deployment.devices[0].layout.max_sequences
    limited_by = resolved.engine.running_option if limit is not None and answer.average == limit else "cache"
    return [Candidate(resolved, split, deployment.verdict(batch, context), answer, most, worst, limited_by)]


def row(candidate: Candidate, demand: Demand) -> Row | None:
    """Return as many replicas as the users need; None if these are more GPUs than allowed."""
    needed = 1 if candidate.most is None else -(-demand.users // candidate.most)
    replicas, nodes = placed(needed, candidate.split.gpus, candidate.gpu.per_node, spread=demand.spread)
    found = Row(candidate, replicas, nodes, demand)
    return None if demand.max_gpus is not None and found.gpus > demand.max_gpus else found


def placed(needed: int, gpus: int, per_node: int, *, spread: bool) -> tuple[int, int]:
    """Return (replicas, nodes) of which `needed` replicas serve all users, on as few nodes as possible.

    With `spread`, these are left after any one node fails: of 10 replicas, 8 of which a node could have, 15 on 3 nodes
    leave 10. No more than these are needed.

    Args:
        needed: Replicas that serve all users.
        gpus: GPUs of one.
        per_node: GPUs of a node.
        spread: Whether one node may fail.
    """
    of_one = -(-gpus // per_node)
    if of_one > 1:  # a node that fails takes one replica
        replicas = needed + spread
        return replicas, replicas * of_one
    each = per_node // gpus
    nodes = -(-needed // each) + spread
    replicas = needed
    while spread and replicas - -(-replicas // nodes) < needed:
        replicas += 1
    return replicas, nodes


def rows(candidates: Iterable[Candidate], demand: Demand) -> list[Row]:
    """Return a row per candidate that serves the users, without those beyond the limit of GPUs."""
    return [found for candidate in candidates if (found := row(candidate, demand))]


def costs(found: Row) -> tuple[float, ...]:
    """Return what a row should have little of; another row is better if none of these is larger and one is smaller."""
    return (found.gpus, found.nodes, found.candidate.split.pp, found.candidate.verdict != "fits")


def not_dominated(found: Sequence[Row]) -> list[Row]:
    """Return the rows than which no other row of the same model, GPU and dtypes is better, in their order.

    Of rows with equal costs the one with the most users is kept, and of these the first.
    """
    kept = []
    for i, one in enumerate(found):
        better = (
            other.candidate.group == one.candidate.group and _is_better(other, one, first=j < i)
            for j, other in enumerate(found)
            if j != i
        )
        if not any(better):
            kept.append(one)
    return kept


def _is_better(one: Row, other: Row, *, first: bool) -> bool:
    a, b = costs(one), costs(other)
    if a != b:
        return all(x <= y for x, y in zip(a, b, strict=True))
    return one.headroom > other.headroom or (one.headroom == other.headroom and first)


# The plan


class Size(NamedTuple):
    """What more users need.

    Attributes:
        factor: How many times as many users.
        users: Their number.
        row: The best row for them; None if nothing serves them.
    """

    factor: float
    users: int
    row: Row | None


class Plan(NamedTuple):
    """The rows that serve the users, the best first.

    Attributes:
        rows: The rows; without --all those than which no other is better.
        left_out: How many rows are not among them, because another one is better.
        too_large: How many candidates would need more GPUs than allowed.
        demand: The users, and what GPUs cost.
        growth: What more users need.
        sort: What the rows are sorted by.
        found: What the search found.
    """

    rows: tuple[Row, ...]
    left_out: int
    too_large: int
    demand: Demand
    growth: tuple[Size, ...]
    sort: str
    found: Found

    @property
    def requests(self) -> tuple[FitRequest, ...]:
        """What was asked, per model, GPU and dtype."""
        return self.found.requests


def make_plan(found: Found, demand: Demand, *, growth: Sequence[float], sort: str, is_whole: bool) -> Plan:
    """Return the plan for what a search found.

    Args:
        found: The candidates.
        demand: The users, and what GPUs cost.
        growth: Factors by which the users may grow.
        sort: One of SORT_KEYS.
        is_whole: Whether rows than which another is better are kept.
    """
    every = rows(found.candidates, demand)
    kept = every if is_whole else not_dominated(every)
    return Plan(
        rows=tuple(sorted_rows(kept, sort)),
        left_out=len(every) - len(kept),
        too_large=len(found.candidates) - len(every),
        demand=demand,
        growth=tuple(_size(found, demand, factor, sort) for factor in growth),
        sort=sort,
        found=found,
    )


def _size(found: Found, demand: Demand, factor: float, sort: str) -> Size:
    users = -int(-demand.users * factor // 1)
    best = sorted_rows(rows(found.candidates, demand._replace(users=users)), sort)
    return Size(factor, users, best[0] if best else None)


def sorted_rows(found: Iterable[Row], sort: str) -> list[Row]:
    """Return the rows by one of SORT_KEYS, and then by GPUs and headroom. Those that may not fit are last."""

    def key(one: Row) -> tuple[float, ...]:
        first = {"gpus": one.gpus, "price": one.price or 0.0, "headroom": -one.headroom}[sort]
        split = one.candidate.split
        return (one.candidate.verdict != "fits", first, one.gpus, one.nodes, split.pp, split.dp, -one.headroom)

    return sorted(found, key=key)
