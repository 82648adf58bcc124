"""Layer groups in reports: facts for JSON, names and spans for screens."""

from collections.abc import Iterable, Sequence
from typing import Any

from ..attention import Attention
from ..cost.common import group_name
from ..model import Layers, ModelSpec
from ..units import count
from ..workload import Run
from .report import Column, Figure


def layers_with_figures(
    model: ModelSpec, figures: Iterable[tuple[Figure, ...]]
) -> tuple[tuple[dict[str, Any], tuple[Figure, ...]], ...]:
    """Return the facts of each distinct layer group with its figures, in the order of the cost
    functions' groups.
    """
    facts = [
        {
            "name": group_name(model, stack, layers),
            "stack": stack.name,
            "layers": int(layers.count),
            "attention": layers.attention.facts(),
            "cross_attention": layers.cross.facts() if layers.cross else None,
            "mlp": layers.mlp.headline if layers.mlp else None,
        }
        for stack, layers in model.groups()
    ]
    return tuple(zip(facts, figures, strict=True))


def group_columns(groups: Sequence[tuple[str, Layers]]) -> list[tuple[Column, list[str]]]:
    """Return the columns that name layer groups (name, number of layers, span), with their
    cells.
    """
    return [
        (Column("group", "left"), [name for name, _ in groups]),
        (Column("layers"), [count(layers.count) for _, layers in groups]),
        (Column("span", "left"), [spans(layers) for _, layers in groups]),
    ]


def is_hybrid(model: ModelSpec) -> bool:
    """Return whether the model has several layer groups, so that a screen needs one row per
    group.
    """
    return len(list(model.groups())) > 1


def has_attention(model: ModelSpec) -> bool:
    """Return whether a layer has an attention kernel with heads; recurrent layers have none."""
    return any(layers.attention.widths().n_heads for _, layers in model.groups())


def spans(layers: Layers) -> str:
    """Return the span of a group: 'window 1,024', 'full', 'full + cross'; '-' for a recurrent
    layer.
    """
    span = layers.attention.span.label if layers.attention.widths().n_heads else "-"
    return span + (" + cross" if layers.cross else "")


def attention_source(model: ModelSpec) -> str:
    """Return the papers behind the model's kinds of attention, each once."""
    sources = [kind.source for _, layers in model.groups() for kind in layers.attentions]
    return "; ".join(dict.fromkeys(sources))


def kv_heads(kind: Attention) -> int:
    """Return the KV heads that a decode step reads; MLA has one latent for all query heads, so
    1.
    """
    return kind.widths(Run(1, 1, 2)).n_kv_heads
