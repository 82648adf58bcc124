"""Cross-attention: the layer of `attention/cross.py`."""

import dataclasses

from torch import Tensor

from ...attention import Cross
from .base import Attend
from .cache import Cache
from .grouped import GroupedLayer


class CrossLayer(GroupedLayer):
    """Cross-attention: K and V are made from the source once and cached."""

    not_implemented = ()

    def __init__(self, kind: Cross, d_model: int, d_source: int) -> None:
        super().__init__(
            dataclasses.replace(kind.heads, fused=False, extra_vectors=None), d_model, d_source
        )

    @staticmethod
    def shrink(kind: Cross) -> Cross:  # type: ignore[override]
        return Cross(GroupedLayer.shrink(kind.heads))

    @staticmethod
    def definition(  # type: ignore[override]
        kind: Cross, weights: dict[str, Tensor], x: Tensor, source: Tensor, mask: Tensor | None
    ) -> Tensor:
        return GroupedLayer.definition(kind.heads, weights, x, source, None)

    def decode(self, x: Tensor, attend: Attend, cache: Cache) -> Tensor:
        """Do what `forward` does, with the K and V of the source that `cache` already holds."""
        k, v = cache.rows
        return self.attend_and_project(
            x, self._heads(self.W_q(x), "q_norm", self.d_head), k, v, attend
        )
