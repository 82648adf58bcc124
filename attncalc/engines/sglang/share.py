"""SGLang's default share of a GPU's memory (--mem-fraction-static), and the tokens and CUDA graphs
that decide it.

Source: SGLang's server_args.py of 0.3.6 to 0.5.18, and memory_hook.py and cuda_graph_hook.py in
srt/arg_groups of 0.5.19 to 0.5.23.
"""

from fractions import Fraction

from ...units import GIB
from .launch import algorithm
from .options import SglangArgs

# (GiB, chunked_prefill_size for GPUs with less memory than that).
_CHUNK_STEPS = ((20, 2048), (60, 4096), (160, 8192))
_OLD_CHUNK_STEPS = ((35, 2048), (60, 4096), (160, 8192))
_LARGEST_CHUNK = 16384
_Steps = tuple[tuple[int, int], ...]
# (GiB, cuda_graph_max_bs for GPUs with less memory than that), with tp below 4 and from 4.
_GRAPH_STEPS: tuple[_Steps, _Steps] = (
    ((20, 8), (35, 48), (60, 32), (160, 256)),
    ((20, 8), (60, 160)),
)
_OLD_GRAPH_STEPS: tuple[_Steps, _Steps] = (
    ((20, 8), (35, 24), (60, 32), (160, 256)),
    ((20, 8), (35, 80), (60, 160)),
)
_LARGEST_GRAPHS = 512
# The model_types with towers whose prefills are captured
# (multimodal_breakable_cuda_graph_supported_model_archs).
_CAPTURED_TOWERS = ("kimi_k25", "kimi_k3", "minimax_m3", "muse_glimmer", "qwen3_5", "qwen3_5_moe")
# The model_types with latents and an indexer.
_SPARSE = ("deepseek_v32", "glm_moe_dsa")
# Beginnings of the model_types whose vision_config has no num_hidden_layers.
_WITH_DEPTH = ("qwen2_5_vl", "qwen3", "glm4v", "glm_ocr")
# {model_type: (layers, width)} of SGLang's own class of a vision_config (configs/kimi_k25.py): the
# checkpoint's names are others, and its defaults count.
_OWN_TOWERS = {"kimi_k25": (27, 1152)}
# MiB by which nvidia-smi's memory.total exceeds what PyTorch sees: 463 on an RTX 5080 (16,303 and
# 15,840), 475 on an L4, 490 on an RTX 4090, 561 on an H100, 615 on an H200, 728 on a B200. SGLang
# computes the share from it.
_DRIVER_MIB = 500
# MiB of a GPU up to which 0.4.5.post3 to 0.4.7 have `share_by_devices`, and up to which 0.4.6.post2
# and 0.4.7 have the share of one device.
_LARGEST_OLD = 80 * 1024
_LARGEST_MIDDLE = 96 * 1024


def _by_device_memory(memory: int | None, steps: _Steps, largest: int) -> int:
    """Return the value of the first step (GiB, value) whose GiB are more than `memory` bytes, else
    `largest`.

    With steps (20, 2048), (60, 4096): 2048 below 20 GiB, 4096 below 60 GiB. An unknown memory gives
    `largest`.
    """
    if memory is None:
        return largest
    return next((value for gib, value in steps if memory < gib * GIB), largest)


def chunked_prefill_size(args: SglangArgs) -> int:
    """Return the tokens of a prefill chunk: as given, or the default for the device."""
    if args.chunked_prefill_size:
        return args.chunked_prefill_size
    steps = _CHUNK_STEPS if args.version.has_larger_steps else _OLD_CHUNK_STEPS
    return _by_device_memory(args.device_memory, steps, _LARGEST_CHUNK)


def largest_graph(args: SglangArgs) -> int:
    """Return the most sequences of a decode step that are captured as a CUDA graph."""
    graphs = _cuda_graph_max_bs(args)
    return min(graphs, args.max_running_requests or graphs)


def _cuda_graph_max_bs(args: SglangArgs) -> int:
    """Return the limit of captured sequences: as given, or the default for the device."""
    if args.version.has_larger_steps:
        below_tp4, from_tp4 = _GRAPH_STEPS
    else:
        below_tp4, from_tp4 = _OLD_GRAPH_STEPS
    default = _by_device_memory(
        args.device_memory, below_tp4 if args.tp < 4 else from_tp4, _LARGEST_GRAPHS
    )
    return args.cuda_graph_max_bs or default


