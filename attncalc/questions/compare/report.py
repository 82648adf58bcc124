"""The report of `attncalc compare`: variants of one model's attention, or several models."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from ...attention import Variant
from ...cost.cheaper import LONGEST, Cheaper, cheaper
from ...model import ModelSpec
from ...search import grouped
from ...show.fail_if import Condition, checks_of, with_outcomes
from ...show.notes import WARNING, context_notes, device_notes, kind_notes, model_notes
from ...show.report import Figure, Report, heading, rows_of, workload_facts
from ...units import count
from ...workload import Workload
from .chart import compare_picture
from .figures import Row, attention_of, rows_at
from .tables import context_tables, model_table, variant_table
from .variants import variants, width_of_mlps

# Of the JSON schema, as in schema.yaml: 2 since each row has the context.
VERSION = 2
# The facts of a row in CSV, before its figures.
_COLUMNS = ("name", "released", "context")
_SUBJECTS = {"kv_cache": "its KV cache is", "flops_decode": "its decode step takes"}
# How a sentence about the second model goes on, by the sign of a range.
_WORDS = {
    "kv_cache": {-1: "larger", 0: "as large", 1: "smaller"},
    "flops_decode": {-1: "more FLOPs", 0: "as many FLOPs", 1: "fewer FLOPs"},
}
_PER_BYTE = (
    "decode FLOP/byte: the FLOPs of a decode step, divided by the bytes of weights and cache that "
    "it reads."
)
_SAME_PARAMS = "d_ff is that with which a row has as many parameters as the model."


def compare_variants(
    model: ModelSpec,
    workload: Workload,
    further: Sequence[str] = (),
    contexts: Sequence[int] = (),
    *,
    same_params: bool = False,
) -> Report:
    """Return one model's attention as in `variants`; the released one is marked.

    With `contexts`, at each of them in place of the workload's own.
    """
    if same_params:
        width_of_mlps(model)
    by_name = variants(model, further, same_params=same_params)
    compared = list(by_name.values())
    rows = rows_at([(name, variant, workload) for name, variant in by_name.items()], contexts)
    released = [variant.stacks for variant in compared].index(model.stacks)
    first = rows[released][0]
    at_contexts = [row.workload for row in rows[0]]
    lines = heading(model, *_workload_line(model, at_contexts))
    kinds = dict.fromkeys(Variant.parse(text).title for text in further)
    named = [(first.name, model, workload)]
    for name in kinds:
        if by_name.get(name, model) != model:
            named.append((name, by_name[name], workload))
    crossovers = _crossovers(named, _longest(at_contexts))
    layers = []
    for i, of_variant in enumerate(rows):
        layers += _layers(of_variant, released=i == released)
    notes = _variant_notes(rows[released], compared)
    if same_params:
        notes = (_SAME_PARAMS, *notes)
    return Report(
        "compare",
        lines,
        model.facts(),
        workload_facts(model, first.workload),
        tuple(first.figures.values()),
        tuple(layers),
        context_tables(rows, released)
        if contexts[1:]
        else (variant_table([row for (row,) in rows], released),),
        notes,
        rows=rows_of(layers, *_COLUMNS),
        draw=lambda: compare_picture(rows, lines, released),
        answer=_crossovers_text(crossovers, only_crossing=True),
        short_answer=_crossovers_text(crossovers),
        extra={"crossovers": _crossover_facts(crossovers)},
        version=VERSION,
        has_fail_if=True,
    )


def compare_models(
    models: Sequence[ModelSpec], workloads: Sequence[Workload], contexts: Sequence[int] = ()
) -> Report:
    """Return several models side by side, each with its own workload; ratios are to the first
    model.

    With `contexts`, at each of them in place of the workloads' own.
    """
    named = [
        (model.name, model, workload) for model, workload in zip(models, workloads, strict=True)
    ]
    rows = rows_at(named, contexts)
    first = rows[0][0]
    at_contexts = [row.workload for row in rows[0]]
    titles = {model.name: model.title for model in models}
    if len(set(titles.values())) < len(models):
        titles = {}
    lines = [f"{', '.join(model.title for model in models)}  side by side"]
    for model in models:
        assumed = f"ASSUMED of {model.name}: {model.assumed}"
        if model.assumed and assumed not in lines:
            lines.append(assumed)
    lines.append(", ".join(_workload_line(models[0], at_contexts)))
    layers = [layer for of_model in rows for layer in _layers(of_model, released=True)]
    longest = [(row[0].model, _longest([at.workload for at in row])) for row in rows]
    crossovers = _crossovers(named, _longest(at_contexts))
    return Report(
        "compare",
        tuple(lines),
        models[0].facts(),
        workload_facts(models[0], first.workload),
        tuple(first.figures.values()),
        tuple(layers),
        context_tables(rows) if contexts[1:] else (model_table([row for (row,) in rows]),),
        _model_notes(longest),
        titles=titles,
        rows=rows_of(layers, *_COLUMNS),
        draw=lambda: compare_picture(rows, lines),
        answer=_crossovers_text(crossovers, only_crossing=True),
        short_answer=_crossovers_text(crossovers),
        extra={"crossovers": _crossover_facts(crossovers)},
        version=VERSION,
        has_fail_if=True,
    )


def _layers(
    rows: Sequence[Row], *, released: bool
) -> list[tuple[dict[str, Any], tuple[Figure, ...]]]:
    """Return the facts and the figures of a model at each context."""
    return [(row.facts(released=released), tuple(row.figures.values())) for row in rows]


def checked(report: Report, conditions: Sequence[Condition] = ()) -> Report:
    """Return a comparison with its `fail_if`: every limit is tested on every row, as in a sweep.

    A change is from the first of several models, so it is tested on the others. Each context is
    tested on its own. Raises AttncalcError if a figure is unknown or does not apply, or a limit is
    in another unit or lacks a baseline.
    """
    contexts = len({facts["context"] for facts, _ in report.layers})
    has_baseline = sum(facts["released"] for facts, _ in report.layers) > contexts
    rows = [{figure.name: figure for figure in figures} for _, figures in report.layers]
    without_sign = [condition for condition in conditions if not condition.sign]
    tested = []
    for i, (facts, _) in enumerate(report.layers):
        name = facts["name"]
        model = name
        label = name
        baseline = None
        limits = list(conditions)
        if has_baseline:
            baseline = rows[i % contexts]
            if i < contexts:  # a change of the first model from itself
                limits = without_sign
        else:
            model = report.model["name"]
            if name != model:
                label = f"{model} as {name}"
        if contexts > 1:
            label = f"{label} at context {facts['context']}"
        for outcome in checks_of(limits, rows[i], baseline):
            tested.append((label, model, facts["context"], outcome))
    return with_outcomes(report, tested)


def _workload_line(model: ModelSpec, workloads: Sequence[Workload]) -> list[str]:
    """Return the batch, the contexts and what is computed, for a heading."""
    first = workloads[0]
    facts = [f"batch {count(first.batch)}"]
    contexts = sorted(int(workload.context) for workload in workloads)
    shortest = count(contexts[0])
    if len(contexts) > 1:
        facts.append(f"{len(contexts)} contexts from {shortest} to {count(contexts[-1])}")
    else:
        facts.append(f"context {shortest}")
    if first.source:
        facts.append(f"source {count(first.source)}")
    if model.main.has_cache:
        facts.append("prefill and one decode step")
    else:
        facts.append("prefill")
    return facts


def _longest(workloads: Sequence[Workload]) -> Workload:
    return max(workloads, key=lambda workload: int(workload.context))


def _variant_notes(released: Sequence[Row], compared: Sequence[ModelSpec]) -> tuple[str, ...]:
    model = released[0].model
    notes = [
        *context_notes(model, _longest([row.workload for row in released])),
        _legend(compared),
        *_decode_notes([model, *compared]),
        *model_notes(model),
    ]
    assumed = []
    for variant in compared:
        for note in variant.notes[len(model.notes) :]:
            name, _, text = note.partition(": ")
            assumed.append((text, name.removeprefix("As ")))
    for text, names in grouped(assumed).items():
        if len(names) > 1:
            notes.append(f"As {names[0]} to {names[-1]}: {text}")
        else:
            notes.append(f"As {names[0]}: {text}")
    if any(device_notes(variant) for variant in compared):
        notes.append(
            f"With {model.tp} devices, several devices store the same KV head if there are fewer "
            f"than {model.tp}, and every device stores MLA's latent."
        )
    return tuple(dict.fromkeys(notes))


def _legend(compared: Sequence[ModelSpec]) -> str:
    """Return what the table's columns are, and how another variant is added."""
    sentences = ["* as released. attn.: parameters of attention."]
    kinds = {kind for variant in compared for kind in attention_of(variant).split("/")}
    if "MQA" in kinds and "MLA" not in kinds:
        sentences.append("--attention mla:512 adds MLA.")
    return " ".join(sentences)


