"""Attention layers in torch at a model's true sizes, to be compared with the formulas of
`attncalc.attention`.

A kind and its layer share their names: `attention/rglru.py` has RgLru, `verify/layers/rglru.py` has
RgLruLayer.
"""

from importlib import import_module
from importlib.util import find_spec

from ...attention import Attention
from ...errors import CannotCheckError
from .base import AttentionLayer
from .recurrent import RecurrentLayer


def find_layer(kind: type) -> type[AttentionLayer] | type[RecurrentLayer] | None:
    """Return the layer class of a class of attention, or None. A subclass has none: its formulas
    differ.
    """
    module = f"{__name__}.{kind.__module__.rpartition('.')[2]}"
    if find_spec(module):
        return getattr(import_module(module), f"{kind.__name__}Layer", None)
    return None


def layer_class(kind: Attention) -> type[AttentionLayer] | type[RecurrentLayer]:
    """Return the layer class of a kind.

    Raises CannotCheckError if there is none, or it lacks one of the kind's fields.
    """
    layer = find_layer(type(kind))
    if layer:
        fields = [field for field in layer.not_implemented if getattr(kind, field)]
    else:
        fields = []
    if layer is None or fields:
        label = f"{kind.label} with {' and '.join(fields)}" if fields else kind.label
        raise CannotCheckError(
            f"verify has no torch layer of {label}",
            "--against transformers compares a config.json with its own class instead",
        )
    return layer


def build(kind: Attention, d_model: int, d_source: int) -> AttentionLayer | RecurrentLayer:
    """Return the layer of a kind, with weights not yet initialised. Raises CannotCheckError as
    `layer_class` does.
    """
    layer = layer_class(kind)
    if issubclass(layer, RecurrentLayer):
        return layer(kind, d_model)
    return layer(kind, d_model, d_source)
