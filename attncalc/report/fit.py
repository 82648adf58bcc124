"""The report of `attncalc fit` for one engine."""

from __future__ import annotations

from typing import Any

from ..cost.common import cache_dtype
from ..engines import engine_defaults
from ..model import ModelSpec, plural
from ..serving.fit import Fit, FitRequest, fit, min_gpus
from ..serving.suggestions import Suggestion, suggestions
from ..units import count
from ..workload import Workload
from .budget import (
    aligned,
    budget_table,
    detail_figures,
    fit_figures,
    part_figures,
    pool_table,
    suggestions_table,
    verdict,
    verdict_tables,
)
from .notes import context_notes, device_notes, model_notes
from .report import LABEL, Report, Table, heading, workload_facts
from .speed import speed
from .text import WIDTH, wrapped


def fit_report(request: FitRequest, assumed: tuple[str, ...] = ()) -> Report:
    """What fits with one engine. assumed: what was taken where the question was silent.

    AttncalcError: the engine has no layout for the model, or a setting cannot be.
    """
    request = request.of(request.engine)
    found = fit(request)
    model, workload = request.model.shard(request.args.tp), workload_of(request, assumed)
    changes = suggestions(found)
    figures = fit_figures(found, min_gpus(request))
    details = detail_figures(found, figures)
    bounds = speed(request, model, workload)
    return Report(
        "fit",
        _heading(found, workload),
        model.facts(),
        workload_facts(model, workload, request.engine),
        (*figures, *bounds.figures),
        ((engine_facts(found), (*figures, *details)),),
        (
            *aligned(budget_table(found, figures), pool_table(found, figures, details)),
            *verdict_tables(found, figures),
            *suggestions_table(found, changes),
            *bounds.tables,
        ),
        tuple(dict.fromkeys((*fit_notes(found, model, workload), *bounds.notes))),
        (*part_figures(found), *bounds.parts),
        {**more_of(found, verdict(found), changes), "roofline": bounds.more},
        footer=words_table(found),
    )


def workload_of(request: FitRequest, assumed: tuple[str, ...] = ()) -> Workload:
    """The decode step that the roofline is of, and what JSON says was requested."""
    kv, source = request.args.kv_dtype.name, request.args.source
    return Workload.decode(
        request.batch, request.context, source=source, dtype=request.dtype, kv_dtype=kv, assumed=assumed
    )


def place(request: FitRequest) -> str:
    """'4 x H100 80GB', 'one device'."""
    if request.gpu is None:
        return f"{request.devices} devices" if request.devices > 1 else "one device"
    return f"{count(request.gpus)} x {request.gpu.title}" if request.gpus > 1 else f"one {request.gpu.title}"


def replicas(request: FitRequest) -> int:
    """Copies of the model on the GPUs, each with requests of its own."""
    return request.gpus // request.devices if request.gpu and not request.spread else 1


def split(request: FitRequest) -> str:
    """'tp 4, pp 2'; '' on one device."""
    found = {"tp": request.args.tp, "pp": request.args.pp, "dcp": request.args.dcp}
    return ", ".join(f"{name} {n}" for name, n in found.items() if n > 1)


def asked_facts(request: FitRequest, model: ModelSpec, workload: Workload) -> tuple[str, ...]:
    """What was requested, for a heading."""
    args = request.args
    stored = cache_dtype(model, workload)
    kept = f"cache in {stored.name}" + ("" if stored.group is None else f" ({stored.note})")
    if args.kv_dtype_k or args.kv_dtype_v:
        k, v = args.kv_dtype_k or args.kv_dtype, args.kv_dtype_v or args.kv_dtype
        kept = f"K in {k.name}, V in {v.name}"
    return (
        split(request),
        f"context {count(request.context)}",
        f"source {count(args.source)}" if args.source else "",
        f"batch {count(request.batch)}",
        kept,
    )


