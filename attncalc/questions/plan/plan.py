"""The plan that a search gives: its best rows, what more users need, and why nothing is enough."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...model import plural
from ...quantity import Ratio
from ...records import NamedTuple
from ...search import grouped
from ...serving.request import FitRequest
from ...units import SECONDS, quotient
from .candidates import Candidate
from .demand import Demand
from .rows import Row, best_rows, rows, sorted_rows
from .search import Found
from .speed import Speed, speed_of


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
    ttft: float  # seconds to the first token without a wait for other prompts
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
    # the kinds of GPU whose rows are left out, since they have many times the GPUs of the first row
    too_many: tuple[str, ...]
    too_large: int  # how many candidates would need more GPUs than allowed, or are too slow
    unserved: Mapping[str, str]  # {model: why none of its candidates is a row, as a sentence}
    demand: Demand  # the users, and what GPUs cost
    growth: tuple[Size, ...]  # what more users need
    sort: str  # what the rows are sorted by
    found: Found  # what the search found
    enough: Row | None = None  # without limits, if the GPUs within them do not serve all users
    # per model the best row in a narrower dtype that needs at most half of its first row's GPUs
    cheaper: tuple[Row, ...] = ()
    # whether pools were asked for, and the GPUs are too few for any
    no_pools: bool = False
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
    has_limit = any(demand.most_gpus(one.gpu) for one in found.candidates)
    enough = None
    if not every and has_limit and not demand.is_open:
        unlimited = rows(without_limit().candidates, demand._replace(max_gpus=None, budget=None))
        enough = next(iter(sorted_rows(unlimited, sort)), None)
        every = _serving_most(found.candidates, demand)
    kept = sorted_rows(every, sort)
    if not is_whole:
        kept = best_rows(kept)
    sizes: list[Size] = []
    for factor, when in growth.items():
        sizes += _sizes(found, demand, factor, when, sort)
    return Plan(
        rows=tuple(kept),
        left_out=len(every) - len(kept),
        too_many=_gpus_without_row(every, kept),
        too_large=len(found.candidates) - len(every),
        unserved=_unserved(found.candidates, demand, every),
        demand=demand,
        growth=_due(kept, sizes),
        sort=sort,
        found=found,
        enough=enough,
    )


def _gpus_without_row(every: Sequence[Row], kept: Sequence[Row]) -> tuple[str, ...]:
    """Return the kinds of GPU that have rows, but none that is kept."""
    listed = {one.candidate.gpu.rented for one in kept}
    found = dict.fromkeys(one.candidate.gpu.rented for one in every)
    return tuple(name for name in found if name not in listed)


def cheaper_row(first: Row, found: Found, sort: str) -> Row | None:
    """Return the best of the rows that a search in narrower dtypes found, if it needs at most half
    of the GPUs of a model's first row; else None.
    """
    best = next(iter(sorted_rows(rows(found.candidates, first.demand), sort)), None)
    if best is None or best.candidate.verdict != "fits" or 2 * best.gpus > first.gpus:
        return None
    return best


def _serving_most(candidates: Sequence[Candidate], demand: Demand) -> list[Row]:
    """Return the rows that serve most of a demand for which the GPUs are too few."""
    found = rows(candidates, demand._replace(requested=None, rate=None))
    if demand.requested:
        served = [float(one.requested) for one in found]
    else:
        served = [one.most_requests_per_second for one in found]
    most = max(served, default=0.0)
    return [one for one, load in zip(found, served, strict=True) if load == most]


def best_of_models(found: Sequence[Row]) -> Iterable[Row]:
    """Return the first row of each model."""
    return {one.candidate.group[0]: one for one in reversed(found)}.values()


def _unserved(
    candidates: Sequence[Candidate], demand: Demand, every: Sequence[Row]
) -> dict[str, str]:
    """Return {model: why none of its candidates is a row} of models that have candidates."""
    served = {one.candidate.group[0] for one in every}
    of_models = grouped((candidate.group[0], candidate) for candidate in candidates)
    return {
        model: _reason(of_model, demand)
        for model, of_model in of_models.items()
        if model not in served
    }


def _reason(candidates: Sequence[Candidate], demand: Demand) -> str:
    """Return why no candidate is a row."""
    speeds = []
    for candidate in candidates:
        speed = speed_of(candidate, 1, demand)
        if speed:
            speeds.append((candidate, speed))
    if not speeds and (demand.rate is not None or demand.has_times):
        return (
            "NO SPEED IS KNOWN, which --rate, --ttft and --tpot need: drafted tokens have none, "
            "and a GPU without FLOP/s"
        )
    too_slow = _too_slow(speeds, demand) if speeds else ""
    if too_slow:
        return f"NOTHING IS FAST ENOUGH: {too_slow}"
    if demand.max_gpus is None or rows(candidates, demand._replace(budget=None)):
        return "NOTHING FITS: the budget has no replica"
    return f"NOTHING FITS: the users need more than {plural(demand.max_gpus, 'GPU')}"


def _too_slow(speeds: Sequence[tuple[Candidate, Speed]], demand: Demand) -> str:
    """Return which target no candidate reaches, and the shortest time; '' if each is reached by
    one.
    """
    quickest, speed = min(speeds, key=lambda found: found[1].served.ttft)
    if demand.ttft is not None and speed.served.ttft > demand.ttft:
        return _missed("ttft", demand.ttft, speed.served.ttft, quickest, speed.bounds.ttft)
    quickest, speed = min(speeds, key=lambda found: found[1].served.tpot)
    if demand.tpot is not None and speed.served.tpot > demand.tpot:
        tpot = speed.served.tpot
        bound = speed.bounds.tpot
        text = _missed("tpot", demand.tpot, tpot, quickest, bound)
        if demand.has_usual_tpot:
            usual = f"The default is {1 / demand.tpot:.0f} tokens/s"
            return f"{text}. {usual}: --tpot {_slower(tpot)} asks for less"
        return text
    return ""


def _missed(
    name: str, target: float, seconds: float, candidate: Candidate, bound: Ratio | None
) -> str:
    """Return that the shortest time, of that candidate, is longer than a target; `bound` is its
    lower bound.
    """
    text = (
        f"--{name} {quotient(target, SECONDS)}, and the shortest is {quotient(seconds, SECONDS)} "
        f"({candidate.gpu.name}, {candidate.split.words}), {seconds / target:.3g} x as long"
    )
    if bound is not None:
        text += f"; its lower bound is {quotient(bound, SECONDS)}"
    return text


def _slower(seconds: float) -> str:
    """Return a target that is met, as '6/s' or '2s'."""
    if seconds < 1 / 2:
        return f"{int(1 / seconds)}/s"
    return f"{math.ceil(seconds)}s"


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
    more = demand.times(factor)
    best: dict[str, Row] = {}
    for one in sorted_rows(rows(found.candidates, more), sort):
        best.setdefault(one.candidate.group[0], one)
    models = dict.fromkeys(request.model.name for request in found.requests)
    return [Size(model, factor, more, best.get(model), when) for model in models]
