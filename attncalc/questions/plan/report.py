"""The report of `attncalc plan`: the best row as a sentence, the rows, and the command that starts
a replica.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...engines import find_engine
from ...errors import AttncalcError
from ...hardware import PCIE
from ...model import plural
from ...quantity import ceil_div, named, quantity, ratio, symbol
from ...serving.fit import fit, min_gpus
from ...serving.host_read import host_bandwidth, uses_host
from ...serving.launch import launch_command
from ...serving.request import resolve
from ...serving.suggestions import suggestions
from ...serving.users import users
from ...show.figures import FigureRow, FigureRows, ratio_row
from ...show.lists import WIDTH
from ...show.picture import picture
from ...show.plot.chart import Picture
from ...show.report import Column, Figure, Report, Table, column_table, number, rows_of
from ...show.text import HEIGHT, first_that_fits, table_lines
from ...show.users import FIGURES as USERS
from ...show.users import described, shared
from ...units import MONTH_HOURS, NO_UNIT, PER_SECOND, SECONDS, count, quotient
from ..fit.report import request_facts
from ..fit.tables import command_table
from .chart import DEFAULT, plan_charts
from .search import (
    LEAST_TOKENS_PER_SECOND,
    Candidate,
    Demand,
    Plan,
    Pool,
    Pools,
    Row,
    Size,
    best_of_models,
    gpus_of_replicas,
    replicas_on_nodes,
)

_Columns = dict[str, tuple[Column, list[str]]]
# Columns that are left out of a table that is too wide, in this order.
_LEAST_NEEDED = ("limit", "nodes", "worst", "replicas", "TTFT", "tokens/s")
_PUBLISHED = (
    "published_tokens_per_second_low",
    "published_tokens_per_second_median",
    "published_tokens_per_second_high",
    "published_runs",
    "published_class",
    "published_sources",
)
# Kinds of GPU of the table of pools.
_MOST_POOLS = 3
# GPUs that a note names of each engine.
_MOST_NAMES = 3
_MAY_NOT = "may not fit"
_NO_ROW = "if no GPUs serve the users"
_OF_RUNS = "of the median published run, or with --efficiency"
_NO_LIMIT = "without a limit"
_NO_TIMES = "with drafted tokens, and without the GPU's FLOP/s"
_NO_POWER = "if the GPU's file has no power"
_FIRST = "seconds to the first token of a request that waits for no other"
_ALL = "output tokens per second of all replicas with so many users"
# {a figure of the speed: its label, meaning and unit, and what its bound is}.
_SPEED = {
    "ttft": ("time to the first token", _FIRST, SECONDS, "least", "a lower"),
    "tpot": (
        "time per output token",
        "seconds per output token with so many users",
        SECONDS,
        "least",
        "a lower",
    ),
    "tokens_per_second": ("tokens/s", _ALL, PER_SECOND, "most", "an upper"),
}
# The figures of a row; those of the whole answer are the best row's.
FIGURES = FigureRows(
    gpus=FigureRow("GPUs", NO_UNIT, "GPUs of all replicas", _NO_ROW),
    nodes=FigureRow("nodes", NO_UNIT, "nodes that they take", _NO_ROW),
    replicas=FigureRow("replicas", NO_UNIT, "replicas, each with requests of its own", _NO_ROW),
    gpus_per_replica=FigureRow("GPUs of a replica", NO_UNIT, "GPUs of one replica", _NO_ROW),
    users_per_replica=FigureRow(
        "users per replica, on average",
        NO_UNIT,
        "requests that a replica runs concurrently, on average",
        _NO_LIMIT,
    ),
    users_per_replica_worst=FigureRow(
        "users per replica, at worst",
        NO_UNIT,
        "as many with all requests at their last token",
        _NO_LIMIT,
    ),
    concurrent_average=USERS["concurrent_average"],
    concurrent_worst=USERS["concurrent_worst"],
    users_all_replicas=FigureRow(
        "users of all replicas", NO_UNIT, "users_per_replica of all replicas", _NO_LIMIT
    ),
    headroom=ratio_row(
        "headroom",
        "the part of the users that could be added: 0.25 if 500 are asked for and 625 served",
        _NO_LIMIT,
    ),
    **{
        f"{name}_bound": ratio_row(
            f"{label}, at {least}", f"{meaning}; {bound} bound", _NO_TIMES, unit=unit
        )
        for name, (label, meaning, unit, least, bound) in _SPEED.items()
    },
    **{
        f"{name}_estimate": ratio_row(label, f"{meaning}, {_OF_RUNS}", _NO_TIMES, unit=unit)
        for name, (label, meaning, unit, _, _) in _SPEED.items()
    },
    price_per_million_tokens=ratio_row(
        "price of a million tokens",
        "price of a million output tokens on average: with --rate of those asked for, else at "
        "that speed",
        f"without --price, {_NO_TIMES}",
    ),
    break_even_rate=ratio_row(
        "requests/s from which the GPUs are cheaper than the API",
        "requests per second on average at which the GPUs cost as much as the API",
        "without --api-price",
    ),
    watts=FigureRow(
        "power", NO_UNIT, "the GPUs' maximum power together, in W, without their hosts", _NO_POWER
    ),
    kwh_per_million_tokens=ratio_row(
        "kWh of a million tokens",
        "kWh of a million output tokens at that power and speed",
        f"{_NO_POWER}, {_NO_TIMES}",
    ),
    price_per_hour=ratio_row(
        "price of an hour",
        "the price of all GPUs for an hour, in the currency of --price",
        "without --price",
    ),
    price_per_month=ratio_row(
        "price of a month", f"the price of {MONTH_HOURS} hours", "without --price"
    ),
)
_NOTHING = dict.fromkeys(FIGURES)


def plan_report(plan: Plan) -> Report:
    best = plan.rows[0] if plan.rows else None
    layers = tuple((row_facts(row), row_figures(row)) for row in plan.rows)
    report = Report(
        "plan",
        _heading(plan),
        {},
        {},
        layers[0][1] if layers else FIGURES.filled(**_NOTHING),
        layers,
        notes=tuple(_notes(plan)),
        extra={
            "load": _load_facts(plan),
            "growth": [_size_facts(size) for size in plan.growth],
            "disaggregated": [_pools_facts(pools) for pools in plan.pools],
            "search": _search_facts(plan),
        },
        rows=rows_of(layers),
        verdict=best.candidate.verdict if best and plan.serves_all else "does_not_fit",
        draw=lambda: _picture(plan),
    )
    return _on_one_screen(report, plan)


def _picture(plan: Plan) -> Picture | None:
    """Return the charts; None without rows."""
    if not plan.rows:
        return None
    lines = _heading(plan)
    facts = (
        "users are averages, with half of the output",
        f"times, and what a million tokens cost: {_case(plan)}",
    )
    models = ", ".join(dict.fromkeys(request.model.title for request in plan.requests))
    dtypes = "weights and cache in the dtypes of the rows"
    engines = ", ".join(dict.fromkeys(row.candidate.resolved.engine.title for row in plan.rows))
    traffic = plan.requests[0].traffic
    assert traffic is not None
    load = f"{asked(plan.demand)} of {described(traffic)}"
    charts = tuple(plan_charts(plan))
    return picture(models, lines[0], (load, *facts), charts, DEFAULT, engine=engines, dtypes=dtypes)


def row_facts(row: Row) -> dict[str, Any]:
    """Return what a row is, as plain data."""
    candidate = row.candidate
    split = row.candidate.split
    resolved = candidate.resolved
    return {
        "model": resolved.request.model.name,
        "gpu": candidate.gpu.name,
        "instance": candidate.gpu.instance or None,
        "split": split.words,
        **{name: getattr(split, name) for name in ("tp", "pp", "dp", "attn_dp", "expert_parallel")},
        "ranks": resolved.ranks,
        "weights_dtype": resolved.request.weights_dtype,
        "checkpoint": resolved.checkpoint,
        "kv_dtype": resolved.workload.kv_dtype,
        "engine": resolved.engine.name,
        "verdict": candidate.verdict,
        "limited_by": candidate.limited_by,
        "bound_by": row.speed.bounds.bound_by if row.speed else None,
        "launch_command": _command(candidate),
        **_published(row),
    }


def _command(candidate: Candidate) -> str | None:
    """Return the command that starts a replica; of an engine with slots with one per user. None if
    there is none.
    """
    resolved = candidate.resolved
    if candidate.worst and resolved.args_without_slots is not resolved.args:
        resolved = resolve(resolved.request.with_workload(batch=candidate.worst))
    return launch_command(resolved)


def _published(row: Row) -> dict[str, Any]:
    """Return the tokens/s to expect of a row from published runs, at its capacity; every value None
    without any.
    """
    found = row.speed and row.speed.runs
    speed = row.tokens_per_second
    if speed is None or found is None:
        return dict.fromkeys(_PUBLISHED)
    output = row.candidate.users.traffic.output
    most = row.most_requests_per_second * output if row.demand.rate else float(speed)
    tokens = (share / found.median * most for share in (found.low, found.median, found.high))
    values = (*tokens, found.runs, str(found.of), ", ".join(found.sources))
    return dict(zip(_PUBLISHED, values, strict=True))


def row_figures(row: Row) -> tuple[Figure, ...]:
    candidate = row.candidate
    users = symbol("users", row.asked, "users whose requests run concurrently")
    each = symbol("gpus_per_replica", candidate.split.gpus, "GPUs of one replica")
    rented = symbol(
        "gpus_per_instance", candidate.gpu.per_node, f"GPUs of a {candidate.gpu.instance}"
    )
    if candidate.most is None:
        most = None
    else:
        most = symbol("users_per_replica", candidate.most, "requests of one replica")
    needed = quantity(ceil_div(users, most)) if most else quantity(1)
    if int(needed) == row.replicas:
        replicas = needed
    else:
        replicas = symbol("replicas", row.replicas, "replicas")
    gpus = named(replicas, "replicas", "replicas") * each
    if candidate.gpu.instance:
        gpus = symbol("instances", row.nodes, "instances") * rented
    served = headroom = None
    if most is not None:
        served = quantity(replicas * most)
        headroom = ratio(
            quantity(named(served, "users_all_replicas", "users of all replicas") - users), users
        )
    speed = row.speed
    bounds = row.speed and row.speed.bounds
    return FIGURES.filled(
        gpus=gpus,
        nodes=quantity(row.nodes),
        replicas=replicas,
        gpus_per_replica=each,
        users_per_replica=None if most is None else quantity(most),
        users_per_replica_worst=None if candidate.worst is None else quantity(candidate.worst),
        concurrent_average=candidate.users.average,
        concurrent_worst=candidate.users.worst,
        users_all_replicas=served,
        headroom=headroom,
        ttft_bound=bounds and bounds.ttft,
        tpot_bound=bounds and bounds.tpot,
        tokens_per_second_bound=row.tokens_per_second_bound,
        ttft_estimate=speed and speed.ttft,
        tpot_estimate=speed and speed.tpot,
        tokens_per_second_estimate=row.tokens_per_second,
        price_per_million_tokens=row.price_per_million,
        break_even_rate=row.break_even_rate,
        watts=row.watts,
        kwh_per_million_tokens=row.kwh_per_million,
        price_per_hour=row.price,
        price_per_month=row.price_per_month,
    )


# The screen


def answer(row: Row) -> str:
    """Return a row as a sentence: '8 x H200 SXM 141GB in 1 node: tp 8, 1 replica, room for 612
    users'.
    """
    candidate = row.candidate
    gpu = row.candidate.gpu
    split = f"{candidate.split.words}, " if candidate.split.gpus > 1 else ""
    may = "" if candidate.verdict == "fits" else ", which may not fit"
    place = f"{count(row.gpus)} x {gpu.title.removeprefix(f'{gpu.vendor} ')}"
    if gpu.instance:
        place = f"{count(row.nodes)} x {gpu.instance} ({place})"
    else:
        place = f"{place} in {plural(row.nodes, 'node')}"
    ranks = candidate.resolved.ranks
    of_ranks = f" of {count(ranks)} ranks" if ranks > 1 else ""
    return f"{place}: {split}{plural(row.replicas, 'replica')}{of_ranks}, {_capacity(row)}{may}"


def _capacity(row: Row) -> str:
    if row.demand.rate is not None:
        return f"up to {number(row.most_requests_per_second)} requests/s"
    room = f"room for {'any number of users' if row.users is None else plural(row.users, 'user')}"
    rate = row.requests_per_second if row.demand.is_open else None
    if rate:
        return f"{room}, up to {number(rate)} requests/s"
    return room


def _cost(row: Row) -> str:
    """Return what a row costs: 'Price: 20.00 per hour (2.50 per GPU x 8), 14,600 per month (730 h),
    ...'.
    """
    assert row.price
    assert row.price_per_month
    gpu = row.candidate.gpu
    demand = row.demand
    number_of = row.nodes if gpu.instance else row.gpus
    one = float(demand.prices[gpu.rented]) * gpu.rented_gpus
    each = f"{one:,.2f}" if round(one, 2) == one else f"{one:,.3f}"
    text = (
        f"Price: {float(row.price):,.2f} per hour ({each} per {gpu.instance or 'GPU'} x "
        f"{count(number_of)}), "
    )
    text += f"{float(row.price_per_month):,.0f} per month ({MONTH_HOURS} h)"
    if row.price_per_million:
        return f"{text}, {float(row.price_per_million):,.3g} per million output tokens"
    return text


def _api(row: Row) -> str:
    """Return what an API costs, and from which rate the GPUs of a row cost less, on average."""
    demand = row.demand
    enough = float(row.break_even_rate or 0)
    part = float(demand.load_factor or 1)
    most = row.most_requests_per_second * part
    prices = list(dict.fromkeys(f"{float(price):,.4g}" for price in demand.api_price or ()))
    text = (
        f"API at {' (input) and '.join(prices)}{' (output)' * len(prices[1:])} per million tokens"
    )
    rate = float(demand.rate or row.requests_per_second or 0) * part
    if rate and not demand.is_open:
        own = float(row.price_per_month or 0)
        traffic = row.candidate.users.traffic
        bill = own * rate / enough
        tokens = rate * (traffic.prompt + traffic.output) * MONTH_HOURS * 3600 / 10**6
        own_price = f"{own:,.0f} ({own / tokens:,.3g} per million of input and output)"
        text += f": {bill:,.0f} per month for {number(rate)} requests/s, the GPUs {own_price}"
        text += f": the {'API is' if bill < own else 'GPUs are'} cheaper" * (enough <= most)
    never = "; the API is cheaper at any rate" if enough > most else ""
    at = f"{number(enough)} requests/s, capacity {number(most)}"
    return f"{text}. Break-even with {plural(row.gpus, 'GPU')}: {at}{never}"


def _expected(row: Row, at_best: int | None, *, has_reason: bool) -> str:
    """Return the speed of each user, where it is from, and the GPUs that are enough in the best
    case, if known.
    """
    speed = float(row.tokens_per_second or 0) / row.asked
    text = f"Expect {number(speed)} tokens/s per{' concurrent' * has_reason} user"
    if row.speed is None or row.speed.runs is None:
        return f"{text}: --efficiency {number(float(row.demand.efficiency or 1))}"
    runs = plural(row.speed.runs.median_runs, "published run")
    share = f"{row.speed.runs.median:.2g} of the best case"
    more = "; faster: --tpot 20/s" * (speed < LEAST_TOKENS_PER_SECOND and not row.demand.has_times)
    if at_best and at_best < row.gpus:
        # the share is that of tokens/s at usual times
        is_near = at_best < 0.7 * row.speed.runs.median * row.gpus
        more = f", for which {plural(at_best, 'GPU')} {'is' if at_best == 1 else 'are'} enough"
        more += "; the target is near the least time" * (is_near and row.demand.has_times)
    return text + f": the median of {runs} reaches {share}{more}" * has_reason


def _heading(plan: Plan) -> tuple[str, ...]:
    models = _models(plan)
    best: dict[str, Row | None] = dict.fromkeys(models) | {
        one.candidate.group[0]: one for one in best_of_models(plan.rows)
    }
    no = "" if plan.serves_all else "NOT ENOUGH: "
    lines = [f"{no}{answer(row)}" if row else _nothing(plan, name) for name, row in best.items()]
    prices = {
        name: row.price_per_month for name, row in best.items() if row and row.price_per_month
    }
    if len(models) > 1:
        lines = [f"{name}: {line}" for name, line in zip(models, lines, strict=True)]
        each = ", ".join(f"{name} {float(price):,.0f}" for name, price in prices.items())
        lines += [f"Price per month ({MONTH_HOURS} h): {each}"] if prices else []
    else:
        lines = [lines[0][0].upper() + lines[0][1:]]
    if plan.enough:
        price = plan.enough.price_per_month
        lines.append(
            f"Enough: {answer(plan.enough)}{f', {float(price):,.0f} per month' if price else ''}"
        )
    start = {name: f"{name}: " if len(models) > 1 else "" for name in models}
    lines += [start[name] + text for name, row in best.items() if row and (text := _fewer(row))]
    one = len(models) == 1
    found = {name: row for name, row in best.items() if row}
    lines += [
        start[name] + _expected(row, plan.at_best.get(name), has_reason=one)
        for name, row in found.items()
        if row.speed
    ]
    if one and prices:
        lines.append(_cost(plan.rows[0]))
    if plan.demand.api_price:
        lines += [start[name] + _api(row) for name, row in found.items()]
    first = plan.requests[0]
    assert first.traffic is not None
    each = "for each model" if len(models) > 1 else ""
    load = ", ".join(filter(None, (described(first.traffic), shared(first.traffic), each)))
    engines = dict.fromkeys(candidate.resolved.engine.title for candidate in plan.found.candidates)
    titles = [first.model.title] if len(models) == 1 else []
    of = " at once," if plan.demand.users is not None else " of"
    facts = [
        *titles,
        f"{asked(plan.demand)}{of} {load}",
        *engines,
        *_dtypes(plan),
        *_targets(plan.demand),
    ]
    lines.append(", ".join(facts).lstrip())
    return tuple(lines)


def _fewer(row: Row) -> str:
    """Return how many GPUs may be enough, with the least runtime memory of its range; '' if it is
    as many.
    """
    candidate = row.candidate
    users_asked = row.demand.users
    spread = row.demand.spread
    if users_asked is None or candidate.limited_by != "cache":
        return ""
    found = users(candidate.resolved, "high")
    most = found and found.average and int(found.average) * candidate.resolved.replicas
    if not most:
        return ""
    gpus = gpus_of_replicas(
        candidate, *replicas_on_nodes(candidate, ceil_div(users_asked, most), spread=spread)
    )
    if gpus >= row.gpus:
        return ""
    return (
        f"{plural(gpus, 'GPU')} may be enough: with the least runtime memory, a replica has room "
        f"for {count(most)}"
    )


def _dtypes(plan: Plan) -> list[str]:
    """Return the dtypes of weights and cache if an option sets one: '--dtype fp8' sets the cache's
    too.
    """
    if not any(
        one.weights_dtype or one.workload.kv_dtype or one.workload.dtype for one in plan.requests
    ):
        return []
    of_rows = {request_facts(row.candidate.resolved)[-2:] for row in plan.rows}
    if len(of_rows) == 1:
        return [fact for fact in of_rows.pop() if fact]
    return []


def asked(demand: Demand) -> str:
    """Return what is asked for: '500 users', or '20 requests/s'."""
    if demand.rate is not None:
        return f"{number(float(demand.rate))} requests/s"
    if demand.users is None:
        return "requests"
    return plural(demand.users, "user")


def _targets(demand: Demand) -> Iterator[str]:
    for name, seconds in (("first token", demand.ttft), ("token", demand.tpot)):
        if seconds is not None:
            yield f"{name} within {quotient(seconds, SECONDS)}"
    if demand.load_factor:
        average = demand.on_average(demand.rate)
        of_load = f"the peak of {number(float(average))} on average, " if average else ""
        yield f"{of_load}load factor {number(float(demand.load_factor))}"
    if demand.has_no_peak:
        yield "on average: a peak of 3 x is --load-factor 1/3"
    if demand.spread:
        yield "one node may fail"
    if demand.budget is not None:
        yield f"{float(demand.budget):,.2f} per hour at most"


def _nothing(plan: Plan, model: str) -> str:
    """Return why there is no row for a model."""
    if any(candidate.group[0] == model for candidate in plan.found.candidates):
        if plan.too_slow:
            return f"NOTHING IS FAST ENOUGH: {plan.too_slow}"
        if plan.demand.max_gpus is None:
            return "NOTHING FITS: the budget has no replica"
        return f"NOTHING FITS: the users need more than {plural(plan.demand.max_gpus, 'GPU')}"
    refused = [one for one in plan.found.refused if one.model == model]
    reasons = [
        f"{one.reason}. {one.tip[:1].upper()}{one.tip[1:].rstrip('.')}." for one in refused[:1]
    ]
    requests = [request for request in plan.requests if request.model.name == model]
    if len(refused) == len(requests) and all(one.is_whole for one in refused):
        return f"NOTHING STARTS: {reasons[0]}"
    text = (
        "NOTHING FITS: no split over these GPUs holds the weights and one "
        f"request{_what_fits(plan, model)}"
    )
    return " ".join(
        [f"{text.rstrip('.')}.", *(f"Others do not start: {reason}" for reason in reasons)]
    )


def _what_fits(plan: Plan, model: str) -> str:
    """Return with which dtype one request fits on the first kind of GPU, and on how many of them;
    '' if not known.
    """
    request = next(one for one in plan.requests if one.model.name == model)
    gpus = plan.demand.max_gpus
    try:
        result = fit(dataclasses.replace(request, gpus=gpus or 1))
    except AttncalcError:  # no split over so many
        return ""
    context = request.workload.context
    more = min_gpus(result.resolved)
    kept = [
        one.flag for one in suggestions(result) if one.result.request.workload.context == context
    ]
    flags = [*(flag for flag in kept if "--gpus" not in flag)][:1] + (
        [f"--max-gpus {more}"] if more else []
    )
    if flags and gpus:
        return f". {' does, or '.join(flags)}{' does' * (len(flags) == 1)}."
    return ""


def _on_one_screen(report: Report, plan: Plan) -> Report:
    """Return the report with as many rows as a screen has room for: those of the best of each GPU
    first.
    """
    rows = _best_of_each_group_first(plan.rows)

    def screen(shown: int) -> Report:
        chosen = sorted(rows[:shown], key=plan.rows.index)
        left = len(rows) - shown
        columns, hidden = _fitting(_columns(plan, chosen)) if chosen else ({}, [])
        if hidden:
            columns_left = f"column{'s' if len(hidden) > 1 else ''} {', '.join(hidden)}"
        else:
            columns_left = ""
        rest = filter(None, (plural(left, "row") if left else "", columns_left))
        if text := " and ".join(rest):
            more = [f"Left out: {text}; -o plan.csv writes all."]
        else:
            more = []
        tables = tuple(_tables(plan, chosen, columns))
        return report._replace(tables=tables, shown_notes=(*more, *_notes(plan, hidden)))

    return first_that_fits(map(screen, range(min(len(rows), HEIGHT), 0, -1) or [0]))


def _best_of_each_group_first(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the best of each model first, then the best of each GPU and dtype, then
    the second.
    """
    seen: dict[Any, int] = {}
    ranked = []
    for i, row in enumerate(rows):
        group = row.candidate.group
        seen[group] = seen.get(group, 0) + 1
        is_first = group[0] not in seen
        seen[group[0]] = 1
        ranked.append((not is_first, seen[group], i, row))
    return [row for *_, row in sorted(ranked, key=lambda ranks: ranks[:3])]


