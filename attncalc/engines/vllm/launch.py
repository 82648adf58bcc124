"""The command that starts vLLM."""

from __future__ import annotations

import json

from ...units import GIB
from ..launch import (
    DRAFT_MODEL,
    TORCH_NAMES,
    Flags,
    LaunchFacts,
    NoCommandError,
    dtype_flags,
    flag,
    own_flags,
    torch_name,
)
from ..multi_token import PREDICT_TOKENS
from .options import VllmArgs, VllmOptions

_CACHE_DTYPES = {
    **TORCH_NAMES,
    "int8": "int8_per_token_head",
    "int4": "int4_per_token_head",
    "fp8": "fp8",
    "fp4": "nvfp4",
}


def launch(facts: LaunchFacts[VllmArgs]) -> Flags:
    """Yield the words of the command: 'vllm serve Qwen/Qwen3-8B --max-model-len 40960 --kv-cache-dtype fp8'."""
    args = facts.args
    if args.offline:  # Python starts it
        raise NoCommandError
    if args.allow_long_max_model_len:
        yield "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"
    yield from ("vllm", "serve", facts.served)
    yield from flag("--revision", facts.revision)
    yield from dtype_flags(facts, _CACHE_DTYPES)
    yield from ("--max-model-len", facts.context)
    yield from flag("--tensor-parallel-size", args.tp, 1)
    yield from flag("--pipeline-parallel-size", args.pp, 1)
    yield from flag("--decode-context-parallel-size", args.dcp, 1)
    # Ranks of vLLM's data parallelism divide the experts of a mixture, which replicas do not: one command per replica.
    yield from flag("--data-parallel-size", facts.ranks, 1)
    if facts.expert_parallel:
        yield "--enable-expert-parallel"
    yield from flag("--gpu-memory-utilization", facts.share)
    yield from flag("--kv-cache-memory-bytes", facts.kv_memory)
    yield from own_flags(VllmOptions, args, "allow_long_max_model_len", "swap_space", "cpu_offload_gb")
    yield from flag("--block-size", args.block_size)
    yield from flag("--mamba-ssm-cache-dtype", torch_name(args.mamba_ssm_cache_dtype))
    if args.prefix_caching is not None:
        yield "--enable-prefix-caching" if args.prefix_caching else "--no-enable-prefix-caching"
    for name, size in (("--swap-space", args.swap_space), ("--cpu-offload-gb", args.cpu_offload_gb)):
        if size is not None:
            yield from (name, f"{size / GIB:g}")
    yield from _drafts(facts)


def _drafts(facts: LaunchFacts[VllmArgs]) -> Flags:
    """Yield --speculative-config: multi-token prediction, an n-gram lookup without layers, or a draft model."""
    args = facts.args
    if not (args.speculative_layers or args.speculative_tokens or facts.draft):
        return
    config: dict[str, str | int] = {"method": "ngram"}
    if facts.draft:
        config = {"model": facts.draft}
    elif args.speculative_layers:
        config = {"method": "mtp"} if args.model_type in PREDICT_TOKENS else {"model": DRAFT_MODEL}
    if args.speculative_tokens:
        config["num_speculative_tokens"] = args.speculative_tokens
    yield from ("--speculative-config", json.dumps(config))
