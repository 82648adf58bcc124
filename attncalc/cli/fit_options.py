"""The options of `attncalc fit`: where a model runs, and the arguments of each engine under the engine's own names.

They are text here. `attncalc/api/fit_options.py` has the same names with their parsers.
"""

# typer reads the annotations when a command is registered. Without `from __future__ import annotations` they are
# objects already, and need not be evaluated from strings.

from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from ..engines import ENGINES
from ..errors import AttncalcError
from .command import Options
from .options import CacheDtypeOptions, Text, option


class DeploymentOptions(Options):
    """The engine, the GPUs and how the model is split over them; or a memory that an engine reported."""

    engine: Annotated[
        Text,
        option(
            "--engine",
            metavar="ENGINE",
            help=f"{', '.join(ENGINES)}, or all. Default: vllm; llamacpp for a GGUF file.",
        ),
    ] = None
    gpu: Annotated[
        Text,
        option("--gpu", metavar="GPU", help="As h100-80gb ('attncalc gpus' lists them), 2xh100, 24GB or a .yaml file."),
    ] = None
    gpus: Annotated[
        Text,
        option("--gpus", metavar="N", help="Number of GPUs. Default: tp * pp * dp; more GPUs run replicas."),
    ] = None
    tp: Annotated[
        Text,
        option(
            "--tp",
            "--tensor-parallel-size",
            "--tp-size",
            metavar="N",
            help="Tensor-parallel GPUs. Default: --gpus divided by --pp.",
        ),
    ] = None
    pp: Annotated[
        Text,
        option("--pp", "--pipeline-parallel-size", "--pp-size", metavar="N", help="Pipeline stages. Default: 1."),
    ] = None
    dcp: Annotated[
        Text,
        option(
            "--dcp",
            "--decode-context-parallel-size",
            metavar="N",
            help="Decode-context-parallel GPUs, which share those of --tp. Default: 1.",
        ),
    ] = None
    dp: Annotated[
        Text,
        option(
            "--dp",
            "--data-parallel-size",
            "--dp-size",
            metavar="N",
            help="Data-parallel ranks, each with --tp GPUs; with vLLM they divide the experts. Default: 1.",
        ),
    ] = None
    attn_dp: Annotated[
        Text,
        option(
            "--attn-dp",
            "--attn-dp-size",
            "--attention-data-parallel-size",
            metavar="N",
            help="Data-parallel ranks of attention, which share the GPUs of --tp (SGLang). Default: 1.",
        ),
    ] = None
    enable_dp_attention: Annotated[
        bool,
        typer.Option("--enable-dp-attention", help="--dp N is --attn-dp N (SGLang's old name of the option)."),
    ] = False
    enable_expert_parallel: Annotated[
        bool,
        typer.Option("--enable-expert-parallel", help="Whole experts on each GPU instead of a part of each."),
    ] = False
    gpu_memory_utilization: Annotated[
        Text,
        option(
            "--gpu-memory-utilization",
            "--mem-fraction-static",
            metavar="SHARE",
            help="Share of a GPU's memory that the engine takes. Default: the engine's.",
        ),
    ] = None
    reserve: Annotated[
        Text,
        option(
            "--reserve",
            metavar="SIZE",
            help="Runtime memory of a GPU: activations, CUDA graphs, libraries. Default: an estimate, shown.",
        ),
    ] = None
    weights_dtype: Annotated[
        Text,
        option(
            "--weights-dtype",
            metavar="DTYPE",
            help="Dtype of the matrices of attention and MLPs: fp8, int4, ... Default: as released.",
        ),
    ] = None
    kv_memory: Annotated[
        Text,
        option(
            "--kv-memory",
            "--kv-cache-memory-bytes",
            metavar="SIZE",
            help="Memory for the cache that an engine reported, as 5.38GiB; --gpu then sets its defaults only.",
        ),
    ] = None


class ServingOptions(DeploymentOptions):
    """Where a model runs, or the start-up log of an engine that runs it."""

    log: Annotated[
        Path | None,
        option(
            "--log",
            "--vllm-log",
            metavar="FILE",
            help="A start-up log of vLLM, SGLang or llama.cpp (- for standard input), to compare with the prediction.",
        ),
    ] = None


class FitDtypeOptions(CacheDtypeOptions):
    """The dtypes of the model and of the cache, whose default is the engine's."""

    kv_dtype: Annotated[
        Text,
        option(
            "--kv-dtype",
            "--kv-cache-dtype",
            metavar="DTYPE",
            help="Dtype of the cache: fp32, fp16, bf16, fp8, int8, int4, fp4, ... Default: the engine's.",
        ),
    ] = None


class EngineOptions(Options):
    """Arguments that several engines have."""

    engine_version: Annotated[
        Text,
        option(
            "--engine-version",
            metavar="VERSION",
            help="As 0.9.2, or b11258 of llama.cpp. Default: the newest known version.",
        ),
    ] = None
    block_size: Annotated[
        Text,
        option("--block-size", "--page-size", metavar="N", help="Tokens per block (vLLM) or page (SGLang)."),
    ] = None
    prefix_caching: Annotated[
        bool | None,
        typer.Option(
            "--prefix-caching/--no-prefix-caching", help="Also --enable-prefix-caching. Default: the engine's."
        ),
    ] = None
    enable_prefix_caching: Annotated[
        bool | None, typer.Option("--enable-prefix-caching/--no-enable-prefix-caching", hidden=True)
    ] = None
    mamba_ssm_cache_dtype: Annotated[
        Text,
        option("--mamba-ssm-cache-dtype", metavar="DTYPE", help="Dtype of recurrent states."),
    ] = None
    speculative_tokens: Annotated[
        Text,
        option(
            "--speculative-tokens",
            "--num-speculative-tokens",
            metavar="N",
            help="Tokens that a drafter proposes per step.",
        ),
    ] = None
    speculative_layers: Annotated[Text, option("--speculative-layers", metavar="N", help="Layers of the drafter.")] = (
        None
    )

    def __init__(self, **values: Any) -> None:
        """Accept vLLM's --enable-prefix-caching as --prefix-caching.

        It is a hidden option of its own, because four names of one option are too wide for help.
        """
        alias = values.pop("enable_prefix_caching", None)
        if alias is not None and values["prefix_caching"] is not None:
            raise AttncalcError(
                "--prefix-caching is given twice", "give it once; --enable-prefix-caching is the same option"
            )
        super().__init__(**values if alias is None else {**values, "prefix_caching": alias})