def decode_graphs(largest: int) -> int:
    """Return how many batch sizes up to `largest` are captured: 36 up to 256 and 52 up to 512, as
    logged.
    """
    sizes = [1, 2, 4, 8, 12, *range(16, 256, 8), *range(256, 512, 16), *range(512, largest, 32)]
    return len([size for size in sizes if size < largest]) + 1


def prefill_graphs_mib(args: SglangArgs, chunk: int) -> int:
    """Return the MiB reserved for graphs of prefills: 8 per captured size up to `chunk`, 0 if there
    are none.

    Source: reserve_for_graph_mb (memory_hook.py) and generate_prefill_cuda_graph_batch_sizes
    (cuda_graph_hook.py).
    """
    if not _captures_prefill(args):
        return 0
    if "MLA" in args.attentions:
        return 1536
    sizes = before = 0
    for end, step in ((32, 4), (256, 16), (512, 32), (1024, 64), (4096, 256), (chunk, 512)):
        sizes += max(0, min(end, chunk) - before) // step
        before = end
    return 8 * sizes


def _captures_prefill(args: SglangArgs) -> bool:
    """Return whether graphs of prefills are captured: compiled ones up to 0.5.14, and "breakable"
    ones since.

    Source: _handle_piecewise_cuda_graph (server_args.py, 0.5.10 to 0.5.13), and what disables each
    kind of graph in apply_cuda_graph_compatibility (later versions).
    """
    version = args.version
    is_split = args.pp > 1 or args.dcp > 1
    if not version.captures_prefill or is_split or args.device.startswith("AMD"):
        return False
    if args.attentions & {"KDA", "CSA", "CSA2"}:
        return False
    is_captured_tower = version.captures_prefill_of_towers and args.model_type in _CAPTURED_TOWERS
    has_options = args.attn_dp > 1 or args.enable_lora or args.moe_a2a_backend
    if (args.vision_params and not is_captured_tower) or (
        has_options and not version.captures_prefill_with_options
    ):
        return False
    if version.captures_breakable_prefill:
        captured = version.captures_latents
        has_graphs = captured == "all" or (captured == "sparse" and args.model_type in _SPARSE)
        # Kimi-K2.5's prefills were compiled while those of other latents were not captured
        return "MLA" not in args.attentions or is_captured_tower or has_graphs
    has_drafter = args.has_drafter and not version.compiles_prefill_with_drafter
    return not (
        args.caches_on_host or has_drafter or args.model_type in version.models_not_compiled
    )


def mem_fraction_static(args: SglangArgs, devices: int) -> str:
    """Return the default of --mem-fraction-static (handle_gpu_memory_settings), as a decimal;
    `devices` is tp * pp.

    It is computed before a drafter limits SGLang to 48 concurrent sequences. One case is left out:
    paths that contain "llama-2" get fewer prefill graphs.
    """
    memory_mib = (args.device_memory or 0) // 2**20
    if args.device.startswith("NVIDIA"):
        memory_mib += _DRIVER_MIB
    return for_vision(args, _share_of_text(args, memory_mib, devices))


