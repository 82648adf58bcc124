"""The report of `attncalc flops`."""

from __future__ import annotations

from ..attention import Full, Sliding
from ..cost.flops import TRAIN_RULE, Flops, LayerFlops, crossover, flops, growth, query_tokens
from ..model import ModelSpec
from ..quantity import Quantity, ceil_div, named, quantity
from ..units import FLOP, NO_UNIT, TOKENS, count
from ..workload import Workload
from .layers import attention_source, is_hybrid, layer_facts, spans
from .notes import flops_notes
from .report import LABEL, Column, Figure, Report, Table, heading, times, unit_column, workload_facts

VASWANI = "Vaswani et al. 2017, arXiv:1706.03762, Table 1"
MATMUL = "2 FLOP a multiply-add: a matrix of n weights costs 2 n a token"
_PHASES = {
    "prefill": "prefill of",
    "decode": "one decode step at a context of",
    "train": "training step over",
}


def flops_report(model: ModelSpec, workload: Workload) -> Report:
    """The FLOPs of `workload`: projections, scores exact and dense, MLP, head, and how they grow."""
    spent = flops(model, workload)
    figures = _figures(model, workload, spent)
    groups = tuple(
        (facts, _group_figures(group)) for facts, group in zip(layer_facts(model), spent.groups, strict=True)
    )
    return Report(
        "flops",
        heading(model, *_asked(model, workload)),
        model.facts(),
        workload_facts(model, workload),
        figures,
        groups,
        _tables(model, spent, figures),
        flops_notes(
            model, workload, spent, next((f for f in figures if f.name == "scores_overtake_context"), None)
        ),
    )


def _asked(model: ModelSpec, workload: Workload) -> list[str]:
    lengths = f"lengths up to {count(workload.context)}" if workload.lengths else ""
    return [
        f"{_PHASES[workload.phase]} {lengths or count(workload.context)} tokens",
        f"{count(workload.past)} of them in the cache"
        if workload.phase == "prefill" and workload.past
        else "",
        f"source {count(workload.source)}" if workload.source else "",
        f"batch {count(workload.batch)}",
        f"{workload.mask or model.main.mask} mask",
        "1 multiply-add = 2 FLOP",
    ]


def _figures(model: ModelSpec, workload: Workload, spent: Flops) -> tuple[Figure, ...]:
    source = attention_source(model)
    rule = f"; {TRAIN_RULE}" if workload.phase == "train" else ""
    whole, of_scores = growth(model, workload)
    figures = [
        Figure("flops_total", "total", spent.total, FLOP),
        Figure("flops_total_dense", "total with dense scores", spent.total_dense, FLOP),
        Figure(
            "flops_attention_projections", "attention projections", spent.projections, FLOP, MATMUL + rule
        ),
        Figure(
            "flops_attention_scores",
            "attention scores, exact for the mask",
            spent.scores,
            FLOP,
            source + rule,
        ),
        Figure(
            "flops_attention_scores_dense", "attention scores, dense", spent.scores_dense, FLOP, source + rule
        ),
        Figure("flops_mlp", "MLP", spent.mlp, FLOP, MATMUL + rule),
        Figure("flops_head", "head", spent.head, FLOP, MATMUL + rule),
        Figure("growth_total", "twice the context: total grows by", whole, NO_UNIT),
        Figure("growth_attention_scores", "twice the context: scores grow by", of_scores, NO_UNIT),
        *_beside_recurrent(model, workload, spent),
    ]
    overtake = crossover(model, workload)
    if overtake is not None:
        figures.append(Figure("scores_overtake_context", "scores overtake projections at", overtake, TOKENS))
    return tuple(figures)


