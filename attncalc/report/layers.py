"""What reports say of layer groups: their facts for JSON, their names for screens."""

from __future__ import annotations

from typing import Any

from ..attention import Attention
from ..cost.common import group_name
from ..model import Layers, ModelSpec
from ..workload import Run


def layer_facts(model: ModelSpec) -> list[dict[str, Any]]:
    """One entry a distinct layer group, in the order in which cost functions give their groups."""
    return [
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


def is_hybrid(model: ModelSpec) -> bool:
    """It has more than one kind of layer, so that a screen needs a row for each."""
    return len(list(model.groups())) > 1


def attends(model: ModelSpec) -> bool:
    """It has an attention layer, whose kernel has heads; a model of recurrent layers alone has none."""
    return any(layers.attention.widths().n_heads for _, layers in model.groups())


def spans(layers: Layers) -> str:
    """'window 1,024', 'full', 'full + cross'; '-' for a layer that sees its past through a state."""
    own = layers.attention.span.label if layers.attention.widths().n_heads else "-"
    return own + (" + cross" if layers.cross else "")


def attention_source(model: ModelSpec) -> str:
    """The papers behind the attention of the model's kinds, each once."""
    found = [kind.source for _, layers in model.groups() for kind in layers.attentions]
    return "; ".join(dict.fromkeys(found))


def kv_heads(kind: Attention) -> int:
    """KV heads that a decode step reads; MLA's is the one latent for all."""
    return kind.widths(Run(1, 1, 2)).n_kv_heads
