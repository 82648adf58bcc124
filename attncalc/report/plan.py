"""The report of `attncalc plan`: the best row as a sentence, the rows, and the command that starts a replica."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..hardware import Gpu
from ..model import plural
from ..quantity import Ratio, ceil_div, named, quantity, ratio, symbol
from ..serving.launch import launch_command
from ..serving.plan import Candidate, Plan, Row, Size
from ..units import NO_UNIT, count
from .figures import FigureRow, FigureRows, ratio_row
from .fit_tables import command_table
from .report import Column, Figure, Report, Table, column_table, number
from .text import height
from .users import described, shared

_ROWS = 23
"""Rows of the screen: those of a terminal of 24, less one for the prompt."""
_NO_ROW = "if no GPUs serve the users"
_NO_LIMIT = "without a limit"
FIGURES = FigureRows(
    gpus=FigureRow("GPUs", NO_UNIT, "GPUs of all replicas", _NO_ROW),
    nodes=FigureRow("nodes", NO_UNIT, "nodes that they take", _NO_ROW),
    replicas=FigureRow("replicas", NO_UNIT, "replicas, each with requests of its own", _NO_ROW),
    gpus_per_replica=FigureRow("GPUs of a replica", NO_UNIT, "GPUs of one replica", _NO_ROW),
    users_per_replica=FigureRow(
        "users per replica, on average", NO_UNIT, "requests that a replica runs concurrently, on average", _NO_LIMIT
    ),
    users_per_replica_worst=FigureRow(
        "users per replica, at worst", NO_UNIT, "as many with all requests at their last token", _NO_LIMIT
    ),
    users_all_replicas=FigureRow("users of all replicas", NO_UNIT, "users_per_replica of all replicas", _NO_LIMIT),
    headroom=ratio_row(
        "headroom", "the part of the users that could be added: 0.25 if 500 are asked for and 625 served", _NO_LIMIT
    ),
    price_per_hour=ratio_row(
        "price of an hour", "the price of all GPUs for an hour, in the currency of --price", "without --price"
    ),
)
"""The figures of a row; those of the whole answer are the best row's."""
_NOTHING = dict.fromkeys(FIGURES)


def plan_report(plan: Plan) -> Report:
    """Return the report of a plan."""
    best = plan.rows[0] if plan.rows else None
    report = Report(
        "plan",
        _heading(plan),
        {},
        {},
        row_figures(best) if best else FIGURES.filled(**_NOTHING),
        tuple((row_facts(row), row_figures(row)) for row in plan.rows),
        notes=tuple(_notes(plan)),
        extra={
            "load": _load_facts(plan),
            "growth": [_size_facts(size) for size in plan.growth],
            "search": _search_facts(plan),
        },
        records=tuple(record(row) for row in plan.rows),
        verdict=best.candidate.verdict if best else "does_not_fit",
    )
    return _on_one_screen(report, plan)


def record(row: Row) -> dict[str, Any]:
    """Return a row of the CSV: {column: value}."""
    return {**row_facts(row), **{figure.name: figure.value for figure in row_figures(row)}}


def row_facts(row: Row) -> dict[str, Any]:
    """Return what a row is, as plain data."""
    candidate, split = row.candidate, row.candidate.split
    resolved = candidate.resolved
    return {
        "model": resolved.request.model.name,
        "gpu": candidate.gpu.name,
        "split": split.words,
        "tp": split.tp,
        "pp": split.pp,
        "dp": split.dp,
        "attn_dp": split.attn_dp,
        "expert_parallel": split.expert_parallel,
        "weights_dtype": resolved.request.weights_dtype,
        "kv_dtype": resolved.workload.kv_dtype,
        "engine": resolved.engine.name,
        "verdict": candidate.verdict,
        "limited_by": candidate.limited_by,
        "launch_command": launch_command(resolved),
    }


