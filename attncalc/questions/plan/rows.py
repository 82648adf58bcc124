"""The rows of a plan: as many replicas as the users need, the better ones, and their order."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...quantity import Quantity, Ratio, quantity, ratio, symbol
from ...records import NamedTuple
from ...search import grouped
from ...units import MONTH_HOURS
from .candidates import Candidate
from .demand import Demand
from .nodes import gpus_of_replicas, replicas_on_nodes
from .speed import Speed, load_served, most_served, requests_for_rate, speed_of, within_times

# Replicas of one GPU each, of which more are no plan where a split has fewer: a row of 125 such
# servers is after one of 64 with two GPUs each.
_MOST_SINGLE = 16
# Rows with more than so many times the GPUs of the first one are listed with --all.
TIMES_FIRST = 4


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
    def requested(self) -> int:
        """Concurrent requests that are asked for: with a rate by Little's law, without a load as
        many as possible.
        """
        if self.demand.requested is None:
            return self.requests * self.replicas
        return self.demand.requested

    @property
    def capacity(self) -> int | None:
        """Requests that all replicas serve concurrently; None without a limit."""
        if self.candidate.capacity is None:
            return None
        return self.replicas * self.candidate.capacity

    @property
    def worst_capacity(self) -> int | None:
        """Those that they serve with all requests at their last token; None without a limit."""
        if self.candidate.worst_capacity is None:
            return None
        return self.replicas * self.candidate.worst_capacity

    @property
    def headroom(self) -> float:
        """The part of the users that could be added: 0.22 if 500 ask and 612 are served; infinite
        without a limit.
        """
        if self.capacity is None:
            return float("inf")
        return self.capacity / self.requested - 1

    @property
    def tpot(self) -> float:
        """Seconds per output token; infinite if they are not known."""
        if self.speed:
            return self.speed.served.tpot
        return math.inf

    @property
    def tokens_per_second(self) -> Ratio | None:
        """Output tokens per second of all replicas, estimated; None if it is not known."""
        if self.speed is None:
            return None
        thousandths = round(1000 * self.replicas * self.speed.served.tokens_per_second)
        return ratio(symbol("tokens", thousandths, "output tokens in 1,000 s, estimated"), 1000)

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
        output = self.candidate.concurrency.traffic.output
        if speed and output:
            return float(speed) / output
        return None

    @property
    def most_requests_per_second(self) -> float:
        """Requests per second that all replicas finish at most."""
        return self.replicas * load_served(
            self.candidate, self.demand._replace(requested=None, rate=ratio(1, 1))
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
        output = symbol(
            "output", self.candidate.concurrency.traffic.output, "output tokens of a request"
        )
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
        traffic = self.candidate.concurrency.traffic
        prompts, outputs = api
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


def row(candidate: Candidate, demand: Demand) -> Row | None:
    """Return as many replicas as the users need; None if these are more GPUs than allowed, or too
    slow.
    """
    within = within_times(candidate, demand)
    if within is None:
        return None
    needed = _replicas_needed(within, demand)
    if not needed:
        return None
    replicas, nodes = replicas_on_nodes(within, needed, spread=demand.spread)
    serving = replicas if within.gpu.instance else needed
    requests = _requests_of_one(within, demand, replicas=replicas, serving=serving)
    found = Row(within, replicas, nodes, requests, speed_of(within, requests, demand), demand)
    most = demand.most_gpus(candidate.gpu)
    if most is not None and found.gpus > most:
        return None
    return found


def _replicas_needed(candidate: Candidate, demand: Demand) -> int:
    """Return the replicas that serve the demand; without one as many as there may be. 0 if they do
    not serve it, or one has too many GPUs.
    """
    if demand.rate is not None:
        fastest = most_served(candidate, demand)
        if fastest:
            return max(1, math.ceil(demand.load / fastest))
        return 0
    if demand.is_open:
        return (demand.most_gpus(candidate.gpu) or 0) // candidate.split.gpus
    if candidate.capacity is None:
        return 1
    return math.ceil(demand.load / candidate.capacity)


def _requests_of_one(candidate: Candidate, demand: Demand, *, replicas: int, serving: int) -> int:
    """Return the concurrent requests of one of the replicas; a rate is divided over those that are
    `serving`, which leaves out replicas for a node that fails.
    """
    if demand.rate is not None:
        return requests_for_rate(candidate, serving, demand)
    if demand.requested is None:
        return candidate.capacity or 1
    return -(-demand.requested // replicas)


def rows(candidates: Iterable[Candidate], demand: Demand) -> list[Row]:
    """Return a row per candidate that serves the users, without those beyond the limit of GPUs."""
    found = (row(candidate, demand) for candidate in candidates)
    return [one for one in found if one]


def costs(found: Row) -> tuple[float, ...]:
    """Return what a row should have little of; another row is better if none of these is larger and
    one is smaller.
    """
    if found.speed:
        times = (found.speed.served.tpot, found.speed.served.ttft)
    else:
        times = (0.0, 0.0)
    served = found.requested if found.demand.is_open else 0
    return (found.gpus, found.nodes, found.candidate.verdict != "fits", -served, *times)


def is_scattered(one: Row) -> bool:
    """Return whether a row is many servers of one GPU each."""
    return one.candidate.split.gpus == 1 and one.replicas > _MOST_SINGLE


def best_rows(found: Sequence[Row]) -> list[Row]:
    """Return the first row of each model, GPU and dtypes, without those that need many times the
    GPUs of the model's first one.
    """
    fewest: dict[str, int] = {}
    kept: dict[tuple[Any, ...], Row] = {}
    for one in found:
        least = fewest.setdefault(one.candidate.group[0], one.gpus)
        if one.gpus <= TIMES_FIRST * least:
            kept.setdefault(one.candidate.group, one)
    return [*kept.values()]


def not_dominated(found: Sequence[Row]) -> list[Row]:
    """Return the rows than which no other row of the same model, GPU and dtypes is better, in their
    order.

    Of rows with equal costs the one with the most users is kept, and of these the first.
    """
    costs_of = {id(one): costs(one) for one in found}
    place = {id(one): i for i, one in enumerate(found)}

    def is_better(one: Row, other: Row) -> bool:
        own = costs_of[id(one)]
        others = costs_of[id(other)]
        if own != others:
            return all(a <= b for a, b in zip(own, others, strict=True))
        if one.headroom != other.headroom:
            return one.headroom > other.headroom
        return place[id(one)] < place[id(other)]

    groups = grouped((one.candidate.group, one) for one in found)
    return [
        one
        for one in found
        if not any(is_better(other, one) for other in groups[one.candidate.group])
    ]


# {what rows are sorted by: a number of which the first row has the least}.
SORT_KEYS: dict[str, Callable[["Row"], float]] = {
    "gpus": lambda row: row.gpus,
    "price": lambda row: float(row.price or 0),
    "price-per-token": lambda row: float(row.price_per_million or math.inf),
    "time-per-token": lambda row: row.tpot,
    "headroom": lambda row: -row.headroom,
    "tokens-per-second": lambda row: -float(row.tokens_per_second or 0),
}


def sorted_rows(found: Iterable[Row], sort: str) -> list[Row]:
    """Return the rows by one of SORT_KEYS, and then by GPUs, nodes, time and headroom.

    Many servers of one GPU each are after the others, and those that may not fit are last. Of equal
    rows, pipeline stages inside a node are after tensor parallelism.
    """

    def key(one: Row) -> tuple[float, ...]:
        split = one.candidate.split
        first = SORT_KEYS[sort](one)
        has_stages = split.pp > 1 and split.gpus <= one.candidate.gpu.per_node
        best = (one.candidate.verdict != "fits", is_scattered(one), first, one.gpus, one.nodes)
        return (*best, has_stages, one.tpot, split.pp, split.dp, -one.headroom, -one.requested)

    return sorted(found, key=key)