def _model_notes(models: Sequence[tuple[ModelSpec, Workload]]) -> tuple[str, ...]:
    notes = []
    for model, workload in models:
        notes += [_of(model, note) for note in context_notes(model, workload)]
    notes += _decode_notes([model for model, _ in models])
    for model, _ in models:
        notes += [_of(model, note) for note in (*device_notes(model), *model_notes(model))]
    return tuple(dict.fromkeys(notes))


def _decode_notes(models: Sequence[ModelSpec]) -> list[str]:
    """Return what a decode step reads and multiplies, and how its FLOP/byte are counted."""
    notes = [f"Decode: {note}" for model in models for note in kind_notes(model, past=True)]
    if not any(model.main.has_cache for model in models):
        return notes
    if any(model.has_experts for model in models):
        notes.append(
            f"{_PER_BYTE} B tokens that pick k of E experts read E (1 - (1 - k / E)^B) of them."
        )
    else:
        notes.append(_PER_BYTE)
    return notes


# From which context a model is cheaper than the first, by the names of both.
_Crossovers: TypeAlias = list[tuple[tuple[str, str], list[Cheaper]]]


def _crossovers(named: Sequence[tuple[str, ModelSpec, Workload]], longest: Workload) -> _Crossovers:
    """Return from which context each model is cheaper than the first."""
    (first, model, workload), *others = named
    limit = LONGEST
    for _, each, _ in named:
        if each.max_context:
            limit = min(limit, each.max_context)
    limit = max(limit, int(longest.context))
    return [
        ((first, name), cheaper((model, other), (workload, own), limit))
        for name, other, own in others
    ]


