"""What a step reads of the cache, as an engine serves it: dtypes of K and V, devices that share a context."""

from __future__ import annotations

from typing import NamedTuple

from ..attention import CacheSpec
from ..cost.cache import cache_bytes
from ..cost.common import cache_dtype
from ..engines import ideal
from ..model import ModelSpec
from ..quantity import Quantity, exact_div, named, quantity, symbol, total
from ..units import DType, dtype
from ..workload import Workload


class ServingConfig(NamedTuple):
    """How an engine runs a model, as far as its speed depends on it.

    stages: devices that each have layers of their own, one after the other. dcp: decode-context-parallel devices,
    which share each sequence's tokens between them. kv_dtype_k, kv_dtype_v: where they are not the workload's.
    drafts: tokens that are drafted for each step.
    """

    stages: int = 1
    dcp: int = 1
    kv_dtype_k: DType | None = None
    kv_dtype_v: DType | None = None
    drafts: int = 0

    def splits(self, cached: CacheSpec) -> bool:
        """Whether its tokens are shared between devices: those of windows and recurrent states are not (vLLM)."""
        return self.dcp > 1 and cached.scales_with == "context" and cached.span.reach is None

    def pieces(self, cached: CacheSpec, stored: DType) -> tuple[tuple[str, CacheSpec, DType], ...]:
        """What it is stored as: (name, rows, dtype), K and V apart where their dtypes differ."""
        k, v = self.kv_dtype_k or stored, self.kv_dtype_v or stored
        if cached.role == "kv" and k != v:
            half = cached._replace(rows=exact_div(cached.rows, 2))
            return (("k_cache", half, k), ("v_cache", half, v))
        by_role = {"kv": k, "k": k, "latent": k, "indexer": k, "v": v}
        return (
            ("k_v_cache" if cached.role == "kv" else f"{cached.role}_cache", cached, by_role.get(cached.role, stored)),
        )


ALONE = ServingConfig()
"""One device, or tensor-parallel ones, and one dtype for all."""


class _Store:
    """The ideal engine's bytes, as they are served: an `Engine`."""

    NAME = "served"

    def __init__(self, served: ServingConfig) -> None:
        self.served = served

    def layer_bytes(self, cached: CacheSpec, workload: Workload, kv_dtype: DType) -> int:
        found = []
        for name, piece, of in self.served.pieces(cached, kv_dtype):
            size = ideal.layer_bytes(piece, workload, of)
            # one formula may not have two dtypes' bytes under one name
            found.append(size if of == kv_dtype else named(size, name, f"bytes of it in one layer, in {of.name}"))
        return self._share(cached, found[0] if len(found) == 1 else total(found))

    def token_bytes(self, cached: CacheSpec, workload: Workload, kv_dtype: DType) -> int:
        pieces = self.served.pieces(cached, kv_dtype)
        return self._share(cached, sum(ideal.token_bytes(piece, workload, of) for _, piece, of in pieces))

    def _share(self, cached: CacheSpec, size: int) -> int:
        if not self.served.splits(cached):
            return size
        return size // symbol("dcp", self.served.dcp, "decode-context-parallel devices")


def cache_read(model: ModelSpec, asked: Workload, served: ServingConfig = ALONE) -> Quantity:
    """Bytes of the cache that a step reads or writes on one device: all of it, but for what the token of a decode
    step does not attend to (an indexer's picks, a chunk that began anew).
    """
    if not model.main.has_cache:
        return Quantity(0)
    whole, left = cache_bytes(model, asked, _Store(served)), 0
    if asked.phase == "decode":
        left = _unseen(model, asked, served)
    if not left:
        return whole
    unseen = named(left, "kv_cache_unseen", "bytes of cache that the token does not attend to")
    return quantity(named(whole, "kv_cache_kept", "bytes of the whole cache") - unseen)


def _unseen(model: ModelSpec, asked: Workload, served: ServingConfig) -> int:
    stored, found = cache_dtype(model, asked), 0
    for _, layers in model.plain().groups():
        for kept in layers.cache():
            tokens = (
                kept.span.cached_tokens(asked.context) - kept.span.visible(asked.context)
                if kept.scales_with == "context"
                else 0
            )
            for _, piece, dtype_of in served.pieces(kept, stored):
                of = dtype(piece.dtype) if piece.dtype else dtype_of
                left = asked.batch * max(0, tokens) * piece.rows * of.row_bytes(piece.width)
                found += layers.count * (left // served.dcp if served.splits(kept) else left)
    return found
