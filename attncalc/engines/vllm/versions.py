"""What changed between vLLM's versions and affects its cache or its log. Read from the sources of 0.8.5 to 0.33.0."""

from __future__ import annotations

import re
from typing import NamedTuple

from ...errors import AttncalcError
from ...units import truncate

Number = tuple[int, ...]
"""A version as numbers: (0, 11, 1)."""

OLDEST, NEWEST = (0, 5), (0, 33, 0)
"""The oldest version whose log lines are supported, and the newest whose source was read."""
V0 = "V0"
RELEASES = (
    *("0.33.0", "0.32.0", "0.31.0", "0.30.0", "0.29.0", "0.28.0", "0.27.1", "0.26.0", "0.25.1", "0.24.0", "0.23.0"),
    *("0.22.1", "0.21.0", "0.20.2", "0.20.1", "0.20.0", "0.19.1", "0.18.1", "0.17.1", "0.16.0", "0.15.1", "0.14.1"),
    *("0.13.0", "0.12.0", "0.11.2", "0.11.0", "0.10.2", "0.10.1", "0.10.0", "0.9.2", "0.9.0", "0.8.5"),
)
"""Releases that a log without a version may come from, the newest first: at least one for each combination of the
behaviours below."""
_V1_BY_DEFAULT = (0, 8)
_V2_MODEL_TYPES: tuple[tuple[Number, frozenset[str]], ...] = (
    ((0, 22), frozenset({"qwen3"})),
    ((0, 23), frozenset({"llama", "mistral"})),
    ((0, 24), frozenset({"deepseek_v2", "qwen2_moe", "granitemoe"})),
)
"""DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES by the version that added them (config/vllm.py)."""
_V2_MIXTURES = frozenset({"deepseek_v2", "qwen2_moe", "granitemoe", "deepseek_v4", "longcat_flash_ngram"})
"""Mixtures of experts with the second runner, from 0.25 to 0.28; other models have it unless they have experts."""


