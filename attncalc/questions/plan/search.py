"""From users to GPUs: which GPUs, how many of them, and how a model is split over them.

A candidate is one replica: what `fit` answers for its GPUs, and how many of the users' requests it
runs. As many replicas as the users need are a row.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from ...errors import AttncalcError
from ...hardware import Gpu
from ...quantity import Quantity, Ratio, quantity, ratio, symbol
from ...records import NamedTuple
from ...search import first_true, grouped
from ...serving.devices import devices_with_room
from ...serving.fit import Deployment, Verdict
from ...serving.load_bounds import Load, LoadBounds, bounds_of_load
from ...serving.published import LOADS, PublishedRange, published_range
from ...serving.request import FitRequest, ResolvedRequest, resolve
from ...serving.users import Users, users
from ...serving.weights import weights
from ...units import MONTH_HOURS, SECONDS, count, quotient
from .space import Space, Split, splits

# Candidates of the largest plan.
MOST_CANDIDATES = 1_000_000
# {what rows are sorted by: a number of which the first row has the least}.
SORT_KEYS: dict[str, Callable[["Row"], float]] = {
    "gpus": lambda row: row.gpus,
    "price": lambda row: float(row.price or 0),
    "price-per-token": lambda row: float(row.price_per_million or math.inf),
    "time-per-token": lambda row: row.tpot,
    "headroom": lambda row: -row.headroom,
    "tokens-per-second": lambda row: -float(row.tokens_per_second or 0),
}
# What a user who reads along needs at least: some 250 words per minute.
LEAST_TOKENS_PER_SECOND = 5
# Requests with which an engine without a limit is bounded.
NO_USERS_LIMIT = 1 << 20


class Candidate(NamedTuple):
    """One replica."""

    resolved: ResolvedRequest  # the complete request for its GPUs
    split: Split  # how these share the model
    verdict: Verdict  # whether one request of the context fits
    users: Users  # the concurrent requests of the replica
    most: int | None  # requests that it serves concurrently, on average; None without a limit
    worst: int | None  # those that it serves at worst; None without a limit
    limited_by: str  # what limits them: 'cache', or the engine's option

    @property
    def gpu(self) -> Gpu:
        assert self.resolved.gpu is not None
        return self.resolved.gpu

    def load(self, requests: int) -> Load:
        """Return so many concurrent requests of the users, with the part of a shared prefix that is
        cached.
        """
        traffic = self.users.traffic
        if self.users.shares_prefix:
            shared = traffic.shared_tokens / traffic.prompt
        else:
            shared = 0.0
        return Load(requests, traffic.prompt, traffic.output, shared)

    @property
    def group(self) -> tuple[str, str, str | None, str | None]:
        """What rows are compared within: the model, the GPU, and the dtypes of weights and
        cache.
        """
        request = self.resolved.request
        return request.model.name, self.gpu.rented, request.weights_dtype, request.workload.kv_dtype


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


class Demand(NamedTuple):
    """What the replicas must serve together, and what their GPUs cost.

    Without `users` and `rate` it is what GPUs of a limited number serve.
    """

    users: int | None  # concurrent requests
    rate: Ratio | None = None  # requests per second, at the peak
    # the average load as a part of that; None if the load is always the same
    load_factor: Ratio | None = None
    ttft: float | None = None  # seconds to the first token at most; None without a target
    tpot: float | None = None  # seconds per output token at most; None without a target
    # the part of the best case that is reached; None for that of published runs
    efficiency: Ratio | None = None
    has_no_peak: bool = False  # whether the rate is that of a day or longer, without a load factor
    spread: bool = False  # whether the rest must serve them if one node fails
    max_gpus: int | None = None  # the most GPUs; None without a limit
    budget: Ratio | None = None  # the highest price of an hour; None without a limit
    # {GPU, or instance: price of a GPU for an hour}
    prices: Mapping[str, Ratio] = MappingProxyType({})
    # an API's prices of a million tokens of input and of output
    api_price: tuple[Ratio, Ratio] | None = None
    shows_power: bool = False  # whether the screen shows the power of the GPUs
    assumed: str = ""  # a sentence about options that were not given: 'Assumed: --prompt 4K.'

    @property
    def load(self) -> float:
        """The users, or the requests per second."""
        if self.users is not None:
            return self.users
        assert self.rate is not None
        return float(self.rate)

    def on_average(self, speed: Ratio | None) -> Ratio | None:
        """Return the part of a speed at the peak that is reached on average."""
        if speed is None or self.load_factor is None:
            return speed
        part = symbol(
            "load_factor",
            self.load_factor.numerator,
            f"load factor, times {self.load_factor.denominator}",
        )
        scale = symbol("scale", self.load_factor.denominator, "scale of the load factor")
        return ratio(speed.numerator * part, speed.denominator * scale)

    @property
    def is_open(self) -> bool:
        """Whether it asks how many users GPUs of a limited number serve."""
        return self.users is None and self.rate is None

    def most_gpus(self, gpu: Gpu) -> int | None:
        """Return how many GPUs of a kind there may be, or of its whole instances; None without a
        limit.
        """
        limits = [] if self.max_gpus is None else [self.max_gpus]
        if self.budget is not None:
            limits.append(int(float(self.budget) / float(self.prices[gpu.rented]) + 1e-9))
        if limits:
            return min(limits) // gpu.rented_gpus * gpu.rented_gpus
        return None

    @property
    def has_times(self) -> bool:
        """Whether a target of time limits the replicas."""
        return self.ttft is not None or self.tpot is not None

    def times(self, factor: float) -> "Demand":
        """Return the demand of as many times the users, or the requests per second."""
        if self.rate is not None:
            return self._replace(
                rate=ratio(
                    round(self.rate.numerator * factor * 10**6), self.rate.denominator * 10**6
                )
            )
        assert self.users is not None
        return self._replace(users=math.ceil(self.users * factor - 1e-9))


class Row(NamedTuple):
    """As many replicas as the users need."""

    candidate: Candidate  # one of them
    replicas: int  # their number
    nodes: int  # the nodes that they take
    requests: int  # concurrent requests of one of them, at the load
    speed: Speed | None  # how fast it can be at that load; None if that is not known
    demand: Demand  # what they serve

    @property
    def gpus(self) -> int:
        return gpus_of_replicas(self.candidate, self.replicas, self.nodes)

    @property
    def asked(self) -> int:
        """Concurrent requests that are asked for: with a rate by Little's law, without a load as
        many as possible.
        """
        if self.demand.users is None:
            return self.requests * self.replicas
        return self.demand.users

    @property
    def users(self) -> int | None:
        """Requests that all replicas serve concurrently; None without a limit."""
        if self.candidate.most is None:
            return None
        return self.replicas * self.candidate.most

    @property
    def worst(self) -> int | None:
        """Those that they serve with all requests at their last token; None without a limit."""
        if self.candidate.worst is None:
            return None
        return self.replicas * self.candidate.worst

    @property
    def headroom(self) -> float:
        """The part of the users that could be added: 0.22 if 500 ask and 612 are served; infinite
        without a limit.
        """
        if self.users is None:
            return float("inf")
        return self.users / self.asked - 1

    @property
    def tpot(self) -> float:
        """Seconds per output token; infinite if they are not known."""
        if self.speed:
            return float(self.speed.tpot)
        return math.inf

    @property
    def tokens_per_second(self) -> Ratio | None:
        """Output tokens per second of all replicas; None if it is not known."""
        return self.speed and self._of_all(self.speed.tokens_per_second)

    @property
    def tokens_per_second_bound(self) -> Ratio | None:
        """The upper bound of them."""
        of_one = self.speed and self.speed.bounds.tokens_per_second
        return of_one and self._of_all(of_one)

    def _of_all(self, of_one: Ratio) -> Ratio:
        tokens = symbol("tokens", of_one.numerator, "output tokens of one replica")
        seconds = symbol("seconds", of_one.denominator, "per so many s")
        return ratio(tokens * symbol("replicas", self.replicas, "replicas"), seconds)

    @property
    def is_slow(self) -> bool:
        """Whether a user gets fewer tokens per second than people read, even in the best case."""
        speed = self.speed and self.speed.bounds.planning_tokens_per_second
        return (
            speed is not None
            and self.replicas * float(speed) < LEAST_TOKENS_PER_SECOND * self.asked
        )

    @property
    def price(self) -> Ratio | None:
        """Price of an hour; None if that of the GPU is not given."""
        each = self.demand.prices.get(self.candidate.gpu.rented)
        if each is None:
            return None
        price = symbol("price", each.numerator, f"price of a GPU-hour, times {each.denominator}")
        return ratio(
            quantity(self._gpus * price), symbol("scale", each.denominator, "scale of the price")
        )

    @property
    def price_per_month(self) -> Ratio | None:
        price = self.price
        if price is None:
            return None
        hours = symbol("hours", MONTH_HOURS, "hours of a month")
        return ratio(
            symbol("price", price.numerator, "price of an hour") * hours, price.denominator
        )

    @property
    def requests_per_second(self) -> float | None:
        """Requests per second that all replicas finish with so many concurrent ones; None if it is
        not known.
        """
        speed = self.tokens_per_second
        output = self.candidate.users.traffic.output
        if speed and output:
            return float(speed) / output
        return None

    @property
    def most_requests_per_second(self) -> float:
        """Requests per second that all replicas finish at most."""
        return self.replicas * capacity(
            self.candidate, self.demand._replace(users=None, rate=ratio(1, 1))
        )

    @property
    def watts(self) -> Quantity | None:
        """The most power of all GPUs; None if it is unknown."""
        watts = self.candidate.gpu.watts
        if watts:
            return quantity(self._gpus * symbol("watts", watts, "W of a GPU at most"))
        return None

    @property
    def kwh_per_million(self) -> Ratio | None:
        """kWh of a million output tokens at that power; None if it or the speed is unknown."""
        watts = self.watts
        if watts is None:
            kilowatts = None
        else:
            kilowatts = ratio(watts, symbol("kilo", 1000, "W of a kW"))
        return _per_million(kilowatts, self.tokens_per_second)

    @property
    def price_per_million(self) -> Ratio | None:
        """Price of a million output tokens at the average load; None without a price, and if the
        speed is not known.

        With a rate it is the price of the tokens asked for: GPUs that wait for requests cost as
        much as busy ones.
        """
        rate = self.demand.rate
        if rate is None:
            return _per_million(self.price, self.demand.on_average(self.tokens_per_second))
        output = symbol("output", self.candidate.users.traffic.output, "output tokens of a request")
        requests = symbol("requests", rate.numerator, f"requests in {rate.denominator} s")
        return _per_million(
            self.price, self.demand.on_average(ratio(requests * output, rate.denominator))
        )

    @property
    def break_even_rate(self) -> Ratio | None:
        """Requests per second at which the GPUs cost as much as an API; None without its price and
        the GPUs'.
        """
        price = self.price
        api = self.demand.api_price
        if price is None or api is None:
            return None
        traffic, (prompts, outputs) = self.candidate.users.traffic, api
        scale = prompts.denominator * outputs.denominator
        of_input = symbol(
            "input", prompts.numerator * outputs.denominator, f"price of a million, times {scale}"
        )
        of_output = symbol(
            "output_price",
            outputs.numerator * prompts.denominator,
            f"price of a million, times {scale}",
        )
        prompt = symbol("prompt", traffic.prompt, "tokens")
        output = symbol("output", traffic.output, "tokens")
        million = symbol("million", 10**6 * scale, f"tokens, times {scale}")
        hour = symbol("hour", 3600, "s")
        of_request = prompt * of_input + output * of_output
        return ratio(
            symbol("price", price.numerator, "price of an hour") * million,
            price.denominator * hour * of_request,
        )

    @property
    def _gpus(self) -> Quantity:
        return symbol("gpus", self.gpus, "GPUs")


def _per_million(price: Ratio | None, speed: Ratio | None) -> Ratio | None:
    """Return what a million tokens take of something of which an hour takes `price`."""
    if price is None or not speed:
        return None
    million = symbol("million", 10**6, "tokens")
    hour = symbol("hour", 3600, "s")
    seconds = symbol("s", speed.denominator, "s")
    tokens = symbol("tokens", speed.numerator, "tokens")
    scale = symbol("scale", price.denominator, "scale of the price")
    return ratio(
        symbol("price", price.numerator, "price") * million * seconds, scale * hour * tokens
    )


class Refused(NamedTuple):
    """Why no split of a model starts on a kind of GPU, in the words of `fit`."""

    model: str  # the model's name
    gpu: str  # the kind of GPU
    reason: str  # why the first split that was tried does not start
    tip: str  # what to do instead
    # whether no split starts; otherwise the others do not hold the weights and one request
    is_whole: bool


class Found(NamedTuple):
    requests: tuple[FitRequest, ...]  # what was asked, per model, GPU and dtype
    candidates: tuple[Candidate, ...]  # the replicas that may fit and serve at least one request
    tried: int  # how many splits were computed
    pruned: int  # how many splits were left out, because their weights alone exceed the memory
    refused: tuple[Refused, ...]  # for each request of which no split is possible
    complete: bool  # whether the search ended; False after Ctrl-C


def search(
    requests: Sequence[FitRequest], space: Space, on_step: Callable[[str], None] = lambda _: None
) -> Found:
    """Return the replicas of every request and split; after Ctrl-C those found so far.

    Each request has a model, GPU and dtype, users' requests and no split; `on_step` is told what is
    computed now. Raises AttncalcError if there are more than MOST_CANDIDATES, or none is possible.
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
            on_step(
                f"{request.model.name} on {request.gpu.name}: {i + 1} of {count(len(requests))}"
            )
            search.run(request, splits(request, space))
    except KeyboardInterrupt:
        return search.found(requests, complete=False)
    return search.found(requests, complete=True)


