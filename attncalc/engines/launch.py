"""What a launch command is made of, and the options that engines share."""

from collections.abc import Iterator, Mapping
from typing import Any

from ..model import ModelSpec
from ..options import options_of
from ..records import NamedTuple
from ..units import DType
from .base import EngineArgs

# Options, each before its value.
Flags = Iterator[str | int]
TORCH_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
# Between the commands of two nodes, each of which starts a part of one server.
NEXT_NODE = "\n"
# Stands for the address of the first node.
FIRST_NODE = "NODE_0"
# A port of the first node.
PORT = 13345
# Nodes whose commands are printed.
_MOST_NODES = 64
# Stands for a draft model, whose name is unknown.
DRAFT_MODEL = "DRAFT_MODEL"
LM_STUDIO = "LM Studio"


def nodes_of(devices: int, args: EngineArgs, per_node: int) -> int:
    """Return the nodes that so many devices take, of GPUs that are known; 1 for more than
    are printed, or if the devices do not fill nodes.
    """
    if args.device_memory is None or args.on_cpu or devices <= per_node or devices % per_node:
        return 1
    nodes = devices // per_node
    if nodes <= _MOST_NODES:
        return nodes
    return 1


class NoCommandError(Exception):
    """The engine has no option for something that a request asks for."""


class LaunchFacts(NamedTuple):
    args: Any  # the engine's arguments, of its own class
    model: ModelSpec
    served: str  # the model's path or repository
    revision: str | None  # the repository's branch, tag or commit; None for the default one
    draft: str | None  # the draft model's path or repository; None without one
    drafter: ModelSpec | None  # the draft model as it was read, with its files
    context: int  # tokens of a sequence
    batch: int
    dtype_given: bool
    # the dtype of the cache as it was given; None for the engine's default
    kv_dtype_given: str | None
    # the dtype of the weights that was given; None for that of the checkpoint
    weights_given: str | None
    weights_dtype: str | None  # the dtype of the weights; None for that of the model or its files
    file_type: str  # the type of the file that was computed for the engine: 'q4_k_m'; '' for none
    share: str | float | None  # the share of a GPU's memory that was given
    kv_memory: int | None  # the memory for the cache that was given, in bytes
    replicas: int  # groups of GPUs with requests of their own
    ranks: int  # data-parallel ranks that divide the experts, or the replicas of another model
    expert_parallel: bool  # whether each GPU has whole experts
    # the model's name in Ollama's library, if Ollama runs it; LM_STUDIO if that does
    ollama: str | None
    # whether the engine loads the given weights, or converts those of the release to them
    loads_weights: bool = True


# vLLM's and SGLang's name of a format of fp8 (CacheDType in vllm/config/cache.py; --kv-cache-dtype
# of SGLang).
_E5M2 = "fp8_e5m2"


def flag(name: str, value: str | float | None, default: str | int | None = None) -> Flags:
    """Yield the option and its value, unless it is the default."""
    if value is not None and value != default:
        yield name
        yield str(value)


def own_flags(options: Any, args: EngineArgs, *others: str) -> Flags:
    """Yield an engine's own options as they were given, in the order of their declaration, except
    for `others`.
    """
    for name, option in options_of(options).items():
        if option.field is None or name in others:
            continue
        value = getattr(args, name)
        _, _, opposite = option.names[0].partition("/")
        if value is False and opposite:
            yield opposite
        if value is None or value is False:
            continue
        yield option.name
        if value is not True:
            yield str(value)


def check_drafter_layers(given: int, layers: int = 1) -> None:
    """Raise NoCommandError unless a command means so many layers of an unknown drafter: it has no
    option for them.
    """
    if given not in (0, layers):
        raise NoCommandError


def torch_name(dtype: DType | None) -> str | None:
    """Return torch's name of a dtype; None for None. Raises NoCommandError if it has none."""
    if dtype is None:
        return None
    return engine_name(TORCH_NAMES, dtype)


def engine_name(names: Mapping[str, str], dtype: DType) -> str:
    """Return the engine's name of a dtype. Raises NoCommandError if it has none."""
    if dtype.name not in names:
        raise NoCommandError
    return names[dtype.name]


def dtype_flags(facts: LaunchFacts, cache_dtypes: Mapping[str, str]) -> Flags:
    """Yield the dtypes that were given, as vLLM and SGLang name them.

    Raises NoCommandError if the engine cannot load these weights.
    """
    args = facts.args
    if facts.dtype_given:
        yield from ("--dtype", engine_name(TORCH_NAMES, args.dtype))
    if not facts.loads_weights:
        raise NoCommandError
    if not is_released(facts.model, facts.weights_given, args.dtype):
        yield from ("--quantization", "fp8")
    if facts.kv_dtype_given and args.kv_dtype != args.dtype:
        name = engine_name(cache_dtypes, args.kv_dtype)
        yield from ("--kv-cache-dtype", _E5M2 if facts.kv_dtype_given == _E5M2 else name)


def is_released(model: ModelSpec, given: str | None, dtype: DType) -> bool:
    """Return whether weights in the dtype that was given are those of the release."""
    released = {model.weights_dtype, model.experts_dtype} - {None}
    return given is None or given in (released or {dtype.name})
