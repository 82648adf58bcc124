"""SGLang's defaults: its share of a GPU's memory, layers per pipeline stage.

Source: SGLang 0.5.23, srt/arg_groups/memory_hook.py.
"""

from __future__ import annotations

from ..base import EngineArgs
from ..defaults import EngineDefaults
from ..runtime import Limits
from .graphs import chunked_prefill_size, largest_graph, prefill_graphs_mib
from .held_weights import extra_weights
from .quantized import checkpoint_cache_dtype, loads_quantization
from .runtime import sglang_runtime
from .stages import stage_sizes
from .versions import for_vision, old_share, sglang_version, share

_DRIVER_MIB = 500
"""MiB by which nvidia-smi's memory.total exceeds what PyTorch sees: 463 on an RTX 5080 (16,303 and 15,840), 475 on an
L4, 490 on an RTX 4090, 561 on an H100, 615 on an H200, 728 on a B200. SGLang computes the share from it."""


def _limits(args: EngineArgs) -> Limits:
    return Limits(chunked_prefill_size(args, sglang_version(args.engine_version)), 256)


def _mem_fraction_static(args: EngineArgs, devices: int) -> str:
    """Return the default of --mem-fraction-static (handle_gpu_memory_settings), with three decimals.

    It is computed before a drafter limits SGLang to 48 concurrent sequences, so only an explicit
    --max-running-requests reduces the graphs. One case is left out: paths that contain "llama-2" get fewer prefill
    graphs.
    """
    version = sglang_version(args.engine_version)
    memory_mib = (args.device_memory or 0) // 2**20 + (_DRIVER_MIB if args.device.startswith("NVIDIA") else 0)
    old = old_share(version, memory_mib, devices, attn_dp=args.attn_dp, drafts=drafts(args))
    if old is not None:
        return for_vision(version, old, args.vision_params)
    chunk, graphs = chunked_prefill_size(args, version), largest_graph(args, version)
    left_mib = 512 + chunk * 3 // 2 + devices * 128 + graphs * 2
    if args.attn_dp > 1:
        left_mib += graphs * args.attn_dp * (9 if graphs > 300 else 6) // 2
    if version.captures_prefill:
        left_mib += prefill_graphs_mib(args, chunk)
    if memory_mib > 60 * 1024:
        left_mib = max(left_mib, 10 * 1024)
    if drafts(args):
        left_mib += 1024 * version.gib_for_drafter
    return for_vision(version, share(memory_mib, left_mib), args.vision_params)


def drafts(args: EngineArgs) -> bool:
    """Return whether there is a drafter."""
    return bool(args.speculative_layers or args.speculative_tokens)


DEFAULTS = EngineDefaults(
    "SGLang",
    _limits,
    sglang_runtime,
    _mem_fraction_static,
    "--mem-fraction-static",
    larger_shares=("0.8", "0.85", "0.88", "0.9", "0.92"),
    stage_sizes=stage_sizes,
    dtype_of_fp32="fp16",  # _get_and_verify_dtype in configs/model_config.py
    checkpoint_cache_dtype=checkpoint_cache_dtype,
    loads_quantization=loads_quantization,
    pads_tower_heads=True,
    extra_weights=extra_weights,
)
