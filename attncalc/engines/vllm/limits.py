"""The tokens and sequences of one step of vLLM (engine/arg_utils.py)."""

from __future__ import annotations

from ...units import GIB
from .options import VllmArgs
from .versions import VllmVersion

_LONG_CONTEXT = 32 * 1024
"""Tokens of context beyond which V0 splits prompts by default (_set_default_args_v0)."""


def max_num_batched_tokens(args: VllmArgs, version: VllmVersion) -> int:
    """Return the tokens of one step: as given, or the API server's default for the device.

    V0 splits prompts only if the context is longer than 32K, and never with MLA; a step takes a whole prompt otherwise.
    """
    if args.max_num_batched_tokens:
        return args.max_num_batched_tokens
    if version.v0:
        context = args.max_model_len or 0
        return max(context, 2048) if context <= _LONG_CONTEXT or "MLA" in args.attentions else 2048
    if args.device_memory is not None and args.device_memory >= 160 * GIB and version.has_default_for_160_gib:
        return 16384
    return 8192 if _is_large_gpu(args, version) else 2048


def max_num_seqs(args: VllmArgs, version: VllmVersion) -> int:
    """Return the concurrent sequences: as given, or the default for the device (256 before V1)."""
    return args.max_num_seqs or (1024 if _is_large_gpu(args, version) and not version.v0 else 256)


def _is_large_gpu(args: VllmArgs, version: VllmVersion) -> bool:
    """Return whether vLLM takes the device for an H100 or better; an unknown device counts as one."""
    memory = 70 * GIB if args.device_memory is None else args.device_memory
    slower = version.gpus_with_small_defaults
    return memory >= 70 * GIB and not any(name in args.device.lower() for name in slower)
