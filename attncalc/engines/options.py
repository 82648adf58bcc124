"""The options that several engines share, under the engines' own names, and the arguments that they
become.

Each engine's own are in its `options.py`.
"""

from functools import cached_property
from typing import Annotated, Any, TypedDict

from ..options import COUNT, COUNT_OR_ZERO, DTYPE_OR_AUTO, TEXT, YES_OR_NO, Count, With
from ..records import dataclass
from ..units import DType
from .base import EngineArgs

# {major compute capability: parts of the devices' names}.
_DEVICES = {
    9: ("h100", "h200", "h800", "h20", "gh200"),
    10: ("b100", "b200", "b300"),
    11: ("thor",),
    12: ("rtx pro", "rtx 50", "gb10"),
}


class VersionOptions(TypedDict, total=False):
    engine_version: Annotated[
        str | None,
        TEXT,
        "Version of the engine, as 0.9.2, or b11258 of llama.cpp. Default: the newest known one.",
        With(metavar="VERSION"),
    ]


class SplitCacheOptions(TypedDict, total=False):
    """The dtypes of K and V one by one: llama.cpp."""

    kv_dtype_k: Annotated[
        str | None,
        DTYPE_OR_AUTO,
        "Dtype of K alone.",
        With(names="--kv-dtype-k --cache-type-k -ctk"),
    ]
    kv_dtype_v: Annotated[
        str | None,
        DTYPE_OR_AUTO,
        "Dtype of V alone.",
        With(names="--kv-dtype-v --cache-type-v -ctv"),
    ]


class PagedOptions(TypedDict, total=False):
    """Blocks of tokens, prefixes and recurrent states: vLLM and SGLang."""

    block_size: Annotated[
        Count | None,
        COUNT,
        "Tokens per block (vLLM) or page (SGLang).",
        With(names="--block-size --page-size"),
    ]
    prefix_caching: Annotated[
        bool | None,
        YES_OR_NO,
        "Whether prefixes are cached. Default: the engine's.",
        With(
            names="--prefix-caching/--no-prefix-caching "
            "--enable-prefix-caching/--no-enable-prefix-caching"
        ),
    ]
    mamba_ssm_cache_dtype: Annotated[str | None, DTYPE_OR_AUTO, "Dtype of recurrent states."]
    allow_long_max_model_len: Annotated[
        bool, "Allow a context beyond the model's maximum, as VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 does."
    ]


@dataclass(frozen=True, eq=False, repr=False)
class PagedArgs(EngineArgs):
    """The arguments that vLLM and SGLang share: those of PagedOptions, LoraOptions and
    ExpertOptions have their names.
    """

    # Fields of PagedOptions, LoraOptions, ExpertOptions, written by tests/test_engine_fields.py.
    block_size: int | None = None
    prefix_caching: bool | None = None
    mamba_ssm_cache_dtype: DType | None = None
    allow_long_max_model_len: bool = False
    enable_lora: bool = False
    max_lora_rank: int | None = None
    num_redundant_experts: int | None = None
    enable_eplb: bool = False

    @property
    def split_of_experts(self) -> tuple[Any, ...]:
        return (self.enable_expert_parallel, self.num_redundant_experts)

    @cached_property
    def capability(self) -> int:
        """The device's major compute capability."""
        return capability(self.device)


def capability(device: str) -> int:
    """Return a device's major compute capability, of 9 and later: 10 for 'NVIDIA B200'; 0 for
    another.
    """
    return next(
        (
            major
            for major, names in _DEVICES.items()
            if any(name in device.lower() for name in names)
        ),
        0,
    )


class DraftOptions(TypedDict, total=False):
    """Speculative decoding."""

    speculative_tokens: Annotated[
        Count | None,
        COUNT_OR_ZERO,
        "Tokens that a drafter proposes per step.",
        With(names="--speculative-tokens --num-speculative-tokens"),
    ]
    speculative_layers: Annotated[
        Count | None,
        COUNT_OR_ZERO,
        "Layers of the drafter, each like the model's last attention layer: 1 for multi-token "
        "prediction.",
    ]
    speculative_model: Annotated[
        str | None,
        "The draft model: a smaller model, or a config.json of EAGLE or DFlash.",
        With(
            names="--speculative-model --speculative-draft-model-path --model-draft -md",
            metavar="MODEL",
        ),
    ]


class ExpertOptions(TypedDict, total=False):
    """Copies of whole experts: vLLM and SGLang."""

    num_redundant_experts: Annotated[
        Count | None,
        COUNT_OR_ZERO,
        "Copies of experts on all GPUs together, with --enable-expert-parallel.",
        With(names="--num-redundant-experts --ep-num-redundant-experts"),
    ]
    enable_eplb: Annotated[
        bool, "Experts are moved by their load: vLLM needs it for redundant experts."
    ]


class LoraOptions(TypedDict, total=False):
    """Buffers for LoRA adapters: vLLM and SGLang."""

    enable_lora: Annotated[bool, "Buffers for LoRA adapters, which count as weights."]
    max_lora_rank: Annotated[
        Count | None, COUNT, "Rank of the buffers for adapters. vLLM's default: 16."
    ]
