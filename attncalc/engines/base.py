"""The arguments of an engine, and what it returns: the layout of a model's caches on one device.

Each engine has a function `layout(specs, args)`. It takes what the model's layers cache, in order, and the engine's
arguments. The layout that it returns answers two questions:

- `pool`: how many blocks, tokens and sequences fit in a number of bytes?
- `needed`: how many bytes do a number of sequences need?

From plain ints it computes plain ints, which searches use; from Quantities it computes Quantities with formulas.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from ..errors import AttncalcError
from ..quantity import Quantity, Ratio, symbol
from ..units import DType
from .pipeline import LayerCacheSpec

Bound = Literal["lower", "reserved"]
"""Whether an engine's bytes are a lower bound, or the bytes that it reserves."""
NO_LIMIT = symbol("no_limit", 2**60, "no limit: this device has no cache that grows with the context")


class DraftModel(NamedTuple):
    """A draft model on one device: an EAGLE head, or a smaller model.

    Attributes:
        title: its name.
        weights: bytes of its weights.
        layers: what its layers cache.
    """

    title: str
    weights: int
    layers: tuple[LayerCacheSpec, ...]


@dataclass(frozen=True)
class EngineArgs:
    """The arguments of an engine, named as its own options. None means the engine's default.

    Attributes:
        kv_dtype: dtype of the cache, for K and V.
        dtype: dtype of the model.
        kv_dtype_k: dtype of K if it differs from V's (llama.cpp).
        kv_dtype_v: dtype of V if it differs from K's (llama.cpp).
        mamba_ssm_cache_dtype: dtype of recurrent states.
        engine_version: version of the engine, "v0" for vLLM's old engine, "ik" for ik_llama.cpp.
        tp: tensor-parallel devices.
        pp: pipeline stages.
        dcp: decode-context-parallel devices, which are among the tensor-parallel ones (vLLM).
        attn_dp: data-parallel ranks of attention, which are among the tensor-parallel devices (SGLang).
        block_size: tokens per block (SGLang: per page).
        max_num_batched_tokens: tokens of one scheduler step (vLLM).
        max_num_seqs: sequences of one scheduler step (vLLM).
        enforce_eager: no CUDA graphs (vLLM).
        allow_long_max_model_len: a context beyond the model's maximum (vLLM's VLLM_ALLOW_LONG_MAX_MODEL_LEN).
        max_running_requests: concurrent requests (SGLang).
        speculative_tokens: tokens that a drafter proposes per step.
        speculative_layers: layers of the drafter; each caches as much as the model's last attention layer.
        speculative_model: the draft model on one device (vLLM).
        prefix_caching: whether prefixes are cached (SGLang: the radix cache).
        disable_hybrid_kv_cache_manager: store sliding windows like full attention (vLLM).
        disable_hybrid_swa_memory: store sliding windows like full attention (SGLang).
        swa_full_tokens_ratio: tokens of SGLang's sliding-window pool per token of its full pool, a decimal.
        mamba_full_memory_ratio: bytes of SGLang's state pool per byte of its token pools, a decimal.
        sequences: slots of the server (llama.cpp's -np).
        ubatch: tokens of a micro-batch (llama.cpp's -ub).
        kv_unified: all sequences share one buffer (llama.cpp's -kvu).
        swa_full: store sliding windows like full attention (llama.cpp's --swa-full).
        flash_attn: flash attention of llama.cpp: on, off or auto (-fa).
        n_outputs_max: rows of logits that llama.cpp computes in a pass.
        n_gpu_layers: layers on GPUs, the output layer included (llama.cpp's -ngl); None for all.
        n_cpu_moe: layers from the first on whose routed experts are on the host (llama.cpp's --n-cpu-moe).
        tensor_split: the share of the layers on each GPU (llama.cpp's -ts); () for equal ones.
        no_kv_offload: all caches are on the host (llama.cpp's -nkvo).
        cache_implementation: dynamic, static or quantized (transformers).
        residual_length: tokens after which a quantized cache quantizes its newest tokens (transformers).
        source: source tokens of the encoder.
        max_model_len: tokens of the requested context, on which some defaults depend.
        swap_space: bytes of host memory for blocks (vLLM before V1).
        device_memory: bytes of one GPU, on which some defaults depend.
        device: name of the GPU, on which some defaults depend.
        n_kv_heads: KV heads of the whole model, before tensor parallelism.
        gpus: identical GPUs over which llama.cpp distributes whole layers.
        model_type: the model_type of the model's config.json.
        attentions: labels of the model's kinds of attention ("MLA", "KDA").
        blocks: llama.cpp's layers in a GGUF file, with those of multi-token prediction; None without a file.
        vision_params: parameters of the model's vision tower.
    """

    kv_dtype: DType
    dtype: DType
    kv_dtype_k: DType | None = None
    kv_dtype_v: DType | None = None
    mamba_ssm_cache_dtype: DType | None = None
    engine_version: str | None = None
    tp: int = 1
    pp: int = 1
    dcp: int = 1
    attn_dp: int = 1
    block_size: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    enforce_eager: bool = False
    allow_long_max_model_len: bool = False
    max_running_requests: int | None = None
    speculative_tokens: int = 0
    speculative_layers: int = 0
    speculative_model: DraftModel | None = None
    prefix_caching: bool | None = None
    disable_hybrid_kv_cache_manager: bool = False
    disable_hybrid_swa_memory: bool = False
    swa_full_tokens_ratio: str | None = None
    mamba_full_memory_ratio: str | None = None
    sequences: int | None = None
    ubatch: int | None = None
    kv_unified: bool = False
    swa_full: bool = False
    flash_attn: str | None = None
    n_outputs_max: int | None = None
    n_gpu_layers: int | None = None
    n_cpu_moe: int = 0
    tensor_split: tuple[float, ...] = ()
    no_kv_offload: bool = False
    cache_implementation: str | None = None
    residual_length: int | None = None
    source: int | None = None
    max_model_len: int | None = None
    swap_space: int | None = None
    device_memory: int | None = None
    device: str = ""
    n_kv_heads: int | None = None
    gpus: int = 1
    model_type: str | None = None
    attentions: frozenset[str] = frozenset()
    blocks: int | None = None
    vision_params: int = 0

    @property
    def given(self) -> frozenset[str]:
        """The names of the optional fields that differ from their defaults."""
        optional = (f for f in dataclasses.fields(self) if f.default is not dataclasses.MISSING)
        return frozenset(f.name for f in optional if getattr(self, f.name) != f.default)

    def check_options(self, engine: str, supported: frozenset[str]) -> None:
        """Raise AttncalcError if an option was given that `engine` does not have."""
        unknown = sorted(self.given - supported - _NOT_OPTIONS)
        if unknown:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in unknown)
            raise AttncalcError(
                f"{options} {'have' if len(unknown) > 1 else 'has'} no effect on engine {engine}",
                "leave it out, or choose an engine that has it with --engine",
            )


