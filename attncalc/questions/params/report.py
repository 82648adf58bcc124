"""The report of `attncalc params`: parameters by matrix and by part of the model."""

from collections.abc import Iterator, Mapping

from ...cost.common import Part, sum_over_groups
from ...cost.params import LayerParams, Params, params
from ...model import ModelSpec
from ...quantity import Quantity, named, ratio
from ...search import grouped
from ...show.checkpoint import STORED, stored_by_dtype, stored_notes, stored_table, stored_weights
from ...show.figures import (
    PARAMS_ATTENTION,
    PARAMS_TOTAL,
    QUOTIENT,
    SUM,
    FigureRow,
    FigureRows,
    ratio_row,
)
from ...show.layers import attention_source, group_columns, is_hybrid, layers_with_figures
from ...show.notes import device_notes, model_notes, shape_notes
from ...show.report import (
    LABEL,
    Column,
    Figure,
    Report,
    Table,
    column_table,
    heading,
    unit_column,
    workload_facts,
)
from ...units import PARAMS, count
from ...workload import Workload

_PARTS = ("mlp", "embedding", "head", "norm", "other")
FIGURES = FigureRows(
    params_total=PARAMS_TOTAL._replace(label="total"),
    params_attention=PARAMS_ATTENTION,
    params_mlp=FigureRow(
        "MLP",
        PARAMS,
        "MLPs",
        source="arXiv:1706.03762, 3.3; gated: arXiv:2002.05202; mixtures of experts: "
        "arXiv:2401.04088, "
        "arXiv:2401.06066",
    ),
    params_embedding=FigureRow(
        "embedding",
        PARAMS,
        "embeddings",
        source="arXiv:1706.03762, 3.4; learned positions: arXiv:1810.04805; relative ones: "
        "arXiv:1910.10683, 2.1",
    ),
    params_head=FigureRow(
        "head",
        PARAMS,
        "the lm head or pooler",
        source="arXiv:1706.03762, 3.4; the pooler: arXiv:1810.04805",
    ),
    params_norm=FigureRow(
        "norms", PARAMS, "norms", source="LayerNorm: arXiv:1607.06450; RMSNorm: arXiv:1910.07467"
    ),
    params_other=FigureRow("other", PARAMS, "other parts", source="the model file's extra_params"),
    params_active=FigureRow(
        "active per token",
        PARAMS,
        "used by one token; fewer than all in a mixture of experts",
        source=SUM,
    ),
    params_attention_weights=FigureRow(
        "attention without biases and norms", PARAMS, "attention's matrices alone"
    ),
    params_attention_share=ratio_row(
        "attention parameters / all parameters", "params_attention / params_total", source=QUOTIENT
    ),
)
MATRIX = FigureRow(
    "",
    PARAMS,
    "a tensor of attention in all layers, such as params_W_q",
    name="^params_[A-Za-z0-9_.]+$",
)
# The figures of a kind of layer; those of its matrices are after the fourth.
OF_LAYERS = FigureRows(
    params_total=PARAMS_TOTAL._replace(meaning="all parameters of the layers"),
    params_attention=PARAMS_ATTENTION._replace(meaning="their attention"),
    params_attention_per_layer=FigureRow(
        "attention per layer", PARAMS, "the attention of one of them"
    ),
    params_attention_weights_per_layer=FigureRow(
        "attention per layer, without biases and norms",
        PARAMS,
        "the matrices of the attention of one of them",
    ),
    params_mlp=FIGURES["params_mlp"]._replace(meaning="their MLPs"),
    params_norm=FIGURES["params_norm"]._replace(meaning="their norms"),
)


def params_report(model: ModelSpec) -> Report:
    """Return the parameters of `model`: attention by matrix, MLP, embedding, head, norms, total."""
    counted = params(model)
    figures = params_figures(model, counted)
    context = model.max_context or 1
    return Report(
        "params",
        heading(model),
        model.facts(),
        workload_facts(model, Workload.prefill(1, context)),
        figures,
        layers_with_figures(model, map(_group_figures, counted.groups)),
        _tables(model, counted, figures),
        _notes(model, counted),
    )


def by_matrix(counted: Params) -> dict[str, Quantity]:
    """Return the parameters of each attention matrix, summed over all layers."""
    groups_by_matrix = grouped(
        (name, Part(group.group, value))
        for group in counted.groups
        for name, value in group.attention
    )
    return {
        name: sum_over_groups(_row(name).name, f"parameters of {name}", parts)
        for name, parts in groups_by_matrix.items()
    }