def _fitting(columns: _Columns) -> tuple[_Columns, list[str]]:
    """Return the columns without those that a table within WIDTH has no room for, and the names of
    these.
    """
    hidden: list[str] = []
    for name in _LEAST_NEEDED:
        if _width(columns.values()) <= WIDTH:
            break
        if name not in columns or any(_MAY_NOT in cell for cell in columns[name][1]):
            continue
        columns = {each: column for each, column in columns.items() if each != name}
        hidden.append(name)
    return columns, hidden


def _width(columns: Iterable[tuple[Column, list[str]]]) -> int:
    return max(map(len, table_lines(column_table(list(columns)))))


def _tables(plan: Plan, rows: Sequence[Row], columns: _Columns) -> Iterator[Table]:
    if not rows:
        return
    yield from _split(list(columns.values()))
    if plan.growth:
        yield _growth_table(plan)
    if plan.pools:
        yield from _pools_tables(plan)
    if len(_models(plan)) == 1:  # with several, a row of each is worth more
        yield from command_table(_command(plan.rows[0].candidate), "each replica of the first row")


def _columns(plan: Plan, rows: Sequence[Row]) -> _Columns:
    candidates = [row.candidate for row in rows]
    texts = {
        "model": [candidate.group[0] for candidate in candidates],
        "gpu": [candidate.gpu.rented for candidate in candidates],
        "weights": [candidate.group[2] or "as released" for candidate in candidates],
        "cache": [candidate.resolved.workload.kv_dtype or "" for candidate in candidates],
        "split": [candidate.split.words for candidate in candidates],
    }
    columns = [
        (Column(name, "left"), cells)
        for name, cells in texts.items()
        if name in ("gpu", "split") or len({*cells}) > 1
    ]
    columns += [
        (Column("gpus"), [count(row.gpus) for row in rows]),
        (Column("nodes"), [count(row.nodes) for row in rows]),
        (Column("repli-\ncas"), [count(row.replicas) for row in rows]),
    ]
    if plan.demand.rate is None:
        for name in ("users", "worst"):
            served = [getattr(row, name) for row in rows]
            columns.append(
                (Column(name), ["any" if users is None else count(users) for users in served])
            )
    else:
        columns.append(
            (Column("most\nreq/s"), [number(row.most_requests_per_second) for row in rows])
        )
    if plan.demand.prices:
        columns.append(
            (
                Column("price/\nhour"),
                [f"{float(row.price):,.2f}" if row.price else "-" for row in rows],
            )
        )
    speeds = [row.speed for row in rows]
    columns += [
        (Column("TTFT"), [quotient(s.ttft, SECONDS) if s else "-" for s in speeds]),
        (Column("TPOT"), [quotient(s.tpot, SECONDS) if s else "-" for s in speeds]),
        (
            Column("tokens\n/s"),
            [
                f"{float(speed):,.0f}" if speed else "-"
                for speed in (row.tokens_per_second for row in rows)
            ],
        ),
    ]
    if plan.demand.prices:
        per_million = [row.price_per_million for row in rows]
        columns.append(
            (
                Column("price/M\ntokens"),
                [f"{float(price):,.3g}" if price else "-" for price in per_million],
            )
        )
    if plan.demand.shows_power:
        columns.append(
            (Column("kW"), [f"{row.watts / 1000:,.2f}" if row.watts else "-" for row in rows])
        )
        energies = [row.kwh_per_million for row in rows]
        columns.append(
            (Column("kWh\n/M"), [f"{float(kwh):,.3g}" if kwh else "-" for kwh in energies])
        )
    limits = [
        one.limited_by + ("" if one.verdict == "fits" else f", {_MAY_NOT}") for one in candidates
    ]
    if {*limits} != {"cache"}:
        columns.append((Column("limit", "left"), limits))
    return {
        column.header.replace("-\n", "").replace("\n", ""): (column, cells)
        for column, cells in columns
    }


