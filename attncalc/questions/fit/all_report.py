"""The report of `attncalc fit --engine all`: every engine's answer to one request, one row per
engine.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ...engines import ENGINES, find_engine
from ...errors import AttncalcError
from ...records import NamedTuple
from ...search import grouped
from ...serving.answer import Answer
from ...serving.fit import Verdict
from ...serving.request import FitRequest, ResolvedRequest
from ...show.lists import WIDTH
from ...show.picture import bars, picture
from ...show.plot.chart import Chart, Picture
from ...show.report import (
    Column,
    Figure,
    Report,
    Table,
    column_table,
    heading,
    unit_column,
    workload_facts,
)
from ...show.request import request_facts
from ...show.text import table_lines
from ...show.users import users_section
from ...show.verdicts import VERDICTS
from ...units import BYTES, count
from .chart import roofline_chart
from .facts import engine_facts, fit_facts
from .figures import FIGURES, answer_figures, detail_figures, term_figures
from .notes import fit_notes
from .report import hardware, place, shown_notes
from .roofline import roofline_section
from .tables import Figures, limit

# The figures that have a chart; the first two are drawn by default.
_CHARTS = ("concurrency", "kv_bytes_per_sequence", "kv_tokens", "max_context")


class _Supported(NamedTuple):
    """An engine that supports the request: its name as people write it, its answer, and its
    figures.
    """

    title: str
    answer: Answer
    figures: Figures


def fit_all_report(
    request: FitRequest,
    requests: Mapping[str, FitRequest | AttncalcError] | None = None,
    *,
    full: bool = False,
    roofline: bool = False,
) -> Report:
    """Return what fits with each engine. The verdict is yes if it fits with one of them.

    The report's own figures are those of the first engine that supports the request. `requests` are
    those of the engines, or their errors; by default `request` with each engine. `full` and
    `roofline` are as in `fit_report`.

    Raises AttncalcError if no engine supports it.
    """
    engines: list[_Supported] = []
    errors: dict[str, AttncalcError] = {}
    layers: list[tuple[dict[str, Any], tuple[Figure, ...]]] = []
    for name in ENGINES:
        try:
            answer = Answer.to(_request_of(name, request, requests))
            figures = answer_figures(answer, name)
        except AttncalcError as error:
            errors[name] = error
            layers.append((_refused(name, error), ()))
            continue
        engines.append(_Supported(answer.resolved.engine.title, answer, figures))
        details = detail_figures(answer.result, figures, name)
        layers.append((engine_facts(answer.result), (*figures.values(), *details)))
    if not engines:
        raise _no_answer(errors)
    first = engines[0].answer
    resolved = first.resolved
    bounds = roofline_section(first)
    per_user = users_section([engine.answer for engine in engines])
    best = min((_verdict_of(engine) for engine in engines), key=list(VERDICTS).index)
    verdict = _verdict(engines)
    refusals = tuple(
        f"{find_engine(name).title}: {error.message}." for name, error in errors.items()
    )
    notes = _notes(engines)
    return Report(
        "fit",
        (verdict, *_heading(request, resolved, full=full)),
        resolved.model.facts(),
        workload_facts(resolved.model, resolved.workload, resolved.engine.name),
        (*engines[0].figures.values(), *bounds.figures),
        tuple(layers),
        (
            _table(engines),
            *per_user.tables,
            *(bounds.tables[: None if full else 1] if roofline else ()),
        ),
        tuple(dict.fromkeys((*refusals, *notes, *bounds.notes))),
        (*term_figures(first.result.budget), *per_user.terms, *bounds.terms),
        {
            **fit_facts(first, verdict),
            "fits": best != "does_not_fit",
            "verdict": best,
            "users": per_user.extra,
            "roofline": bounds.extra,
        },
        verdict=best,
        shown_notes=(
            *refusals,
            notes[0],
            *shown_notes(notes[1:], first, bounds if roofline else None, full=full, more=()),
        ),
        draw=lambda: _picture(engines, verdict),
        has_answers=True,
    )


def _request_of(
    engine: str, request: FitRequest, requests: Mapping[str, FitRequest | AttncalcError] | None
) -> FitRequest:
    """Return the engine's request. Raises its AttncalcError if it has none."""
    if requests is None:
        return dataclasses.replace(request, engine=engine)
    found = requests[engine]
    if isinstance(found, AttncalcError):
        raise found
    return found


def _refused(name: str, error: AttncalcError) -> dict[str, Any]:
    """Return the keys of an engine that does not support the request, as `engine_facts` has
    them.
    """
    no_answer: dict[str, Any] = dict.fromkeys(
        ("engine_version", "bound", "fits", "verdict", "launch_command")
    )
    return {
        "name": name,
        **no_answer,
        "runtime": [],
        "facts": [],
        "log_lines": [],
        "refused": error.message,
    }