def _row(matrix: str) -> FigureRow:
    """Return the row of a matrix's figure: that of 'cross W_q' is 'params_cross_W_q'.

    A matrix that is called like a part of the model (`norm`) gets 'attention_' before its name.
    """
    prefix = "attention_" if matrix in _PARTS else ""
    return MATRIX.one(prefix + matrix.replace(" ", "_"), matrix)


def params_figures(model: ModelSpec, counted: Params) -> tuple[Figure, ...]:
    """Return the figures, whose names scripts rely on; those of attention's matrices depend on the
    model.
    """
    source = attention_source(model)
    share = ratio(
        named(counted.attention, "params_attention", "parameters of attention"),
        named(counted.total, "params_total", "all parameters"),
    )
    figures = FIGURES.filled(
        source,
        params_total=counted.total,
        params_attention=counted.attention,
        params_mlp=counted.mlp,
        params_embedding=counted.embedding,
        params_head=counted.head,
        params_norm=counted.norm,
        params_other=counted.other,
        params_active=counted.active,
        params_attention_weights=counted.attention_weights,
        params_attention_share=share,
    )
    stored = STORED.filled(weights_stored=stored_weights(model))
    return (*figures, *_matrices(by_matrix(counted), source), *stored, *stored_by_dtype(model))


def _matrices(by_name: Mapping[str, Quantity], source: str, of: str = "") -> Iterator[Figure]:
    """Yield the figures of attention's matrices."""
    for name, value in by_name.items():
        yield _row(name).figure(value, source=source, of=of)


def _group_figures(group: LayerParams) -> tuple[Figure, ...]:
    source = group.layers.attention.source
    *attention, mlp, norm = OF_LAYERS.filled(
        source,
        group.group,
        params_total=group.total,
        params_attention=group.attention_total,
        params_attention_per_layer=group.attention_per_layer,
        params_attention_weights_per_layer=group.weights_per_layer,
        params_mlp=group.mlp,
        params_norm=group.norm,
    )
    return (*attention, *_matrices(dict(group.attention), source, group.group), mlp, norm)


def _tables(model: ModelSpec, counted: Params, figures: tuple[Figure, ...]) -> tuple[Table, ...]:
    total = counted.total
    rows = [("total", total)]
    if counted.active != total:
        rows.append(("  of which active per token", counted.active))
    rows.append(("  attention", counted.attention))
    rows += [(f"    {name}", value) for name, value in by_matrix(counted).items()]
    rows += [
        (f"  {FIGURES[f'params_{part}'].label}", getattr(counted, part))
        for part in _PARTS
        if getattr(counted, part)
    ]
    values = [value for _, value in rows]
    columns = (
        (LABEL, [label for label, _ in rows]),
        unit_column("", values, PARAMS),
        (Column("parameters"), [count(value) for value in values]),
        (Column("share"), [f"{100 * int(value) / int(total):.1f} %" for value in values]),
    )
    tables = [column_table(columns, strong=frozenset({0}))]
    if is_hybrid(model):
        tables.append(_group_table(counted))
    if model.stored is not None:
        tables.append(stored_table(model.stored))
    return tuple(tables)


def _group_table(counted: Params) -> Table:
    groups = counted.groups
    columns = (
        *group_columns([(g.group, g.layers) for g in groups]),
        (Column("attention\nper layer"), [count(g.attention_per_layer) for g in groups]),
        (Column("MLP\nper layer"), [count(int(g.mlp) // int(g.layers.count)) for g in groups]),
        (Column("all\nlayers"), [count(g.total) for g in groups]),
    )
    return column_table(columns)


def _notes(model: ModelSpec, counted: Params) -> tuple[str, ...]:
    notes = []
    if model.head and model.head.tied:
        notes.append("The lm head is tied to the embedding: it adds no parameters.")
    if model.vocab_size and model.vocab_size % model.tp:
        notes.append(
            f"The vocabulary of {count(model.vocab_size)} is padded to a multiple of {model.tp}."
        )
    if model.tp > 1:
        notes.append(
            "Attention, MLP, embedding and head are split; norms, routers and output biases are "
            "not."
        )
    notes += stored_notes(model, counted.total)
    return (*notes, *device_notes(model), *shape_notes(model), *model_notes(model))