class _Search:
    """What was found so far."""

    def __init__(self) -> None:
        self._candidates: list[Candidate] = []
        self._tried = self._pruned = 0
        self._refused: list[Refused] = []

    def run(self, request: FitRequest, groups: Iterable[Iterable[Split]]) -> None:
        """Try the splits of one request, group after group until one fits."""
        assert request.gpu is not None
        least = _least_weights(request)
        errors = list[AttncalcError]()
        found_before = len(self._candidates)
        tried_before = self._tried
        pruned_before = self._pruned
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
                    errors.append(error)
            found = self._candidates[before:]
            if any(candidate.verdict == "fits" and candidate.split.dp == 1 for candidate in found):
                return
        if errors and len(self._candidates) == found_before:
            is_whole = self._pruned == pruned_before and len(errors) == self._tried - tried_before
            model = request.model.name
            gpu = request.gpu.rented
            self._refused.append(Refused(model, gpu, errors[0].message, errors[0].tip, is_whole))

    def found(self, requests: Sequence[FitRequest], *, complete: bool) -> Found:
        candidates = tuple(self._candidates)
        refused = tuple(self._refused)
        return Found(tuple(requests), candidates, self._tried, self._pruned, refused, complete)


def _least_weights(request: FitRequest) -> int:
    """Return a lower bound of the bytes of weights that all GPUs of a replica hold together; 0 if
    none is known.

    Towers are left out, which not every engine loads; a device holds its part of the rest, rounded
    up.
    """
    try:
        resolved = resolve(Split(1).of(request))
        if resolved.engine.splits_by_layer:  # layers may stay on the host
            return 0
        held = weights(
            resolved.model,
            in_dtype=resolved.workload.dtype,
            weights_dtype=resolved.weights_dtype,
            engine=None,
        )
    except AttncalcError:  # the errors of splits say more
        return 0
    return int(held.total) - sum(int(part.size) for part in held.extra)


