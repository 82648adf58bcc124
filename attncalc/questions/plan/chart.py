"""The charts of `attncalc plan`: cost over users, users over GPUs, and the frontier of cost and
time per token.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from ...show.plot.chart import Chart, Lines, Series
from ...show.plot.scale import Axis
from ...units import NO_UNIT, SECONDS
from .candidates import Candidate
from .demand import Demand
from .nodes import gpus_of_replicas, replicas_on_nodes
from .plan import Plan
from .speed import estimate, load_served

DEFAULT = ("cost", "users", "frontier")
# Kinds of GPU of a chart.
_LINES = 8
# Points of an axis; the last is twice the load that is asked for.
_STEPS = 25
# {the name of a line: its replicas, each with the load that it serves}.
_Capacities = Mapping[str, Sequence[tuple[Candidate, float]]]


def plan_charts(plan: Plan) -> Iterator[Chart]:
    """Yield the charts, with a line for each kind of GPU that has a row."""
    lines = _lines(plan)
    capacities = {
        label: [(one, load) for one in candidates if (load := load_served(one, plan.demand))]
        for label, candidates in lines.items()
    }
    unit = "users" if plan.demand.rate is None else "requests/s"
    if not plan.demand.is_open:
        yield _cost_chart(plan, capacities, unit)
    yield _users_chart(plan, capacities, unit)
    frontiers = [
        Series(label, points)
        for label, all_of in lines.items()
        if (points := _frontier(all_of, plan.demand))
    ]
    if frontiers:
        label = f"{'Price' if plan.demand.prices else 'GPU-hours'} per million tokens"
        time = Axis("time per output token", SECONDS, "tpot")
        yield Lines(
            "frontier", label, time, Axis(label, NO_UNIT, "cost"), tuple(frontiers), own_ticks=False
        )


def _lines(plan: Plan) -> dict[str, list[Candidate]]:
    """Return {name: the replicas of a kind of GPU}, of the kinds with the best rows."""
    groups = list(dict.fromkeys(row.candidate.group for row in plan.rows))[:_LINES]
    varies = [len({group[i] for group in groups}) > 1 for i in range(4)]
    varies[1] = True
    names = {
        group: ", ".join(
            part or "as released" for part, shown in zip(group, varies, strict=True) if shown
        )
        for group in groups
    }
    found: dict[str, list[Candidate]] = {name: [] for name in names.values()}
    for candidate in plan.found.candidates:
        if candidate.group in names and candidate.verdict == "fits":
            found[names[candidate.group]].append(candidate)
    return {name: candidates for name, candidates in found.items() if candidates}


def _cost_chart(plan: Plan, capacities: _Capacities, unit: str) -> Lines:
    """Return what the cheapest replicas of each GPU cost, by load; their GPUs without prices."""
    demand = plan.demand
    loads = [2 * demand.load * i / _STEPS for i in range(1, _STEPS + 1)]
    if demand.requested is not None:
        loads = sorted({math.ceil(load) for load in loads})
    label = "Price per hour" if demand.prices else "GPUs"

    def cost(candidate: Candidate, served: float, load: float) -> float:
        needed = max(1, math.ceil(load / served - 1e-9))
        price = float(demand.prices.get(candidate.gpu.rented, 1))
        return (
            gpus_of_replicas(candidate, *replicas_on_nodes(candidate, needed, spread=demand.spread))
            * price
        )

    series = tuple(
        Series(name, _steps([(load, min(cost(*each, load) for each in of_gpu)) for load in loads]))
        for name, of_gpu in capacities.items()
        if of_gpu
    )
    axis = Axis(label, NO_UNIT, "cost")
    return Lines("cost", label, Axis(unit, NO_UNIT, unit), axis, series, own_ticks=False)


def _users_chart(plan: Plan, capacities: _Capacities, unit: str) -> Lines:
    """Return the load that so many GPUs of each kind serve at most."""
    longest = plan.demand.max_gpus or max(
        2 * plan.rows[0].gpus, *(row.gpus for row in plan.rows[:_LINES])
    )
    numbers = range(1, longest + 1)
    if longest > _STEPS:
        numbers = range(step := -(-longest // _STEPS), longest + 1, step)

    def served(of_gpu: Sequence[tuple[Candidate, float]], gpus: int) -> float:
        gpu = of_gpu[0][0].gpu
        gpus -= gpus % gpu.rented_gpus
        loads = [
            gpus // candidate.split.gpus * load for candidate, load in of_gpu if load < math.inf
        ]
        return max(loads, default=0.0)

    series = tuple(
        Series(name, _steps([(gpus, served(of_gpu, gpus)) for gpus in numbers], later=True))
        for name, of_gpu in capacities.items()
    )
    return Lines(
        "users",
        unit.capitalize(),
        Axis("GPUs", NO_UNIT, "gpus"),
        Axis(unit.capitalize(), NO_UNIT),
        series,
        own_ticks=False,
    )


def _steps(
    points: Sequence[tuple[float, float]], *, later: bool = False
) -> tuple[tuple[float, float], ...]:
    """Return the points of a line that is level between them, and rises at the one before; `later`
    at the next one.
    """
    found = [points[0]]
    for (x, y), (next_x, next_y) in itertools.pairwise(points):
        if y != next_y:
            found.append((next_x, y) if later else (x, next_y))
        found.append((next_x, next_y))
    return tuple(found)


def _frontier(candidates: Sequence[Candidate], demand: Demand) -> tuple[tuple[float, float], ...]:
    """Return (time per token, cost of a million) of replicas and loads; those after it are 1 %
    cheaper each.
    """
    found = []
    for candidate in candidates:
        hour = candidate.split.gpus * float(demand.prices.get(candidate.gpu.rented, 1))
        last = candidate.capacity or 1 << 10
        for requests in sorted({1 << i for i in range(last.bit_length())} | {last}):
            served = estimate(candidate, requests, demand)
            if served is not None:
                found.append((served.tpot, hour * 10**6 / 3600 / served.tokens_per_second))
    kept: list[tuple[float, float]] = []
    for time, cost in sorted(found):
        if not kept or cost < 0.99 * kept[-1][1]:
            kept.append((time, cost))
    return tuple(kept)