class VllmOptions(Options):
    """Arguments of vLLM alone."""

    speculative_model: Annotated[
        Text,
        option("--speculative-model", metavar="MODEL", help="vLLM: the draft model, as an EAGLE head's config.json."),
    ] = None
    max_num_batched_tokens: Annotated[
        Text,
        option("--max-num-batched-tokens", metavar="N", help="vLLM: tokens per step. Default: by the GPU."),
    ] = None
    max_num_seqs: Annotated[
        Text,
        option("--max-num-seqs", metavar="N", help="vLLM: sequences per step. Default: by the GPU."),
    ] = None
    enforce_eager: Annotated[
        bool,
        typer.Option("--enforce-eager", help="vLLM: no CUDA graphs, which take memory from 0.20 on."),
    ] = False
    allow_long_max_model_len: Annotated[
        bool,
        typer.Option(
            "--allow-long-max-model-len",
            help="vLLM: VLLM_ALLOW_LONG_MAX_MODEL_LEN=1, which allows a context beyond the model's maximum.",
        ),
    ] = False
    disable_hybrid_kv_cache_manager: Annotated[
        bool,
        typer.Option("--disable-hybrid-kv-cache-manager", help="vLLM: store sliding windows as full attention."),
    ] = False
    swap_space: Annotated[
        Text,
        option("--swap-space", metavar="GIB", help="vLLM before V1: host memory for swapped blocks."),
    ] = None


class SglangOptions(Options):
    """Arguments of SGLang alone."""

    max_running_requests: Annotated[
        Text,
        option(
            "--max-running-requests",
            metavar="N",
            help="SGLang: maximum concurrent requests, which sizes the pools of recurrent states.",
        ),
    ] = None
    swa_full_tokens_ratio: Annotated[
        Text,
        option(
            "--swa-full-tokens-ratio",
            metavar="RATIO",
            help="SGLang: tokens of sliding-window layers per token of full layers.",
        ),
    ] = None
    mamba_full_memory_ratio: Annotated[
        Text,
        option(
            "--mamba-full-memory-ratio",
            metavar="RATIO",
            help="SGLang: memory of recurrent states over that of the KV cache.",
        ),
    ] = None
    disable_hybrid_swa_memory: Annotated[
        bool, typer.Option("--disable-hybrid-swa-memory", help="SGLang: store sliding windows as full attention.")
    ] = False


class LlamacppOptions(Options):
    """Arguments of llama.cpp alone."""

    kv_dtype_k: Annotated[
        Text,
        option("--kv-dtype-k", "--cache-type-k", "-ctk", metavar="DTYPE", help="llama.cpp: dtype of K alone."),
    ] = None
    kv_dtype_v: Annotated[
        Text,
        option("--kv-dtype-v", "--cache-type-v", "-ctv", metavar="DTYPE", help="llama.cpp: dtype of V alone."),
    ] = None
    sequences: Annotated[
        Text,
        option("--sequences", "--parallel", "-np", metavar="N", help="llama.cpp: slots. Default: --batch."),
    ] = None
    ubatch: Annotated[
        Text,
        option("--ubatch", "--ubatch-size", "-ub", metavar="N", help="llama.cpp: tokens per pass. Default: 512."),
    ] = None
    flash_attn: Annotated[
        Text,
        option("--flash-attn", "-fa", metavar="MODE", help="llama.cpp: flash attention: on, off or auto."),
    ] = None
    n_outputs_max: Annotated[
        Text,
        option(
            "--n-outputs-max",
            metavar="N",
            help="llama.cpp: rows of logits per pass. Default: one per slot, as llama-server.",
        ),
    ] = None
    kv_unified: Annotated[bool, typer.Option("--kv-unified", "-kvu", help="llama.cpp: all slots share one buffer.")] = (
        False
    )
    swa_full: Annotated[
        bool, typer.Option("--swa-full", help="llama.cpp: store sliding windows as full attention.")
    ] = False


class TransformersOptions(Options):
    """Arguments of transformers alone."""

    cache_implementation: Annotated[
        Text,
        option("--cache-implementation", metavar="NAME", help="transformers: dynamic, static or quantized."),
    ] = None
    residual_length: Annotated[
        Text,
        option(
            "--residual-length",
            metavar="N",
            help="transformers: newest tokens that a quantized cache keeps in the model's dtype.",
        ),
    ] = None


class ScreenOptions(Options):
    """What the screen shows besides the answer; JSON and CSV always have every figure."""

    LAST: ClassVar[bool] = True

    full: Annotated[
        bool, typer.Option("--full", help="Also show the budget, blocks, all notes and the engine's log lines.")
    ] = False
    roofline: Annotated[
        bool, typer.Option("--roofline", help="Also show lower bounds of time, and what other attention would take.")
    ] = False