def replica(request: FitRequest, split: Split) -> list[Candidate]:
    """Return one replica; none if it does not fit, or serves no request.

    Raises AttncalcError as `fit` does, and if the engine does not start so.
    """
    resolved = resolve(request)
    batch = resolved.workload.batch
    context = resolved.workload.context
    devices = devices_with_room(resolved, batch, context)
    if devices is None:
        if refusal := resolved.refusal:
            raise AttncalcError(refusal.reason, refusal.tip)
        return []
    deployment = Deployment(resolved, devices)
    if refusal := deployment.refusal(context):
        raise AttncalcError(refusal.reason, refusal.tip)
    if deployment.verdict(batch, context) == "does_not_fit":
        return []
    answer = users(resolved, deployment=deployment)
    assert answer is not None
    most, worst = (
        None if n is None else int(n) * resolved.replicas for n in (answer.average, answer.worst)
    )
    if most == 0:
        return []
    limit = deployment.devices[0].layout.max_num_seqs
    if limit is not None and answer.average == limit:
        limited_by = resolved.engine.running_option
    else:
        limited_by = "cache"
    return [
        Candidate(
            resolved, split, deployment.verdict(batch, context), answer, most, worst, limited_by
        )
    ]


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


def limited(candidate: Candidate, demand: Demand) -> Candidate | None:
    """Return a replica with no more requests than the targets of time allow; None if it serves none
    in that time.
    """
    if not demand.has_times:
        return candidate

    def is_quick(requests: int) -> bool:
        speed = speed_of(candidate, requests, demand)
        return (
            speed is not None
            and (demand.ttft is None or float(speed.ttft) <= demand.ttft)
            and (demand.tpot is None or float(speed.tpot) <= demand.tpot)
        )

    quick = most_in_time(is_quick, candidate.most)
    if quick == (candidate.most or NO_USERS_LIMIT):
        return candidate
    worst = quick if candidate.worst is None else min(quick, candidate.worst)
    if quick:
        return candidate._replace(most=quick, worst=worst, limited_by="--tpot")
    return None