def _no_answer(errors: dict[str, AttncalcError]) -> AttncalcError:
    """Return the error that all engines share, or else that of the first engine."""
    first = next(iter(errors.values()))
    if len({error.message for error in errors.values()}) == 1:
        return first
    return AttncalcError(
        f"no engine supports this: {first.message}", "choose one engine: --engine vllm"
    )


def _picture(engines: Sequence[_Supported], verdict: str) -> Picture | None:
    """Return bars of each figure, one per engine, and the roofline of a GPU."""
    resolved, (bounds, _) = engines[0].answer.resolved, engines[0].answer.bounds
    *facts, _ = request_facts(resolved)
    caches = dict.fromkeys(request_facts(engine.answer.resolved)[-1] for engine in engines)
    drawn = [
        bars(
            name,
            row.chart_title,
            row.unit,
            [(engine.title, engine.figures[name].value) for engine in engines],
        )
        for name, row in ((name, FIGURES[name]) for name in _CHARTS)
    ]
    charts: list[Chart] = [chart for chart in drawn if chart]
    return picture(
        place(resolved),
        verdict,
        [", ".join(filter(None, facts))],
        [*charts, *([roofline_chart(bounds)] if bounds else [])],
        _CHARTS[:2],
        engine=", ".join(engine.title for engine in engines),
        dtypes=" or ".join(caches),
    )


def _heading(request: FitRequest, resolved: ResolvedRequest, *, full: bool) -> tuple[str, ...]:
    """Return the model, where it runs and the request; if `full`, also the model's attention."""
    if full:
        return heading(
            request.model, f"every engine on {hardware(resolved)}", *request_facts(resolved)
        )
    assumed = (f"ASSUMED: {request.model.assumed}",) if request.model.assumed else ()
    return (", ".join(filter(None, (place(resolved), *request_facts(resolved)))), *assumed)


def _table(engines: Sequence[_Supported]) -> Table:
    """Return one row per engine. The memory column is left out if all engines have the same, or it
    is too wide.
    """

    def sizes(header: str, name: str) -> tuple[Column, list[str]]:
        return unit_column(header, [engine.figures[name].whole for engine in engines], BYTES)

    columns: list[tuple[Column, list[str]]] = [
        (Column("", "left"), [engine.title for engine in engines]),
        (Column("bytes", "left"), [engine.answer.result.layout.bound for engine in engines]),
        sizes("one\nsequence", "kv_bytes_per_sequence"),
        (Column("tokens"), [engine.figures["kv_tokens"].human for engine in engines]),
        (
            Column("concurrent\nrequests"),
            [f"{float(engine.answer.result.pool.concurrency):,.2f}" for engine in engines],
        ),
        (Column("max.\nbatch"), [limit(engine.figures["max_batch"]) for engine in engines]),
        (Column("max.\ncontext"), [limit(engine.figures["max_context"]) for engine in engines]),
    ]
    narrow = column_table(columns)
    wide = column_table([*columns[:2], sizes("KV\nmemory", "kv_memory"), *columns[2:]])
    several = len({engine.figures["kv_memory"].whole for engine in engines}) > 1
    if several and max(map(len, table_lines(wide))) <= WIDTH:
        return wide
    return narrow


def _verdict_of(engine: _Supported) -> Verdict:
    return engine.answer.result.verdict


def _title(engine: _Supported) -> str:
    result = engine.answer.result
    starts = "starts" if result.budget.kv_memory_low else "may start"
    longest = result.longest_request
    if longest:
        return f"{engine.title} ({starts} with requests up to {count(longest)} tokens)"
    return engine.title


def _verdict(engines: Sequence[_Supported]) -> str:
    """Return 'FITS with vLLM, ideal; DOES NOT FIT with transformers.'"""
    titles = {
        name: [_title(engine) for engine in engines if _verdict_of(engine) == name]
        for name in VERDICTS
    }
    return (
        "; ".join(f"{VERDICTS[name]} with {', '.join(of)}" for name, of in titles.items() if of)
        + "."
    )


def _notes(engines: Sequence[_Supported]) -> tuple[str, ...]:
    """Return the notes. One that all engines share has no prefix; any other starts with its
    engines' names.
    """
    titles = grouped(
        (note, engine.title) for engine in engines for note in fit_notes(engine.answer)
    )
    return (
        "bytes: 'lower' is a lower bound; 'reserved' is what the engine allocates.",
        *(
            note if len(names) == len(engines) else f"{', '.join(names)}: {note}"
            for note, names in titles.items()
        ),
    )
