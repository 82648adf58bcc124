"""SGLang: a pool of token rows, and a second pool for sliding windows or for recurrent states.

The memory for pools is divided by the bytes of a token in all layers. A token has a row in each
layer of its pool.
Rows come in whole pages, and each pool has one page more, which no sequence gets. In hybrid models
a fixed ratio divides the memory between the pools.

Source: SGLang 0.5.23, srt/arg_groups (fields/schedule.py, overrides.py,
model_overrides/deepseek_v2.py, speculative_hook.py, mamba_hook.py); further files are named in
pools.py, slots.py, states.py and share.py.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction

from ...attention import CacheSpec, Chunked, Sliding
from ...errors import AttncalcError, NotSupportedError, clash
from ...units import parse_decimal, truncate
from ..pipeline import LayerCacheSpec
from .options import STATE_SLOTS, SglangArgs
from .pools import HYBRID_MODEL_TYPES, ModelPools, drafted_rows, model_pools
from .slots import MOST_REQUESTS, SglangLayout
from .states import StatePool
from .versions import VERSION

# model_types with latents or states that SGLang lacks, and runs with the code of transformers.
_WITH_TRANSFORMERS = ("axk1", "axk2", "minimax")


def layout(specs: Sequence[LayerCacheSpec], args: SglangArgs) -> SglangLayout:
    """Return SGLang's pools for those layers. Raises AttncalcError if it does not support them or
    the arguments.
    """
    if any(cached.role == "pools" for spec in specs for cached in spec.cached):
        from .compressed import compressed_layout

        return compressed_layout(specs, args)
    pools = model_pools(specs, args)
    if args.dcp > 1:
        _check_dcp(pools, args)
    if args.caches_on_host and not args.radix_cache:
        raise clash("SGLang's cache in host memory", "--no-prefix-caching")
    if args.model_type in _WITH_TRANSFORMERS:
        raise NotSupportedError(
            "SGLang runs this model with the code of transformers, whose cache attncalc does not "
            "compute",
            "choose another engine with --engine",
        )
    # an error here, and not where a report needs it
    parse_decimal(args.hicache_ratio or "2", "--hicache-ratio")
    sequences = args.requests
    if sequences is not None:
        sequences = max(1, sequences // args.attn_dp)  # each rank of attention runs its part
    if pools.swa and not args.radix_cache and args.max_running_requests:
        raise AttncalcError(
            "SGLang without its radix cache sizes the sliding-window pool by "
            "--max-running-requests and the prefill chunk, which is not supported",
            "leave --max-running-requests out, or add --disable-hybrid-swa-memory",
        )
    page = _page(pools, args)
    swa_ratio = parse_decimal(
        args.swa_full_tokens_ratio or "0.8", "--swa-full-tokens-ratio", upper=1
    )
    states = _state_pool(pools, args, sequences) if pools.states else None
    if states:
        sequences = states.max_running_requests
    notes = tuple(_notes(specs, pools, args, states))
    drafted = drafted_rows(specs, args, hybrid=pools.swa is not None)
    most = sequences or MOST_REQUESTS
    return SglangLayout(args, pools, states, page, Fraction(*swa_ratio), most, notes, *drafted)


def _check_dcp(pools: ModelPools, args: SglangArgs) -> None:
    # handle_decode_context_parallelism in arg_groups/parallel_hook.py, logical_token_capacity in
    # mem_cache/kv_cache_configurator.py
    dcp = args.dcp
    tp = args.tp // args.attn_dp
    if not args.version.has_dcp or (pools.indexer and not args.version.has_dcp_with_indexer):
        what, since = (" with an indexer", "0.5.22") if pools.indexer else ("", "0.5.15")
        raise AttncalcError(
            f"SGLang {args.version.name} has no --dcp{what}",
            f"use --engine-version {since} or later, or leave --dcp out",
        )
    if pools.indexer and not pools.full.latent:
        raise AttncalcError(
            "--dcp: SGLang does not split the keys that an indexer averages", "leave --dcp out"
        )
    if pools.swa:
        raise AttncalcError(
            "--dcp: SGLang does not split the pool of sliding windows",
            "leave --dcp out, or add --disable-hybrid-swa-memory",
        )
    draft = args.speculative_model
    if draft and draft.is_dflash and not args.version.counts_rows_of_dflash:
        raise AttncalcError(
            f"SGLang {args.version.name}: --dcp with a draft model of DFlash is not supported",
            "use --engine-version 0.5.18 or later, or leave --dcp out",
        )
    if tp % dcp:
        raise AttncalcError(
            f"--dcp {dcp} does not divide the {tp} tensor-parallel devices of attention",
            "use a divisor: --dcp shares these devices",
        )


def _page(pools: ModelPools, args: SglangArgs) -> int:
    """Return the tokens of a page. Raises AttncalcError if SGLang would override the given size."""
    if pools.indexer:
        page = 128 if (args.model_type or "").startswith("minimax_m3") else 64
        if args.block_size not in {None, page}:
            raise AttncalcError(
                f"SGLang uses pages of {page} tokens here, not of {args.block_size}",
                "leave --block-size out",
            )
        return page
    page = args.block_size or 1
    if page != 1 and pools.states and not pools.buffered and args.radix_cache:
        raise AttncalcError(
            "SGLang uses pages of 1 token if its radix cache stores no states but convolutions",
            "leave --block-size out, or add --no-prefix-caching",
        )
    return page


def _state_pool(pools: ModelPools, args: SglangArgs, max_running_requests: int | None) -> StatePool:
    if args.has_drafter and not args.speculative_tokens:
        raise AttncalcError(
            "SGLang stores a copy of the states per drafted token, so --speculative-tokens is "
            "required",
            "add --speculative-tokens N",
        )
    per_sequence = _slots_per_sequence(pools, args)
    fixed_slots = None if args.radix_cache else max_running_requests
    if args.max_mamba_cache_size:
        fixed_slots = args.max_mamba_cache_size // args.attn_dp
        running = fixed_slots // per_sequence
        if not running:
            raise AttncalcError(
                f"--max-mamba-cache-size {args.max_mamba_cache_size}: a request takes "
                f"{per_sequence} slots",
                f"give at least {per_sequence * args.attn_dp}",
            )
        if max_running_requests is None:
            max_running_requests = running
        else:
            max_running_requests = min(max_running_requests, running)
    slot = max((stage.convolution + stage.ssm for stage in pools.stages), key=int)
    drafted = 0
    reserved = 0
    if args.speculative_tokens and args.version.copies_states == "per slot":
        slot = slot * (1 + args.speculative_tokens)
    elif args.speculative_tokens and args.version.copies_states == "at first":
        reserved = slot * (max_running_requests or 0) * args.speculative_tokens
    else:
        drafted = args.speculative_tokens
    return StatePool(
        slot_bytes=slot,
        ratio=Fraction(
            *parse_decimal(args.mamba_full_memory_ratio or "0.9", "--mamba-full-memory-ratio")
        ),
        slots_per_sequence=per_sequence,
        drafted_tokens=drafted,
        max_running_requests=max_running_requests,
        fixed_slots=fixed_slots,
        padding=int(args.version.pads_states),
        reserved_for_copies=reserved,
    )


def _slots_per_sequence(pools: ModelPools, args: SglangArgs) -> int:
    """Return the slots of states that a sequence may take (_calculate_mamba_ratio).

    With the radix cache it takes 3. If the cache copies states while the sequence runs
    (extra_buffer), it takes 2 more, or 1 if a step does not overlap the next one. Multi-token
    prediction with the radix cache needs these copies. Without layers of a drafter, tokens come
    from DFlash or n-grams.
    """
    if not args.radix_cache:
        return 1
    copies = pools.buffered and (args.version.buffers_states or args.has_drafter)
    slots = STATE_SLOTS[args.mamba_radix_cache_strategy or "auto"] or (5 if copies else 3)
    draft = args.speculative_model
    version = args.version
    is_serial = args.speculative_layers or (draft and not draft.is_dflash)
    overlaps = version.overlaps_drafter if is_serial else version.overlaps_dflash
    if args.has_drafter and not overlaps:
        return min(slots, 4)
    return slots


def _notes(
    specs: Sequence[LayerCacheSpec], pools: ModelPools, args: SglangArgs, states: StatePool | None
) -> Iterator[str]:
    if not args.version.source_was_read:
        yield (
            f"The source of SGLang {args.version.name} was not read: its pools are assumed to be "
            f"those of {VERSION}."
        )
    if args.block_size is None and not pools.indexer:
        yield (
            "SGLang's default is pages of 1 token; some attention backends use 64 or 128: set "
            "--block-size for those."
        )
    yield from _window_notes(specs, pools, args)
    if pools.indexer and pools.full.latent and args.scales_latents:
        yield (
            "An fp8 latent is counted with scales and a bf16 rotary key; SGLang's TRT-LLM and "
            "TileLang kernels store neither."
        )
        if not args.version.budgets_scales_of_latents:
            yield (
                f"SGLang {args.version.name} divides the memory by fewer bytes than a latent "
                "has: its pool is larger "
                f"than its share by {100 * pools.full.k // pools.full.total - 100} % of the "
                "latents."
            )
    if args.kv_dtype.name == "fp4":
        yield (
            "fp4 is SGLang's fp4_mx_block16. Its nvfp4 may need a workspace too, which is not "
            "counted."
        )
    if args.dcp > 1:
        whole = " Each GPU stores an indexer's keys of all tokens." if pools.indexer else ""
        yield (
            f"SGLang logs the tokens of one GPU, and {args.dcp} GPUs share those of a "
            f"request.{whole}"
        )
    if args.attn_dp > 1:
        yield (
            "SGLang has DP attention for some architectures only: DeepSeek's, Qwen's and GLM's "
            "mixtures of experts, gpt-oss, Llama 4, MiniMax-M2 and a few more."
        )
    yield from _drafter_notes(args)
    if states and states.slots_per_sequence > 1:
        yield (
            f"A sequence takes up to {states.slots_per_sequence} slots of states, because the "
            "radix cache copies them."
        )
    if args.requests is None:
        yield (
            "Without --max-running-requests SGLang runs at most 2,048 to 4,096 concurrent "
            "sequences."
        )


def _drafter_notes(args: SglangArgs) -> Iterator[str]:
    has_layers = args.speculative_layers or args.speculative_model
    if has_layers and not args.version.sizes_pools_after_drafter:
        yield (
            f"SGLang {args.version.name} loads the drafter after its pools: its weights and "
            "cache must fit in what --mem-fraction-static leaves."
        )
    elif args.speculative_layers:
        yield (
            "This assumes that the drafter's layers have the same rows as the full-attention "
            "layers."
        )


def _is_narrowed(cached: CacheSpec) -> bool:
    """Return whether a token of the cache is read by a window or a chunk only."""
    return cached.per == "token" and isinstance(cached.span, (Sliding, Chunked))


def _window_notes(
    specs: Sequence[LayerCacheSpec], pools: ModelPools, args: SglangArgs
) -> Iterator[str]:
    if pools.swa and args.model_type is None:
        yield (
            "SGLang has a sliding-window pool only for gpt-oss, Llama 4, Gemma 4, MiMo-V2, "
            "Step-3.5 and a few more. "
            "For other models (Gemma 2 and 3) it stores windows like full attention: add "
            "--disable-hybrid-swa-memory."
        )
    if pools.swa:
        yield (
            "A prompt's chunk takes more of the sliding-window pool during its prefill; that is "
            "not counted."
        )
    elif any(_is_narrowed(cached) for spec in specs for cached in spec.cached):
        if args.model_type is None or args.model_type in HYBRID_MODEL_TYPES:
            yield "Windows and chunks are stored for the whole context."
        else:
            yield (
                f"SGLang has no sliding-window pool for model_type {truncate(args.model_type)}: "
                "windows and chunks are stored for the whole context."
            )
