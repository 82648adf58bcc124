"""The options of `attncalc fit`, under the same names in Python and on the command line, each with its parser.

The last item of an annotation is the function that parses the option, as in `Annotated[Count | None, parse_count]`. It
takes text, because the option may come from the command line or from a start-up log, and the name for its errors.
"""

# Without `from __future__ import annotations`, a TypedDict has its types as objects, and not as strings.

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

from ..errors import AttncalcError
from ..hardware import Gpu
from ..serving.gpu_layers import AUTO
from ..units import list_tip, parse_bytes, parse_count, parse_decimal, truncate
from .models import Count, ModelOptions, as_text
from .workloads import CacheDtypeOptions, SizeOptions, dtype_name

Size = int | str
"""A size in bytes: 2**30, '5.38GiB', '5.38GB' (10^9)."""


def count_or_zero(text: str, name: str) -> int:
    """Return a count, which may be 0. Raises AttncalcError if it is not a number."""
    return 0 if text.strip() == "0" else parse_count(text, name)


def bytes_or_zero(text: str, name: str) -> int:
    """Return a size in bytes, which may be 0. Raises AttncalcError if it is not a size."""
    return 0 if text.strip() == "0" else parse_bytes(text, name)


def gibibytes(text: str, name: str) -> int:
    """Return a size in bytes; a bare number is in GiB, as in vLLM's --swap-space."""
    return parse_bytes(text if text[-1:].isalpha() else f"{text}GiB", name)


def dtype_or_auto(text: str, name: str) -> str | None:
    """Return the name of a dtype; None for 'auto', which is the engine's default."""
    return None if text == "auto" else dtype_name(text)


def weight_dtype(text: str, name: str) -> str:
    """Return the name of a dtype."""
    return dtype_name(text)


def yes_or_no(text: str, name: str) -> bool:
    """Return a flag; a log has 'True' or 'False'."""
    return text == "True"


def unparsed(text: str, name: str) -> str:
    """Return the text; a number is parsed later, exactly."""
    return text


def gpu_layers(text: str, name: str) -> int | str | None:
    """Return a number of layers, 'auto', or None for 'all'. Raises AttncalcError for another text."""
    if text in (AUTO, "all"):
        return None if text == "all" else AUTO
    try:
        return count_or_zero(text, name)
    except AttncalcError:
        raise AttncalcError(
            f"{name}: '{truncate(text)}' is not a number of layers", f"give a number, auto or all{list_tip(text)}"
        ) from None


def shares(text: str, name: str) -> tuple[float, ...]:
    """Return the share of each GPU, from '3,1'. Raises AttncalcError if one is not a number from 0 on."""
    numbers = []
    for part in text.replace("/", ",").split(","):
        if part.strip() in ("0", "0.0"):
            numbers.append(0.0)
            continue
        numerator, denominator = parse_decimal(part, name, upper=10**6)
        numbers.append(numerator / denominator)
    if not any(numbers):
        raise AttncalcError(f"{name}: all shares are 0", "give one share per GPU, as 3,1")
    return tuple(numbers)


class TrafficOptions(TypedDict, total=False):
    """The requests that users send.

    Attributes:
        prompt: tokens of a prompt; with `output`.
        output: tokens of an output.
        shared_prefix: tokens with which all prompts start, stored once with prefix caching.
        lengths: tokens of requests, instead of `prompt` and `output`: '900,512' or (900, 512).
    """

    prompt: Count | None
    output: Count | None
    shared_prefix: Count | None
    lengths: str | Sequence[Count] | None


