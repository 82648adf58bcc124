"""The report of `attncalc fit --engine all`: every engine's answer to one question, a row each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..engines import ENGINES, engine_defaults
from ..errors import AttncalcError
from ..model import ModelSpec
from ..serving.fit import Fit, FitRequest, fit, min_gpus
from ..serving.suggestions import suggestions
from ..units import BYTES
from ..workload import Workload
from .budget import detail_figures, fit_figures, limit, part_figures
from .fit import asked_facts, engine_facts, fit_notes, more_of, place, workload_of
from .report import LABEL, Column, Figure, Report, Table, heading, unit_column, workload_facts
from .speed import speed
from .text import WIDTH, table_lines


class Answer(NamedTuple):
    """One engine's: what fits, with its figures by name; or why it has none."""

    engine: str
    found: Fit | None = None
    figures: tuple[Figure, ...] = ()
    details: tuple[Figure, ...] = ()
    refused: str | None = None


def fit_all_report(request: FitRequest, assumed: tuple[str, ...] = ()) -> Report:
    """What fits with each engine; the figures of the whole are those of the first that has an answer.

    It fits where one engine says so. AttncalcError: no engine has an answer.
    """
    answers = [_answer(request.of(name)) for name in ENGINES]
    found = [(answer, answer.found) for answer in answers if answer.found]
    if not found:
        raise AttncalcError(f"no engine has an answer: {answers[0].refused}", "ask one engine: --engine vllm")
    (leading, first), *_ = found
    model, workload = request.model.shard(request.args.tp), workload_of(request, assumed)
    bounds, said = speed(first.request, model, workload), _verdict([each for _, each in found])
    return Report(
        "fit",
        heading(request.model, f"every engine on {place(request)}", *asked_facts(request, request.model, workload)),
        model.facts(),
        workload_facts(model, workload, leading.engine),
        (*leading.figures, *bounds.figures),
        tuple(_layer(answer) for answer in answers),
        (_table(found), Table((LABEL,), ((said,),), strong=frozenset({0})), *bounds.tables),
        tuple(dict.fromkeys((*_notes(answers, model, workload), *bounds.notes))),
        (*part_figures(first), *bounds.parts),
        {
            **more_of(first, said, suggestions(first)),
            "fits": any(each.fits for _, each in found),
            "roofline": bounds.more,
        },
    )


def _answer(request: FitRequest) -> Answer:
    try:
        found = fit(request)
    except AttncalcError as error:
        return Answer(request.engine, refused=error.message)
    figures = fit_figures(found, min_gpus(request), request.engine)
    return Answer(request.engine, found, figures, detail_figures(found, figures, request.engine))


def _layer(answer: Answer) -> tuple[dict[str, Any], tuple[Figure, ...]]:
    if answer.found:
        return engine_facts(answer.found), (*answer.figures, *answer.details)
    nothing: dict[str, Any] = {"engine_version": None, "bound": None, "fits": None, "facts": [], "log_lines": []}
    return {"name": answer.engine, **nothing, "refused": answer.refused}, ()


def _table(found: Sequence[tuple[Answer, Fit]]) -> Table:
    """A row an engine; without the memory where that is the same for all, or leaves no room."""
    by_name = [{figure.name: figure for figure in answer.figures} for answer, _ in found]
    memory = unit_column("KV\nmemory", [each["kv_memory"].whole for each in by_name], BYTES)
    one = unit_column("one\nsequence", [each["kv_bytes_per_sequence"].whole for each in by_name], BYTES)
    columns: list[tuple[Column, list[str]]] = [
        (Column("", "left"), [engine_defaults(answer.engine).title for answer, _ in found]),
        (Column("bytes", "left"), [each.layout.bound for _, each in found]),
        one,
        (Column("tokens"), [each["kv_tokens"].human for each in by_name]),
        (Column("x at\nonce"), [f"{float(each.pool.concurrency):,.2f}" for _, each in found]),
        (Column("most\nsequences"), [limit(each["max_batch"]) for each in by_name]),
        (Column("longest\ncontext"), [limit(each["max_context"]) for each in by_name]),
    ]
    narrow, wide = _made(columns), _made([*columns[:2], memory, *columns[2:]])
    several = len({each["kv_memory"].whole for each in by_name}) > 1
    return wide if several and max(map(len, table_lines(wide))) <= WIDTH else narrow


def _made(columns: Sequence[tuple[Column, list[str]]]) -> Table:
    return Table(tuple(column for column, _ in columns), tuple(zip(*(cells for _, cells in columns), strict=True)))


def _verdict(found: Sequence[Fit]) -> str:
    """'FITS with vLLM and ideal; DOES NOT FIT with transformers.'"""
    names = {
        fits: [engine_defaults(each.request.engine).title for each in found if each.fits == fits]
        for fits in (True, False)
    }
    words = {True: "FITS with", False: "DOES NOT FIT with"}
    return "; ".join(f"{words[fits]} {', '.join(who)}" for fits, who in names.items() if who) + "."


def _notes(answers: Sequence[Answer], model: ModelSpec, workload: Workload) -> list[str]:
    """What all say once, what one says under its name."""
    notes: dict[str, list[str]] = {}
    for answer in answers:
        if answer.found:
            for note in fit_notes(answer.found, model, workload):
                notes.setdefault(note, []).append(engine_defaults(answer.engine).title)
    everyone = sum(answer.found is not None for answer in answers)
    said = [note if len(who) == everyone else f"{', '.join(who)}: {note}" for note, who in notes.items()]
    return [
        "bytes lower: what a later token needs at the least; reserved: what the engine sets aside.",
        *(
            f"{engine_defaults(answer.engine).title} has no answer: {answer.refused}."
            for answer in answers
            if answer.refused
        ),
        *said,
    ]
