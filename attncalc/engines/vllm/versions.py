"""What changed between vLLM's versions and affects its cache or its log. Read from the sources of
0.8.0 to 0.33.0.
"""

import re
from typing import Literal

from ...errors import AttncalcError
from ...units import truncate
from ..switches import Number, Switch, Version, between, by_version, since, until

# The oldest version whose log lines are supported, and the newest whose source was read.
OLDEST = (0, 5)
NEWEST = (0, 33, 0)
V0 = "V0"
# Releases that a log without a version may come from, the newest first: at least one for each
# combination of the behaviours below.
RELEASES = (
    "0.33.0",
    "0.32.0",
    "0.31.0",
    "0.30.0",
    "0.29.0",
    "0.28.0",
    "0.27.1",
    "0.26.0",
    "0.25.1",
    "0.24.0",
    "0.23.0",
    "0.22.1",
    "0.21.0",
    "0.20.2",
    "0.20.1",
    "0.20.0",
    "0.19.1",
    "0.18.1",
    "0.17.1",
    "0.16.0",
    "0.15.1",
    "0.14.1",
    "0.13.0",
    "0.12.0",
    "0.11.2",
    "0.11.0",
    "0.10.2",
    "0.10.1",
    "0.10.0",
    "0.9.2",
    "0.9.0",
    "0.8.5",
    "0.8.4",
    "0.8.3",
)
_MIXTURES = ("deepseek_v2", "qwen2_moe", "granitemoe")
_SCRATCH_OF_FLASHINFER = 12
_CONNECTORS = frozenset(
    {
        "DecodeBenchConnector",
        "MooncakeConnector",
        "MultiConnector",
        "NixlConnector",
        "OffloadingConnector",
        "SimpleCPUOffloadConnector",
    }
)
_CONNECTORS_OF_22 = frozenset(
    {
        "ExampleHiddenStatesConnector",
        "LMCacheMPConnector",
        "MooncakeStoreConnector",
        "NixlPullConnector",
        "NixlPushConnector",
    }
)
_BACKENDS = frozenset(
    {"allgather_reducescatter", "deepep_high_throughput", "deepep_low_latency", "naive", "pplx"}
)
_BACKENDS_OF_11 = _BACKENDS | {"flashinfer_all2allv"}
_BACKENDS_OF_18 = _BACKENDS_OF_11 | {
    "flashinfer_nvlink_one_sided",
    "flashinfer_nvlink_two_sided",
    "nixl_ep",
}
_BACKENDS_OF_23 = _BACKENDS_OF_18 | {"mori_high_throughput", "mori_low_latency"}
_INKLING = ("inkling_text", "inkling_mm_model")


