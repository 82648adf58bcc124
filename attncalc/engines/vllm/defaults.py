"""vLLM's defaults (engine/arg_utils.py, config/cache.py)."""

from __future__ import annotations

from ..base import EngineArgs
from ..defaults import EngineDefaults
from ..runtime import Limits
from .held_weights import extra_weights
from .limits import max_num_batched_tokens, max_num_seqs
from .quantized import checkpoint_cache_dtype, loads_quantization
from .refusals import refusal
from .runtime import runtime
from .versions import vllm_version


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
