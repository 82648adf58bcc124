"""Which engine is meant if --engine is not given: by the other options, or by a name in Ollama's
library.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

from ...config import load
from ...config.gpus import gpus_of
from ...config.presets import ollama_name, preset_of, with_file_type
from ...engines import DEFAULT_ENGINE, ENGINES, RUNNERS, find_engine, is_runner
from ...engines.arguments import arguments_of
from ...engines.engine import AUTO
from ...engines.launch import LM_STUDIO
from ...engines.pasted import LaunchWords
from ...errors import AttncalcError
from ...ggml import FILE_TYPES, WIDE_TYPES
from ...hardware import Gpu
from ...model import ModelSpec
from ...options import options_of
from ...records import NamedTuple
from ...serving.fit import Deployment
from ...serving.request import FitRequest, resolve
from ...units import is_auto, long_option
from ...workload import Workload
from .options import DeploymentOptions, EngineOptions, FitOptions, UserOptions

# Options with which a name of Ollama's library is only another spelling: Ollama has none of them.
NOT_OLLAMA = frozenset(
    {"engine", "tp", "pp", "dp", "dcp", "attn_dp", "gpu_memory_utilization", "keep", "weights_size"}
)
# The engine that loads GGUF files.
_FILES = RUNNERS["ollama"]
# The type of GGUF files that most people use.
_USUAL_TYPE = "q4_k_m"
# Options of the deployment that llama.cpp lacks.
_NOT_FILES = (NOT_OLLAMA - {"engine"}) | {"enable_expert_parallel", "enable_dp_attention"}
# Options of the deployment that only engines with ranks of attention have.
_RANKS = ("attn_dp", "enable_dp_attention")


class Choice(NamedTuple):
    """An engine that an option chooses."""

    engine: str
    option: str


def engine_of_options(options: Mapping[str, Any]) -> Choice | None:
    """Return the engine that alone has all of the options given, and the first of them that others
    lack.

    None if several engines have all of them, or none has.
    """
    declared = options_of(EngineOptions) | options_of(DeploymentOptions)
    given = [name for name in declared if options.get(name) not in (None, False)]
    of_engines = {*EngineOptions.__annotations__, *_RANKS}
    own = [name for name in given if name in of_engines]
    if not own:
        return None
    having = {field: {name for name in ENGINES if _has(name, field)} for field in own}
    engines = set.intersection(*having.values())
    if len(engines) != 1:
        return None
    deciding = next((field for field in own if len(having[field]) == 1), own[0])
    return Choice(engines.pop(), declared[deciding].name)


def _has(engine: str, field: str) -> bool:
    found = find_engine(engine)
    if field in _RANKS:
        return "attn_dp" in found.splits
    return any(field in group.__annotations__ for group in found.options)


def ollama_options(model: str, options: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the options that a name in Ollama's library implies, and a note about them; {} and ''
    for another name.

    `gemma2:9b` is run by llama.cpp with weights in q4_k_m, and with a context by the memory of the
    GPUs; so is any model with --engine ollama. Options that are given decide instead, then Ollama's
    environment variables. An engine or a dtype that Ollama lacks means that only the model is named
    so.
    """
    name, file_type = with_file_type(model)
    weights = options.get("weights_dtype")
    runner = is_runner(options.get("engine"))
    is_known = preset_of(name) is not None and not os.path.exists(name)
    is_tag = re.fullmatch(r"[\w.-]+:[\w.-]+", name) and is_known
    of_others = NOT_OLLAMA & options.keys() - {"engine" if runner else ""}
    if not (is_tag or runner) or of_others or (weights and str(weights).lower() not in FILE_TYPES):
        return {}, ""
    engine, words = _runner_of_ollama()
    choice = engine_of_options(options)
    if choice and choice.engine != engine:
        return {}, ""
    found: dict[str, Any] = {"engine": engine, **_of_variables(words, options)}
    if not weights and not file_type and is_known:
        implied = words.of_model(model.rpartition("/")[2])
        if implied:
            found["weights_dtype"] = implied[1]
    of_context = {"context", "kv_memory", *UserOptions.__annotations__}
    names = options_of(FitOptions)
    if of_context.isdisjoint({*options, *found}):
        # Without a GPU, the least that Ollama takes; LM Studio always takes as many
        device = (not _is_lm_studio(options) and options.get("gpu")) or "1GiB"
        named = None if _is_lm_studio(options) else name_for_ollama(model, options)
        found["context"] = default_context(words, device, options.get("gpus"), named or model)
    # auto: the longest on the GPU alone
    if options.get("gpu") is not None and not is_auto(options.get("context")):
        option, value = words.placed
        fields = [field for field, known in names.items() if known.name == option]
        found |= {field: value for field in fields if field not in options}
    # the heading has the engine
    shown = [f"{names[field].name} {value}" for field, value in found.items() if field != "engine"]
    title = "LM Studio" if _is_lm_studio(options) else "Ollama"
    if not shown:
        return found, f"--engine {engine}: as {title} runs it."
    return found, f"{' '.join(shown)}: as {title} runs it."


