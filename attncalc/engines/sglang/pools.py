"""What SGLang stores for each layer: a row per token in one of two token pools, and a slot of
recurrent states.

All layers of a pool have rows of one size. A layer without keys of its own (because it shares an
earlier layer's) has a row too: SGLang multiplies by the number of layers, not of caches.
"""

from collections.abc import Sequence

from ...attention import FULL, CacheSpec, Chunked, Full, Sliding
from ...attention.kind import POOLING_ROLES
from ...attention.picked import Blocks, Selected
from ...errors import AttncalcError, NotSupportedError
from ...quantity import ceil_div, exact_div, renamed, symbol_like
from ...records import NamedTuple
from ...units import dtype
from ..ds_mla import index_key_bytes
from ..pipeline import (
    NO_CACHE,
    LayerCacheSpec,
    check_stages,
    cut_into_stages,
    merge_equal,
    sum_over_layers,
)
from .options import SglangArgs

# Elements that share an fp32 scale, in an fp8 latent and in an indexer's key.
_SCALE_GROUP = 128
_INDEX_ROLES = ("indexer", "averages", "gated_averages")
_MINIMAX_M3 = Blocks(128, 16)
_KEY_ROLES = ("kv", "k", "v", "latent")
# The model_types for which SGLang has a sliding-window pool. It stores windows of all others like
# full attention.
#
# Source: SGLang 0.5.23, is_hybrid_swa_model (srt/configs/model_config.py), which lists classes, and
# the configs in srt/configs that set is_hybrid_swa. Text-only Llama 4 (llama4_text) is not among
# them; Gemma 2 and 3, Exaone 4 and OLMo 3 are switched off (srt/arg_groups/model_overrides).
HYBRID_MODEL_TYPES = frozenset(
    {
        "beam",
        "deepseek_v4",
        "diffusion_gemma",
        "dots3_note",
        "embedding_gemma2",
        "gemma4",
        "gemma4_text",
        "gemma4_unified",
        "gpt_oss",
        "granite_swa",
        "granitemoe_swa",
        "inkling_mm_model",
        "iquest_q1",
        "laguna",
        "llama4",
        "mellum",
        "mimo_v2",
        "mimo_v2_flash",
        "muse_glimmer",
        "muse_spark",
        "spark2_5",
        "step3p5",
        "step3p7",
        "unlimited-ocr",
        "unlimited_ocr",
    }
)
# The model_types with multi-token prediction whose config has a text_config.
_WRAPPED = ("qwen3_5", "qwen3_5_moe")
_OTHER_ENGINE = "choose another engine with --engine"
_ONE_POOL = (
    "use --disable-hybrid-swa-memory to store windows like full attention, or choose another engine"
)


class TokenRow(NamedTuple):
    """Bytes of one token in one layer of a token pool."""

    total: int  # all bytes, as SGLang divides the memory by them
    # The bytes that the start-up log counts as K. For a latent that is all but the scales of fp4.
    k: int
    latent: bool  # whether the row is MLA's latent

    @property
    def v(self) -> int:
        """The bytes that the start-up log counts as V."""
        if self.latent:
            return 0
        return int(self.total) - self.k


class StageLayers(NamedTuple):
    full: int  # layers in the full pool
    swa: int  # layers in the sliding-window pool
    indexers: int  # layers with an indexer
    convolution: int  # bytes of one slot, convolutions of all layers
    ssm: int  # bytes of one slot, all other recurrent states of all layers


class ModelPools(NamedTuple):
    """The rows and slots of a model."""

    full: TokenRow  # a row of the full pool
    # a row of the sliding-window pool; None if there is one pool for all layers
    swa: TokenRow | None
    indexer: int  # bytes of an indexer's key; 0 without an indexer
    window: int  # SGLang's sliding_window_size, the tokens before a query that it sees
    states: bool  # whether there are recurrent states
    # Whether the radix cache copies states while a request runs (extra_buffer), which it can unless
    # all states are convolutions
    buffered: bool
    stages: tuple[StageLayers, ...]  # the layers of each pipeline stage


