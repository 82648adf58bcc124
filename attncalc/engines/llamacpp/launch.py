"""The command that starts llama.cpp's server."""

import re
from collections.abc import Sequence
from itertools import pairwise

from ...errors import AttncalcError
from ...ggml import FILE_TYPES
from ...model import ModelSpec
from ...units import GIB, truncate
from ..arguments import arguments_of
from ..engine import AUTO
from ..launch import (
    DRAFT_MODEL,
    LM_STUDIO,
    Flags,
    LaunchFacts,
    NoCommandError,
    check_drafter_layers,
    flag,
)
from ..pasted import (
    ADDS_NOTHING,
    AS_BY_DEFAULT,
    NOT_USED,
    OWN_CONTEXT,
    LaunchWords,
    Meaning,
    if_on,
    not_used,
    visible_gpus,
)
from .options import DEFAULT_BATCH, DEFAULT_UBATCH, LlamacppArgs
from .placement import block_count

_ON_HUB = re.compile(r"[\w-][\w.-]*/[\w.-]+(?<!\.gguf)")
_GGUF_NAMES = {
    "fp32": "F32",
    "fp16": "F16",
    "bf16": "BF16",
    "int8": "Q8_0",
    "int4": "Q4_0",
    "mxfp4": "MXFP4",
}
# The type at the end of a file's name: '-Q4_K_M' of Qwen3-14B-Q4_K_M.gguf.
_TYPE = re.compile(r"[-_.](?:UD-)?(?:I?Q\d\w*|B?F16|F32|MXFP4\w*)$", re.IGNORECASE)


def launch(facts: LaunchFacts) -> Flags:
    """Yield the words of llama-server's command, or of Ollama's. Its -c is the context of all slots
    together.

    Raises NoCommandError for what the server has no option for.
    """
    args: LlamacppArgs = facts.args
    quantization = facts.model.quantization
    if quantization and quantization.method == "mlx":  # no GGUF file
        yield from ("mlx_lm.server", "--model", facts.served)
        return
    if args.without_cache:
        yield from _of_server(facts)
        return
    if (
        facts.ollama == LM_STUDIO
        and not _has_others(args)
        and {each.name for each in args.types} == {"fp16"}
    ):
        yield from _of_lm_studio(facts)
        return
    if facts.ollama and facts.ollama != LM_STUDIO:
        variables = _of_ollama(facts, facts.ollama)
        if variables:
            yield from (f"{name}={value}" for name, value in variables.items())
            yield from ("ollama", "serve", "&", "ollama", "run", facts.ollama)
            return
    yield from _of_server(facts)


def _of_server(facts: LaunchFacts) -> Flags:
    """Yield the words of llama-server's command. Raises NoCommandError as `launch` does."""
    args: LlamacppArgs = facts.args
    # llama-server has a row of logits per slot, and drafts no tokens without a drafter
    if args.n_outputs_max or (args.speculative_tokens and not args.has_draft_context):
        raise NoCommandError
    yield "llama-server"
    yield from _gguf_file(facts)
    yield from flag("--mmproj", _projector_file(args))
    yield from (
        "-c",
        facts.context * (facts.batch if args.kv_unified else args.slots),
        "-np",
        args.slots,
    )
    if args.on_cpu:
        yield from ("-ngl", "0", *args.release.no_mmap.split())
    elif args.device_memory:
        yield from _placement(facts)
    if args.without_cache:  # a text is computed in one pass
        ranks = any(matrix.name == "classifier" for matrix in facts.model.extra)
        yield "--reranking" if ranks else "--embedding"
        yield from ("-b", args.micro_batch, "-ub", args.micro_batch)
    else:
        if args.micro_batch > DEFAULT_BATCH:
            yield from ("-b", args.micro_batch)
        yield from flag("-ub", args.ubatch)
    yield from flag("--flash-attn", args.flash_attn)
    for option, kv_type in zip(("-ctk", "-ctv"), args.types, strict=True):
        yield from flag(option, _GGUF_NAMES.get(kv_type.name, kv_type.name).lower(), "f16")
    if args.has_draft_context:
        yield from _drafts(facts)
    if args.kv_unified:
        yield "-kvu"
    if args.swa_full:
        yield "--swa-full"