def _split(columns: Sequence[tuple[Column, list[str]]]) -> Iterator[Table]:
    """Yield one table, or as many as fit WIDTH, each with the columns of text at its left."""
    names = sum(
        column.align == "left"
        for column, _ in itertools.takewhile(lambda c: c[0].align == "left", columns)
    )
    chosen = list(columns[:names])
    for each in columns[names:]:
        if len(chosen) > names and _width([*chosen, each]) > WIDTH:
            yield column_table(chosen)
            chosen = list(columns[:names])
        chosen.append(each)
    yield column_table(chosen)


def _growth_table(plan: Plan) -> Table:
    rows = [size.row for size in plan.growth]
    texts = {
        "model": [size.model for size in plan.growth],
        "growth": [
            f"{f'{size.when}:' if size.when else f'{number(size.factor)} x,'} {asked(size.demand)}"
            for size in plan.growth
        ],
    }
    last = (Column("replicas"), [count(row.replicas) if row else "-" for row in rows])
    if plan.demand.prices:
        prices = [float(row.price_per_month or 0) if row else 0 for row in rows]
        last = (Column("per month"), [f"{price:,.0f}" if price else "-" for price in prices])
    return column_table(
        [
            *(
                (Column(name, "left"), cells)
                for name, cells in texts.items()
                if name == "growth" or len({*cells}) > 1
            ),
            (Column("gpus"), [count(row.gpus) if row else "-" for row in rows]),
            (Column("nodes"), [count(row.nodes) if row else "-" for row in rows]),
            (
                Column("gpu", "left"),
                [row.candidate.gpu.rented if row else "none serves them" for row in rows],
            ),
            (Column("split", "left"), [row.candidate.split.words if row else "" for row in rows]),
            last,
        ]
    )


