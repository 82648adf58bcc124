"""A model's own config.json -> a Document of attncalc's keys, by the rules of its model_type's family.

read.py           config.json -> Document: the keys of the model, its stacks and its notes
layers.py         the keys of each layer -> the shortest pattern of kinds of layers
family.py         which family's rules a config is read by (families/*.yaml)
formulas.py       a rule -> its value
fields.py         a config's fields under the names and with the defaults of their class (classes.json)
unused_fields.py  the fields that matter and that no rule uses
"""

from __future__ import annotations

from .family import supported_model_types, unsupported_model_types
from .fields import transformers_version
from .read import convert_config

__all__ = ["convert_config", "supported_model_types", "transformers_version", "unsupported_model_types"]
