"""Parameters: every matrix, norm and table, once."""

from __future__ import annotations

from typing import NamedTuple

from ..attention import Matrix
from ..model import Layers, ModelSpec, Stack
from ..quantity import Quantity, quantity, total
from .common import Part, group_name, sum_named, sum_of


class LayerParams(NamedTuple):
    """Parameters of one layer group, in all its layers together.

    attention: by matrix, cross-attention's with 'cross ' before their names. attention_weights, and
    weights_one_layer of one of them: attention's matrices without biases and vectors. mlp_active: of
    the MLP, those that one token passes through. other: vectors beside all of these.
    """

    group: str
    layers: Layers
    attention: tuple[tuple[str, Quantity], ...]
    attention_total: Quantity
    attention_weights: Quantity
    attention_one_layer: Quantity
    weights_one_layer: Quantity
    mlp: Quantity
    mlp_active: Quantity
    norm: Quantity
    other: Quantity

    @property
    def total(self) -> Quantity:
        """All parameters of the group."""
        return sum_named(
            {
                "attention": (self.attention_total, "parameters of attention"),
                "mlp": (self.mlp, "parameters of the MLPs"),
                "norm": (self.norm, "parameters of the norms"),
                "other": (self.other, "parameters of other vectors"),
            }
        )


class Params(NamedTuple):
    """Parameters of a model on one device; a tied matrix counts once, in the embedding.

    attention_weights: attention without biases, norms and sinks. active: those that one token passes
    through (all, but for a mixture of experts). other: further vectors, and tensors outside the layers.
    """

    total: Quantity
    attention: Quantity
    attention_weights: Quantity
    mlp: Quantity
    embedding: Quantity
    head: Quantity
    norm: Quantity
    other: Quantity
    active: Quantity
    groups: tuple[LayerParams, ...]


def params(model: ModelSpec) -> Params:
    """Count the parameters of `model`."""
    symbols = model.symbolic()
    groups = tuple(_layer_params(symbols, stack, layers) for stack, layers in symbols.groups())
    of = {
        "attention": sum_of(
            "params_attention", "parameters of attention", [Part(g.group, g.attention_total) for g in groups]
        ),
        "mlp": sum_of("params_mlp", "parameters of the MLPs", [Part(g.group, g.mlp) for g in groups]),
        "embedding": embedding_params(symbols),
        "head": head_params(symbols),
        "norm": _norm_params(symbols, groups),
        "other": _other_params(symbols, groups),
    }
    active = sum_of("params_mlp", "MLP parameters a token uses", [Part(g.group, g.mlp_active) for g in groups])
    return Params(
        total=_sum(of),
        active=_sum({**of, "mlp": active}),
        attention_weights=sum_of(
            "attention_weights", "weights of attention", [Part(g.group, g.attention_weights) for g in groups]
        ),
        groups=groups,
        **of,
    )


def _sum(of: dict[str, Quantity]) -> Quantity:
    return sum_named({f"params_{name}": (value, f"parameters, {name}") for name, value in of.items()})


def _layer_params(model: ModelSpec, stack: Stack, layers: Layers) -> LayerParams:
    own = layers.attention.matrices(stack.d_model, stack.d_model)
    cross = layers.cross.matrices(stack.d_model, model.d_source) if layers.cross else ()
    both = (*own, *cross)
    expert = total(m.params for m in layers.mlp.expert(stack.d_model)) if layers.mlp else quantity(0)
    router = total(m.params for m in layers.mlp.router(stack.d_model)) if layers.mlp else quantity(0)
    held, used = (layers.mlp.experts_stored, layers.mlp.experts_used) if layers.mlp else (1, 1)
    shared = layers.mlp.shared(stack.d_model) if layers.mlp else ()
    more = total(m.params for m in (*shared, *(m for m in layers.extra if m.applied_to)))
    count = 0 if layers.shares_weights else layers.count
    named = [*((m.name, m) for m in own), *((f"cross {m.name}", m) for m in cross)]
    return LayerParams(
        group=group_name(model, stack, layers),
        layers=layers,
        attention=tuple((name, quantity(count * m.params)) for name, m in named),
        attention_total=quantity(count * total(m.params for m in both)),
        attention_weights=quantity(count * matmul_weights(both)),
        attention_one_layer=total(m.params for m in both),
        weights_one_layer=quantity(matmul_weights(both)),
        mlp=quantity(count * (router + held * expert + more)),
        mlp_active=quantity(count * (router + used * expert + more)),
        norm=quantity(count * (layers.norms * stack.norm_vectors * stack.d_model)),
        other=quantity(count * total(m.params for m in layers.extra if not m.applied_to)),
    )


def matmul_weights(matrices: tuple[Matrix, ...]) -> int:
    """Weights of those matrices that multiply tokens; biases, norms and sinks are none."""
    return sum(m.weights for m in matrices if m.applied_to)


def embedding_params(model: ModelSpec) -> Quantity:
    """The token table, token types, and tables of positions."""
    tokens = [rows * model.table_width for rows in (model.vocab_size, model.token_types) if rows]
    parts = [Part("tokens", total(tokens))]
    parts += [Part(f"positions_{stack.name}", total(_positions(stack))) for stack in model.stacks]
    if len(model.stacks) == 1:
        return total(part.value for part in parts)
    return sum_of("params_embedding", "parameters of the table of", parts)


def _positions(stack: Stack) -> list[int]:
    """A stack's own tables: one row a position, or one value a bucket and head."""
    tables = []
    if stack.learned_positions:
        tables.append(stack.learned_positions * stack.d_model)
    if stack.relative_position_buckets:
        tables.append(stack.relative_position_buckets * stack.leading.widths().n_heads)
    return tables


def head_params(model: ModelSpec) -> Quantity:
    """What the head adds: nothing where it is tied and has no bias."""
    if model.head is None:
        return quantity(0)
    d_model = model.main.d_model
    if model.head.kind == "pooler":
        return quantity(d_model * d_model + d_model)
    vocab_size = model.vocab_size or 0
    bias = vocab_size if model.head.bias else 0
    return total((0 if model.head.tied else model.table_width * vocab_size, bias))


def _other_params(model: ModelSpec, groups: tuple[LayerParams, ...]) -> Quantity:
    parts = [Part(g.group, g.other) for g in groups]
    parts.append(Part("outside", total(matrix.params for matrix in model.extra)))
    return sum_of("params_other", "other parameters", parts)


def _norm_params(model: ModelSpec, groups: tuple[LayerParams, ...]) -> Quantity:
    parts = [Part(g.group, g.norm) for g in groups]
    for stack in model.stacks:
        outside = int(stack.final_norm) + int(stack.embedding_norm)
        parts.append(Part(f"around_{stack.name}", quantity(outside * stack.norm_vectors * stack.d_model)))
    return sum_of("params_norm", "parameters of the norms", parts)
