"""The options of `attncalc fit`, spoken as the serving engines do, and what is read from them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ..errors import AttncalcError
from ..hardware import Gpu
from ..serving.reserve import Share, parse_share
from ..units import DType, dtype, parse_bytes, parse_count, truncate

if TYPE_CHECKING:
    from ..engines.vllm.log import Log

Text = str | None


def _option(*names: str, of: str, help: str) -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option(*names, metavar=of, help=help)
    return found


Engine = Annotated[str, _option("--engine", of="ENGINE", help="vllm, sglang, llamacpp, transformers, ideal, or all.")]
Version = Annotated[Text, _option("--engine-version", of="VERSION", help="As 0.9.2. Default: the newest known here.")]
KvMemory = Annotated[
    Text,
    _option(
        "--kv-memory",
        "--kv-cache-memory-bytes",
        of="SIZE",
        help="Memory for the cache that an engine reported, as 5.38GiB; instead of --gpu.",
    ),
]
VllmLog = Annotated[
    Path | None,
    typer.Option(
        "--vllm-log", metavar="FILE", help="A start-up log of vLLM (- for standard input), held to what is predicted."
    ),
]
GpuName = Annotated[Text, _option("--gpu", of="GPU", help="As h100-80gb; 'attncalc gpus' lists them; or a .yaml.")]
Gpus = Annotated[Text, _option("--gpus", of="N", help="How many. Default: tp * pp; more are replicas.")]
Tp = Annotated[
    Text, _option("--tp", "--tensor-parallel-size", "--tp-size", of="N", help="Default: the GPUs over --pp.")
]
Pp = Annotated[
    Text, _option("--pp", "--pipeline-parallel-size", "--pp-size", of="N", help="Pipeline stages. Default: 1.")
]
Dcp = Annotated[
    Text,
    _option(
        "--dcp",
        "--decode-context-parallel-size",
        of="N",
        help="Decode-context-parallel devices, inside tp. Default: 1.",
    ),
]
Utilization = Annotated[
    Text,
    _option(
        "--gpu-memory-utilization",
        "--mem-fraction-static",
        of="SHARE",
        help="Of the GPU, that the engine takes. Default: the engine's own.",
    ),
]
Reserve = Annotated[
    Text, _option("--reserve", of="SIZE", help="For activations and graphs. Default: an assumption, which is shown.")
]
WeightsDtype = Annotated[
    Text,
    _option(
        "--weights-dtype", of="DTYPE", help="Of attention's and MLPs' matrices: fp8, int4, ... Default: as released."
    ),
]
KvDtypeK = Annotated[Text, _option("--kv-dtype-k", "--cache-type-k", "-ctk", of="DTYPE", help="Of K alone.")]
KvDtypeV = Annotated[Text, _option("--kv-dtype-v", "--cache-type-v", "-ctv", of="DTYPE", help="Of V alone.")]
SsmDtype = Annotated[Text, _option("--mamba-ssm-cache-dtype", of="DTYPE", help="Of recurrent states.")]
BlockSize = Annotated[Text, _option("--block-size", "--page-size", of="N", help="Tokens of a block.")]
BatchedTokens = Annotated[
    Text,
    _option("--max-num-batched-tokens", of="N", help="Tokens of one step. Default: the engine's."),
]
NumSeqs = Annotated[
    Text, _option("--max-num-seqs", of="N", help="vLLM: sequences at once. Default: 1,024 or 256, by the GPU.")
]
RunningRequests = Annotated[Text, _option("--max-running-requests", of="N", help="SGLang's, for pools of states.")]
SpeculativeTokens = Annotated[
    Text, _option("--speculative-tokens", "--num-speculative-tokens", of="N", help="Tokens that a drafter proposes.")
]
SpeculativeLayers = Annotated[Text, _option("--speculative-layers", of="N", help="Layers of the drafter.")]
PrefixCaching = Annotated[
    bool | None,
    typer.Option("--prefix-caching/--no-prefix-caching", help="Also --enable-prefix-caching. Default: the engine's."),
]
EnablePrefixCaching = Annotated[
    bool | None, typer.Option("--enable-prefix-caching/--no-enable-prefix-caching", hidden=True)
]
NoHybrid = Annotated[
    bool, typer.Option("--disable-hybrid-kv-cache-manager", help="vLLM: windows are stored as full layers.")
]
NoHybridSwa = Annotated[bool, typer.Option("--disable-hybrid-swa-memory", help="SGLang: the same.")]
SwaRatio = Annotated[Text, _option("--swa-full-tokens-ratio", of="RATIO", help="SGLang: window tokens over full ones.")]
MambaRatio = Annotated[Text, _option("--mamba-full-memory-ratio", of="RATIO", help="SGLang: states over the rest.")]
Sequences = Annotated[
    Text, _option("--sequences", "--parallel", "-np", of="N", help="llama.cpp: its slots. Default: --batch.")
]
Ubatch = Annotated[Text, _option("--ubatch", "--ubatch-size", "-ub", of="N", help="llama.cpp: tokens of one pass.")]
KvUnified = Annotated[bool, typer.Option("--kv-unified", "-kvu", help="llama.cpp: slots share one buffer.")]
SwaFull = Annotated[bool, typer.Option("--swa-full", help="llama.cpp: windows are stored as full layers.")]
CacheImplementation = Annotated[
    Text, _option("--cache-implementation", of="NAME", help="transformers: dynamic, static or quantized.")
]
ResidualLength = Annotated[
    Text, _option("--residual-length", of="N", help="transformers: tokens that a quantised cache keeps as they are.")
]
SwapSpace = Annotated[Text, _option("--swap-space", of="GIB", help="vLLM before V1: host memory for blocks.")]


class Place(NamedTuple):
    """Where it is to fit: a memory that an engine reported, or a GPU, and how the model is split."""

    kv_memory: int | None
    gpu: Gpu | None
    gpus: int
    tp: int
    pp: int
    share: Share | None
    reserve: int | None


def read_vllm_log(path: Path | None) -> Log | None:
    """The log in that file; None for none. AttncalcError: it cannot be read, or is no start-up log of vLLM."""
    if path is None:
        return None
    from ..engines.vllm.log import read_log

    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        why = (error.strerror or "cannot be read").lower()
        raise AttncalcError(f"{truncate(path)}: {why}", "name a file with what vLLM printed when it started") from None
    return read_log(data.decode("utf-8", "replace"), str(path))


def place_of_log(tp: Text, pp: Text, elsewhere: dict[str, Text]) -> Place:
    """One device of those that the log names. elsewhere: options that have no effect beside a log."""
    for option, value in elsewhere.items():
        if value is not None:
            raise AttncalcError(f"{option} with --vllm-log", "the log has the memory: leave one of the two out")
    return Place(None, None, 1, parse_count(tp or "1", "--tp"), parse_count(pp or "1", "--pp"), None, None)


class LogOverrides:
    """What a log told of a setting where no option says it."""

    def __init__(self, log: Log | None) -> None:
        self._told = log.settings if log else {}

    def __call__(self, name: str, given: Text) -> Text:
        return self._told.get(name) if given is None else given


def number(text: Text, option: str) -> int | None:
    """A count, None where none was given."""
    return None if text is None else parse_count(text, option)


def count_or_zero(text: Text, option: str) -> int:
    """A count, which may be 0; 0 where none was given."""
    return 0 if text is None or text.strip() == "0" else parse_count(text, option)


def yes(text: Text) -> bool | None:
    """What a log's True and False mean; None where it has neither."""
    return None if text is None else text == "True"


