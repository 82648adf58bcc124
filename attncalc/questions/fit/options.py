"""The options of `attncalc fit`: where a model runs, for which users, and those of each engine."""

import os
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from ...engines import ENGINES, find_engine
from ...engines.llamacpp.options import LlamacppOptions
from ...engines.options import (
    DraftOptions,
    ExpertOptions,
    LoraOptions,
    PagedOptions,
    VersionOptions,
)
from ...engines.sglang.options import SglangOptions
from ...engines.transformers.options import TransformersOptions
from ...engines.vllm.options import VllmOptions
from ...errors import BadValueError, known_tip
from ...hardware import Gpu
from ...options import (
    BYTES,
    BYTES_OR_ZERO,
    COUNT,
    COUNT_OR_ZERO,
    TEXT,
    WEIGHTS_DTYPE,
    Count,
    Option,
    Parser,
    Size,
    With,
)
from ...ranges import split_list
from ...serving.kept_weights import NONE, PARTS
from ...units import truncate
from ..options import LENGTHS, CacheDtypeOptions, ModelOptions, SizeOptions


def _engine(text: str, name: str) -> str:
    if text == ALL:
        return text
    return find_engine(text).name


def _parts(text: str, name: str) -> tuple[str, ...]:
    """Return the parts that a text names, each once, in the order of PARTS; () for 'none'."""
    given = {part.lower().replace("_", "-") for part in split_list(text, name)}
    known = (*PARTS, NONE)
    for part in given:
        if part not in known:
            raise BadValueError(f"{name} cannot be '{truncate(part)}'", known_tip(part, known))
    if NONE in given and len(given) > 1:
        raise BadValueError(f"{name} none cannot be combined with a part", "leave one of them out")
    return tuple(part for part in PARTS if part in given)


DEFAULT_OF_ENGINE = (
    "Default: vllm; llamacpp on desktops' and laptops' GPUs, Macs and CPUs, and for GGUF files."
)
# Every known GPU, or every engine.
ALL = "all"
USERS = Option(
    "--users",
    also=("--concurrency", "--num-users"),
    parse=COUNT,
    common=True,
    help="Users whose requests run concurrently.",
)
# Options of plan and of sweep.
PRICE = Option(
    "--price",
    also=("--prices", "--cost"),
    metavar="PRICE,...",
    common=True,
    help="Prices per hour, of a GPU or an instance: h100=2.49,p5.48xlarge=98; or a .yaml file.",
)


class TrafficOptions(TypedDict, total=False):
    """The requests that users send."""

    prompt: Annotated[
        Count | None,
        COUNT,
        "Tokens of a user's prompt. Default with --output-len or --shared-prefix: 4K; with "
        "--context, its rest.",
        With(
            names="--prompt --input-len",
            also="--isl --prompt-len --prompt-tokens --input-tokens --random-input-len",
            common=True,
        ),
    ]
    output: Annotated[
        Count | None,
        COUNT_OR_ZERO,
        "Tokens of an output. Default with --prompt or --shared-prefix: 1K.",
        With(
            names="--output-len",
            also="--osl --output-tokens --max-tokens --max-new-tokens --random-output-len",
            common=True,
        ),
    ]
    shared_prefix: Annotated[
        Count | None,
        COUNT_OR_ZERO,
        "Tokens with which all prompts start, stored once with prefix caching.",
    ]


class UserOptions(TrafficOptions, total=False):
    """The requests that users send, by their average or one by one."""

    lengths: Annotated[
        str | Sequence[Count] | None,
        LENGTHS,
        "Tokens of users' requests, instead of --prompt and --output-len.",
        With(axis=False),
    ]


