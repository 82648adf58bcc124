"""Parameters: every matrix, norm and table, counted once."""

from ..attention import Matrix
from ..model import Layers, ModelSpec, Stack
from ..quantity import Quantity, ceil_div, quantity, symbol_like, total
from ..records import NamedTuple
from .common import Part, group_name, sum_named, sum_over_groups


class LayerParams(NamedTuple):
    """Parameters of one layer group, in all its layers together."""

    group: str  # the group's name
    layers: Layers  # the group
    # Parameters of each matrix of attention, by name; cross-attention's names start with 'cross '
    attention: tuple[tuple[str, Quantity], ...]
    attention_total: Quantity  # all parameters of attention
    attention_weights: Quantity  # attention's matrices, without biases and vectors
    attention_per_layer: Quantity  # all parameters of attention in one layer
    weights_per_layer: Quantity  # attention's matrices in one layer, without biases and vectors
    mlp: Quantity  # parameters of the MLPs
    mlp_active: Quantity  # parameters of the MLPs that one token uses
    norm: Quantity  # parameters of the norms
    lookups: Quantity  # parameters of the tables of which a token reads a few rows
    other: Quantity  # further vectors

    @property
    def total(self) -> Quantity:
        return sum_named(
            {
                "attention": (self.attention_total, "parameters of attention"),
                "mlp": (self.mlp, "parameters of the MLPs"),
                "norm": (self.norm, "parameters of the norms"),
                "lookups": (self.lookups, "parameters of the lookup tables"),
                "other": (self.other, "parameters of other vectors"),
            }
        )


class Params(NamedTuple):
    """Parameters of a model on one device. A tied matrix counts once, in the embedding."""

    total: Quantity  # all parameters
    attention: Quantity  # parameters of attention
    attention_weights: Quantity  # attention without biases, norms and sinks
    mlp: Quantity  # parameters of the MLPs
    embedding: Quantity  # the token table, token types, position tables and lookup tables
    head: Quantity  # what the head adds
    norm: Quantity  # parameters of the norms
    other: Quantity  # further vectors, and tensors outside the layers
    # parameters that one token uses; fewer than `total` for a mixture of experts or lookup tables
    active: Quantity
    groups: tuple[LayerParams, ...]  # the parameters of each layer group


def params(model: ModelSpec) -> Params:
    """Return the parameters of `model` on one device."""
    return model.kept("params", lambda: _params(model))


def _params(model: ModelSpec) -> Params:
    symbols = model.symbolic()
    groups = tuple(_layer_params(symbols, stack, layers) for stack, layers in symbols.groups())
    parts = {
        "attention": sum_over_groups(
            "params_attention",
            "parameters of attention",
            [Part(g.group, g.attention_total) for g in groups],
        ),
        "mlp": sum_over_groups(
            "params_mlp", "parameters of the MLPs", [Part(g.group, g.mlp) for g in groups]
        ),
        "embedding": embedding_params(symbols),
        "head": head_params(symbols),
        "norm": _norm_params(symbols, groups),
        "other": _other_params(symbols, groups),
    }
    used = {"embedding": parts["embedding"]}
    tables = [Part(g.group, g.lookups) for g in groups if g.lookups]
    if tables:
        lookups = sum_over_groups("params_lookups", "parameters of the lookup tables", tables)
        parts["embedding"] = sum_named(
            {
                "embedding": (used["embedding"], "parameters of the token table"),
                "lookups": (lookups, "parameters of the lookup tables"),
            }
        )
    used["mlp"] = sum_over_groups(
        "params_mlp", "MLP parameters a token uses", [Part(g.group, g.mlp_active) for g in groups]
    )
    return Params(
        total=_sum(parts),
        active=_sum({**parts, **used}),
        attention_weights=sum_over_groups(
            "attention_weights",
            "weights of attention",
            [Part(g.group, g.attention_weights) for g in groups],
        ),
        groups=groups,
        **parts,
    )


def _sum(parts: dict[str, Quantity]) -> Quantity:
    return sum_named(
        {f"params_{name}": (value, f"parameters, {name}") for name, value in parts.items()}
    )