def model_pools(specs: Sequence[LayerCacheSpec], args: SglangArgs) -> ModelPools:
    """Return the rows and slots that SGLang has for those layers. Raises AttncalcError if it does
    not support them.
    """
    cache_specs = [cached for spec in specs for cached in spec.cached]
    for cached in cache_specs:
        _check_supported(cached)
    keys = [cached for cached in cache_specs if cached.role in _KEY_ROLES]
    if not cache_specs:
        raise AttncalcError(*NO_CACHE)
    if not keys:
        raise NotSupportedError(
            "SGLang sizes its pools by keys or latents, and no layer caches any", _OTHER_ENGINE
        )
    states = [cached for cached in cache_specs if cached.per == "sequence"]
    window = _pooled_window(keys, args, has_states=bool(states))
    hybrid = window is not None
    indexer = next((cached for cached in cache_specs if cached.role in _INDEX_ROLES), None)
    if indexer and indexer.role != "indexer":
        args.version.require("has_averaged_keys", "SGLang", "Qwen4 and GLM-5.3-Flash")
    if indexer and indexer.role == "gated_averages" and args.scales_latents:
        raise NotSupportedError(
            "GLM-5.3-Flash in fp8 is only supported on Blackwell GPUs", "use --kv-dtype bf16"
        )
    picks_blocks = any(isinstance(cached.span, Blocks) for cached in keys)
    if picks_blocks:
        args.version.require("has_block_sparse", "SGLang", "MiniMax-M3")
    _check_dtypes(keys, args, has_indexer=indexer is not None, hybrid=hybrid)
    layer_keys = [_keys(spec) for spec in specs if _keys(spec)]
    full_layers = [layer for layer in layer_keys if not (hybrid and _has_window(layer))]
    swa_layers = [layer for layer in layer_keys if _has_window(layer)]
    return ModelPools(
        full=_common_row(full_layers, args, has_indexer=indexer is not None),
        swa=_common_row(swa_layers, args, has_indexer=False) if hybrid else None,
        indexer=_index_key_bytes(indexer, args, picks_blocks=picks_blocks) if indexer else 0,
        window=window or 0,
        states=bool(states),
        buffered=any(cached.role == "state" for cached in states),
        stages=tuple(
            _stage_layers(stage, args, hybrid=hybrid, has_states=bool(states))
            for stage in cut_into_stages(specs, args.pp, stage_sizes)
        ),
    )