class VllmVersion(Version):
    """The behaviour of one version. The old engine of any version has the number (0,)."""

    # It is the engine before V1.
    v0 = until((0, 8), "VLLM_USE_V1 in envs.py")
    source_was_read = since((0, 8), "the oldest source that was read is 0.8.0's")
    utilization = by_version(
        {(): "0.9", (0, 20): "0.92"}, "gpu_memory_utilization in config/cache.py"
    )
    # --swap-space is an option, which V1 does not use.
    has_swap_space = until((0, 18), "add_cli_args in engine/arg_utils.py")

    # How layers are grouped, and the size of their blocks

    # Sliding windows have their own groups; before, they were stored like full attention.
    groups_hybrids = since((0, 9, 1), "disable_hybrid_kv_cache_manager in config.py")
    # Chunks have groups of their own too.
    groups_chunks = by_version(
        {(): False, (0, 10): True, (0, 10, 1): False, (0, 14): True},
        "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE in envs.py",
    )
    # Layers of one type but of different widths share a group.
    groups_mixed_widths = since((0, 11), "UniformTypeKVCacheSpecs in v1/kv_cache_interface.py")
    # A group takes every n-th layer of its type, so that each pipeline stage has its share.
    groups_every_nth_layer = since(
        (0, 11), "_get_kv_cache_groups_uniform_page_size in v1/core/kv_cache_utils.py"
    )
    # Each pipeline stage groups its own layers.
    groups_by_worker = until((0, 11), "v1/engine/core.py")
    # A stage allocates only its own layers of a group with several widths.
    cuts_groups_by_stage = by_version(
        {(): True, (0, 11): False, (0, 17): True}, "_project_kv_cache_groups_to_worker"
    )
    # Layers with smaller pages get larger blocks, so that all pages are equal.
    unifies_pages = since((0, 12), "unify_kv_cache_spec_page_size")
    # Pages that do not divide the largest page are padded to it.
    pads_pages = since((0, 24), "unify_kv_cache_spec_page_size")
    # The ratio (a, b) below which groups get the size of the largest type instead of the smallest.
    #
    # (3, 2): 13 layers of one type and 10 of another make groups of 13, since 13 / 10 < 3 / 2.
    # None: never.
    max_padding: Switch[tuple[int, int] | None] = by_version(
        {(): None, (0, 12): (5, 4), (0, 18): (3, 2)}, "_get_kv_cache_groups_uniform_page_size"
    )
    # The file that groups layers and counts blocks.
    planner = by_version({(): "kv_cache_utils.py", (0, 33): "kv_cache_planning.py"}, "v1/core")
    # One request must fit on each pipeline stage with the layers of all stages; otherwise, with the
    # stage's own.
    checks_all_layers = between(
        (0, 14), (0, 17), "get_kv_cache_configs; vllm-project/vllm issue 34076"
    )
    # The memory that one request must fit in lacks the block that stays free.
    checks_usable_blocks = since((0, 29), "get_kv_cache_configs")
    # The blocks of sliding windows are the kernel's smallest.
    smallest_window_block = between(
        (0, 25), (0, 30), "get_kv_cache_spec in layers/attention/attention.py"
    )
    # A window holds the tokens of all steps in flight, which are --pp + 1 with async scheduling.
    two_steps_in_flight = since((0, 26), "max_in_flight_tokens in config/vllm.py")
    # A mixture of experts runs on the older runner, with as many steps in flight as stages.
    steps_depend_on_experts = between((0, 26), (0, 29), "max_concurrent_batches in config/vllm.py")
    # Decode context parallelism is available.
    has_dcp = since((0, 10, 2), "decode_context_parallel_size in config/parallel.py")
    has_dcp_with_fp8_latents = since(
        (0, 25), "forward_impl in model_executor/layers/attention/mla_attention.py"
    )
    # On GPUs of compute capability 10.
    has_dcp_with_indexer = since(
        (0, 25), "can_return_lse_for_decode in backends/mla/flashinfer_mla_sparse.py"
    )
    has_dcp_with_indexer_on_hopper = since(
        (0, 29), "can_return_lse_for_decode in backends/mla/flashmla_sparse.py"
    )

    # All layers share TurboQuant's workspaces; in 0.20, the first version with TurboQuant, each has
    # its own.
    shares_turboquant_workspaces = since(
        (0, 21), "_init_turboquant_buffers in layers/attention/attention.py"
    )
    has_language_model_only = since(
        (0, 17), "language_model_only in config/multimodal.py, pull request 34120"
    )
    # Blocks of the cache can be copied to host memory.
    has_kv_offloading = since((0, 11, 1), "kv_offloading_size in config/cache.py")
    # Connectors of --kv-transfer-config that support the hybrid KV-cache manager.
    #
    # LMCacheMPConnector is LMCache's own class from 0.22 on, which supports it in LMCache 0.5.6.
    connectors_of_hybrids: Switch[frozenset[str]] = by_version(
        {
            (): frozenset(),
            (0, 18): frozenset({"NixlConnector"}),
            (0, 19): frozenset({"NixlConnector", "SimpleCPUOffloadConnector"}),
            (0, 20): frozenset({"MooncakeConnector", "NixlConnector", "SimpleCPUOffloadConnector"}),
            (0, 21): _CONNECTORS,
            (0, 22): _CONNECTORS | _CONNECTORS_OF_22,
            (0, 30): _CONNECTORS | _CONNECTORS_OF_22 | {"MoRIIOConnector", "HiSparseConnector"},
        },
        "subclasses of SupportsHMA in distributed/kv_transfer/kv_connector/v1",
    )
    # The hybrid KV-cache manager stays on for these; before, any connector turned it off.
    asks_connectors = since((0, 22), "VllmConfig.__post_init__ in config/vllm.py")
    # --no-disable-hybrid-kv-cache-manager keeps it on.
    can_keep_hybrid_manager = since(
        (0, 13), "disable_hybrid_kv_cache_manager in config/scheduler.py, whose default is None"
    )
    # The connector of --kv-offloading-backend lmcache.
    connector_of_lmcache = by_version(
        {(): "LMCacheConnectorV1", (0, 23): "LMCacheMPConnector"},
        "_post_init_kv_transfer_config in config/vllm.py",
    )
    # EPLB's arguments are one JSON.
    has_eplb_config = since((0, 10, 2), "eplb_config in config/parallel.py")
    # EPLB has a buffer for the experts of one layer from its start, and not while it moves them.
    holds_eplb_buffer = since((0, 12), "expert_buffer in distributed/eplb/eplb_state.py")
    # Tensor-parallel GPUs share one copy of MLA's latents there; 'plain': only if all layers cache
    # the same.
    offloads_latents_once: Switch[Literal["never", "plain", "always"]] = by_version(
        {(): "never", (0, 27): "plain", (0, 31): "always"},
        "replicated_layout in kv_connector/v1/offloading/config.py",
    )

    # How a block holds groups with pages of several sizes (compressed attention)

    # Pages of unpooled tokens are padded to the next larger page of the pools.
    pads_unpooled_pages = until(
        (0, 27), "_get_kv_cache_groups_uniform_groups in v1/core/kv_cache_utils.py"
    )
    # The pages of a block: one of each size per layer tuple; of each size, those of the group with
    # the most of them; those of the largest group.
    block_pages: Switch[Literal["tuples", "slots", "group"]] = by_version(
        {(): "tuples", (0, 23): "slots", (0, 27): "group"},
        "_pool_bytes_per_block in v1/core/kv_cache_utils.py",
    )
    # One request must fit with blocks that have a page of each size per layer tuple.
    admits_by_tuples = until(
        (0, 29), "_max_memory_usage_bytes_from_groups in v1/core/kv_cache_utils.py"
    )
    # The logged concurrency counts a group's blocks by the bytes of its layers, in units of the
    # group of pools.
    weighs_groups = until(
        (0, 27), "get_max_concurrency_for_kv_cache_config in v1/core/kv_cache_utils.py"
    )
    # Only groups with equally many pages of each size count for the layers per group.
    splits_only_equal_counts = since(
        (0, 29), "_get_packed_kv_cache_groups in v1/core/kv_cache_utils.py"
    )

    # What it loads

    # What the GPU holds while `--quantization fp8` converts weights, in sizes of the weights as
    # released.
    #
    # It held all of them first, in 0.13 and 0.14 with their copies in fp8 (vllm-project/vllm issue
    # 31273); then it converts each layer as it is loaded.
    conversion_peak = by_version(
        {(): 1, (0, 13): 1.5, (0, 15): 0},
        "Fp8OnlineLinearMethod in quantization/fp8.py; pull requests 29196 and 31914",
    )

    # What a layer stores

    # V is stored as wide as K if it is narrower.
    pads_values = until((0, 20), "models/mimo_v2_flash.py")
    # Cross-attention has a cache.
    has_cross_attention = since((0, 10, 2), "CrossAttentionSpec in v1/kv_cache_interface.py")
    # Compressed attention (DeepSeek-V4) has a cache: pools, windows and unpooled tokens.
    has_compressed_attention = since((0, 20), "SlidingWindowMLASpec in v1/kv_cache_interface.py")
    has_shared_pools = since((0, 30), "models/deepseek_v41/attention.py")
    # MiniMax-M3 is supported.
    has_block_sparse = since((0, 24), "models/minimax_m3/common/sparse_attention.py")
    # Qwen4 is supported.
    has_averaged_keys = since((0, 29), "models/qwen4_exp/common/qsa_cache.py")
    # GLM-5.3-Flash is supported.
    has_gated_averages = since((0, 30), "models/glm5next/nvidia/attention.py")
    # Its latents are in fp8 by default on data-center Blackwell GPUs.
    gated_latents_in_fp8 = since((0, 33), "Glm5NextModelConfig in models/config.py")
    # A prefill of it can store a checkpoint of a state.
    checkpoints_gated = since(
        (0, 32), "num_prefill_checkpoint_blocks in models/glm5next/common/kda.py"
    )
    has_averaged_keys_with_fp8 = since(
        (0, 31), "supported_kv_cache_dtypes in models/qwen4_exp/nvidia/qsa.py"
    )
    # Tables of n-grams are in host memory by default.
    offloads_lookups = since((0, 30), "_resolve_and_verify_engram_config in config/vllm.py")
    has_pools_in_fp4 = since(
        (0, 31), "packed_kv_cache_dtype in models/deepseek_v41/nvidia/flash_mla_mega_attn.py"
    )
    # DeepSeek-V4.1, whose windows fill what a block of the pools holds
    # (_get_packed_kv_cache_groups).
    packs_whole_rows = since(
        (0, 33), "packed_block_stride_alignment in v1/attention/backends/mla/sparse_swa.py"
    )
    # Its cache is fp8 by default; before, vLLM stops at an assertion unless kv_cache_dtype is fp8.
    stores_pools_in_fp8 = since(
        (0, 30), "_resolve_dsv4_kv_cache_dtype in models/deepseek_v4/attention.py"
    )
    # Cross-attention has blocks for the encoder's tokens; later versions, for
    # max_num_batched_tokens.
    cross_blocks_by_source = until((0, 13), "max_num_encoder_input_tokens in config/vllm.py")
    # Tokens that a block of MLA's latents is a multiple of, beside states.
    latent_alignment = by_version(
        {(): 64, (0, 27): 128}, "_align_hybrid_block_size in platforms/interface.py"
    )
    # Blocks of MLA's latents grow for states too.
    aligns_latents = since((0, 11, 1), "HybridAttentionMambaModelConfig in models/config.py")
    # A token's latent is a multiple of 256 bytes.
    aligns_latent_entries = until(
        (0, 8), "VLLM_MLA_CUDA_MEM_ALIGN_KV_CACHE in worker/cache_engine.py"
    )
    # MLA keeps products of its matrices. The old engine is taken for 0.7, as older versions have no
    # MLA.
    absorbs_products = until(
        (0, 8), "VLLM_MLA_PERFORM_MATRIX_ABSORPTION in attention/backends/mla/utils.py"
    )
    # On NVIDIA GPUs a block size that the backend of latents does not support becomes that of the
    # backend.
    forces_block_size = between((0, 8), (0, 18), "check_and_update_config in platforms/cuda.py")
    # Heads of 512 elements in fp8 have blocks of 64 tokens on Hopper GPUs.
    has_wide_fp8_heads = since(
        (0, 31), "_get_sm90_fa4_fp8_kv_block_size in v1/attention/backends/flash_attn.py"
    )
    # On Hopper GPUs, FlashInfer's kernel stores latents of which an indexer picks in plain fp8, if
    # the checkpoint asks for fp8_e4m3.
    has_sparse_flashinfer_on_hopper = since(
        (0, 30), "v1/attention/backends/mla/flashinfer_mla_sparse_sm90.py"
    )
    # On AMD's GPUs a model with sinks has AITER's blocks of 64 tokens.
    has_blocks_of_aiter = since(
        (0, 19), "get_preferred_block_size in v1/attention/backends/rocm_aiter_unified_attn.py"
    )
    # On Blackwell, models whose image tokens see each other have a backend of two, with blocks of
    # 64 tokens.
    has_composite_backend = since((0, 30), "v1/attention/backends/triton_flashinfer.py")
    # Triton's kernels refuse a cache in fp8 before compute capability 8.9.
    checks_fp8_of_triton = since(
        (0, 24), "TritonAttentionImpl in v1/attention/backends/triton_attn.py"
    )
    checks_fp8_of_triton_mla = since(
        (0, 26), "TritonMLAImpl in v1/attention/backends/mla/triton_mla.py"
    )
    # FlashAttention refuses a cache in fp8 with ALiBi, which its version 3 lacks.
    checks_fp8_of_alibi = since(
        (0, 27), "FlashAttentionImpl in v1/attention/backends/flash_attn.py"
    )
    # Classes of transformers run if their attention can be set, and not only if they say that they
    # are compatible.
    runs_more_of_transformers = since(
        (0, 30), "_try_resolve_transformers in model_executor/models/registry.py"
    )
    # A step is long enough for one video, if image tokens see each other.
    steps_hold_videos = since((0, 22), "_get_min_mm_batched_tokens in engine/arg_utils.py")
    # A model with an indexer uses fp8_ds_mla unless kv_cache_dtype is bfloat16.
    sparse_latents_in_fp8 = between(
        (0, 11, 0), (0, 11, 1), "DeepseekV32ForCausalLM in models/config.py"
    )
    # GPUs of compute capability 12 have a kernel for a model with an indexer, for fp8_ds_mla alone,
    # their default.
    has_sparse_latents_on_rtx = since((0, 24), "_get_backend_priorities in platforms/cuda.py")
    # Layers that use the picked tokens of an earlier layer have an indexer too, with its weights
    # and its cache.
    has_unused_indexers = until((0, 24), "DeepseekV2MLAAttention in models/deepseek_v2.py")
    # On data-center Blackwell GPUs, FlashInfer's kernel is the first choice for a model with
    # indexers in fp8.
    has_sparse_flashinfer = since((0, 19), "_get_backend_priorities in platforms/cuda.py")
    # The choice of a backend imports all candidates; later, FlashInfer's buffer is allocated when
    # it runs.
    imports_flashinfer_mla = between(
        (0, 11, 1), (0, 25), "get_valid_backends in platforms/cuda.py; flashinfer_mla.py"
    )
    reads_modelopt_cache_dtype = since(
        (0, 14), "get_kv_cache_quant_algo_string in utils/torch_utils.py"
    )
    reads_modelopt_fp4_cache = since(
        (0, 20), "MODELOPT_TO_VLLM_KV_CACHE_DTYPE_MAP in utils/torch_utils.py"
    )
    # A kv_cache_scheme of compressed-tensors makes the cache fp8.
    reads_compressed_tensors_cache_dtype = since((0, 15), "attention/layer.py")

    # Recurrent states

    # Attention's blocks grow until a state fits in one.
    aligns_states = since((0, 10), "HybridAttentionMambaModelConfig in models/config.py")
    # Blocks aligned with states are multiples of the requested block size.
    #
    # Before, they were multiples of the kernel's, and at least the requested size.
    aligns_to_requested_block = since((0, 20), "_align_hybrid_block_size in platforms/interface.py")
    # With prefix caching, a block aligned with states may not have more tokens than a step.
    limits_aligned_blocks = between((0, 17), (0, 27), "validate_block_size in config/vllm.py")
    # Towers of Qwen2.5-VL and Qwen3-VL rotate queries and keys together, in fp32.
    rotates_images_in_fp32 = between(
        (0, 11), (0, 12), "forward of Qwen2_5_VisionAttention in models/qwen2_5_vl.py"
    )
    # Prefix caching is available for models with states.
    caches_state_prefixes = since((0, 11, 1), "MambaModelConfig in models/config.py")
    # Prefix caching is on by default for models with states too.
    caches_hybrid_prefixes = since((0, 28), "default_prefix_caching in engine/arg_utils.py")
    # With full CUDA graphs, it does not start if a step may have more sequences than there are
    # blocks for states.
    needs_block_per_sequence = since(
        (0, 20), "resolve_cudagraph_mode_and_sizes in config/compilation.py (pull 38270)"
    )
    # A request has a block of states per drafted token, which may be rolled back, and one to align
    # prefixes.
    stores_drafted_states = since((0, 15), "MambaSpec in v1/kv_cache_interface.py")
    # Any model with states can have a drafter, and prefix caching with it; before, only gated delta
    # nets.
    supports_drafter_with_states = since((0, 17), "layers/mamba/abstract.py, models/config.py")
    # A prefill can store a checkpoint of a Mamba-2 state.
    checkpoints_mamba = since((0, 32), "num_prefill_checkpoint_blocks in mamba_mixer2.py")
    # A prefill can store a checkpoint of Kimi-K3's states.
    checkpoints_kimi = since(
        (0, 29), "num_prefill_checkpoint_blocks in models/kimi_k3/nvidia/kda.py"
    )
    # A prefill can store a checkpoint of a gated delta net's state.
    checkpoints_deltas = since((0, 33), "num_prefill_checkpoint_blocks in qwen_gdn_linear_attn.py")
    _states_per_chunk = until((0, 28), "mamba_cache_mode in models/config.py")
    _states_per_chunk_drafting = by_version(
        {(): True, (0, 20): False, (0, 22): True, (0, 28): False},
        "mamba_cache_mode in models/config.py",
    )

    # The log

    # With several groups too, the logged tokens are multiplied by dcp.
    multiplies_dcp = since((0, 11), "get_kv_cache_config_from_groups in v1/core/kv_cache_utils.py")
    # With one group, the logged tokens are blocks times the requested block size.
    logs_requested_block = until(
        (0, 11), "_get_kv_cache_config_uniform_type in v1/core/kv_cache_utils.py"
    )
    # The logged concurrency is blocks / blocks of a request; before, it was tokens / context.
    concurrency_from_blocks = since((0, 9, 1), "get_max_concurrency_for_kv_cache_config")
    # 'GPU KV cache size' is concurrency times the context; before, it was blocks / groups times
    # block size.
    tokens_from_concurrency = since(
        (0, 20, 1), "_report_kv_cache_config in v1/core/kv_cache_utils.py"
    )
    # A refusal has '8.0 GiB KV cache is needed'; before, it was '8.00 GiB'.
    trims_refused_sizes = since(
        (0, 14), "_check_enough_kv_cache_memory in v1/core/kv_cache_utils.py"
    )
    # A refusal has "the model's max seq len"; before, it was "the models's".
    refuses_the_models_length = since(
        (0, 22), "_check_enough_kv_cache_memory in v1/core/kv_cache_utils.py"
    )
    # The log has tokens and concurrency on one line.
    logs_one_line = since((0, 28), "update_kv_cache_capacity in v1/core/kv_cache_utils.py")
    # The log has the line on attention's block size even if the size did not grow.
    always_announces_block = until((0, 18), "HybridAttentionMambaModelConfig in models/config.py")

    # Defaults

    # GPUs of 70 GiB and more that have the defaults of smaller ones, by their names.
    #
    # NVML has no memory of a GB10 to report. Of a Strix Halo vLLM asked torch, and asks amdsmi from
    # 0.24 on, which counts the part that the firmware reserves: a log of 0.15 has 8,192 tokens, and
    # one of 0.28 has 2,048.
    gpus_with_small_defaults: Switch[tuple[str, ...]] = by_version(
        {(): ("gb10",), (0, 9): ("gb10", "a100"), (0, 24): ("gb10", "a100", "strix halo")},
        "get_batch_defaults in engine/arg_utils.py, get_device_total_memory in platforms/",
    )
    # GPUs that have the defaults of large ones, by their names; with no name, those of 70 GiB and
    # more.
    gpus_with_large_defaults: Switch[tuple[str, ...]] = by_version(
        {(): ("h100", "h200"), (0, 8, 5): ()}, "_set_default_args_v1 in engine/arg_utils.py"
    )
    # V1 runs up to 1,024 sequences on any GPU by default; later 256 on small ones.
    runs_1024_sequences = until((0, 8, 4), "_set_default_args_v1 in engine/arg_utils.py")
    # Devices of 160 GiB and more have their own default of max_num_batched_tokens.
    has_default_for_160_gib = since((0, 28), "engine/arg_utils.py")

    # Models without a cache run on V1, which then allocates none and does not profile.
    has_encoders = since(
        (0, 10, 1), "v1/worker/gpu_model_runner.py, _initialize_kv_caches in v1/engine/core.py"
    )
    # A step takes the device's default of tokens, if the context is shorter; before, the context.
    fills_steps_of_encoders = since(
        (0, 11, 1), "_set_default_max_num_seqs_and_batched_tokens_args in engine/arg_utils.py"
    )

    # Runtime memory

    _second_runner_everywhere = since((0, 29), "use_v2_model_runner in config/vllm.py")
    _second_runner_if_quantized = since(
        (0, 24), "_is_default_v2_model_runner_model in config/vllm.py"
    )
    _second_runner_for_dense = since((0, 25), "_is_default_v2_model_runner_model in config/vllm.py")
    _second_runner_for: Switch[frozenset[str]] = by_version(
        {
            (): frozenset(),
            (0, 22): frozenset({"qwen3"}),
            (0, 23): frozenset({"qwen3", "llama", "mistral"}),
            (0, 24): frozenset({"qwen3", "llama", "mistral", *_MIXTURES}),
            (0, 25): frozenset(_MIXTURES),
            (0, 26): frozenset({*_MIXTURES, *_INKLING, "longcat_flash_ngram"}),
            (0, 27): frozenset({*_MIXTURES, *_INKLING, "longcat_flash_ngram", "kimi_k3"}),
            (0, 28): frozenset(
                {*_MIXTURES, *_INKLING, "longcat_flash_ngram", "kimi_k3", "deepseek_v4"}
            ),
        },
        "DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES in config/vllm.py",
    )
    # Bytes per logit of the sampler in the first runner.
    #
    # A sort holds an fp32 copy 4, the sorted values 4, their indices 8, a mask's sums 8 and what it
    # gathers 12. A kernel replaced it: an fp32 copy 4, probabilities 4 and their quotient by random
    # numbers 4.
    _scratch = by_version(
        {(): 36, (0, 17): 12}, "apply_top_k_top_p in v1/sample/ops/topk_topp_sampler.py"
    )
    # It samples logits as they are; up to 0.25 it made one fp32 copy. From 0.33 its profile has a
    # second pass with all sampling parameters.
    _scratch_of_second_runner = by_version(
        {(): 4, (0, 26): 0, (0, 33): 12},
        "apply_sampling_params in v1/worker/gpu/sample/sampler.py, _dummy_sampler_run in "
        "v1/worker/gpu/model_runner.py",
    )
    # The sampler's Triton kernel has a row of fp32 logits per multiprocessor.
    #
    # From 0.21 FlashInfer's kernel replaces it where FlashInfer runs.
    has_top_k_buffer = since((0, 17), "v1/sample/ops/topk_topp_triton.py")
    # The profile samples a second time, without FlashInfer.
    samples_twice = since((0, 22), "_dummy_sampler_run in v1/worker/gpu_model_runner.py")
    # With a drafter, verifying drafts in fp32 takes more of the profile than sampling. Before, a
    # sort took more.
    verifies_drafts = since((0, 17), "RejectionSampler in v1/sample/rejection_sampler.py")
    # FlashInfer samples by default on GPUs of compute capability 8.0 and later.
    samples_with_flashinfer = since((0, 21), "VLLM_USE_FLASHINFER_SAMPLER in envs.py")
    # FlashInfer samples where it is installed: in vLLM's Docker images, but not with `pip install
    # vllm`.
    #
    # With Gemma 3 and 256 sequences that leaves 4.00 GiB instead of 2.49
    # (flashinfer-ai/flashinfer#1180): 24 bytes less per logit.
    samples_with_installed_flashinfer = until(
        (0, 11, 1), "TopKTopPSampler in v1/sample/ops/topk_topp_sampler.py; vllm-project/vllm#26859"
    )
    # On AMD's GPUs the profile reserves the logits of an indexer for a step of decoding.
    reserves_decode_logits = since((0, 23), "v1/attention/ops/rocm_aiter_mla_sparse.py")
    # They have as many rows as a step of decoding, and not as any step.
    bounds_decode_logits = since(
        (0, 30), "_max_decode_logits_rows in v1/attention/ops/rocm_aiter_mla_sparse.py"
    )
    # An indexer runs on an MI350 and MI355 without AITER.
    indexes_on_cdna4_without_aiter = since(
        (0, 30), "forward_hip in model_executor/layers/sparse_attn_indexer.py"
    )
    # AITER's kernel for MXFP4 experts pads them to 128, and not to 256.
    pads_mxfp4_of_aiter_less = since(
        (0, 28),
        "mxfp4_round_up_hidden_size_and_intermediate_size in layers/fused_moe/oracle/mxfp4.py",
    )
    # So does Triton's on an MI300.
    pads_mxfp4_of_amd_less = since(
        (0, 31),
        "mxfp4_round_up_hidden_size_and_intermediate_size in layers/fused_moe/oracle/mxfp4.py",
    )
    # The workspace of the experts lives on after the forward pass.
    keeps_experts_workspace = since((0, 14), "fused_moe/unquantized_fused_moe_method.py")
    # Both products of the experts write to one buffer, beside the activation (fused_experts_impl in
    # fused_moe.py).
    #
    # From 0.14 the activation's buffer is as wide as the output too (workspace_shapes of
    # TritonExperts).
    shares_experts_buffer = until((0, 14), "fused_moe/unquantized_fused_moe_method.py")
    # Tokens that the experts process in one chunk; None without a limit.
    largest_experts_chunk: Switch[int | None] = by_version(
        {(): 32768, (0, 12): 16384, (0, 18): None}, "VLLM_FUSED_MOE_CHUNK_SIZE in envs.py"
    )
    # The profile holds what a chunk of MLA's cached prefix is expanded to.
    profiles_prefix_of_latents = since((0, 11), "forward in v1/attention/backends/mla/common.py")
    # The profile holds 512 MiB of logits of an indexer.
    profiles_indexer_logits = since((0, 19), "VLLM_SPARSE_INDEXER_MAX_LOGITS_MB in envs.py")
    # The profile's output of an encoder has a row for each place of the item, timestamps included.
    scatters_videos = until(
        (0, 13), "encoder_output_shape in profile_run of v1/worker/gpu_model_runner.py"
    )
    # The largest video of the profile leaves an image's tokens of the context free.
    videos_leave_room_for_image = until(
        (0, 10, 2), "get_num_frames_with_most_features in models/qwen2_vl.py"
    )
    # The profile tunes the kernels of gated delta nets.
    autotunes_deltas = since((0, 18), "_warmup_prefill_kernels in models/qwen3_next.py")
    # Inductor fuses SiLU, its product and the quantization to fp8 in blocks; before, a kernel of
    # vLLM quantized.
    fuses_quantized_products = since(
        (0, 11, 1), "QuantFP8 in layers/quantization/utils/fp8_utils.py"
    )
    # Inductor benchmarks kernels while it compiles.
    benchmarks_kernels = since((0, 11, 1), "benchmark_combo_kernel in config/compilation.py")
    # What is benchmarked decides the profile where the sampler needs less.
    #
    # A log of 0.19 has half of it, one of 0.20 all and one of 0.21 none: there, it is only in the
    # range.
    profiles_cold_compiler = since((0, 22), "measured: logs of 0.22, 0.24 and 0.28")
    # A large block that is freed during the profile may be counted once more, as a small tensor
    # pins it.
    splits_workspaces = between(
        (0, 27), (0, 31), "_scoped_allocator_max_split in v1/worker/gpu_worker.py, torch 2.13"
    )
    # All memory in use is counted as the engine's, that of other processes too.
    counts_other_processes = until(
        (0, 9, 1), "determine_available_memory in v1/worker/gpu_worker.py"
    )
    # Capturing graphs for an estimate leaves memory outside PyTorch, before it is measured.
    profiles_graphs_early = between(
        (0, 18), (0, 21), "v1/worker/gpu_model_runner.py; the end is measured"
    )
    # Its log says since which version graphs are estimated: "enabled (default since v0.21.0)".
    #
    # Before, it was "will be enabled by default".
    says_since_when_graphs_are_estimated = since(
        (0, 20), "measured: logs of 0.20.0 have it, in v1/worker/gpu_worker.py"
    )
    # Libraries take 0.22 GiB of an H100 or H200, with graphs or without, and not 0.13.
    holds_more_on_hopper = since(
        (0, 21), "measured: all nine starts of 0.26.0 on an H200 have 0.22 GiB"
    )
    # NCCL allocates its buffers without the driver's virtual memory.
    turns_cumem_off = until((0, 10, 2), "NCCL_CUMEM_ENABLE in env_override.py")
    # Tensor parallelism over NVLink takes 2 GiB on GPUs with symmetric memory, and 1.4 before.
    #
    # Why is not known: symmetric memory is on by default from 0.11 on.
    links_take_more = since((0, 15), "measured")
    # Tokens of data-parallel ranks are broadcast to the experts of all; later they are gathered.
    broadcasts_to_experts = until(
        (0, 11), "VLLM_ALL2ALL_BACKEND in envs.py, NaiveAll2AllManager in all2all.py"
    )
    # --nnodes starts workers on several nodes, as only Ray did before.
    has_nnodes = since((0, 11, 1), "nnodes in config/parallel.py")
    # Values of --all2all-backend. allgather_reducescatter stands for naive, which it replaced.
    all2all_backends: Switch[frozenset[str]] = by_version(
        {
            (): _BACKENDS,
            (0, 11): _BACKENDS_OF_11,
            (0, 15): _BACKENDS_OF_11 | {"mori"},
            (0, 18): _BACKENDS_OF_18 | {"mori"},
            (0, 23): _BACKENDS_OF_23,
            (0, 24): _BACKENDS_OF_23 | {"deepep_v2"},
            (0, 31): _BACKENDS_OF_23 | {"deepep_v2", "moonep"},
        },
        "All2AllBackend in config/parallel.py, VLLM_ALL2ALL_BACKEND in envs.py",
    )
    # --all2all-backend pplx is still there; later it is allgather_reducescatter.
    has_pplx = until((0, 17), "all2all_backend in config/parallel.py")
    # --all2all-backend is an option, which was the variable VLLM_ALL2ALL_BACKEND.
    has_all2all_option = since((0, 11, 1), "all2all_backend in engine/arg_utils.py")
    # Experts with a place for each token take those of a whole step, 256 by default. Before, steps
    # were cut into chunks of 256.
    batches_whole_steps = since((0, 20), "use_batched_dp_moe in config/parallel.py")
    # On Hopper GPUs FlashInfer's CUTLASS kernel runs whole experts in FP8, and not DeepGEMM.
    prefers_cutlass_experts = since(
        (0, 17), "_get_priority_backends in layers/fused_moe/oracle/fp8.py"
    )
    # The profile has a workspace for a whole chunk, whatever tokens a GPU receives.
    profiles_worst_experts = between(
        (0, 12), (0, 18), "_allocate_buffers in layers/fused_moe/modular_kernel.py"
    )
    # DeepGEMM's workspace has its inputs in FP8, and not in 16 bits.
    packs_inputs_of_experts = since(
        (0, 31), "_fp8_workspace_shape in layers/fused_moe/experts/deep_gemm_moe.py"
    )
    # Memory outside PyTorch was measured with tensor parallelism on Hopper.
    links_were_measured = until(
        (0, 21), "measured: the controlled starts on H100s are of 0.15 to 0.20"
    )
    # Thousandths of a GiB outside PyTorch with more than two GPUs without NVLink.
    communication_over_pcie = by_version(
        {(): 200, (0, 21): 800}, "measured: eight logs up to 0.20, three from 0.27 on"
    )
    # The largest batch with a CUDA graph on GPUs of compute capability 10; on others it is 512.
    largest_graph_of_blackwell = by_version(
        {(): 512, (0, 28): 1024}, "_set_cudagraph_sizes in config/vllm.py"
    )
    # A step of max_num_seqs sequences has a graph of its own.
    captures_largest_step = since(
        (0, 31), "uniform_decode_sizes in _set_cudagraph_sizes (config/vllm.py)"
    )
    # What is allocated between loading and the profile is counted.
    counts_what_is_held = since((0, 27), "memory_profiling in utils/mem_utils.py")
    _has_second_runner = since((0, 12), "VLLM_USE_V2_MODEL_RUNNER in envs.py")
    _subtracts_graphs = since((0, 20), "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS in envs.py")
    _subtracts_graphs_if_asked = since(
        (0, 18), "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS in envs.py"
    )
    # On AMD's GPUs too; before, their graphs were not profiled.
    profiles_graphs_of_amd = since((0, 26), "is_cuda_alike in v1/worker/gpu_worker.py")
    # Before, it returned 0 for them.
    _subtracts_graphs_of_second_runner = since(
        (0, 29), "profile_cudagraph_memory in v1/worker/gpu/model_runner.py"
    )

    # Sparse attention gathers 2 contexts of more than 262,144 tokens, and not 5.
    gathers_two_long_contexts = since(
        (0, 32), "sparse_mla_prefill_workspace_factor in config/vllm.py"
    )
    # DeepSeek-V4's class is compiled.
    compiles_streams = until((0, 23), "support_torch_compile in models/deepseek_v4/nvidia/model.py")
    # DeepSeek-V4's indexer runs when the queries are there; before, it ran first.
    indexes_beside_queries = since((0, 28), "_prepare_and_attn in models/deepseek_v4/attention.py")

    # Weights beside the checkpoint's

    # DeepSeek-V4 keeps its residual streams without a drafter too.
    keeps_streams = until((0, 27), "_mtp_hidden_buffer in models/deepseek_v4/nvidia/model.py")
    # DeepSeek-V4 has a buffer for the padded queries of a step.
    pools_queries = between((0, 27), (0, 29), "models/deepseek_v4/eager_scratch.py")
    # Tensors of 20 MiB or more get whole blocks of PyTorch's allocator.
    loads_whole_blocks = since((0, 21), "_scoped_allocator_max_split in v1/worker/gpu_worker.py")
    # The Qwen3 families have a larger table only if tokens of videos are pruned.
    plain_mrope_of_qwen3 = since((0, 32), "mrope_positions_factor in models/qwen3_vl.py")
    # What triton_kernels pads the values of MXFP4 experts to, two values to a byte.
    #
    # Up to 0.11 it is no part of the wheel; a log of 0.11.0 agrees with 64.
    mxfp4_value_alignment = by_version(
        {(): 64, (0, 12): 1, (0, 17): 64, (0, 22): 1},
        "hopper_value.py of triton_kernels 3.5.0, 3.6.0 and 3.5.1",
    )
    # The groups of scales that it pads to.
    mxfp4_scale_groups = by_version(
        {(): 2, (0, 26): 4}, "_swizzle_mxfp4 in quantization/utils/mxfp4_utils.py"
    )
    # The scales of the checkpoint stay beside those of the kernel.
    keeps_mxfp4_scales = until(
        (0, 25), "convert_gpt_oss_weight_to_mxfp4_moe_kernel_format in oracle/mxfp4.py"
    )
    loads_bitsandbytes = until((0, 28), "QuantizationMethods in layers/quantization")
    loads_hqq = until((0, 14), "QuantizationMethods in layers/quantization")

    def stores_state_per_chunk(self, drafting: bool) -> bool:
        """Return whether prefix caching stores a Mamba state per chunk (mamba_cache_mode 'all')."""
        if drafting:
            return self._states_per_chunk_drafting
        return self._states_per_chunk

    def window_block(self, block_size: int) -> int:
        """Return the tokens per block of a sliding window."""
        if self.smallest_window_block:
            return min(block_size, 16)
        return block_size

    def uses_v2_runner(
        self,
        model_type: str | None,
        given: bool | None = None,
        *,
        dense: bool,
        hybrid: bool,
        quantized: bool,
    ) -> bool:
        """Return whether the second model runner (v1/worker/gpu/) is used: as `given`, or by
        default.

        A model without experts is `dense`, and one with recurrent layers `hybrid`; its checkpoint
        is `quantized`.
        """
        if given is not None:
            return given and self._has_second_runner
        if quantized and not self._second_runner_if_quantized:
            return False
        dense_enough = self._second_runner_for_dense and dense and not hybrid
        return (
            self._second_runner_everywhere or dense_enough or model_type in self._second_runner_for
        )

    def sampler_scratch(self, v2_runner: bool, flashinfer: bool) -> int:
        """Return the bytes per logit that the sampler holds beside the logits, in the profile of
        the memory.

        FlashInfer's holds as many as the kernel that replaced the sort: an fp32 copy 4, the logits
        of the top k 4 and their probabilities 4 (top_k_top_p_sampling_from_logits in
        flashinfer/sampling.py).
        """
        first_runner = _SCRATCH_OF_FLASHINFER if flashinfer else self._scratch
        if v2_runner:
            return self._scratch_of_second_runner
        return first_runner

    def subtracts_graphs(self, v2_runner: bool, given: bool | None = None) -> bool:
        """Return whether the CUDA graphs are subtracted from the memory for the cache: as `given`,
        or by default.
        """
        if v2_runner and not self._subtracts_graphs_of_second_runner:
            return False
        if given is None:
            return self._subtracts_graphs
        return given and self._subtracts_graphs_if_asked

    def counts_sampler_states(self, v2_runner: bool) -> bool:
        """Return whether the memory that the second runner allocates before the profile is
        counted.
        """
        return v2_runner and self.counts_what_is_held


