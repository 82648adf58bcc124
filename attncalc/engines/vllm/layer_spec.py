"""What a layer caches, as vLLM's specs: the `get_kv_cache_spec` of its attention layers."""

import dataclasses
import math
from collections.abc import Iterator, Sequence

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
from .kv_cache_interface import (
    CONVOLUTION,
    POOLS,
    UNPOOLED,
    WINDOWS,
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)
from .options import TURBOQUANT, VllmArgs

STATE_ROLES = ("convolution", "state", "short_convolution")
HEAD_ROLES = ("kv", "k", "v")
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
# model_types with a language model of Qwen3.5 whose mamba_ssm_dtype vLLM does not read
# (MODELS_CONFIG_MAP in models/config.py).
_WITHOUT_STATE_DTYPE = ("minicpmv4_6",)
# Pool size: tokens of a block of unpooled tokens (CompressorStateCache in
# models/deepseek_v4/compressor.py).
_UNPOOLED_BLOCKS = {SMALL_POOL: 4, LARGE_POOL: 8}


def layer_specs(
    cached: tuple[CacheSpec, ...],
    args: VllmArgs,
    block_size: int,
    *,
    sparse: bool = False,
    shares_pools: bool = False,
    state_blocks: int = 1,
) -> Iterator[KVCacheSpec]:
    """Yield the specs of one layer: K and V, a latent, an indexer's keys, states, K and V of the
    source, pools.

    With `sparse`, another layer has an indexer. With `shares_pools`, layers read pools of others
    (DeepSeek-V4.1). `state_blocks` are the blocks of a request in a group of states.

    Raises AttncalcError if vLLM does not support such a cache, or its layout is not implemented
    here.
    """
    for c in cached:
        _check_known(c)
    sparse |= any(c.role in ("indexer", "gated_averages") for c in cached)
    all_heads = [c for c in cached if c.role in HEAD_ROLES]
    heads = [c for c in all_heads if c.per == "token"]
    source_heads = [c for c in all_heads if c.per == "source token"]
    states = [c for c in cached if c.role in ("convolution", "state")]
    if heads:
        yield _head_spec(heads, args, block_size)
    for c in cached:
        if c.role == "latent":
            latent_bytes = _latent_bytes(c, args, sparse=sparse)
            yield MLAAttentionSpec(block_size, _shape([c]), token_bytes=latent_bytes)
        if c.role == "indexer":
            # for any kv_dtype; of blocks of keys (MiniMax-M3) in the model's dtype
            key_bytes = index_key_bytes(c.width)
            if heads:
                key_bytes = args.dtype.row_bytes(c.width)
            yield MLAAttentionSpec(block_size, _shape([c]), token_bytes=key_bytes)
    if states:
        yield MambaSpec(
            block_size,
            _shape(states),
            state_bytes=sum(_state_bytes(c, args) for c in states),
            state_blocks=state_blocks,
        )
    for c in cached:
        yield from _specs_beside_mixer(c, args, block_size, state_blocks)
    if source_heads:
        source = _head_spec(source_heads, args, block_size)
        yield CrossAttentionSpec(source.block_size, source.shape, token_bytes=source.token_bytes)
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


