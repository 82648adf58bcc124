"""The report of `attncalc fit` about many: the built-in models on a GPU, or one model on each
GPU.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ...cost.params import params
from ...engines import DEFAULT_ENGINE
from ...ggml import FILE_TYPES
from ...model import plural
from ...quantity import Quantity
from ...serving.answer import bounds_of
from ...serving.fit import sure_limits
from ...serving.vram import Need, WhatFits, need
from ...show.answer_rows import (
    GROUPED,
    NOT_STARTED,
    AnswerColumn,
    Layer,
    Row,
    answer_table,
    best_verdict,
    gpu_table,
    text_column,
    verdict_of_gpus,
)
from ...show.bar import gib
from ...show.blocks import Form, on_one_screen
from ...show.figures import FigureRow, FigureRows
from ...show.report import Figure, Report, Table, rows_of, workload_facts
from ...show.text import HEIGHT
from ...show.verdicts import VERDICTS
from ...units import NO_UNIT, TOKENS, typed_bytes
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


def verdict_of(found: WhatFits) -> str:
    """Return the answer as a sentence: 'FITS: up to Qwen3 32B in q4_k_m, of the built-in
    models.'
    """
    first = found.needs[0]
    verdict = best_verdict(found.verdicts)
    if found.models is None:
        return verdict_of_gpus(found.verdicts)
    how = {"fits": "up to ", "does_not_fit": "not even "}.get(verdict, "")
    largest = found.largest or first
    title = largest.resolved.request.model.title
    refusal = first.resolved.refusal
    if verdict == "does_not_fit" and refusal:
        return f"DOES NOT START: {how}{title}, of the built-in models. {refusal.reason}."
    return f"{VERDICTS[verdict]}: {how}{title} in {_weights(largest)}, of the built-in models."


def what_fits_report(found: WhatFits, *, full: bool = False, is_screen: bool = False) -> Report:
    """Return one row per model, or per GPU.

    With `full` the screen leaves none out. `is_screen` computes what a screen has, without a
    formula.
    """
    resolved = found.needs[0].resolved
    verdict = best_verdict(found.verdicts)
    needs = found.needs if is_screen else (need(resolved.request), *found.needs[1:])
    # the table of GPUs has no limits
    with_limits = found.models is not None or not is_screen
    answers = [(_facts(of), _figures(of, with_limits=with_limits)) for of in needs]
    layers = tuple((facts, _without_formulas(facts, figures)) for facts, figures in answers)
    notes = tuple(_notes(found, full=full))
    report = Report(
        "what_fits",
        (verdict_of(found), _subject(found)),
        resolved.model.facts(),
        workload_facts(resolved.model, resolved.whole_workload, resolved.engine.name),
        answers[0][1],
        layers,
        notes=notes,
        extra={"answer": verdict_of(found), "verdict": verdict, "models": found.models},
        rows=rows_of(layers),
        verdict=verdict,
        shown_notes=notes,
    )
    if found.models is None:
        return report._replace(tables=(_table_of_gpus(found.needs, layers, full=full),))
    rows = _rows_of_models(found.needs, layers)
    others = "older ones" if found.largest else "smaller ones"
    whole = _table_of_models(rows, more=others if found.untried else "")
    if full:
        return report._replace(tables=(whole,))
    forms = [Form((whole,))]
    for n in range(len(rows) - 1, 0, -1):
        forms.append(Form((_table_of_models(rows[:n], more=others),)))
    return on_one_screen(report, [forms, [Form(notes=notes)]])


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


def _table_of_gpus(needs: Sequence[Need], layers: Sequence[Layer], *, full: bool) -> Table:
    with_types = len(_types_of_weights(needs)) > 1
    rows = []
    for of, row in zip(needs, rows_of(layers), strict=True):
        engine = of.resolved.engine.title
        if with_types:
            engine = f"{engine}, {of.resolved.request.weights_dtype or 'as released'}"
        shown = {**row, "with": engine, "most": row["context"]}
        if of.resolved.refusal:
            shown["verdict"] = NOT_STARTED
        rows.append(shown)
    has_one_context = len({row["context"] for row in rows}) == 1
    searched = "" if has_one_context else "context"
    return gpu_table(rows, searched=searched, with_engine=True, full=full)


def _rows_of_models(needs: Sequence[Need], layers: Sequence[Layer]) -> Sequence[Row]:
    rows = []
    for of, row in zip(needs, rows_of(layers), strict=True):
        rows.append({**row, "params": int(params(of.resolved.request.model).total)})
    return rows


_COLUMNS_OF_MODELS = (
    text_column("model", ""),
    AnswerColumn("params", "params", lambda number: f"{number / 10**9:.1f}B"),
    text_column("weights_dtype", "weights"),
    AnswerColumn("needed_high", "needs at\nmost GiB", gib),
    AnswerColumn("max_context", "context,\nat least", drop=2),
    AnswerColumn("max_batch", "requests,\nat least", drop=1),
)


def _table_of_models(rows: Sequence[Row], *, more: str) -> Table:
    columns = [*_COLUMNS_OF_MODELS]
    if any(row[_RATE.name] for row in rows):
        columns.append(
            AnswerColumn(_RATE.name, "tokens/s,\nat most", lambda rate: f"{rate:,.0f}", drop=3)
        )
    table = answer_table(rows, columns)
    if more:
        last = (more, *("" for _ in columns[1:]))
        return table._replace(rows=(*table.rows, last))
    return table


def _notes(found: WhatFits, *, full: bool) -> Iterator[str]:
    first = found.needs[0].resolved
    of_all = [set(of.resolved.workload.assumed) for of in found.needs]
    yield from (note for note in first.workload.assumed if all(note in notes for notes in of_all))
    if found.models is None:
        yield from _notes_of_gpus(found, full=full)
    else:
        yield from _notes_of_models(found)


def _notes_of_gpus(found: WhatFits, *, full: bool) -> Iterator[str]:
    deployments = {
        (of.resolved.engine.name, of.resolved.request.weights_dtype) for of in found.needs
    }
    if len(deployments) > 1:
        yield OF_EACH_GPU
    refusals = Counter(of.resolved.refusal for of in found.needs if of.resolved.refusal)
    for refusal, number in refusals.items():
        gpus = plural(number, "GPU")
        yield f"warning: it does not start on {gpus}: {refusal.reason}. {refusal.tip}"
    if not full:
        yield GROUPED
    if best_verdict(found.verdicts) == "does_not_fit" and found.needs[0].resolved.gpus == 1:
        yield "--gpus 8 answers for eight of each."
    if found.problems:
        others = plural(len(found.problems), "further GPU")
        reasons = "; ".join(dict.fromkeys(found.problems))
        yield f"warning: {others} cannot run it: {reasons}."


def _notes_of_models(found: WhatFits) -> Iterator[str]:
    order = "The newest are first. " if found.largest else ""
    yield (
        f"{order}Weights are as released, or the widest of 4 bits or more that fit. -c and -b "
        f"change the request, --full lists all. One in detail: {_command(found.needs[0])}"
    )
    if not found.problems or found.untried:
        return
    others = plural(len(found.problems), "further model")
    if len(set(found.problems)) > 1:
        yield f"{others} cannot run so: {found.problems[0]}, for example."
    else:
        yield f"{others} cannot run so: {found.problems[0]}."


def _command(of: Need) -> str:
    """Return the command that answers for one model alone."""
    request = of.resolved.request
    gpus = of.resolved.gpus
    dtype = request.weights_dtype
    gpu = f"{gpus}x{of.gpu_name}" if gpus > 1 else of.gpu_name
    is_typed = dtype in FILE_TYPES
    model = f"{request.model.name}:{dtype}" if is_typed else request.model.name
    words = ["attncalc fit", model, "--gpu", gpu]
    if of.resolved.args.on_cpu:
        words += ["--ram", typed_bytes(int(of.budget.memory or 0))]
    words += ["-c", str(int(request.workload.context))]
    if request.workload.batch > 1:
        words += ["-b", str(request.workload.batch)]
    if dtype and not is_typed:
        words += ["--weights-dtype", dtype]
    runs_files = request.gpu is not None and request.gpu.runs_files
    is_default = request.engine == DEFAULT_ENGINE and not runs_files
    if not is_typed and not is_default:
        words += ["--engine", request.engine]
    return " ".join(words)


def _figures(of: Need, *, with_limits: bool) -> tuple[Figure, ...]:
    """Return what a model needs on a GPU, and if it fits, what else is sure to: tokens of context,
    requests, tokens/s.
    """
    context = None
    batch = None
    rate = None
    if with_limits and of.verdict == "fits":
        longest, most = sure_limits(of.resolved)
        context = Quantity(longest) if longest else None
        batch = Quantity(most) if most else None
        bounds, _ = bounds_of(of.resolved, with_limits=False)
        rate = bounds.tokens_per_second if bounds else None
    return (
        *needed_figures(of),
        FIGURES["max_context"].figure(context),
        FIGURES["max_batch"].figure(batch),
        FIGURES[_RATE.name].figure(rate),
    )


def _without_formulas(facts: Row, figures: Sequence[Figure]) -> tuple[Figure, ...]:
    name = f"{facts['model']} on {facts['gpu']}"
    return tuple(figure.without_formula(name) for figure in figures)


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
