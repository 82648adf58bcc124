"""The command that starts an engine as a request describes it, to paste into a shell."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator

from ..engines.base import EngineArgs
from ..engines.llamacpp.placement import block_count
from ..engines.sglang.versions import sglang_version
from ..model import ModelSpec
from ..units import DType
from .expert_parallel import has_experts
from .request import FitRequest, ResolvedRequest

Flags = Iterator[str | int]
"""Options, each before its value."""
_REPOSITORY = re.compile(r"https://huggingface\.co/([\w.-]+/[\w.-]+?)(?=[/:]|$)")
_ON_HUB = re.compile(r"[\w-][\w.-]*/[\w.-]+(?<!\.gguf)")
_TORCH_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_PER_HEAD = {"int8": "int8_per_token_head", "int4": "int4_per_token_head"}
_VLLM_CACHE_DTYPES = {**_TORCH_NAMES, **_PER_HEAD, "fp8": "fp8", "fp4": "nvfp4"}
_SGLANG_CACHE_DTYPES = {"bf16": "bf16", "fp8": "fp8_e4m3", "fp4": "fp4_e2m1"}
_PREDICT_TOKENS = frozenset(
    {
        *("deepseek_v3", "deepseek_v32", "deepseek_v4", "ernie4_5_moe", "glm4_moe", "glm_moe_dsa", "kimi_k2"),
        *("longcat_flash", "mimo", "mimo_v2_flash", "nemotron_h", "qwen3_5", "qwen3_5_moe", "qwen3_next"),
        *("qwen3_5_text", "qwen3_5_moe_text", "step3p5"),
    }
)
"""The model_types whose releases have layers for multi-token prediction, which need no draft model."""
DRAFT_MODEL = "DRAFT_MODEL"
"""Stands for a draft model, whose name is unknown."""
_GGUF_NAMES = {"fp32": "F32", "fp16": "F16", "bf16": "BF16", "int8": "Q8_0", "int4": "Q4_0", "mxfp4": "MXFP4"}


class _NoCommandError(Exception):
    """The engine has no option for something that the request asks for."""


def launch_command(resolved: ResolvedRequest) -> str | None:
    """Return the command that starts the engine, as one line; None if it has no server, or no such options.

    For example 'vllm serve Qwen/Qwen3-8B --max-model-len 40960 --kv-cache-dtype fp8'. Weights in int4 need a
    checkpoint in int4, whose name is unknown: there is no command for vLLM and SGLang then.
    """
    command = _COMMANDS.get(resolved.engine)
    if command is None:
        return None
    try:
        return shlex.join(str(word) for word in command(resolved))
    except _NoCommandError:
        return None


def served_model(request: FitRequest) -> str:
    """Return the model's path or repository: as given, else from the sources of the preset, else the model's name."""
    return request.served_model if request.served_model is not None else _repository(request.model)


def _repository(model: ModelSpec) -> str:
    found = (_REPOSITORY.match(source) for source in model.sources)
    return next((match[1] for match in found if match), model.name)


def _vllm(resolved: ResolvedRequest) -> Flags:
    request, args = resolved.request, resolved.args
    if args.allow_long_max_model_len:
        yield "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"
    yield from ("vllm", "serve", served_model(request))
    yield from _option("--revision", request.revision)
    yield from _dtypes(resolved, _VLLM_CACHE_DTYPES)
    yield from ("--max-model-len", int(resolved.workload.context))
    yield from _option("--tensor-parallel-size", args.tp, 1)
    yield from _option("--pipeline-parallel-size", args.pp, 1)
    yield from _option("--decode-context-parallel-size", args.dcp, 1)
    # Ranks of vLLM's data parallelism divide the experts of a mixture, which replicas do not: one command per replica.
    ranks = resolved.dp if has_experts(request.model) else resolved.replicas
    yield from _option("--data-parallel-size", ranks, 1)
    if request.enable_expert_parallel:
        yield "--enable-expert-parallel"
    yield from _option("--gpu-memory-utilization", request.gpu_memory_utilization)
    yield from _option("--kv-cache-memory-bytes", request.kv_memory)
    yield from _option("--max-num-seqs", args.max_num_seqs)
    yield from _option("--max-num-batched-tokens", args.max_num_batched_tokens)
    yield from _option("--block-size", args.block_size)
    yield from _option("--mamba-ssm-cache-dtype", _torch_name(args.mamba_ssm_cache_dtype))
    if args.prefix_caching is not None:
        yield "--enable-prefix-caching" if args.prefix_caching else "--no-enable-prefix-caching"
    if args.enforce_eager:
        yield "--enforce-eager"
    if args.disable_hybrid_kv_cache_manager:
        yield "--disable-hybrid-kv-cache-manager"
    if args.swap_space is not None:
        yield from ("--swap-space", f"{args.swap_space / 2**30:g}")
    yield from _vllm_drafts(request, args)


def _vllm_drafts(request: FitRequest, args: EngineArgs) -> Flags:
    """Yield vLLM's --speculative-config: multi-token prediction, an n-gram lookup without layers, or a draft model."""
    if not (args.speculative_layers or args.speculative_tokens or request.draft):
        return
    config: dict[str, str | int] = {"method": "ngram"}
    if request.draft:
        config = {"model": request.served_draft or _repository(request.draft)}
    elif args.speculative_layers:
        config = {"method": "mtp"} if args.model_type in _PREDICT_TOKENS else {"model": DRAFT_MODEL}
    if args.speculative_tokens:
        config["num_speculative_tokens"] = args.speculative_tokens
    yield from ("--speculative-config", json.dumps(config))


