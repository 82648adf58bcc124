"""Attention layers in torch at a model's true sizes, to be compared with the formulas of `attncalc.attention`.

A new kind needs a layer class in a file of this package and a line in LAYERS.
"""

from __future__ import annotations

from ...attention import Attention, Cross, Grouped
from ...attention.latent import Latent
from ...attention.linear import GatedDeltaNet, Lightning, ShortConvolution
from ...attention.mamba import Mamba, Mamba2
from ...attention.rglru import RgLru
from ...attention.rwkv import Rwkv, Rwkv5
from ...attention.xlstm import MLstm
from ...errors import CannotCheckError
from .base import AttentionLayer
from .grouped import CrossAttention, GroupedAttention
from .latent import LatentAttention
from .linear import DeltaLayer, LightningLayer, ShortConvolutionLayer
from .mamba import Mamba2Layer, MambaLayer
from .recurrent import RecurrentLayer
from .rglru import RgLruLayer
from .rwkv import Rwkv5Layer, RwkvLayer
from .xlstm import MLstmLayer

LAYERS: dict[type, type[AttentionLayer] | type[RecurrentLayer]] = {
    Cross: CrossAttention,
    GatedDeltaNet: DeltaLayer,
    Grouped: GroupedAttention,
    Latent: LatentAttention,
    Lightning: LightningLayer,
    MLstm: MLstmLayer,
    Mamba: MambaLayer,
    Mamba2: Mamba2Layer,
    RgLru: RgLruLayer,
    Rwkv: RwkvLayer,
    Rwkv5: Rwkv5Layer,
    ShortConvolution: ShortConvolutionLayer,
}
"""The layer of each attention kind."""


def layer_class(kind: Attention) -> type[AttentionLayer] | type[RecurrentLayer]:
    """Return the layer class of a kind. Raises CannotCheckError if there is none, or it lacks one of the kind's fields.

    A subclass of a kind has no layer unless it is listed itself: its formulas differ.
    """
    layer = LAYERS.get(type(kind))
    fields = layer.unsupported(kind) if layer else []
    if layer is None or fields:
        label = f"{kind.label} with {' and '.join(fields)}" if fields else kind.label
        raise CannotCheckError(
            f"verify has no torch layer of {label}",
            "--against transformers compares a config.json with its own class instead",
        )
    return layer


def build(kind: Attention, d_model: int, d_source: int) -> AttentionLayer | RecurrentLayer:
    """Return the layer of a kind, with weights not yet initialised. Raises CannotCheckError as `layer_class` does."""
    layer = layer_class(kind)
    if issubclass(layer, RecurrentLayer):
        return layer(kind, d_model)
    return layer(kind, d_model, d_source)
