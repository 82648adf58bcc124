"""The report of `attncalc train`: whether a training run fits on its GPUs, its memory by part, and
its FLOPs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...cost.training.fits import Change, TrainResult, stage_sizes
from ...cost.training.setup import Training
from ...cost.training.step import LOADING, StageBudget
from ...model import plural
from ...show.bar import gib_range
from ...show.blocks import Block, Form, LeftOut, note_blocks, on_one_screen
from ...show.report import Figure, Report, workload_facts
from ...units import BYTES, count
from .figures import Answer, train_figures
from .heading import heading, named_change, run_facts, verdict_text
from .notes import is_decisive, peak_sentences, train_notes
from .tables import (
    Figures,
    budget_table,
    change_rows,
    changes_table,
    fewest_table,
    no_change_tables,
    stages_table,
    work_table,
)

if TYPE_CHECKING:
    from ...show.plot.chart import Picture


def train_report(of: Answer, *, full: bool = False) -> Report:
    """Return whether a run fits. `full` shows the stages of a pipeline too, and all notes."""
    result = of.result
    run = of.result.run
    figures = {figure.name: figure for figure in train_figures(of)}
    notes = tuple(train_notes(of))
    report = Report(
        "train",
        tuple(heading(of)),
        run.model.facts(),
        workload_facts(run.model, run.workload),
        tuple(figures.values()),
        notes=notes,
        terms=tuple(_terms(result)),
        extra=train_extra(of),
        verdict=result.verdict,
        draw=lambda: _picture(of),
        has_fail_if=True,
    )
    if not full:
        return _on_one_screen(report, of, figures)
    tables = [budget_table(of, figures, with_parts=True, full=True)]
    if of.fewest:
        tables.append(fewest_table(of))
    if of.changes:
        tables.append(changes_table(change_rows(of)))
    else:
        tables += no_change_tables(of)
    tables.append(work_table(of, figures))
    if len(run.stages) > 1:
        tables.append(stages_table(run))
    return report._replace(tables=tuple(tables), shown_notes=notes)


# The default screen. What it loses first, if it has no room; warnings stay.

_PARTS, _WORK, _CHANGES, _PEAK, _LAST_CHANGE, _NOTES = range(6)
# What a screen without the first note lacks.
_PEAK_NOTE = "peak"


def _on_one_screen(report: Report, of: Answer, figures: Figures) -> Report:
    """Return the report with the tables and notes of the default screen."""
    in_parts = Form((budget_table(of, figures, with_parts=True),))
    budget = Form((budget_table(of, figures, with_parts=False),), loss=_PARTS)
    blocks: list[Block] = [(in_parts, budget)]
    if of.fewest:
        blocks.append([Form((fewest_table(of),))])
    if of.changes:
        blocks.append(_changes_forms(of))
    else:
        blocks.append([Form(no_change_tables(of))])
    if of.time or of.result.verdict in (None, "fits"):
        blocks.append(_work_forms(of, figures))
    blocks.append(_peak_forms(of))
    blocks += note_blocks(filter(is_decisive, report.notes[1:]), _NOTES)

    def closing(left_out: LeftOut) -> tuple[str, ...]:
        in_full = plural(len(report.notes) - 1 + left_out.get(_PEAK_NOTE, 0), "note")
        return (f"--full adds FLOPs, stages and {in_full}; --explain shows every formula.",)

    return on_one_screen(report, blocks, closing)


def _changes_forms(of: Answer) -> Iterator[Form]:
    """Yield the table of all changes, then those of fewer, and nothing if the verdict has the first
    one.

    The last but one goes first: the last says how many GPUs are enough, unless there are adapters.
    """
    keeps_last = of.result.run.lora is None
    rows = change_rows(of)
    yield Form((changes_table(rows),))
    while len(rows) > 1:
        *others, last_but_one, last = rows
        if keeps_last and others:
            rows = [*others, last]
        else:
            rows = [*others, last_but_one]
        yield Form((changes_table(rows),), loss=_CHANGES)
    named = named_change(of)
    if named and named.flag == of.changes[0].flag:
        yield Form(loss=_LAST_CHANGE)


def _work_forms(of: Answer, figures: Figures) -> Iterator[Form]:
    """Yield the table of the work of a step, without the FLOPs of a step, and nothing."""
    table = work_table(of, figures)
    yield Form((table,))
    others = table.rows[2:]
    if others:
        yield Form((table._replace(rows=others),), loss=_WORK)
    yield Form(loss=_WORK)


def _peak_forms(of: Answer) -> Iterator[Form]:
    """Yield the first note, then its first sentence."""
    first, *others = peak_sentences(of)
    yield Form(notes=(" ".join((first, *others)),))
    if others:
        yield Form(notes=(first,), loss=_PEAK)
    yield Form(loss=_PEAK, left_out={_PEAK_NOTE: 1})


def _picture(of: Answer) -> Picture | None:
    """Return the memory by part over the context and over a step, and the stages of a pipeline."""
    from ...show.picture import captions
    from ...show.plot.chart import Picture
    from .chart import DEFAULT, peak_text, train_charts

    run = of.result.run
    charts = tuple(train_charts(run, stage_sizes(run)))
    shown = tuple(chart.name for chart in charts if chart.name in DEFAULT)
    model, *facts = run_facts(run)
    allocated = of.result.budget.allocated
    outside = gib_range(max(0, of.result.low - allocated), of.result.high - allocated)
    lines = [
        ", ".join([*facts, f"{run.loss} loss"]),
        peak_text(run),
        f"{outside} GiB more outside the tensors at {count(run.workload.context)}",
    ]
    return Picture(model, verdict_text(of), captions(lines), charts, shown)


def _terms(result: TrainResult) -> Iterator[Figure]:
    """Yield what the figures' formulas name: the parameters, and the parts of the states."""
    states = result.budget.states
    rows = (
        ("master_weights", "fp32 copies of the weights", states.master),
        ("moments", "moments of the optimizer", states.moments),
        ("frozen_weights", "frozen weights", states.frozen_weights),
    )
    for name, label, value in rows:
        if value:
            yield Figure(name, label, value, BYTES, result.run.in_optimizer.source)


