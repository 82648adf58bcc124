"""The cache of one layer, as vLLM describes it: pages of some tokens, or of one state
(v1/kv_cache_interface.py).
"""

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from ...attention import CacheSpec, Chunked, Sliding
from ...attention.kind import POOLING_ROLES
from ...errors import AttncalcError, NotSupportedError
from ...quantity import ceil_div, exact_div, symbol_like
from ...records import NamedTuple
from ...units import dtype
from ..ds_mla import (
    ALIGNMENT,
    KEY_BYTES,
    LARGE_POOL,
    SHARED_KEYS,
    SHARED_POOLED_KEYS,
    SHARED_POOLS,
    SMALL_POOL,
    check_stored,
    index_key_bytes,
    latent_row_bytes,
    padded_page,
)
from .options import TURBOQUANT, VllmArgs

Kind = Literal["full", "mla", "sliding", "chunked", "cross", "mamba"]
STATE_ROLES = ("convolution", "state", "short_convolution")
_HEAD_ROLES = ("kv", "k", "v")
# Dtypes that vLLM has for K and V. A latent can only have those without scales.
_DTYPES = ("fp32", "fp16", "bf16", "fp8", "int8", "int4", "fp4", *TURBOQUANT)
# Bytes to which V0 aligns a token's latent: 1,152 become 1,280.
_ENTRY_ALIGNMENT = 256
# Tokens of a block of pools (get_preferred_block_size in v1/attention/backends/mla/sparse_swa.py),
# and of shared ones (get_supported_kernel_block_sizes in models/deepseek_v41/sparse_mla.py).
POOLING_BLOCK = 256
SHARED_POOLING_BLOCK = 128
# Tokens of a block of compressed attention's window (DeepseekV4SWACache in
# v1/attention/backends/mla/sparse_swa.py), and in DeepSeek-V4.1 except on compute capability 12
# (models/deepseek_v41/attention.py).
_WINDOW_BLOCK = 64
_SHARED_WINDOW_BLOCK = 32
# Tokens to pool that a request of DeepSeek-V4.1 has at least (CompressorStateCache in its
# compressor.py).
_SHARED_RING = 8
# Pool size: tokens of a block of unpooled tokens (CompressorStateCache in
# models/deepseek_v4/compressor.py).
_UNPOOLED_BLOCKS = {SMALL_POOL: 4, LARGE_POOL: 8}
# Titles of specs: of compressed attention, of averaged keys, and of a convolution beside the mixer.
POOLS = "pools"
WINDOWS = "windows"
UNPOOLED = "tokens to pool"
CONVOLUTION = "short convolution"


class LayerSpec(NamedTuple):
    """The cache of one layer (vLLM's KVCacheSpec)."""

    kind: Kind  # vLLM's type of spec
    block_size: int  # tokens per block
    token_bytes: int  # bytes per token; of a state ("mamba"), all its bytes
    # (rows, width) of each tensor, which tells layers of equal bytes apart
    shape: tuple[tuple[int, int], ...] = ()
    window: int | None = None  # tokens of the sliding window or the chunk; None without one
    padded: int | None = None  # bytes that the page is padded to; None without padding
    rate: int = 1  # tokens per stored row, which has token_bytes; more than 1 for pools
    title: str = ""  # what it stores, for people; '' if the kind says it
    stride: int = 1  # bytes of which a block of all layers is a multiple

    @property
    def page_bytes(self) -> int:
        """Bytes of one block of one layer, with padding."""
        return self.padded or self.unpadded_page_bytes

    @property
    def unpadded_page_bytes(self) -> int:
        """Bytes of one block of one layer, without padding."""
        if self.kind == "mamba":
            return self.token_bytes
        rows = self.block_size if self.rate == 1 else self.block_size // self.rate
        return rows * self.token_bytes

    @property
    def is_full(self) -> bool:
        """Whether it stores every token. vLLM treats such layers as one type, whatever their
        widths.
        """
        return self.kind in ("full", "mla")

    @property
    def label(self) -> str:
        """'full', 'sliding 1,024'."""
        return self.title or (
            self.kind if self.window is None else f"{self.kind} {int(self.window):,}"
        )

    @property
    def grouping_key(self) -> tuple[object, ...]:
        """Equal for layers that vLLM can put in one group; of plain ints, because formulas do not
        matter here.
        """
        return (
            self.kind,
            int(self.block_size),
            int(self.page_bytes),
            self.shape,
            self.window and int(self.window),
        )


