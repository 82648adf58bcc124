"""Blocks of recurrent states: how many a request takes, and how attention's blocks grow until a
state fits in one.
"""

import math
from collections.abc import Sequence

from ...errors import AttncalcError, NotSupportedError
from ...quantity import ceil_div, renamed, symbol_like
from ...records import NamedTuple
from ...units import count
from ..pipeline import LayerCacheSpec
from .kv_cache_interface import AttentionSpec, CrossAttentionSpec, MambaSpec
from .layer_spec import STATE_ROLES, layer_specs
from .options import VllmArgs

# States of which a prefill can store a checkpoint, by the layer's label: the tokens that their
# blocks are a multiple of. That of gated delta nets is FlashInfer's, which Hopper and Blackwell
# GPUs use.
_CHECKPOINT_TOKENS = {"GDN": 64, "Mamba-2": 1, "KDA": 16}
# States that 0.11.1 to 0.27 store once per chunk with prefix caching (mamba_cache_mode 'all').
_STORED_PER_CHUNK = {"Mamba", "Mamba-2"}


class StateBlocks(NamedTuple):
    """How vLLM stores a model's recurrent states."""

    per_request: int  # blocks of one request in each group of states
    alignment: int  # tokens that a block is a multiple of
    prefix_caching: bool  # whether prefix caching is on


def state_blocks(specs: Sequence[LayerCacheSpec], args: VllmArgs) -> StateBlocks | None:
    """Return how the states of those layers are stored; None without such layers.

    A request needs one block for its state, one per drafted token, one more with prefix caching (to
    align prefixes), and one for a checkpoint half-way through a prefill.

    Raises AttncalcError if this version does not support the states, or not with these arguments.
    """
    version = args.version
    labels = {spec.label for spec in specs if any(c.role in STATE_ROLES for c in spec.cached)}
    if not labels:
        return None
    version.require("aligns_states", "vLLM", "cache for recurrent layers")
    has_attention = any(c.role not in STATE_ROLES for spec in specs for c in spec.cached)
    prefix_caching = args.prefix_caching
    if prefix_caching is None:
        prefix_caching = version.caches_hybrid_prefixes and has_attention
    _check_states(labels, args, prefix_caching=prefix_caching)
    if not version.stores_drafted_states:
        return StateBlocks(1, 1, prefix_caching=False)
    if not prefix_caching:
        return StateBlocks(1 + args.speculative_tokens, 1, prefix_caching=False)
    gated = version.checkpoints_gated and any(
        c.role == "gated_averages" for spec in specs for c in spec.cached
    )
    stored = {
        "GDN": version.checkpoints_deltas,
        "Mamba-2": version.checkpoints_mamba,
        "KDA": gated or _has_flash_kda(args),
    }
    checkpoints = all(stored.get(label, False) for label in labels)
    alignment = max(_CHECKPOINT_TOKENS[label] for label in labels) if checkpoints else 1
    return StateBlocks(
        2 + args.speculative_tokens + int(checkpoints), alignment, prefix_caching=True
    )


def _has_flash_kda(args: VllmArgs) -> bool:
    """Return whether Kimi-K3's prefill runs in FlashKDA, which stores checkpoints
    (resolve_kda_prefill_backend in models/kimi_k3/nvidia/kda.py).
    """
    is_kimi = args.model_type == "kimi_k3" and args.version.checkpoints_kimi
    return is_kimi and (not args.device or args.capability in (9, 10, 12))


def _check_states(labels: set[str], args: VllmArgs, *, prefix_caching: bool) -> None:
    version = args.version
    if args.speculative_tokens and not version.supports_drafter_with_states and labels != {"GDN"}:
        raise AttncalcError(
            f"vLLM {version.name} has no speculative decoding for these recurrent layers",
            "use --engine-version 0.17.0 or later, or leave --speculative-tokens out",
        )
    if not prefix_caching:
        return
    off = "leave --prefix-caching out: by default it is off"
    if not version.caches_state_prefixes:
        raise AttncalcError(f"vLLM {version.name} has no prefix caching for recurrent layers", off)
    if labels & _STORED_PER_CHUNK and version.stores_state_per_chunk(bool(args.speculative_tokens)):
        raise NotSupportedError(
            f"prefix caching of Mamba layers is not supported for vLLM {version.name}", off
        )
    if (
        args.speculative_tokens
        and version.stores_drafted_states
        and not version.supports_drafter_with_states
    ):
        raise AttncalcError(
            f"vLLM {version.name} has no prefix caching for recurrent layers with speculative "
            "decoding",
            off,
        )


class Alignment(NamedTuple):
    """The block size with which a state fits in one block of attention.

    Source: _align_hybrid_block_size (platforms/interface.py; before 0.20 models/config.py).
    """

    token_bytes: int  # bytes of one token in one attention layer
    state_bytes: int  # bytes of one layer's state
    block_size: int  # tokens per block
    requested: int  # tokens per block before the alignment


def align_blocks(
    specs: Sequence[LayerCacheSpec], args: VllmArgs, states: StateBlocks | None, requested: int
) -> Alignment | None:
    """Return the aligned block size; None unless the model has both attention and states.

    A state of 2,146,304 B and 4,096 B per token need 524 tokens; the next multiple of 16 is 528.

    Raises AttncalcError if this version does not support MLA beside states, or not so large blocks.
    """
    if not states:
        return None
    # the widest token and state, which do not depend on the block size
    distinct = dict.fromkeys(layer.cached for layer in specs)
    layers = [spec for cached in distinct for spec in layer_specs(cached, args, requested)]
    state_sizes = [spec.state_bytes for spec in layers if isinstance(spec, MambaSpec)]
    attention = [spec for spec in layers if isinstance(spec, AttentionSpec)]
    token_sizes = [
        spec.token_bytes for spec in attention if not isinstance(spec, CrossAttentionSpec)
    ]
    state_bytes = max(state_sizes, key=int, default=0)
    token_bytes = max(token_sizes, key=int, default=0)
    if not (state_bytes and token_bytes):
        return None
    version = args.version
    has_latents = any(c.role == "latent" for cached in distinct for c in cached)
    if has_latents:
        version.require("aligns_latents", "vLLM", "MLA beside recurrent layers")
    kernel = 64 if has_latents else 16
    if version.aligns_to_requested_block:
        kernel = max(requested, version.latent_alignment if has_latents else kernel)
    multiple = math.lcm(kernel, states.alignment)
    step = symbol_like(token_bytes, "alignment", multiple, "tokens that a block is a multiple of")
    token = renamed(token_bytes, "bytes_per_token", "bytes of a token in one attention layer")
    state = renamed(state_bytes, "bytes_of_state", "bytes of one layer's state")
    block_size = max(requested, step * ceil_div(state, step * token), key=int)
    if (
        states.prefix_caching
        and version.limits_aligned_blocks
        and int(block_size) > args.limits.max_num_batched_tokens
    ):
        raise AttncalcError(
            f"with prefix caching vLLM {version.name} does not start: a block has "
            f"{count(int(block_size))} tokens, and "
            f"a step {count(args.limits.max_num_batched_tokens)}",
            f"give --max-num-batched-tokens {int(block_size)}, or leave --prefix-caching out",
        )
    return Alignment(token_bytes, state_bytes, block_size, requested)