def _share_of_text(args: SglangArgs, memory_mib: int, devices: int) -> str:
    """Return the default share of a model without a vision tower.

    What only 0.4.7 has is left out: 0.79 above 180,000 MiB, and less for a drafter.
    """
    version = args.version
    if version.share_leaves_gib:
        left_mib = _left_mib if version.share_leaves_mib else _old_left_mib
        is_model = (
            args.speculative_model is not None and algorithm(args.speculative_model) == "STANDALONE"
        )
        for_drafter = 0
        if args.has_drafter:
            for_drafter = version.gib_for_drafter
        if is_model and version.gib_for_drafter:
            for_drafter = 6
        left = left_mib(args, memory_mib, devices)
        return _share(memory_mib, left + 1024 * for_drafter)
    if version.gib_of_large_gpus == 18 and memory_mib > _LARGEST_OLD:
        # 0.88 up to 96 GiB; larger GPUs leave 12 % of what they have beyond 48 GiB, and at least 18
        # GiB
        beyond = memory_mib - 48 * 1024
        if memory_mib <= _LARGEST_MIDDLE:
            return "0.88"
        return _share(memory_mib, max(18 * 1024, beyond * 12 // 100))
    if version.gib_of_large_gpus and memory_mib > _LARGEST_OLD:
        return _share(memory_mib, 1024 * version.gib_of_large_gpus)
    for fewer, hundredths in version.share_by_devices:
        if devices < fewer:
            return f"0.{hundredths}"
    return "0.79"


def _left_mib(args: SglangArgs, memory_mib: int, devices: int) -> int:
    """Return the MiB that 0.5.3 and later versions leave outside the share."""
    chunk = chunked_prefill_size(args)
    graphs = _cuda_graph_max_bs(args)
    if args.version.limits_graphs_of_share:
        graphs = largest_graph(args)
    left_mib = (
        512
        + max(chunk, 2048) * 3 // 2
        + devices * 128
        + graphs * 2
        + prefill_graphs_mib(args, chunk)
    )
    if args.attn_dp > 1:
        left_mib += graphs * args.attn_dp * (9 if graphs > 300 else 6) // 2
    is_deepep = args.version.leaves_for_deepep and args.moe_a2a_backend == "deepep"
    if is_deepep and _captures_prefill(args):
        left_mib += 1024
    if memory_mib > 60 * 1024:
        left_mib = max(left_mib, 10 * 1024)
    if is_deepep:
        left_mib += 2048
    return left_mib


def _old_left_mib(args: SglangArgs, memory_mib: int, devices: int) -> int:
    """Return the MiB that 0.4.7.post1 to 0.5.2 leave: 9.5 + 1 / 2 = 10 GiB of 80 GiB on one device,
    so 0.875.
    """
    for_ranks = 4096 if args.attn_dp > 1 else 0
    if memory_mib < 35 * 1024:
        return 28 * 1024 // 10 + devices * 1024 // 10 + for_ranks
    if memory_mib < 90 * 1024:
        return 9 * 1024 + 512 + devices * 512 + for_ranks
    if memory_mib < 160 * 1024:
        return 12 * 1024 + devices * 512 + for_ranks
    return 32 * 1024 + for_ranks


def for_vision(args: SglangArgs, share_of_text: str) -> str:
    """Return the default share of a model with a vision tower, as a decimal with four places; as it
    is without one.

    From 0.5.3 it is 0.95 times a factor: 1 for a tower like ViT-L, whose layers times the square of
    the width are 24 * 1024^2, and 0.1 less for each further 24 * 1024^2, within 0.8 and 1.05. A
    layer has about 12 times the square of its width as parameters, from which that product is
    concluded. A config that calls its layers `depth`, as Qwen's and GLM's, counts as 24 layers.

    For example Kimi-K2.5's MoonViT with 27 layers of 1,152: 0.95 * (1 - 0.1 * 0.424) = 0.91.

    Source: adjust_mem_fraction_for_vlm (0.5.3 to 0.5.23), server_args.py of 0.4.9 and
    model_runner.py of 0.4.4.post4 (0.90), model_runner.py of 0.3.6 (0.95).
    """
    if not args.vision_params:
        return share_of_text
    factor = Fraction(args.version.share_for_vision)
    if args.version.share_leaves_mib:
        params = args.vision_params
        base = 12 * 24 * 1024**2
        if args.vision_width and (args.model_type or "").startswith(_WITH_DEPTH):
            params = 12 * 24 * args.vision_width**2
        elif args.model_type in _OWN_TOWERS:
            layers, width = _OWN_TOWERS[args.model_type]
            params = 12 * layers * width**2
        dynamic = 1 - (Fraction(params, base) - 1) / 10
        factor = Fraction(95, 100) * min(Fraction(105, 100), max(Fraction(8, 10), dynamic))
    return f"{float(Fraction(share_of_text) * factor):.4f}"


def _share(memory_mib: int, left_mib: int) -> str:
    """Return (memory - left) / memory as a decimal, rounded half up to three places, and at least
    0.001.
    """
    if memory_mib:
        thousandths = (2000 * (memory_mib - left_mib) + memory_mib) // (2 * memory_mib)
    else:
        thousandths = 0
    return f"0.{max(1, thousandths):03d}"