def _runner_of_ollama() -> tuple[str, LaunchWords]:
    """Return the engine that Ollama runs, and how its command is read: it alone decides a
    context.
    """
    commands = ((engine, words) for engine in ENGINES for words in find_engine(engine).commands)
    return next((engine, words) for engine, words in commands if words.context)


def name_for_ollama(model: str, options: Mapping[str, Any]) -> str | None:
    """Return a model's name in Ollama's library: 'qwen3:8b' of qwen3-8b; None for a file. LM_STUDIO
    if that runs it.

    None with a number of layers too: Ollama has no environment variable for it.
    """
    if _is_lm_studio(options):
        return LM_STUDIO
    name, _ = with_file_type(model)
    if options.get("n_gpu_layers") not in (None, AUTO) or preset_of(name) is None:
        return None
    if ":" in name:
        return model
    return ollama_name(name)


def _is_lm_studio(options: Mapping[str, Any]) -> bool:
    return "studio" in str(options.get("engine")).lower()


class Default(NamedTuple):
    """The engine and the dtype of weights that a request has if no option gives them."""

    engine: str
    weights_dtype: str | None  # None: as released
    note: str  # why, as sentences that name the options; '' if there is nothing to say


def default_deployment(model: ModelSpec, options: Mapping[str, Any], gpu: Gpu | None) -> Default:
    """Return the engine and the dtype of weights by default. What an option gives stays as it is.

    They depend on the kind of GPU, and neither on its memory or number nor on the size of the
    model:

    - a server's GPU, or none: vLLM, and the weights as released.
    - a card in a desktop or laptop, a Mac or a CPU: llama.cpp, and q4_k_m of weights that were
      released in 16 bits or more. MXFP4 stays MXFP4, which GGUF files have too.

    Options, a cache or weights that only another engine has choose that engine.

    Args:
        model: The model.
        options: The options of `attncalc fit`, parsed; `weights_dtype` may be a type of GGUF files.
        gpu: The GPU; None without one.
    """
    engine = options.get("engine")
    note = ""
    is_default = False
    if engine is None:
        engine, note = _default_engine(model, options, gpu)
        is_default = engine == _FILES and engine_of_options(options) is None
    weights_dtype = options.get("weights_dtype")
    has_default = gpu is not None and gpu.runs_files and engine == _FILES
    for name in ("weights_dtype", "dtype", "kv_memory"):
        has_default = has_default and options.get(name) is None
    if not has_default:
        return Default(engine, weights_dtype, note)
    usual = usual_type(model)
    if not _problem(model, usual, options.get("kv_dtype"), gpu):
        weights_dtype = usual
    is_only_host = gpu is not None and _is_only_host(gpu)
    named = engine if is_default and not is_only_host else None
    return Default(engine, weights_dtype, note or _note_on_defaults(named, weights_dtype, gpu))


def _default_engine(
    model: ModelSpec, options: Mapping[str, Any], gpu: Gpu | None
) -> tuple[str, str]:
    """Return the engine if none is given, and why, if it is not the usual one of the GPU."""
    is_gguf = model.stored is not None and model.stored.kind == "GGUF"
    of_kind = _FILES if gpu is not None and gpu.runs_files else DEFAULT_ENGINE
    if choice := engine_of_options(options):
        if choice.engine == of_kind:
            return choice.engine, ""
        title = find_engine(choice.engine).title
        reason = f"only {title} has {choice.option}"
        usual = find_engine(of_kind)
        if choice.option in arguments_of(of_kind, usual.title, None).by_name:
            reason = f"{usual.title}'s {choice.option} is not computed"
        return choice.engine, f"--engine {choice.engine} is chosen: {reason}."
    if options.get("weights_dtype") in FILE_TYPES or is_gguf or (gpu and _is_only_host(gpu)):
        return _FILES, ""
    if options.get("kv_memory") is not None or of_kind == DEFAULT_ENGINE:
        return DEFAULT_ENGINE, ""
    if lacking := _lacking(model, options, gpu):
        return DEFAULT_ENGINE, f"--engine {DEFAULT_ENGINE} is chosen: {lacking}."
    return _FILES, ""


