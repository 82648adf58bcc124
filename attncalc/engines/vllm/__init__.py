"""vLLM's cache: blocks of tokens, which groups of layers take from one pool.

Read from vLLM 0.8.5 to 0.33.0: v1/kv_cache_interface.py, v1/core/kv_cache_utils.py and (0.33)
kv_cache_planning.py. Where a version matters, `versions.py` says what changed and when.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ...errors import AttncalcError
from ...quantity import Quantity, named
from ..layout import Kept, Settings, stages
from .groups import grouped
from .pages import Alignment, Spec, specs
from .pool import VllmLayout, on_stage
from .versions import Behaviour, behaviour

NAME = "vllm"
_UNDERSTOOD = frozenset(
    {
        "mamba_ssm_cache_dtype",
        "engine_version",
        "pp",
        "dcp",
        "block_size",
        "max_num_batched_tokens",
        "speculative_tokens",
        "speculative_layers",
        "prefix_caching",
        "disable_hybrid_kv_cache_manager",
        "swap_space",
    }
)
_BLOCK, _MLA_BLOCK = 16, 64
"""CacheConfig.DEFAULT_BLOCK_SIZE; and that of FlashMLA, which Hopper GPUs take for MLA."""
_CHECKPOINTS = {"GDN": ((0, 33), 64), "Mamba-2": ((0, 32), 1)}
"""States that a prefill can export half-way: from which version on, and what their blocks are a multiple of.

Source: num_prefill_checkpoint_blocks in mamba_mixer2.py and qwen_gdn_linear_attn.py; the latter's is
FlashInfer's, which Hopper and Blackwell GPUs take.
"""
_KEPT_BY_CHUNK = {"Mamba", "Mamba-2"}
"""States that 0.12 to 0.27 keep once a chunk where prefixes are cached (mamba_cache_mode 'all')."""


def layout(kept: Sequence[Kept], settings: Settings) -> VllmLayout:
    """How vLLM stores those layers. AttncalcError: it cannot, or its layout is not known here."""
    settings.only(NAME, _UNDERSTOOD)
    does = behaviour(settings.engine_version)
    staged = [
        (stage, run)
        for stage, runs in enumerate(stages(kept, settings.pp))
        for run in runs
        for _ in range(run.layers)
        if run.cached
    ]
    if not staged:
        raise AttncalcError("this model keeps no cache: vLLM has none to set aside", "it has no decoder layers")
    states = _States.of([run for _, run in staged], settings, does)
    runs = [run for _, run in staged]
    alignment = _aligned(runs, settings, does, states)
    block = _block(runs, settings, does, alignment)
    made = [(stage, spec) for stage, run in staged for spec in specs(run.cached, settings, block)]
    drafter = [(stage, spec) for stage, spec in made if spec.kind not in ("mamba", "cross")][-1:]
    made += drafter * settings.speculative_layers
    page = max((block * s.token_bytes for _, s in made if s.kind not in ("mamba", "cross")), key=int, default=0)
    made = [(i, s._replace(padded=page) if s.kind == "mamba" and s.token_bytes <= page else s) for i, s in made]
    groups, padding = grouped([s for _, s in made], does, promote=settings.disable_hybrid_kv_cache_manager)
    if settings.dcp > 1 and any(g.spec.kind in ("sliding", "chunked") for g in groups):
        raise AttncalcError("--dcp: vLLM does not split a window's cache over devices", "leave it out")
    return VllmLayout(
        settings,
        does,
        groups,
        tuple(on_stage(groups, [i for i, _ in made], stage) for stage in range(settings.pp)),
        padding,
        alignment,
        states_per_request=states.per_request,
        notes=_notes(made, settings, does, states),
    )


class _States(NamedTuple):
    """How vLLM keeps recurrent states: blocks of a request in each group, tokens that blocks are a multiple of."""

    there: bool
    per_request: int
    alignment: int
    prefixes: bool

    @classmethod
    def of(cls, runs: Sequence[Kept], settings: Settings, does: Behaviour) -> _States:
        labels = {run.label for run in runs if any(c.role in ("convolution", "state") for c in run.cached)}
        if labels and not does.aligns_states:
            raise AttncalcError(
                f"vLLM {does.name}: no layout of recurrent states is known here", "the first is that of 0.10.0"
            )
        prefixes = does.caches_hybrid_prefixes if settings.prefix_caching is None else settings.prefix_caching
        if not does.drafts_in_states:
            return cls(bool(labels), 1, 1, False)
        if not prefixes:
            return cls(bool(labels), 1 + settings.speculative_tokens, 1, False)
        if does.version < (0, 28) and labels & _KEPT_BY_CHUNK:
            raise AttncalcError(
                f"--prefix-caching: what vLLM {does.name} keeps of Mamba layers then is not known here",
                "leave it out: it is off by default there",
            )
        exported = bool(labels) and all(
            label in _CHECKPOINTS and does.version >= _CHECKPOINTS[label][0] for label in labels
        )
        alignment = max((_CHECKPOINTS[label][1] for label in labels), default=1) if exported else 1
        return cls(bool(labels), 2 + settings.speculative_tokens + int(exported), alignment, True)


def _aligned(runs: Sequence[Kept], settings: Settings, does: Behaviour, states: _States) -> Alignment | None:
    """How many tokens attention's blocks take so that a state fits in one; None where there are not both."""
    one = [spec for run in runs for spec in specs(run.cached, settings, 1)]
    state = max((s.token_bytes for s in one if s.kind == "mamba"), key=int, default=0)
    token = max((s.token_bytes for s in one if s.kind not in ("mamba", "cross")), key=int, default=0)
    if not (state and token):
        return None
    block = _told(runs, settings, does)
    kernel = max(block, 128) if any(s.kind == "mla" for s in one) and does.version >= (0, 27) else block
    return Alignment.of(token, state, math.lcm(kernel, states.alignment), block)


def _told(runs: Sequence[Kept], settings: Settings, does: Behaviour) -> int:
    """Tokens of a block as told, or as the kernel has them."""
    latent = any(c.role == "latent" for run in runs for c in run.cached)
    return settings.block_size or (_MLA_BLOCK if latent and not does.v0 else _BLOCK)


def _block(runs: Sequence[Kept], settings: Settings, does: Behaviour, alignment: Alignment | None) -> int:
    """Tokens of attention's blocks; a symbol where the layers are."""
    block = alignment.block_size if alignment else _told(runs, settings, does)
    if any(isinstance(c.rows * c.width, Quantity) for run in runs for c in run.cached):
        return named(block, "block_size", "tokens of a block")
    return block


def _notes(made: Sequence[tuple[int, Spec]], settings: Settings, does: Behaviour, states: _States) -> tuple[str, ...]:
    kinds = {spec.kind for _, spec in made}
    notes = []
    if "mla" in kinds and settings.block_size is None and not does.v0:
        notes.append(f"Blocks of {_MLA_BLOCK} tokens are FlashMLA's (Hopper); --block-size sets another kernel's.")
    if "mamba" in kinds:
        how = "on: a state more, to align prefixes" if states.prefixes else "off"
        default = " by default" if settings.prefix_caching is None else ""
        notes.append(f"Prefix caching is {how}{default}; each state takes a block, whatever the context.")
    if settings.speculative_tokens and not settings.speculative_layers:
        notes.append("No layer of a drafter is counted: --speculative-layers 1 is MTP's or EAGLE's.")
    return tuple(notes)