def _sglang(resolved: ResolvedRequest) -> Flags:
    request, args = resolved.request, resolved.args
    yield from ("python", "-m", "sglang.launch_server", "--model-path", served_model(request))
    yield from _option("--revision", request.revision)
    yield from _dtypes(resolved, _SGLANG_CACHE_DTYPES)
    yield from ("--context-length", int(resolved.workload.context))
    yield from _option("--tp-size", args.tp, 1)
    yield from _option("--pp-size", args.pp, 1)
    if args.attn_dp == 1:  # SGLang combines no replicas with ranks of attention: one command per replica
        yield from _option("--dp-size", resolved.replicas, 1)
    elif sglang_version(args.engine_version).has_attn_dp_size:
        yield from ("--attn-dp-size", args.attn_dp)
    else:
        yield from ("--dp-size", args.attn_dp, "--enable-dp-attention")
    if request.enable_expert_parallel:
        yield from ("--ep-size", args.tp)
    yield from _option("--mem-fraction-static", request.gpu_memory_utilization)
    yield from _option("--max-running-requests", args.max_running_requests)
    yield from _option("--page-size", args.block_size)
    yield from _option("--swa-full-tokens-ratio", args.swa_full_tokens_ratio)
    yield from _option("--mamba-full-memory-ratio", args.mamba_full_memory_ratio)
    yield from _option("--mamba-ssm-dtype", _torch_name(args.mamba_ssm_cache_dtype))
    if args.prefix_caching is False:
        yield "--disable-radix-cache"
    if args.disable_hybrid_swa_memory:
        yield "--disable-hybrid-swa-memory"
    yield from _sglang_drafts(args)


def _sglang_drafts(args: EngineArgs) -> Flags:
    """Yield SGLang's options of a drafter; with one candidate per step there is a step for each draft but the last."""
    drafts = args.speculative_tokens
    if not (args.speculative_layers or drafts):
        return
    if not args.speculative_layers:
        yield from ("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", drafts)
        return
    if args.model_type in _PREDICT_TOKENS:
        yield from ("--speculative-algorithm", "NEXTN")
    else:
        yield from ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", DRAFT_MODEL)
    if drafts:
        yield from ("--speculative-num-steps", max(1, drafts - 1), "--speculative-eagle-topk", 1)
        yield from ("--speculative-num-draft-tokens", drafts)


