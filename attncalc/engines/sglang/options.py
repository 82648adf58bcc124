"""SGLang's own options, and its arguments."""

from functools import cached_property
from typing import Annotated, Any, TypedDict

from ...errors import AttncalcError
from ...options import COUNT, COUNT_OR_ZERO, TEXT, YES_OR_NO, Count, Parser, With, choice
from ...records import dataclass
from ...units import truncate
from ..options import PagedArgs
from .versions import SglangVersion, sglang_version

# The variable that allows a context beyond the model's maximum (_derive_context_length in
# model_config.py).
LONG_CONTEXT = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"

# Modules of LoRA adapters, and what SGLang makes of their names (get_normalized_target_modules in
# lora/utils.py).
LORA_MODULES = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "qkv_proj"), "qkv_proj"),
    **dict.fromkeys(("gate_proj", "up_proj", "gate_up_proj"), "gate_up_proj"),
    **dict.fromkeys(
        ("q_a_proj", "kv_a_proj_with_mqa", "fused_qkv_a_proj_with_mqa"), "fused_qkv_a_proj_with_mqa"
    ),
    **{
        name: name
        for name in ("o_proj", "down_proj", "q_b_proj", "kv_b_proj", "embed_tokens", "lm_head")
    },
}
# Slots of recurrent states that a request may take with the radix cache, by
# --mamba-radix-cache-strategy.
STATE_SLOTS = {"no_buffer": 3, "extra_buffer": 5, "extra_buffer_lazy": 4, "auto": None}
# Concurrent requests with a drafter, unless --max-running-requests is given.
_REQUESTS_DRAFTING = 48


def exchanges_tokens(backend: object) -> bool:
    """Return whether a value of --moe-a2a-backend lets devices exchange tokens, for which SGLang
    sets --ep-size to --tp-size (moe_hook.py in srt/arg_groups).
    """
    return backend not in (None, "", "none")


def _modules(text: str, name: str) -> str:
    """Return the modules separated by spaces: 'q_proj o_proj'. Raises AttncalcError if one is
    unknown.
    """
    modules = text.replace(",", " ").split()
    if modules == ["all"]:
        return "all"
    unknown = [module for module in modules if module not in LORA_MODULES]
    if unknown or not modules:
        raise AttncalcError(
            f"{name}: '{truncate(unknown[0] if unknown else text)}' is not a module with LoRA "
            "adapters",
            f"write all, or names of {', '.join(LORA_MODULES)}",
        )
    return " ".join(modules)


class SglangOptions(TypedDict, total=False):
    """Arguments of SGLang alone."""

    mem_fraction_static: Annotated[
        float | str | None,
        TEXT,
        "SGLang's name of --gpu-memory-utilization.",
        With(also="--mem-fraction", metavar="SHARE", field=None),
    ]
    max_running_requests: Annotated[
        Count | None,
        COUNT,
        "Maximum concurrent requests, which sizes the pools of recurrent states.",
    ]
    max_total_tokens: Annotated[
        Count | None, COUNT, "Maximum tokens of the pool, whatever the memory."
    ]
    swa_full_tokens_ratio: Annotated[
        float | str | None,
        TEXT,
        "Tokens of sliding-window layers per token of full layers.",
        With(metavar="RATIO"),
    ]
    mamba_full_memory_ratio: Annotated[
        float | str | None,
        TEXT,
        "Memory of recurrent states over that of the KV cache.",
        With(metavar="RATIO"),
    ]
    chunked_prefill_size: Annotated[
        Count | None, COUNT, "Tokens of a prefill chunk. Default: by the GPU."
    ]
    cuda_graph_max_bs: Annotated[
        Count | None,
        COUNT,
        "Largest batch captured as a CUDA graph. Default: by the GPU.",
        With(names="--cuda-graph-max-bs --cuda-graph-max-bs-decode"),
    ]
    moe_a2a_backend: Annotated[
        str | None,
        TEXT,
        "How whole experts exchange tokens; for deepep the default share leaves 2 to 3 GiB.",
        With(metavar="NAME"),
    ]
    deepep_mode: Annotated[
        str | None,
        choice("auto", "normal", "low_latency", metavar="NAME"),
        "Kernels of DeepEP: both by default, each with buffers.",
    ]
    mamba_radix_cache_strategy: Annotated[
        str | None,
        choice(*STATE_SLOTS, metavar="NAME"),
        "Slots of states per request: no_buffer 3, extra_buffer 5, extra_buffer_lazy 4.",
        With(names="--mamba-radix-cache-strategy --mamba-scheduler-strategy", axis=False),
    ]
    max_mamba_cache_size: Annotated[Count | None, COUNT, "Slots of recurrent states, of all ranks."]
    enable_hierarchical_cache: Annotated[
        bool,
        "A cache in host memory too; --hicache-ratio and --hicache-size ask for it as well.",
        With(names="--enable-hierarchical-cache --enable-hicache"),
    ]
    hicache_ratio: Annotated[
        float | str | None,
        TEXT,
        "Host memory of a GPU's cache over its memory for the cache. Default: 2.",
        With(metavar="RATIO"),
    ]
    hicache_size: Annotated[
        Count | None, COUNT, "Host memory of each GPU's cache, in GB (10^9).", With(metavar="GB")
    ]
    attention_backend: Annotated[
        str | None,
        TEXT,
        "Default: by GPU and model. aiter, AMD's default, takes 15 % of the share.",
        With(metavar="NAME"),
    ]
    max_loras_per_batch: Annotated[
        Count | None, COUNT, "Adapters of a batch, with --enable-lora. Default: 8."
    ]
    lora_target_modules: Annotated[
        str | None,
        Parser(_modules),
        "Modules with buffers for adapters: all, or names as q_proj,o_proj.",
        With(metavar="NAME,...", axis=False),
    ]
    disable_hybrid_swa_memory: Annotated[bool, "Store sliding windows as full attention."]
    kt_num_gpu_experts: Annotated[
        Count | None,
        COUNT_OR_ZERO,
        "Routed experts of a layer on GPUs; KTransformers runs the others on the host.",
    ]
    ple_offload_embedding: Annotated[
        bool | None,
        YES_OR_NO,
        "Qwen4's tables of n-grams in host memory. Default: in bf16 on NVIDIA GPUs.",
    ]


