"""Values of fields that cannot be what a class expects there."""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite
from typing import Any

from ...errors import AttncalcError
from ...units import truncate
from .fields import Fields

_LAYER_BY_LAYER = ("layer_types", "mlp_layer_types")


def refuse_odd(fields: Fields, read: Collection[str]) -> None:
    """AttncalcError: a field that is read holds another type than its class's default has, a number that
    is no size, or a list for each layer has another length than there are layers.
    """
    for name in sorted(map(fields.own, read)):
        value, default = fields.given.get(name), fields.default(name)
        if value is not None and not _fits(value, default):
            raise AttncalcError(
                f"{name} {truncate(repr(value))} is not {_WORDS.get(type(default), 'a size')}", "correct the config"
            )
    n_layers, further = fields["num_hidden_layers"], fields["num_nextn_predict_layers"] or 0
    if type(n_layers) is not int or type(further) is not int:  # whoever reads it says what it should be
        return
    for name in _LAYER_BY_LAYER:
        value = fields.given.get(name)
        # some lists go on with the layers that predict further tokens, which no figure counts
        if name in read and isinstance(value, list) and len(value) not in (n_layers, n_layers + further):
            raise AttncalcError(
                f"{name} has {len(value)} entries for {n_layers} layers (num_hidden_layers)", "correct one of them"
            )


_WORDS: dict[type, str] = {int: "a whole number", bool: "true or false", str: "a word", list: "a list"}


def _fits(value: Any, default: Any) -> bool:
    if isinstance(value, float) and (not isfinite(value)):
        return False
    if type(value) is int and value < -1:  # -1 is how some configs say none
        return False
    if type(default) is int:
        return type(value) is int or isinstance(value, list)  # or one for each layer
    if type(default) is bool:
        return type(value) is bool
    if isinstance(default, (str, list)):
        return isinstance(value, (type(default), int, float, list))
    return True
