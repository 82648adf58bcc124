"""The report of `attncalc fit` about many: the built-in models on a GPU, or one model on each
GPU.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from ...cost.params import params
from ...engines import DEFAULT_ENGINE
from ...ggml import FILE_TYPES
from ...model import plural
from ...quantity import Quantity, Ratio
from ...records import NamedTuple
from ...serving.answer import bounds_of
from ...serving.fit import sure_limits
from ...serving.vram import Need, WhatFits, need
from ...show.bar import gib
from ...show.figures import FigureRow, FigureRows
from ...show.gpu_rows import GROUPED, GpuRow, best_verdict, gpu_table, verdict_of_all
from ...show.report import (
    LABEL,
    Column,
    Figure,
    Report,
    Table,
    column_table,
    rows_of,
    workload_facts,
)
from ...show.text import HEIGHT, first_that_fits
from ...show.verdicts import VERDICTS
from ...units import NO_UNIT, TOKENS, count, typed_bytes
from .report import hardware
from .roofline import FIGURES as BOUNDS
from .vram_report import FIGURES as NEEDED
from .vram_report import needed_figures, subject

OF_EACH_GPU = (
    "Engine and weights are each GPU's defaults: --engine and --weights-dtype set the same for all."
)
_UNFIT = "if it does not fit"
_RATE = BOUNDS["decode_tokens_per_second_bound"]
FIGURES = FigureRows(
    **NEEDED,
    max_context=FigureRow(
        "longest context", TOKENS, "the longest context of the batch that is sure to fit", _UNFIT
    ),
    max_batch=FigureRow(
        "requests", NO_UNIT, "the most requests of this context that are sure to fit", _UNFIT
    ),
    decode_tokens_per_second_bound=_RATE._replace(
        null_if=f"{_UNFIT}, without the GPU's FLOP/s, {_RATE.null_if}"
    ),
)


# Rows of models that a screen has at most, besides its heading, the headers, a note and empty
# lines.
MOST_MODELS = HEIGHT - 8


class _Row(NamedTuple):
    """What one model needs on one GPU, and if it fits, what else is sure to: tokens of context,
    requests, tokens/s.
    """

    need: Need
    context: int | None = None
    batch: int | None = None
    rate: Ratio | None = None


def verdict_of(found: WhatFits) -> str:
    """Return the answer as a sentence: 'FITS: up to Qwen3 32B in q4_k_m, of the built-in
    models.'
    """
    first = found.needs[0]
    verdict = best_verdict(found.verdicts)
    if found.models is None:
        return verdict_of_all(found.verdicts)
    how = {"fits": "up to ", "does_not_fit": "not even "}.get(verdict, "")
    title = first.resolved.request.model.title
    return f"{VERDICTS[verdict]}: {how}{title} in {_weights(first)}, of the built-in models."


def what_fits_report(found: WhatFits, *, full: bool = False, is_screen: bool = False) -> Report:
    """Return one row per model, or per GPU.

    With `full` the screen leaves none out. `is_screen` computes what a screen has, without a
    formula.
    """
    resolved = found.needs[0].resolved
    verdict = best_verdict(found.verdicts)
    needs = found.needs if is_screen else (need(resolved.request), *found.needs[1:])
    rows = [_Row(one) if is_screen and found.models is None else _with_limits(one) for one in needs]
    notes = tuple(_notes(found, full=full))
    layers = tuple((_facts(row.need), _without_formulas(row)) for row in rows)
    report = Report(
        "what_fits",
        (verdict_of(found), _subject(found)),
        resolved.model.facts(),
        workload_facts(resolved.model, resolved.whole_workload, resolved.engine.name),
        _figures(rows[0]),
        layers,
        notes=notes,
        extra={"answer": verdict_of(found), "verdict": verdict, "models": found.models},
        rows=rows_of(layers),
        verdict=verdict,
        shown_notes=notes,
    )
    if found.models is None:
        return report._replace(tables=(_table_of_gpus(found.needs, full=full),))
    shown = [len(rows)] if full else range(len(rows), 0, -1)
    tables = (_table_of_models(rows[:n], more=n < len(rows) or found.untried > 0) for n in shown)
    return first_that_fits(report._replace(tables=(table,)) for table in tables)


def _with_limits(of: Need) -> _Row:
    if of.verdict != "fits":
        return _Row(of)
    context, batch = sure_limits(of.resolved)
    bounds, _ = bounds_of(of.resolved, with_limits=False)
    return _Row(of, context or None, batch or None, bounds.tokens_per_second if bounds else None)


def _subject(found: WhatFits) -> str:
    """Return 'Llama 3.1 8B, 1 request of ...' or 'one RTX 4090 (23.5 GiB), 1 request of ...', with
    the engine.
    """
    engines = {of.resolved.engine.title for of in found.needs}
    named = engines.pop() if len(engines) == 1 else ""
    first = found.needs[0]
    if found.models is None:
        title = first.resolved.request.model.title
        return subject(
            first, named, of=title, with_weights=len(_types_of_weights(found.needs)) == 1
        )
    on_cpu = first.resolved.args.on_cpu
    memory = "" if on_cpu else f" ({gib(first.memory)} GiB)"
    return subject(first, named, of=f"On {hardware(first.resolved)}{memory}")


def _types_of_weights(needs: Sequence[Need]) -> set[str | None]:
    """Return the dtypes of the weights; None for those as released."""
    return {of.resolved.request.weights_dtype for of in needs}


def _table_of_gpus(needs: Sequence[Need], *, full: bool) -> Table:
    with_types = len(_types_of_weights(needs)) > 1

    def row(of: Need) -> GpuRow:
        context = int(of.resolved.workload.context)
        engine = of.resolved.engine.title
        if with_types:
            engine = f"{engine}, {of.resolved.request.weights_dtype or 'as released'}"
        return GpuRow(of.gpu_name, of.memory, of.low, of.high, of.verdict, context, engine)

    rows = [*map(row, needs)]
    searched = "context" if any(row.most != rows[0].most for row in rows) else ""
    return gpu_table(rows, searched=searched, full=full)


def _table_of_models(rows: Sequence[_Row], *, more: bool) -> Table:
    models = [row.need.resolved.request.model for row in rows]

    def numbers(values: Sequence[int | None]) -> list[str]:
        return [count(value) if value else "-" for value in values]

    columns = [
        (LABEL, [model.name for model in models]),
        (Column("params"), [f"{int(params(model).total) / 10**9:.1f}B" for model in models]),
        (Column("weights", "left"), [_weights(row.need) for row in rows]),
        (Column("needs at\nmost GiB"), [gib(row.need.high) for row in rows]),
        (Column("context,\nat least"), numbers([row.context for row in rows])),
        (Column("requests,\nat least"), numbers([row.batch for row in rows])),
    ]
    if any(row.rate for row in rows):
        columns.append(
            (
                Column("tokens/s,\nat most"),
                [f"{float(row.rate):,.0f}" if row.rate else "-" for row in rows],
            )
        )
    if more:
        for column, cells in columns:
            cells.append("smaller ones" if column is LABEL else "")
    return column_table(columns)


def _notes(found: WhatFits, *, full: bool) -> Iterator[str]:
    first = found.needs[0].resolved
    of_all = [set(of.resolved.workload.assumed) for of in found.needs]
    yield from (note for note in first.workload.assumed if all(note in notes for notes in of_all))
    if found.models is None:
        if (
            len(
                {(of.resolved.engine.name, of.resolved.request.weights_dtype) for of in found.needs}
            )
            > 1
        ):
            yield OF_EACH_GPU
        if not full:
            yield GROUPED
        if best_verdict(found.verdicts) == "does_not_fit" and first.gpus == 1:
            yield "--gpus 8 answers for eight of each."
    else:
        yield (
            "Weights are as released, or the widest of 4 bits or more that fit. -c and -b change "
            f"the request, --full lists all. One in detail: {_command(found.needs[0])}"
        )
    if found.problems and not found.untried:
        reasons = [*dict.fromkeys(found.problems)]
        if found.models is None:
            yield (
                f"warning: {plural(len(found.problems), 'further GPU')} cannot run it: "
                f"{'; '.join(reasons)}."
            )
        else:
            example = ", for example" if len(reasons) > 1 else ""
            yield (
                f"{plural(len(found.problems), 'further model')} cannot run so: "
                f"{reasons[0]}{example}."
            )


def _command(of: Need) -> str:
    """Return the command that answers for one model alone."""
    request = of.resolved.request
    gpus = of.resolved.gpus
    dtype = request.weights_dtype
    gpu = of.gpu_name
    if gpus > 1:
        gpu = f"{gpus}x{gpu}"
    is_typed = dtype in FILE_TYPES
    words = [
        "attncalc fit",
        f"{request.model.name}:{dtype}" if is_typed else request.model.name,
        "--gpu",
        gpu,
    ]
    if of.resolved.args.on_cpu:
        words += ["--ram", typed_bytes(int(of.budget.memory or 0))]
    else:
        words += []
    words += ["-c", str(int(request.workload.context))]
    words += ["-b", str(request.workload.batch)] if request.workload.batch > 1 else []
    words += ["--weights-dtype", dtype] if dtype and not is_typed else []
    is_default = request.engine == DEFAULT_ENGINE and not (request.gpu and request.gpu.runs_files)
    words += [] if is_typed or is_default else ["--engine", request.engine]
    return " ".join(words)


def _figures(row: _Row) -> tuple[Figure, ...]:
    whole = [None if value is None else Quantity(value) for value in (row.context, row.batch)]
    own = zip(("max_context", "max_batch", _RATE.name), (*whole, row.rate), strict=True)
    return (*needed_figures(row.need), *(FIGURES[name].figure(value) for name, value in own))


def _without_formulas(row: _Row) -> tuple[Figure, ...]:
    name = f"{row.need.resolved.request.model.name} on {row.need.gpu_name}"
    return tuple(figure.without_formula(name) for figure in _figures(row))


def _weights(of: Need) -> str:
    return of.resolved.request.weights_dtype or of.weights.dtype


def _facts(of: Need) -> dict[str, Any]:
    resolved = of.resolved
    return {
        "model": resolved.request.model.name,
        "gpu": of.gpu_name,
        "gpus": resolved.gpus,
        "engine": resolved.engine.name,
        "weights_dtype": _weights(of),
        "context": int(resolved.workload.context),
        "verdict": of.verdict,
    }
