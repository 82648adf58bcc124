"""vLLM's cache: groups of layers take blocks of tokens from one pool.

Read from vLLM 0.8.5 to 0.33.0: v1/kv_cache_interface.py, v1/core/kv_cache_utils.py and (0.33)
kv_cache_planning.py. Versions differ: `versions.py` lists what changed and when.
"""

import dataclasses
from collections.abc import Iterator, Sequence, Set

from ...errors import AttncalcError, NotSupportedError
from ...model import plural
from ...quantity import symbol_like
from ..ds_mla import has_shared_pools
from ..multi_token import PREDICT_TOKENS
from ..pipeline import NO_CACHE, LayerCacheSpec, cut_into_stages, layer_by_layer
from .architectures import transformers_note
from .backends import BLOCK_SPARSE_SIZE, INTEL_BLOCK_SIZE, blocks_of_latents, default_of_heads
from .blocks import VllmLayout, groups_on_stage
from .groups import KVCacheGroup, group_layers
from .kv_cache_interface import (
    POOLS,
    UNPOOLED,
    WINDOWS,
    CrossAttentionSpec,
    Kind,
    KVCacheSpec,
    MambaSpec,
)
from .layer_spec import HEAD_ROLES, POOLING_BLOCK, SHARED_POOLING_BLOCK, layer_specs
from .options import TURBOQUANT, VllmArgs
from .packed import pack_layers
from .state_blocks import StateBlocks, align_blocks, state_blocks

# model_types whose layers do not read --kv-cache-dtype: their cache is in the model's dtype
# (models/falcon.py gives no cache_config to attention with rotary positions).
_WITHOUT_CACHE_CONFIG = ("falcon", "RefinedWeb", "RefinedWebModel")
_Groups = tuple[KVCacheGroup, ...]
# A pipeline stage, and the cache of one of its layers.
_StagedSpec = tuple[int, KVCacheSpec]


def layout(specs: Sequence[LayerCacheSpec], args: VllmArgs) -> VllmLayout:
    """Return how vLLM stores those layers. Raises AttncalcError if it does not support them or the
    arguments.
    """
    _check_cache_dtype(args)
    layers = []  # each layer with a cache, and its stage
    for stage, members in enumerate(cut_into_stages(_with_all_indexers(specs, args), args.pp)):
        layers += [(stage, layer) for layer in layer_by_layer(members) if layer.cached]
    _check_layers(layers, args)
    cached_layers = [layer for _, layer in layers]
    roles = {cached.role for layer in cached_layers for cached in layer.cached}
    states = state_blocks(cached_layers, args)
    shares_pools = "pools" in roles and has_shared_pools(
        cached for layer in cached_layers for cached in layer.cached
    )

    if _is_block_sparse(roles):
        _check_block_sparse(args)
    requested = _block_size(cached_layers, args, shares_pools=shares_pools)
    alignment = align_blocks(cached_layers, args, states, requested)
    aligned = alignment.block_size if alignment else requested
    first = cached_layers[0].cached[0]
    block_size = symbol_like(first.rows * first.width, "block_size", aligned, "tokens per block")

    request_states = states.per_request if states else 1
    own_args = _args_of_layers(len(layers), args, is_hybrid=states is not None)
    # equal layers share one tuple: `attncalc fit llama2-70b` makes one spec instead of 80
    made: dict[tuple[object, ...], tuple[KVCacheSpec, ...]] = {}
    by_layer: list[list[_StagedSpec]] = []
    for (stage, layer), own in zip(layers, own_args, strict=True):
        key = (id(layer.cached), own.kv_dtype)
        if key not in made:
            specs_of_layer = layer_specs(
                layer.cached,
                own,
                block_size,
                sparse=not roles.isdisjoint({"indexer", "gated_averages"}),
                shares_pools=shares_pools,
                state_blocks=request_states,
            )
            made[key] = tuple(specs_of_layer)
        by_layer.append([(stage, spec) for spec in made[key]])
    staged = [member for members in by_layer for member in members]
    if args.speculative_layers:
        drafted = _like_last_attention(by_layer, has_pools="pools" in roles)
        staged += drafted * args.speculative_layers
    if args.speculative_model:
        # a draft model runs on the last stage (v1/spec_decode/llm_base_proposer.py)
        for layer in layer_by_layer(args.speculative_model.layers):
            drafter = layer_specs(layer.cached, args, block_size, state_blocks=request_states)
            staged += [(args.pp - 1, spec) for spec in drafter]

    groups, groups_by_stage = _group_by_stage(staged, args)
    if args.kv_offloading_size:
        args.version.require("has_kv_offloading", "vLLM", "--kv-offloading-size")
    if args.dcp > 1:
        _check_dcp({group.spec.kind for group in groups}, args)
        _check_dcp_of_latents(roles, args)
    notes = _notes([spec for _, spec in staged], args, states, roles)
    return VllmLayout(args, groups, groups_by_stage, alignment, states, tuple(notes))