def layer_specs(
    cached: tuple[CacheSpec, ...],
    args: VllmArgs,
    block_size: int,
    *,
    sparse: bool = False,
    shares_pools: bool = False,
) -> Iterator[LayerSpec]:
    """Yield the specs of one layer: K and V, a latent, an indexer's keys, states, K and V of the
    source, pools.

    With `sparse`, another layer has an indexer. With `shares_pools`, layers read pools of others
    (DeepSeek-V4.1).

    Raises AttncalcError if vLLM does not support such a cache, or its layout is not implemented
    here.
    """
    for c in cached:
        _check_known(c)
    sparse |= any(c.role in ("indexer", "gated_averages") for c in cached)
    heads = [c for c in cached if c.role in _HEAD_ROLES and c.per == "token"]
    source_heads = [c for c in cached if c.role in _HEAD_ROLES and c.per == "source token"]
    states = [c for c in cached if c.role in ("convolution", "state")]
    if heads:
        yield _head_spec(heads, args, block_size)
    for c in cached:
        if c.role == "latent":
            latent_bytes = _latent_bytes(c, args, sparse=sparse)
            if args.version.aligns_latent_entries:
                latent_bytes = _ENTRY_ALIGNMENT * ceil_div(latent_bytes, _ENTRY_ALIGNMENT)
            yield LayerSpec("mla", block_size, latent_bytes, _shape([c]))
        # for any kv_dtype; of blocks of keys (MiniMax-M3) in the model's dtype
        if c.role == "indexer":
            key = args.dtype.row_bytes(c.width) if heads else index_key_bytes(c.width)
            yield LayerSpec("mla", block_size, key, _shape([c]))
    if states:
        yield LayerSpec(
            "mamba", block_size, sum(_state_bytes(c, args) for c in states), _shape(states)
        )
    yield from _beside_mixer(cached, args, block_size)
    if source_heads:
        yield _head_spec(source_heads, args, block_size)._replace(kind="cross")
    pooling = [c for c in cached if c.role in POOLING_ROLES]
    yield from _pooling_specs(pooling, args, block_size, shares_pools=shares_pools)


def _check_known(cached: CacheSpec) -> None:
    """Raise AttncalcError for a cache whose layout in vLLM is not implemented here."""
    is_cut = cached.role == "latent" and isinstance(cached.span, Sliding | Chunked)
    if cached.role != "other" and not is_cut:
        return
    span = f", {cached.span.label}" if is_cut else ""
    raise AttncalcError(
        f"attncalc does not know how vLLM stores this cache: {cached.name}{span}",
        "use --engine ideal for a lower bound",
    )


def _shape(cached: list[CacheSpec]) -> tuple[tuple[int, int], ...]:
    return tuple((int(c.rows), int(c.width)) for c in cached)


def _head_spec(heads: list[CacheSpec], args: VllmArgs, block_size: int) -> LayerSpec:
    stored = args.kv_dtype
    if stored.name not in _DTYPES:
        raise AttncalcError(f"vLLM has no cache in {stored.name}", f"known: {', '.join(_DTYPES)}")
    span = heads[0].span
    kind: Kind = "full"
    if isinstance(span, Sliding):
        kind = "sliding"
    elif isinstance(span, Chunked):
        kind = "chunked"
    widths = [c.width for c in heads]
    if args.version.pads_values:
        widths = [max(widths, key=int)] * len(widths)
    if stored.name in TURBOQUANT and (kind != "full" or len({int(width) for width in widths}) > 1):
        raise NotSupportedError(
            f"{stored.name} is only supported for full attention with keys and values of one width",
            "use int4 or fp8",
        )
    token_bytes = sum(
        c.rows * stored.row_bytes(width) for c, width in zip(heads, widths, strict=True)
    )
    if kind == "sliding":
        block_size = args.version.window_block(block_size)
    return LayerSpec(kind, block_size, token_bytes, _shape(heads), span.reach)