@dataclass(frozen=True, eq=False, repr=False)
class SglangArgs(PagedArgs):
    """The arguments of SGLang: those of its options have their names. Ratios are decimals, as
    text.
    """

    # Fields of SglangOptions, written by tests/test_engine_fields.py.
    max_running_requests: int | None = None
    max_total_tokens: int | None = None
    swa_full_tokens_ratio: str | None = None
    mamba_full_memory_ratio: str | None = None
    chunked_prefill_size: int | None = None
    cuda_graph_max_bs: int | None = None
    moe_a2a_backend: str | None = None
    deepep_mode: str | None = None
    mamba_radix_cache_strategy: str | None = None
    max_mamba_cache_size: int | None = None
    enable_hierarchical_cache: bool = False
    hicache_ratio: str | None = None
    hicache_size: int | None = None
    attention_backend: str | None = None
    max_loras_per_batch: int | None = None
    lora_target_modules: str | None = None
    disable_hybrid_swa_memory: bool = False
    kt_num_gpu_experts: int | None = None
    ple_offload_embedding: bool | None = None

    @property
    def lookups_on_host(self) -> bool:
        """Whether lookup tables are in host memory (model_overrides/qwen4_exp.py, which has no
        other model's).
        """
        default = self.dtype.name == "bf16" and not self.device.startswith("AMD")
        if self.ple_offload_embedding is None:
            asked = default
        else:
            asked = self.ple_offload_embedding
        return asked and (self.model_type or "").startswith("qwen4")

    @property
    def exchanges_tokens(self) -> bool:
        """Whether the devices exchange tokens, so that each has whole experts and whole shared
        experts.
        """
        return exchanges_tokens(self.moe_a2a_backend)

    @property
    def split_of_experts(self) -> tuple[Any, ...]:
        return (*super().split_of_experts, self.exchanges_tokens)

    @property
    def caches_on_host(self) -> bool:
        return bool(self.enable_hierarchical_cache or self.hicache_ratio or self.hicache_size)

    @cached_property
    def version(self) -> SglangVersion:
        """What this version does. Raises AttncalcError if `engine_version` is unknown."""
        return sglang_version(self.engine_version)

    @property
    def scales_latents(self) -> bool:
        """Whether latents that an indexer picks are in fp8 with scales and a rotary key in bf16.

        On Blackwell GPUs TRT-LLM's kernel stores neither, except GLM-5 on compute capability 12
        (_dsa_split_backend_resolution in arg_groups/overrides.py, calculate_mla_kv_cache_dim).
        """
        has_scales = (
            self.capability == 12
            and self.model_type == "glm_moe_dsa"
            and self.version.scales_latents_on_rtx
        )
        is_raw = self.version.stores_raw_latents and self.capability >= 10
        return self.kv_dtype.name == "fp8" and (has_scales or not is_raw)

    @property
    def heads_per_dcp(self) -> int:
        """How many times as many KV heads a GPU stores as without --dcp: those of all GPUs of its
        group.

        With 4 heads, --tp 8 and --dcp 4, each GPU has 2 heads of every fourth token
        (get_num_kv_heads in configs/model_config.py).
        """
        heads = self.n_kv_heads or 1
        tp = self.tp // self.attn_dp
        return max(1, heads // max(1, tp // self.dcp)) // max(1, heads // tp)

    @property
    def token_shares(self) -> int:
        if "MLA" in self.attentions:
            return self.dcp
        return self.dcp // self.heads_per_dcp

    @property
    def has_drafter(self) -> bool:
        return bool(self.speculative_layers or self.speculative_tokens or self.speculative_model)

    @property
    def requests(self) -> int | None:
        """The most concurrent requests: as given, or with a drafter by default; None without a
        limit.
        """
        return self.max_running_requests or (_REQUESTS_DRAFTING if self.has_drafter else None)

    @property
    def radix_cache(self) -> bool:
        """Whether prefixes are cached, which is the default."""
        return self.prefix_caching is not False