def row_figures(row: Row) -> tuple[Figure, ...]:
    """Return the figures of a row, with their formulas."""
    candidate, demand = row.candidate, row.demand
    users = symbol("users", demand.users, "users whose requests run concurrently")
    each = symbol("gpus_per_replica", candidate.split.gpus, "GPUs of one replica")
    most = None if candidate.most is None else symbol("users_per_replica", candidate.most, "requests of one replica")
    needed = quantity(ceil_div(users, most)) if most else quantity(1)
    replicas = needed if int(needed) == row.replicas else symbol("replicas", row.replicas, "replicas, one node spare")
    gpus = named(replicas, "replicas", "replicas") * each
    served = None if most is None else quantity(replicas * most)
    price = demand.prices.get(candidate.gpu.name)
    return FIGURES.filled(
        gpus=gpus,
        nodes=quantity(row.nodes),
        replicas=replicas,
        gpus_per_replica=each,
        users_per_replica=None if most is None else quantity(most),
        users_per_replica_worst=None if candidate.worst is None else quantity(candidate.worst),
        users_all_replicas=served,
        headroom=None if served is None else _headroom(served, users),
        price_per_hour=None if price is None else _price(gpus, price),
    )


def _headroom(served: int, users: int) -> Ratio:
    return ratio(quantity(named(served, "users_all_replicas", "users of all replicas") - users), users)


def _price(gpus: int, price: tuple[int, int]) -> Ratio:
    cost = quantity(named(gpus, "gpus", "GPUs") * symbol("price", price[0], f"price of a GPU-hour, times {price[1]}"))
    return ratio(cost, symbol("scale", price[1], "scale of the price"))


# The screen


def short_title(gpu: Gpu) -> str:
    """Return a GPU's name without its vendor: 'H200 SXM 141GB'."""
    return gpu.title.removeprefix(f"{gpu.vendor} ")


def answer(row: Row) -> str:
    """Return a row as a sentence: '8 x H200 SXM 141GB in 1 node: tp 8, 1 replica, 612 users'."""
    candidate, users = row.candidate, "any number of users" if row.users is None else plural(row.users, "user")
    split = f"{candidate.split.words}, " if candidate.split.gpus > 1 else ""
    may = "" if candidate.verdict == "fits" else ", which may not fit"
    place = f"{count(row.gpus)} x {short_title(candidate.gpu)} in {plural(row.nodes, 'node')}"
    return f"{place}: {split}{plural(row.replicas, 'replica')}, {users}{may}"


def _heading(plan: Plan) -> tuple[str, ...]:
    models = _models(plan)
    lines = []
    for name in models:
        best = next((row for row in plan.rows if row.candidate.group[0] == name), None)
        sentence = answer(best) if best else _nothing(plan, name)
        lines.append(f"{name}: {sentence}" if len(models) > 1 else sentence)
    first = plan.requests[0]
    assert first.traffic is not None
    load = ", ".join(filter(None, (described(first.traffic), shared(first.traffic))))
    engines = dict.fromkeys(candidate.resolved.engine.title for candidate in plan.found.candidates)
    titles = [first.model.title] if len(models) == 1 else []
    facts = [*titles, f"{plural(plan.demand.users, 'user')} of {load}", *engines]
    lines.append(", ".join(facts))
    return tuple(lines)


def _nothing(plan: Plan, model: str) -> str:
    """Return why there is no row for a model."""
    if any(candidate.group[0] == model for candidate in plan.found.candidates):
        return f"NOTHING FITS: the users need more than {plural(plan.demand.max_gpus or 0, 'GPU')}"
    return "NOTHING FITS: no split over these GPUs holds the weights and one request"


def _on_one_screen(report: Report, plan: Plan) -> Report:
    """Return the report with as many rows as a screen has room for: those of the best of each GPU first."""
    rows = _best_of_each_group_first(plan.rows)
    shown = len(rows)
    while True:
        chosen = sorted(rows[:shown], key=plan.rows.index)
        left = len(rows) - shown
        more = [f"{plural(left, 'more row')}: -o plan.csv writes all."] if left else []
        screen = report._replace(tables=tuple(_tables(plan, chosen)), shown_notes=(*more, *report.notes))
        if shown <= 1 or height(screen) <= _ROWS:
            return screen
        shown -= 1


