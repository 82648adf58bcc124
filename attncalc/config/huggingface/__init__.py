"""Convert a model's config.json to a Document with attncalc's keys, by the rules of its
model_type's family.

- family.py: which family's rules a config is read by (families/*.yaml)
- fields.py: a config's fields under the names and with the defaults of their class (classes.json)
- architectures.py: the class in `architectures` -> its model_type
- formulas.py: a rule -> its value
- layers.py: the keys of each layer -> the shortest pattern of kinds of layers
- read.py: the whole config -> the Document: keys of the model and its stacks, notes
- sizes.py: the sizes that are missing, or that have another family's name (../size_names.txt)
- values.py: the types of fields, and which of them may be null or 0
- unused_fields.py: the fields that no rule uses: which of them are an error, and which are ignored
  with a note
"""

from .family import supported_model_types, unsupported_model_types
from .fields import transformers_version
from .read import convert_config

__all__ = [
    "convert_config",
    "supported_model_types",
    "transformers_version",
    "unsupported_model_types",
]