def _pools_tables(plan: Plan) -> Iterator[Table]:
    """Return the pools of the first kinds of GPU; JSON has all."""
    shown = plan.pools[:_MOST_POOLS]
    decoders = [pools.decode.candidate for pools in shown]
    models = [decoder.group[0] for decoder in decoders]
    yield from _split(
        [
            *([(Column("model", "left"), models)] if len({*models}) > 1 else []),
            (Column("gpu", "left"), [decoder.gpu.rented for decoder in decoders]),
            *(column for name in ("prefill", "decode") for column in _pool_columns(name, shown)),
            (Column("all"), [count(pools.gpus) for pools in shown]),
            (Column("TTFT"), [quotient(pools.ttft, SECONDS) for pools in shown]),
            (Column("TPOT"), [quotient(pools.tpot, SECONDS) for pools in shown]),
            (Column("cache\nGB/s"), [f"{pools.cache_per_second / 10**9:,.3g}" for pools in shown]),
        ]
    )


def _pool_columns(name: str, shown: Sequence[Pools]) -> Iterator[tuple[Column, list[str]]]:
    pools: list[Pool] = [getattr(each, name) for each in shown]
    texts = [f"{count(pool.replicas)} x {pool.candidate.split.words}" for pool in pools]
    yield Column(name, "left"), texts
    yield Column("gpus"), [count(pool.gpus) for pool in pools]


