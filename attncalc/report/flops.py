"""The report of `attncalc flops`: FLOPs by part, and how they grow with the context."""

from __future__ import annotations

from ..attention import FULL
from ..cost.complexity import LayerComplexity, LayerTypes, ModelLayer, attention_layer_complexity, layer_types
from ..cost.crossover import Growth, crossover, growth
from ..cost.flops import Flops, LayerFlops, flops
from ..model import ModelSpec
from ..quantity import Quantity, ratio
from ..units import FLOP, NO_UNIT, TOKENS, count
from ..workload import Workload
from .layers import attention_source, group_columns, has_attention, is_hybrid, layer_facts
from .notes import context_notes, device_notes, kind_notes, model_notes, shape_notes
from .report import (
    LABEL,
    QUOTIENT,
    SUM,
    Column,
    Figure,
    Report,
    Table,
    context_fact,
    heading,
    times,
    unit_column,
    workload_facts,
)

VASWANI = "Vaswani et al. 2017, arXiv:1706.03762, Table 1"
MATMUL = "2 FLOP per multiply-add: a matrix of n weights costs 2 n FLOP per token"
CROSSOVER = "smallest context at which scores cost more than projections"
_PHASES = {"prefill": "prefill", "decode": "one decode step", "train": "training step"}


def flops_report(model: ModelSpec, workload: Workload) -> Report:
    """Return the FLOPs of `workload`: projections, scores (exact and dense), MLP, head, and their growth."""
    counted = flops(model, workload)
    grown = growth(model, workload)
    overtake = crossover(model, workload)
    own, types = attention_layer_complexity(model, workload), layer_types(model, workload)
    groups = tuple(
        (facts, _group_figures(group)) for facts, group in zip(layer_facts(model), counted.groups, strict=True)
    )
    tables = [_main_table(counted)]
    if is_hybrid(model):
        tables.append(_group_table(counted))
    tables += [_layer_table(model, workload, own, types), _growth_table(grown, overtake)]
    return Report(
        "flops",
        heading(model, *_workload_line(model, workload)),
        model.facts(),
        workload_facts(model, workload),
        (*flops_figures(model, counted), *_growth_figures(grown, overtake), *_layer_figures(own, types)),
        groups,
        tuple(tables),
        _notes(model, workload, counted, overtake),
    )


def _workload_line(model: ModelSpec, workload: Workload) -> list[str]:
    return [
        f"{_PHASES[workload.phase]}, {context_fact(workload)}",
        f"{count(workload.past)} of them in the cache" if workload.phase == "prefill" and workload.past else "",
        f"source {count(workload.source)}" if workload.source else "",
        f"batch {count(workload.batch)}",
        f"{workload.mask or model.main.mask} mask",
        "1 multiply-add = 2 FLOP",
    ]


def flops_figures(model: ModelSpec, counted: Flops) -> tuple[Figure, ...]:
    """Return the FLOPs by part, whose names scripts rely on."""
    source = attention_source(model)
    rule = f"; {counted.rule}" if counted.rule else ""
    return (
        Figure("flops_total", "total", counted.total, FLOP, SUM),
        Figure("flops_total_dense", "total with dense scores", counted.total_dense, FLOP, SUM),
        Figure("flops_attention_projections", "attention projections", counted.projections, FLOP, MATMUL + rule),
        Figure(
            "flops_attention_scores",
            "attention scores, exact for the mask",
            counted.scores,
            FLOP,
            source + rule,
        ),
        Figure("flops_attention_scores_dense", "attention scores, dense", counted.scores_dense, FLOP, source + rule),
        Figure("flops_attention_qk_dense", "of which QK, dense", counted.qk_dense, FLOP, source + rule),
        Figure("flops_mlp", "MLP", counted.mlp, FLOP, MATMUL + rule),
        Figure("flops_head", "head", counted.head, FLOP, MATMUL + rule),
    )


def _growth_figures(grown: Growth, overtake: Quantity | None) -> tuple[Figure, ...]:
    return (
        Figure("growth_total", "twice the context: total FLOP", grown.total, NO_UNIT, QUOTIENT),
        Figure("growth_attention_scores", "twice the context: attention scores", grown.scores, NO_UNIT, QUOTIENT),
        Figure(
            "scores_overtake_context",
            CROSSOVER,
            overtake,
            TOKENS,
            "the smallest context for which the condition holds",
        ),
    )


def _layer_figures(own: ModelLayer, types: LayerTypes) -> tuple[Figure, ...]:
    scores, recurrent = own.scores, types.recurrent
    steps, path = "its sequential operations", "its maximum path length"
    flops_of = (
        ("attention_flops_per_layer", "one attention layer of the model", own.flops, SUM),
        ("attention_projections_flops_per_layer", "its projections", own.projections, MATMUL),
        ("attention_scores_flops_per_layer", "its scores, exact for the mask", scores.flops, MATMUL),
        ("self_attention_flops_per_layer", "self-attention, n^2 d", types.self_attention.flops, VASWANI),
        ("recurrent_flops_per_layer", "recurrent layer, n d^2", recurrent.flops, VASWANI),
        ("convolutional_flops_per_layer", "convolutional layer, k n d^2", types.convolutional.flops, VASWANI),
        ("restricted_flops_per_layer", "restricted self-attention, r n d", types.restricted.flops, VASWANI),
    )
    numbers = (
        ("attention_sequential_steps", steps, scores.sequential_steps),
        ("attention_longest_path", path, scores.longest_path),
        ("recurrent_sequential_steps", steps, recurrent.sequential_steps),
        ("recurrent_longest_path", path, recurrent.longest_path),
        ("convolutional_kernel", "width k of the convolution", types.kernel),
        ("convolutional_longest_path", path, types.convolutional.longest_path),
        ("restricted_neighborhood", "tokens r that restricted self-attention sees", types.neighborhood),
        ("restricted_longest_path", path, types.restricted.longest_path),
    )
    return (
        *(Figure(name, label, value, FLOP, source) for name, label, value, source in flops_of),
        *(Figure(name, label, value, NO_UNIT, VASWANI) for name, label, value in numbers),
    )