def _layer_params(model: ModelSpec, stack: Stack, layers: Layers) -> LayerParams:
    self_matrices = layers.attention.matrices(stack.d_model, stack.d_model)
    if layers.cross:
        cross_matrices = layers.cross.matrices(stack.d_model, model.d_source)
    else:
        cross_matrices = ()
    matrices = (*self_matrices, *cross_matrices)
    if layers.mlp:
        expert = total(m.params for m in layers.mlp.expert(stack.d_model))
        router = total(m.params for m in layers.mlp.router(stack.d_model))
        stored = layers.mlp.experts_stored
        used = layers.mlp.experts_used
        shared = layers.mlp.shared(stack.d_model)
    else:
        expert = quantity(0)
        router = quantity(0)
        stored = 1
        used = 1
        shared = ()
    applied = [matrix for matrix in layers.extra if matrix.applied_to]
    always_used = total(matrix.params for matrix in (*shared, *applied))
    count = 0 if layers.shares_weights else layers.count
    by_name = [
        *((m.name, m) for m in self_matrices),
        *((f"cross {m.name}", m) for m in cross_matrices),
    ]
    return LayerParams(
        group=group_name(model, stack, layers),
        layers=layers,
        attention=tuple((name, quantity(count * m.params)) for name, m in by_name),
        attention_total=quantity(count * total(m.params for m in matrices)),
        attention_weights=quantity(count * matmul_weights(matrices)),
        attention_per_layer=total(m.params for m in matrices),
        weights_per_layer=quantity(matmul_weights(matrices)),
        mlp=quantity(count * (router + stored * expert + always_used)),
        mlp_active=quantity(count * (router + used * expert + always_used)),
        norm=quantity(count * (layers.norms * stack.norm_vectors * stack.d_model)),
        lookups=quantity(count * total(m.params for m in layers.lookups)),
        other=quantity(count * total(m.params for m in layers.extra if not m.applied_to)),
    )


def matmul_weights(matrices: tuple[Matrix, ...]) -> int:
    """Return the weights that multiply tokens; biases, norms and sinks do not."""
    return sum(m.weights for m in matrices if m.applied_to)


def embedding_params(model: ModelSpec) -> Quantity:
    """Return the parameters of the token table, token types and position tables."""
    tokens = [rows * model.table_width for rows in (model.vocab_size, model.token_types) if rows]
    parts = [Part("tokens", total(tokens))]
    parts += [Part(f"positions_{stack.name}", total(_positions(stack))) for stack in model.stacks]
    if len(model.stacks) == 1:
        return total(part.value for part in parts)
    return sum_over_groups("params_embedding", "parameters of the table of", parts)


def _positions(stack: Stack) -> list[int]:
    """Return the sizes of a stack's position tables: a row per position, or a value per bucket and
    head.
    """
    tables = []
    if stack.learned_positions:
        tables.append(stack.learned_positions * stack.d_model)
    if stack.relative_position_buckets:
        tables.append(stack.relative_position_buckets * stack.leading.widths().n_heads)
    return tables


def head_params(model: ModelSpec) -> Quantity:
    """Return the parameters that the head adds: none if it is tied and has no bias."""
    if model.head is None:
        return quantity(0)
    d_model = model.main.d_model
    if model.head.kind == "pooler":
        return quantity(d_model * d_model + d_model)
    matrix = lm_head(model)
    return quantity(matrix.bias if model.head.tied else matrix.params)


def lm_head(model: ModelSpec) -> Matrix:
    """Return the matrix of the lm head, tied or not."""
    vocab_size = model.vocab_size or 0
    if model.head and model.head.ranks > 1:
        vocab_size = ceil_div(
            vocab_size, symbol_like(vocab_size, "attn_dp", model.head.ranks, "ranks of attention")
        )
    bias = vocab_size if model.head and model.head.bias else 0
    return Matrix("lm_head", model.table_width, vocab_size, bias, "queries")


def outer_norms(stack: Stack) -> int:
    """Return the parameters of the norms before the first layer and after the last."""
    return (int(stack.final_norm) + int(stack.embedding_norm)) * stack.norm_vectors * stack.d_model


def _other_params(model: ModelSpec, groups: tuple[LayerParams, ...]) -> Quantity:
    parts = [Part(g.group, g.other) for g in groups]
    parts.append(Part("outside", total(matrix.params for matrix in model.extra)))
    return sum_over_groups("params_other", "other parameters", parts)


def _norm_params(model: ModelSpec, groups: tuple[LayerParams, ...]) -> Quantity:
    parts = [Part(g.group, g.norm) for g in groups]
    for stack in model.stacks:
        parts.append(Part(f"around_{stack.name}", quantity(outer_norms(stack))))
    return sum_over_groups("params_norm", "parameters of the norms", parts)
