"""The figures of `attncalc params`."""

from collections.abc import Iterator, Mapping

from ...cost.common import Part, sum_over_groups
from ...cost.params import Params
from ...model import ModelSpec
from ...quantity import Quantity, named, ratio
from ...search import grouped
from ...show.checkpoint import STORED, stored_by_dtype, stored_weights
from ...show.figures import (
    PARAMS_ATTENTION,
    PARAMS_TOTAL,
    QUOTIENT,
    SUM,
    FigureRow,
    FigureRows,
    ratio_row,
)
from ...show.layers import attention_source
from ...show.report import Figure
from ...units import PARAMS

PARTS = ("mlp", "embedding", "head", "norm", "other")
FIGURES = FigureRows(
    params_total=PARAMS_TOTAL._replace(label="total"),
    params_attention=PARAMS_ATTENTION,
    params_mlp=FigureRow(
        "MLP",
        PARAMS,
        "MLPs",
        source="arXiv:1706.03762, 3.3; gated: arXiv:2002.05202; mixtures of experts: "
        "arXiv:2401.04088, arXiv:2401.06066",
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
    prefix = "attention_" if matrix in PARTS else ""
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
    return (*figures, *matrices(by_matrix(counted), source), *stored, *stored_by_dtype(model))


def matrices(by_name: Mapping[str, Quantity], source: str, of: str = "") -> Iterator[Figure]:
    """Yield the figures of attention's matrices."""
    for name, value in by_name.items():
        yield _row(name).figure(value, source=source, of=of)