def _notes(plan: Plan, hidden: Sequence[str] = ()) -> Iterator[str]:
    found, demand = plan.found, plan.demand
    if not found.complete:
        yield "warning: interrupted; these are the rows that were found until then."
    yield from _assumptions(plan)
    if not plan.rows:
        pruned = f"; {count(found.pruned)} more cannot hold the weights" if found.pruned else ""
        yield (
            f"Searched: {plural(found.tried, 'split')} of {plural(len(_gpus(plan)), 'kind')} of "
            f"GPU{pruned}."
        )
    if any(row.is_slow for row in plan.rows):
        yield (
            f"Rows with less than {LEAST_TOKENS_PER_SECOND} tokens/s per user, even in the best "
            "case, are the last."
        )
    worst = "" if "worst" in hidden else "; worst, as 'fit -b': with all of it"
    if demand.rate is None:
        yield f"users: on average, with half of the output{worst}."
    if any(row.speed for row in plan.rows):
        yield (
            f"{'' if 'TTFT' in hidden else 'TTFT (first token) and '}TPOT (per token): "
            f"{_case(plan)}."
        )
    expected = _published(plan.rows[0]) if plan.rows else {}
    if expected.get("published_runs"):
        low, _, high, runs, *_ = expected.values()
        yield (
            f"By {plural(runs, 'published run')}, the first row reaches {low:,.0f} to {high:,.0f} "
            "tokens/s."
        )
    if plan.pools:
        rest = f"; {count(len(plan.pools))} in --json" if len(plan.pools) > _MOST_POOLS else ""
        yield f"prefill, decode: separate GPUs; cache is what moves between them{rest}."
    if demand.prices and (demand.rate or demand.load_factor):
        average = " on average" if demand.load_factor else ""
        yield (
            f"price/M: of the tokens{' asked for' * (demand.rate is not None)}{average}. "
            "tokens/s: of busy replicas."
        )
    if demand.shows_power:
        yield "kW: the GPUs' maximum power, without hosts; kWh/M: of a million output tokens."


