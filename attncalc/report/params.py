"""The report of `attncalc params`: parameters by matrix and by part of the model."""

from __future__ import annotations

from ..cost.common import Part, sum_over_groups
from ..cost.params import LayerParams, Params, params
from ..model import ModelSpec
from ..quantity import Quantity, named, ratio
from ..units import NO_UNIT, PARAMS, count, human
from ..workload import Workload
from .checkpoint import stored_figures, stored_notes, stored_table
from .layers import attention_source, group_columns, is_hybrid, layer_facts
from .notes import device_notes, model_notes, shape_notes
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
    """Return the parameters of `model`: attention by matrix, MLP, embedding, head, norms, total."""
    counted = params(model)
    figures = params_figures(model, counted)
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
        _notes(model, counted),
    )


def by_matrix(counted: Params) -> dict[str, Quantity]:
    """Return the parameters of each attention matrix, summed over all layers."""
    groups_by_matrix: dict[str, list[Part]] = {}
    for group in counted.groups:
        for name, value in group.attention:
            groups_by_matrix.setdefault(name, []).append(Part(group.group, value))
    return {
        name: sum_over_groups(_key(name), f"parameters of {name}", parts) for name, parts in groups_by_matrix.items()
    }


def _key(matrix: str) -> str:
    """Return a matrix's name in JSON: 'cross W_q' -> 'params_cross_W_q'.

    A matrix that is called like a part of the model (`norm`) gets 'attention_' before its name.
    """
    prefix = "attention_" if matrix in dict(_PARTS) else ""
    return f"params_{prefix}" + matrix.replace(" ", "_")


def params_figures(model: ModelSpec, counted: Params) -> tuple[Figure, ...]:
    """Return the figures, whose names scripts rely on; those of attention's matrices depend on the model."""
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
        Figure("params_active", "active per token", counted.active, PARAMS, SUM),
        Figure(
            "params_attention_weights",
            "attention without biases and norms",
            counted.attention_weights,
            PARAMS,
            source,
        ),
        Figure("params_attention_share", "attention parameters / all parameters", share, NO_UNIT, QUOTIENT),
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
            "attention per layer",
            group.attention_per_layer,
            PARAMS,
            source,
            group.group,
        ),
        Figure(
            "params_attention_weights_per_layer",
            "attention per layer, without biases and norms",
            group.weights_per_layer,
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
    rows = [("total", total)]
    if counted.active != total:
        rows.append(("  of which active per token", counted.active))
    rows.append(("  attention", counted.attention))
    rows += [(f"    {name}", value) for name, value in by_matrix(counted).items()]
    rows += [(f"  {label}", getattr(counted, name)) for name, label in _PARTS if getattr(counted, name)]
    rounded, cells = unit_column("", [value for _, value in rows], PARAMS)
    table = tuple(
        (label, cell, count(value), f"{100 * int(value) / int(total):.1f} %")
        for (label, value), cell in zip(rows, cells, strict=True)
    )
    tables = [Table((LABEL, rounded, Column("parameters"), Column("share")), table, strong=frozenset({0}))]
    if is_hybrid(model):
        tables.append(_group_table(counted))
    if model.stored is not None:
        tables.append(stored_table(model.stored))
    return tuple(tables)


def _group_table(counted: Params) -> Table:
    columns, names = group_columns([(g.group, g.layers) for g in counted.groups])
    headers = ("attention\nper layer", "MLP\nper layer", "all\nlayers")
    rows = tuple(
        (*name, count(g.attention_per_layer), count(int(g.mlp) // int(g.layers.count)), count(g.total))
        for name, g in zip(names, counted.groups, strict=True)
    )
    return Table((*columns, *map(Column, headers)), rows)


def _notes(model: ModelSpec, counted: Params) -> tuple[str, ...]:
    share = f"{100 * int(counted.attention) / int(counted.total):.0f} %" if counted.total else "0 %"
    notes = [
        f"Attention has {human(counted.attention, PARAMS)} of {human(counted.total, PARAMS)} parameters ({share}). "
        f"Its matrices have {count(counted.attention_weights)}, without biases and norms."
    ]
    if counted.active != counted.total:
        notes.append(f"A token uses {human(counted.active, PARAMS)} parameters: the router selects its experts.")
    if model.head and model.head.tied:
        notes.append("The lm head is tied to the embedding: it adds no parameters.")
    if model.vocab_size and model.vocab_size % model.tp:
        notes.append(f"The vocabulary of {count(model.vocab_size)} is padded to a multiple of {model.tp}.")
    if model.tp > 1:
        notes.append("Attention, MLP, embedding and head are split; norms, routers and output biases are not.")
    notes += stored_notes(model, counted.total)
    return (*notes, *device_notes(model), *shape_notes(model), *model_notes(model))
