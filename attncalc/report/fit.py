"""The report of `attncalc fit` for one engine."""

from __future__ import annotations

from typing import Any

from ..cost.fit import Fit, Question, fit, min_gpus
from ..cost.fixes import Fix, fixes
from ..cost.parts import cache_dtype
from ..engines import habits
from ..model import ModelSpec, plural
from ..units import count
from ..workload import Workload
from .ledger import (
    aligned,
    detail_figures,
    fit_figures,
    fixes_table,
    ledger_table,
    part_figures,
    pool_table,
    verdict,
    verdict_tables,
)
from .notes import context_notes, device_notes, model_notes
from .report import LABEL, Report, Table, heading, workload_facts
from .speed import speed
from .text import WIDTH, wrapped


def fit_report(asked: Question, assumed: tuple[str, ...] = ()) -> Report:
    """What fits with one engine. assumed: what was taken where the question was silent.

    AttncalcError: the engine has no layout for the model, or a setting cannot be.
    """
    asked = asked.of(asked.engine)
    found = fit(asked)
    model, workload = asked.model.shard(asked.settings.tp), workload_of(asked, assumed)
    changes = fixes(found)
    figures = fit_figures(found, min_gpus(asked))
    details = detail_figures(found, figures)
    bounds = speed(asked, model, workload)
    return Report(
        "fit",
        _heading(found, workload),
        model.facts(),
        workload_facts(model, workload, asked.engine),
        (*figures, *bounds.figures),
        ((engine_facts(found), (*figures, *details)),),
        (
            *aligned(ledger_table(found, figures), pool_table(found, figures, details)),
            *verdict_tables(found, figures),
            *fixes_table(found, changes),
            *bounds.tables,
        ),
        tuple(dict.fromkeys((*fit_notes(found, model, workload), *bounds.notes))),
        (*part_figures(found), *bounds.parts),
        {**more_of(found, verdict(found), changes), "roofline": bounds.more},
        closing=words_table(found),
    )


def workload_of(asked: Question, assumed: tuple[str, ...] = ()) -> Workload:
    """The decode step that the roofline is of, and what JSON says was asked."""
    kv, source = asked.settings.kv_dtype.name, asked.settings.source
    return Workload.decode(asked.batch, asked.context, source=source, dtype=asked.dtype, kv_dtype=kv, assumed=assumed)


def place(asked: Question) -> str:
    """'4 x H100 80GB', 'one device'."""
    if asked.gpu is None:
        return f"{asked.devices} devices" if asked.devices > 1 else "one device"
    return f"{count(asked.gpus)} x {asked.gpu.title}" if asked.gpus > 1 else f"one {asked.gpu.title}"


def replicas(asked: Question) -> int:
    """Copies of the model on the GPUs, each with requests of its own."""
    return asked.gpus // asked.devices if asked.gpu and not asked.spread else 1


def split(asked: Question) -> str:
    """'tp 4, pp 2'; '' on one device."""
    found = {"tp": asked.settings.tp, "pp": asked.settings.pp, "dcp": asked.settings.dcp}
    return ", ".join(f"{name} {n}" for name, n in found.items() if n > 1)


def asked_facts(asked: Question, model: ModelSpec, workload: Workload) -> tuple[str, ...]:
    """What was asked, for a heading."""
    settings = asked.settings
    stored = cache_dtype(model, workload)
    kept = f"cache in {stored.name}" + ("" if stored.group is None else f" ({stored.note})")
    if settings.kv_dtype_k or settings.kv_dtype_v:
        k, v = settings.kv_dtype_k or settings.kv_dtype, settings.kv_dtype_v or settings.kv_dtype
        kept = f"K in {k.name}, V in {v.name}"
    return (
        split(asked),
        f"context {count(asked.context)}",
        f"source {count(settings.source)}" if settings.source else "",
        f"batch {count(asked.batch)}",
        kept,
    )