def _of_lm_studio(facts: LaunchFacts) -> Flags:
    """Yield the words of LM Studio's program (lmstudio.ai/docs/cli/load): the GPU has a part of the
    layers.
    """
    args: LlamacppArgs = facts.args
    blocks = block_count(facts.model.main.n_layers, args)
    if args.on_cpu:
        layers = 0
    elif args.n_gpu_layers is None:
        layers = blocks + 1
    else:
        layers = args.n_gpu_layers
    share = "max" if layers > blocks else str(100 * max(layers - 1, 0) // blocks / 100)
    model = facts.served.rpartition("/")[2].lower()
    yield from (
        "lms",
        "load",
        model,
        "--context-length",
        facts.context * args.slots,
        "--gpu",
        share,
    )
    yield from flag("--parallel", args.slots, 1)


def _projector_file(args: LlamacppArgs) -> str | None:
    """Return the file of --mmproj; None without one, and if the model contains it."""
    return (args.mmproj and args.mmproj.path) or None


def _has_others(args: LlamacppArgs) -> bool:
    """Return whether there are options that Ollama and LM Studio's program lack."""
    others = (
        _projector_file(args),
        args.ubatch,
        args.n_cpu_moe,
        args.override_tensor,
        args.tensor_split,
        args.no_kv_offload,
    )
    return any((*others, args.no_mmap, args.swa_full, args.kv_unified, args.has_draft_context))


def _of_ollama(facts: LaunchFacts, name: str) -> dict[str, str | int]:
    """Return the variables of Ollama's server (envconfig/config.go); {} if it has none for
    something.

    Then its library lacks the type of the weights, or it sets no such option.
    """
    args: LlamacppArgs = facts.args
    types = {_GGUF_NAMES.get(each.name, each.name).lower() for each in args.types}
    kv_type, *other_types = types
    *_, of_tag = _type_in_tag(name) or (None,)
    if (
        other_types
        or _has_others(args)
        or facts.weights_given not in (of_tag, name.lower().rpartition("-")[2])
    ):
        return {}
    found: dict[str, str | int] = {"OLLAMA_CONTEXT_LENGTH": facts.context}
    if args.slots > 1:
        found["OLLAMA_NUM_PARALLEL"] = args.slots
    if kv_type != "f16":
        found["OLLAMA_KV_CACHE_TYPE"] = kv_type
    if kv_type != "f16" or args.flash_attn == "on":
        found["OLLAMA_FLASH_ATTENTION"] = 1
    return found


def _placement(facts: LaunchFacts) -> Flags:
    """Yield what is on the GPUs, and on which."""
    args: LlamacppArgs = facts.args
    # 999: all, in every version
    yield from ("-ngl", 999 if args.n_gpu_layers is None else args.n_gpu_layers)
    if args.n_cpu_moe >= block_count(facts.model.main.n_layers, args):
        yield "--cpu-moe"
    elif args.n_cpu_moe:
        yield from ("--n-cpu-moe", args.n_cpu_moe)
    yield from flag("-ot", args.override_tensor)
    if args.tensor_split:
        yield from ("-ts", ",".join(f"{share:g}" for share in args.tensor_split))
    if args.no_kv_offload:
        yield "-nkvo"
    if args.no_mmap:
        yield from args.release.no_mmap.split()


def _drafts(facts: LaunchFacts) -> Flags:
    """Yield the options of a drafter with a context of its own (common/arg.cpp)."""
    args: LlamacppArgs = facts.args
    if args.speculative_model:
        yield from _draft_file(facts.draft or DRAFT_MODEL, facts.drafter)
    else:
        check_drafter_layers(args.speculative_layers)
        yield from ("--spec-type", "draft-mtp")
    yield from flag("--spec-draft-n-max", args.speculative_tokens, 0)
    for option, kv_type in zip(("-ctkd", "-ctvd"), args.draft_types, strict=True):
        yield from flag(option, _GGUF_NAMES.get(kv_type.name, kv_type.name).lower(), "f16")


def _draft_file(name: str, drafter: ModelSpec | None) -> Flags:
    """Yield the option with a draft model's GGUF file: as given, or the name that
    convert_hf_to_gguf.py gives it.

    Raises NoCommandError for a file of a repository: -hfd takes a type of quantization only.
    """
    stored = drafter and drafter.stored
    if stored and stored.kind == "GGUF" and _ON_HUB.fullmatch(name.partition(":")[0]):
        if name.lower().endswith(".gguf"):
            raise NoCommandError
        yield from ("-hfd", name)
    elif drafter is None or name.lower().endswith(".gguf") or (stored and stored.kind == "GGUF"):
        yield from ("-md", name)
    else:
        yield from ("-md", _file_of(name, drafter.dtype))


def _file_of(name: str, dtype: str) -> str:
    return f"{name.rstrip('/').rpartition('/')[2]}-{_GGUF_NAMES.get(dtype, dtype).upper()}.gguf"


def _gguf_file(facts: LaunchFacts) -> Flags:
    """Yield the option with the GGUF file: as given, or the name that convert_hf_to_gguf.py gives
    it.

    That is 'Qwen3-8B-BF16.gguf'. llama.cpp fetches files of a repository itself, but of its default
    branch only.

    Raises NoCommandError for a dtype that GGUF does not have, and another branch.
    """
    name = facts.served
    stored = facts.model.stored
    repository, _, file = name.partition(":")
    if facts.file_type and file:
        name = f"{repository}:{facts.file_type.upper()}"
        file = ""
    elif facts.file_type and name.lower().endswith(".gguf") and facts.file_type not in name.lower():
        name = f"{_TYPE.sub('', name[: -len('.gguf')])}-{facts.file_type.upper()}.gguf"
    is_gguf = (stored and stored.kind == "GGUF") or repository.upper().endswith("-GGUF")
    if is_gguf and _ON_HUB.fullmatch(repository):
        if facts.revision:
            raise NoCommandError
        yield from (
            ("-hf", repository, "-hff", file) if file.lower().endswith(".gguf") else ("-hf", name)
        )
        return
    if name.lower().endswith(".gguf") or (stored and stored.kind == "GGUF"):
        yield from ("-m", name)
        return
    # bf16 beside experts that were released in mxfp4 is another file than that of the release
    given = facts.weights_given or facts.weights_dtype
    dtype = facts.file_type or given or facts.args.dtype.name
    # GGUF has none: Q8_0 and Q4_0 are blocks of 32 with a scale
    if dtype in ("fp8", "fp4", "int8", "int4"):
        raise NoCommandError
    yield from ("-m", _file_of(name, dtype))


def _type_of_file(path: str) -> Meaning:
    """Return the weights' type in the name of a GGUF file, 'Qwen3-8B-Q4_K_M.gguf', as an option of
    `attncalc fit`.
    """
    file_type = _TYPE.search(path.lower().removesuffix(".gguf"))
    if file_type:
        return ("--weights-dtype", file_type[0].strip("-_."))
    return NOT_USED


# Tokens of a batch, and of the micro-batches in which it is computed.
_BATCH = ("-b", "--batch-size")
_MICRO_BATCH = ("-ub", "--ubatch-size")


def _spelled(words: Sequence[str]) -> Sequence[str]:
    """Return the words with a micro-batch that is no larger than the batch, as llama_context has it
    (src/llama-context.cpp): '-b 128' is '-ub 128', and '-ub 4096' without -b is '-ub 2048'.
    """
    batch = _tokens(words, _BATCH) or DEFAULT_BATCH
    is_bound = batch < (_tokens(words, _MICRO_BATCH) or DEFAULT_UBATCH)
    replaced = (*_BATCH, *_MICRO_BATCH) if is_bound else _BATCH
    others: list[str] = []
    rest = [*reversed(words)]
    while rest:
        word = rest.pop()
        if word in replaced and rest and rest[-1].isdecimal():
            rest.pop()
        else:
            others.append(word)
    if is_bound:
        others += ["-ub", f"{batch}"]
    return others


def _tokens(words: Sequence[str], names: Sequence[str]) -> int | None:
    """Return the number after one of several options; None if none has one."""
    values = (value for name, value in pairwise(words) if name in names)
    found = next(values, "")
    if re.fullmatch(r"[1-9]\d{0,8}", found):
        return int(found)
    return None


def _context(tokens: str) -> Meaning:
    """Return the context of all slots. 0 is the model's own, which --fit then does not shorten
    (fit_params_min_ctx in common/arg.cpp).
    """
    if tokens == "0":
        return ("--context", OWN_CONTEXT)
    return ("--context", tokens)


def _speculation(types: str) -> Meaning:
    """Return the layer of multi-token prediction; other types need no layers of the model."""
    if "mtp" in types:
        return ("--speculative-layers", "1")
    return ADDS_NOTHING


def _load_mode(mode: str) -> Meaning:
    if mode in ("auto", "mmap", "mmap+mlock"):
        return AS_BY_DEFAULT
    return ("--no-mmap",)


_VISIBLE = dict.fromkeys(
    ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), visible_gpus
)
# {end of a variable LLAMA_ARG_...: its option; None if that is the end itself} (common/arg.cpp).
_VARIABLES = {
    **dict.fromkeys(
        (
            "CTX_SIZE",
            "N_GPU_LAYERS",
            "N_CPU_MOE",
            "UBATCH",
            "CACHE_TYPE_K",
            "CACHE_TYPE_V",
            "FLASH_ATTN",
        )
    ),
    **dict.fromkeys(("TENSOR_SPLIT", "MODEL", "HF_REPO", "MMPROJ")),
    "N_PARALLEL": "--parallel",
}