def first(*answers: bool | None) -> bool | None:
    """The first that says something."""
    return next((answer for answer in answers if answer is not None), None)


def cache_dtype(text: Text) -> DType | None:
    """A dtype; None for the engine's own choice, which 'auto' is too."""
    return None if text is None or text == "auto" else dtype(text)


def ratio(text: Text, option: str) -> Text:
    """A number above zero, as text: exact. AttncalcError: for anything else."""
    if text is None or (re.fullmatch(r"\d{1,9}(\.\d{1,9})?|\.\d{1,9}", text, re.ASCII) and float(text)):
        return text
    raise AttncalcError(f"{option}: '{truncate(text)}' is not a number above zero", "write 0.8")


def gibibytes(text: Text, option: str) -> int | None:
    """A size; a bare number is in GiB, as vLLM's --swap-space is."""
    if text is None:
        return None
    return parse_bytes(text if text[-1:].isalpha() else f"{text}GiB", option)


def read_place(
    kv_memory: Text,
    gpu: Text,
    gpus: Text,
    tp: Text,
    pp: Text,
    utilization: Text,
    reserve: Text,
    more: dict[str, Text],
    *,
    spread: bool,
) -> Place:
    """Where it is to fit. more: further options that need a GPU. spread: the engine spreads layers over all GPUs.

    AttncalcError: neither, both, or a split that cannot be.
    """
    stages = parse_count(pp or "1", "--pp")
    if (kv_memory is None) == (gpu is None):
        wrong = "--kv-memory and --gpu" if gpu else "neither --gpu nor --kv-memory"
        raise AttncalcError(wrong, "give one: --gpu h100-80gb, or --kv-memory 5.38GiB, which an engine reported")
    if gpu is None:
        given = {"--gpus": gpus, "--gpu-memory-utilization": utilization, "--reserve": reserve, **more}
        for option, value in given.items():
            if value is not None:
                raise AttncalcError(f"{option} has no effect on --kv-memory", "leave it out, or give --gpu instead")
        memory = parse_bytes(kv_memory or "", "--kv-memory")
        return Place(memory, None, 1, 1 if tp is None else parse_count(tp, "--tp"), stages, None, None)
    from ..config.gpus import gpu as load

    found = load(gpu)
    if spread and tp is None:
        many, ranks = number(gpus, "--gpus") or 1, 1
    else:
        many, ranks = _devices(number(gpus, "--gpus"), number(tp, "--tp"), stages)
    return Place(
        None,
        found,
        many,
        ranks,
        stages,
        None if utilization is None else parse_share(utilization, "--gpu-memory-utilization"),
        None if reserve is None else 0 if reserve.strip() == "0" else parse_bytes(reserve, "--reserve"),
    )


def _devices(gpus: int | None, tp: int | None, pp: int) -> tuple[int, int]:
    """(GPUs, tp) from what is given of the two. AttncalcError: they do not go together."""
    if tp is None:
        if gpus is None or gpus % pp == 0:
            return (pp, 1) if gpus is None else (gpus, gpus // pp)
        raise AttncalcError(f"--gpus {gpus} over --pp {pp} stages", "give a multiple of the stages, or --tp too")
    each = tp * pp
    if gpus is None or gpus == each:
        return each, tp
    if gpus < each:
        raise AttncalcError(f"--tp {tp} with --pp {pp} needs {each} GPUs, --gpus says {gpus}", "give fewer, or more")
    if gpus % each:
        raise AttncalcError(
            f"--gpus {gpus} is not a multiple of --tp {tp} times --pp {pp}", "every replica has as many GPUs"
        )
    return gpus, tp