def _head_spec(
    heads: list[CacheSpec], args: VllmArgs, block_size: int
) -> FullAttentionSpec | SlidingWindowSpec | ChunkedLocalAttentionSpec:
    stored = args.kv_dtype
    if stored.name not in _DTYPES:
        raise AttncalcError(f"vLLM has no cache in {stored.name}", f"known: {', '.join(_DTYPES)}")
    span = heads[0].span
    widths = [c.width for c in heads]
    if args.version.pads_values:
        widths = [max(widths, key=int)] * len(widths)
    if stored.name in TURBOQUANT:
        is_cut = isinstance(span, Sliding | Chunked)
        has_two_widths = len({int(width) for width in widths}) > 1
        if is_cut or has_two_widths:
            raise NotSupportedError(
                f"{stored.name} is only supported for full attention with keys and values of one "
                "width",
                "use int4 or fp8",
            )
    token_bytes = sum(
        c.rows * stored.row_bytes(width) for c, width in zip(heads, widths, strict=True)
    )
    shape = _shape(heads)
    if isinstance(span, Sliding):
        block_size = args.version.window_block(block_size)
        return SlidingWindowSpec(
            block_size, shape, token_bytes=token_bytes, sliding_window=span.reach
        )
    if isinstance(span, Chunked):
        return ChunkedLocalAttentionSpec(
            block_size, shape, token_bytes=token_bytes, attention_chunk_size=span.reach
        )
    return FullAttentionSpec(block_size, shape, token_bytes=token_bytes)


def _latent_bytes(latent: CacheSpec, args: VllmArgs, *, sparse: bool) -> int:
    """Return the bytes of one token's latent, which V0 aligns."""
    row = _latent_row_bytes(latent, args, sparse=sparse)
    if args.version.aligns_latent_entries:
        return _ENTRY_ALIGNMENT * ceil_div(row, _ENTRY_ALIGNMENT)
    return row


def _latent_row_bytes(latent: CacheSpec, args: VllmArgs, *, sparse: bool) -> int:
    """Return the bytes of one token's latent, not aligned.

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
    if args.capability == 9 and args.kv_dtype_of_checkpoint:
        by_flashinfer |= args.version.has_sparse_flashinfer_on_hopper
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
    if args.model_type in _WITHOUT_STATE_DTYPE:
        return state.rows * (args.mamba_ssm_cache_dtype or args.dtype).row_bytes(
            state.width, "state_bytes"
        )
    if state.dtype is None:  # lightning attention, to which mamba_ssm_cache_dtype does not apply
        return state.rows * args.dtype.row_bytes(state.width, "state_bytes")
    model_dtype = dtype(state.requested_dtype) if state.requested_dtype else args.dtype
    return state.rows * (args.mamba_ssm_cache_dtype or model_dtype).row_bytes(
        state.width, "state_bytes"
    )


def _specs_beside_mixer(
    c: CacheSpec, args: VllmArgs, block_size: int, state_blocks: int
) -> Iterator[KVCacheSpec]:
    """Yield a short convolution's state, and of an indexer's keys the averages of pools and the
    keys to average.

    A request has a ring of those: with pools of 4 and 2 drafted tokens, of 8 keys. Keys are in the
    model's dtype (models/qwen4_exp/common/qsa_cache.py, which also stores three positions with each
    key of the ring).
    """
    if c.role == "short_convolution":
        size = c.rows * args.dtype.row_bytes(c.width + args.speculative_tokens)
        yield MambaSpec(
            block_size, _shape([c]), title=CONVOLUTION, state_bytes=size, state_blocks=state_blocks
        )
    if c.role not in ("averages", "gated_averages"):
        return
    is_gated = c.role == "gated_averages"
    _check_averages(args, is_gated=is_gated)
    pool = c.pool_size
    key = args.dtype.row_bytes(c.width)
    unpooled = key
    if is_gated:  # a key and a gate of half that width each
        key = index_key_bytes(c.width // 2)
        unpooled = args.dtype.row_bytes(c.width // 2 * 2)
    ring = -(-(pool + args.speculative_tokens) // pool) * pool
    yield MLAAttentionSpec(
        block_size, _shape([c]), title=POOLS, token_bytes=key, compress_ratio=pool
    )
    yield MambaSpec(ring, _shape([c]), title=f"{UNPOOLED} by {pool}", state_bytes=ring * unpooled)


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


class _PoolRows(NamedTuple):
    """The bytes of compressed attention's rows, and how they are aligned."""

    key: int = KEY_BYTES  # bytes of a window's key
    pooled_key: int = KEY_BYTES  # bytes of a pool's key
    page_alignment: int = ALIGNMENT  # bytes of which a page is a multiple
    block_alignment: int = 1  # bytes of which a block of all layers is a multiple


