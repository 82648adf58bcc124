"""The figures of `attncalc plan`, and the facts of a row."""

from typing import Any

from ...quantity import Quantity, Ratio, ceil_div, named, quantity, ratio, symbol
from ...serving.launch import launch_command
from ...serving.request import resolve
from ...show.figures import FigureRow, FigureRows, ratio_row
from ...show.report import Figure
from ...show.users import FIGURES as USERS
from ...units import MONTH_HOURS, NO_UNIT, PER_SECOND, SECONDS
from .candidates import Candidate
from .rows import Row

_PUBLISHED = (
    "published_tokens_per_second_low",
    "published_tokens_per_second_high",
    "published_runs",
    "published_class",
    "published_sources",
)
_NO_ROW = "if no GPUs serve the users"
_OF_RUNS = "as published runs suggest, or with --efficiency or --measured"
_NO_LIMIT = "without a limit"
_NO_TIMES = "with drafted tokens, and without the GPU's FLOP/s"
_NO_POWER = "if the GPU's file has no power"
_FIRST = "seconds to the first token"
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
    ttft_p95_estimate=ratio_row(
        "time to the first token, 95th percentile",
        f"{_FIRST}, the 95th percentile, {_OF_RUNS}",
        _NO_TIMES,
        unit=SECONDS,
    ),
    prefill_utilization=ratio_row(
        "time in prefills",
        f"the part of the time in which prompts are prefilled, {_OF_RUNS}",
        _NO_TIMES,
    ),
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


# The figures whose formulas explain nothing: estimates, what is computed from them, and a bound
# that is a quotient of integers with 18 digits.
UNEXPLAINED = (
    *(name for name in FIGURES if name.endswith("_estimate")),
    "tokens_per_second_bound",
    "prefill_utilization",
    "price_per_million_tokens",
    "kwh_per_million_tokens",
)


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
        "bound_by": row.speed and row.speed.bounds.bound_by,
        "launch_command": command_of(candidate),
        **published(row),
    }


def command_of(candidate: Candidate) -> str | None:
    """Return the command that starts a replica; of an engine with slots with one per user. None if
    there is none.
    """
    resolved = candidate.resolved
    if candidate.worst_capacity and resolved.args_without_slots is not resolved.args:
        resolved = resolve(resolved.request.with_workload(batch=candidate.worst_capacity))
    return launch_command(resolved)


def published(row: Row) -> dict[str, Any]:
    """Return the range of tokens/s that published runs suggest for a row, at its capacity; every
    value None without any.
    """
    speed = row.tokens_per_second
    if speed is None or row.speed is None or not row.speed.is_published:
        return dict.fromkeys(_PUBLISHED)
    known = row.speed.served.constants
    most = float(speed)
    if row.demand.rate:
        most = row.most_requests_per_second * row.candidate.concurrency.traffic.output
    values = (known.low * most, known.high * most, known.runs, str(known), ", ".join(known.sources))
    return dict(zip(_PUBLISHED, values, strict=True))


def seconds(value: float) -> Ratio:
    """Return an estimate of seconds, in whole us."""
    return ratio(symbol("us", round(value * 10**6), "us, estimated"), 10**6)


def no_figures() -> tuple[Figure, ...]:
    """Return the figures of an answer without rows."""
    return FIGURES.filled(**dict.fromkeys(FIGURES))


def row_figures(row: Row) -> tuple[Figure, ...]:
    candidate = row.candidate
    users = symbol("users", row.requested, "users whose requests run concurrently")
    each = symbol("gpus_per_replica", candidate.split.gpus, "GPUs of one replica")
    most = None
    needed = quantity(1)
    if candidate.capacity is not None:
        most = symbol("users_per_replica", candidate.capacity, "requests of one replica")
    if most:
        needed = quantity(ceil_div(users, most))
    replicas: Quantity = needed
    if int(needed) != row.replicas:
        replicas = symbol("replicas", row.replicas, "replicas")
    served = None
    headroom = None
    if most is not None:
        served = quantity(replicas * most)
        all_users = named(served, "users_all_replicas", "users of all replicas")
        headroom = ratio(quantity(all_users - users), users)
    estimates = row.speed and row.speed.served
    bounds = row.speed and row.speed.bounds
    return FIGURES.filled(
        gpus=_gpus(row, replicas, each),
        nodes=quantity(row.nodes),
        replicas=replicas,
        gpus_per_replica=each,
        users_per_replica=_known(most),
        users_per_replica_worst=_known(candidate.worst_capacity),
        concurrent_average=candidate.concurrency.average,
        concurrent_worst=candidate.concurrency.worst,
        users_all_replicas=served,
        headroom=headroom,
        ttft_bound=bounds and bounds.ttft,
        tpot_bound=bounds and bounds.tpot,
        tokens_per_second_bound=row.tokens_per_second_bound,
        ttft_estimate=estimates and seconds(estimates.ttft),
        tpot_estimate=estimates and seconds(estimates.tpot),
        tokens_per_second_estimate=row.tokens_per_second,
        ttft_p95_estimate=estimates and seconds(estimates.ttft_p95),
        prefill_utilization=estimates and _share(estimates.utilization),
        price_per_million_tokens=row.price_per_million,
        break_even_rate=row.break_even_rate,
        watts=row.watts,
        kwh_per_million_tokens=row.kwh_per_million,
        price_per_hour=row.price,
        price_per_month=row.price_per_month,
    )


def _gpus(row: Row, replicas: Quantity, each: Quantity) -> Quantity:
    """Return the GPUs of all replicas; those of instances are rented together."""
    gpu = row.candidate.gpu
    if gpu.instance:
        instances = symbol("instances", row.nodes, "instances")
        return instances * symbol("gpus_per_instance", gpu.per_node, f"GPUs of a {gpu.instance}")
    return named(replicas, "replicas", "replicas") * each


def _share(value: float) -> Ratio:
    """Return an estimated share, in thousandths."""
    return ratio(symbol("thousandths", round(value * 1000), "estimated"), 1000)


def _known(number: Quantity | int | None) -> Quantity | None:
    if number is None:
        return None
    return quantity(number)