class DeploymentOptions(TypedDict, total=False):
    """The engine, the GPUs and how the model is split over them; or a memory that an engine reported.

    Attributes:
        engine: 'vllm' (the default), 'sglang', 'llamacpp' (the default for a GGUF file), 'transformers' or 'ideal'.
        gpu: 'h100-80gb', '2xh100', '24GB', a .yaml file or a Gpu.
        gpus: number of GPUs; by default tp * pp * dp. More GPUs run replicas.
        tp: tensor-parallel GPUs; by default `gpus` divided by `pp`.
        pp: pipeline stages; by default 1.
        dcp: decode-context-parallel GPUs, which share those of `tp`; by default 1.
        dp: data-parallel ranks, each with `tp` GPUs; by default 1.
        attn_dp: data-parallel ranks of attention, which share the GPUs of `tp` (SGLang); by default 1.
        enable_dp_attention: whether `dp` is `attn_dp`, as in SGLang's old options.
        enable_expert_parallel: whether each GPU has whole experts instead of a part of each.
        gpu_memory_utilization: share of a GPU's memory that the engine takes; by default the engine's.
        reserve: runtime memory of a GPU; by default an estimate.
        weights_dtype: dtype of the matrices of attention and MLPs; by default as released.
        kv_memory: memory for the cache that an engine reported.
    """

    engine: str | None
    gpu: str | os.PathLike[str] | Gpu | None
    gpus: Annotated[Count | None, parse_count]
    tp: Annotated[Count | None, parse_count]
    pp: Annotated[Count | None, parse_count]
    dcp: Annotated[Count | None, parse_count]
    dp: Annotated[Count | None, parse_count]
    attn_dp: Annotated[Count | None, parse_count]
    enable_dp_attention: bool
    enable_expert_parallel: bool
    gpu_memory_utilization: Annotated[float | str | None, unparsed]
    reserve: Annotated[Size | None, bytes_or_zero]
    weights_dtype: Annotated[str | None, weight_dtype]
    kv_memory: Annotated[Size | None, parse_bytes]


class OffloadOptions(TypedDict, total=False):
    """The layers and caches that llama.cpp puts on GPUs. They need a GPU.

    Attributes:
        n_gpu_layers: layers on GPUs, the output layer included; 'auto' for the most that fit. By default all.
        n_cpu_moe: the routed experts of the first layers are on the host.
        cpu_moe: whether all experts are on the host.
        tensor_split: share of the layers on each GPU: '3,1' or (3, 1).
        no_kv_offload: whether the cache is in host memory.
    """

    n_gpu_layers: Annotated[Count | None, gpu_layers]
    n_cpu_moe: Annotated[Count | None, count_or_zero]
    cpu_moe: bool
    tensor_split: Annotated[str | Sequence[float] | None, shares]
    no_kv_offload: bool


class EngineOptions(OffloadOptions, total=False):
    """Arguments of the engines, under their own names; docs/commands/fit.md explains them."""

    engine_version: Annotated[str | None, unparsed]
    block_size: Annotated[Count | None, parse_count]
    prefix_caching: Annotated[bool | None, yes_or_no]
    mamba_ssm_cache_dtype: Annotated[str | None, dtype_or_auto]
    speculative_tokens: Annotated[Count | None, count_or_zero]
    speculative_layers: Annotated[Count | None, count_or_zero]
    speculative_model: str | None
    max_num_batched_tokens: Annotated[Count | None, parse_count]
    max_num_seqs: Annotated[Count | None, parse_count]
    enforce_eager: bool
    allow_long_max_model_len: bool
    disable_hybrid_kv_cache_manager: bool
    swap_space: Annotated[float | str | None, gibibytes]
    max_running_requests: Annotated[Count | None, parse_count]
    swa_full_tokens_ratio: Annotated[float | str | None, unparsed]
    mamba_full_memory_ratio: Annotated[float | str | None, unparsed]
    disable_hybrid_swa_memory: bool
    kv_dtype_k: Annotated[str | None, dtype_or_auto]
    kv_dtype_v: Annotated[str | None, dtype_or_auto]
    sequences: Annotated[Count | None, parse_count]
    ubatch: Annotated[Count | None, parse_count]
    flash_attn: str | None
    n_outputs_max: Annotated[Count | None, parse_count]
    kv_unified: bool
    swa_full: bool
    cache_implementation: str | None
    residual_length: Annotated[Count | None, parse_count]


class FitOptions(
    ModelOptions, SizeOptions, CacheDtypeOptions, TrafficOptions, DeploymentOptions, EngineOptions, total=False
):
    """All options of `attncalc fit` but those of its screen and its log."""


def parsed(options: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    """Return {option: value} of the options of this TypedDict that are given, each parsed by its parser.

    Raises AttncalcError if an option cannot be parsed.
    """
    values = {}
    for name, annotation in kind.__annotations__.items():
        value = options.get(name)
        if value is not None:
            metadata = getattr(annotation, "__metadata__", ())
            parse = next((part for part in metadata if inspect.isfunction(part)), None)
            values[name] = parse(as_text(value), f"--{name.replace('_', '-')}") if parse else value
    return values