def _beside_recurrent(model: ModelSpec, workload: Workload, spent: Flops) -> list[Figure]:
    """One attention layer beside one recurrent layer of the same width: FLOPs, steps, longest path."""
    group = spent.groups[-1]
    one = quantity(
        named(group.projections, "flops_projections", "FLOP of these layers' projections")
        + named(group.scores, "flops_scores", "FLOP of these layers' scores")
    )
    per_layer = quantity(one // named(group.layers.count, "L", "such layers"))
    symbols, asked = model.symbolic(), workload.symbolic()
    d_model = symbols.main.d_model
    times_three = 3 if workload.phase == "train" else 1
    recurrent = quantity(
        times_three * (2 * query_tokens(symbols.main, asked) * (d_model * d_model + d_model * d_model))
    )
    tokens = quantity(asked.context)
    figures = [
        Figure("attention_flops_per_layer", "one attention layer", per_layer, FLOP, VASWANI, ""),
        Figure(
            "recurrent_flops_per_layer",
            "one recurrent layer as wide (two d_model x d_model)",
            recurrent,
            FLOP,
            VASWANI,
        ),
        Figure("attention_sequential_steps", "sequential steps of attention", Quantity(1), NO_UNIT, VASWANI),
        Figure(
            "recurrent_sequential_steps",
            "sequential steps of recurrence",
            quantity(asked.new),
            NO_UNIT,
            VASWANI,
        ),
        Figure("recurrent_longest_path", "longest path through recurrence", tokens, NO_UNIT, VASWANI),
    ]
    path = _longest_path(symbols, tokens)
    if path is not None:
        figures.append(
            Figure("attention_longest_path", "longest path through attention", path, NO_UNIT, VASWANI)
        )
    return figures


def _longest_path(model: ModelSpec, tokens: int) -> Quantity | None:
    """Layers between the two tokens farthest apart: 1 with a full layer, more through windows.

    None where they never meet (chunks).
    """
    found = [layers.attention.span for layers in model.main.layers]
    if any(isinstance(span, Full) for span in found):
        return Quantity(1)
    reach = [span.window for span in found if isinstance(span, Sliding) and span.window > 1]
    return quantity(ceil_div(tokens - 1, max(reach) - 1)) if reach and tokens > 1 else None


def _group_figures(group: LayerFlops) -> tuple[Figure, ...]:
    source = group.layers.attention.source
    named_figures = (
        ("flops_total", "all", group.total, ""),
        ("flops_attention_projections", "attention projections", group.projections, MATMUL),
        ("flops_attention_scores", "attention scores, exact for the mask", group.scores, source),
        ("flops_attention_scores_dense", "attention scores, dense", group.scores_dense, source),
        ("flops_mlp", "MLP", group.mlp, MATMUL),
    )
    return tuple(Figure(name, label, q, FLOP, of, group.group) for name, label, q, of in named_figures)


def _tables(model: ModelSpec, spent: Flops, figures: tuple[Figure, ...]) -> tuple[Table, ...]:
    by_name = {f.name: f for f in figures}
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
        (label, cell, count(value), share)
        for (label, value), cell, share in zip(rows, cells, shares, strict=True)
    )
    strong = frozenset(i for i, row in enumerate(rows) if row[0] == "total")
    tables = [Table((LABEL, rounded, Column("FLOP"), Column("share")), table, strong=strong)]
    if is_hybrid(model):
        tables.append(_group_table(spent))
    tables += [_recurrent_table(by_name), _growth_table(by_name)]
    return tuple(tables)


def _group_table(spent: Flops) -> Table:
    made, of_made = unit_column("projections", [g.projections for g in spent.groups], FLOP)
    score, of_score = unit_column("scores", [g.scores for g in spent.groups], FLOP)
    mlp, of_mlp = unit_column("MLP", [g.mlp for g in spent.groups], FLOP)
    columns = (Column("layers", "left"), Column(), Column("span", "left"), made, score, mlp)
    names = [(g.group, count(g.layers.count), spans(g.layers)) for g in spent.groups]
    return Table(columns, tuple(zip(*zip(*names, strict=True), of_made, of_score, of_mlp, strict=True)))


def _recurrent_table(by_name: dict[str, Figure]) -> Table:
    kinds = ("attention", "recurrent")
    one, cells = unit_column("", [int(by_name[f"{k}_flops_per_layer"].value) for k in kinds], FLOP)

    def row(label: str, kind: str) -> tuple[str, ...]:
        path = by_name.get(f"{kind}_longest_path")
        return (
            label,
            cells[kinds.index(kind)],
            count(int(by_name[f"{kind}_sequential_steps"].value)),
            count(int(path.value)) if path else "never",
        )

    columns = (Column("one layer", "left"), one, Column("sequential\nsteps"), Column("longest\npath"))
    return Table(columns, (row("attention", "attention"), row("recurrent, as wide", "recurrent")))


def _growth_table(by_name: dict[str, Figure]) -> Table:
    overtake = by_name.get("scores_overtake_context")
    at = f"{overtake.human} tokens" if overtake else "never"
    grown, of_scores = (by_name[f"growth_{name}"].quantity for name in ("total", "attention_scores"))
    rows = (
        ("scores overtake projections at a context of", at),
        ("twice the context costs", times(grown)),  # type: ignore[arg-type]
        ("  of it the scores", times(of_scores)),  # type: ignore[arg-type]
    )
    return Table((LABEL, Column()), rows)
