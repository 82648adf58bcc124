"""vLLM's own options, and its arguments."""

import contextlib
import json
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Annotated, Any, TypedDict

from ...errors import AttncalcError, known_tip, nearest
from ...options import COUNT, GIBIBYTES_OR_ZERO, YES_OR_NO, Count, Parser, With, choice
from ...records import dataclass
from ...units import GIB, truncate
from ..base import Limits
from ..options import PagedArgs
from .versions import VllmVersion, vllm_version

_MOST_ITEMS = 10**6
# Tokens of context beyond which V0 splits prompts by default (_set_default_args_v0).
_LONG_CONTEXT = 32 * 1024
# model_types of Gemma 4 with towers, and the tokens of a video: 32 frames of 70, with 2 around each
# and 6 for its time (get_mm_max_tokens_per_item in models/gemma4_mm.py).
GEMMA4 = ("gemma4", "gemma4_unified")
_TOKENS_OF_VIDEO = 32 * (70 + 2 + 6)

# Dtypes of TurboQuant. turboquant_k3v4_nc is left out: its K and V have 3.5 bits on average.
TURBOQUANT = ("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_3bit_nc")

# vLLM's own value of --all2all-backend: each rank gets the tokens of all.
GATHERED = "allgather_reducescatter"
# The value of vLLM's guide for experts on several nodes ("multi-node prefill" in
# docs/serving/expert_parallel_deployment.md).
DEEPEP = "deepep_high_throughput"
# Values with which each expert has a place for the most tokens of every rank.
BATCHED = ("deepep_low_latency", "nixl_ep", "pplx")
# {another name: the value}.
_SAME_BACKEND = {"naive": GATHERED, "flashinfer_all2allv": "flashinfer_nvlink_two_sided"}
_BACKENDS = (
    GATHERED,
    DEEPEP,
    "deepep_v2",
    *BATCHED,
    "flashinfer_nvlink_one_sided",
    "flashinfer_nvlink_two_sided",
    "mori",
    "mori_high_throughput",
    "mori_low_latency",
    "moonep",
    "naive",
    "flashinfer_all2allv",
)
# Tokens of a step by default with a value of `BATCHED`
# (DEFAULT_MAX_NUM_BATCHED_TOKENS_FOR_BATCHED_DP in config/scheduler.py).
_TOKENS_OF_BATCHED = 256
# Values of --task, as which --runner was known until 0.10.
POOLING_TASKS = ("embed", "embedding", "classify", "score", "reward")
# {connector of --kv-transfer-config: the key of the size of its cache in host memory}. LMCache's is
# in GiB, for one GPU; the other is in bytes, for all GPUs.
SIZES_OF_CONNECTORS = {
    "LMCacheConnectorV1": "lmcache.max_local_cpu_size",
    "OffloadingConnector": "cpu_bytes_to_use",
}
# Connectors that vLLM registers, of 0.8 to 0.33 (distributed/kv_transfer/kv_connector/factory.py).
# Plugins register others, and kv_connector_module_path names the module of one.
_CONNECTORS = (
    "DecodeBenchConnector",
    "ExampleConnector",
    "ExampleHiddenStatesConnector",
    "FlexKVConnectorV1",
    "HF3FSKVConnector",
    "HiSparseConnector",
    "LMCacheConnector",
    "LMCacheConnectorV1",
    "LMCacheMPConnector",
    "MoRIIOConnector",
    "MooncakeConnector",
    "MooncakeStoreConnector",
    "MultiConnector",
    "NixlConnector",
    "NixlPullConnector",
    "NixlPushConnector",
    "OffloadingConnector",
    "P2pNcclConnector",
    "PyNcclConnector",
    "SharedStorageConnector",
    "SimpleCPUOffloadConnector",
)
# A size that no host has, in bytes.
_MOST_SIZE = 2**60
# {key of --speculative-config: the option that figures read instead}.
DRAFTER_KEYS = {"num_speculative_tokens": "--speculative-tokens", "model": "--speculative-model"}
# {method: layers of a drafter that is part of the model's release
# (models/deepseek_v4/nvidia/dspark.py)}; else 1.
DRAFTER_LAYERS = {"dspark": "3"}
# Methods that find tokens in the text, without layers of a drafter.
WITHOUT_LAYERS = ("ngram", "[ngram]", "ngram_gpu", "suffix")
# Methods of --speculative-config besides those of multi-token prediction, '..._mtp', of 0.8 to 0.33
# (SpeculativeMethod in config/speculative.py).
_METHODS = (
    *WITHOUT_LAYERS,
    "custom_class",
    "dflash",
    "draft_model",
    "dspark",
    "eagle",
    "eagle3",
    "extract_hidden_states",
    "medusa",
    "mlp_speculator",
    "mtp",
)
# Its keys that are alike to those that figures read.
_LIKE_DRAFTER_KEYS = ("num_speculative_tokens_per_batch_size", "speculative_token_tree")


