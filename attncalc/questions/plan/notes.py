"""The notes of `attncalc plan`."""

from collections.abc import Iterator, Sequence

from ...engines import find_engine
from ...hardware import PCIE
from ...model import plural
from ...serving.host_read import host_bandwidth, uses_host
from ...show.notes import WARNING
from ...show.report import number
from ...units import count
from .demand import Demand
from .facts import gpus_of
from .figures import published
from .plan import Plan
from .rows import TIMES_FIRST
from .tables import MOST_POOLS

# Notes of a screen.
MOST_NOTES = 3
# GPUs that a note names.
_MOST_NAMES = 3
# Kinds of GPU of which each is one that was named, and not one of 'all'.
_MOST_NAMED = 8


def notes(plan: Plan, hidden: Sequence[str] = ()) -> Iterator[str]:
    """Yield the notes; those on columns that are hidden are shorter."""
    demand = plan.demand
    if not plan.found.complete:
        yield "warning: interrupted; these are the rows that were found until then."
    if plan.no_pools:
        yield f"--disaggregate: no pools of at most {plural(demand.max_gpus or 0, 'GPU')} do it."
    yield from _gpus_without_row(plan)
    yield from _assumptions(plan)
    yield from _search_notes(plan)
    expected = published(plan.rows[0]) if plan.rows else {}
    if expected.get("published_runs"):
        low, high, runs, *_ = expected.values()
        yield (
            f"By {plural(runs, 'published run')}, the first row reaches {low:,.0f} to {high:,.0f} "
            "tokens/s."
        )
    if plan.rows:
        yield from _column_notes(plan, hidden)
    if plan.pools:
        text = "prefill, decode: separate GPUs; cache is what moves between them"
        if len(plan.pools) > MOST_POOLS:
            yield f"{text}; {count(len(plan.pools))} in --json."
        else:
            yield f"{text}."
    if demand.prices and (demand.rate or demand.load_factor):
        yield f"price/M: of {_priced_tokens(demand)}. tokens/s: of busy replicas."
    if demand.shows_power:
        yield "kW: the GPUs' maximum power, without hosts; kWh/M: of a million output tokens."


def most_needed(
    plan: Plan, left_out: Sequence[str], hidden: Sequence[str], most: int
) -> Iterator[str]:
    """Yield the notes of a screen: warnings, and up to `most` in all. --json has all notes."""
    every = [*left_out, *notes(plan, hidden)]
    warnings = [note for note in every if note.startswith(WARNING)]
    others = [note for note in every if not note.startswith(WARNING)]
    yield from warnings
    yield from others[: max(0, most - len(warnings))]


def _search_notes(plan: Plan) -> Iterator[str]:
    found = plan.found
    if not plan.rows:
        searched = f"{plural(found.tried, 'split')} of {plural(len(gpus_of(plan)), 'kind')} of GPU"
        if found.pruned:
            yield f"Searched: {searched}; {count(found.pruned)} more cannot hold the weights."
        else:
            yield f"Searched: {searched}."


def _column_notes(plan: Plan, hidden: Sequence[str]) -> Iterator[str]:
    """Yield what the columns are, without those that are hidden."""
    demand = plan.demand
    if demand.rate is None and "worst" in hidden:
        yield "users: on average, with half of the output."
    elif demand.rate is None:
        yield "users: on average, with half of the output; worst, as 'fit -b': with all of it."
    if any(row.speed for row in plan.rows):
        if "TTFT" in hidden:
            yield f"TPOT (per token): {case(plan)}."
        else:
            yield f"TTFT (first token) and TPOT (per token): {case(plan)}."


def _priced_tokens(demand: Demand) -> str:
    """Return of which tokens the price is."""
    tokens = "the tokens"
    if demand.rate is not None:
        tokens = "the tokens asked for"
    if demand.load_factor:
        return f"{tokens} on average"
    return tokens


def _assumptions(plan: Plan) -> Iterator[str]:
    for model in {request.model.name: request.model for request in plan.requests}.values():
        if model.assumed:
            yield f"ASSUMED of {model.name}: {model.assumed}"
    if plan.demand.assumed:
        yield plan.demand.assumed
    if plan.demand.calibrated:
        yield plan.demand.calibrated
    yield from _engines_of_gpus(plan)
    if not plan.rows:
        return
    candidate = plan.rows[0].candidate
    if candidate.split.tp > 1 and not candidate.gpu.link:
        yield f"GPUs without NVLink: {PCIE / 10**9:.3g} GB/s each way is assumed (PCIe 4.0 x16)."
    if uses_host(candidate.resolved):
        speed, is_assumed = host_bandwidth(candidate.resolved)
        text = f"The host's memory: {speed / 10**9:,.1f} GB/s"
        if is_assumed:
            yield f"{text}, assumed (--ram-bandwidth)."
        else:
            yield f"{text} (--ram-bandwidth)."


def _gpus_without_row(plan: Plan) -> Iterator[str]:
    """Yield which GPUs that were named have no row, and why; nothing if none has one."""
    named = gpus_of(plan)
    if not plan.rows or len(named) > _MOST_NAMED:
        return
    if plan.too_many:
        times = f"more than {TIMES_FIRST} times the first row's GPUs"
        yield f"Not listed: {_several(plan.too_many)}, with {times}; --all lists them."
    listed = {*plan.too_many, *(row.candidate.gpu.rented for row in plan.rows)}
    others = [name for name in named if name not in listed]
    if others:
        yield f"Not enough: {_several(others)}; --gpu {others[0]} says why."


def _several(names: Sequence[str]) -> str:
    """Return the first names, and how many others there are."""
    first = ", ".join(names[:_MOST_NAMES])
    if len(names) > _MOST_NAMES:
        return f"{first} and {len(names) - _MOST_NAMES} others"
    return first


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
        parts.append(f"{title} on {_several([*dict.fromkeys(several)])}")
    yield f"Engines by default: {'; '.join(parts)}. --engine sets one for all."


def case(plan: Plan) -> str:
    """Return what the times are."""
    given = plan.demand.efficiency
    if given:
        return f"estimates with --efficiency {number(float(given))}"
    if plan.demand.scales:
        return "estimates, calibrated with --measured"
    return "estimates by published runs; --measured calibrates them"