_REFUSED_SIZE = re.compile(
    r"\.(\d{1,2})(?= GiB KV cache is needed)|KV cache memory \(\d{1,9}\.(\d{1,2})(?= GiB)"
)


def releases_of(text: str) -> tuple[str, ...]:
    """Return the releases that may have printed these lines about graphs, or refused a cache in
    these words, the newest first; () if they do not show it.
    """
    is_since = "memory profiling is enabled (default since" in text
    model = re.search(r"request with the (models?)'s max seq len", text)
    decimals = [size[1] or size[2] for size in _REFUSED_SIZE.finditer(text)]
    # "8.25" is either
    telling = [digits for digits in decimals if digits[1:] in ("", "0")]
    is_trimmed = {len(digits) == 1 for digits in telling}
    versions = [vllm_version(name) for name in RELEASES]
    if is_since:
        versions = [version for version in versions if version.says_since_when_graphs_are_estimated]
    if model:
        versions = [
            version
            for version in versions
            if version.refuses_the_models_length is (model[1] == "model")
        ]
    if len(is_trimmed) == 1:
        versions = [version for version in versions if version.trims_refused_sizes in is_trimmed]
    if model or is_trimmed or is_since:
        return tuple(version.name for version in versions)
    return ()


def vllm_version(text: str | None) -> VllmVersion:
    """Return the version named `text`: '0.11.0', 'v0' for the old engine, None for the newest.

    Raises AttncalcError if `text` is not a version, is older than OLDEST, or newer than NEWEST.
    """
    if text is None:
        return VllmVersion(_name(NEWEST), NEWEST)
    if text.lower() == "v0":
        return VllmVersion(V0, (0,))
    # .post1, rc2 or +cu128 may follow
    match = re.match(r"v?(\d{1,4}(?:\.\d{1,4})+)(\.dev0(?!\d))?(?!\d)", text.lower(), re.ASCII)
    if match is None:
        raise AttncalcError(
            f"--engine-version: '{truncate(text)}' is not a version of vLLM",
            f"write a version as {_name(NEWEST)} or 0.11.0, or v0 for the old engine",
        )
    number = tuple(int(part) for part in match.group(1).split("."))
    if match.group(2) and number[-1]:  # setuptools-scm calls a changed copy of 0.20.0 0.20.1.dev0
        number = (*number[:-1], number[-1] - 1)
    if number < OLDEST:
        raise AttncalcError(
            f"--engine-version {truncate(text)} is too old to be supported",
            f"the oldest supported version is {_name(OLDEST)}, the newest {_name(NEWEST)}",
        )
    if number[:2] > NEWEST[:2]:
        raise AttncalcError(
            f"--engine-version {truncate(text)} is newer than the newest supported version",
            f"the newest is {_name(NEWEST)}, which is the default",
        )
    return VllmVersion(_name(number), number)


def _name(number: Number) -> str:
    return ".".join(map(str, number))
