"""The report of `attncalc fit --engine all`: every engine's answer to one request, one row per engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..engines import ENGINES, find_engine
from ..errors import AttncalcError
from ..plot.chart import Chart, Picture
from ..serving.fit import FitRequest, FitResult, Verdict, fit, min_gpus
from ..serving.request import ResolvedRequest
from ..serving.roofline import Roofline
from ..serving.suggestions import suggestions
from ..serving.users import users
from ..units import BYTES
from .charts.picture import bars, picture
from .charts.roofline import roofline_chart
from .fit import (
    engine_facts,
    fit_facts,
    fit_notes,
    hardware,
    limit,
    request_facts,
    shown_notes,
)
from .fit_figures import FIGURES, detail_figures, fit_figures, term_figures
from .report import Column, Figure, Report, Table, heading, unit_column, workload_facts
from .roofline import roofline_section
from .text import WIDTH, table_lines
from .users import user_figures, users_section


class Answer(NamedTuple):
    """What fits with one engine, with its figures."""

    result: FitResult
    figures: tuple[Figure, ...]
    details: tuple[Figure, ...]

    @property
    def title(self) -> str:
        """The engine's name, as people write it."""
        return self.result.resolved.engine.title

    @property
    def by_name(self) -> dict[str, Figure]:
        """The figures by their names."""
        return {figure.name: figure for figure in self.figures}


def fit_all_report(request: FitRequest, *, full: bool = False, roofline: bool = False) -> Report:
    """Return what fits with each engine. The verdict is yes if it fits with one of them.

    The report's own figures are those of the first engine that supports the request. `full` and `roofline` are as in
    `fit_report`. Raises AttncalcError if no engine supports it.
    """
    answers: list[Answer] = []
    errors: dict[str, AttncalcError] = {}
    requests = [request.for_engine(name) for name in ENGINES]
    for engine_request in requests:
        try:
            answers.append(_answer(engine_request))
        except AttncalcError as error:
            errors[engine_request.engine] = error
    if not answers:
        raise _no_answer(errors)
    first = answers[0].result
    resolved = first.resolved
    per_user = users_section([answer.result.resolved for answer in answers])
    bounds, verdict = roofline_section(resolved), _verdict(answers)
    layers = {answer.result.resolved.engine.name: _layer(answer) for answer in answers} | {
        name: _unsupported(name, error) for name, error in errors.items()
    }
    refusals, notes = _refusals(errors), _notes(answers)
    return Report(
        "fit",
        (verdict, *_heading(request, resolved, full=full)),
        resolved.model.facts(),
        workload_facts(resolved.model, resolved.workload, resolved.engine.name),
        (*answers[0].figures, *bounds.figures),
        tuple(layers[name] for name in ENGINES),
        (_table(answers), *per_user.tables, *(bounds.tables if roofline else ())),
        tuple(dict.fromkeys((*refusals, *notes, *bounds.notes))),
        (*term_figures(first), *per_user.terms, *bounds.terms),
        {
            **fit_facts(first, verdict, suggestions(first)),
            "fits": any(answer.result.fits for answer in answers),
            "verdict": _best(answers),
            "users": per_user.extra,
            "roofline": bounds.extra,
        },
        verdict=_best(answers),
        shown_notes=(*refusals, *shown_notes(notes, bounds, full=full, roofline=roofline, more=())),
        picture=_picture(answers, verdict, bounds.bounds),
    )


_CHARTS = ("concurrency", "kv_bytes_per_sequence", "kv_tokens", "max_context")
"""The figures that have a chart."""


def _picture(answers: Sequence[Answer], verdict: str, bounds: Roofline | None) -> Picture | None:
    """Return bars of each figure, one per engine, and the roofline of a GPU."""
    resolved = answers[0].result.resolved
    *facts, _ = request_facts(resolved)
    caches = dict.fromkeys(request_facts(answer.result.resolved)[-1] for answer in answers)
    drawn = [
        bars([(answer.title, answer.by_name[name]) for answer in answers], FIGURES[name].chart_title)
        for name in _CHARTS
    ]
    charts: list[Chart] = [chart for chart in drawn if chart]
    return picture(
        f"{resolved.request.model.title} on {hardware(resolved)}",
        verdict,
        [", ".join(filter(None, facts))],
        [*charts, *([roofline_chart(bounds)] if bounds else [])],
        ["concurrency", "kv_bytes_per_sequence"],
        engine=", ".join(answer.title for answer in answers),
        dtypes=" or ".join(caches),
    )


