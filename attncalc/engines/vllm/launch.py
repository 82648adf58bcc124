"""The command that starts vLLM."""

import contextlib
import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ...errors import AttncalcError
from ...options import COUNT, options_of
from ...units import GIB, hyphens, truncate, usual_dtype
from ..arguments import Arguments, arguments_of
from ..launch import (
    DRAFT_MODEL,
    FIRST_NODE,
    NEXT_NODE,
    PORT,
    TORCH_NAMES,
    Flags,
    LaunchFacts,
    NoCommandError,
    check_drafter_layers,
    dtype_flags,
    flag,
    nodes_of,
    own_flags,
    torch_name,
)
from ..multi_token import PREDICT_TOKENS
from ..options import LoraOptions, PagedOptions
from ..pasted import (
    AS_BY_DEFAULT,
    NOT_COMPUTED,
    NOT_USED,
    OF_EACH_GPU,
    LaunchWords,
    Meaning,
    Reading,
    as_by_default,
    check_only_positions,
    if_on,
)
from .options import (
    DRAFTER_KEYS,
    DRAFTER_LAYERS,
    GATHERED,
    POOLING_TASKS,
    TURBOQUANT,
    VARIABLES,
    WITHOUT_LAYERS,
    VllmArgs,
    VllmOptions,
    check_keys,
    json_object,
)
from .versions import VllmVersion, vllm_version

_CACHE_DTYPES = {
    **TORCH_NAMES,
    **{name: name for name in TURBOQUANT},
    "int8": "int8_per_token_head",
    "int4": "int4_per_token_head",
    "fp8": "fp8",
    "fp4": "nvfp4",
}
_LMCACHE = ("--kv-offloading-backend", "lmcache")
# {LMCache's name of a tier: the options of its size}.
_LMCACHE_TIERS = {"cpu": (*_LMCACHE, "--kv-offloading-size"), "disk": ("--disk-size",)}
# Levels of an argument's keys: '--compilation-config.pass_config.fuse_norm_quant' has two.
_MOST_KEYS = 16
# The name of an argument, which a negative number is not.
_OPTION = re.compile("--?[A-Za-z]")
_LMCACHE_SIZE = re.compile(r"^max_local_(cpu|disk)_size *: *(\d+(?:\.\d+)?)", re.MULTILINE)


def launch(facts: LaunchFacts) -> Flags:
    """Yield the words of the command: 'vllm serve Qwen/Qwen3-8B --max-model-len 40960
    --kv-cache-dtype fp8'. A server of several nodes has a command for each.
    """
    args: VllmArgs = facts.args
    if args.offline:  # Python starts it
        raise NoCommandError
    per_node = args.gpus_per_node
    nodes = nodes_of(args.tp * args.pp * facts.ranks, args, per_node)
    if facts.ranks > 1 and per_node % (args.tp * args.pp):
        nodes = 1  # a rank of several nodes
    if facts.ranks > 1 and "--headless" not in _known_arguments(args.version).by_name:
        nodes = 1  # its ranks are on one node
    if facts.ranks == 1 and not args.version.has_nnodes:
        nodes = 1  # Ray starts the workers of the others
    for node in range(nodes):
        if node:
            yield NEXT_NODE
        yield from _command(facts, node, nodes)


def _command(facts: LaunchFacts, node: int, nodes: int) -> Flags:
    """Yield the words of the command of one node."""
    args: VllmArgs = facts.args
    yield from _variables(args)
    yield from ("vllm", "serve", facts.served)
    yield from flag("--revision", facts.revision)
    yield from dtype_flags(facts, _CACHE_DTYPES)
    yield from ("--max-model-len", facts.context)
    yield from flag("--tensor-parallel-size", args.tp, 1)
    yield from flag("--pipeline-parallel-size", args.pp, 1)
    yield from flag("--decode-context-parallel-size", args.dcp, 1)
    # Ranks of vLLM's data parallelism divide the experts of a mixture, which replicas do not: one
    # command per replica.
    yield from flag("--data-parallel-size", facts.ranks, 1)
    if nodes > 1:
        yield from _of_node(facts, node, nodes)
    elif facts.ranks > 1:
        local = args.data_parallel_size_local
        if local is not None:  # a change may have fewer ranks
            yield from ("--data-parallel-size-local", min(local, facts.ranks))
    if facts.expert_parallel:
        yield "--enable-expert-parallel"
    yield from _balance(args)
    yield from _exchange(args)
    yield from flag("--gpu-memory-utilization", facts.share)
    yield from flag("--kv-cache-memory-bytes", facts.kv_memory)
    in_gib = {
        "--swap-space": args.swap_space if args.version.has_swap_space else None,
        "--cpu-offload-gb": args.cpu_offload_gb,
        "--kv-offloading-size": args.kv_offloading_size,
    }
    sizes = (name[2:].replace("-", "_") for name in in_gib)
    yield from own_flags(LoraOptions, args)
    yield from flag("--max-num-seqs", args.max_num_seqs)
    not_flags = (
        *VARIABLES.values(),
        "max_num_seqs",
        "warm_start",
        "all2all_backend",
        "data_parallel_size_local",
        "kv_offloading_backend",
        "speculative_config",
        *sizes,
    )
    yield from own_flags(VllmOptions, args, *not_flags)
    yield from flag("--block-size", args.block_size)
    yield from flag("--mamba-ssm-cache-dtype", torch_name(args.mamba_ssm_cache_dtype))
    if args.prefix_caching is not None:
        yield "--enable-prefix-caching" if args.prefix_caching else "--no-enable-prefix-caching"
    for name, size in in_gib.items():
        if size is not None:
            yield from (name, f"{size / GIB:g}")
    if args.kv_offloading_size:  # native is the default of newer versions
        yield from ("--kv-offloading-backend", args.kv_offloading_backend or "native")
    yield from _drafts(args, facts.draft)