def _assumptions(plan: Plan) -> Iterator[str]:
    for model in {request.model.name: request.model for request in plan.requests}.values():
        if model.assumed:
            yield f"ASSUMED of {model.name}: {model.assumed}"
    if plan.demand.assumed:
        yield plan.demand.assumed
    yield from _engines_of_gpus(plan)
    if plan.rows and plan.rows[0].candidate.split.tp > 1 and not plan.rows[0].candidate.gpu.link:
        yield f"GPUs without NVLink: {PCIE / 10**9:.3g} GB/s each way is assumed (PCIe 4.0 x16)."
    if plan.rows and uses_host(resolved := plan.rows[0].candidate.resolved):
        speed, is_assumed = host_bandwidth(resolved)
        yield (
            f"The host's memory: {speed / 10**9:,.1f} GB/s{', assumed' if is_assumed else ''} "
            "(--ram-bandwidth)."
        )


def _engines_of_gpus(plan: Plan) -> Iterator[str]:
    """Yield which GPUs have which engine, if that is not the same for all."""
    gpus: dict[str, list[str]] = {}
    for request in plan.requests:
        if request.gpu:
            gpus.setdefault(find_engine(request.engine).title, []).append(request.gpu.name)
    if len(gpus) < 2:
        return
    parts = []
    for title, several in gpus.items():
        names = [*dict.fromkeys(several)]
        if len(names) > _MOST_NAMES:
            more = f" and {len(names) - _MOST_NAMES} others"
        else:
            more = ""
        parts.append(f"{title} on {', '.join(names[:_MOST_NAMES])}{more}")
    yield f"Engines by default: {'; '.join(parts)}. --engine sets one for all."


