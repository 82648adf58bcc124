"""The report of `attncalc params`."""

from __future__ import annotations

from ..cost.common import Part, sum_of
from ..cost.params import LayerParams, Params, params
from ..model import ModelSpec
from ..quantity import Quantity, named, ratio
from ..units import NO_UNIT, PARAMS, count
from ..workload import Workload
from .checkpoint import stored_figures, stored_table
from .layers import attention_source, is_hybrid, layer_facts, spans
from .notes import params_notes
from .report import LABEL, QUOTIENT, SUM, Column, Figure, Report, Table, heading, unit_column, workload_facts

_PARTS = (("mlp", "MLP"), ("embedding", "embedding"), ("head", "head"), ("norm", "norms"), ("other", "other"))
_SOURCES = {
    "mlp": "arXiv:1706.03762, 3.3; gated: arXiv:2002.05202; mixtures of experts: arXiv:2401.04088, arXiv:2401.06066",
    "embedding": "arXiv:1706.03762, 3.4; learned positions: arXiv:1810.04805; relative ones: arXiv:1910.10683, 2.1",
    "head": "arXiv:1706.03762, 3.4; the pooler: arXiv:1810.04805",
    "norm": "LayerNorm: arXiv:1607.06450; RMSNorm: arXiv:1910.07467",
    "other": "the model file's extra_params",
}


def params_report(model: ModelSpec) -> Report:
    """The parameters of `model`: attention by matrix, MLP, embedding, head, norms, total."""
    counted = params(model)
    figures = _figures(model, counted)
    groups = tuple(
        (facts, _group_figures(group)) for facts, group in zip(layer_facts(model), counted.groups, strict=True)
    )
    context = model.max_context or 1
    return Report(
        "params",
        heading(model),
        model.facts(),
        workload_facts(model, Workload.prefill(1, context)),
        figures,
        groups,
        _tables(model, counted, figures),
        params_notes(model, counted),
    )


def by_matrix(counted: Params) -> dict[str, Quantity]:
    """Attention's parameters by matrix, over all layers."""
    parts: dict[str, list[Part]] = {}
    for group in counted.groups:
        for name, value in group.attention:
            parts.setdefault(name, []).append(Part(group.group, value))
    return {name: sum_of(_key(name), f"parameters of {name}", of) for name, of in parts.items()}


def _key(matrix: str) -> str:
    """'cross W_q' -> 'params_cross_W_q': a name that JSON and a formula can hold, and that no part has."""
    within = "attention_" if matrix in dict(_PARTS) else ""
    return f"params_{within}" + matrix.replace(" ", "_")


def _figures(model: ModelSpec, counted: Params) -> tuple[Figure, ...]:
    source = attention_source(model)
    matrices = [Figure(_key(n), n, q, PARAMS, source) for n, q in by_matrix(counted).items()]
    parts = [Figure(f"params_{name}", label, getattr(counted, name), PARAMS, _SOURCES[name]) for name, label in _PARTS]
    share = ratio(
        named(counted.attention, "params_attention", "parameters of attention"),
        named(counted.total, "params_total", "all parameters"),
    )
    return (
        Figure("params_total", "total", counted.total, PARAMS, SUM),
        Figure("params_attention", "attention", counted.attention, PARAMS, source),
        *parts,
        Figure("params_active", "used by one token", counted.active, PARAMS, SUM),
        Figure(
            "params_attention_weights",
            "attention without biases and norms",
            counted.attention_weights,
            PARAMS,
            source,
        ),
        Figure("params_attention_share", "attention's share of all", share, NO_UNIT, QUOTIENT),
        *matrices,
        *stored_figures(model),
    )


def _group_figures(group: LayerParams) -> tuple[Figure, ...]:
    source = group.layers.attention.source
    return (
        Figure("params_total", "parameters", group.total, PARAMS, SUM, group.group),
        Figure("params_attention", "attention", group.attention_total, PARAMS, source, group.group),
        Figure(
            "params_attention_per_layer",
            "attention of one layer",
            group.attention_one_layer,
            PARAMS,
            source,
            group.group,
        ),
        Figure(
            "params_attention_weights_per_layer",
            "attention of one layer without biases and norms",
            group.weights_one_layer,
            PARAMS,
            source,
            group.group,
        ),
        *(Figure(_key(name), name, value, PARAMS, source, group.group) for name, value in group.attention),
        Figure("params_mlp", "MLP", group.mlp, PARAMS, _SOURCES["mlp"], group.group),
        Figure("params_norm", "norms", group.norm, PARAMS, _SOURCES["norm"], group.group),
    )


def _tables(model: ModelSpec, counted: Params, figures: tuple[Figure, ...]) -> tuple[Table, ...]:
    total = counted.total
    rows = [("attention", counted.attention)]
    rows += [(f"  {name}", value) for name, value in by_matrix(counted).items()]
    rows += [(label, getattr(counted, name)) for name, label in _PARTS if getattr(counted, name)]
    rows.append(("total", total))
    if counted.active != total:
        rows.append(("  used by one token", counted.active))
    rounded, cells = unit_column("", [value for _, value in rows], PARAMS)
    table = tuple(
        (label, cell, count(value), f"{100 * int(value) / int(total):.1f} %")
        for (label, value), cell in zip(rows, cells, strict=True)
    )
    strong = frozenset(i for i, (label, _) in enumerate(rows) if label == "total")
    tables = [Table((LABEL, rounded, Column("parameters"), Column("share")), table, strong=strong)]
    if is_hybrid(model):
        tables.append(_group_table(counted))
    if model.stored is not None:
        tables.append(stored_table(model.stored))
    return tuple(tables)


def _group_table(counted: Params) -> Table:
    header = ("layers", "", "span", "attention,\none layer", "MLP,\none layer", "all of\nthem")
    rows = tuple(
        (
            g.group,
            count(g.layers.count),
            spans(g.layers),
            count(g.attention_one_layer),
            count(int(g.mlp) // int(g.layers.count)),
            count(g.total),
        )
        for g in counted.groups
    )
    return Table(tuple(Column(h, "left" if i in (0, 2) else "right") for i, h in enumerate(header)), rows)