def _best_of_each_group_first(rows: Sequence[Row]) -> list[Row]:
    seen: dict[Any, int] = {}
    ranked = []
    for i, row in enumerate(rows):
        group = row.candidate.group
        seen[group] = seen.get(group, 0) + 1
        ranked.append((seen[group], i, row))
    return [row for _, _, row in sorted(ranked, key=lambda ranks: ranks[:2])]


def _tables(plan: Plan, rows: Sequence[Row]) -> Iterator[Table]:
    if not rows:
        return
    models = _models(plan)
    for model in models:
        of_model = [row for row in rows if row.candidate.group[0] == model]
        if of_model:
            yield column_table(_columns(plan, of_model, model if len(models) > 1 else "gpu"))
    if plan.growth:
        yield _growth_table(plan.growth)
    yield from command_table(launch_command(plan.rows[0].candidate.resolved), "each replica of the first row")


def _columns(plan: Plan, rows: Sequence[Row], title: str) -> list[tuple[Column, list[str]]]:
    candidates = [row.candidate for row in rows]
    texts = {
        title: [candidate.gpu.name for candidate in candidates],
        "weights": [candidate.group[2] or "as released" for candidate in candidates],
        "cache": [candidate.resolved.workload.kv_dtype or "" for candidate in candidates],
    }
    columns = [(Column(name, "left"), cells) for name, cells in texts.items() if name == title or len({*cells}) > 1]
    columns += [
        (Column("gpus"), [count(row.gpus) for row in rows]),
        (Column("nodes"), [count(row.nodes) for row in rows]),
        (Column("split", "left"), [candidate.split.words for candidate in candidates]),
        (Column("replicas"), [count(row.replicas) for row in rows]),
        (Column("users"), [_number(row.users) for row in rows]),
        (Column("each"), [_number(candidate.most) for candidate in candidates]),
        (Column("worst"), [_number(candidate.worst) for candidate in candidates]),
        (Column("limit", "left"), [_limit(candidate) for candidate in candidates]),
    ]
    if plan.demand.prices:
        columns.append((Column("price/h"), ["-" if row.price is None else f"{row.price:,.2f}" for row in rows]))
    return columns


def _number(users: int | None) -> str:
    return "any" if users is None else count(users)


def _limit(candidate: Candidate) -> str:
    return candidate.limited_by if candidate.verdict == "fits" else f"{candidate.limited_by}, may not fit"


def _growth_table(growth: Sequence[Size]) -> Table:
    rows = [size.row for size in growth]
    return column_table(
        [
            (Column("users"), [f"{number(size.factor)} x = {count(size.users)}" for size in growth]),
            (Column("gpus"), [count(row.gpus) if row else "-" for row in rows]),
            (Column("nodes"), [count(row.nodes) if row else "-" for row in rows]),
            (Column("gpu", "left"), [row.candidate.gpu.name if row else "none serves them" for row in rows]),
            (Column("split", "left"), [row.candidate.split.words if row else "" for row in rows]),
            (Column("replicas"), [count(row.replicas) if row else "-" for row in rows]),
        ]
    )


def _notes(plan: Plan) -> Iterator[str]:
    if not plan.found.complete:
        yield "warning: interrupted; these are the rows that were found until then."
    found = plan.found
    yield (
        f"Searched: {count(found.tried)} splits of {plural(len(_gpus(plan)), 'GPU')}, "
        f"{count(found.pruned)} more had less memory than the weights."
    )
    yield "users: running concurrently, on average; worst: per replica, if all are at their last token."


def _models(plan: Plan) -> list[str]:
    return list(dict.fromkeys(request.model.name for request in plan.requests))


def _gpus(plan: Plan) -> list[str]:
    return list(dict.fromkeys(request.gpu.name for request in plan.requests if request.gpu))