def _latent_bytes(latent: CacheSpec, args: VllmArgs, *, sparse: bool) -> int:
    """Return the bytes of one token's latent.

    In a model with indexers, FlashMLA's fp8 is the format fp8_ds_mla of 656 B. FlashInfer's is
    plain fp8.
    """
    stored = args.kv_dtype
    if stored.group is not None:
        raise AttncalcError(
            f"vLLM has no cache of latents in {stored.name}", "known: fp32, fp16, bf16, fp8"
        )
    by_flashinfer = (
        args.capability == 10 and args.version.has_sparse_flashinfer
    ) or not latent.rotary
    if not (sparse and stored.name == "fp8") or by_flashinfer:
        return stored.row_bytes(latent.width)
    if latent.width != 576:
        raise AttncalcError(
            f"vLLM's fp8_ds_mla is for latents of 512 + 64 elements, not of {int(latent.width)}",
            "use --kv-dtype bf16",
        )
    return latent_row_bytes(latent)


def _state_bytes(state: CacheSpec, args: VllmArgs) -> int:
    """Return the bytes of one layer's convolution or state
    (model_executor/layers/mamba/mamba_utils.py).

    A convolution of width k stores k - 1 tokens, and those that a drafter may have to roll back: 3
    + 2 = 5 tokens for a width of 4 and 2 drafted tokens.
    """
    if state.role == "convolution":
        drafted = args.speculative_tokens
        if drafted:
            meaning = "tokens that a drafter proposes in a step"
            drafted = symbol_like(state.rows, "speculative_tokens", drafted, meaning)
        return state.rows * args.dtype.row_bytes(state.width - 1 + drafted, "conv_bytes")
    if state.dtype is None:  # lightning attention, to which mamba_ssm_cache_dtype does not apply
        return state.rows * args.dtype.row_bytes(state.width, "state_bytes")
    model_dtype = dtype(state.requested_dtype) if state.requested_dtype else args.dtype
    return state.rows * (args.mamba_ssm_cache_dtype or model_dtype).row_bytes(
        state.width, "state_bytes"
    )