def _crossovers_text(crossovers: _Crossovers, *, only_crossing: bool = False) -> str:
    """Return a sentence per pair of models; '' without pairs.

    `only_crossing` leaves out where one model is the cheaper at every context: the table shows it.
    """
    notes = []
    for names, found in crossovers:
        named = found
        if only_crossing:
            named = [one for one in found if len(one.ranges) > 1]
        if named:
            notes.append(_cheaper_note(names, named))
    return "\n".join(notes)


def _crossover_facts(crossovers: _Crossovers) -> list[dict[str, Any]]:
    """Return the crossovers for JSON."""
    return [_crossover(names, one) for names, found in crossovers for one in found]


def _crossover(names: tuple[str, str], found: Cheaper) -> dict[str, Any]:
    """Return which of two models is cheaper from which context, for JSON."""
    cheaper_model = {-1: names[0], 0: None, 1: names[1]}
    return {
        "figure": found.figure,
        "models": list(names),
        "limit": found.limit,
        "step": found.step,
        "ranges": [
            {"context": context, "cheaper": cheaper_model[sign]} for context, sign in found.ranges
        ],
    }


def _cheaper_note(names: tuple[str, str], found: Sequence[Cheaper]) -> str:
    """Return a sentence about the second model against the first, and from which context it
    holds.
    """
    facts = []
    for crossing in found:
        text = f"{_SUBJECTS[crossing.figure]} {_ranges_text(crossing)}"
        if crossing.step > 1:
            text = f"{text} (in steps of {count(crossing.step)})"
        facts.append(text)
    return f"{names[1]} against {names[0]}: {'; '.join(facts)}."


def _ranges_text(crossing: Cheaper) -> str:
    """Return 'smaller at every context up to 131,072', 'smaller from a context of 513', or 'larger
    from 1, smaller from 513, larger from 4,097'.
    """
    words = _WORDS[crossing.figure]
    ranges = [(context, words[sign]) for context, sign in crossing.ranges]
    if len(ranges) > 2:
        # where two lines cross, the figures may be equal at one context
        ranges = [(context, words[sign]) for context, sign in crossing.ranges if sign]
    context, word = ranges[-1]
    if len(ranges) == 1:
        return f"{word} at every context up to {count(crossing.limit)}"
    if len(ranges) == 2:
        return f"{word} from a context of {count(context)}"
    return ", ".join(f"{word} from {count(context)}" for context, word in ranges)


def _of(model: ModelSpec, note: str) -> str:
    """Return a note with the model's title before it; a warning still starts with 'warning: '."""
    if note.startswith(WARNING):
        return f"{WARNING}{model.title}: {note.removeprefix(WARNING)}"
    return f"{model.title}: {note}"
