"""The report of `attncalc flops`: FLOPs by part, and how they grow with the context."""

from collections.abc import Mapping

from ...attention import FULL
from ...cost.complexity import (
    LayerComplexity,
    LayerTypes,
    ModelLayer,
    attention_layer_complexity,
    layer_types,
)
from ...cost.crossover import Growth, crossover, growth
from ...cost.flops import Flops, LayerFlops, flops
from ...cost.params import params
from ...model import ModelSpec
from ...quantity import Quantity, ratio
from ...show.figures import Given
from ...show.layers import group_columns, has_attention, is_hybrid, layers_with_figures
from ...show.notes import context_notes, device_notes, kind_notes, model_notes, shape_notes
from ...show.report import (
    LABEL,
    Column,
    Figure,
    Report,
    Table,
    column_table,
    context_fact,
    heading,
    times,
    unit_column,
    workload_facts,
)
from ...units import FLOP, PARAMS, count
from ...workload import Workload
from .figures import (
    COMPLEXITY,
    FIGURES,
    GROWTH,
    KORTHIKANTI,
    MATMUL,
    OF_LAYERS,
    OVERTAKEN,
    flops_figures,
)

VASWANI = "Vaswani et al. 2017, arXiv:1706.03762, Table 1"
_GROWTH_RATIOS = frozenset(("growth_total", "growth_attention_scores"))
# Figures whose formulas only `--full --explain` shows: Table 1, the crossings, and further sums.
_ONLY_IN_FULL = _GROWTH_RATIOS.union(
    COMPLEXITY, OVERTAKEN, ("flops_total_dense", "flops_attention_qk_dense")
)
_PHASES = {"prefill": "prefill", "decode": "one decode step", "train": "training step"}


def flops_report(model: ModelSpec, workload: Workload, *, full: bool = False) -> Report:
    """Return the FLOPs of `workload`: projections, scores (exact and dense), MLP, head, and their
    growth.

    `full` adds one layer beside those of Table 1 of Vaswani et al. 2017 to the screen, and to
    --explain the formulas of the contexts from which scores cost more.
    """
    counted = flops(model, workload)
    grown = growth(model, workload)
    overtaken = {
        name: crossover(model, workload, than) if counted.mlp or "mlp" not in than else None
        for name, (_, than) in OVERTAKEN.items()
    }
    own = attention_layer_complexity(model, workload)
    types = layer_types(model, workload)
    tables = [_main_table(counted)]
    if is_hybrid(model):
        tables.append(_group_table(counted))
    growth_figures = GROWTH.filled(
        growth_total=grown.total, growth_attention_scores=grown.scores, **overtaken
    )
    tables += [
        *([_layer_table(model, workload, own, types)] if full else []),
        _growth_table(grown, overtaken),
    ]
    notes = _notes(model, workload, counted, overtaken["scores_overtake_context"])
    return Report(
        "flops",
        heading(model, *_workload_line(model, workload)),
        model.facts(),
        workload_facts(model, workload),
        (*flops_figures(model, counted), *growth_figures, *_layer_figures(own, types)),
        layers_with_figures(model, map(_group_figures, counted.groups)),
        tuple(tables),
        notes,
        shown_notes=(_TABLE_1, *notes) if full else None,
        unexplained=_GROWTH_RATIOS if full else _ONLY_IN_FULL,
        # with one group of layers, their sum is that of the whole model without the head
        unexplained_of_layers=frozenset() if is_hybrid(model) else frozenset(("flops_total",)),
        has_fail_if=True,
    )


def _workload_line(model: ModelSpec, workload: Workload) -> list[str]:
    return [
        f"{_PHASES[workload.phase]}, {context_fact(workload)}",
        f"{workload.recompute} recomputation" if workload.recompute != "none" else "",
        f"{count(workload.past)} of them in the cache"
        if workload.phase == "prefill" and workload.past
        else "",
        f"source {count(workload.source)}" if workload.source else "",
        f"batch {count(workload.batch)}",
        f"{workload.mask or model.main.mask} mask",
        "1 multiply-add = 2 FLOP",
    ]


def _layer_figures(own: ModelLayer, types: LayerTypes) -> tuple[Figure, ...]:
    of_types = {name: getattr(types, name) for name in ("recurrent", "convolutional", "restricted")}
    return COMPLEXITY.filled(
        VASWANI,
        attention_flops_per_layer=own.flops,
        attention_projections_flops_per_layer=own.projections,
        attention_scores_flops_per_layer=own.scores.flops,
        self_attention_flops_per_layer=types.self_attention.flops,
        attention_sequential_steps=own.scores.sequential_steps,
        attention_longest_path=own.scores.longest_path,
        recurrent_sequential_steps=types.recurrent.sequential_steps,
        convolutional_kernel=types.kernel,
        restricted_neighborhood=types.neighborhood,
        **{f"{name}_flops_per_layer": layer.flops for name, layer in of_types.items()},
        **{f"{name}_longest_path": layer.longest_path for name, layer in of_types.items()},
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
        flops_recomputation=Given(group.recomputation, source=KORTHIKANTI),
    )


