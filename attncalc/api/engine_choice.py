"""Which engine is meant if --engine is not given: by the other options, or by a name in Ollama's library."""

import os
import re
from collections.abc import Mapping
from typing import Any

from ..config import load
from ..config.gpus import gpus_of
from ..config.presets import ollama_name, preset_of, with_file_type
from ..engines import DEFAULT_ENGINE, ENGINES, RUNNERS, find_engine, is_runner
from ..engines.engine import AUTO
from ..engines.launch import LM_STUDIO
from ..engines.pasted import LaunchWords
from ..ggml import FILE_TYPES
from ..hardware import Gpu
from ..model import ModelSpec
from ..options import GIBIBYTES, options_of
from ..records import NamedTuple
from ..serving.weight_format import released_dtype
from ..serving.weights import weights as weights_of
from ..units import GIB, is_auto, long_option
from .fit_options import DeploymentOptions, EngineOptions, FitOptions, UserOptions

NOT_OLLAMA = frozenset({"engine", "tp", "pp", "dp", "dcp", "attn_dp", "gpu_memory_utilization"})
"""Options with which a name of Ollama's library is only another spelling: Ollama has none of them."""


_RANKS = ("attn_dp", "enable_dp_attention")
"""Options of the deployment that only engines with ranks of attention have."""


class Choice(NamedTuple):
    """An engine that an option chooses."""

    engine: str
    option: str


def engine_of_options(options: Mapping[str, Any]) -> Choice | None:
    """Return the engine that alone has all of the options given, and the first of them that others lack.

    None if several engines have all of them, or none has.
    """
    declared = options_of(EngineOptions) | options_of(DeploymentOptions)
    given = [name for name in declared if options.get(name) not in (None, False)]
    own = [name for name in given if name in EngineOptions.__annotations__ or name in _RANKS]
    if not own:
        return None
    engines = [name for name in ENGINES if all(_has(name, field) for field in own)]
    if len(engines) != 1:
        return None
    deciding = next((field for field in own if sum(_has(name, field) for name in ENGINES) == 1), own[0])
    return Choice(engines[0], declared[deciding].name)


def _has(engine: str, field: str) -> bool:
    found = find_engine(engine)
    if field in _RANKS:
        return "attn_dp" in found.splits
    return any(field in group.__annotations__ for group in found.options)