def _variables(args: VllmArgs) -> Flags:
    """Yield the environment variables before the command."""
    if args.exchange != GATHERED and not args.version.has_all2all_option:
        yield f"VLLM_ALL2ALL_BACKEND={args.exchange}"
    for variable, name in VARIABLES.items():
        value = getattr(args, name)
        if value != getattr(VllmArgs, name):
            yield f"{variable}={int(value)}"


def _of_node(facts: LaunchFacts, node: int, nodes: int) -> Flags:
    """Yield how one of several nodes finds the first, and which ranks it has."""
    args: VllmArgs = facts.args
    if facts.ranks > 1:
        local = args.gpus_per_node // (args.tp * args.pp)
        yield from ("--data-parallel-size-local", local)
        yield from ("--data-parallel-address", FIRST_NODE, "--data-parallel-rpc-port", PORT)
        if node:
            yield from ("--data-parallel-start-rank", node * local)
    else:
        yield from ("--nnodes", nodes, "--node-rank", node, "--master-addr", FIRST_NODE)
    if node:
        yield "--headless"


def _exchange(args: VllmArgs) -> Flags:
    """Yield how experts get tokens, unless it is vLLM's own way."""
    if args.exchange != GATHERED and args.version.has_all2all_option:
        yield from ("--all2all-backend", args.exchange)


def _balance(args: VllmArgs) -> Flags:
    """Yield the options of EPLB; --num-redundant-experts was one of its own."""
    if args.enable_eplb:
        yield "--enable-eplb"
    if args.num_redundant_experts and args.version.has_eplb_config:
        config = {"num_redundant_experts": args.num_redundant_experts}
        yield from ("--eplb-config", json.dumps(config))
    elif args.num_redundant_experts:
        yield from ("--num-redundant-experts", args.num_redundant_experts)


def _read_balance(text: str) -> Meaning:
    """Return the copies of experts in --eplb-config. Raises AttncalcError if it is no object."""
    config = json_object(text, "--eplb-config", """give '{"num_redundant_experts": 32}'""")
    check_keys(config, ("num_redundant_experts",), "--eplb-config")
    if "num_redundant_experts" not in config:
        return NOT_USED
    return ("--num-redundant-experts", str(config["num_redundant_experts"]))


def _drafts(args: VllmArgs, draft: str | None) -> Flags:
    """Yield --speculative-config: multi-token prediction, an n-gram lookup without layers, or a
    draft model.
    """
    given = json.loads(args.speculative_config or "{}")
    if not (args.speculative_layers or args.speculative_tokens or draft or given):
        return
    config: dict[str, str | int] = {"method": "ngram"}
    if draft:
        config = {"model": draft}
    elif args.speculative_layers:
        predicts = args.model_type in PREDICT_TOKENS or str(given.get("method")).endswith("mtp")
        config = {"method": "mtp"} if predicts else {"model": DRAFT_MODEL}
    if not draft:
        check_drafter_layers(
            args.speculative_layers, int(DRAFTER_LAYERS.get(str(given.get("method")), "1"))
        )
    if args.speculative_tokens:
        config["num_speculative_tokens"] = args.speculative_tokens
    yield from ("--speculative-config", json.dumps(config | given))


