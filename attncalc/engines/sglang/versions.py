"""What changed between SGLang's versions: dtypes that it reads, and its default share of a GPU's
memory.
"""

import re

from ...errors import AttncalcError, NotSupportedError
from ...units import truncate
from ..switches import Version, between, by_version, since

# The version whose source the pools are from.
VERSION = "0.5.23"
_OLDEST = (0, 3, 6)
# Releases that a log without a version may come from, the newest first: one for each combination of
# the behaviours below.
RELEASES = (
    VERSION,
    "0.5.22",
    "0.5.20",
    "0.5.19",
    "0.5.18",
    "0.5.17",
    "0.5.16",
    "0.5.15",
    "0.5.14",
    "0.5.13",
    "0.5.12",
    "0.5.11",
    "0.5.10",
    "0.5.7",
    "0.5.5",
    "0.5.3",
    "0.4.7.post1",
    "0.4.6.post2",
    "0.4.5.post3",
    "0.4.4.post4",
    "0.4.0",
    "0.3.6",
)


class SglangVersion(Version):
    @property
    def source_was_read(self) -> bool:
        """Whether the pools are from this version's source."""
        return self.name == VERSION

    # A context beyond the model's maximum is an error, unless a variable allows it.
    refuses_long_context = since(
        (0, 5, 2), "_derive_context_length in configs/model_config.py; 0.4.10 only warns"
    )
    # Compressed attention's window pool is sized by the running requests, unless a ratio is given.
    caps_windows = since((0, 5, 21), "_resolve_swa_cap_tokens in pool_configurator.py")
    # The pool is divided by all 656 bytes of an fp8 latent with an indexer; before, by 576.
    budgets_scales_of_latents = since(
        (0, 5, 17), "_compute_cell_size in pool_configurator.py; pull request 31992"
    )
    # MiniMax-M3 is supported.
    has_block_sparse = since((0, 5, 16), "models/minimax_m3.py")
    # The GPUs on which the keys of MiniMax-M3's indexer are in fp8 beside a cache in fp8.
    gpus_with_fp8_index_keys = by_version(
        {(): "", (0, 5, 21): "blackwell", (0, 5, 23): "blackwell, hopper"},
        "get_minimax_sparse_index_dtype in mem_cache/memory_pool.py",
    )
    # GLM-5.3-Flash's pools of 4 tokens count one key of its indexer; before, one per token.
    budgets_pools_of_keys = since(
        (0, 5, 22), "_compute_dsa_indexer_cell_size in model_executor/pool_configurator.py"
    )
    # On Blackwell GPUs an fp8 latent with an indexer has no scales, as TRT-LLM's kernel wants it.
    stores_raw_latents = since((0, 5, 10), "_set_default_nsa_backends in server_args.py")
    # On compute capability 12, GLM-5's has them: FlashInfer's kernel.
    scales_latents_on_rtx = since(
        (0, 5, 17), "_dsa_split_backend_resolution in arg_groups/overrides.py"
    )
    # CUDA graphs of prefills are on by default, and reserved for.
    captures_prefill = since((0, 5, 10), "disable_piecewise_cuda_graph in server_args.py")
    # A drafter does not disable the graphs of prefills.
    compiles_prefill_with_drafter = since(
        (0, 5, 11), "_handle_piecewise_cuda_graph in server_args.py"
    )
    # The model_types without graphs of prefills while these are compiled.
    models_not_compiled = by_version(
        {(): ("deepseek_v32", "glm_moe_dsa", "qwen3_next"), (0, 5, 13): ("qwen3_next",)},
        "piecewise_cuda_graph_disabled_model_archs in configs/model_config.py",
    )
    # Graphs of prefills are not compiled, and so there are more models with them.
    captures_breakable_prefill = since(
        (0, 5, 15), "default_prefill_backend in cuda_graph_config.py"
    )
    # Some models with towers have graphs of prefills; before none has.
    captures_prefill_of_towers = since(
        (0, 5, 16), "is_multimodal_breakable_cuda_graph_supported in server_args.py"
    )
    # There are graphs of prefills with DP attention, LoRA adapters and a backend that exchanges
    # tokens.
    captures_prefill_with_options = since(
        (0, 5, 17), "_disable_breakable_cudagraph_if_incompatible in server_args.py"
    )
    # The models with latents whose prefills have graphs; sparse: those with an indexer.
    captures_latents = by_version(
        {(): "all", (0, 5, 15): "none", (0, 5, 17): "sparse", (0, 5, 18): "all"},
        "_disable_breakable_cudagraph_if_incompatible in server_args.py",
    )
    # GPUs with less than 35 GiB have chunks of 4,096 tokens, and larger graphs.
    has_larger_steps = since((0, 5, 20), "handle_gpu_memory_settings in arg_groups/memory_hook.py")
    # The default share counts no more graphs than concurrent requests.
    limits_graphs_of_share = since(
        (0, 5, 22), "handle_gpu_memory_settings in arg_groups/memory_hook.py"
    )
    # The default share leaves memory for DeepEP's buffers.
    leaves_for_deepep = since((0, 5, 15), "_handle_gpu_memory_settings in server_args.py")
    # Pages of compressed attention are counted with their padding.
    counts_padded_pages = since((0, 5, 21), "_get_paged_kv_bytes_per_token in pool_configurator.py")
    # The layers of a stage count; before, those of compress_ratios, which has multi-token
    # prediction too.
    counts_windows_by_stage = since((0, 5, 13), "DSV4PoolConfigurator in pool_configurator.py")
    # GiB that the default share leaves for a drafter, if it is computed from what it leaves.
    gib_for_drafter = by_version(
        {(): 2, (0, 5, 10): 4, (0, 5, 14): 0}, "_handle_gpu_memory_settings in server_args.py"
    )
    # The drafter is loaded before the pools, which leave memory for its weights and its cache.
    sizes_pools_after_drafter = since((0, 5, 14), "init_model_worker in managers/scheduler.py")
    # The pools leave memory for DFlash's layers, as if their rows were as large as the model's.
    counts_layers_of_dflash = since(
        (0, 5, 11), "DefaultPoolConfigurator in model_executor/pool_configurator.py"
    )
    # The pools leave memory for the rows that DFlash has.
    counts_rows_of_dflash = since(
        (0, 5, 18), "_dflash_draft_cell_size in model_executor/pool_configurator.py"
    )
    # The pools leave memory for as many layers as the model has, if its config has a text_config:
    # #29857.
    takes_wrapped_drafter_for_model = between(
        (0, 5, 14), (0, 5, 18), "_config_draft_model in configs/model_config.py"
    )
    # DeepSeek-V4 is supported.
    has_compressed_attention = since((0, 5, 12), "mem_cache/deepseek_v4_memory_pool.py")
    # DeepSeek-V4.1 is supported.
    has_shared_pools = since((0, 5, 21), "configs/deepseek_v41.py")
    # DeepSeek-V4.1's pools are counted with their padding and reserved pages, and have formats for
    # Blackwell.
    reserves_shared_pages = since(
        (0, 5, 23), "_get_low_ratio_kv_padding_bytes in pool_configurator.py"
    )
    # Tokens to pool by 4 are kept once per page of 256 tokens of the window pool; before, per 128
    # tokens.
    keeps_unpooled_by_page = since((0, 5, 21), "_get_bytes_per_swa_token in pool_configurator.py")
    # Tokens to pool by 128 are kept per request; before, per 128 tokens of the window pool.
    keeps_unpooled_by_request = since(
        (0, 5, 15), "_get_c128_state_fixed_bytes in pool_configurator.py"
    )
    # Qwen4 is supported.
    has_averaged_keys = since((0, 5, 20), "mem_cache/qsa_kv_pool.py")
    # Decode context parallelism is available.
    has_dcp = since((0, 5, 15), "dcp_size in server_args.py")
    # The pool counts an indexer's keys, of which each GPU stores all.
    has_dcp_with_indexer = since(
        (0, 5, 22), "_compute_cell_size in model_executor/pool_configurator.py"
    )
    # --attn-dp-size replaces --dp-size with --enable-dp-attention, which is deprecated then.
    has_attn_dp_size = since((0, 5, 22), "server_args.py")
    # Options by which --cuda-graph-max-bs-decode and --mamba-radix-cache-strategy were known; the
    # old names are gone since 0.5.20.
    graph_batch_option = by_version(
        {(): "--cuda-graph-max-bs", (0, 5, 14): "--cuda-graph-max-bs-decode"}, "server_args.py"
    )
    state_slots_option = by_version(
        {(): "--mamba-scheduler-strategy", (0, 5, 14): "--mamba-radix-cache-strategy"},
        "server_args.py",
    )
    # kv_cache_quant_algo of modelopt's configs is read.
    reads_modelopt_cache_dtype = since((0, 5, 3), "model_executor/model_runner.py")
    # kv_cache_quant_algo of fp8's configs is read.
    reads_fp8_cache_dtype = since((0, 5, 18), "Fp8Config in layers/quantization/fp8.py")
    # kv_cache_scheme is read.
    reads_compressed_tensors_cache_dtype = since(
        (0, 5, 19), "kv_cache_quant_algo in compressed_tensors.py"
    )
    # Where the copies of states for drafted tokens come from: they enlarge each slot, or are taken
    # from the memory before it is divided, for as many requests as may run, or are part of the
    # states' share.
    copies_states = by_version(
        {(): "per slot", (0, 5, 7): "at first", (0, 5, 13): "per request"},
        "handle_max_mamba_cache in model_executor",
    )
    # The share of the states includes the slot that no sequence gets.
    pads_states = since((0, 5, 17), "_handle_max_mamba_cache in mem_cache/kv_cache_configurator.py")
    # By default the radix cache copies states while a request runs (--mamba-radix-cache-strategy
    # extra_buffer).
    buffers_states = since((0, 5, 14), "_handle_mamba_radix_cache in server_args.py")
    # A step with a drafter overlaps the next one, unless all tokens are drafted at once.
    overlaps_drafter = since((0, 5, 11), "SGLANG_ENABLE_SPEC_V2 in environ.py")
    # A step overlaps the next one with DFlash and n-grams, too.
    overlaps_dflash = since((0, 5, 14), "_handle_dflash in arg_groups/speculative_hook.py")
    # The share is multiplied by 0.85 if AITER computes attention and the context is longer than
    # 8,192 tokens.
    #
    # model_specific_adjustment in model_executor/model_runner.py has it, and later server_args.py.
    # Pull request 37242 of 2026-08-31 has a variable that keeps a given share:
    # SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION.
    reserves_for_aiter = since(
        (0, 4, 7, 1), "measured: logs of 0.5.7 and 0.5.19 have it, one of 0.4.6.post2 not"
    )
    # The share in the log's ServerArgs is multiplied by that 0.85 already.
    prints_share_of_aiter = since(
        (0, 5, 5), "_handle_attention_backend_compatibility in server_args.py"
    )
    # The default share leaves a number of GiB.
    share_leaves_gib = since((0, 4, 7, 1), "__post_init__ in server_args.py")
    # The default share leaves what is computed from the prefill chunk and graphs.
    share_leaves_mib = since((0, 5, 3), "_handle_gpu_memory_settings in server_args.py")
    # GiB that large GPUs leave: 13 those of more than 80 GiB, or 18 those of more than 96.
    gib_of_large_gpus = by_version(
        {(): 0, (0, 4, 5, 3): 13, (0, 4, 6, 2): 18}, "__post_init__ in server_args.py"
    )
    # (devices, hundredths): the default share with fewer devices than that.
    share_by_devices = by_version(
        {(): ((2, 88), (4, 87), (8, 85), (16, 82)), (0, 4): ((2, 88), (4, 87), (8, 85), (16, 81))},
        "__post_init__ in server_args.py",
    )
    # The factor of the default share of a model with a vision tower, up to 0.5.2.
    share_for_vision = by_version(
        {(): "0.95", (0, 4, 4, 4): "0.90"}, "model_executor/model_runner.py"
    )


