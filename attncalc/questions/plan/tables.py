"""The tables of `attncalc plan`: its rows, growth, and pools of GPUs."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import SupportsFloat

from ...show.lists import WIDTH
from ...show.report import Column, Table, column_table, number
from ...show.request import command_table
from ...show.text import table_lines
from ...units import SECONDS, count, quotient
from .candidates import Candidate
from .facts import models_of
from .figures import command_of
from .heading import asked
from .plan import Plan, Pools, Size
from .rows import Row

# {name of a column: the column and its cells}.
Columns = dict[str, tuple[Column, list[str]]]
# Columns that are left out of a table that is too wide, in this order.
_LEAST_NEEDED = ("limit", "nodes", "worst", "replicas", "TTFT", "tokens/s")
# Kinds of GPU of the table of pools.
MOST_POOLS = 3
_MAY_NOT = "may not fit"


def fitting(columns: Columns) -> tuple[Columns, list[str]]:
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


def tables(plan: Plan, rows: Sequence[Row], columns: Columns) -> Iterator[Table]:
    """Yield the tables: these rows and columns, growth, pools, and the command of a replica."""
    yield from _split(list(columns.values()))
    yield from asked_tables(plan)
    if len(models_of(plan)) == 1:  # with several, a row of each is worth more
        command = command_of(plan.rows[0].candidate)
        yield from command_table(command, "each replica of the first row")


def asked_tables(plan: Plan) -> Iterator[Table]:
    """Yield the tables that --growth and --disaggregate ask for."""
    if plan.growth:
        yield _growth_table(plan)
    if plan.pools:
        yield from _pools_tables(plan)


def columns_of(plan: Plan, rows: Sequence[Row]) -> Columns:
    """Return the columns of these rows. A fact that all have is no column, but for GPU and
    split.
    """
    columns = _names_of(rows)
    columns += [
        _cells("gpus", rows, lambda row: count(row.gpus)),
        _cells("nodes", rows, lambda row: count(row.nodes), drop=1),
        _cells("repli-\ncas", rows, lambda row: count(row.replicas), drop=2),
    ]
    if plan.demand.rate is None:
        columns.append(_cells("users", rows, lambda row: _users(row.capacity)))
        columns.append(_cells("worst", rows, lambda row: _users(row.worst_capacity), drop=3))
    else:
        most = _cells("most\nreq/s", rows, lambda row: number(row.most_requests_per_second))
        columns.append(most)
    if plan.demand.prices:
        columns.append(_cells("price/\nhour", rows, lambda row: _amount(row.price, ",.2f")))
    columns += [
        _cells("TTFT", rows, lambda row: _seconds(row.speed and row.speed.served.ttft)),
        _cells("TPOT", rows, lambda row: _seconds(row.speed and row.speed.served.tpot)),
        _cells("tokens\n/s", rows, lambda row: _amount(row.tokens_per_second, ",.0f"), drop=4),
    ]
    if plan.demand.prices:
        per_million = _cells(
            "price/M\ntokens", rows, lambda row: _amount(row.price_per_million, ",.3g")
        )
        columns.append(per_million)
    if plan.demand.shows_power:
        columns.append(_cells("kW", rows, _kilowatts))
        columns.append(_cells("kWh\n/M", rows, lambda row: _amount(row.kwh_per_million, ",.3g")))
    limits = [_limit(row.candidate) for row in rows]
    if {*limits} != {"cache"}:
        columns.append((Column("limit", "left", drop=5), limits))
    return {
        column.header.replace("-\n", "").replace("\n", ""): (column, cells)
        for column, cells in columns
    }


def _names_of(rows: Sequence[Row]) -> list[tuple[Column, list[str]]]:
    """Return the columns of text at the left of a row."""
    candidates = [row.candidate for row in rows]
    texts = {
        "model": [candidate.group[0] for candidate in candidates],
        "gpu": [candidate.gpu.rented for candidate in candidates],
        "weights": [candidate.group[2] or "as released" for candidate in candidates],
        "cache": [candidate.resolved.workload.kv_dtype or "" for candidate in candidates],
        "split": [candidate.split.words for candidate in candidates],
    }
    columns = []
    for name, cells in texts.items():
        if name in ("gpu", "split") or len({*cells}) > 1:
            columns.append((Column(name, "left"), cells))
    return columns


def _cells(
    header: str, rows: Sequence[Row], text_of: Callable[[Row], str], *, drop: int = 0
) -> tuple[Column, list[str]]:
    """Return a column and its cells. `drop` is when a narrow screen leaves it out."""
    return Column(header, drop=drop), [text_of(row) for row in rows]


def _users(users: int | None) -> str:
    if users is None:
        return "any"
    return count(users)


def _amount(amount: SupportsFloat | None, form: str) -> str:
    """Return a number in a format of Python, as ',.2f'; '-' without one, and for 0."""
    if not amount:
        return "-"
    return format(float(amount), form)


def _seconds(seconds: SupportsFloat | None) -> str:
    if seconds is None:
        return "-"
    return quotient(seconds, SECONDS)


def _kilowatts(row: Row) -> str:
    if not row.watts:
        return "-"
    return f"{row.watts / 1000:,.2f}"


def _limit(candidate: Candidate) -> str:
    if candidate.verdict == "fits":
        return candidate.limited_by
    return f"{candidate.limited_by}, {_MAY_NOT}"


def _split(columns: Sequence[tuple[Column, list[str]]]) -> Iterator[Table]:
    """Yield one table, or as many as fit WIDTH, each with the columns of text at its left."""
    of_text = itertools.takewhile(lambda each: each[0].align == "left", columns)
    names = list(of_text)
    chosen = list(names)
    for each in columns[len(names) :]:
        if len(chosen) > len(names) and _width([*chosen, each]) > WIDTH:
            yield column_table(chosen)
            chosen = list(names)
        chosen.append(each)
    yield column_table(chosen)


def _growth_table(plan: Plan) -> Table:
    sizes = plan.growth
    rows = [size.row for size in sizes]
    columns = []
    models = [size.model for size in sizes]
    if len({*models}) > 1:
        columns.append((Column("model", "left"), models))
    columns += [
        (Column("growth", "left"), [_growth(size) for size in sizes]),
        (Column("gpus"), [count(row.gpus) if row else "-" for row in rows]),
        (Column("nodes"), [count(row.nodes) if row else "-" for row in rows]),
        (
            Column("gpu", "left"),
            [row.candidate.gpu.rented if row else "none serves them" for row in rows],
        ),
        (Column("split", "left"), [row.candidate.split.words if row else "" for row in rows]),
    ]
    if plan.demand.prices:
        prices = [row and row.price_per_month for row in rows]
        columns.append((Column("per month"), [_amount(price, ",.0f") for price in prices]))
    else:
        columns.append((Column("replicas"), [count(row.replicas) if row else "-" for row in rows]))
    return column_table(columns)


def _growth(size: Size) -> str:
    """Return when there are how many users: '2027-01: 600 users', or '1.2 x, 600 users'."""
    if size.when:
        return f"{size.when}: {asked(size.demand)}"
    return f"{number(size.factor)} x, {asked(size.demand)}"


def _pools_tables(plan: Plan) -> Iterator[Table]:
    """Return the pools of the first kinds of GPU; JSON has all."""
    shown = plan.pools[:MOST_POOLS]
    decoders = [pools.decode.candidate for pools in shown]
    columns = []
    models = [decoder.group[0] for decoder in decoders]
    if len({*models}) > 1:
        columns.append((Column("model", "left"), models))
    columns.append((Column("gpu", "left"), [decoder.gpu.rented for decoder in decoders]))
    for name in ("prefill", "decode"):
        columns += _pool_columns(name, shown)
    columns += [
        (Column("all"), [count(pools.gpus) for pools in shown]),
        (Column("TTFT"), [quotient(pools.ttft, SECONDS) for pools in shown]),
        (Column("TPOT"), [quotient(pools.tpot, SECONDS) for pools in shown]),
        (Column("cache\nGB/s"), [f"{pools.cache_per_second / 10**9:,.3g}" for pools in shown]),
    ]
    yield from _split(columns)


def _pool_columns(name: str, shown: Sequence[Pools]) -> Iterator[tuple[Column, list[str]]]:
    pools = [getattr(each, name) for each in shown]
    texts = [f"{count(pool.replicas)} x {pool.candidate.split.words}" for pool in pools]
    yield Column(name, "left"), texts
    yield Column("gpus"), [count(pool.gpus) for pool in pools]