def _beside_mixer(
    cached: Sequence[CacheSpec], args: VllmArgs, block_size: int
) -> Iterator[LayerSpec]:
    """Yield a short convolution's state, and of an indexer's keys the averages of pools and the
    keys to average.

    A request has a ring of those: with pools of 4 and 2 drafted tokens, of 8 keys. Keys are in the
    model's dtype (models/qwen4_exp/common/qsa_cache.py, which also stores three positions with each
    key of the ring).
    """
    for c in cached:
        if c.role == "short_convolution":
            size = c.rows * args.dtype.row_bytes(c.width + args.speculative_tokens)
            yield LayerSpec("mamba", block_size, size, _shape([c]), title=CONVOLUTION)
        if c.role not in ("averages", "gated_averages"):
            continue
        _check_averages(args, is_gated=c.role == "gated_averages")
        pool = c.pool_size
        key = args.dtype.row_bytes(c.width)
        unpooled = key
        if c.role == "gated_averages":  # a key and a gate of half that width each
            key = index_key_bytes(c.width // 2)
            unpooled = args.dtype.row_bytes(c.width // 2 * 2)
        ring = -(-(pool + args.speculative_tokens) // pool) * pool
        yield LayerSpec("mla", block_size, key, _shape([c]), rate=pool, title=POOLS)
        yield LayerSpec("mamba", ring, ring * unpooled, _shape([c]), title=f"{UNPOOLED} by {pool}")


def _check_averages(args: VllmArgs, *, is_gated: bool) -> None:
    version = args.version
    model = "GLM-5.3-Flash" if is_gated else "Qwen4"
    version.require("has_gated_averages" if is_gated else "has_averaged_keys", "vLLM", model)
    allowed = ("fp8",) if version.has_averaged_keys_with_fp8 or is_gated else ()
    if args.kv_dtype.name not in (args.dtype.name, *allowed):
        raise AttncalcError(
            f"vLLM {version.name} does not store {model}'s keys and values in {args.kv_dtype.name}",
            "use --kv-dtype bf16, or from 0.31.0 on fp8",
        )
    if args.pp > 1 or args.dcp > 1:
        raise NotSupportedError(f"--pp and --dcp are not supported for {model} in vLLM", "use --tp")


def _pooling_specs(
    cached: Sequence[CacheSpec], args: VllmArgs, block_size: int, *, shares_pools: bool
) -> Iterator[LayerSpec]:
    """Yield the specs of compressed attention (attention.py and compressor.py in models/deepseek_v4
    and deepseek_v41).

    An unpooled token has keys and gates in fp32, both twice if pools overlap.
    """
    if not cached:
        return
    from ...attention.picked import Pools

    _check_pooling(cached, args, shares_pools=shares_pools)
    key = KEY_BYTES
    pooled_key = KEY_BYTES
    alignment = ALIGNMENT
    stride = 1
    if shares_pools and args.capability == 10:
        key, alignment = SHARED_KEYS
        pooled_key = SHARED_POOLED_KEYS[0] if args.version.has_pools_in_fp4 else key
        stride = math.lcm(key, pooled_key) if args.version.packs_whole_rows else 1
    for c in cached:
        if not isinstance(c.span, Pools):
            if shares_pools and args.capability != 12:
                block = _SHARED_WINDOW_BLOCK
            else:
                block = _WINDOW_BLOCK
            spec = LayerSpec(
                "sliding", block, key, _shape([c]), c.span.reach, title=WINDOWS, stride=stride
            )
        elif c.role == "unpooled" and shares_pools:  # a ring for the drafted tokens and two more
            ring = max(_SHARED_RING, 1 << (args.speculative_tokens + 1).bit_length())
            size = ring * c.rows * dtype("fp32").row_bytes(c.width)
            yield LayerSpec(
                "mamba", ring, size, _shape([c]), title=f"{UNPOOLED} by {int(c.span.size)}"
            )
            continue
        elif c.role == "unpooled":
            size = int(c.span.size)
            window = exact_div(c.rows, 2) * c.span.size
            token_bytes = c.rows * dtype("fp32").row_bytes(c.width)
            block = _UNPOOLED_BLOCKS[size]
            spec = LayerSpec(
                "sliding", block, token_bytes, _shape([c]), window, title=f"{UNPOOLED} by {size}"
            )
        elif c.role == "last_pool":  # the window of unpooled tokens has them
            continue
        else:
            row = pooled_key if c.role == "pools" else index_key_bytes(c.width)
            spec = LayerSpec("mla", block_size, row, _shape([c]), rate=c.span.size, title=POOLS)
        yield spec._replace(padded=padded_page(spec.page_bytes, alignment))


def _check_pooling(cached: Sequence[CacheSpec], args: VllmArgs, *, shares_pools: bool) -> None:
    args.version.require("has_compressed_attention", "vLLM", "compressed attention (DeepSeek-V4)")
    if shares_pools:
        args.version.require("has_shared_pools", "vLLM", "DeepSeek-V4.1")
    check_stored(
        cached,
        args.kv_dtype.name,
        "vLLM",
        SHARED_POOLS if shares_pools else (SMALL_POOL, LARGE_POOL),
    )
    sizes = (SHARED_POOLING_BLOCK, POOLING_BLOCK) if shares_pools else (POOLING_BLOCK,)
    if args.block_size not in (None, *sizes):
        raise AttncalcError(
            f"--block-size {args.block_size}: vLLM's blocks of compressed attention have "
            f"{sizes[0]} tokens here",
            "leave --block-size out",
        )
    if args.disable_hybrid_kv_cache_manager:
        raise NotSupportedError(
            "--disable-hybrid-kv-cache-manager is not supported for compressed attention",
            "leave it out",
        )
