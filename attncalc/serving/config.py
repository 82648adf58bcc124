"""How an engine runs a model, as far as its speed depends on it; and the bytes of cache that a step then reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..attention import CacheSpec
from ..cost.cache import cache_bytes
from ..cost.common import cache_dtype
from ..engines import ideal
from ..model import ModelSpec
from ..quantity import Quantity, exact_div, named, quantity, symbol, total
from ..units import DType, dtype
from ..workload import Workload

if TYPE_CHECKING:
    from .request import ResolvedRequest


class ServingConfig(NamedTuple):
    """How an engine runs a model, as far as its speed depends on it.

    Attributes:
        stages: Devices in a row, each with layers of its own.
        dcp: Decode-context-parallel devices, which divide each sequence's tokens between them.
        kv_dtype_k: The dtype of K; None for the workload's.
        kv_dtype_v: The dtype of V; None for the workload's.
        drafts: Tokens that a drafter proposes per step.
    """

    stages: int = 1
    dcp: int = 1
    kv_dtype_k: DType | None = None
    kv_dtype_v: DType | None = None
    drafts: int = 0

    @classmethod
    def of(cls, resolved: ResolvedRequest) -> ServingConfig:
        """Return how a request is served."""
        args = resolved.args
        return cls(
            stages=resolved.gpus if resolved.whole_layers else args.pp,
            dcp=args.dcp,
            kv_dtype_k=args.kv_dtype_k,
            kv_dtype_v=args.kv_dtype_v,
            drafts=args.speculative_tokens,
        )

    def divides(self, cached: CacheSpec) -> bool:
        """Return whether devices divide its tokens. In vLLM those of windows and recurrent states are not divided."""
        return self.dcp > 1 and cached.scales_with == "context" and cached.span.reach is None

    def pieces(self, cached: CacheSpec, stored: DType) -> tuple[tuple[str, CacheSpec, DType], ...]:
        """Return (name, rows, dtype) of what is stored: K and V are two pieces if their dtypes differ."""
        k, v = self.kv_dtype_k or stored, self.kv_dtype_v or stored
        if cached.role == "kv" and k != v:
            half = cached._replace(rows=exact_div(cached.rows, 2))
            return (("k_cache", half, k), ("v_cache", half, v))
        by_role = {"kv": k, "k": k, "latent": k, "indexer": k, "v": v}
        name = "k_v_cache" if cached.role == "kv" else f"{cached.role}_cache"
        return ((name, cached, by_role.get(cached.role, stored)),)


ONE_DEVICE = ServingConfig()
"""One device, or tensor-parallel ones, and one dtype for K and V."""


class _Store:
    """The ideal engine's bytes under a ServingConfig: an `Engine`."""

    NAME = "served"

    def __init__(self, config: ServingConfig) -> None:
        self.config = config

    def layer_bytes(self, cached: CacheSpec, workload: Workload, kv_dtype: DType) -> int:
        sizes = []
        for name, piece, piece_dtype in self.config.pieces(cached, kv_dtype):
            size = ideal.layer_bytes(piece, workload, piece_dtype)
            # A formula may not have the bytes of two dtypes under one name.
            if piece_dtype != kv_dtype:
                size = named(size, name, f"bytes of it in one layer, in {piece_dtype.name}")
            sizes.append(size)
        return self._share(cached, sizes[0] if len(sizes) == 1 else total(sizes))

    def token_bytes(self, cached: CacheSpec, workload: Workload, kv_dtype: DType) -> int:
        pieces = self.config.pieces(cached, kv_dtype)
        return self._share(cached, sum(ideal.token_bytes(piece, workload, of) for _, piece, of in pieces))

    def _share(self, cached: CacheSpec, size: int) -> int:
        if not self.config.divides(cached):
            return size
        return size // symbol("dcp", self.config.dcp, "decode-context-parallel devices")


def cache_read(model: ModelSpec, workload: Workload, config: ServingConfig = ONE_DEVICE) -> Quantity:
    """Return the bytes of cache that a step reads or writes on one device.

    That is the whole cache, except that a decode step does not read what its token does not attend to: keys that an
    indexer did not pick, or an earlier chunk.
    """
    if not model.main.has_cache:
        return Quantity(0)
    whole, unread = cache_bytes(model, workload, _Store(config)), 0
    if workload.phase == "decode":
        unread = _unread(model, workload, config)
    if not unread:
        return whole
    return quantity(
        named(whole, "kv_cache_whole", "bytes of the whole cache")
        - named(unread, "kv_cache_unread", "bytes of cache that the token does not attend to")
    )


def _unread(model: ModelSpec, workload: Workload, config: ServingConfig) -> int:
    """Return the bytes of cache that the token of a decode step does not attend to."""
    stored, unread = cache_dtype(model, workload), 0
    for _, layers in model.plain().groups():
        for cached in layers.cache():
            if cached.scales_with != "context":
                continue
            tokens = max(0, cached.span.cached_tokens(workload.context) - cached.span.visible_keys(workload.context))
            for _, piece, piece_dtype in config.pieces(cached, stored):
                row = (dtype(piece.dtype) if piece.dtype else piece_dtype).row_bytes(piece.width)
                size = workload.batch * tokens * piece.rows * row
                unread += layers.count * (size // config.dcp if config.divides(cached) else size)
    return unread