# The options of a server that embeds or ranks texts.
_EMBEDS = ("--embedding", "--embeddings", "--rerank", "--reranking")
# How llama-server is read (common/arg.cpp).
WORDS = LaunchWords(
    example="llama-server -m FILE",
    program=re.compile(
        r"(?:.*/)?llama-(?:server|cli|run|simple|mtmd-cli|speculative)(?:\.exe)?"
        r"|(?:.*/)?llama\.cpp:\S+"
    ),
    models=("-m", "--model", "-hf", "-hfr", "--hf-repo"),
    optional=("-fa", "--flash-attn"),
    names={
        **dict.fromkeys(("-c", "--ctx-size"), _context),
        **dict.fromkeys(("-fa", "--flash-attn"), lambda mode: ("--flash-attn", mode or "on")),
        **dict.fromkeys(
            ("-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf"), "--speculative-model"
        ),
        **dict.fromkeys(("-hff", "--hf-file"), _type_of_file),
        **dict.fromkeys(("-lm", "--load-mode"), _load_mode),
        "--spec-draft-model": "--speculative-model",
        "--spec-type": _speculation,
        **dict.fromkeys(
            ("--spec-draft-n-max", "--draft-max", "--draft-n", "--draft"), "--speculative-tokens"
        ),
        "--spec-draft-type-k": "--kv-dtype-k-draft",
        "--spec-draft-type-v": "--kv-dtype-v-draft",
    },
    flags=dict.fromkeys(_EMBEDS, ADDS_NOTHING),
    defaults_with=dict.fromkeys(_EMBEDS, ("--ubatch", str(DEFAULT_UBATCH))),
    # its tools have arguments of their own, and builds come daily
    arguments=lambda version: arguments_of("llamacpp", "llama.cpp", None),
    has_others=True,
    spelled=_spelled,
    environment={
        **_VISIBLE,
        **{
            f"LLAMA_ARG_{end}": name or f"--{end.lower().replace('_', '-')}"
            for end, name in _VARIABLES.items()
        },
        "LLAMA_ARG_CPU_MOE": if_on("--cpu-moe"),
        "LLAMA_ARG_NO_KV_OFFLOAD": if_on("--no-kv-offload"),
        "LLAMA_ARG_LOAD_MODE": _load_mode,
        "LLAMA_ARG_KV_UNIFIED": if_on("--kv-unified"),
        "LLAMA_ARG_SWA_FULL": if_on("--swa-full"),
    },
)