def _check_cache_dtype(args: VllmArgs) -> None:
    """Raise AttncalcError for a dtype of the cache that the model's class does not read."""
    if args.model_type in _WITHOUT_CACHE_CONFIG and args.kv_dtype.name != args.dtype.name:
        raise AttncalcError(
            f"--kv-dtype {args.kv_dtype.name}: vLLM does not read it for Falcon, whose cache is in "
            f"{args.dtype.name}",
            "leave it out",
        )


def _block_size(layers: Sequence[LayerCacheSpec], args: VllmArgs, *, shares_pools: bool) -> int:
    """Return the tokens per block, before they grow for states."""
    all_cached = [cached for layer in layers for cached in layer.cached]
    roles = {cached.role for cached in all_cached}
    if _has_chosen_latents(roles, args):
        blocks = blocks_of_latents(args, are_picked="indexer" in roles)
        if blocks:
            return blocks.block_size
    if args.block_size:
        return args.block_size
    own = _own_block_size(roles, shares_pools=shares_pools)
    if own:
        return own
    if args.is_intel and not args.version.v0:
        return INTEL_BLOCK_SIZE
    head_sizes = frozenset(int(c.width) for c in all_cached if c.role in HEAD_ROLES)
    return default_of_heads(args, head_sizes)


def _own_block_size(roles: Set[str], *, shares_pools: bool) -> int | None:
    """Return the tokens per block that the model's class sets; None if it sets none."""
    if _is_block_sparse(roles):
        return BLOCK_SPARSE_SIZE
    if shares_pools:
        return SHARED_POOLING_BLOCK
    if "pools" in roles:
        return POOLING_BLOCK
    return None


def _has_chosen_latents(roles: Set[str], args: VllmArgs) -> bool:
    """Return whether vLLM chooses a backend for latents by the GPU."""
    return "latent" in roles and "pools" not in roles and not args.is_intel


def _is_block_sparse(roles: Set[str]) -> bool:
    """Return whether an indexer picks blocks of keys and values (MiniMax-M3)."""
    return "indexer" in roles and "latent" not in roles


def _with_all_indexers(specs: Sequence[LayerCacheSpec], args: VllmArgs) -> Sequence[LayerCacheSpec]:
    """Return the layers with an indexer's keys beside each latent, if this version stores them
    where none is used.
    """
    all_cached = (cached for spec in specs for cached in spec.cached)
    keys = next((cached for cached in all_cached if cached.role == "indexer"), None)
    if keys is None or not args.version.has_unused_indexers:
        return specs
    with_keys = []
    for spec in specs:
        if [cached.role for cached in spec.cached] == ["latent"]:
            with_keys.append(spec._replace(cached=(*spec.cached, keys)))
        else:
            with_keys.append(spec)
    return with_keys


def _like_last_attention(
    by_layer: Sequence[Sequence[_StagedSpec]], *, has_pools: bool
) -> list[_StagedSpec]:
    """Return what a drafter's layer caches: as much as the model's last attention layer with an
    indexer, where there are any; in compressed attention without pools.
    """
    drafted = (
        [(stage, spec) for stage, spec in members if _is_drafted(spec, has_pools=has_pools)]
        for members in reversed(by_layer)
    )
    return max(drafted, key=len)


