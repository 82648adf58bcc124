"""The command that starts SGLang."""

import re
from dataclasses import replace

from ..arguments import FLAG, MAY_CHANGE, NOTHING, VALUE, VALUES, Argument, Arguments, arguments_of
from ..base import DraftModel
from ..launch import (
    DRAFT_MODEL,
    FIRST_NODE,
    NEXT_NODE,
    PORT,
    Flags,
    LaunchFacts,
    check_drafter_layers,
    dtype_flags,
    flag,
    nodes_of,
    own_flags,
    torch_name,
)
from ..multi_token import PREDICT_TOKENS
from ..options import LoraOptions
from ..pasted import (
    ADDS_NOTHING,
    AS_BY_DEFAULT,
    NOT_COMPUTED,
    NOT_USED,
    LaunchWords,
    Meaning,
    as_by_default,
    check_only_positions,
    if_on,
    only_if_several,
)
from .options import LONG_CONTEXT, SglangArgs, SglangOptions
from .versions import sglang_version

_CACHE_DTYPES = {"bf16": "bf16", "fp8": "fp8_e4m3", "fp4": "fp4_e2m1"}


def launch(facts: LaunchFacts) -> Flags:
    """Yield the words of the command: 'python -m sglang.launch_server --model-path Qwen/Qwen3-8B
    ...'. A server of several nodes has a command for each.
    """
    args: SglangArgs = facts.args
    devices = args.tp * args.pp
    if args.attn_dp == 1 and facts.replicas > 1:
        yield from _replicas(facts, devices)
        return
    nodes = nodes_of(devices, args, args.per_node)
    for node in range(nodes):
        if node:
            yield NEXT_NODE
        yield from _command(facts)
        if nodes > 1:
            yield from ("--nnodes", nodes, "--node-rank", node)
            yield from ("--dist-init-addr", f"{FIRST_NODE}:{PORT}")