def _pool_rows(args: VllmArgs, *, shares_pools: bool) -> _PoolRows:
    if not (shares_pools and args.capability == 10):
        return _PoolRows()
    key, page_alignment = SHARED_KEYS
    pooled_key = key
    if args.version.has_pools_in_fp4:
        pooled_key = SHARED_POOLED_KEYS[0]
    block_alignment = 1
    if args.version.packs_whole_rows:
        block_alignment = math.lcm(key, pooled_key)
    return _PoolRows(key, pooled_key, page_alignment, block_alignment)


def _pooling_specs(
    cached: Sequence[CacheSpec], args: VllmArgs, block_size: int, *, shares_pools: bool
) -> Iterator[KVCacheSpec]:
    """Yield the specs of compressed attention (attention.py and compressor.py in models/deepseek_v4
    and deepseek_v41).
    """
    if not cached:
        return
    from ...attention.picked import Pools

    _check_pooling(cached, args, shares_pools=shares_pools)
    rows = _pool_rows(args, shares_pools=shares_pools)
    for c in cached:
        if c.role == "last_pool":  # the window of unpooled tokens has them
            continue
        if not isinstance(c.span, Pools):
            spec: KVCacheSpec = _window_spec(c, args, rows, shares_pools=shares_pools)
        elif c.role == "unpooled":
            spec = _unpooled_spec(c, c.span.size, args, shares_pools=shares_pools)
        else:
            row = rows.pooled_key if c.role == "pools" else index_key_bytes(c.width)
            spec = MLAAttentionSpec(
                block_size, _shape([c]), title=POOLS, token_bytes=row, compress_ratio=c.span.size
            )
        if not isinstance(spec, MambaSpec):
            page = padded_page(spec.page_size_bytes, rows.page_alignment)
            spec = dataclasses.replace(spec, page_size_padded=page)
        yield spec


def _window_spec(
    c: CacheSpec, args: VllmArgs, rows: _PoolRows, *, shares_pools: bool
) -> SlidingWindowSpec:
    """Return the window of keys beside the pools."""
    block_size = _WINDOW_BLOCK
    if shares_pools and args.capability != 12:
        block_size = _SHARED_WINDOW_BLOCK
    assert c.span.reach is not None
    return SlidingWindowSpec(
        block_size,
        _shape([c]),
        title=WINDOWS,
        alignment=rows.block_alignment,
        token_bytes=rows.key,
        sliding_window=c.span.reach,
    )


def _unpooled_spec(
    c: CacheSpec, pool_size: int, args: VllmArgs, *, shares_pools: bool
) -> MambaSpec | SlidingWindowSpec:
    """Return the tokens that are still to be pooled: keys and gates in fp32, both twice if pools
    overlap.

    With shared pools they are a ring, of the drafted tokens and two more.
    """
    title = f"{UNPOOLED} by {int(pool_size)}"
    row = dtype("fp32").row_bytes(c.width)
    if shares_pools:
        ring = max(_SHARED_RING, 1 << (args.speculative_tokens + 1).bit_length())
        size = ring * c.rows * row
        return MambaSpec(ring, _shape([c]), title=title, state_bytes=size)
    return SlidingWindowSpec(
        _UNPOOLED_BLOCKS[int(pool_size)],
        _shape([c]),
        title=title,
        token_bytes=c.rows * row,
        sliding_window=exact_div(c.rows, 2) * pool_size,
    )


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
    if args.without_hybrid_manager:
        tip = "leave them out"
        if args.supports_hybrids:  # otherwise vLLM does not start
            tip += ", or use --no-disable-hybrid-kv-cache-manager"
        raise NotSupportedError(
            "compressed attention needs the hybrid KV-cache manager, which "
            "--disable-hybrid-kv-cache-manager or a connector turns off",
            tip,
        )
