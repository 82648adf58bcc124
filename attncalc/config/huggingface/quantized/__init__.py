"""Read a quantization_config: how a checkpoint stores its matrices, and the dtype of the cache that it asks for.

Each method is read by the rules of the code that writes or loads it. A method or an option that is not known is
returned as unread, and `fit` does not guess its size.
"""

from .by_name import scheme_in_name
from .released import Released, released, to_keys

__all__ = ["Released", "released", "scheme_in_name", "to_keys"]
