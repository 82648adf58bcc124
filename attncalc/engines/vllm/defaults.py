"""vLLM's defaults (engine/arg_utils.py, config/cache.py)."""

from __future__ import annotations

from ...units import GIB
from ..base import EngineArgs
from ..defaults import EngineDefaults, Limits
from .held_weights import extra_weights
from .quantized import checkpoint_cache_dtype, loads_quantization
from .refusals import refusal
from .runtime import runtime
from .versions import VllmVersion, vllm_version

_LONG_CONTEXT = 32 * 1024
"""Tokens of context beyond which V0 splits prompts by default (_set_default_args_v0)."""


def max_num_batched_tokens(args: EngineArgs, version: VllmVersion) -> int:
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


def max_num_seqs(args: EngineArgs, version: VllmVersion) -> int:
    """Return the concurrent sequences: as given, or the default for the device (256 before V1)."""
    return args.max_num_seqs or (1024 if _is_large_gpu(args, version) and not version.v0 else 256)


def _is_large_gpu(args: EngineArgs, version: VllmVersion) -> bool:
    """Return whether vLLM takes the device for an H100 or better; an unknown device counts as one."""
    memory = 70 * GIB if args.device_memory is None else args.device_memory
    slower = version.gpus_with_small_defaults
    return memory >= 70 * GIB and not any(name in args.device.lower() for name in slower)


def _limits(args: EngineArgs) -> Limits:
    version = vllm_version(args.engine_version)
    return Limits(max_num_batched_tokens(args, version), max_num_seqs(args, version))


def _gpu_memory_utilization(args: EngineArgs, devices: int) -> str:
    return vllm_version(args.engine_version).utilization


DEFAULTS = EngineDefaults(
    "vLLM",
    _limits,
    runtime,
    _gpu_memory_utilization,
    larger_shares=("0.95",),
    fewer_sequences=(128, 32, 8),
    refusal=refusal,
    checks_all_layers=lambda args: vllm_version(args.engine_version).checks_all_layers,
    must_fit_one=True,
    dtype_of_fp32="bf16",  # _resolve_auto_dtype in config/model.py
    checkpoint_cache_dtype=checkpoint_cache_dtype,
    loads_quantization=loads_quantization,
    extra_weights=extra_weights,
)