# Keys of JSON

_AS_GIVEN = (
    "loss",
    "compile",
    "optimizer",
    "param_dtype",
    "grad_dtype",
    "optimizer_dtype",
    "master_weights",
    "fp8",
    "weights_dtype",
    "gradient_accumulation",
)


def train_extra(of: Answer) -> dict[str, Any]:
    """Return the keys of JSON that only `train` has."""
    result = of.result
    run = of.result.run
    budget = of.result.budget
    return {
        "fits": result.fits,
        "verdict": result.verdict,
        "likelihood": result.likelihood,
        "likelihood_with_expandable_segments": result.likelihood_with_expandable_segments,
        "answer": verdict_text(of),
        "gpu": run.gpu.name if run.gpu else None,
        "gpus": run.gpus,
        "parallel": _parallel_facts(run),
        "run": _run_facts(run),
        "peak": LOADING if budget.peaks_at_loading else budget.peak.name,
        "moments": _moments(budget),
        "stages": stage_sizes(run),
        "saved_tensors": _saved_tensors(result),
        "suggestions": [_change_facts(of, change) for change in of.changes],
        "fewest_gpus": [
            {"gpu": gpu.name, "tuned": way, "gpus": change and change.run.gpus}
            for gpu, by_way in of.fewest
            for way, change in by_way.items()
        ],
        **_time_facts(of),
    }


def _moments(budget: StageBudget) -> list[dict[str, Any]]:
    """Return the moments that may be the peak; loading only if it is asked for."""
    moments: list[dict[str, Any]] = []
    if budget.loading:
        moments.append({"name": LOADING, "bytes": int(budget.loading)})
    for moment in budget.moments:
        moments.append({"name": moment.name, "bytes": budget.always + moment.size})
    return moments


def _parallel_facts(run: Training) -> dict[str, Any]:
    return {
        **{name: getattr(run, name) for name in ("dp", "tp", "pp", "cp", "ep")},
        "interleaved": run.virtual_stages,
        "sequence_parallel": run.sequence_parallel,
        "zero": run.zero,
        "load_full_state_dict": run.load_full_state_dict,
    }


def _run_facts(run: Training) -> dict[str, Any]:
    return {
        "kernel": run.kernel,
        "recompute": run.workload.recompute,
        "recompute_modules": list(run.recomputed_modules),
        **{name: getattr(run, name) for name in _AS_GIVEN},
        "lora_rank": run.lora.rank if run.lora else None,
        "lora_targets": list(run.lora.targets) if run.lora else [],
        "modules_to_save": list(run.modules_to_save),
        "offload": sorted(run.offload),
    }


def _saved_tensors(result: TrainResult) -> list[dict[str, Any]]:
    """Return what each group of layers saves for the backward pass, and whether it is kept."""
    return [
        {
            "layers": layer.group,
            "name": tensor.name,
            "part": tensor.part,
            "bytes": int(tensor.size),
            "kept": tensor in layer.kept,
            "why": tensor.meaning,
        }
        for layer in result.budget.saved.layers
        for tensor in layer.tensors
    ]


def _change_facts(of: Answer, change: Change) -> dict[str, Any]:
    return {
        "change": change.costs,
        "flag": change.flag,
        "launch_keys": of.flag(change) if of.launcher else None,
        "needed_low": change.result.low,
        "needed_high": change.result.high,
    }


def _time_facts(of: Answer) -> dict[str, Any]:
    """Return the price and the speed of the run; each null without --tokens."""
    if of.time is None:
        return dict.fromkeys(("price", "mfu", "mfu_assumed", "gpus_enough"))
    enough = None
    if of.time.within:
        _, enough = of.time.within
    return {
        "price": of.time.money,
        "mfu": of.time.mfu,
        "mfu_assumed": of.time.assumes_mfu,
        "gpus_enough": enough,
    }