def _heading(request: FitRequest, resolved: ResolvedRequest, *, full: bool) -> tuple[str, ...]:
    """Return the model, where it runs and the request; if `full`, also the model's attention."""
    if full:
        return heading(request.model, f"every engine on {hardware(resolved)}", *request_facts(resolved))
    facts = (f"{request.model.title} on {hardware(resolved)}", *request_facts(resolved))
    assumed = (f"ASSUMED: {request.model.assumed}",) if request.model.assumed else ()
    return (", ".join(fact for fact in facts if fact), *assumed)


def _answer(request: FitRequest) -> Answer:
    result = fit(request)
    figures = fit_figures(result, min_gpus(result.resolved), request.engine)
    figures = (*figures, *user_figures(users(result.resolved), request.engine))
    return Answer(result, figures, detail_figures(result, figures, request.engine))


def _no_answer(errors: dict[str, AttncalcError]) -> AttncalcError:
    """Return the error that all engines share, or else that of the first engine."""
    first = next(iter(errors.values()))
    if len({error.message for error in errors.values()}) == 1:
        return first
    return AttncalcError(f"no engine supports this: {first.message}", "choose one engine: --engine vllm")


def _layer(answer: Answer) -> tuple[dict[str, Any], tuple[Figure, ...]]:
    return engine_facts(answer.result), (*answer.figures, *answer.details)


def _unsupported(name: str, error: AttncalcError) -> tuple[dict[str, Any], tuple[Figure, ...]]:
    no_answer: dict[str, Any] = dict.fromkeys(("engine_version", "bound", "fits", "verdict", "launch_command"))
    no_answer |= {"runtime": [], "facts": [], "log_lines": []}
    return {"name": name, **no_answer, "refused": error.message}, ()


def _table(answers: Sequence[Answer]) -> Table:
    """Return one row per engine. The memory column is left out if all engines have the same, or it is too wide."""
    figures = [answer.by_name for answer in answers]
    memory = unit_column("KV\nmemory", [by_name["kv_memory"].whole for by_name in figures], BYTES)
    per_sequence = unit_column("one\nsequence", [by_name["kv_bytes_per_sequence"].whole for by_name in figures], BYTES)
    columns: list[tuple[Column, list[str]]] = [
        (Column("", "left"), [answer.title for answer in answers]),
        (Column("bytes", "left"), [answer.result.layout.bound for answer in answers]),
        per_sequence,
        (Column("tokens"), [by_name["kv_tokens"].human for by_name in figures]),
        (Column("concurrent\nrequests"), [f"{float(answer.result.pool.concurrency):,.2f}" for answer in answers]),
        (Column("max.\nbatch"), [limit(by_name["max_batch"]) for by_name in figures]),
        (Column("max.\ncontext"), [limit(by_name["max_context"]) for by_name in figures]),
    ]
    narrow, wide = _table_of(columns), _table_of([*columns[:2], memory, *columns[2:]])
    several = len({by_name["kv_memory"].whole for by_name in figures}) > 1
    return wide if several and max(map(len, table_lines(wide))) <= WIDTH else narrow


def _table_of(columns: Sequence[tuple[Column, list[str]]]) -> Table:
    return Table(tuple(column for column, _ in columns), tuple(zip(*(cells for _, cells in columns), strict=True)))


_WORDS: dict[Verdict, str] = {
    "fits": "FITS with",
    "may_not_fit": "MAY NOT FIT with",
    "does_not_fit": "DOES NOT FIT with",
}


def _best(answers: Sequence[Answer]) -> Verdict:
    """Return the best of the engines' verdicts."""
    return min((answer.result.verdict for answer in answers), key=list(_WORDS).index)


def _verdict(answers: Sequence[Answer]) -> str:
    """Return 'FITS with vLLM and ideal; DOES NOT FIT with transformers.'"""
    titles = {verdict: [answer.title for answer in answers if answer.result.verdict == verdict] for verdict in _WORDS}
    return "; ".join(f"{_WORDS[verdict]} {', '.join(names)}" for verdict, names in titles.items() if names) + "."


def _refusals(errors: dict[str, AttncalcError]) -> tuple[str, ...]:
    """Return why engines do not support the request."""
    return tuple(f"{find_engine(name).title}: {error.message}." for name, error in errors.items())


def _notes(answers: Sequence[Answer]) -> tuple[str, ...]:
    """Return the notes. One that all engines share has no prefix; any other starts with its engines' names."""
    titles: dict[str, list[str]] = {}
    for answer in answers:
        for note in fit_notes(answer.result):
            titles.setdefault(note, []).append(answer.title)
    return (
        "bytes: 'lower' is a lower bound, the tokens themselves; 'reserved' is what the engine allocates.",
        *(note if len(names) == len(answers) else f"{', '.join(names)}: {note}" for note, names in titles.items()),
    )