def releases_of(text: str) -> tuple[str, ...]:
    """Return the releases that may have written a log with these lines, the newest first."""
    loaded = re.search(r"Load weight end\.[^\[]{0,300}", text)
    versions = [sglang_version(name) for name in RELEASES]
    if loaded and "mem usage=" not in loaded[0]:
        versions = [version for version in versions if version.number < (0, 4, 4)]
    if "attn_dp_size=" in text:
        versions = [version for version in versions if version.has_attn_dp_size]
    return tuple(version.name for version in versions)


def sglang_version(text: str | None) -> SglangVersion:
    """Return that version, by default VERSION. Raises AttncalcError if it is invalid or too old."""
    numbers = (
        r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?(?:\.?post(\d{0,6}))?(?:(?:\.?(?:rc|dev)\d"
        r"|\+)[\w.+]{0,60})?"
    )
    match = re.fullmatch(numbers, text or VERSION)  # 0.5.17.dev20260819+g5742746
    if not match:
        raise AttncalcError(f"SGLang has no version '{truncate(text)}'", f"write it as {VERSION}")
    *release, post = (int(part or 0) for part in match.groups())
    if tuple(release) < _OLDEST:
        raise NotSupportedError(
            f"SGLang {truncate(text)} is not supported",
            f"{'.'.join(map(str, _OLDEST))} is the oldest supported version, and {VERSION} the "
            "default",
        )
    return SglangVersion(
        (text or VERSION).removeprefix("v"), (*release, post) if post else tuple(release)
    )
