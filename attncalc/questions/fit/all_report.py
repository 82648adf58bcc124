"""The report of `attncalc fit --engine all`: every engine's answer to one request, one row per
engine.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ...engines import ENGINES, find_engine
from ...errors import AttncalcError
from ...records import NamedTuple
from ...search import grouped
from ...serving.answer import Answer
from ...serving.fit import Verdict
from ...serving.request import FitRequest, ResolvedRequest
from ...show.answer_rows import (
    AnswerColumn,
    Layer,
    answer_table,
    ask_each,
    best_verdict,
    text_column,
)
from ...show.lists import WIDTH
from ...show.picture import bars, picture
from ...show.plot.chart import Chart, Picture
from ...show.report import Report, Section, Table, heading, rows_of, workload_facts
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
from .tables import Figures

# The figures that have a chart; the first two are drawn by default.
_CHARTS = ("concurrency", "kv_bytes_per_sequence", "kv_tokens", "max_context")


class _Supported(NamedTuple):
    """An engine that supports the request: its name as people write it, its answer, and its
    figures.
    """

    title: str
    answer: Answer
    figures: Figures

    def layer(self) -> Layer:
        name = self.answer.resolved.engine.name
        details = detail_figures(self.answer.result, self.figures, name)
        return engine_facts(self.answer.result), (*self.figures.values(), *details)


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
    if requests is None:
        requests = {name: dataclasses.replace(request, engine=name) for name in ENGINES}
    engines: list[_Supported] = []
    errors: dict[str, AttncalcError] = {}
    layers: list[Layer] = []
    for name, found in ask_each(ENGINES, partial(_answer_of, requests)):
        if isinstance(found, AttncalcError):
            errors[name] = found
            layers.append((_refused(name, found), ()))
        else:
            engines.append(found)
            layers.append(found.layer())
    if not engines:
        raise _no_answer(errors)
    first = engines[0].answer
    resolved = first.resolved
    bounds = roofline_section(first)
    per_user = users_section([engine.answer for engine in engines])
    best = best_verdict(engine.answer.result.verdict for engine in engines)
    summary = _summary(engines)
    refusals = [f"{find_engine(name).title}: {error.message}." for name, error in errors.items()]
    about_bytes, *notes = _notes(engines)
    shown = shown_notes(tuple(notes), first, bounds if roofline else None, full=full)
    return Report(
        "fit",
        (summary, *_heading(request, resolved, full=full)),
        resolved.model.facts(),
        workload_facts(resolved.model, resolved.workload, resolved.engine.name),
        (*engines[0].figures.values(), *bounds.figures),
        tuple(layers),
        (_table(engines), *per_user.tables, *_bound_tables(bounds, full=full, shown=roofline)),
        tuple(dict.fromkeys((*refusals, about_bytes, *notes, *bounds.notes))),
        (*term_figures(first.result.budget), *per_user.terms, *bounds.terms),
        {**fit_facts(first, summary), **_facts(best, per_user, bounds)},
        verdict=best,
        shown_notes=(*refusals, about_bytes, *shown),
        draw=lambda: _picture(engines, summary),
        has_answers=True,
        has_fail_if=True,
    )


def _facts(best: Verdict, per_user: Section, bounds: Section) -> dict[str, Any]:
    return {
        "fits": best != "does_not_fit",
        "verdict": best,
        "users": per_user.extra,
        "roofline": bounds.extra,
    }


def _answer_of(requests: Mapping[str, FitRequest | AttncalcError], engine: str) -> _Supported:
    """Return the engine's answer. Raises AttncalcError if it does not support the request."""
    request = requests[engine]
    if isinstance(request, AttncalcError):
        raise request
    answer = Answer.to(request)
    return _Supported(answer.resolved.engine.title, answer, answer_figures(answer, engine))


def _bound_tables(bounds: Section, *, full: bool, shown: bool) -> tuple[Table, ...]:
    """Return the tables of the lower bounds of time, if they are shown; the first unless `full`."""
    if not shown:
        return ()
    if full:
        return bounds.tables
    return bounds.tables[:1]


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