def _main_table(counted: Flops) -> Table:
    rows = [
        ("total", counted.total),
        ("  attention projections", counted.projections),
        ("  attention scores", counted.scores),
        ("  MLP", counted.mlp),
        ("  head", counted.head),
        ("  recomputation", counted.recomputation),
    ]
    rows = [row for row in rows if row[1]]
    shares = [f"{100 * int(value) / int(counted.total):.1f} %" for _, value in rows]
    if counted.scores_dense != counted.scores:
        rows += [
            ("total with dense scores", counted.total_dense),
            ("  attention scores, dense", counted.scores_dense),
        ]
        shares += ["", ""]
    if counted.six_n_d:
        rows.append((FIGURES["flops_6nd"].label, counted.six_n_d))
        shares.append("")
    values = [value for _, value in rows]
    columns = (
        (LABEL, [label for label, _ in rows]),
        unit_column("", values, FLOP),
        (Column("FLOP", drop=1), [count(value) for value in values]),
        (Column("share"), shares),
    )
    return column_table(columns, strong=frozenset({0}))


def _group_table(counted: Flops) -> Table:
    columns = (
        *group_columns([(g.group, g.layers) for g in counted.groups]),
        unit_column("projections", [g.projections for g in counted.groups], FLOP),
        unit_column("scores", [g.scores for g in counted.groups], FLOP),
        unit_column("MLP", [g.mlp for g in counted.groups], FLOP),
    )
    return column_table(columns)


def _layer_table(model: ModelSpec, workload: Workload, own: ModelLayer, types: LayerTypes) -> Table:
    """Return Table 1 of Vaswani et al. 2017 at the model's width, and below it the parts of a layer
    of the model.
    """
    # n queries over n keys in a prefill, m over n after a past, and one over n in a decode step
    if workload.new == workload.context:
        n = "n "
    elif workload.new == 1:
        n = ""
    else:
        n = "m "
    rows = (
        ("self-attention", f"{n}n d".replace("n n", "n^2"), types.self_attention),
        ("recurrent", f"{n}d^2", types.recurrent),
        ("convolutional", f"k {n}d^2", types.convolutional),
        ("restricted attention", f"r {n}d", types.restricted),
        ("this model's scores", "", own.scores),
        ("this model's projections", "", LayerComplexity(own.projections, Quantity(1), None)),
    )
    title = Column("one layer, as in\nVaswani et al. 2017,\nTable 1", "left")
    new = f", m {count(workload.new)}" if n == "m " else ""
    numbers = (
        f"n {count(workload.context)}{new}\nd {count(model.main.d_model)}\n"
        f"k {types.kernel}, r {count(types.neighborhood)}"
    )
    layers = [layer for _, _, layer in rows]
    terms = [layer.terms for layer in layers if layer.terms is not None]
    of_paper, cells = unit_column("count\nthere,", terms, PARAMS)
    columns = (
        (title, [name for name, _, _ in rows]),
        (Column(numbers, "left"), [formula for _, formula, _ in rows]),
        (of_paper, [*cells, *[""] * (len(layers) - len(terms))]),
        unit_column("", [layer.flops for layer in layers], FLOP),
        (Column("sequential\noperations"), [count(layer.sequential_steps) for layer in layers]),
        (
            Column("maximum\npath\nlength"),
            ["none" if n is None else count(n) for n in (x.longest_path for x in layers)],
        ),
    )
    return column_table(columns)


_TABLE_1 = (
    "Table 1 counts terms: n^2 d is one product without factors. Here a multiply-add is 2 FLOP. "
    "Attention has 2 products, QK and PV, and a recurrent layer 2 matrices: 4 FLOP per term. A "
    "convolution has 2."
)


def _growth_table(grown: Growth, overtaken: Mapping[str, Quantity | None]) -> Table:
    found = {name: count(value) for name, value in overtaken.items() if value is not None}
    rows = (
        *(
            (GROWTH[name].label, text)
            for name, text in (found or {"scores_overtake_context": "none"}).items()
        ),
        (GROWTH["growth_total"].label, times(grown.total, 2)),
    )
    return Table((LABEL, Column()), rows)


def _notes(
    model: ModelSpec, workload: Workload, counted: Flops, overtake: Quantity | None
) -> tuple[str, ...]:
    notes = context_notes(model, workload)
    if workload.phase == "train":
        notes.append(f"{counted.rule[:1].upper()}{counted.rule[1:]}.")
    if counted.six_n_d:
        n = count(params(model).active)
        d = count(workload.batch * workload.context)
        as_much = times(ratio(counted.total, counted.six_n_d), 2)
        notes.append(
            f"6 N D: N is the {n} parameters that a token uses, with the embedding. D is {d} "
            f"tokens. The exact total is {as_much} as much."
        )
    if overtake is None:
        if has_attention(model):
            reason = "every layer has a window"
        else:
            reason = "a recurrent state has a fixed size"
        notes.append(
            f"Scores never cost more than projections: {reason}, so both grow linearly with the "
            "context."
        )
    narrow_spans = [g.attention.span for g in model.main.layers if g.attention.span != FULL]
    if counted.scores * 2 < counted.scores_dense and narrow_spans:
        if any(span.reach is not None for span in narrow_spans):
            cause = "of windows"
        else:
            cause = "only selected keys are scored"
        notes.append(
            f"Because {cause}, exact scores are cheap: dense ones would cost "
            f"{times(ratio(counted.scores_dense, counted.scores))} as much."
        )
    notes += kind_notes(model, past=bool(workload.past))
    if workload.lengths:
        notes.append(
            "Projections and MLP run over the padded batch; exact scores count real tokens only."
        )
    notes.append("Only matrix products are counted, not softmax, norms or activations.")
    return (*notes, *device_notes(model), *shape_notes(model), *model_notes(model))
