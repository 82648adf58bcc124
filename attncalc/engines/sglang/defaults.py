"""SGLang's defaults: its share of a GPU's memory, the tokens of a prefill chunk, layers per pipeline stage.

Source: SGLang 0.5.23, srt/arg_groups/memory_hook.py and cuda_graph_hook.py.
"""

from __future__ import annotations

from ..base import EngineArgs
from ..defaults import EngineDefaults, Limits, by_device_memory
from ..estimate import constant_runtime
from ..pipeline import check_stages
from .held_weights import extra_weights

_CHUNK_STEPS = ((20, 2048), (60, 4096), (160, 8192))
"""(GiB, chunked_prefill_size for GPUs with less memory than that)."""
_LARGEST_CHUNK = 16384
_GRAPH_STEPS = ((20, 8), (35, 48), (60, 32), (160, 256))
"""(GiB, cuda_graph_max_bs for GPUs with less memory than that), with tp below 4."""
_GRAPH_STEPS_TP4 = ((20, 8), (60, 160))
_LARGEST_GRAPHS = 512


def stage_sizes(layers: int, pp: int) -> list[int]:
    """Return how many layers each pipeline stage has; if they do not divide, the last stages get one more each.

    10 layers in 4 stages are 2, 2, 3, 3.

    Source: SGLang's get_pp_indices (distributed/utils.py). Raises AttncalcError if there are fewer layers than stages.
    """
    check_stages(layers, pp)
    return [(layers + stage) // pp for stage in range(pp)]


def _chunked_prefill_size(args: EngineArgs) -> int:
    return by_device_memory(args.device_memory, _CHUNK_STEPS, _LARGEST_CHUNK)


def _limits(args: EngineArgs) -> Limits:
    return Limits(_chunked_prefill_size(args), 256)


def _mem_fraction_static(args: EngineArgs, devices: int) -> str:
    """Return the default of --mem-fraction-static (handle_gpu_memory_settings), with three decimals.

    It is computed before a drafter limits SGLang to 48 concurrent sequences, so only an explicit
    --max-running-requests reduces the graphs. Two cases are left out: vision models get a smaller share that depends on
    their encoder (adjust_mem_fraction_for_vlm), and paths that contain "llama-2" get fewer prefill graphs.
    """
    memory_mib = (args.device_memory or 0) // 2**20
    chunk = _chunked_prefill_size(args)
    graph_steps = _GRAPH_STEPS if args.tp < 4 else _GRAPH_STEPS_TP4
    graphs = by_device_memory(args.device_memory, graph_steps, _LARGEST_GRAPHS)
    if args.max_running_requests:
        graphs = min(graphs, args.max_running_requests)
    reserved_mib = 512 + chunk * 3 // 2 + devices * 128 + graphs * 2 + _prefill_graphs_mib(args, chunk)
    if memory_mib > 60 * 1024:
        reserved_mib = max(reserved_mib, 10 * 1024)
    # 1000 * (memory - reserved) / memory, rounded half up
    thousandths = (2000 * (memory_mib - reserved_mib) + memory_mib) // (2 * memory_mib)
    return f"0.{max(1, thousandths):03d}"


def _prefill_graphs_mib(args: EngineArgs, chunk: int) -> int:
    """Return the MiB reserved for "breakable" prefill graphs on NVIDIA GPUs: 8 per captured size up to `chunk`.

    There are none with pipeline stages, nor with KDA.

    Source: reserve_for_graph_mb (memory_hook.py), generate_prefill_cuda_graph_batch_sizes and
    apply_cuda_graph_compatibility (cuda_graph_hook.py).
    """
    if args.pp > 1 or "KDA" in args.attentions:
        return 0
    if "MLA" in args.attentions:
        return 1536
    ranges = ((4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256), (4608, chunk, 512))
    return 8 * sum(size <= chunk for start, end, step in ranges for size in range(start, end + 1, step))


DEFAULTS = EngineDefaults(
    "SGLang",
    _limits,
    constant_runtime,
    _mem_fraction_static,
    "--mem-fraction-static",
    stage_sizes=stage_sizes,
    dtype_of_fp32="fp16",  # _get_and_verify_dtype in configs/model_config.py
    reads_kv_dtype=True,
    extra_weights=extra_weights,
)