def _picture(engines: Sequence[_Supported], summary: str) -> Picture | None:
    """Return bars of each figure, one per engine, and the roofline of a GPU."""
    resolved = engines[0].answer.resolved
    charts: list[Chart] = []
    for name in _CHARTS:
        row = FIGURES[name]
        values = [(engine.title, engine.figures[name].value) for engine in engines]
        chart = bars(name, row.chart_title, row.unit, values)
        if chart:
            charts.append(chart)
    bounds, _ = engines[0].answer.bounds
    if bounds:
        charts.append(roofline_chart(bounds))
    *facts, _, _ = request_facts(resolved)
    dtypes: dict[str, list[str]] = {}
    for engine in engines:
        stored = engine.answer.result.budget.weights
        dtype = stored.dtype if stored else engine.answer.resolved.args.dtype.name
        weights = f"weights in {dtype}"
        cache = request_facts(engine.answer.resolved)[-1]
        dtypes.setdefault(", ".join(filter(None, (weights, cache))), []).append(engine.title)
    of_engines = [f"{words} ({', '.join(titles)})" for words, titles in dtypes.items()]
    if len(dtypes) == 1:
        of_engines = [*dtypes]
    return picture(
        place(resolved),
        summary,
        [", ".join(filter(None, facts))],
        charts,
        _CHARTS[:2],
        engine=", ".join(engine.title for engine in engines),
        dtypes="; ".join(of_engines),
    )


def _heading(request: FitRequest, resolved: ResolvedRequest, *, full: bool) -> tuple[str, ...]:
    """Return the model, where it runs and the request; if `full`, also the model's attention."""
    if full:
        return heading(
            request.model, f"every engine on {hardware(resolved)}", *request_facts(resolved)
        )
    facts = ", ".join(filter(None, (place(resolved), *request_facts(resolved))))
    if request.model.assumed:
        return facts, f"ASSUMED: {request.model.assumed}"
    return (facts,)


def _table(engines: Sequence[_Supported]) -> Table:
    """Return one row per engine. The memory column is left out if all engines have the same, or it
    is too wide.
    """
    rows = rows_of(engine.layer() for engine in engines)
    for row, engine in zip(rows, engines, strict=True):
        row["title"] = engine.title
    memory = AnswerColumn("kv_memory", "KV\nmemory", unit=BYTES, drop=3)
    columns = [
        text_column("title", ""),
        text_column("bound", "bytes", drop=1),
        AnswerColumn("kv_bytes_per_sequence", "one\nsequence", unit=BYTES, drop=2),
        AnswerColumn("kv_tokens", "tokens"),
        AnswerColumn("concurrency", "concurrent\nrequests", lambda requests: f"{requests:,.2f}"),
        AnswerColumn("max_batch", "max.\nbatch", missing="no limit"),
        AnswerColumn("max_context", "max.\ncontext", missing="no limit"),
    ]
    wide = answer_table(rows, [*columns[:2], memory, *columns[2:]])
    several = len({row["kv_memory"] for row in rows}) > 1
    if several and max(map(len, table_lines(wide))) <= WIDTH:
        return wide
    return answer_table(rows, columns)


def _title(engine: _Supported) -> str:
    """Return its name, and if it starts with short requests only, up to which length."""
    result = engine.answer.result
    starts = "starts" if result.budget.kv_memory_low else "may start"
    longest = result.longest_request
    if longest:
        return f"{engine.title} ({starts} with requests up to {count(longest)} tokens)"
    return engine.title


def _summary(engines: Sequence[_Supported]) -> str:
    """Return 'FITS with vLLM, ideal; DOES NOT FIT with transformers.', and why others do not
    start.
    """
    starting = [engine for engine in engines if not engine.answer.result.refusal]
    titles = grouped((engine.answer.result.verdict, _title(engine)) for engine in starting)
    parts = []
    for verdict, word in VERDICTS.items():
        if verdict in titles:
            parts.append(f"{word} with {', '.join(titles[verdict])}")
    for engine in engines:
        refusal = engine.answer.result.refusal
        if refusal:
            parts.append(f"DOES NOT START with {engine.title}: {refusal.reason}")
    return f"{'; '.join(parts)}."


def _notes(engines: Sequence[_Supported]) -> tuple[str, ...]:
    """Return the notes. One that all engines share has no prefix; any other starts with its
    engines' names.
    """
    titles = grouped(
        (note, engine.title) for engine in engines for note in fit_notes(engine.answer)
    )
    notes = ["bytes: 'lower' is a lower bound; 'reserved' is what the engine allocates."]
    for note, names in titles.items():
        notes.append(note if len(names) == len(engines) else f"{', '.join(names)}: {note}")
    return tuple(notes)