def _case(plan: Plan) -> str:
    """Return what the times are."""
    given = plan.demand.efficiency
    if given:
        return f"estimates with --efficiency {number(float(given))}"
    return "median run; --efficiency 1: best case"


def _models(plan: Plan) -> list[str]:
    return list(dict.fromkeys(request.model.name for request in plan.requests))


def _gpus(plan: Plan) -> list[str]:
    return list(dict.fromkeys(request.gpu.rented for request in plan.requests if request.gpu))


# JSON


def _load_facts(plan: Plan) -> dict[str, Any]:
    request = plan.requests[0]
    assert request.traffic is not None
    traffic = request.traffic
    return {
        "users": plan.demand.users,
        "rate": plan.demand.rate and float(plan.demand.rate),
        "load_factor": plan.demand.load_factor and float(plan.demand.load_factor),
        "ttft": plan.demand.ttft,
        "tpot": plan.demand.tpot,
        "efficiency": plan.demand.efficiency and float(plan.demand.efficiency),
        "api_price_input": plan.demand.api_price and float(plan.demand.api_price[0]),
        "api_price_output": plan.demand.api_price and float(plan.demand.api_price[1]),
        "budget_per_hour": plan.demand.budget and float(plan.demand.budget),
        "spread": plan.demand.spread,
        "prompt": traffic.prompt,
        "output": traffic.output,
        "shared_prefix": traffic.shared_prefix,
        "tokens_average": int(traffic.average_tokens),
        "tokens_worst": int(traffic.worst_tokens),
    }