def _backend(text: str, name: str) -> str:
    if text not in ("native", "lmcache"):
        raise AttncalcError(f"{name}: no backend '{truncate(text)}'", "give native or lmcache")
    return text


def json_object(text: str, name: str, tip: str) -> dict[str, Any]:
    """Return the object that a JSON text, or a dictionary as Python and logs print it, stands
    for.
    """
    found = None
    as_json = text
    for of_python, of_json in (("'", '"'), ("True", "true"), ("False", "false"), ("None", "null")):
        as_json = as_json.replace(of_python, of_json)
    for written in (as_json, text):
        with contextlib.suppress(ValueError):
            found = json.loads(written)
    if not isinstance(found, dict):
        raise AttncalcError(f"{name}: '{truncate(text)}' is not a JSON object", tip)
    return found


def check_keys(
    found: Collection[str], read: Collection[str], name: str, others: Collection[str] = ()
) -> None:
    """Raise AttncalcError if a key is nearly one of those that figures read, which it would leave
    at its default. `others` are keys that only look so.
    """
    for key in found:
        close = nearest(key, read) if key not in (*read, *others) else None
        if close:
            raise AttncalcError(
                f"{name}: vLLM has no key {truncate(key)}", f"did you mean '{close}'?"
            )


def _engram(text: str, name: str) -> str:
    tip = """give '{"cpu_offload": true}'"""
    found = json_object(text, name, tip)
    for key, value in found.items():
        if key not in ("cpu_offload", "dp_shared_memory") or not isinstance(value, bool):
            raise AttncalcError(f"{name}: {truncate(key)} is not a switch that is known", tip)
    return json.dumps(found)


def _speculation(text: str, name: str) -> str:
    found = json_object(text, name, """give '{"method": "eagle3"}'""")
    for key, option in DRAFTER_KEYS.items():
        if key in found:
            raise AttncalcError(
                f"{name}: {key} has an option of its own",
                f"give {option} {truncate(str(found[key]))}",
            )
    check_keys(found, (*DRAFTER_KEYS, "method"), name, _LIKE_DRAFTER_KEYS)
    method = found.get("method") or "mtp"
    if method not in _METHODS and not str(method).endswith("_mtp"):
        raise AttncalcError(
            f"{name}: vLLM has no method {truncate(json.dumps(method))}",
            known_tip(str(method), _METHODS),
        )
    return json.dumps(found)