def _heading(found: Fit, workload: Workload) -> tuple[str, ...]:
    request = found.request
    on = f"{engine_defaults(request.engine).title} on {place(request)}"
    lines = heading(request.model, on, *asked_facts(request, request.model, workload))
    return (*lines, ", ".join(found.layout.facts)) if found.layout.facts else lines


def engine_facts(found: Fit) -> dict[str, Any]:
    """An engine's answer beside its figures, as plain data."""
    return {
        "name": found.request.engine,
        "engine_version": found.layout.version,
        "bound": found.layout.bound,
        "fits": found.fits,
        "facts": list(found.layout.facts),
        "log_lines": list(found.pool.log_lines),
        "refused": None,
    }


def more_of(found: Fit, said: str, changes: tuple[Suggestion, ...]) -> dict[str, Any]:
    """What JSON says of this command alone."""
    request = found.request
    return {
        "fits": found.fits,
        "verdict": said,
        "suggestions": [
            {
                "change": fix.change,
                "flag": fix.flag,
                "concurrency": float(fix.fit.pool.concurrency),
                "max_batch": None if fix.fit.max_batch is None else int(fix.fit.max_batch),
            }
            for fix in changes
        ],
        "engine": request.engine,
        "engine_version": found.layout.version,
        "bound": found.layout.bound,
        "log_lines": list(found.pool.log_lines),
        "gpu": request.gpu.name if request.gpu else None,
        "gpus": request.gpus if request.gpu else request.devices,
        "tp": request.args.tp,
        "pp": request.args.pp,
        "agrees": None,
        "checks": [],
        "replicas": replicas(request),
    }


def words_table(found: Fit) -> tuple[Table, ...]:
    """The engine's own lines, under its name."""
    if not found.pool.log_lines:
        return ()
    lines = [line for words in found.pool.log_lines for line in wrapped(words, "    ", WIDTH - 2)]
    its = engine_defaults(found.request.engine)
    title, refused = its.title, its.must_fit_one and found.max_batch == 0
    header = f"{title} will not start: not one request fits. It would say:" if refused else f"{title} will say:"
    said = LABEL._replace(header=header)
    return (Table((said,), tuple((line,) for line in lines)),)


def fit_notes(found: Fit, model: ModelSpec, workload: Workload) -> tuple[str, ...]:
    """What a reader must know, the engine's notes last."""
    request, budget = found.request, found.budget
    notes = context_notes(model, workload)
    if replicas(request) > 1:
        notes.append(
            f"{count(replicas(request))} replicas of {plural(request.devices, 'GPU')}: every figure is one replica's, "
            "and the batch is the sequences of one."
        )
    if budget.weights:
        notes += budget.weights.notes
    if budget.reserve and budget.reserve.note:
        notes.append(budget.reserve.note)
    if engine_defaults(request.engine).whole_prompts and budget.reserve and budget.reserve.parts:
        notes.append(
            "A pass takes the whole batch at once, so more sequences leave less for the cache; 'at once' is of the "
            "memory as it stands here."
        )
    if request.kv_default and request.args.kv_dtype.name != request.args.dtype.name:
        kept, own = request.args.kv_dtype.name, request.args.dtype.name
        notes.append(
            f"The cache is in {kept}, {engine_defaults(request.engine).title}'s default whatever the model is in; "
            f"--kv-dtype {own} is the model's own."
        )
    if request.spread:
        notes.append("The embedding stays in host memory, and no figure of a GPU has it.")
    if request.gpu and not request.gpu.measured:
        notes.append(f"{request.gpu.title}: no log of what software sees was found, so its memory is taken small.")
    if found.layout.bound == "lower":
        notes.append("Bytes are those that a later token needs at the least: pages and fragments come on top.")
    devices = (
        [] if engine_defaults(request.engine).spreads else device_notes(model)
    )  # whole layers: nothing is replicated
    return tuple(dict.fromkeys((*notes, *found.layout.notes, *devices, *model_notes(model))))
