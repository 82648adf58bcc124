"""SGLang's default share of a GPU's memory (--mem-fraction-static).

Source: SGLang 0.5.23, srt/arg_groups/memory_hook.py.
"""

from __future__ import annotations

from .graphs import chunked_prefill_size, largest_graph, prefill_graphs_mib
from .options import SglangArgs
from .versions import for_vision, old_share, sglang_version, share

_DRIVER_MIB = 500
"""MiB by which nvidia-smi's memory.total exceeds what PyTorch sees: 463 on an RTX 5080 (16,303 and 15,840), 475 on an
L4, 490 on an RTX 4090, 561 on an H100, 615 on an H200, 728 on a B200. SGLang computes the share from it."""


def mem_fraction_static(args: SglangArgs, devices: int) -> str:
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


def drafts(args: SglangArgs) -> bool:
    """Return whether there is a drafter."""
    return bool(args.speculative_layers or args.speculative_tokens)
