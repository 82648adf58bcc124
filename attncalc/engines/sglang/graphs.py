"""The tokens of a prefill chunk, and the batch sizes that SGLang captures as CUDA graphs.

Source: SGLang's server_args.py of 0.5.3 to 0.5.16, and srt/arg_groups/memory_hook.py and cuda_graph_hook.py of 0.5.23.
"""

from __future__ import annotations

from ..engine import by_device_memory
from .options import SglangArgs
from .versions import SGLangVersion

_CHUNK_STEPS = ((20, 2048), (60, 4096), (160, 8192))
"""(GiB, chunked_prefill_size for GPUs with less memory than that)."""
_OLD_CHUNK_STEPS = ((35, 2048), (60, 4096), (160, 8192))
_LARGEST_CHUNK = 16384
_Steps = tuple[tuple[int, int], ...]
_GRAPH_STEPS: tuple[_Steps, _Steps] = (((20, 8), (35, 48), (60, 32), (160, 256)), ((20, 8), (60, 160)))
"""(GiB, cuda_graph_max_bs for GPUs with less memory than that), with tp below 4 and from 4."""
_OLD_GRAPH_STEPS: tuple[_Steps, _Steps] = (((20, 8), (35, 24), (60, 32), (160, 256)), ((20, 8), (35, 80), (60, 160)))
_LARGEST_GRAPHS = 512


def chunked_prefill_size(args: SglangArgs, version: SGLangVersion) -> int:
    """Return the default tokens of a prefill chunk."""
    steps = _CHUNK_STEPS if version.captures_prefill else _OLD_CHUNK_STEPS
    return by_device_memory(args.device_memory, steps, _LARGEST_CHUNK)


def largest_graph(args: SglangArgs, version: SGLangVersion) -> int:
    """Return the most sequences of a decode step that are captured as a CUDA graph (cuda_graph_max_bs)."""
    below_tp4, from_tp4 = _GRAPH_STEPS if version.captures_prefill else _OLD_GRAPH_STEPS
    graphs = by_device_memory(args.device_memory, below_tp4 if args.tp < 4 else from_tp4, _LARGEST_GRAPHS)
    return min(graphs, args.max_running_requests or graphs)


def decode_graphs(largest: int) -> int:
    """Return how many batch sizes up to `largest` are captured: 36 up to 256 and 52 up to 512, as logged."""
    sizes = [1, 2, 4, 8, 12, *range(16, 256, 8), *range(256, 512, 16), *range(512, largest, 32)]
    return len([size for size in sizes if size < largest]) + 1


def prefill_graphs_mib(args: SglangArgs, chunk: int) -> int:
    """Return the MiB reserved for "breakable" prefill graphs on NVIDIA GPUs: 8 per captured size up to `chunk`.

    There are none with pipeline stages, nor with KDA.

    Source: reserve_for_graph_mb (memory_hook.py), generate_prefill_cuda_graph_batch_sizes and
    apply_cuda_graph_compatibility (cuda_graph_hook.py).
    """
    if args.pp > 1 or "KDA" in args.attentions:
        return 0
    if "MLA" in args.attentions:
        return 1536
    sizes = before = 0
    for end, step in ((32, 4), (256, 16), (512, 32), (1024, 64), (4096, 256), (chunk, 512)):
        sizes += max(0, min(end, chunk) - before) // step
        before = end
    return 8 * sizes
