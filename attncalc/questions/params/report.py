"""The report of `attncalc params`: parameters by matrix and by part of the model."""

from ...cost.params import LayerParams, Params, params
from ...model import ModelSpec
from ...show.checkpoint import stored_notes, stored_table
from ...show.layers import group_columns, is_hybrid, layers_with_figures
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
from .figures import FIGURES, OF_LAYERS, PARTS, by_matrix, matrices, params_figures


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
        has_fail_if=True,
    )


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
    return (*attention, *matrices(dict(group.attention), source, group.group), mlp, norm)


def _tables(model: ModelSpec, counted: Params, figures: tuple[Figure, ...]) -> tuple[Table, ...]:
    total = counted.total
    rows = [("total", total)]
    if counted.active != total:
        rows.append(("  of which active per token", counted.active))
    rows.append(("  attention", counted.attention))
    rows += [(f"    {name}", value) for name, value in by_matrix(counted).items()]
    rows += [
        (f"  {FIGURES[f'params_{part}'].label}", getattr(counted, part))
        for part in PARTS
        if getattr(counted, part)
    ]
    values = [value for _, value in rows]
    columns = (
        (LABEL, [label for label, _ in rows]),
        unit_column("", values, PARAMS),
        (Column("parameters", drop=1), [count(value) for value in values]),
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
