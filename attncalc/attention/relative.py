"""Grouped attention with convolved keys and values and a learned bias per distance (Inkling)."""

from typing import Any

from ..quantity import documented
from ..records import dataclass
from .grouped import Grouped
from .kind import CacheSpec, Matrix


@dataclass(frozen=True, kw_only=True)
class Relative(Grouped):
    """Grouped attention whose keys and values pass a short convolution, with a bias that each query
    computes.

    Each query head computes d_rel elements and multiplies them by a table of d_rel x rel_extent
    that all heads share. The result is the bias of a key by its distance. The convolutions cache
    d_conv columns in fp32. So do the convolutions after the attention and the MLP, with
    layer_channels channels in all, which are counted here too.

    Source: transformers' modeling_inkling.py (InklingAttention, InklingShortConvolution).
    """

    d_rel: int = documented("elements per head from which the bias of a distance is computed")
    rel_extent: int = documented("distances that have a bias")
    d_conv: int = documented("width of the convolution")
    layer_channels: int = documented(
        "channels of a layer's other convolutions, whose states are cached beside K and V"
    )

    source = "Inkling, transformers' modeling_inkling.py"

    @property
    def headline(self) -> str:
        return f"{super().headline}, a bias for {self.rel_extent} distances"

    @property
    def _channels(self) -> int:
        return self.n_kv_heads * (self.d_head + self._d_v)

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        return (
            *super().matrices(d_model, d_source),
            Matrix("W_rel", d_model, self.n_heads * self.d_rel, 0, "queries"),
            Matrix("rel_table", self.d_rel, self.rel_extent, 0, "queries", times=self.n_heads),
            Matrix("conv", self._channels, self.d_conv),
        )

    def cache(self) -> tuple[CacheSpec, ...]:
        channels = self._channels + self.layer_channels
        return (
            *super().cache(),
            CacheSpec("convolutions", channels, self.d_conv, per="sequence", dtype="fp32", spare=1),
        )

    def facts(self) -> dict[str, Any]:
        fields = ("d_rel", "rel_extent", "d_conv", "layer_channels")
        return {**super().facts(), **{name: int(getattr(self, name)) for name in fields}}