def _connector(text: str, name: str) -> str:
    """Return --kv-transfer-config as JSON. Raises AttncalcError if it is no object, names no
    connector, or has a size that is no number.
    """
    tip = """give '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'"""
    found = json_object(text, name, tip)
    if not isinstance(found.get("kv_connector"), str):
        raise AttncalcError(f"{name}: it names no kv_connector", tip)
    sizes = found.get("kv_connector_extra_config", {})
    if not isinstance(sizes, dict):
        raise AttncalcError(f"{name}: kv_connector_extra_config is not an object", tip)
    parts = sizes.get("connectors", [])
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise AttncalcError(f"{name}: connectors is not a list of objects", tip)
    for each in (found, *parts):
        _check_connector(each, name)
    for key in SIZES_OF_CONNECTORS.values():
        size = sizes.get(key, 1)
        is_number = isinstance(size, int | float) and not isinstance(size, bool)
        if not is_number or not 0 < size < _MOST_SIZE:
            raise AttncalcError(
                f"{name}: {truncate(json.dumps(size))} of {key} is not a size",
                "give a number above 0",
            )
    return json.dumps(found)


def _check_connector(config: Mapping[str, Any], name: str) -> None:
    """Raise AttncalcError if a connector is misspelt: it would be taken for one that turns the
    hybrid KV-cache manager off.
    """
    connector = str(config.get("kv_connector"))
    if connector in _CONNECTORS or config.get("kv_connector_module_path"):
        return
    lower = {known.lower(): known for known in _CONNECTORS}
    close = nearest(connector, lower)
    if close:
        raise AttncalcError(
            f"{name}: vLLM has no connector {truncate(connector)}",
            f"did you mean '{lower[close]}'? One of your own needs kv_connector_module_path",
        )


def _limits(text: str, name: str) -> str:
    """Return the limits per prompt as vLLM's JSON: '{"image": 0}' for {"image": {"count": 0}}.

    Raises AttncalcError if it is not an object of counts.
    """
    tip = """give the counts by kind, as '{"image": 0, "video": 0}'"""
    found = json_object(text, name, tip)
    counts = {
        kind: limit.get("count") if isinstance(limit, dict) else limit
        for kind, limit in found.items()
    }
    for kind, limit in counts.items():
        sized = isinstance(found[kind], dict) and len(found[kind]) > 1
        if sized or type(limit) is not int or not 0 <= limit <= _MOST_ITEMS:
            raise AttncalcError(
                f"{name}: {truncate(json.dumps(found[kind]))} of {truncate(kind)} is not a count",
                tip,
            )
    return json.dumps(counts)


# {environment variable of vLLM (envs.py), a number, or 1 or 0: the argument here}.
VARIABLES = {
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "allow_long_max_model_len",
    "VLLM_USE_FLASHINFER_SAMPLER": "flashinfer_sampler",
    "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "estimate_cudagraphs",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "allreduce_symm_mem",
    "VLLM_USE_V2_MODEL_RUNNER": "v2_model_runner",
    "VLLM_FUSED_MOE_CHUNK_SIZE": "fused_moe_chunk_size",
    "VLLM_SPARSE_INDEXER_MAX_LOGITS_MB": "sparse_indexer_max_logits_mb",
    "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE": "flashinfer_workspace_buffer_size",
    "VLLM_USE_DEEP_GEMM": "use_deep_gemm",
    "VLLM_DEEPEP_BUFFER_SIZE_MB": "deepep_buffer_size_mb",
    "VLLM_MOE_DP_CHUNK_SIZE": "moe_dp_chunk_size",
}