def _llamacpp(resolved: ResolvedRequest) -> Flags:
    """Yield llama-server's command. Its -c is the context of all slots together."""
    args, workload = resolved.args, resolved.workload
    slots = args.sequences or 1
    cells = workload.batch if args.kv_unified else slots
    yield "llama-server"
    yield from _gguf_file(resolved)
    yield from ("-c", int(workload.context) * int(cells), "-np", slots)
    if resolved.gpu is not None:
        yield from ("-ngl", 999 if args.n_gpu_layers is None else args.n_gpu_layers)  # 999: all, in every version
        yield from _offload(resolved)
    yield from _option("-ub", args.ubatch)
    yield from _option("--flash-attn", args.flash_attn)
    for option, cache in (("-ctk", args.kv_dtype_k), ("-ctv", args.kv_dtype_v)):
        name = (cache or args.kv_dtype).name
        yield from _option(option, _GGUF_NAMES.get(name, name).lower(), "f16")
    if args.kv_unified:
        yield "-kvu"
    if args.swa_full:
        yield "--swa-full"


def _dtypes(resolved: ResolvedRequest, cache_dtypes: dict[str, str]) -> Flags:
    """Yield the dtypes that were asked for, as vLLM and SGLang name them."""
    workload, args = resolved.request.workload, resolved.args
    if workload.dtype is not None:
        yield from ("--dtype", _named(_TORCH_NAMES, args.dtype))
    if _quantizes(resolved):
        yield from ("--quantization", "fp8")
    if workload.kv_dtype is not None and args.kv_dtype != args.dtype:
        yield from ("--kv-cache-dtype", _named(cache_dtypes, args.kv_dtype))


def _offload(resolved: ResolvedRequest) -> Flags:
    """Yield llama.cpp's options that divide the model between GPUs and host."""
    args = resolved.args
    if args.n_cpu_moe >= block_count(resolved.request.model.main.n_layers, args):
        yield "--cpu-moe"
    elif args.n_cpu_moe:
        yield from ("--n-cpu-moe", args.n_cpu_moe)
    if args.tensor_split:
        yield from ("-ts", ",".join(f"{share:g}" for share in args.tensor_split))
    if args.no_kv_offload:
        yield "-nkvo"


def _gguf_file(resolved: ResolvedRequest) -> tuple[str, ...]:
    """Return the option with the GGUF file: as given, or the name that convert_hf_to_gguf.py gives it.

    That is 'Qwen3-8B-BF16.gguf'. llama.cpp fetches files of a repository itself, but of its default branch only.

    Raises _NoCommandError for a dtype that GGUF does not have, and another branch.
    """
    request = resolved.request
    name, stored = served_model(request), request.model.stored
    repository, _, file = name.partition(":")
    if stored and stored.kind == "GGUF" and _ON_HUB.fullmatch(repository):
        if request.revision:
            raise _NoCommandError
        return ("-hf", repository, "-hff", file) if file.lower().endswith(".gguf") else ("-hf", name)
    if name.lower().endswith(".gguf") or (stored and stored.kind == "GGUF"):
        return "-m", name
    dtype = resolved.weights_dtype or resolved.args.dtype.name
    if dtype in ("fp8", "fp4"):  # GGUF has neither
        raise _NoCommandError
    return "-m", f"{name.rstrip('/').rpartition('/')[2]}-{_GGUF_NAMES.get(dtype, dtype).upper()}.gguf"


def _quantizes(resolved: ResolvedRequest) -> bool:
    """Return whether the engine converts the weights to fp8 as it loads them.

    Raises _NoCommandError for another dtype that is not the checkpoint's own: the engine cannot convert to it.
    """
    asked, model = resolved.request.weights_dtype, resolved.request.model
    if asked is None or asked in (model.weights_dtype, model.experts_dtype, resolved.args.dtype.name):
        return False
    if resolved.weights_dtype != "fp8" or model.weights_dtype or model.experts_dtype:
        raise _NoCommandError
    return True


def _option(name: str, value: str | float | None, default: str | int | None = None) -> Flags:
    """Yield the option and its value, unless it is the default."""
    if value is not None and value != default:
        yield name
        yield str(value)


def _torch_name(dtype: DType | None) -> str | None:
    return None if dtype is None else _named(_TORCH_NAMES, dtype)


def _named(names: dict[str, str], dtype: DType) -> str:
    """Return the engine's name of a dtype. Raises _NoCommandError if it has none."""
    if dtype.name not in names:
        raise _NoCommandError
    return names[dtype.name]


_COMMANDS: dict[str, Callable[[ResolvedRequest], Flags]] = {"vllm": _vllm, "sglang": _sglang, "llamacpp": _llamacpp}