class DeploymentOptions(TypedDict, total=False):
    """The engine, the GPUs and how the model is split over them; or a memory that an engine
    reported.
    """

    engine: Annotated[
        str | None,
        Parser(_engine, "ENGINE"),
        f"{', '.join(ENGINES)}, or all. {DEFAULT_OF_ENGINE}",
        With(common=True),
    ]
    gpu: Annotated[
        str | os.PathLike[str] | Gpu | None,
        "GPU, as h100-80gb ('attncalc gpus' lists them), 2xh100, 24GB, local, cpu or a .yaml "
        "file; all for one row each.",
        With(also="--gpu-type --gpu-name --hardware --vram", metavar="GPU", common=True),
    ]
    gpus: Annotated[
        Count | None,
        COUNT,
        "Number of GPUs. Default: tp * pp * dp; more run replicas, which share --batch.",
        With(also="--count --num-gpus --n-gpus --ngpus --gpu-count --total-gpus", common=True),
    ]
    tp: Annotated[
        Count | None,
        COUNT,
        "Tensor-parallel GPUs. Default: --gpus divided by --pp.",
        With(names="--tp --tensor-parallel-size --tp-size", also="-tp", common=True),
    ]
    pp: Annotated[
        Count | None,
        COUNT,
        "Pipeline stages. Default: 1.",
        With(names="--pp --pipeline-parallel-size --pp-size", also="-pp"),
    ]
    dcp: Annotated[
        Count | None,
        COUNT,
        "Decode-context-parallel GPUs, which share those of --tp. Default: 1.",
        With(names="--dcp --decode-context-parallel-size --dcp-size", also="-dcp"),
    ]
    dp: Annotated[
        Count | None,
        COUNT,
        "Data-parallel ranks, each with --tp GPUs; with vLLM they divide the experts. Default: 1.",
        With(names="--dp --data-parallel-size --dp-size", also="-dp"),
    ]
    attn_dp: Annotated[
        Count | None,
        COUNT,
        "Data-parallel ranks of attention, which share the GPUs of --tp (SGLang). Default: 1.",
        With(names="--attn-dp --attn-dp-size --attention-data-parallel-size"),
    ]
    enable_dp_attention: Annotated[bool, "--dp N is --attn-dp N (SGLang's old name of the option)."]
    enable_expert_parallel: Annotated[
        bool,
        "Whole experts on each GPU instead of a part of each.",
        With(also="--ep -ep --expert-parallel"),
    ]
    gpu_memory_utilization: Annotated[
        float | str | None,
        TEXT,
        "Share of a GPU's memory that the engine takes. Default: the engine's.",
        With(also="--gpu-mem-util -gmu", metavar="SHARE", common=True),
    ]
    reserve: Annotated[
        Size | None,
        BYTES_OR_ZERO,
        "Runtime memory of a GPU: activations, CUDA graphs, libraries. Default: an estimate, "
        "shown.",
    ]
    other_memory: Annotated[
        Size | None,
        BYTES_OR_ZERO,
        "Memory of a GPU that other programs hold before the start, as 1.2GiB: a desktop, "
        "another server.",
    ]
    weights_dtype: Annotated[
        str | None,
        WEIGHTS_DTYPE,
        "Dtype of the matrices of attention and MLPs: fp8, int4, ..., or a type of GGUF files: "
        "q4_k_m, ... Default: as released; q4_k_m with llamacpp on such GPUs.",
        With(also="--quantization --quantize --quant --weight-dtype --wdtype", common=True),
    ]
    keep: Annotated[
        str | Sequence[str] | None,
        Parser(_parts, "PART,...", known=(*PARTS, NONE)),
        "Parts that stay in 16 bits with --weights-dtype int4 and the like: attention, "
        "linear-attention, mlp, shared-experts, or none. Embedding and lm head always do.",
        With(axis=False),
    ]
    weights_size: Annotated[
        Size | None,
        BYTES,
        "Size of the files of the weights, as download pages show it: 18.4GiB; not with llamacpp. "
        "Default: computed.",
        With(axis=False),
    ]
    served_model: Annotated[
        str | None,
        TEXT,
        "What the launch command loads, as /models/Qwen3-8B. Default: MODEL's path or repository.",
        With(metavar="PATH", axis=False),
    ]
    kv_memory: Annotated[
        Size | None,
        BYTES,
        "Memory for the cache that an engine reported, as 5.38GiB; --gpu and --other-memory do "
        "not change it.",
        With(names="--kv-memory --kv-cache-memory-bytes"),
    ]
    host_bandwidth: Annotated[
        Size | None,
        BYTES,
        "Bytes/s from host memory to each GPU, as 50GB, for a cache there. Default: 25GB.",
    ]
    disk_size: Annotated[Size | None, BYTES, "Disk for the cache, as 1TiB."]
    disk_bandwidth: Annotated[
        Size | None, BYTES, "Bytes/s from disk to all GPUs, as 12GB. Default: 5GB."
    ]


class EngineOptions(
    VersionOptions,
    PagedOptions,
    DraftOptions,
    LoraOptions,
    ExpertOptions,
    VllmOptions,
    SglangOptions,
    LlamacppOptions,
    TransformersOptions,
    total=False,
):
    """Arguments of the engines, under their own names."""


class FitOptions(
    ModelOptions,
    SizeOptions,
    CacheDtypeOptions,
    UserOptions,
    DeploymentOptions,
    EngineOptions,
    total=False,
):
    """All options of `attncalc fit` but those of its screen and its log."""


# The headings of `attncalc fit --help all`, with the options below each.
GROUPS: dict[str, tuple[Any, ...]] = {
    "Model": (ModelOptions,),
    "Workload": (SizeOptions, CacheDtypeOptions),
    "Users": (UserOptions,),
    "GPUs and engine": (DeploymentOptions, VersionOptions),
    "Several engines": (PagedOptions, DraftOptions, LoraOptions, ExpertOptions),
    "vLLM": (VllmOptions,),
    "SGLang": (SglangOptions,),
    "llama.cpp": (LlamacppOptions,),
    "transformers": (TransformersOptions,),
}
