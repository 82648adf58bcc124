"""The report of `attncalc plan`: the best row as a sentence, the rows, and the command that starts
a replica.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...model import plural
from ...serving.fit import Verdict
from ...show.blocks import Form, on_one_screen
from ...show.picture import own_dtype, picture
from ...show.plot.chart import Picture
from ...show.report import Figure, Report, number, rows_of
from ...show.users import described
from .chart import DEFAULT, plan_charts
from .facts import cheaper_facts, load_facts, models_of, pools_facts, search_facts, size_facts
from .figures import UNEXPLAINED, no_figures, row_facts, row_figures
from .heading import asked, heading
from .notes import MOST_NOTES, case, most_needed, notes
from .plan import Plan, Pools
from .rows import Row
from .tables import columns_of, fitting, tables

# Version of the JSON; schema.yaml has the same.
VERSION = 2
# Rows of a screen.
MOST_ROWS = 8
# Rows per model for which notes are dropped.
_FEW_ROWS = 3


def plan_report(plan: Plan) -> Report:
    """Return the report of what serves the users."""
    pools = {pool.decode.candidate.group: pool for pool in plan.pools}
    layers = tuple(
        ({**row_facts(row), **_pools_of(row, pools)}, row_figures(row)) for row in plan.rows
    )
    figures = layers[0][1] if layers else no_figures()
    verdict: Verdict = "does_not_fit"
    if plan.rows and plan.serves_all:
        verdict = plan.rows[0].candidate.verdict
    report = Report(
        "plan",
        heading(plan),
        {},
        {},
        figures,
        layers,
        notes=tuple(notes(plan)),
        extra={
            "load": load_facts(plan),
            "growth": [size_facts(size) for size in plan.growth],
            "cheaper": [cheaper_facts(row) for row in plan.cheaper],
            "disaggregated": [pools_facts(pools) for pools in plan.pools],
            "search": search_facts(plan),
        },
        rows=rows_of(layers),
        verdict=verdict,
        draw=lambda: _picture(plan),
        has_fail_if=True,
        version=VERSION,
    )
    return on_one_screen(report, [_forms(plan)])


def _pools_of(row: Row, pools: Mapping[Any, Pools]) -> dict[str, Any]:
    """Return the pools of a row's GPU and dtypes, which a table of rows has no other place for;
    every value None without --disaggregate.
    """
    found = pools.get(row.candidate.group)
    sides = {"prefill": found and found.prefill, "decode": found and found.decode}
    facts: dict[str, Any] = {}
    for name, pool in sides.items():
        facts[f"{name}_split"] = pool and pool.candidate.split.words
        facts[f"{name}_replicas"] = pool and pool.replicas
        facts[f"{name}_gpus"] = pool and pool.gpus
    return facts


def explained(report: Report) -> Report:
    """Return the report with the exact figures alone whose formulas explain something."""

    def exact(figures: Sequence[Figure]) -> tuple[Figure, ...]:
        return tuple(figure for figure in figures if figure.name not in UNEXPLAINED)

    layers = tuple((facts, exact(figures)) for facts, figures in report.layers)
    return report._replace(figures=exact(report.figures), layers=layers)


def _picture(plan: Plan) -> Picture | None:
    """Return the charts; None without rows."""
    if not plan.rows:
        return None
    traffic = plan.requests[0].traffic
    assert traffic is not None
    facts = [
        f"{asked(plan.demand)} of {described(traffic)}",
        "users are averages, with half of the output",
        f"times, and what a million tokens cost: {case(plan)}",
    ]
    prices = {gpu: float(price) for gpu, price in plan.demand.prices.items()}
    if prices:
        each = ", ".join(f"{gpu} {number(price)}" for gpu, price in prices.items())
        facts.append(f"prices of an hour: {each}")
    models = ", ".join(dict.fromkeys(request.model.title for request in plan.requests))
    resolved = [row.candidate.resolved for row in plan.rows]
    requests = [one.request for one in resolved]
    stored = [request.weights_dtype or own_dtype(request.model) for request in requests]
    weights = " or ".join(dict.fromkeys(stored))
    caches = " or ".join(dict.fromkeys(one.args.kv_dtype.name for one in resolved))
    dtypes = f"weights in {weights}, cache in {caches}"
    engines = ", ".join(dict.fromkeys(row.candidate.resolved.engine.title for row in plan.rows))
    charts = tuple(plan_charts(plan))
    subtitle = heading(plan)[0]
    return picture(models, subtitle, facts, charts, DEFAULT, engine=engines, dtypes=dtypes)


def _forms(plan: Plan) -> Iterator[Form]:
    """Yield the tables and notes with as many rows as a screen may have room for, then with fewer:
    those of the best of each GPU stay longest.

    Notes are dropped before the last rows.
    """
    rows = _best_of_each_group_first(plan.rows)
    if not rows:
        yield Form(notes=tuple(most_needed(plan, (), (), MOST_NOTES)))
    most = min(len(rows), MOST_ROWS)
    fewest = min(most, _FEW_ROWS * len(models_of(plan)))
    sizes = [(shown, MOST_NOTES) for shown in range(most, fewest, -1)]
    sizes += [(fewest, n_notes) for n_notes in range(MOST_NOTES, 0, -1)]
    sizes += [(shown, 1) for shown in range(fewest - 1, 0, -1)]
    for shown, n_notes in sizes:
        chosen = sorted(rows[:shown], key=plan.rows.index)
        columns, hidden = fitting(columns_of(plan, chosen))
        left_out = [*_left_out(len(rows) - shown, hidden)]
        sentences = tuple(most_needed(plan, left_out, hidden, n_notes))
        yield Form(tuple(tables(plan, chosen, columns)), sentences)


def _left_out(n_rows: int, columns: Sequence[str]) -> Iterator[str]:
    """Yield what the table lacks."""
    parts = []
    if n_rows:
        parts.append(plural(n_rows, "row"))
    if len(columns) == 1:
        parts.append(f"column {columns[0]}")
    elif columns:
        parts.append(f"columns {', '.join(columns)}")
    if parts:
        yield f"Left out: {' and '.join(parts)}; -o plan.csv has all."


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
