"""Recurrent states beside attention: blocks that grow until a state fits, and how many a request takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ...errors import AttncalcError
from ...quantity import Quantity, ceil_div, named, symbol
from ..base import EngineArgs
from ..pipeline import LayerCacheSpec
from .pages import specs
from .versions import VllmVersion

_CHECKPOINTS = {"GDN": ((0, 33), 64), "Mamba-2": ((0, 32), 1)}
"""States that a prefill can export half-way: from which version on, and what their blocks are a multiple of.

Source: num_prefill_checkpoint_blocks in mamba_mixer2.py and qwen_gdn_linear_attn.py; the latter's is
FlashInfer's, which Hopper and Blackwell GPUs take.
"""
_KEPT_BY_CHUNK = {"Mamba", "Mamba-2"}
"""States that 0.11.1 to 0.27 keep once a chunk where prefixes are cached (mamba_cache_mode 'all')."""


class States(NamedTuple):
    """How vLLM keeps a model's states.

    per_request: blocks of a request in each group of states. multiple: tokens that blocks are a multiple of.
    prefixes: prefix caching is on.
    """

    per_request: int
    multiple: int
    prefixes: bool

    @classmethod
    def of(cls, runs: Sequence[LayerCacheSpec], args: EngineArgs, does: VllmVersion) -> States | None:
        """Those of a model with these layers; None for one without states. AttncalcError: what cannot be."""
        labels = {run.label for run in runs if any(c.role in ("convolution", "state") for c in run.cached)}
        if not labels:
            return None
        if not does.aligns_states:
            raise AttncalcError(f"vLLM {does.name}: no layout of states is known here", "the first is that of 0.10.0")
        attention = any(c.role not in ("convolution", "state") for run in runs for c in run.cached)
        by_default = does.caches_hybrid_prefixes and attention
        prefixes = by_default if args.prefix_caching is None else args.prefix_caching
        _refuse(labels, args, does, prefixes, by_default)
        if not does.drafts_in_states:
            return cls(1, 1, False)
        if not prefixes:
            return cls(1 + args.speculative_tokens, 1, False)
        exported = all(label in _CHECKPOINTS and does.version >= _CHECKPOINTS[label][0] for label in labels)
        multiple = max(_CHECKPOINTS[label][1] for label in labels) if exported else 1
        return cls(2 + args.speculative_tokens + int(exported), multiple, True)


def _refuse(labels: set[str], args: EngineArgs, does: VllmVersion, prefixes: bool, by_default: bool) -> None:
    """AttncalcError: what this version does not do with states, or what is not known of it."""
    if args.speculative_tokens and not does.drafts_beside_states and labels != {"GDN"}:
        raise AttncalcError(
            f"--speculative-tokens: vLLM {does.name} has no drafter beside these states", "it has from 0.17 on"
        )
    if not prefixes:
        return
    off = "--no-prefix-caching" if by_default else "leave it out: it is off by default there"
    if not does.caches_state_prefixes:
        raise AttncalcError(f"--prefix-caching: vLLM {does.name} caches no prefixes of states", off)
    if labels & _KEPT_BY_CHUNK and does.keeps_by_chunk(args.speculative_tokens > 0):
        raise AttncalcError(f"prefix caching: what vLLM {does.name} keeps of Mamba layers then is not known here", off)
    if args.speculative_tokens and does.drafts_in_states and not does.drafts_beside_states:
        raise AttncalcError(f"--prefix-caching: vLLM {does.name} has none beside a drafter and states", off)


class Alignment(NamedTuple):
    """Attention's blocks where states share them: the fewest tokens of which a state fits in one.

    told: the block's tokens before. Source: _align_hybrid_block_size (platforms/interface.py; before 0.20
    models/config.py).
    """

    token_bytes: int
    state_bytes: int
    block_size: int
    told: int


def aligned(
    runs: Sequence[LayerCacheSpec], args: EngineArgs, does: VllmVersion, states: States | None, told: int
) -> Alignment | None:
    """The alignment of a model with these layers; None where it has not both attention and states."""
    one = [spec for run in runs for spec in specs(run.cached, args, does, 1)]
    state = max((s.token_bytes for s in one if s.kind == "mamba"), key=int, default=0)
    token = max((s.token_bytes for s in one if s.kind not in ("mamba", "cross")), key=int, default=0)
    if not (states and state and token):
        return None
    latent = any(s.kind == "mla" for s in one)
    if latent and not does.latents_beside_states:
        raise AttncalcError(
            f"vLLM {does.name} does not bring states and latents together", "0.11.1 is the first that does"
        )
    kernel = 64 if latent else 16
    if does.steps_by_block:
        kernel = max(told, does.least_latent_block if latent else kernel)
    step = math.lcm(kernel, states.multiple)
    needed = _fewest(token, state, step)
    return Alignment(token, state, needed if needed > told else told, told)


def _fewest(token: int, state: int, step: int) -> int:
    """The fewest tokens, a multiple of `step`, whose bytes are a state's or more."""
    if isinstance(token, Quantity):
        token = named(token, "bytes_per_token", "bytes of a token in one attention layer")
        state = named(state, "bytes_of_state", "bytes of one layer's state")
        step = symbol("alignment", step, "tokens that a block is a multiple of")
    return step * ceil_div(state, step * token)