def _longest(tokens: str) -> Meaning:
    """Return the context of the longest test: '512,4096', '512-4096*2'. With 0 the kind of test is
    not run.
    """
    longest = max(map(int, re.findall(r"\d{1,9}", tokens)), default=0)
    if longest:
        return ("--context", str(longest))
    return ADDS_NOTHING


# How llama-bench is read: a test has as many tokens of context as it computes (tools/llama-bench).
BENCH_WORDS = WORDS._replace(
    example="llama-bench -m FILE -p 512",
    program=re.compile(r"(?:.*/)?llama-bench(?:\.exe)?"),
    names={**WORDS.names, **dict.fromkeys(("-p", "--n-prompt", "-n", "--n-gen"), _longest)},
    unmodelled=("-pg", "-d", "--n-depth"),
)


def _type_in_tag(model: str) -> tuple[str, ...]:
    """Return the weights' type of a model in Ollama's library: that of its tag, by default Q4_K_M.

    gpt-oss is stored as released, and a file of the hub as it is.
    """
    name, _, tag = model.partition(":")
    is_typed = tag.lower().rpartition("-")[2] in FILE_TYPES
    if is_typed or "/" in name or name.startswith("gpt-oss"):
        return AS_BY_DEFAULT
    return ("--weights-dtype", "q4_k_m")