def _replicas(facts: LaunchFacts, devices: int) -> Flags:
    """Yield a server for each node, with the replicas that it has room for.

    Replicas of one server are on one node (check_server_args in srt/server_args.py: "multi-node
    data parallel is not supported unless dp attention").
    """
    args: SglangArgs = facts.args
    nodes = nodes_of(devices * facts.replicas, args, args.per_node)
    if args.per_node % devices or facts.replicas % nodes:
        nodes = 1
    for node in range(nodes):
        if node:
            yield NEXT_NODE
        yield from _command(facts._replace(replicas=facts.replicas // nodes))


def _command(facts: LaunchFacts) -> Flags:
    """Yield the words of the command, without those of a node."""
    args: SglangArgs = facts.args
    if args.allow_long_max_model_len:
        yield f"{LONG_CONTEXT}=1"
    yield from ("python", "-m", "sglang.launch_server", "--model-path", facts.served)
    yield from flag("--revision", facts.revision)
    yield from dtype_flags(facts, _CACHE_DTYPES)
    yield from ("--context-length", facts.context)
    yield from flag("--tp-size", args.tp, 1)
    yield from flag("--pp-size", args.pp, 1)
    yield from flag("--dcp-size", args.dcp, 1)
    # SGLang combines no replicas with ranks of attention: one command per replica
    if args.attn_dp == 1:
        yield from flag("--dp-size", facts.replicas, 1)
    elif args.version.has_attn_dp_size:
        yield from ("--attn-dp-size", args.attn_dp)
    else:
        yield from ("--dp-size", args.attn_dp, "--enable-dp-attention")
    if facts.expert_parallel:
        yield from flag("--ep-size", args.tp, 1)
    if args.num_redundant_experts:
        yield from ("--ep-num-redundant-experts", args.num_redundant_experts)
    if args.enable_eplb:
        yield "--enable-eplb"
    yield from flag("--mem-fraction-static", facts.share)
    yield from own_flags(LoraOptions, args)
    yield from _own(args)
    yield from flag("--page-size", args.block_size)
    yield from flag("--mamba-ssm-dtype", torch_name(args.mamba_ssm_cache_dtype))
    if args.prefix_caching is False:
        yield "--disable-radix-cache"
    yield from _drafts(facts)


def _own(args: SglangArgs) -> Flags:
    """Yield the options that SGLang alone has."""
    renamed = {
        "cuda_graph_max_bs": args.version.graph_batch_option,
        "mamba_radix_cache_strategy": args.version.state_slots_option,
    }
    # --hicache-ratio and --hicache-size have no effect without it
    own = replace(args, enable_hierarchical_cache=args.caches_on_host)
    yield from own_flags(SglangOptions, own, "lora_target_modules", *renamed)
    for name, option in renamed.items():
        yield from flag(option, getattr(args, name))
    if args.lora_target_modules:
        yield from ("--lora-target-modules", *args.lora_target_modules.split())
    if args.kt_num_gpu_experts is not None:
        yield from ("--kt-weight-path", "EXPERTS", "--kt-cpuinfer", "THREADS")


def _drafts(facts: LaunchFacts) -> Flags:
    """Yield the options of a drafter; with one candidate per step there is a step for each draft
    but the last.

    DFlash drafts all tokens in one step (speculative_hook.py in srt/arg_groups).
    """
    args: SglangArgs = facts.args
    drafts = args.speculative_tokens
    if not args.has_drafter:
        return
    draft = args.speculative_model
    if draft is None:
        check_drafter_layers(args.speculative_layers)
    if draft is None and not args.speculative_layers:
        yield from ("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", drafts)
        return
    if draft is None and args.model_type in PREDICT_TOKENS:
        yield from ("--speculative-algorithm", "NEXTN")
    else:
        yield from ("--speculative-algorithm", algorithm(draft))
        yield from ("--speculative-draft-model-path", facts.draft or DRAFT_MODEL)
    if drafts and draft and draft.is_dflash:
        yield from ("--speculative-num-draft-tokens", drafts)
    elif drafts:
        yield from ("--speculative-num-steps", max(1, drafts - 1), "--speculative-eagle-topk", 1)
        yield from ("--speculative-num-draft-tokens", drafts)


def algorithm(draft: DraftModel | None) -> str:
    if draft is None or draft.model is None:
        return "EAGLE3"
    if draft.is_dflash:
        return "DFLASH"
    names = {matrix.name for matrix in draft.model.extra}
    if "fc" not in names:
        return "STANDALONE"
    if "lm_head" in names:
        return "EAGLE3"
    return "EAGLE"


def _quantization(method: str) -> Meaning:
    """Return the dtype to which SGLang converts the weights; other methods must be the
    checkpoint's own, which is read.
    """
    if method == "fp8":
        return ("--weights-dtype", "fp8")
    return NOT_USED


def _speculation(algorithm: str) -> Meaning:
    """Return a drafter with a cache, unless it looks tokens up in the text."""
    if algorithm.upper() == "NGRAM":
        return ADDS_NOTHING
    return ("--speculative-layers", "1")


def _positions(overrides: str) -> Meaning:
    """Return the option for a longer context, which a factor alone allows (get_context_length in
    srt/utils).
    """
    check_only_positions(overrides)
    if '"factor"' in overrides and "original_max_position_embeddings" not in overrides:
        return ("--allow-long-max-model-len",)
    return NOT_USED


def _chunk(tokens: str) -> Meaning:
    """Return the tokens of a chunk of a prompt; with -1 prompts are not divided."""
    if tokens == "-1":
        return NOT_COMPUTED
    return ("--chunked-prefill-size", tokens)


def _topk(tokens: str) -> Meaning:
    """Return that a step drafts one token after the other, of which figures know the number."""
    if tokens == "1":
        return AS_BY_DEFAULT
    return NOT_COMPUTED


# Arguments of KTransformers' copy of SGLang alone (sglang-kt 0.7.2).
_OF_KTRANSFORMERS = (
    Argument(("--kt-numa-nodes",), VALUES, memory=NOTHING),
    Argument(("--kt-gpu-experts-ratio",), VALUE, memory=MAY_CHANGE),
    Argument(("--kt-gpu-prefill-token-threshold",), VALUE, memory=MAY_CHANGE),
    Argument(("--record-kt-gpu-expert-distribution",), FLAG, memory=NOTHING),
    Argument(("--kt-enable-dynamic-expert-update",), FLAG, memory=MAY_CHANGE),
    Argument(("--kt-expert-placement-strategy",), VALUE, memory=NOTHING),
    Argument(("--kt-lora-path",), VALUE, memory=MAY_CHANGE),
    Argument(("--kt-expert-lora-path",), VALUE, memory=MAY_CHANGE),
)


def _arguments(version: str | None) -> Arguments:
    """Return the arguments of a version of SGLang, and those of KTransformers' copy."""
    found = arguments_of("sglang", "SGLang", sglang_version(version))
    for argument in _OF_KTRANSFORMERS:
        found.by_name.setdefault(argument.names[0], argument)
    return found


# How nodes find each other, and which of them a command starts.
_OF_NODES = ("--nnodes", "--node-rank", "--dist-init-addr", "--nccl-init-addr", "--nccl-port")
# How `sglang.launch_server` is read (python/sglang/srt/server_args.py).
WORDS = LaunchWords(
    example="python -m sglang.launch_server --model-path MODEL",
    program=re.compile(
        r"(?:.*/)?sglang serve|(?:-m "
        r")?sglang\.launch_server|(?:.*/)?sglang:(?=\S)(?:v(?P<version>\d+(?:\.\d+)+))?\S*"
    ),
    models=("--model-path", "--model"),
    names={
        "--quantization": _quantization,
        "--chunked-prefill-size": _chunk,
        "--mamba-ssm-dtype": "--mamba-ssm-cache-dtype",
        "--json-model-override-args": _positions,
        "--tensor-parallel-size": "--tp",
        **dict.fromkeys(
            ("--ep-size", "--expert-parallel-size", "--ep"),
            only_if_several("--enable-expert-parallel"),
        ),
        "--speculative-num-draft-tokens": "--speculative-tokens",
        "--speculative-algorithm": _speculation,
        "--speculative-eagle-topk": _topk,
        "--speculative-draft-model-path": lambda path: (
            AS_BY_DEFAULT if path == DRAFT_MODEL else ("--speculative-model", path)
        ),
        **dict.fromkeys(_OF_NODES, as_by_default),
    },
    of_node=("--node-rank",),
    flags={
        "--disable-radix-cache": ("--no-prefix-caching",),
        "--enable-dp-attention": ("--enable-dp-attention",),
        "--enable-ep-moe": ("--enable-expert-parallel",),
        "--enable-deepep-moe": ("--moe-a2a-backend", "deepep"),
    },
    arguments=_arguments,
    environment={LONG_CONTEXT: if_on("--allow-long-max-model-len")},
)
