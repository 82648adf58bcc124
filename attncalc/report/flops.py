"""The report of `attncalc flops`."""

from __future__ import annotations

from ..cost.crossover import Growth, OneLayer, crossover, growth, one_attention_layer, one_recurrent_layer
from ..cost.flops import Flops, LayerFlops, flops
from ..model import ModelSpec
from ..quantity import Quantity
from ..units import FLOP, NO_UNIT, TOKENS, count
from ..workload import Workload
from .layers import attends, attention_source, is_hybrid, layer_facts, spans
from .notes import flops_notes
from .report import (
    LABEL,
    QUOTIENT,
    SUM,
    Column,
    Figure,
    Report,
    Table,
    heading,
    times,
    context_fact,
    unit_column,
    workload_facts,
)

VASWANI = "Vaswani et al. 2017, arXiv:1706.03762, Table 1"
MATMUL = "2 FLOP a multiply-add: a matrix of n weights costs 2 n a token"
OVERTAKE = "context at which scores overtake projections"
_PHASES = {"prefill": "prefill", "decode": "one decode step", "train": "training step"}


def flops_report(model: ModelSpec, workload: Workload) -> Report:
    """The FLOPs of `workload`: projections, scores exact and dense, MLP, head, and how they grow."""
    spent = flops(model, workload)
    grown = growth(model, workload)
    overtake = crossover(model, workload)
    layers = (one_attention_layer(model, workload), one_recurrent_layer(model, workload))
    groups = tuple(
        (facts, _group_figures(group)) for facts, group in zip(layer_facts(model), spent.groups, strict=True)
    )
    tables = [_main_table(spent)]
    if is_hybrid(model):
        tables.append(_group_table(spent))
    tables += [_recurrent_table(model, *layers), _growth_table(grown, overtake)]
    return Report(
        "flops",
        heading(model, *_asked(model, workload)),
        model.facts(),
        workload_facts(model, workload),
        (*_figures(model, spent), *_growth_figures(grown, overtake), *_layer_figures(*layers)),
        groups,
        tuple(tables),
        flops_notes(model, workload, spent, overtake),
    )


def _asked(model: ModelSpec, workload: Workload) -> list[str]:
    return [
        f"{_PHASES[workload.phase]}, {context_fact(workload)}",
        f"{count(workload.past)} of it in the cache" if workload.phase == "prefill" and workload.past else "",
        f"source {count(workload.source)}" if workload.source else "",
        f"batch {count(workload.batch)}",
        f"{workload.mask or model.main.mask} mask",
        "1 multiply-add = 2 FLOP",
    ]


def _figures(model: ModelSpec, spent: Flops) -> tuple[Figure, ...]:
    source = attention_source(model)
    rule = f"; {spent.rule}" if spent.rule else ""
    return (
        Figure("flops_total", "total", spent.total, FLOP, SUM),
        Figure("flops_total_dense", "total with dense scores", spent.total_dense, FLOP, SUM),
        Figure("flops_attention_projections", "attention projections", spent.projections, FLOP, MATMUL + rule),
        Figure(
            "flops_attention_scores",
            "attention scores, exact for the mask",
            spent.scores,
            FLOP,
            source + rule,
        ),
        Figure("flops_attention_scores_dense", "attention scores, dense", spent.scores_dense, FLOP, source + rule),
        Figure("flops_attention_qk_dense", "of it QK alone, dense", spent.qk_dense, FLOP, source + rule),
        Figure("flops_mlp", "MLP", spent.mlp, FLOP, MATMUL + rule),
        Figure("flops_head", "head", spent.head, FLOP, MATMUL + rule),
    )


def _growth_figures(grown: Growth, overtake: Quantity | None) -> tuple[Figure, ...]:
    return (
        Figure("growth_total", "twice the context: total scales_with by", grown.total, NO_UNIT, QUOTIENT),
        Figure("growth_attention_scores", "twice the context: scores grow by", grown.scores, NO_UNIT, QUOTIENT),
        Figure(
            "scores_overtake_context",
            OVERTAKE,
            overtake,
            TOKENS,
            "the condition holds there and at no context before",
        ),
    )


def _layer_figures(attention: OneLayer, recurrent: OneLayer) -> tuple[Figure, ...]:
    wide = "one recurrent layer as wide"
    return (
        Figure("attention_flops_per_layer", "one attention layer", attention.flops, FLOP, VASWANI),
        Figure("attention_sequential_steps", "its sequential steps", attention.sequential_steps, NO_UNIT, VASWANI),
        Figure("attention_longest_path", "its longest path", attention.longest_path, NO_UNIT, VASWANI),
        Figure("recurrent_flops_per_layer", wide, recurrent.flops, FLOP, VASWANI),
        Figure("recurrent_sequential_steps", "its sequential steps", recurrent.sequential_steps, NO_UNIT, VASWANI),
        Figure("recurrent_longest_path", "its longest path", recurrent.longest_path, NO_UNIT, VASWANI),
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
    return tuple(Figure(name, label, q, FLOP, of, group.group) for name, label, q, of in named_figures)


def _main_table(spent: Flops) -> Table:
    rows = [
        ("attention projections", spent.projections),
        ("attention scores", spent.scores),
        ("MLP", spent.mlp),
        ("head", spent.head),
        ("total", spent.total),
    ]
    rows = [row for row in rows if row[1]]
    shares = [f"{100 * int(value) / int(spent.total):.1f} %" for _, value in rows]
    if spent.scores_dense != spent.scores:
        rows += [("  scores, dense", spent.scores_dense), ("  total with dense scores", spent.total_dense)]
        shares += ["", ""]
    rounded, cells = unit_column("", [value for _, value in rows], FLOP)
    table = tuple(
        (label, cell, count(value), share) for (label, value), cell, share in zip(rows, cells, shares, strict=True)
    )
    strong = frozenset(i for i, row in enumerate(rows) if row[0] == "total")
    return Table((LABEL, rounded, Column("FLOP"), Column("share")), table, strong=strong)


def _group_table(spent: Flops) -> Table:
    made, of_made = unit_column("projections", [g.projections for g in spent.groups], FLOP)
    score, of_score = unit_column("scores", [g.scores for g in spent.groups], FLOP)
    mlp, of_mlp = unit_column("MLP", [g.mlp for g in spent.groups], FLOP)
    columns = (Column("layers", "left"), Column(), Column("span", "left"), made, score, mlp)
    names = [(g.group, count(g.layers.count), spans(g.layers)) for g in spent.groups]
    return Table(columns, tuple(zip(*zip(*names, strict=True), of_made, of_score, of_mlp, strict=True)))


def _recurrent_table(model: ModelSpec, attention: OneLayer, recurrent: OneLayer) -> Table:
    unit, cells = unit_column("", [attention.flops, recurrent.flops], FLOP)
    own = "attention" if attends(model) else model.main.layers[0].attention.label
    labels = (own, "recurrent, as wide")
    rows = tuple(
        (
            label,
            cell,
            count(one.sequential_steps),
            "none" if one.longest_path is None else count(one.longest_path),
        )
        for label, cell, one in zip(labels, cells, (attention, recurrent), strict=True)
    )
    return Table((Column("one layer", "left"), unit, Column("sequential\nsteps"), Column("longest\npath")), rows)


def _growth_table(grown: Growth, overtake: Quantity | None) -> Table:
    rows = (
        (OVERTAKE, "none" if overtake is None else count(overtake)),
        ("twice the context costs", times(grown.total, 2)),
        ("  of it the scores", times(grown.scores, 2)),
    )
    return Table((LABEL, Column()), rows)