def _read_speculation(text: str) -> list[str]:
    """Return the value of --speculative-config as options of `attncalc fit`.

    Raises AttncalcError if it is no object.
    """
    config = json_object(text, "--speculative-config", "quote it: '{...}'")
    tokens, model = (config.pop(name, None) for name in DRAFTER_KEYS)
    method = str(config.get("method"))
    words = [] if tokens is None else ["--speculative-tokens", str(tokens)]
    words += ["--speculative-config", json.dumps(config)] if config else []
    # use_v2_model_runner in config/vllm.py
    words += ["--v2-model-runner"] if method == "dspark" else []
    if model and model != DRAFT_MODEL and not method.endswith("mtp"):
        return [*words, "--speculative-model", str(model)]
    if method in WITHOUT_LAYERS:
        return words
    return [*words, "--speculative-layers", DRAFTER_LAYERS.get(method, "1")]


def _read_lmcache(path: str) -> Meaning:
    """Return the sizes in LMCache's configuration file, as options of `attncalc fit`. A file that
    is not here, or has no size, is not used.
    """
    try:
        sizes = _LMCACHE_SIZE.findall(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return NOT_USED
    words: list[str] = []
    for tier, size in sizes:
        words += (*_LMCACHE_TIERS[tier], f"{size}{OF_EACH_GPU}")
    return words or NOT_USED


def _read_quantization(method: str) -> Meaning:
    """Return the dtype to which vLLM converts the weights as it loads them. Other methods are not
    used: they must be the checkpoint's own, which is read.
    """
    if method in ("fp8", "bitsandbytes"):
        return ("--weights-dtype", usual_dtype(method) or "")
    return NOT_USED


def _read_runner(runner: str) -> Meaning:
    """Return the runner. Raises AttncalcError for a value of --task that --runner does not take."""
    if runner in POOLING_TASKS:
        raise AttncalcError(
            f"--runner of the command cannot be '{runner}'", "write --runner pooling"
        )
    return ("--runner", runner)


def _read_context(tokens: str) -> Meaning:
    """Return the context; -1 is the longest that fits, as 'auto'."""
    if tokens in ("-1", "auto"):
        return AS_BY_DEFAULT
    return ("--context", tokens)


def _read_local_ranks(ranks: str) -> Meaning:
    """Return the ranks of one node; 0 is a node without GPUs, which only takes requests."""
    if ranks == "0":
        return AS_BY_DEFAULT
    return ("--data-parallel-size-local", ranks)


def _read_overrides(overrides: str) -> Meaning:
    """Return that the context may be longer than the config's, with positions of YaRN."""
    check_only_positions(overrides)
    return ("--allow-long-max-model-len",)


def _variable(name: str) -> Reading:
    """Return the reading of a number, or of 1 or 0: the argument's option, or the opposite if it
    has one.
    """
    option = (options_of(PagedOptions) | options_of(VllmOptions))[name]
    on, _, off = option.names[0].partition("/")
    if option.parser is COUNT:
        return lambda value: (on, value)
    return if_on(on, otherwise=(off,) if off else AS_BY_DEFAULT)


def _of_image(version: str) -> tuple[str, ...]:
    """Return that FlashInfer samples, if it does where it is installed: images of V1 have a version
    that can.
    """
    switches = vllm_version(version)
    if switches.samples_with_installed_flashinfer and not switches.v0:
        return ("--flashinfer-sampler",)
    return AS_BY_DEFAULT


def _spelled(words: Sequence[str]) -> list[str]:
    """Return the words as vLLM's parser rewrites them (FlexibleArgumentParser in
    utils/argparse_utils.py): hyphens in names, and the keys of an object as its JSON.

    '--x_y.a 1 --x-y.b.c 2' is '--x-y {"a": 1, "b": {"c": 2}}'.
    """
    found: list[str] = []
    objects: dict[str, dict[str, Any]] = {}
    rest = [*reversed(words)]
    while rest:
        word = rest.pop()
        name, equals, value = word.partition("=")
        if not _OPTION.match(name):
            found.append(word)
        elif "." in name:
            if not equals:
                value = rest.pop() if rest else ""
            key, *keys = name.split(".", _MOST_KEYS)
            _set_key(objects.setdefault(hyphens(key), {}), keys, value)
        else:
            found.append(hyphens(name) + equals + value)
    for name, keys_of_object in objects.items():
        try:
            found += [name, json.dumps(keys_of_object)]
        except RecursionError:
            raise AttncalcError(
                f"{truncate(name)} of the command has too many levels", "give fewer"
            ) from None
    return found


def _set_key(found: dict[str, Any], keys: list[str], value: str) -> None:
    """Set a key, at the end of `keys`, to a value as JSON or text; 'a+' adds to the list of a."""
    *outer, last = keys
    for key in outer:
        inner = found.setdefault(key, {})
        if not isinstance(inner, dict):
            inner = found[key] = {}
        found = inner
    if last.endswith("+"):
        listed = found.setdefault(last[:-1], [])
        if isinstance(listed, list):
            listed += value.split(",")
        return
    found[last] = value
    with contextlib.suppress(ValueError, RecursionError):
        found[last] = json.loads(value)


def _known_arguments(version: VllmVersion) -> Arguments:
    return arguments_of("vllm", "vLLM", version)


def _arguments(version: str | None) -> Arguments:
    """Return the arguments of a version of vLLM, with -O, which its parser replaces."""
    found = _known_arguments(vllm_version(version))
    level = found.by_name.get("--optimization-level")
    if level:
        found.by_name.setdefault("-O", level)
    return found


def _unsaid(options: Collection[str]) -> Sequence[str]:
    """Return vLLM's own way of giving experts the tokens of data-parallel ranks, unless the command
    has another: only a question of options has that of vLLM's guide.
    """
    if {"--dp", "--enable-expert-parallel"} <= {*options}:
        return ("--all2all-backend", GATHERED)
    return AS_BY_DEFAULT


# Options of one of several nodes, which change no figure: how nodes find each other, and which of
# them a command starts.
_OF_NODES = (
    "--data-parallel-address",
    "-dpa",
    "--data-parallel-rpc-port",
    "-dpp",
    "--data-parallel-backend",
    "-dpb",
    "--data-parallel-start-rank",
    "-dpr",
    "--data-parallel-rank",
    "-dpn",
    "--nnodes",
    "-n",
    "--node-rank",
    "-r",
    "--master-addr",
    "--master-port",
)
_FLAGS_OF_NODES = (
    "--headless",
    "--data-parallel-hybrid-lb",
    "-dph",
    "--data-parallel-external-lb",
    "-dpe",
)
# How `vllm serve` is read (vllm/engine/arg_utils.py).
WORDS = LaunchWords(
    example="vllm serve MODEL",
    program=re.compile(
        r"(?:.*/)?vllm serve|(?:-m )?vllm\.entrypoints\.\S+"
        r"|(?:.*/)?vllm-openai\S*?(?::v?(?P<version>\d+(?:\.\d+)+)?\S*)?"
    ),
    models=("--model",),
    of_image=_of_image,
    unsaid=_unsaid,
    names={
        "--max-model-len": _read_context,
        "--runner": _read_runner,
        "--data-parallel-size-local": _read_local_ranks,
        "-dpl": _read_local_ranks,
        "--quantization": _read_quantization,
        "-q": _read_quantization,
        "--speculative-config": _read_speculation,
        "-sc": _read_speculation,
        "--eplb-config": _read_balance,
        "--hf-overrides": _read_overrides,
        "--rope-scaling": lambda scaling: ("--allow-long-max-model-len",),
        "--spec-method": lambda method: _read_speculation(json.dumps({"method": method})),
        "--spec-model": "--speculative-model",
        "--spec-tokens": "--speculative-tokens",
        **dict.fromkeys(_OF_NODES, as_by_default),
    },
    of_node=(
        "--headless",
        "--data-parallel-start-rank",
        "-dpr",
        "--data-parallel-rank",
        "-dpn",
        "--node-rank",
        "-r",
    ),
    unmodelled=(
        "VLLM_ATTENTION_BACKEND",
        "VLLM_ALLREDUCE_USE_FLASHINFER",
        "VLLM_USE_NCCL_SYMM_MEM",
    ),
    # without it a step has the tokens of a whole prompt
    flags={
        "--enable-chunked-prefill": AS_BY_DEFAULT,
        "--no-enable-chunked-prefill": NOT_COMPUTED,
        **dict.fromkeys(_FLAGS_OF_NODES, AS_BY_DEFAULT),
    },
    arguments=_arguments,
    spelled=_spelled,
    environment={
        "LMCACHE_CONFIG_FILE": _read_lmcache,
        "LMCACHE_MAX_LOCAL_CPU_SIZE": lambda size: (*_LMCACHE_TIERS["cpu"], f"{size}{OF_EACH_GPU}"),
        "LMCACHE_MAX_LOCAL_DISK_SIZE": lambda size: (
            *_LMCACHE_TIERS["disk"],
            f"{size}{OF_EACH_GPU}",
        ),
        **{variable: _variable(name) for variable, name in VARIABLES.items()},
        "VLLM_ALL2ALL_BACKEND": "--all2all-backend",
        "VLLM_USE_V1": lambda value: ("--engine-version", "v0") if value == "0" else AS_BY_DEFAULT,
    },
)