class VllmOptions(TypedDict, total=False):
    """Arguments of vLLM alone."""

    max_num_batched_tokens: Annotated[Count | None, COUNT, "Tokens per step. Default: by the GPU."]
    max_num_seqs: Annotated[
        Count | None, COUNT, "Sequences per step. Default: by the GPU.", With(common=True)
    ]
    enforce_eager: Annotated[bool, "No CUDA graphs, which take memory from 0.20 on."]
    disable_hybrid_kv_cache_manager: Annotated[
        bool | None,
        YES_OR_NO,
        "Whether sliding windows are stored as full attention. Default: as the connector of "
        "--kv-transfer-config needs.",
    ]
    kv_transfer_config: Annotated[
        str | Mapping[str, Any] | None,
        Parser(_connector, "JSON"),
        'A connector of the cache, as \'{"kv_connector": "NixlConnector"}\'. Some turn the '
        "hybrid KV-cache manager off.",
        With(axis=False),
    ]
    swap_space: Annotated[
        float | str | None, GIBIBYTES_OR_ZERO, "Before V1: host memory for swapped blocks."
    ]
    cpu_offload_gb: Annotated[
        float | str | None, GIBIBYTES_OR_ZERO, "Weights of each GPU in host memory."
    ]
    kv_offloading_size: Annotated[
        float | str | None,
        GIBIBYTES_OR_ZERO,
        "Host memory for blocks of the cache, of all GPUs together.",
    ]
    kv_offloading_backend: Annotated[
        str | None,
        Parser(_backend, "NAME"),
        "native or lmcache, which stores MLA's latents on one GPU's part of the size. Default: "
        "native.",
        With(axis=False),
    ]
    language_model_only: Annotated[bool, "Text only: no towers, and no images in the profile."]
    limit_mm_per_prompt: Annotated[
        str | Mapping[str, int] | None,
        Parser(_limits, "JSON"),
        'Images, videos and audios per prompt, as \'{"image": 0, "video": 0}\'.',
        With(axis=False),
    ]
    engram_config: Annotated[
        str | Mapping[str, bool] | None,
        Parser(_engram, "JSON"),
        "Tables of n-grams on the GPU, as '{\"cpu_offload\": false}' (DeepSeek-V4.1, Qwen4).",
        With(axis=False),
    ]
    speculative_config: Annotated[
        str | Mapping[str, Any] | None,
        Parser(_speculation, "JSON"),
        'Further keys of the printed command, as \'{"method": "eagle3"}\'; they change no figure.',
        With(axis=False),
    ]
    skip_mm_profiling: Annotated[bool, "No images in the profile of the memory."]
    async_scheduling: Annotated[
        bool | None,
        YES_OR_NO,
        "Whether a step is scheduled while another runs: windows then hold the tokens of one step "
        "more. Default: the engine's.",
        With(names="--async-scheduling/--no-async-scheduling"),
    ]
    max_cudagraph_capture_size: Annotated[
        Count | None,
        COUNT,
        "The largest batch with a CUDA graph. Default: 2 --max-num-seqs, at most 512 or 1,024.",
    ]
    flashinfer_sampler: Annotated[
        bool | None, YES_OR_NO, "VLLM_USE_FLASHINFER_SAMPLER. Default: by version and GPU."
    ]
    estimate_cudagraphs: Annotated[
        bool | None,
        YES_OR_NO,
        "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS: subtract CUDA graphs. Default: from 0.20 on.",
    ]
    allreduce_symm_mem: Annotated[
        bool | None, YES_OR_NO, "VLLM_ALLREDUCE_USE_SYMM_MEM: symmetric memory. Default: on."
    ]
    v2_model_runner: Annotated[
        bool | None, YES_OR_NO, "VLLM_USE_V2_MODEL_RUNNER. Default: by version and model."
    ]
    fused_moe_chunk_size: Annotated[
        Count | None, COUNT, "VLLM_FUSED_MOE_CHUNK_SIZE, up to 0.17. Default: by version."
    ]
    sparse_indexer_max_logits_mb: Annotated[
        Count | None, COUNT, "VLLM_SPARSE_INDEXER_MAX_LOGITS_MB. Default: 512."
    ]
    flashinfer_workspace_buffer_size: Annotated[
        Count | None, COUNT, "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE, in bytes. Default: 394 MiB."
    ]
    all2all_backend: Annotated[
        str | None,
        choice(*_BACKENDS, metavar="NAME"),
        "How whole experts get the tokens of other ranks. Default: that of vLLM; on several nodes "
        "deepep_high_throughput.",
    ]
    data_parallel_size_local: Annotated[
        Count | None,
        COUNT,
        "Data-parallel ranks of one node. Default: as many as it has GPUs for.",
        With(also="-dpl"),
    ]
    use_deep_gemm: Annotated[
        bool | None,
        YES_OR_NO,
        "VLLM_USE_DEEP_GEMM: experts in FP8 run in DeepGEMM. Default: by version and GPU.",
    ]
    deepep_buffer_size_mb: Annotated[
        Count | None, COUNT, "VLLM_DEEPEP_BUFFER_SIZE_MB, in MiB. Default: 1,024."
    ]
    moe_dp_chunk_size: Annotated[
        Count | None, COUNT, "VLLM_MOE_DP_CHUNK_SIZE, up to 0.19. Default: 256."
    ]
    warm_start: Annotated[
        bool | None,
        YES_OR_NO,
        "A later start, with compiled graphs in vLLM's cache. Default: the first, and both in "
        "the range.",
        With(names="--warm-start/--cold-start"),
    ]
    max_loras: Annotated[Count | None, COUNT, "Adapters of a step, with --enable-lora. Default: 1."]
    runner: Annotated[
        str | None,
        choice(
            "auto", "generate", "pooling", metavar="NAME", **dict.fromkeys(POOLING_TASKS, "pooling")
        ),
        "pooling: an embedding model, which does not sample.",
        With(also="--task", axis=False),
    ]
    offline: Annotated[
        bool,
        "Python's class LLM instead of the server, with larger steps by default.",
        With(names="--offline-inference"),
    ]