class VllmVersion(NamedTuple):
    """The behaviour of one version. Each property names the file of vLLM that decides it.

    Attributes:
        number: the version, (0,) for the V0 engine of any version.
        v0: whether it is the engine before V1.
    """

    number: Number
    v0: bool

    @property
    def name(self) -> str:
        """'0.33.0', or 'V0'."""
        return V0 if self.number == (0,) else ".".join(map(str, self.number))

    @property
    def utilization(self) -> str:
        """The default of gpu_memory_utilization (config/cache.py)."""
        return "0.92" if self.number >= (0, 20) else "0.9"

    @property
    def groups_hybrids(self) -> bool:
        """Sliding windows have their own groups; before, they were stored like full attention (kv_cache_utils.py)."""
        return self.number >= (0, 9, 1)

    @property
    def groups_chunks(self) -> bool:
        """Chunks have groups of their own too.

        The default of VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE changed twice (envs.py).
        """
        return (0, 10) <= self.number < (0, 10, 1) or self.number >= (0, 14)

    @property
    def aligns_states(self) -> bool:
        """Attention's blocks grow until a state fits in one (models/config.py, later platforms/interface.py)."""
        return self.number >= (0, 10)

    @property
    def groups_mixed_widths(self) -> bool:
        """Layers of one type but of different widths share a group (UniformTypeKVCacheSpecs)."""
        return self.number >= (0, 11)

    @property
    def unifies_pages(self) -> bool:
        """Layers with smaller pages get larger blocks, so that all pages are equal (unify_kv_cache_spec_page_size)."""
        return self.number >= (0, 12)

    @property
    def pads_pages(self) -> bool:
        """Pages that do not divide the largest page are padded to it (the same function)."""
        return self.number >= (0, 24)

    @property
    def max_padding(self) -> tuple[int, int] | None:
        """The ratio (a, b) below which groups get the size of the largest type instead of the smallest.

        (3, 2): 13 layers of one type and 10 of another make groups of 13, since 13 / 10 < 3 / 2. None: never.
        """
        if self.number >= (0, 18):
            return (3, 2)
        return (5, 4) if self.number >= (0, 12) else None

    @property
    def aligns_to_requested_block(self) -> bool:
        """Blocks aligned with states are multiples of the requested block size.

        Before, they were multiples of the kernel's, and at least the requested size.
        """
        return self.number >= (0, 20)

    @property
    def groups_every_nth_layer(self) -> bool:
        """A group takes every n-th layer of its type, so that each pipeline stage has its share (kv_cache_utils.py)."""
        return self.number >= (0, 11)

    @property
    def multiplies_dcp(self) -> bool:
        """With several groups too, the logged tokens are multiplied by dcp (kv_cache_utils.py)."""
        return self.number >= (0, 11)

    @property
    def logs_requested_block(self) -> bool:
        """With one group, the logged tokens are blocks times the requested block size (kv_cache_utils.py)."""
        return self.number < (0, 11)

    @property
    def has_dcp(self) -> bool:
        """Decode context parallelism is available (kv_cache_utils.py)."""
        return self.number >= (0, 10, 2)

    @property
    def has_cross_attention(self) -> bool:
        """Cross-attention has a cache (CrossAttentionSpec)."""
        return self.number >= (0, 10, 2)

    @property
    def always_announces_block(self) -> bool:
        """The log has the line on attention's block size even if the size did not grow (models/config.py)."""
        return self.number < (0, 18)

    @property
    def aligns_latents(self) -> bool:
        """Blocks of MLA's latents grow for states too (models/config.py)."""
        return self.number >= (0, 11, 1)

    @property
    def aligns_latent_entries(self) -> bool:
        """A token's latent is a multiple of 256 bytes (VLLM_MLA_CUDA_MEM_ALIGN_KV_CACHE in worker/cache_engine.py)."""
        return self.v0

    @property
    def absorbs_products(self) -> bool:
        """MLA keeps products of its matrices (VLLM_MLA_PERFORM_MATRIX_ABSORPTION in attention/backends/mla/utils.py).

        The old engine is taken for 0.7, as older versions have no MLA.
        """
        return self.v0

    @property
    def latent_alignment(self) -> int:
        """Tokens that a block of MLA's latents is a multiple of, beside states (platforms/interface.py)."""
        return 128 if self.number >= (0, 27) else 64

    @property
    def forces_flashmla(self) -> bool:
        """On NVIDIA GPUs a block size that FlashMLA does not support becomes 64 tokens (platforms/cuda.py)."""
        return not self.v0 and self.number < (0, 18)

    @property
    def sparse_latents_in_fp8(self) -> bool:
        """A model with an indexer uses fp8_ds_mla unless kv_cache_dtype is bfloat16 (models/config.py)."""
        return self.number == (0, 11, 0)

    @property
    def supports_drafter_with_states(self) -> bool:
        """Any model with states can have a drafter, and prefix caching with it; before, only gated delta nets."""
        return self.number >= (0, 17)

    @property
    def caches_state_prefixes(self) -> bool:
        """Prefix caching is available for models with states (gpu_model_runner.py)."""
        return self.number >= (0, 11, 1)

    def stores_state_per_chunk(self, drafting: bool) -> bool:
        """Return whether prefix caching stores a Mamba state per chunk (mamba_cache_mode 'all', models/config.py)."""
        return self.number < (0, 28) and not (drafting and self.number >= (0, 20))

    @property
    def steps_depend_on_experts(self) -> bool:
        """A mixture of experts runs on the older runner, with as many steps in flight as stages (config/vllm.py)."""
        return (0, 26) <= self.number < (0, 29)

    @property
    def checks_all_layers(self) -> bool:
        """One request must fit on each pipeline stage with the layers of all stages (get_kv_cache_configs).

        Source: vllm-project/vllm issue 34076; versions before and after count the stage's own layers.
        """
        return (0, 14) <= self.number < (0, 17)

    @property
    def groups_by_worker(self) -> bool:
        """Each pipeline stage groups its own layers (v1/engine/core.py)."""
        return self.number < (0, 11)

    @property
    def cuts_groups_by_stage(self) -> bool:
        """A stage allocates only its own layers of a group with several widths (_project_kv_cache_groups_to_worker)."""
        return self.number < (0, 11) or self.number >= (0, 17)

    @property
    def pads_values(self) -> bool:
        """V is stored as wide as K if it is narrower (mimo_v2_flash.py)."""
        return self.number < (0, 20)

    @property
    def cross_blocks_by_source(self) -> bool:
        """Cross-attention has blocks for the encoder's tokens; later versions, for max_num_batched_tokens."""
        return self.number < (0, 13)

    @property
    def stores_drafted_states(self) -> bool:
        """A request has a block of states per drafted token, which may be rolled back, and one to align prefixes."""
        return self.number >= (0, 15)

    @property
    def concurrency_from_blocks(self) -> bool:
        """The logged concurrency is blocks / blocks of a request; before, it was tokens / context."""
        return self.number >= (0, 9, 1)

    def window_block(self, block_size: int) -> int:
        """Return the tokens per block of a sliding window: 0.25 to 0.29 use the kernel's smallest (attention.py)."""
        return min(block_size, 16) if (0, 25) <= self.number < (0, 30) else block_size

    @property
    def tokens_from_concurrency(self) -> bool:
        """'GPU KV cache size' is concurrency times the context; before, it was blocks / groups times block size."""
        return self.number >= (0, 20, 1)

    @property
    def two_steps_in_flight(self) -> bool:
        """A window holds the tokens of all steps in flight, which are --pp + 1 with async scheduling."""
        return self.number >= (0, 26)

    @property
    def caches_hybrid_prefixes(self) -> bool:
        """Prefix caching is on by default for models with states too (config/model.py)."""
        return self.number >= (0, 26)

    @property
    def planner(self) -> str:
        """The file that groups layers and counts blocks."""
        return "kv_cache_planning.py" if self.number >= (0, 33) else "kv_cache_utils.py"

    @property
    def logs_one_line(self) -> bool:
        """The log has tokens and concurrency on one line."""
        return self.number >= (0, 28)

    def uses_v2_runner(self, model_type: str | None, *, dense: bool, hybrid: bool) -> bool:
        """Return whether the second model runner (v1/worker/gpu/) is the default (config/vllm.py).

        Args:
            model_type: the model_type of the model's config.json; None if unknown.
            dense: whether the model has no experts.
            hybrid: whether it has recurrent layers.
        """
        if self.number >= (0, 29):
            return True
        if self.number >= (0, 25):
            return (dense and not hybrid) or model_type in _V2_MIXTURES
        return any(self.number >= since and model_type in types for since, types in _V2_MODEL_TYPES)

    def sampler_scratch(self, v2_runner: bool) -> int:
        """Return the bytes per logit that the sampler holds beside the logits, in the profile of the memory.

        Up to 0.16 apply_top_k_top_p (v1/sample/ops/topk_topp_sampler.py) sorts them: an fp32 copy 4, the sorted values
        4, their indices 8, a mask's sums 8 and what it gathers 12. From 0.17 a kernel replaces the sort: an fp32 copy
        4, probabilities 4 and their quotient by random numbers 4. The second runner samples logits as they are; up to
        0.27 it made one fp32 copy. From 0.33 its profile has a second pass with all sampling parameters.
        """
        if self.number < (0, 17):
            return 36
        if not v2_runner or self.number >= (0, 33):
            return 12
        return 4 if self.number < (0, 28) else 0

    @property
    def has_top_k_buffer(self) -> bool:
        """The sampler's Triton kernel has a row of fp32 logits per multiprocessor (topk_topp_triton.py).

        From 0.21 FlashInfer's kernel replaces it where FlashInfer runs.
        """
        return self.number >= (0, 17)

    @property
    def samples_with_flashinfer(self) -> bool:
        """FlashInfer samples by default on GPUs of compute capability 8.0 and later (topk_topp_sampler.py)."""
        return self.number >= (0, 21)

    @property
    def keeps_experts_workspace(self) -> bool:
        """The workspace of the experts lives on after the forward pass (v1/worker/workspace.py)."""
        return self.number >= (0, 13)

    @property
    def shares_experts_buffer(self) -> bool:
        """Both products of the experts write to one buffer, beside the activation (fused_moe.py, fused_experts_impl).

        From 0.13 the activation's buffer is as wide as the output too (workspace_shapes of TritonExperts).
        """
        return self.number < (0, 13)

    @property
    def largest_experts_chunk(self) -> int | None:
        """Tokens that the experts process in one chunk (VLLM_FUSED_MOE_CHUNK_SIZE in envs.py); None without a limit."""
        if self.number >= (0, 20):
            return None
        return 16384 if self.number >= (0, 12) else 32768

    @property
    def profiles_prefix_of_latents(self) -> bool:
        """The profile holds what a chunk of MLA's cached prefix is expanded to (mla_attention.py, mla/common.py)."""
        return self.number >= (0, 10, 1)

    @property
    def profiles_indexer_logits(self) -> bool:
        """The profile holds 512 MiB of logits of an indexer (VLLM_SPARSE_INDEXER_MAX_LOGITS_MB in envs.py)."""
        return self.number >= (0, 18)

    def subtracts_graphs(self, v2_runner: bool) -> bool:
        """Return whether the CUDA graphs are subtracted from the memory for the cache (v1/worker/gpu_worker.py).

        The second runner returned 0 for them up to 0.28 (v1/worker/gpu/model_runner.py).
        """
        return self.number >= (0, 29 if v2_runner else 20)

    def counts_sampler_states(self, v2_runner: bool) -> bool:
        """Return whether the memory that the second runner allocates before the profile is counted (mem_utils.py)."""
        return v2_runner and self.number >= (0, 27)

    @property
    def videos_leave_room_for_image(self) -> bool:
        """The largest video of the profile leaves an image's tokens of the context free (qwen2_vl.py)."""
        return self.number < (0, 11)

    @property
    def autotunes_deltas(self) -> bool:
        """The profile tunes the kernels of gated delta nets (_warmup_prefill_kernels in gdn_linear_attn.py)."""
        return self.number >= (0, 18)

    @property
    def benchmarks_kernels(self) -> bool:
        """Inductor benchmarks kernels while it compiles (benchmark_combo_kernel in config/compilation.py)."""
        return self.number >= (0, 11, 1)

    @property
    def profiles_cold_compiler(self) -> bool:
        """What is benchmarked decides the profile where the sampler needs less, as logs of 0.24 and 0.28 show.

        One of 0.19 has half of it, one of 0.21 none: there, it is only in the range.
        """
        return self.number >= (0, 23)

    @property
    def splits_workspaces(self) -> bool:
        """A large block that is freed during the profile may be counted once more, as a small tensor pins it.

        Later versions do not split such blocks (_scoped_allocator_max_split in v1/worker/gpu_worker.py).
        """
        return (0, 27) <= self.number < (0, 31)

    @property
    def profiles_graphs_early(self) -> bool:
        """Capturing graphs for an estimate leaves memory outside PyTorch, before it is measured (gpu_worker.py)."""
        return (0, 18) <= self.number < (0, 21)

    @property
    def has_symmetric_memory(self) -> bool:
        """Tensor parallelism over NVLink takes 2 GiB: measured, from 0.15 on, and 1.4 before."""
        return self.number >= (0, 15)

    @property
    def gpus_with_small_defaults(self) -> tuple[str, ...]:
        """GPUs of 70 GiB and more that have the defaults of smaller ones (arg_utils.py)."""
        if self.number < (0, 9):
            return ()
        return ("a100", "gb10") if self.number >= (0, 33) else ("a100",)

    @property
    def has_default_for_160_gib(self) -> bool:
        """Devices of 160 GiB and more have their own default of max_num_batched_tokens (arg_utils.py)."""
        return self.number >= (0, 28)


def vllm_version(text: str | None) -> VllmVersion:
    """Return the version named `text`: '0.11.0', 'v0' for the old engine, None for the newest.

    Raises AttncalcError if `text` is not a version, is older than OLDEST, or newer than NEWEST.
    """
    if text is None:
        return VllmVersion(NEWEST, v0=False)
    if text.lower() == "v0":
        return VllmVersion((0,), v0=True)
    # .post1, rc2 or +cu128 may follow
    match = re.match(r"v?(\d{1,4}(?:\.\d{1,4})+)(?![\d])", text.lower(), re.ASCII)
    if match is None:
        raise AttncalcError(
            f"--engine-version: '{truncate(text)}' is not a version of vLLM",
            f"write a version as {_name(NEWEST)} or 0.11.0, or v0 for the old engine",
        )
    number = tuple(int(part) for part in match.group(1).split("."))
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
    return VllmVersion(number, v0=number < _V1_BY_DEFAULT)


def _name(number: Number) -> str:
    return ".".join(map(str, number))