def stage_sizes(layers: int, pp: int) -> list[int]:
    """Return how many layers each pipeline stage has; if they do not divide, the last stages get
    one more each.

    10 layers in 4 stages are 2, 2, 3, 3.

    Source: SGLang's get_pp_indices (distributed/utils.py). Raises AttncalcError if there are fewer
    layers than stages.
    """
    check_stages(layers, pp)
    return [(layers + stage) // pp for stage in range(pp)]


def _index_key_bytes(cached: CacheSpec, args: SglangArgs, *, picks_blocks: bool) -> int:
    """Return the bytes of an indexer's key: in fp8 with scales; of averages in bf16, of which a
    pool has one.

    MiniMax-M3's, which pick blocks of keys, are in the model's dtype, or on some GPUs in fp8 beside
    keys in fp8 (get_minimax_sparse_index_dtype in mem_cache/memory_pool.py).

    Qwen4's keys of 128 elements, averaged over 4 tokens: 64 B. The keys that are still to be
    averaged are beside the budget, as is the state of its short convolution
    (mem_cache/qsa_kv_pool.py, ple_state_pool.py).
    """
    if picks_blocks:
        gpus = args.version.gpus_with_fp8_index_keys
        in_fp8 = (args.capability == 10 and "blackwell" in gpus) or (
            args.capability == 9 and "hopper" in gpus
        )
        return (args.kv_dtype if args.kv_dtype.name == "fp8" and in_fp8 else args.dtype).row_bytes(
            cached.width
        )
    if cached.role == "gated_averages":  # a key and a gate of half that width
        key = index_key_bytes(cached.width // 2)
        pool = cached.pool_size
        if args.version.budgets_pools_of_keys:
            return ceil_div(key, pool)
        return key
    if cached.role == "indexer":
        return cached.width + cached.width // _SCALE_GROUP * 4
    return exact_div(cached.width * dtype("bf16").bits // 8, cached.pool_size)


def _keys(spec: LayerCacheSpec) -> list[CacheSpec]:
    return [cached for cached in spec.cached if cached.role in _KEY_ROLES]


def _has_window(keys: Sequence[CacheSpec]) -> bool:
    return any(isinstance(cached.span, (Sliding, Chunked)) for cached in keys)


def _pooled_window(keys: Sequence[CacheSpec], args: SglangArgs, *, has_states: bool) -> int | None:
    """Return SGLang's sliding_window_size; None if all layers are in one pool.

    Raises AttncalcError if SGLang has such a pool for this model, but it is not supported here.
    """
    windows = {cached.span for cached in keys if isinstance(cached.span, (Sliding, Chunked))}
    known = args.model_type is None or args.model_type in HYBRID_MODEL_TYPES
    if not windows or not known or args.disable_hybrid_swa_memory:
        return None
    if has_states or all(cached.span.reach is not None for cached in keys):
        if args.model_type is None:
            return None
        if has_states:
            combination = "together with recurrent states"
        else:
            combination = "without full attention"
        raise NotSupportedError(
            f"SGLang: a sliding-window pool {combination} is not supported", _ONE_POOL
        )
    if len(windows) > 1:
        raise AttncalcError(
            "SGLang's sliding-window pool has one window size, these layers have several", _ONE_POOL
        )
    (span,) = windows
    # without the query's own token
    if isinstance(span, Sliding):
        return int(span.window) - 1
    return int(span.chunk)


def _check_supported(cached: CacheSpec) -> None:
    spans = (Full, Sliding, Chunked, Selected)
    unsupported = None
    is_known = isinstance(cached.span, spans) or cached.span == _MINIMAX_M3
    if cached.role in ("other", *POOLING_ROLES) or not is_known:
        of = "" if cached.span == FULL else f" of {cached.span.description}"
        raise NotSupportedError(
            f"attncalc does not know how SGLang stores this cache: {cached.name}{of}", _OTHER_ENGINE
        )
    if cached.per == "source token":
        unsupported = f"{cached.name} of a source"
    elif cached.role == "indexer" and int(cached.width) != _SCALE_GROUP:
        unsupported = f"indexer keys of {int(cached.width)} elements (only {_SCALE_GROUP})"
    if unsupported:
        raise NotSupportedError(f"SGLang: {unsupported} is not supported", _OTHER_ENGINE)


def _check_dtypes(
    keys: Sequence[CacheSpec], args: SglangArgs, *, has_indexer: bool, hybrid: bool
) -> None:
    kv = args.kv_dtype
    if kv.name not in {"bf16", "fp8", "fp4", args.dtype.name} or args.dtype.group is not None:
        raise AttncalcError(
            f"SGLang has no cache in {kv.name} for a model in {args.dtype.name}",
            "its --kv-cache-dtype: auto (the model's own), bf16, fp8_e4m3, fp8_e5m2 or fp4",
        )
    if has_indexer and kv.name not in {"bf16", "fp8"}:
        raise AttncalcError(
            f"SGLang: a cache with an indexer cannot be in {kv.name}", "use bf16 or fp8"
        )
    unrotated = [cached.width - cached.rotary for cached in keys if cached.role == "latent"]
    if has_indexer and kv.name == "fp8" and any(width % _SCALE_GROUP for width in unrotated):
        raise AttncalcError(
            f"SGLang: an fp8 latent must be a multiple of {_SCALE_GROUP} elements", "use bf16"
        )
    if kv.name == "fp4" and (hybrid or any(c.role in {"k", "v"} or c.width % 16 for c in keys)):
        raise AttncalcError(
            "SGLang: fp4 needs K and V of one width, a multiple of 16, in a single pool",
            "use fp8 or bf16",
        )


def _common_row(
    layers: Sequence[Sequence[CacheSpec]], args: SglangArgs, *, has_indexer: bool
) -> TokenRow:
    """Return the row of a pool with those layers. Raises AttncalcError if their rows differ."""
    rows = [_token_row(keys, args, has_indexer=has_indexer) for keys in layers]
    if len({tuple(map(int, row)) for row in rows}) > 1:
        sizes = ", ".join(sorted({f"{int(row.total):,} B" for row in rows}))
        raise NotSupportedError(
            f"SGLang stores rows of one size in all layers of a pool, and these differ ({sizes} "
            "per token)",
            _OTHER_ENGINE,
        )
    return rows[0]


def _token_row(keys: Sequence[CacheSpec], args: SglangArgs, *, has_indexer: bool) -> TokenRow:
    first = keys[0]
    kv = args.kv_dtype
    if first.role == "latent":
        if has_indexer and args.scales_latents:
            # fp8 latent with fp32 scales, rotary key in bf16: 512 + 512 / 128 * 4 + 64 * 2 = 656 B
            unrotated = first.width - first.rotary
            stored = unrotated + unrotated // _SCALE_GROUP * 4 + first.rotary * 2
            if args.version.budgets_scales_of_latents:
                counted = stored
            else:
                counted = kv.row_bytes(first.width)
            return TokenRow(counted, int(stored), True)
        total = kv.row_bytes(first.width)
        return TokenRow(total, int(first.width) // 2 if kv.name == "fp4" else int(total), True)
    sizes = [cached.rows * kv.row_bytes(cached.width) for cached in keys]
    total = sum(sizes)
    if first.role == "kv":
        k = int(total) // 2
    else:
        k = sum(int(size) for cached, size in zip(keys, sizes, strict=True) if cached.role == "k")
    return TokenRow(total, k, False)


def drafted_rows(
    specs: Sequence[LayerCacheSpec], args: SglangArgs, *, hybrid: bool
) -> tuple[int, int]:
    """Return the drafter's layers with rows as large as the model's, and the bytes of a token in
    all layers of DFlash.

    SGLang takes the rows of an EAGLE head or a smaller model for as large as the model's
    (DefaultPoolConfigurator). While it took DFlash's so, it left them out beside a pool of sliding
    windows (HybridSWAPoolConfigurator).
    """
    draft = args.speculative_model
    version = args.version
    if draft and draft.is_dflash and version.counts_rows_of_dflash:
        rows = [
            of.layers * _token_row(_keys(of), args, has_indexer=False).total for of in draft.layers
        ]
        return 0, sum(rows)
    of_dflash = version.counts_layers_of_dflash and not hybrid
    if draft and draft.is_dflash:
        is_counted = of_dflash
    else:
        is_counted = version.sizes_pools_after_drafter
    if not is_counted:
        return 0, 0
    if draft:
        return sum(of.layers for of in draft.layers), 0
    if (
        args.speculative_layers
        and version.takes_wrapped_drafter_for_model
        and args.model_type in _WRAPPED
    ):
        return sum(spec.layers for spec in specs), 0
    return args.speculative_layers, 0


def _stage_layers(
    stage: Sequence[LayerCacheSpec], args: SglangArgs, *, hybrid: bool, has_states: bool
) -> StageLayers:
    """Return what one pipeline stage holds.

    In a model with recurrent states only the layers with keys have rows; in all other models every
    layer has, also one that reads the keys of an earlier layer. Gemma 4 E4B has 7 full layers and
    35 with a window: 7 * 4,096 B and 35 * 2,048 B per token, though 18 of the 42 layers share keys.
    """
    full = swa = indexers = 0
    for spec in stage:
        keys = _keys(spec)
        if hybrid and (_has_window(keys) if keys else spec.windowed):
            swa += spec.layers
        elif keys or not has_states:
            full += spec.layers
        if any(cached.role in _INDEX_ROLES for cached in spec.cached):
            indexers += spec.layers
        else:
            indexers += 0
    return StageLayers(
        full,
        swa,
        indexers,
        _slot_bytes(stage, "convolution", args),
        _slot_bytes(stage, "state", args),
    )


def _slot_bytes(stage: Sequence[LayerCacheSpec], role: str, args: SglangArgs) -> int:
    """Return the bytes of one slot: the states of that role in all layers of a stage."""
    slot = sum_over_layers(
        merge_equal(stage),
        lambda spec: sum(
            _state_bytes(cached, args) for cached in spec.cached if cached.role == role
        ),
        f"{role}_bytes",
        f"bytes of a {role}",
    )
    return renamed(slot, f"{role}_slot", f"bytes of a slot, {role}s")


def _state_bytes(cached: CacheSpec, args: SglangArgs) -> int:
    """Return the bytes of one layer's state.

    For a convolution of width k SGLang stores the k - 1 inputs before the newest, in bf16 whatever
    the model's dtype.

    Source: SGLang's mamba2_state_dtype and Mamba2StateShape (configs/mamba_utils.py).
    """
    if cached.role == "convolution":
        stored = dtype("bf16")
        name = "convolution_bytes"
        width = cached.width - 1
    else:
        stored = args.mamba_ssm_cache_dtype or dtype(cached.requested_dtype or "fp32")
        name = "state_bytes"
        width = cached.width
    element = symbol_like(
        cached.width, name, stored.bits // 8, f"bytes of an element in {stored.name}"
    )
    return cached.rows * width * element