@dataclass(frozen=True, eq=False, repr=False)
class VllmArgs(PagedArgs):
    """The arguments of vLLM: those of its options have their names. Sizes are in bytes, limits are
    JSON.
    """

    # Fields of VllmOptions, written by tests/test_engine_fields.py.
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    enforce_eager: bool = False
    disable_hybrid_kv_cache_manager: bool | None = None
    kv_transfer_config: str | None = None
    swap_space: int | None = None
    cpu_offload_gb: int | None = None
    kv_offloading_size: int | None = None
    kv_offloading_backend: str | None = None
    language_model_only: bool = False
    limit_mm_per_prompt: str | None = None
    engram_config: str | None = None
    speculative_config: str | None = None
    skip_mm_profiling: bool = False
    async_scheduling: bool | None = None
    max_cudagraph_capture_size: int | None = None
    flashinfer_sampler: bool | None = None
    estimate_cudagraphs: bool | None = None
    allreduce_symm_mem: bool | None = None
    v2_model_runner: bool | None = None
    fused_moe_chunk_size: int | None = None
    sparse_indexer_max_logits_mb: int | None = None
    flashinfer_workspace_buffer_size: int | None = None
    all2all_backend: str | None = None
    data_parallel_size_local: int | None = None
    use_deep_gemm: bool | None = None
    deepep_buffer_size_mb: int | None = None
    moe_dp_chunk_size: int | None = None
    warm_start: bool | None = None
    max_loras: int | None = None
    runner: str | None = None
    offline: bool = False

    @property
    def changes_weights(self) -> bool:
        return bool(self.cpu_offload_gb or self.enable_lora)

    @property
    def pools(self) -> bool:
        """Whether the pooling runner runs the model, which samples no tokens."""
        return self.without_cache or self.runner == "pooling"

    @property
    def predicts_tokens(self) -> bool:
        """Whether the model's own layers for multi-token prediction draft tokens."""
        if self.speculative_config is None or self.speculative_model:
            return False
        method = json.loads(self.speculative_config).get("method") or "mtp"
        return str(method).endswith("mtp")

    @property
    def lookups_on_host(self) -> bool:
        """Whether lookup tables are in host memory (--engram-config; nvidia/engram.py in
        models/deepseek_v41).
        """
        return bool(
            json.loads(self.engram_config or "{}").get("cpu_offload", self.version.offloads_lookups)
        )

    @cached_property
    def connector(self) -> dict[str, Any]:
        """What --kv-transfer-config says; {} without it."""
        config: dict[str, Any] = json.loads(self.kv_transfer_config or "{}")
        return config

    @property
    def connector_name(self) -> str:
        """The connector that moves blocks of the cache; '' without one. --kv-offloading-size sets
        one too.
        """
        if self.kv_offloading_size is None:
            return str(self.connector.get("kv_connector", ""))
        if self.kv_offloading_backend == "lmcache":
            return self.version.connector_of_lmcache
        return "OffloadingConnector"

    @property
    def supports_hybrids(self) -> bool:
        """Whether all connectors support the hybrid KV-cache manager; MultiConnector has
        several.
        """
        name = self.connector_name
        names = [name] if name else []
        if name == "MultiConnector":
            parts = self.connector.get("kv_connector_extra_config", {}).get("connectors", [])
            names += [str(part.get("kv_connector")) for part in parts or [{}]]
        return self.version.connectors_of_hybrids.issuperset(names)

    @property
    def without_hybrid_manager(self) -> bool:
        """Whether sliding windows are stored as full attention: as given, or because of a
        connector.
        """
        given = self.disable_hybrid_kv_cache_manager
        if given or (given is False and self.version.can_keep_hybrid_manager):
            return given
        return self.connector_disables_hybrids

    @property
    def connector_disables_hybrids(self) -> bool:
        """Whether a connector turns the hybrid KV-cache manager off by default."""
        if self.version.asks_connectors:
            return not self.supports_hybrids
        # --kv-offloading-size sets its connector after that, and the start fails then
        return bool(self.kv_transfer_config)

    @property
    def offloaded_size(self) -> int:
        """Bytes of host memory for blocks of the cache of all GPUs; 0 for none."""
        sizes = self.connector.get("kv_connector_extra_config", {})
        size = sizes.get(SIZES_OF_CONNECTORS.get(self.connector_name, ""), 0)
        if self.connector_name == "LMCacheConnectorV1":
            size *= GIB * self.tp * self.pp
        if self.kv_offloading_size is not None:
            return self.kv_offloading_size
        return int(size)

    @property
    def offloads_to_lmcache(self) -> bool:
        """Whether the cache in host memory is LMCache's."""
        return self.connector_name.startswith("LMCache")

    @property
    def caches_on_host(self) -> bool:
        return bool(self.offloaded_size)

    @cached_property
    def _limits(self) -> dict[str, int]:
        limits: dict[str, int] = json.loads(self.limit_mm_per_prompt or "{}")
        return limits

    def limit(self, kind: str) -> int | None:
        """Return how many images, videos or audios a prompt may have; None without a limit."""
        if self.language_model_only:
            return 0
        return self._limits.get(kind)

    @property
    def masks_images(self) -> bool:
        """Whether image tokens see each other: the model does that, and prompts may have images or
        videos.
        """
        has_images = self.limit("image") != 0
        has_videos = self.model_type in GEMMA4 and self.limit("video") != 0
        return self.image_mask and (has_images or has_videos)

    @cached_property
    def version(self) -> VllmVersion:
        """What this version does. Raises AttncalcError if `engine_version` is unknown."""
        return vllm_version(self.engine_version)

    @cached_property
    def limits(self) -> Limits:
        """The tokens and the sequences of one step: as given, or the defaults for the device."""
        is_large = self._has_large_gpu or self.version.runs_1024_sequences
        sequences = 256
        if is_large and not self.version.v0:
            sequences = 1024
        if self.without_cache:
            return self._limits_without_cache(sequences)
        return Limits(
            self.max_num_batched_tokens or self._default_tokens, self.max_num_seqs or sequences
        )

    def _limits_without_cache(self, sequences: int) -> Limits:
        """Return the limits of a model whose texts a step takes whole: by default tokens for the
        longest one, and at most those of `sequences` texts, of which there are no more than tokens.

        Source: _set_default_max_num_seqs_and_batched_tokens_args in engine/arg_utils.py.
        """
        context = self.max_model_len or 0
        tokens = self.max_num_batched_tokens
        if tokens is None:
            tokens = context
            if self.version.fills_steps_of_encoders:
                texts = self.max_num_seqs or sequences
                tokens = min(texts * context, max(context, self._default_tokens_of_device))
        return Limits(tokens, self.max_num_seqs or min(sequences, tokens))

    @cached_property
    def exchange(self) -> str:
        """How whole experts get the tokens of data-parallel ranks: a value of --all2all-backend."""
        if self.dp == 1 or not self.enable_expert_parallel:
            return GATHERED
        if self.all2all_backend is None:
            return DEEPEP if self.assumes_exchange else GATHERED
        backend = _SAME_BACKEND.get(self.all2all_backend, self.all2all_backend)
        if backend == "pplx" and not self.version.has_pplx:
            return GATHERED
        return backend

    @property
    def assumes_exchange(self) -> bool:
        """Whether the experts are on several nodes, and no option says how they get tokens."""
        is_wide = self.enable_expert_parallel and self.dp > 1 and self.crosses_nodes
        is_nvidia = self.compute_capability is not None
        return self.all2all_backend is None and is_wide and is_nvidia

    @property
    def gpus_per_node(self) -> int:
        """The GPUs of one node: those of its data-parallel ranks, if their number is given."""
        local = self.data_parallel_size_local
        if local is None:
            return self.per_node
        return min(self.per_node, self.tp * self.pp * local)

    @property
    def crosses_nodes(self) -> bool:
        """Whether the devices of all data-parallel ranks are on several nodes."""
        return self.tp * self.pp * self.dp > self.gpus_per_node

    @property
    def _default_tokens(self) -> int:
        """The tokens of one step by default; with image tokens that see each other, at least those
        of one video (_get_min_mm_batched_tokens in engine/arg_utils.py).
        """
        tokens = self._default_tokens_of_device
        if self.exchange in BATCHED and self.version.batches_whole_steps:
            return _TOKENS_OF_BATCHED
        is_raised = self.version.steps_hold_videos and self.masks_images
        if is_raised and self.model_type in GEMMA4:
            return max(tokens, _TOKENS_OF_VIDEO)
        return tokens

    @property
    def _default_tokens_of_device(self) -> int:
        """The tokens of one step by default (get_batch_defaults in engine/arg_utils.py).

        The class LLM has larger ones than the server: 16,384 instead of 8,192, and 8,192 instead of
        2,048.

        V0 splits prompts only if the context is longer than 32K, and never with MLA; a step takes a
        whole prompt otherwise.
        """
        if self.version.v0:
            context = self.max_model_len or 0
            if context <= _LONG_CONTEXT or "MLA" in self.attentions:
                return max(context, 2048)
            return 2048
        memory = self.device_memory or 0
        if memory >= 160 * GIB and self.version.has_default_for_160_gib:
            return 16384
        if self._has_large_gpu:
            return 16384 if self.offline else 8192
        return 8192 if self.offline else 2048

    @cached_property
    def is_intel(self) -> bool:
        """Whether the device is a GPU of Intel."""
        return any(name in self.device.lower() for name in ("intel", "arc "))

    @cached_property
    def _has_large_gpu(self) -> bool:
        """Whether vLLM takes the device for an H100 or better; an unknown device counts as one."""
        memory = 70 * GIB if self.device_memory is None else self.device_memory
        device = self.device.lower()
        slower = self.version.gpus_with_small_defaults
        large = self.version.gpus_with_large_defaults
        is_named = any(name in device for name in large) or not (large and device)
        return memory >= 70 * GIB and is_named and not any(name in device for name in slower)