def _ollama_context(memory: int) -> int:
    """Return Ollama's context on a GPU of so many bytes (defaultNumCtx in server/routes.go)."""
    if memory < 23 * GIB:
        return 4_096
    if memory < 47 * GIB:
        return 32_768
    return 262_144


# How `ollama run` is read: it starts llama.cpp with options of its own.
OLLAMA_WORDS = LaunchWords(
    example="ollama run MODEL",
    program=re.compile(r"(?:.*/)?ollama (?:run|serve)"),
    models=(),
    names={"--keepalive": not_used, "--format": not_used, "--num-gpu": "--n-gpu-layers"},
    # cmd/cmd.go
    flags=dict.fromkeys(
        ("--verbose", "--think", "--hidethinking", "--insecure", "--nowordwrap"), NOT_USED
    ),
    environment={
        **_VISIBLE,
        "OLLAMA_CONTEXT_LENGTH": "--context",
        "OLLAMA_NUM_PARALLEL": "--batch",
        "OLLAMA_KV_CACHE_TYPE": "--kv-dtype",
        "OLLAMA_FLASH_ATTENTION": if_on("--flash-attn", "on", otherwise=NOT_USED),
    },
    of_model=_type_in_tag,
    placed=("--n-gpu-layers", AUTO),
    context=_ollama_context,
    runner="ollama",
)


def _layers_of_share(share: str) -> Meaning:
    """Return the layers on the GPU of LM Studio's --gpu: all, as by default, or none.

    Raises AttncalcError for another share: how many layers that is depends on the model.
    """
    if share == "max":
        return AS_BY_DEFAULT
    if share == "off":
        return ("--n-gpu-layers", "0")
    raise AttncalcError(
        f"--gpu {truncate(share)} of LM Studio is a share of the model's layers",
        "leave --gpu out of the command, and give --n-gpu-layers N before it",
    )


# How `lms load` is read: LM Studio starts llama.cpp (lmstudio.ai/docs/cli/load).
LM_STUDIO_WORDS = LaunchWords(
    example="lms load MODEL",
    program=re.compile(r"(?:.*/)?lms load"),
    models=(),
    names={
        "--context-length": "--context",
        "--parallel": "--batch",
        "--gpu": _layers_of_share,
        **dict.fromkeys(("--ttl", "--identifier", "--host", "--port"), not_used),
    },
    flags=dict.fromkeys(("--yes", "-y", "--exact"), NOT_USED),
    of_model=_type_in_tag,
    runner="lmstudio",
)