def _is_only_host(gpu: Gpu) -> bool:
    """Return whether vLLM's memory is not known there: on a Mac, and without GPUs."""
    return gpu.vendor == "Apple" or gpu.is_cpu


def usual_type(model: ModelSpec) -> str | None:
    """Return the type in which a model's GGUF file is mostly used; None for a GGUF file, and for
    other weights.

    That is q4_k_m of 16 bits or more, and MXFP4 as it was released.
    """
    if model.stored is not None and model.stored.kind == "GGUF":
        return None
    released = model.weights_dtype or model.experts_dtype
    if released == "mxfp4":
        return released
    is_quantized = released or model.quantization or model.unread_quantization
    if is_quantized:
        return None
    return _USUAL_TYPE


def _note_on_defaults(engine: str | None, weights_dtype: str | None, gpu: Gpu | None) -> str:
    """Return which of both are defaults of the kind of GPU, and what sets others; '' if none is."""
    found = {"engine": engine, "weights_dtype": weights_dtype}
    names = [f"{long_option(name)} {value}" for name, value in found.items() if value]
    if not names:
        return ""
    verb = "are the defaults" if len(names) == 2 else "is the default"
    place = "CPU" if gpu and gpu.is_cpu else "GPU"
    if weights_dtype:
        other = "--quants lists other types"
    else:
        other = f"--engine {DEFAULT_ENGINE} is vLLM's answer"
    return f"{' and '.join(names)} {verb} on this {place}. {other}."


def _lacking(model: ModelSpec, options: Mapping[str, Any], gpu: Gpu | None) -> str:
    """Return what llama.cpp lacks of a model and options, as a sentence without its end; '' if
    nothing.
    """
    names = options_of(DeploymentOptions) | options_of(EngineOptions)
    title = find_engine(_FILES).title
    for field, option in names.items():
        is_given = options.get(field) not in (None, False)
        of_others = field in EngineOptions.__annotations__ and not _has(_FILES, field)
        if is_given and (of_others or field in _NOT_FILES):
            return f"{title} has no {option.name}"
    weights_dtype = options.get("weights_dtype")
    released = model.weights_dtype or model.experts_dtype
    is_released = weights_dtype == released == "mxfp4"
    if weights_dtype not in (None, *WIDE_TYPES, *FILE_TYPES) and not is_released:
        return f"{title} has no weights in {weights_dtype}"
    is_typed = weights_dtype is not None or options.get("dtype") is not None
    if not is_typed and usual_type(model) is None:
        return f"{title} has no weights in {released or 'the dtype of this checkpoint'}"
    return _problem(model, weights_dtype or usual_type(model), options.get("kv_dtype"), gpu)


def _problem(
    model: ModelSpec, weights_dtype: str | None, kv_dtype: str | None, gpu: Gpu | None
) -> str:
    """Return why llama.cpp does not load a model, or has no such cache; '' if it does.

    All GPUs have the same answer.
    """

    def problem() -> str:
        source = 1 if model.encoder else None
        workload = Workload.decode(1, 1, source=source, kv_dtype=kv_dtype)
        try:
            request = FitRequest(model, workload, _FILES, gpu, weights_dtype=weights_dtype)
            Deployment(resolve(request))
        except AttncalcError as error:
            return error.message
        return ""

    return model.kept(("problem", _FILES, weights_dtype, kv_dtype), problem)


def _of_variables(words: LaunchWords, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the options that the engine's environment variables stand for, without those that are
    given.
    """
    fields = {option.name: field for field, option in options_of(FitOptions).items()}
    found: dict[str, str] = {}
    for variable, name in words.environment.items():
        if isinstance(name, str) and variable in os.environ:
            found[fields[name]] = os.environ[variable]
    return {field: value for field, value in found.items() if options.get(field) is None}


def default_context(words: LaunchWords, device: Any, gpus: Any, model: str | None) -> str:
    """Return the tokens of context that an engine takes by the memory of the GPUs.

    Ollama never takes more than the model was trained for
    (https://github.com/ollama/ollama/pull/1971).

    Raises AttncalcError if there is no such GPU.
    """
    assert words.context is not None
    number, gpu = (None, device) if isinstance(device, Gpu) else gpus_of(str(device))
    context = words.context((number or int(gpus or 1)) * gpu.memory)
    name, _ = with_file_type(model or "")
    longest = load(name).max_context if preset_of(name) else None
    return str(min(context, longest or context))
