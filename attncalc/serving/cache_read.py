"""The settings of an engine that change the speed of a step, and the bytes of cache that a step
reads with them.
"""

from typing import Any

from ..attention import CacheSpec
from ..cost.cache import KVCache
from ..cost.common import cache_dtype, symbolic
from ..engines.engine import PerLayerEngine
from ..engines.ideal import ENGINE as IDEAL
from ..engines.ideal import row_bytes
from ..model import ModelSpec
from ..quantity import Quantity, exact_div, named, quantity, summed, symbol
from ..records import NamedTuple
from ..units import DType, dtype
from ..workload import Workload
from .request import ResolvedRequest


class ServingConfig(NamedTuple):
    """The settings of an engine that change the speed of a step."""

    stages: int = 1  # pipeline stages: devices that each have a part of the layers
    # decode-context-parallel devices, which divide each sequence's tokens between them
    dcp: int = 1
    kv_dtype_k: DType | None = None  # the dtype of K; None for the workload's
    kv_dtype_v: DType | None = None  # the dtype of V; None for the workload's
    drafts: int = 0  # tokens that a drafter proposes per step
    whole: frozenset[str] = frozenset()  # roles of caches whose tokens are not divided
    # the dtype of states without one of their own; None for the workload's
    state_dtype: DType | None = None

    @classmethod
    def of(cls, resolved: ResolvedRequest) -> "ServingConfig":
        args = resolved.args
        k, v = resolved.engine.cache_dtypes(args)
        state = resolved.engine.state_dtype
        return cls(
            stages=resolved.gpus if resolved.whole_layers else args.pp,
            dcp=args.token_shares,
            kv_dtype_k=k,
            kv_dtype_v=v,
            state_dtype=dtype(state) if state else None,
            drafts=args.speculative_tokens,
            whole=resolved.engine.whole_with_dcp,
        )

    def divides(self, spec: CacheSpec) -> bool:
        """Return whether `dcp` devices divide the tokens; vLLM does not divide windows and
        recurrent states.
        """
        return (
            self.dcp > 1
            and spec.per == "token"
            and spec.span.reach is None
            and spec.role not in self.whole
        )

    def pieces(self, spec: CacheSpec, kv_dtype: DType) -> tuple[tuple[str, CacheSpec, DType], ...]:
        """Return (name, spec, dtype) of each tensor that is stored: K and V are two tensors if
        their dtypes differ.
        """
        k = self.kv_dtype_k or kv_dtype
        v = self.kv_dtype_v or kv_dtype
        if spec.role == "kv" and k != v:
            half = spec._replace(rows=exact_div(spec.rows, 2))
            return (("k_cache", half, k), ("v_cache", half, v))
        if spec.per == "sequence":
            stored = self.state_dtype if spec.dtype is None else None
            return ((f"{spec.role}_cache", spec, stored or kv_dtype),)
        by_role = {"kv": k, "k": k, "latent": k, "indexer": k, "v": v}
        name = "k_v_cache" if spec.role == "kv" else f"{spec.role}_cache"
        return ((name, spec, by_role.get(spec.role, kv_dtype)),)


# One device, or tensor-parallel ones, and one dtype for K and V.
ONE_DEVICE = ServingConfig()


class _ConfiguredEngine(PerLayerEngine[Any]):
    """An engine that stores the bytes of the ideal one, with the dtypes and devices of a
    ServingConfig.
    """

    name = "served"

    def __init__(self, config: ServingConfig) -> None:
        self.config = config

    def layer_bytes(self, spec: CacheSpec, workload: Workload, kv_dtype: DType) -> int:
        sizes = []
        for name, piece, piece_dtype in self.config.pieces(spec, kv_dtype):
            size = IDEAL.layer_bytes(piece, workload, piece_dtype)
            # A formula may not have the bytes of two dtypes under one name.
            if piece_dtype != kv_dtype:
                size = named(size, name, f"bytes of it in one layer, in {piece_dtype.name}")
            sizes.append(size)
        return self._share(spec, summed(sizes))

    def token_bytes(self, spec: CacheSpec, workload: Workload, kv_dtype: DType) -> int:
        pieces = self.config.pieces(spec, kv_dtype)
        return self._share(
            spec,
            sum(
                IDEAL.token_bytes(piece, workload, piece_dtype) for _, piece, piece_dtype in pieces
            ),
        )

    def _share(self, spec: CacheSpec, size: int) -> int:
        """Return the part of `size` bytes that one device stores."""
        if not self.config.divides(spec):
            return size
        return size // symbol("dcp", self.config.dcp, "decode-context-parallel devices")


def cache_read(
    model: ModelSpec, workload: Workload, config: ServingConfig = ONE_DEVICE
) -> Quantity:
    """Return the bytes of cache that a step reads or writes on one device.

    That is the whole cache, less what the token of a decode step does not attend to: keys that an
    indexer did not pick, or an earlier chunk.
    """
    if not model.main.has_cache:
        return Quantity(0)
    whole = KVCache(
        *symbolic(model, workload), _ConfiguredEngine(config), cache_dtype(model, workload)
    ).total
    unread = 0
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
    kv_dtype = cache_dtype(model, workload)
    unread = 0
    for _, layers in model.plain().groups():
        for spec in (spec for spec in layers.cache() if spec.per == "token"):
            tokens = max(
                0,
                spec.span.cached_tokens(workload.context)
                - spec.span.visible_keys(workload.context),
            )
            for _, piece, piece_dtype in config.pieces(spec, kv_dtype):
                size = workload.batch * tokens * row_bytes(piece, piece_dtype)
                unread += layers.count * (size // config.dcp if config.divides(spec) else size)
    return unread