def _group_figures(group: LayerFlops) -> tuple[Figure, ...]:
    source = group.layers.attention.source
    named_figures = (
        ("flops_total", "all", group.total, SUM),
        ("flops_attention_projections", "attention projections", group.projections, MATMUL),
        ("flops_attention_scores", "attention scores, exact for the mask", group.scores, source),
        ("flops_attention_scores_dense", "attention scores, dense", group.scores_dense, source),
        ("flops_mlp", "MLP", group.mlp, MATMUL),
    )
    return tuple(Figure(name, label, value, FLOP, source, group.group) for name, label, value, source in named_figures)


def _main_table(counted: Flops) -> Table:
    rows = [
        ("total", counted.total),
        ("  attention projections", counted.projections),
        ("  attention scores", counted.scores),
        ("  MLP", counted.mlp),
        ("  head", counted.head),
    ]
    rows = [row for row in rows if row[1]]
    shares = [f"{100 * int(value) / int(counted.total):.1f} %" for _, value in rows]
    if counted.scores_dense != counted.scores:
        rows += [("total with dense scores", counted.total_dense), ("  attention scores, dense", counted.scores_dense)]
        shares += ["", ""]
    rounded, cells = unit_column("", [value for _, value in rows], FLOP)
    table = tuple(
        (label, cell, count(value), share) for (label, value), cell, share in zip(rows, cells, shares, strict=True)
    )
    return Table((LABEL, rounded, Column("FLOP"), Column("share")), table, strong=frozenset({0}))


def _group_table(counted: Flops) -> Table:
    columns, names = group_columns([(g.group, g.layers) for g in counted.groups])
    projections, projection_cells = unit_column("projections", [g.projections for g in counted.groups], FLOP)
    scores, score_cells = unit_column("scores", [g.scores for g in counted.groups], FLOP)
    mlp, mlp_cells = unit_column("MLP", [g.mlp for g in counted.groups], FLOP)
    rows = tuple((*name, *cells) for name, *cells in zip(names, projection_cells, score_cells, mlp_cells, strict=True))
    return Table((*columns, projections, scores, mlp), rows)


def _layer_table(model: ModelSpec, workload: Workload, own: ModelLayer, types: LayerTypes) -> Table:
    """Return Table 1 of Vaswani et al. 2017 at the model's width, and below it the parts of a layer of the model."""
    # n queries over n keys in a prefill, m over n after a past, and one over n in a decode step
    n = "n " if workload.new == workload.context else "" if workload.new == 1 else "m "
    rows = (
        ("self-attention", f"{n}n d".replace("n n", "n^2"), types.self_attention),
        ("recurrent", f"{n}d^2", types.recurrent),
        ("convolutional", f"k {n}d^2", types.convolutional),
        ("restricted attention", f"r {n}d", types.restricted),
        ("this model's scores", "", own.scores),
        ("this model's projections", "", LayerComplexity(own.projections, Quantity(1), None)),
    )
    unit, cells = unit_column("", [layer.flops for _, _, layer in rows], FLOP)
    lines = tuple(
        (
            name,
            formula,
            cell,
            count(layer.sequential_steps),
            "none" if layer.longest_path is None else count(layer.longest_path),
        )
        for (name, formula, layer), cell in zip(rows, cells, strict=True)
    )
    title = Column("one layer, as in\nVaswani et al. 2017,\nTable 1", "left")
    new = f", m {count(workload.new)}" if n == "m " else ""
    numbers = (
        f"n {count(workload.context)}{new}\nd {count(model.main.d_model)}\n"
        f"k {types.kernel}, r {count(types.neighborhood)}"
    )
    return Table(
        (title, Column(numbers, "left"), unit, Column("sequential\noperations"), Column("maximum\npath length")), lines
    )


def _growth_table(grown: Growth, overtake: Quantity | None) -> Table:
    rows = (
        (CROSSOVER, "none" if overtake is None else count(overtake)),
        ("twice the context: total FLOP", times(grown.total, 2)),
        ("twice the context: attention scores", times(grown.scores, 2)),
    )
    return Table((LABEL, Column()), rows)


def _notes(model: ModelSpec, workload: Workload, counted: Flops, overtake: Quantity | None) -> tuple[str, ...]:
    notes = context_notes(model, workload)
    if workload.phase == "train":
        notes.append(f"{counted.rule[:1].upper()}{counted.rule[1:]}.")
    if overtake is None:
        reason = "every layer has a window" if has_attention(model) else "a recurrent state has a fixed size"
        notes.append(f"Scores never cost more than projections: {reason}, so both grow linearly with the context.")
    narrow_spans = [g.attention.span for g in model.main.layers if g.attention.span != FULL]
    if counted.scores * 2 < counted.scores_dense and narrow_spans:
        cause = (
            "of windows" if any(span.reach is not None for span in narrow_spans) else "only selected keys are scored"
        )
        notes.append(
            f"Because {cause}, exact scores are cheap: dense ones would cost "
            f"{times(ratio(counted.scores_dense, counted.scores))} as much."
        )
    notes += kind_notes(model, past=bool(workload.past))
    if workload.lengths:
        notes.append("Projections and MLP run over the padded batch; exact scores count real tokens only.")
    notes.append("Only matrix products are counted: no softmax, norms, activations or table look-ups.")
    return (*notes, *device_notes(model), *shape_notes(model), *model_notes(model))