def row(candidate: Candidate, demand: Demand) -> Row | None:
    """Return as many replicas as the users need; None if these are more GPUs than allowed, or too
    slow.
    """
    within = limited(candidate, demand)
    most = demand.most_gpus(candidate.gpu)
    if within is None:
        return None
    needed: int | None = 1
    if demand.rate is not None:
        fastest = _most_served(within, demand)
        needed = max(1, math.ceil(demand.load / fastest)) if fastest else None
    elif demand.is_open:
        needed = (most or 0) // within.split.gpus
    elif within.most is not None:
        needed = math.ceil(demand.load / within.most)
    if not needed:
        return None
    replicas, nodes = replicas_on_nodes(within, needed, spread=demand.spread)
    if demand.rate is not None:
        requests = _requests_for_rate(within, replicas if within.gpu.instance else needed, demand)
    elif demand.users is None:
        requests = within.most or 1
    else:
        requests = -(-demand.users // replicas)
    found = Row(within, replicas, nodes, requests, speed_of(within, requests, demand), demand)
    if most is not None and found.gpus > most:
        return None
    return found


def _requests_for_rate(candidate: Candidate, replicas: int, demand: Demand) -> int:
    """Return the fewest concurrent requests with which each of so many replicas keeps up with the
    rate.

    This is Little's law with the time at that load.
    """
    loads = loads_of_classes(candidate.most)

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
        return float(speed.tokens_per_second) / max(1, candidate.users.traffic.output)
    return 0.0


def _most_served(candidate: Candidate, demand: Demand) -> float:
    """Return the most requests per second of a replica, with any number of concurrent ones."""
    return max(_served(candidate, end, demand) for _, end in loads_of_classes(candidate.most))


def capacity(candidate: Candidate, demand: Demand) -> float:
    """Return the users that a replica serves, or the requests per second if these are asked for.

    0 if it is too slow; infinite without a limit.
    """
    within = limited(candidate, demand)
    if within is None:
        return 0.0
    if demand.rate is None:
        return within.most or math.inf
    return _most_served(within, demand)


def replicas_on_nodes(candidate: Candidate, needed: int, *, spread: bool) -> tuple[int, int]:
    """Return (replicas, nodes) as `placed` does. An instance is rented whole, so that all its GPUs
    serve.
    """
    split = candidate.split
    gpu = candidate.gpu
    replicas, nodes = placed(needed, split.gpus, gpu.per_node, spread=spread)
    return max(replicas, nodes * (gpu.per_node // split.gpus)) if gpu.instance else replicas, nodes


def gpus_of_replicas(candidate: Candidate, replicas: int, nodes: int) -> int:
    """Return the GPUs of so many replicas, or those of all instances that have them."""
    if candidate.gpu.instance:
        return nodes * candidate.gpu.per_node
    return replicas * candidate.split.gpus


def placed(needed: int, gpus: int, per_node: int, *, spread: bool) -> tuple[int, int]:
    """Return (replicas, nodes) of which `needed` replicas serve all users, on as few nodes as
    possible.

    With `spread`, these are left after any one node fails: of 10 replicas, 8 of which a node could
    have, 15 on 3 nodes leave 10. No more than these are needed.
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
    """Return what a row should have little of; another row is better if none of these is larger and
    one is smaller.
    """
    if found.speed:
        times = (float(found.speed.tpot), float(found.speed.ttft))
    else:
        times = (0.0, 0.0)
    served = found.asked if found.demand.is_open else 0
    return (found.gpus, found.nodes, found.candidate.verdict != "fits", -served, *times)


def not_dominated(found: Sequence[Row]) -> list[Row]:
    """Return the rows than which no other row of the same model, GPU and dtypes is better, in their
    order.

    Of rows with equal costs the one with the most users is kept, and of these the first.
    """

    def is_better(one: Row, other: Row) -> bool:
        if costs(one) != costs(other):
            return all(a <= b for a, b in zip(costs(one), costs(other), strict=True))
        return one.headroom > other.headroom or (
            one.headroom == other.headroom and place[id(one)] < place[id(other)]
        )

    place = {id(one): i for i, one in enumerate(found)}
    groups = grouped((one.candidate.group, one) for one in found)
    return [
        one
        for one in found
        if not any(is_better(other, one) for other in groups[one.candidate.group])
    ]


# The plan


class Size(NamedTuple):
    """What more users need."""

    model: str  # the model's name
    factor: float  # how many times as many users
    demand: Demand  # these users
    row: Row | None  # the best row for them; None if nothing serves them
    when: str = ""  # after which time: '3 months'


class Pool(NamedTuple):
    candidate: Candidate
    replicas: int

    @property
    def gpus(self) -> int:
        return self.replicas * self.candidate.split.gpus


class Pools(NamedTuple):
    """Both pools, on one kind of GPU."""

    prefill: Pool  # the GPUs that prefill
    decode: Pool  # the GPUs that decode
    rate: float  # requests per second
    ttft: float  # seconds of the prefill of a prompt: a bound, or with an efficiency an estimate
    tpot: float  # seconds of a decode step
    cache_per_prompt: int  # bytes of cache that move for a prompt
    price: float | None  # price of an hour; None without one

    @property
    def gpus(self) -> int:
        return self.prefill.gpus + self.decode.gpus

    @property
    def cache_per_second(self) -> float:
        """Bytes of cache that move per second."""
        return self.rate * self.cache_per_prompt


class Plan(NamedTuple):
    """The rows that serve the users, the best first."""

    # The rows; without --all those than which no other is better. Of too few GPUs, those that serve
    # the most users
    rows: tuple[Row, ...]
    left_out: int  # how many rows are not among them, because another one is better
    too_large: int  # how many candidates would need more GPUs than allowed, or are too slow
    too_slow: str  # why no candidate is quick enough, in words; '' if one is
    demand: Demand  # the users, and what GPUs cost
    growth: tuple[Size, ...]  # what more users need
    sort: str  # what the rows are sorted by
    found: Found  # what the search found
    enough: Row | None = None  # without limits, if the GPUs within them do not serve all users
    # {model: the GPUs of its row's kind that serve a rate or times in the best case}; {} with an
    # efficiency
    at_best: Mapping[str, int] = MappingProxyType({})
    pools: tuple[Pools, ...] = ()  # prefill and decode on separate GPUs, with --disaggregate

    @property
    def requests(self) -> tuple[FitRequest, ...]:
        """What was asked, per model, GPU and dtype."""
        return self.found.requests

    @property
    def serves_all(self) -> bool:
        """Whether the rows serve all users."""
        return bool(self.rows) and (self.demand.is_open or self.rows[0].demand == self.demand)


def make_plan(
    found: Found,
    demand: Demand,
    *,
    growth: Mapping[float, str],
    sort: str,
    is_whole: bool,
    without_limit: Callable[[], Found],
) -> Plan:
    """Return the plan for what a search found; `without_limit` searches with any number of GPUs.

    `growth` are factors by which the users may grow, and when; `is_whole` keeps rows than which
    another is better.
    """
    every = rows(found.candidates, demand)
    enough = None
    if (
        not every
        and not demand.is_open
        and any(demand.most_gpus(one.gpu) for one in found.candidates)
    ):
        unlimited = rows(without_limit().candidates, demand._replace(max_gpus=None, budget=None))
        enough = next(iter(sorted_rows(unlimited, sort)), None)
        # what so many GPUs serve of it
        every = rows(found.candidates, demand._replace(users=None, rate=None))
        served = [one.asked if demand.users else one.most_requests_per_second for one in every]
        every = [one for one, each in zip(every, served, strict=True) if each == max(served)]
    kept = sorted_rows(every if is_whole else not_dominated(every), sort)
    return Plan(
        rows=tuple(kept),
        left_out=len(every) - len(kept),
        too_large=len(found.candidates) - len(every),
        too_slow="" if every else _too_slow(found.candidates, demand),
        demand=demand,
        growth=_due(
            kept,
            [
                one
                for factor, when in growth.items()
                for one in _sizes(found, demand, factor, when, sort)
            ],
        ),
        sort=sort,
        found=found,
        enough=enough,
        at_best=_at_best(kept, found.candidates, demand),
    )


def best_of_models(found: Sequence[Row]) -> Iterable[Row]:
    """Return the first row of each model."""
    return {one.candidate.group[0]: one for one in reversed(found)}.values()


def _at_best(
    kept: Sequence[Row], candidates: Sequence[Candidate], demand: Demand
) -> dict[str, int]:
    """Return `Plan.at_best`."""
    if demand.efficiency is not None or demand.is_open or not (demand.rate or demand.has_times):
        return {}
    best_case = demand._replace(efficiency=ratio(1, 1))
    groups = {one.candidate.group for one in best_of_models(kept)}
    found = grouped(
        (one.candidate.group, one)
        for one in rows((one for one in candidates if one.group in groups), best_case)
    )
    return {group[0]: min(one.gpus for one in of_group) for group, of_group in found.items()}


def _too_slow(candidates: Sequence[Candidate], demand: Demand) -> str:
    """Return which target no candidate reaches, and the shortest time; '' if each is reached by
    one.
    """
    loads = [(one, fewest) for one in candidates for fewest, _ in loads_of_classes(one.most)]
    speeds = [(one, speed_of(one, requests, demand)) for one, requests in loads]
    for name, target in (("ttft", demand.ttft), ("tpot", demand.tpot)):
        times = [(float(getattr(speed, name)), one, speed) for one, speed in speeds if speed]
        shortest = min(times, key=lambda time: time[0], default=None)
        if target is not None and shortest is not None and shortest[0] > target:
            seconds, one, speed = shortest
            if speed.runs:
                best = (
                    f"; at best {quotient(seconds * speed.runs.median, SECONDS)} (--efficiency 1)"
                )
            else:
                best = ""
            least = (
                f"{quotient(seconds, SECONDS)} ({one.gpu.name}, {one.split.words}), "
                f"{seconds / target:.3g} x as long"
            )
            return f"--{name} {quotient(target, SECONDS)}, and the shortest is {least}{best}"
    return ""


def _due(now: Sequence[Row], sizes: Sequence[Size]) -> tuple[Size, ...]:
    """Return the sizes without those of a month or year with as many GPUs as the one before; the
    last is kept.
    """
    kept = list[Size]()
    last = {size.model: size for size in sizes}
    before: dict[str, tuple[int, str] | None] = {
        one.candidate.group[0]: (one.gpus, one.candidate.gpu.rented) for one in best_of_models(now)
    }
    for size in sizes:
        gpus = size.row and (size.row.gpus, size.row.candidate.gpu.rented)
        if not size.when or before.get(size.model) != gpus or (gpus and size is last[size.model]):
            kept.append(size)
        before[size.model] = gpus
    return tuple(kept)


def _sizes(found: Found, demand: Demand, factor: float, when: str, sort: str) -> list[Size]:
    """Return what a size needs, for each model."""
    of_all = sorted_rows(rows(found.candidates, demand.times(factor)), sort)
    models = dict.fromkeys(request.model.name for request in found.requests)
    best = {
        model: next((one for one in of_all if one.candidate.group[0] == model), None)
        for model in models
    }
    return [Size(model, factor, demand.times(factor), row, when) for model, row in best.items()]


def sorted_rows(found: Iterable[Row], sort: str) -> list[Row]:
    """Return the rows by one of SORT_KEYS, and then by GPUs, nodes, time and headroom.

    Those that are too slow to read along are after the others, and those that may not fit are last.
    """

    def key(one: Row) -> tuple[float, ...]:
        split = one.candidate.split
        first = SORT_KEYS[sort](one)
        best = (one.candidate.verdict != "fits", one.is_slow, first, one.gpus, one.nodes, one.tpot)
        return (*best, split.pp, split.dp, -one.headroom, -one.asked)

    return sorted(found, key=key)