_NOT_OPTIONS = frozenset(
    {
        *("tp", "source", "max_model_len", "device_memory", "device"),
        *("n_kv_heads", "model_type", "attentions", "blocks", "vision_params"),
    }
)
"""Fields that describe the model and the device; they are no engine's options, so every engine accepts them."""


class Detail(NamedTuple):
    """An intermediate figure of an engine's answer.

    Attributes:
        name: its name in JSON.
        label: its label on screens.
        quantity: the figure with its formula.
        unit: its unit, as in units.py.
    """

    name: str
    label: str
    quantity: Quantity | Ratio
    unit: str


class Pool(NamedTuple):
    """What fits in the memory for the cache, for sequences of one context length.

    Attributes:
        blocks: how many blocks fit, each shared by all layers; None for an engine without blocks.
        tokens: how many tokens fit, as the engine counts and logs them.
        concurrency: how many sequences of that context length fit, as the engine logs it.
        details: intermediate figures.
        log_lines: the lines that the engine would print in its own log.
    """

    blocks: Quantity | None
    tokens: Quantity
    concurrency: Ratio
    details: tuple[Detail, ...]
    log_lines: tuple[str, ...]


class CacheLayout(Protocol):
    """How an engine stores one model's caches on one device. If devices differ, it is the one where least fits."""

    @property
    def bound(self) -> Bound:
        """Whether its bytes are a lower bound, or the bytes that the engine reserves."""

    @property
    def version(self) -> str | None:
        """The version of the engine; None for an engine without versions."""

    @property
    def facts(self) -> tuple[str, ...]:
        """The settings in use, with defaults, as the engine calls them: 'block size 16', 'version 0.33.0'."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions, and what is not counted: one sentence each."""

    @property
    def source(self) -> str:
        """The files of the engine's source that the formulas come from."""

    @property
    def max_sequences(self) -> int | None:
        """The most sequences that the engine runs concurrently, whatever the memory; None without such a limit."""

    @property
    def parts(self) -> Sequence[CacheLayout]:
        """The layout of each GPU or pipeline stage if they hold different layers; () if one layout is for all."""

    def needed(self, batch: int, context: int) -> int:
        """Return the bytes that `batch` concurrent sequences of `context` tokens need on one device."""

    def with_shared_prefix(self, tokens: int) -> CacheLayout | None:
        """Return the layout of sequences that all start with the same tokens, which `needed` counts once.

        Only tokens that the engine finds in its cache of prefixes count: whole blocks. None if the engine does not
        cache prefixes, or it is switched off.
        """

    def pool(self, memory: int, context: int) -> Pool:
        """Return what fits in `memory` bytes of one device, for sequences of `context` tokens."""