def ollama_options(model: str, options: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the options that a name in Ollama's library implies, and a note about them; {} and '' for another name.

    `gemma2:9b` is run by llama.cpp with weights in q4_k_m, and with a context by the memory of the GPUs; so is any
    model with --engine ollama. Options that are given decide instead, then Ollama's environment variables. An engine or
    a dtype that Ollama lacks means that only the model is named so.
    """
    name, file_type = with_file_type(model)
    weights, runner = options.get("weights_dtype"), is_runner(options.get("engine"))
    is_known = preset_of(name) is not None and not os.path.exists(name)
    is_tag = re.fullmatch(r"[\w.-]+:[\w.-]+", name) and is_known
    of_others = NOT_OLLAMA & options.keys() - {"engine" if runner else ""}
    if not (is_tag or runner) or of_others or (weights and str(weights).lower() not in FILE_TYPES):
        return {}, ""
    engine, words = next(
        (engine, words) for engine in ENGINES for words in find_engine(engine).commands if words.context
    )
    choice = engine_of_options(options)
    if choice and choice.engine != engine:
        return {}, ""
    found: dict[str, Any] = {"engine": engine, **_of_variables(words, options)}
    if not weights and not file_type and is_known and (implied := words.of_model(model.rpartition("/")[2])):
        found["weights_dtype"] = implied[1]
    of_context = {"context", "kv_memory", *UserOptions.__annotations__}
    names = options_of(FitOptions)
    if of_context.isdisjoint({*options, *found}):
        # Without a GPU, the least that Ollama takes; LM Studio always takes as many
        device = (not _is_lm_studio(options) and options.get("gpu")) or "1GiB"
        named = None if _is_lm_studio(options) else name_for_ollama(model, options)
        found["context"] = default_context(words, device, options.get("gpus"), named or model)
    if options.get("gpu") is not None and not is_auto(options.get("context")):  # auto: the longest on the GPU alone
        option, value = words.placed
        found |= {field: value for field, known in names.items() if known.name == option and field not in options}
    shown = " ".join(f"{names[field].name} {value}" for field, value in found.items())
    title = "LM Studio" if _is_lm_studio(options) else "Ollama"
    return found, f"{shown}: as {title} runs {model}; --engine {DEFAULT_ENGINE} runs it as released."


def name_for_ollama(model: str, options: Mapping[str, Any]) -> str | None:
    """Return a model's name in Ollama's library: 'qwen3:8b' of qwen3-8b; None for a file. LM_STUDIO if that runs it.

    None with a number of layers too: Ollama has no environment variable for it.
    """
    if _is_lm_studio(options):
        return LM_STUDIO
    name, _ = with_file_type(model)
    if options.get("n_gpu_layers") not in (None, AUTO) or preset_of(name) is None:
        return None
    return model if ":" in name else ollama_name(name)


def _is_lm_studio(options: Mapping[str, Any]) -> bool:
    return "studio" in str(options.get("engine")).lower()


def desktop_options(model: ModelSpec, options: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return q4_k_m and llama.cpp for weights that take over 3/4 of a desktop's or laptop's card, or a Mac; and a note.

    {} and '' if the options name other weights, or another engine. Weights as released in MXFP4 stay so: files have it.
    """
    engine, released = RUNNERS["ollama"], released_dtype(model)
    others = (NOT_OLLAMA - {"engine"}) | {"gpus", "weights_dtype", "dtype", "prompt", "lengths", "kv_memory"}
    given = {name for name, value in options.items() if value is not None}
    choice, kv_dtype = engine_of_options(options), str(options.get("kv_dtype", "auto")).lower()
    is_open = given.isdisjoint(others) and (choice is None or choice.engine == engine) and released in (None, "mxfp4")
    has_dtype = kv_dtype in ("auto", "fp16", "f16", "bf16", *FILE_TYPES)
    is_llamacpp = has_dtype and str(options.get("engine", engine)) in (engine, "llama.cpp")
    if not (is_open and is_llamacpp and "gpu" in given) or model.stored or model.unread_quantization:
        return {}, ""
    number, gpu = gpus_of(str(options["gpu"]))
    size = int(weights_of(model, weights_dtype=released).total)
    memory = (number or 1) * gpu.memory
    if gpu.is_cpu and "ram" in given:
        memory = GIBIBYTES.parse(str(options["ram"]), "--ram")
    names = {"engine": engine} if "engine" not in given and gpu.vendor != "Apple" and not gpu.is_cpu else {}
    found = names if released else {**names, "weights_dtype": "q4_k_m"}
    if (number or 1) > 2 or not (found and gpu.runs_files) or 4 * size <= 3 * memory:  # more cards are a server's
        return {}, ""
    room = f"{'are larger than' if size > memory else 'leave little of'} the {'memory' if gpu.is_cpu else 'GPU'}"
    note = f"the weights as released, {size / GIB:.1f} GiB, {room}"
    text = " and ".join(f"{long_option(name)} {value}" for name, value in found.items())
    of_other = "the answer for vLLM" if released else "the model as released"
    other = f"; --engine {DEFAULT_ENGINE} is {of_other}" if names else ""
    return found, f"{text}: {note}. --quants lists other types{other}."


def _of_variables(words: LaunchWords, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the options that the engine's environment variables stand for, without those that are given."""
    fields = {option.name: field for field, option in options_of(FitOptions).items()}
    found = {
        fields[name]: os.environ[variable]
        for variable, name in words.environment.items()
        if isinstance(name, str) and variable in os.environ
    }
    return {field: value for field, value in found.items() if options.get(field) is None}


def default_context(words: LaunchWords, device: Any, gpus: Any, model: str | None) -> str:
    """Return the tokens of context that an engine takes by the memory of the GPUs.

    Ollama never takes more than the model was trained for (https://github.com/ollama/ollama/pull/1971).

    Raises AttncalcError if there is no such GPU.
    """
    assert words.context is not None
    number, gpu = (None, device) if isinstance(device, Gpu) else gpus_of(str(device))
    context = words.context((number or int(gpus or 1)) * gpu.memory)
    name, _ = with_file_type(model or "")
    longest = load(name).max_context if preset_of(name) else None
    return str(min(context, longest or context))