# JSON


def _load_facts(plan: Plan) -> dict[str, Any]:
    request = plan.requests[0]
    assert request.traffic is not None
    traffic = request.traffic
    return {
        "users": plan.demand.users,
        "prompt": traffic.prompt,
        "output": traffic.output,
        "shared_prefix": traffic.shared_prefix,
        "tokens_average": int(traffic.average_tokens),
        "tokens_worst": int(traffic.worst_tokens),
    }


def _size_facts(size: Size) -> dict[str, Any]:
    row = size.row
    return {
        "factor": size.factor,
        "users": size.users,
        "gpu": row.candidate.gpu.name if row else None,
        "split": row.candidate.split.words if row else None,
        "gpus": row.gpus if row else None,
        "nodes": row.nodes if row else None,
        "replicas": row.replicas if row else None,
        "price_per_hour": row.price if row else None,
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
        "refused": dict(found.refused),
    }


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the report."""
    from .schemas import parts as p

    none = "if nothing serves them"
    facts = {
        "model": p.text("the model"),
        "gpu": p.text("the GPU's name for --gpu"),
        "split": p.text("how the GPUs of a replica share the model, in words"),
        "tp": p.whole("tensor-parallel GPUs", 1),
        "pp": p.whole("pipeline stages", 1),
        "dp": p.whole("data-parallel ranks that divide the experts", 1),
        "attn_dp": p.whole("data-parallel ranks of attention", 1),
        "expert_parallel": p.flag("whether each GPU has whole experts"),
        "weights_dtype": p.or_null(p.text("the dtype of the weights"), "as released"),
        "kv_dtype": p.text("the dtype of the cache"),
        "engine": p.text("the engine"),
        "verdict": p.choice("whether a replica fits", "fits", "may_not_fit"),
        "limited_by": p.text("what limits the users of a replica: 'cache', or an option of the engine"),
        "launch_command": p.or_null(p.text("the command that starts one replica"), "if there is none"),
    }
    load = {
        "users": p.whole("users whose requests run concurrently", 1),
        "prompt": p.whole("tokens of a prompt", 1),
        "output": p.whole("tokens of an output"),
        "shared_prefix": p.whole("tokens with which all prompts start"),
        "tokens_average": p.whole("tokens that a request holds on average", 1),
        "tokens_worst": p.whole("tokens that a request holds at most", 1),
    }
    size = {
        "factor": p.number("how many times as many users"),
        "users": p.whole("their number", 1),
        "gpu": p.or_null(p.text("the GPU of the best row"), none),
        "split": p.or_null(p.text("its split"), none),
        "gpus": p.or_null(p.whole("its GPUs", 1), none),
        "nodes": p.or_null(p.whole("its nodes", 1), none),
        "replicas": p.or_null(p.whole("its replicas", 1), none),
        "price_per_hour": p.or_null(p.number("the price of an hour"), f"without --price, and {none}"),
    }
    searched = {
        "models": p.texts("the models"),
        "gpus": p.texts("the GPUs to choose from"),
        "sort": p.text("what the rows are sorted by"),
        "splits": p.whole("splits that were computed"),
        "pruned": p.whole("splits that were not, since the weights alone exceed their memory"),
        "left_out": p.whole("rows that are left out, since another is better"),
        "too_large": p.whole("splits that would need more GPUs than --max-gpus"),
        "complete": p.flag("whether the search ended: false after Ctrl-C"),
        "refused": p.named_values("why the model does not run on a GPU, by its name", {"type": "string"}),
    }
    return p.document(
        "plan",
        "Which GPUs serve so many users.",
        results=p.figures("the figures of the best row", FIGURES),
        layers=p.layer("a row", facts, p.figures("its figures", FIGURES)),
        model=p.NOTHING,
        extra={
            "load": p.fields("the users and their requests", load),
            "growth": p.listed("what more users need, with --growth", p.fields("a number of users", size)),
            "search": p.fields("what was searched", searched),
        },
    )