def _heading(found: Fit, workload: Workload) -> tuple[str, ...]:
    asked = found.asked
    on = f"{habits(asked.engine).title} on {place(asked)}"
    lines = heading(asked.model, on, *asked_facts(asked, asked.model, workload))
    return (*lines, ", ".join(found.layout.facts)) if found.layout.facts else lines


def engine_facts(found: Fit) -> dict[str, Any]:
    """An engine's answer beside its figures, as plain data."""
    return {
        "name": found.asked.engine,
        "engine_version": found.layout.version,
        "bound": found.layout.bound,
        "fits": found.fits,
        "facts": list(found.layout.facts),
        "words": list(found.pool.words),
        "refused": None,
    }


def more_of(found: Fit, said: str, changes: tuple[Fix, ...]) -> dict[str, Any]:
    """What JSON says of this command alone."""
    asked = found.asked
    return {
        "fits": found.fits,
        "verdict": said,
        "fixes": [
            {
                "change": fix.change,
                "flag": fix.flag,
                "concurrency": float(fix.fit.pool.concurrency),
                "max_batch": None if fix.fit.max_batch is None else int(fix.fit.max_batch),
            }
            for fix in changes
        ],
        "engine": asked.engine,
        "engine_version": found.layout.version,
        "bound": found.layout.bound,
        "words": list(found.pool.words),
        "gpu": asked.gpu.name if asked.gpu else None,
        "gpus": asked.gpus if asked.gpu else asked.devices,
        "tp": asked.settings.tp,
        "pp": asked.settings.pp,
        "agrees": None,
        "checks": [],
        "replicas": replicas(asked),
    }


def words_table(found: Fit) -> tuple[Table, ...]:
    """The engine's own lines, under its name."""
    if not found.pool.words:
        return ()
    lines = [line for words in found.pool.words for line in wrapped(words, "    ", WIDTH - 2)]
    its = habits(found.asked.engine)
    title, refused = its.title, its.must_fit_one and found.max_batch == 0
    header = f"{title} will not start: not one request fits. It would say:" if refused else f"{title} will say:"
    said = LABEL._replace(header=header)
    return (Table((said,), tuple((line,) for line in lines)),)


def fit_notes(found: Fit, model: ModelSpec, workload: Workload) -> tuple[str, ...]:
    """What a reader must know, the engine's notes last."""
    asked, ledger = found.asked, found.ledger
    notes = context_notes(model, workload)
    if replicas(asked) > 1:
        notes.append(
            f"{count(replicas(asked))} replicas of {plural(asked.devices, 'GPU')}: every figure is one replica's, and "
            "the batch is the sequences of one."
        )
    if ledger.weights:
        notes += ledger.weights.notes
    if ledger.reserve and ledger.reserve.note:
        notes.append(ledger.reserve.note)
    if habits(asked.engine).whole_prompts and ledger.reserve and ledger.reserve.parts:
        notes.append(
            "A pass takes the whole batch at once, so more sequences leave less for the cache; 'at once' is of the "
            "memory as it stands here."
        )
    if asked.kv_default and asked.settings.kv_dtype.name != asked.settings.dtype.name:
        kept, own = asked.settings.kv_dtype.name, asked.settings.dtype.name
        notes.append(
            f"The cache is in {kept}, {habits(asked.engine).title}'s default whatever the model is in; --kv-dtype "
            f"{own} is the model's own."
        )
    if asked.spread:
        notes.append("The embedding stays in host memory, and no figure of a GPU has it.")
    if asked.gpu and not asked.gpu.measured:
        notes.append(f"{asked.gpu.title}: no log of what software sees was found, so its memory is taken small.")
    if found.layout.bound == "lower":
        notes.append("Bytes are those that a later token needs at the least: pages and fragments come on top.")
    devices = [] if habits(asked.engine).spreads else device_notes(model)  # whole layers: nothing is replicated
    return tuple(dict.fromkeys((*notes, *found.layout.notes, *devices, *model_notes(model))))