def _size_facts(size: Size) -> dict[str, Any]:
    row = size.row
    return {
        "model": size.model,
        "factor": size.factor,
        "when": size.when or None,
        "users": row.asked if row else size.demand.users,
        "gpu": row.candidate.gpu.name if row else None,
        "split": row.candidate.split.words if row else None,
        "gpus": row.gpus if row else None,
        "nodes": row.nodes if row else None,
        "replicas": row.replicas if row else None,
        "price_per_hour": float(row.price) if row and row.price else None,
    }


def _pools_facts(pools: Pools) -> dict[str, Any]:
    decoder = pools.decode.candidate
    sides = {"prefill": pools.prefill, "decode": pools.decode}
    return {
        "model": decoder.group[0],
        "gpu": decoder.gpu.name,
        **{f"{name}_split": pool.candidate.split.words for name, pool in sides.items()},
        **{f"{name}_replicas": pool.replicas for name, pool in sides.items()},
        **{f"{name}_gpus": pool.gpus for name, pool in sides.items()},
        "gpus": pools.gpus,
        "requests_per_second": pools.rate,
        "ttft": pools.ttft,
        "tpot": pools.tpot,
        "cache_per_prompt": pools.cache_per_prompt,
        "cache_bytes_per_second": pools.cache_per_second,
        "price_per_hour": pools.price,
    }


def _search_facts(plan: Plan) -> dict[str, Any]:
    found = plan.found
    return {
        "models": _models(plan),
        "gpus": _gpus(plan),
        "sort": plan.sort,
        "splits": found.tried,
        "pruned": found.pruned,
        "left_out": plan.left_out,
        "too_large": plan.too_large,
        "complete": found.complete,
        "refused": {one.gpu: one.reason for one in reversed(found.refused)},
    }
