"""The report of `attncalc flops`: FLOPs by part, and how they grow with the context."""

from __future__ import annotations

from ..attention import FULL
from ..cost.complexity import LayerComplexity, attention_layer_complexity, recurrent_layer_complexity
from ..cost.crossover import Growth, crossover, growth
from ..cost.flops import Flops, LayerFlops, flops
from ..model import ModelSpec
from ..quantity import Quantity, ratio
from ..units import FLOP, NO_UNIT, TOKENS, count
from ..workload import Workload
from .figures import FigureRow, FigureRows, Given, ratio_row
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
_CONTEXT = "at twice the context, relative to this context"
FIGURES = FigureRows(
    flops_total=FigureRow("total", FLOP, "the whole step, with exact scores", title="FLOPs"),
    flops_total_dense=FigureRow("total with dense scores", FLOP, "the whole step, with dense scores"),
    flops_attention_projections=FigureRow("attention projections", FLOP, "projections of q, k, v and the output"),
    flops_attention_scores=FigureRow(
        "attention scores, exact for the mask", FLOP, "QK and PV for the pairs that the mask allows"
    ),
    flops_attention_scores_dense=FigureRow("attention scores, dense", FLOP, "QK and PV for all pairs"),
    flops_attention_qk_dense=FigureRow("of which QK, dense", FLOP, "QK alone, for all pairs"),
    flops_mlp=FigureRow("MLP", FLOP, "the MLPs"),
    flops_head=FigureRow("head", FLOP, "the lm head"),
)
GROWTH = FigureRows(
    growth_total=ratio_row("twice the context: total FLOP", f"flops_total {_CONTEXT}", source=QUOTIENT),
    growth_attention_scores=ratio_row(
        "twice the context: attention scores", f"flops_attention_scores {_CONTEXT}", source=QUOTIENT
    ),
    scores_overtake_context=FigureRow(
        "smallest context at which scores cost more than projections",
        TOKENS,
        "the shortest context at which scores cost more than projections",
        "if there is none",
        source="the smallest context for which the condition holds",
    ),
)
COMPLEXITY = FigureRows(
    attention_flops_per_layer=FigureRow("one attention layer", FLOP, "one attention layer"),
    attention_sequential_steps=FigureRow("its sequential operations", NO_UNIT, "sequential operations of that layer"),
    attention_longest_path=FigureRow(
        "its maximum path length", NO_UNIT, "maximum path length of that layer", "if information never arrives"
    ),
    recurrent_flops_per_layer=FigureRow(
        "one recurrent layer of the same width", FLOP, "a recurrent layer of the same width"
    ),
    recurrent_sequential_steps=FigureRow("its sequential operations", NO_UNIT, "sequential operations of that layer"),
    recurrent_longest_path=FigureRow("its maximum path length", NO_UNIT, "maximum path length of that layer"),
)
"""Table 1 of Vaswani et al. 2017."""
OF_LAYERS = FigureRows(
    flops_total=FigureRow("all", FLOP, "all layers of this kind, with exact scores", source=SUM),
    flops_attention_projections=FIGURES["flops_attention_projections"]._replace(
        meaning="their projections of q, k, v and the output"
    ),
    flops_attention_scores=FIGURES["flops_attention_scores"]._replace(
        meaning="their QK and PV for the pairs that the mask allows"
    ),
    flops_attention_scores_dense=FIGURES["flops_attention_scores_dense"]._replace(
        meaning="their QK and PV for all pairs"
    ),
    flops_mlp=FIGURES["flops_mlp"]._replace(meaning="their MLPs"),
)
_PHASES = {"prefill": "prefill", "decode": "one decode step", "train": "training step"}


def flops_report(model: ModelSpec, workload: Workload) -> Report:
    """Return the FLOPs of `workload`: projections, scores (exact and dense), MLP, head, and their growth."""
    counted = flops(model, workload)
    grown = growth(model, workload)
    overtake = crossover(model, workload)
    layers = (attention_layer_complexity(model, workload), recurrent_layer_complexity(model, workload))
    groups = tuple(
        (facts, _group_figures(group)) for facts, group in zip(layer_facts(model), counted.groups, strict=True)
    )
    tables = [_main_table(counted)]
    if is_hybrid(model):
        tables.append(_group_table(counted))
    growth_figures = GROWTH.filled(
        growth_total=grown.total, growth_attention_scores=grown.scores, scores_overtake_context=overtake
    )
    tables += [_layer_table(model, *layers), _growth_table(grown, overtake)]
    return Report(
        "flops",
        heading(model, *_workload_line(model, workload)),
        model.facts(),
        workload_facts(model, workload),
        (*flops_figures(model, counted), *growth_figures, *_layer_figures(*layers)),
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
    rule = f"; {counted.rule}" if counted.rule else ""
    matmul = MATMUL + rule
    return FIGURES.filled(
        attention_source(model) + rule,
        flops_total=Given(counted.total, source=SUM),
        flops_total_dense=Given(counted.total_dense, source=SUM),
        flops_attention_projections=Given(counted.projections, source=matmul),
        flops_attention_scores=counted.scores,
        flops_attention_scores_dense=counted.scores_dense,
        flops_attention_qk_dense=counted.qk_dense,
        flops_mlp=Given(counted.mlp, source=matmul),
        flops_head=Given(counted.head, source=matmul),
    )


def _layer_figures(attention: LayerComplexity, recurrent: LayerComplexity) -> tuple[Figure, ...]:
    return COMPLEXITY.filled(
        VASWANI,
        attention_flops_per_layer=attention.flops,
        attention_sequential_steps=attention.sequential_steps,
        attention_longest_path=attention.longest_path,
        recurrent_flops_per_layer=recurrent.flops,
        recurrent_sequential_steps=recurrent.sequential_steps,
        recurrent_longest_path=recurrent.longest_path,
    )


def _group_figures(group: LayerFlops) -> tuple[Figure, ...]:
    return OF_LAYERS.filled(
        group.layers.attention.source,
        group.group,
        flops_total=group.total,
        flops_attention_projections=Given(group.projections, source=MATMUL),
        flops_attention_scores=group.scores,
        flops_attention_scores_dense=group.scores_dense,
        flops_mlp=Given(group.mlp, source=MATMUL),
    )


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


def _layer_table(model: ModelSpec, attention: LayerComplexity, recurrent: LayerComplexity) -> Table:
    """Return Table 1 of Vaswani et al. 2017 for this model: one layer beside a recurrent one of the same width."""
    unit, cells = unit_column("", [attention.flops, recurrent.flops], FLOP)
    label = "attention" if has_attention(model) else model.main.layers[0].attention.label
    rows = tuple(
        (
            label,
            cell,
            count(layer.sequential_steps),
            "none" if layer.longest_path is None else count(layer.longest_path),
        )
        for label, cell, layer in zip((label, "recurrent, same width"), cells, (attention, recurrent), strict=True)
    )
    title = Column("one layer, as in Vaswani\net al. 2017, Table 1", "left")
    return Table((title, unit, Column("sequential\noperations"), Column("maximum\npath length")), rows)


def _growth_table(grown: Growth, overtake: Quantity | None) -> Table:
    rows = (
        (GROWTH["scores_overtake_context"].label, "none" if overtake is None else count(overtake)),
        (GROWTH["growth_total"].label, times(grown.total, 2)),
        (GROWTH["growth_attention_scores"].label, times(grown.scores, 2)),
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
