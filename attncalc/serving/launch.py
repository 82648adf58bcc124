"""The command that starts an engine as a request describes it, to paste into a shell."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator

from ..engines.base import EngineArgs
from ..engines.sglang.versions import sglang_version
from ..model import ModelSpec
from ..units import DType
from .expert_parallel import has_experts
from .request import FitRequest, ResolvedRequest

Flags = Iterator[str | int]
"""Options, each before its value."""
_REPOSITORY = re.compile(r"https://huggingface\.co/([\w.-]+/[\w.-]+?)(?=[/:]|$)")
_TORCH_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_PER_HEAD = {"int8": "int8_per_token_head", "int4": "int4_per_token_head"}
_VLLM_CACHE_DTYPES = {**_TORCH_NAMES, **_PER_HEAD, "fp8": "fp8", "fp4": "nvfp4"}
_SGLANG_CACHE_DTYPES = {"bf16": "bf16", "fp8": "fp8_e4m3", "fp4": "fp4_e2m1"}
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
    if request.workload.dtype is not None:
        yield from ("--dtype", _named(_TORCH_NAMES, args.dtype))
    if _quantizes(resolved):
        yield from ("--quantization", "fp8")
    if request.workload.kv_dtype is not None and args.kv_dtype != args.dtype:
        yield from ("--kv-cache-dtype", _named(_VLLM_CACHE_DTYPES, args.kv_dtype))
    yield from _speculative_config(request, args)
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


def _speculative_config(request: FitRequest, args: EngineArgs) -> Flags:
    """Yield vLLM's option of a draft model, which needs the number of tokens that it proposes."""
    if request.draft is None:
        return
    if not args.speculative_tokens:
        raise _NoCommandError
    name = request.served_draft or _repository(request.draft)
    yield from ("--speculative-config", json.dumps({"model": name, "num_speculative_tokens": args.speculative_tokens}))


def _sglang(resolved: ResolvedRequest) -> Flags:
    request, args = resolved.request, resolved.args
    yield from ("python", "-m", "sglang.launch_server", "--model-path", served_model(request))
    if request.workload.dtype is not None:
        yield from ("--dtype", _named(_TORCH_NAMES, args.dtype))
    if _quantizes(resolved):
        yield from ("--quantization", "fp8")
    if request.workload.kv_dtype is not None and args.kv_dtype != args.dtype:
        yield from ("--kv-cache-dtype", _named(_SGLANG_CACHE_DTYPES, args.kv_dtype))
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


def _llamacpp(resolved: ResolvedRequest) -> Flags:
    """Yield llama-server's command. Its -c is the context of all slots together."""
    args, workload = resolved.args, resolved.workload
    slots = args.sequences or 1
    cells = workload.batch if args.kv_unified else slots
    yield from ("llama-server", "-m", _gguf_file(resolved), "-c", int(workload.context) * int(cells), "-np", slots)
    if resolved.gpu is not None:
        yield from ("-ngl", 999)  # all layers, in every version
    yield from _option("-ub", args.ubatch)
    for option, cache in (("-ctk", args.kv_dtype_k), ("-ctv", args.kv_dtype_v)):
        name = (cache or args.kv_dtype).name
        yield from _option(option, _GGUF_NAMES.get(name, name).lower(), "f16")
    if args.kv_unified:
        yield "-kvu"
    if args.swa_full:
        yield "--swa-full"


def _gguf_file(resolved: ResolvedRequest) -> str:
    """Return the GGUF file: as given, or the name that convert_hf_to_gguf.py gives it: 'Qwen3-8B-BF16.gguf'.

    Raises _NoCommandError for a dtype that GGUF does not have.
    """
    name = served_model(resolved.request)
    if name.lower().endswith(".gguf"):
        return name
    dtype = resolved.weights_dtype or resolved.args.dtype.name
    if dtype in ("fp8", "fp4"):  # GGUF has neither
        raise _NoCommandError
    return f"{name.rstrip('/').rpartition('/')[2]}-{_GGUF_NAMES.get(dtype, dtype).upper()}.gguf"


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