def _is_drafted(spec: KVCacheSpec, *, has_pools: bool) -> bool:
    if has_pools:
        return spec.title == WINDOWS
    return spec.title.startswith(UNPOOLED) or not isinstance(spec, MambaSpec | CrossAttentionSpec)


def _args_of_layers(layers: int, args: VllmArgs, *, is_hybrid: bool) -> list[VllmArgs]:
    """Return the arguments of each layer: TurboQuant leaves the first and the last two in 16 bits,
    but not of hybrids.

    Source: get_boundary_skip_layers (model_executor/layers/quantization/turboquant/config.py).
    """
    if args.kv_dtype.name not in TURBOQUANT:
        return [args] * layers
    if not args.version.shares_turboquant_workspaces:
        raise NotSupportedError(
            f"{args.kv_dtype.name} is only supported from vLLM 0.21 on: 0.20 also allocates "
            "workspaces in each layer, "
            "14.6 GiB for Llama 3.1 8B and 1,024 sequences, and earlier versions do not have it",
            "use --engine-version 0.21.0 or later",
        )
    ends = 0 if is_hybrid else min(2, layers // 2)
    whole = [dataclasses.replace(args, kv_dtype=args.dtype)] * ends
    return [*whole, *[args] * (layers - 2 * ends), *whole]


def _check_layers(layers: Sequence[tuple[int, LayerCacheSpec]], args: VllmArgs) -> None:
    """Raise AttncalcError if a stage has nothing to store, or if this version does not support
    it.
    """
    if not layers:
        raise AttncalcError(*NO_CACHE)
    if len({stage for stage, _ in layers}) < args.pp:
        raise AttncalcError(
            f"--pp {args.pp}: vLLM does not start, because a stage would have no layer with a "
            "cache",
            "use fewer stages",
        )
    roles = {cached.role for _, layer in layers for cached in layer.cached}
    if args.model_type == "minicpm3" and "latent" in roles:
        # it is no MLA in vLLM: models/minicpm3.py
        raise NotSupportedError(
            "vLLM caches keys and values of all heads of MiniCPM3, which attncalc does not compute",
            "use --engine ideal for its latents",
        )
    if any(cached.per == "source token" for _, layer in layers for cached in layer.cached):
        args.version.require("has_cross_attention", "vLLM", "cache for cross-attention")


def _check_block_sparse(args: VllmArgs) -> None:
    args.version.require("has_block_sparse", "vLLM", "MiniMax-M3")
    if args.dcp > 1:
        raise AttncalcError(
            "--dcp: vLLM does not split keys of which an indexer picks blocks", "leave --dcp out"
        )
    if args.block_size not in (None, BLOCK_SPARSE_SIZE):
        raise AttncalcError(
            f"--block-size {args.block_size}: MiniMax-M3 only has blocks of 128", "leave it out"
        )


def _check_dcp(kinds: set[Kind], args: VllmArgs) -> None:
    # config/parallel.py, config/model.py
    dcp = args.dcp
    tp = args.tp
    heads = args.n_kv_heads
    args.version.require("has_dcp", "vLLM", "--dcp")
    if "sliding" in kinds:
        raise AttncalcError(
            "--dcp: vLLM does not split the cache of a sliding window", "leave --dcp out"
        )
    if tp % dcp:
        raise AttncalcError(
            f"--dcp {dcp} does not divide --tp {tp}",
            "use a divisor of --tp: --dcp shares the tensor-parallel devices",
        )
    if kinds & {"full", "chunked"} and heads is not None and dcp > max(1, tp // heads):
        copies = max(1, tp // heads)
        raise AttncalcError(
            f"--dcp {dcp} is too large: with --tp {tp} each of {heads} KV heads is on "
            f"{plural(copies, 'device')}",
            f"use at most --dcp {copies}: vLLM splits a head's tokens over the devices that have "
            "that head",
        )


def _check_dcp_of_latents(roles: Set[str], args: VllmArgs) -> None:
    """Raise AttncalcError if no kernel of this version and this device, where known, splits such
    latents by token.
    """
    version = args.version
    fp8 = args.kv_dtype.bits == 8
    if "indexer" not in roles:
        if "latent" in roles and fp8 and not version.has_dcp_with_fp8_latents:
            raise AttncalcError(
                f"--dcp: vLLM {version.name} does not split latents in {args.kv_dtype.name}",
                "use --kv-dtype bf16, or --engine-version 0.25.0 or later",
            )
        return
    on_device = args.device and f" on {args.device}"
    if args.device and args.capability not in (9, 10):
        raise AttncalcError(
            f"--dcp: vLLM does not split the latents that an indexer picks{on_device}",
            "leave --dcp out",
        )
    if not (
        version.has_dcp_with_indexer_on_hopper
        if args.capability == 9
        else version.has_dcp_with_indexer
    ):
        raise AttncalcError(
            f"--dcp: vLLM {version.name} does not split the latents that an indexer "
            f"picks{on_device}",
            f"use --engine-version {'0.29.0' if args.capability == 9 else '0.25.0'} or later",
        )
    if args.capability == 9 and not fp8:
        raise AttncalcError(
            f"--dcp: vLLM splits the latents that an indexer picks only in fp8{on_device}",
            "use --kv-dtype fp8",
        )


def _group_by_stage(
    staged: Sequence[_StagedSpec], args: VllmArgs
) -> tuple[_Groups, tuple[_Groups, ...]]:
    """Return the groups of the whole model, and those of each pipeline stage; `staged` has the
    stage of each spec.

    Old versions group the layers of each stage, which must have the same kinds of groups.
    """
    if any(spec.title == POOLS for _, spec in staged):
        packed = pack_layers([spec for _, spec in staged], args.version)
        stage_of = [stage for stage, _ in staged]
        return packed, tuple(groups_on_stage(packed, stage_of, stage) for stage in range(args.pp))
    if args.version.groups_by_worker:
        stages = tuple(
            group_layers([spec for i, spec in staged if i == stage], args)
            for stage in range(args.pp)
        )
        kinds = [sorted(repr(group.spec.grouping_key) for group in groups) for groups in stages]
        if any(later != kinds[0] for later in kinds[1:]):
            raise NotSupportedError(
                f"--pp {args.pp}: stages with different kinds of layers are not supported for "
                f"vLLM {args.version.name}",
                "use --engine-version 0.11.0 or later, which groups the layers of all stages "
                "together",
            )
        return stages[0], stages
    groups = group_layers([spec for _, spec in staged], args)
    has_several_widths = len({spec.grouping_key for spec in groups[0].specs}) > 1
    # of several groups, each has one width
    if has_several_widths and not args.version.cuts_groups_by_stage:
        return groups, (groups,)
    stage_of = [stage for stage, _ in staged]
    return groups, tuple(groups_on_stage(groups, stage_of, stage) for stage in range(args.pp))


def _drafter_notes(args: VllmArgs) -> Iterator[str]:
    """Yield what a drafter lacks: layers of the model, or its size."""
    if args.predicts_tokens and args.model_type not in (None, *PREDICT_TOKENS):
        yield (
            "warning: no layers for multi-token prediction are known of this model: without them "
            "vLLM does not start with method mtp."
        )
    if args.speculative_tokens and not args.speculative_layers and not args.speculative_model:
        yield (
            "The drafter's own layers are not counted: add --speculative-layers 1 for MTP, or "
            "--speculative-model FILE for EAGLE."
        )


def _notes(
    specs: Sequence[KVCacheSpec], args: VllmArgs, states: StateBlocks | None, roles: Set[str]
) -> Iterator[str]:
    has_pools = "pools" in roles
    left_out = "" if has_pools else POOLS
    kinds = {spec.kind for spec in specs if spec.title != left_out}
    if has_pools:
        yield (
            "A request has windows and tokens to pool for all tokens in flight, whatever its "
            "length. vLLM logs "
            "concurrency times --max-model-len as tokens: fewer for a shorter length, though as "
            "much fits, and more with fewer --max-num-batched-tokens."
        )
    if args.kv_dtype.name in TURBOQUANT:
        ends = "" if states else " The first and the last two layers stay in 16 bits."
        yield f"TurboQuant's workspaces are not counted.{ends}"
    yield from _connector_notes(kinds, args)
    if not states:
        yield from _latent_notes(args, roles)
    yield from transformers_note(args)
    yield from _device_notes(kinds, args, roles)
    if not args.version.source_was_read:
        yield (
            "The engine before V1 is computed as in vLLM 0.8.5; the source of older versions was "
            "not read."
        )
    if states:
        yield _state_note(args, states)
    yield from _drafter_notes(args)
    if (
        not has_pools
        and kinds & {"mamba", "sliding", "chunked"}
        and args.version.tokens_from_concurrency
    ):
        yield (
            "A request takes blocks of windows or states whatever its length: vLLM logs fewer "
            "tokens for a shorter --max-model-len, and one long request may have more than it logs."
        )
    if args.dcp > 1 and states:
        yield "--dcp divides the tokens of attention; each GPU stores whole recurrent states."
    if args.pp > 1 and "sliding" in kinds and args.version.steps_depend_on_experts:
        yield (
            "This assumes --pp + 1 steps in flight; a mixture of experts has --pp steps in this "
            "version."
        )


def _connector_notes(kinds: Set[Kind], args: VllmArgs) -> Iterator[str]:
    """Yield that a connector makes windows as large as full attention, and how to avoid it."""
    is_given = args.disable_hybrid_kv_cache_manager
    if is_given or not args.without_hybrid_manager or not kinds & {"sliding", "chunked"}:
        return
    if args.supports_hybrids:
        remedy = " --no-disable-hybrid-kv-cache-manager keeps it on."
    else:
        remedy = ""
    yield (
        f"--kv-transfer-config: with {args.connector_name} vLLM {args.version.name} turns its "
        f"hybrid KV-cache manager off, so that sliding windows store the whole context.{remedy}"
    )


def _state_note(args: VllmArgs, states: StateBlocks) -> str:
    """Return how many states a request has."""
    default = " by default" if args.prefix_caching is None else ""
    blocks = "Each state takes one block, whatever the context."
    if not states.prefix_caching:
        return f"Prefix caching is off{default}. {blocks}"
    return (
        f"Prefix caching is on{default}, which takes one more state per request to align prefixes. "
        f"{blocks}"
    )


def _latent_notes(args: VllmArgs, roles: Set[str]) -> Iterator[str]:
    """Yield whose blocks the latents have; nothing if --block-size is used as it is given."""
    if not _has_chosen_latents(roles, args) or args.version.v0:
        return
    are_picked = "indexer" in roles
    blocks = blocks_of_latents(args, are_picked=are_picked)
    if blocks is None:
        return
    backend = blocks.backend
    where = "" if args.device else " on Hopper GPUs"
    if args.block_size is not None:
        if not backend.takes(args.block_size):
            yield (
                f"With {backend.name}{where} vLLM {args.version.name} uses blocks of "
                f"{backend.block_size}, not --block-size."
            )
        return
    whose = f"Blocks of {blocks.block_size} tokens are those of vLLM's {backend.name}{where}"
    if are_picked or args.version.forces_block_size:
        yield f"{whose}."
    else:
        yield f"{whose}; --block-size sets others."


def _device_notes(kinds: Set[Kind], args: VllmArgs, roles: Set[str]) -> Iterator[str]:
    """Yield what an indexer needs on AMD's GPUs, and assumptions about the device, if it is unknown
    or from another vendor than NVIDIA and AMD.
    """
    if args.device and not args.device.startswith(("NVIDIA", "AMD")):
        yield (
            f"This is vLLM's layout on NVIDIA and AMD GPUs; its backend for {args.device} may "
            "differ."
        )
    has_own = args.version.indexes_on_cdna4_without_aiter and "MI35" in args.device
    picks_latents = roles >= {"indexer", "latent"} or "index_pools" in roles
    if args.device.startswith("AMD") and picks_latents and not has_own:
        yield (
            f"warning: on this GPU vLLM {args.version.name} runs the indexer with AITER only: it "
            "does not start without VLLM_ROCM_USE_AITER=1."
        )
    device_unknown = args.device_memory is None and args.max_num_batched_tokens is None
    if device_unknown and kinds & {"sliding", "chunked", "cross"}:
        yield (
            "Batched tokens are the API server's default on an H100 or better; "
            "--max-num-batched-tokens sets another."
        )
