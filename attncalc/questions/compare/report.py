"""The report of `attncalc compare`: variants of one model's attention, or several models."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...attention import Variant
from ...cost.cheaper import LONGEST, Cheaper, cheaper
from ...model import ModelSpec
from ...quantity import ratio
from ...search import grouped
from ...show.fail_if import Condition, checks_of, with_outcomes
from ...show.notes import WARNING, context_notes, device_notes, kind_notes, model_notes
from ...show.report import Figure, Report, heading, rows_of, times, workload_facts
from ...units import BYTES, count, human
from ...workload import Workload
from .chart import compare_picture
from .figures import Row, attention_of, rows_at
from .tables import context_tables, model_table, variant_table
from .variants import variants, width_of_mlps

# The facts of a row in CSV, before its figures.
_COLUMNS = ("name", "released", "context")
_SUBJECTS = {"kv_cache": "its KV cache is", "flops_decode": "its decode step takes"}
# How a sentence about the second model goes on, by the sign of a range.
_WORDS = {
    "kv_cache": {-1: "larger", 0: "as large", 1: "smaller"},
    "flops_decode": {-1: "more FLOPs", 0: "as many FLOPs", 1: "fewer FLOPs"},
}
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
    rows = rows_at([(name, variant, workload) for name, variant in by_name.items()], contexts)
    released = next(
        i for i, variant in enumerate(by_name.values()) if variant.stacks == model.stacks
    )
    first = rows[released][0]
    compared = list(by_name.values())
    at_contexts = [row.workload for row in rows[0]]
    kinds = dict.fromkeys(Variant.parse(text).title for text in further)
    own = [(name, by_name[name], workload) for name in kinds if by_name.get(name, model) != model]
    lines = heading(model, *_workload_line(model, at_contexts))
    crossovers = _crossovers([(first.name, model, workload), *own], _longest(at_contexts))
    if contexts[1:]:
        caches = {}
    else:
        caches = {row.name: row.figures["kv_cache"] for (row,) in rows}
    answer = [*(_cache_note(caches, name, first.name) for name in kinds), crossovers.pop("answer")]
    layers = [
        (row.facts(released=i == released), tuple(row.figures.values()))
        for i, variant_rows in enumerate(rows)
        for row in variant_rows
    ]
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
        (*([_SAME_PARAMS] if same_params else ()), *_variant_notes(rows[released], compared)),
        rows=rows_of(layers, *_COLUMNS),
        draw=lambda: compare_picture(rows, lines, released),
        answer="\n".join(filter(None, answer)),
        **crossovers,
    )


def compare_models(
    models: Sequence[ModelSpec], workloads: Sequence[Workload], contexts: Sequence[int] = ()
) -> Report:
    """Return several models side by side, each with its own workload; ratios are to the first
    model.

    With `contexts`, at each of them in place of the workloads' own.
    """
    named = [(m.name, m, w) for m, w in zip(models, workloads, strict=True)]
    rows = rows_at(named, contexts)
    first = rows[0][0]
    at_contexts = [row.workload for row in rows[0]]
    titles = {model.name: model.title for model in models}
    title = ", ".join(model.title for model in models)
    assumed = {
        f"ASSUMED of {model.name}: {model.assumed}": None for model in models if model.assumed
    }
    workload_line = ", ".join(fact for fact in _workload_line(models[0], at_contexts) if fact)
    lines = (f"{title}  side by side", *assumed, workload_line)
    layers = tuple(
        (row.facts(released=True), tuple(row.figures.values())) for own in rows for row in own
    )
    return Report(
        "compare",
        lines,
        models[0].facts(),
        workload_facts(models[0], first.workload),
        tuple(first.figures.values()),
        layers,
        context_tables(rows) if contexts[1:] else (model_table([row for (row,) in rows]),),
        _model_notes([(own[0].model, _longest([row.workload for row in own])) for own in rows]),
        titles=titles if len(set(titles.values())) == len(models) else {},
        rows=rows_of(layers, *_COLUMNS),
        draw=lambda: compare_picture(rows, lines),
        **_crossovers(named, _longest(at_contexts)),
    )


def checked(report: Report, conditions: Sequence[Condition] = ()) -> Report:
    """Return a comparison with its `fail_if`: every limit is tested on every row, as in a sweep.

    A change is from the first of several models, so it is tested on the others. Each context is
    tested on its own. Raises AttncalcError if a figure is unknown or does not apply, or a limit is
    in another unit or lacks a baseline.
    """
    rows = [(facts, {f.name: f for f in figures}) for facts, figures in report.layers]
    contexts = len({facts["context"] for facts, _ in rows})
    has_baseline = sum(facts["released"] for facts, _ in rows) > contexts
    tested = []
    for i, (facts, figures) in enumerate(rows):
        name = facts["name"]
        model = facts["name"] if has_baseline else report.model["name"]
        label = name if name == model else f"{model} as {name}"
        label = f"{label} at context {facts['context']}" if contexts > 1 else label
        baseline = rows[i % contexts][1] if has_baseline else None
        limits = [one for one in conditions if not (one.sign and has_baseline and i < contexts)]
        for outcome in checks_of(limits, figures, baseline):
            tested.append((label, model, facts["context"], outcome))
    return with_outcomes(report, tested)


def _workload_line(model: ModelSpec, workloads: Sequence[Workload]) -> list[str]:
    first = workloads[0]
    contexts = [
        count(workload.context)
        for workload in sorted(workloads, key=lambda workload: int(workload.context))
    ]
    return [
        f"batch {count(first.batch)}",
        f"{len(contexts)} contexts from {contexts[0]} to {contexts[-1]}"
        if contexts[1:]
        else f"context {contexts[0]}",
        f"source {count(first.source)}" if first.source else "",
        "prefill and one decode step" if model.main.has_cache else "prefill",
    ]


def _longest(workloads: Sequence[Workload]) -> Workload:
    return max(workloads, key=lambda workload: int(workload.context))


def _variant_notes(released: Sequence[Row], compared: Sequence[ModelSpec]) -> tuple[str, ...]:
    model = released[0].model
    workloads = [row.workload for row in released]
    legend = "* as released. attn.: parameters of attention."
    if model.main.has_cache and not released[1:]:
        scores = released[0].figures["decode_flop_per_cache_byte"].human
        legend += " FLOP/byte: of a decode step, per byte of weights and cache. "
        legend += f"The scores as released do {scores} FLOP per byte of the cache."
    kinds = {kind for variant in compared for kind in attention_of(variant).split("/")}
    if "MQA" in kinds and "MLA" not in kinds:
        legend += " --attention mla:512 adds MLA."
    notes = [*context_notes(model, _longest(workloads)), legend, *_decode_notes([model, *compared])]
    notes += model_notes(model)
    assumed = [
        note.partition(": ") for variant in compared for note in variant.notes[len(model.notes) :]
    ]
    for text, names in grouped(
        (text, name.removeprefix("As ")) for name, _, text in assumed
    ).items():
        notes.append(
            f"As {names[0]} to {names[-1]}: {text}" if names[1:] else f"As {names[0]}: {text}"
        )
    if any(device_notes(variant) for variant in compared):
        notes.append(
            f"With {model.tp} devices, several devices store the same KV head if there are fewer "
            f"than {model.tp}, and every device stores MLA's latent."
        )
    return tuple(dict.fromkeys(notes))


def _model_notes(models: Sequence[tuple[ModelSpec, Workload]]) -> tuple[str, ...]:
    notes = [
        _of(model, note) for model, workload in models for note in context_notes(model, workload)
    ]
    notes += _decode_notes([model for model, _ in models])
    notes += [
        _of(model, note)
        for model, _ in models
        for note in (*device_notes(model), *model_notes(model))
    ]
    return tuple(dict.fromkeys(notes))


def _decode_notes(models: Sequence[ModelSpec]) -> list[str]:
    notes = [f"Decode: {note}" for model in models for note in kind_notes(model, past=True)]
    if any(model.has_experts for model in models):
        notes.append(
            "FLOP/byte: B tokens that pick k of E experts read E (1 - (1 - k / E)^B) of them."
        )
    return notes


def _crossovers(
    named: Sequence[tuple[str, ModelSpec, Workload]], longest: Workload
) -> dict[str, Any]:
    """Return a report's answer and facts: from which context each model is cheaper than the
    first.
    """
    (first, model, workload), *others = named
    limit = max(
        int(longest.context), min([LONGEST, *(m.max_context for _, m, _ in named if m.max_context)])
    )
    pairs = [
        ((first, name), cheaper((model, other), (workload, own), limit))
        for name, other, own in others
    ]
    return {
        "answer": "\n".join(_cheaper_note(names, found) for names, found in pairs if found),
        "extra": {
            "crossovers": [
                _crossover(names, found) for names, of_pair in pairs for found in of_pair
            ]
        },
    }


def _cache_note(caches: Mapping[str, Figure], name: str, released: str) -> str:
    """Return a sentence about a variant's cache and that of the released attention, or of MHA; ""
    without both.
    """
    other = "MHA" if name == released else released
    own, base = (int(caches[one].value or 0) if one in caches else 0 for one in (name, other))
    if name == other or not own or not base:
        return ""
    factor = times(ratio(base, own))
    difference = f"{human(abs(base - own), BYTES)} {'more' if base > own else 'less'}"
    return (
        f"{name} caches {caches[name].human}, and {other} {caches[other].human}: {factor} as "
        f"much, {difference}."
    )


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
        words = _WORDS[crossing.figure]
        # where two lines cross, the figures may be equal at one context
        ranges = [
            (context, words[sign])
            for context, sign in crossing.ranges
            if sign or not crossing.ranges[2:]
        ]
        context, word = ranges[-1]
        text = f"{word} from a context of {count(context)}"
        if not ranges[1:]:
            text = f"{word} at every context up to {count(crossing.limit)}"
        elif ranges[2:]:
            text = ", ".join(f"{word} from {count(context)}" for context, word in ranges)
        step = f" (in steps of {count(crossing.step)})" if crossing.step > 1 else ""
        facts.append(f"{_SUBJECTS[crossing.figure]} {text}{step}")
    return f"{names[1]} against {names[0]}: {'; '.join(facts)}."


def _of(model: ModelSpec, note: str) -> str:
    """Return a note with the model's title before it; a warning still starts with 'warning: '."""
    text = note.removeprefix(WARNING)
    return f"{WARNING if text != note else ''}{model.title}: {text}"
