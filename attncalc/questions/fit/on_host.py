"""Which layers and experts a GGUF file leaves on the host, and which context then fits."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...engines import find_engine
from ...engines.llamacpp.options import first_layers
from ...errors import AttncalcError
from ...ggml import FILE_TYPES
from ...hardware import MOST_RAM_AT_DESKS
from ...model import ModelSpec
from ...options import options_of
from ...serving.fit import LEAST_CONTEXT, USEFUL_CONTEXT, possible_verdict, with_longest_context
from ...serving.offload import with_least_offload
from ...serving.request import FitRequest
from ...units import count, is_auto, long_option
from .options import ALL, EngineOptions


def with_needed_offload(
    request: FitRequest, options: Mapping[str, Any], *, is_compared: bool = False
) -> FitRequest:
    """Return the request with the layers on the host that the GPU has no room for, as llama.cpp
    starts a GGUF file.

    `is_compared` is as in `read_fit_request`.
    """
    if not _starts_from_file(request, options, is_compared=is_compared):
        return request
    context = options.get("context")
    longest = is_auto(context)
    if context is not None and not longest:
        # llama.cpp leaves on the host what the GPU has no room for, if that memory is known
        found = partly_on_host(request, options) if options.get("ram") else None
        return found or request
    found = partly_on_host(request, options, LEAST_CONTEXT)
    if found or longest:
        return found or request
    return _which_context(request)


def _starts_from_file(
    request: FitRequest, options: Mapping[str, Any], *, is_compared: bool
) -> bool:
    """Return whether llama.cpp starts the request with one GGUF file on a known GPU."""
    if request.gpu is None or request.kv_memory is not None or request.traffic:
        return False
    if request.engine == ALL or not find_engine(request.engine).typed_files:
        return False
    if str(options.get("weights_dtype")).lower() in FILE_TYPES:
        return True
    stored = request.model.stored
    if stored is not None and stored.kind == "GGUF":
        return True
    is_one = options.get("batch") is None or request.workload.batch == 1
    return request.gpu.runs_files and is_one and not is_compared


def _which_context(request: FitRequest) -> FitRequest:
    """Return the request of a GGUF file without --context with the longest that fits; a useful one
    if none does.
    """
    answer = with_longest_context(request)
    own = request.workload.context
    longest = 0 if answer is request else answer.workload.context
    is_sure = possible_verdict(answer) == "fits"
    if is_sure or longest >= min(LEAST_CONTEXT, own):
        context = longest
    else:
        context = min(USEFUL_CONTEXT, own)
    if context == own:
        return answer
    typed = _typed_context(request, context)
    if not longest:
        note = f"{typed} is assumed: no context fits."
    elif context != longest:
        note = f"{typed} is assumed: no more than {count(longest)} tokens may fit."
    else:
        fits = "is sure to fit" if is_sure else "may fit"
        note = (
            f"{typed} is the longest that {fits}; the model's own is {count(own)}. -c sets another."
        )
    return request.with_workload(context=context, assumed=(*request.workload.assumed, note))


def _typed_context(request: FitRequest, context: int) -> str:
    """Return the option with a context of each request: the slots of -np share -c."""
    slots = 1 if request.batch_is_given else request.workload.batch
    if slots == 1:
        return f"--context {count(context)}"
    return f"--context {count(context * slots)}, {count(context)} for each of {slots} slots,"


def partly_on_host(
    request: FitRequest, options: Mapping[str, Any], most: int | None = None
) -> FitRequest | None:
    """Return a desk's request with the layers on the host that its context needs, of which `most`
    tokens are counted.

    None if none need to be there, or if the request places them. '-ngl auto' chooses which option
    places them.
    """
    context = min(most or request.workload.context, request.workload.context)
    ram = request.engine_args.get("ram")
    gpu = request.gpu
    names = find_engine(request.engine).offload_options
    if not names or gpu is None or gpu.unified or not gpu.runs_files:
        return None
    args = {
        name: value for name, value in request.engine_args.items() if not is_auto(options.get(name))
    }
    if any(args.get(name) is not None for name in (*names, "override_tensor")):
        return None
    least = dataclasses.replace(request, engine_args={**args, "ram": ram or MOST_RAM_AT_DESKS})
    least = least.with_workload(context=context)
    if possible_verdict(least) == "fits":
        return None
    chosen = [name for name in names if is_auto(options.get(name))]
    for name in chosen or names:
        found = with_least_offload(least, name)
        if found is None:
            continue
        placed = f"{long_option(name)} {found.engine_args[name]}"
        why = "assumed: all layers on the GPU leave room for less."
        if most:
            note = f"{placed} and {_typed_context(request, context)} are {why}"
        else:
            note = f"{placed} is {why}"
        return found.with_engine_args(ram=ram).with_workload(
            assumed=(*request.workload.assumed, note)
        )
    return None


def check_offload(options: Mapping[str, Any], model: ModelSpec) -> None:
    """Raise AttncalcError if an option divides the model between GPUs and host, and there is no
    GPU.

    -ngl 99 divides no model of fewer layers: people type it for all of them.
    """
    if options.get("gpu") is not None:
        return
    for name, option in options_of(EngineOptions).items():
        value = options.get(name)
        if value is None or value is False or not option.needs_gpu:
            continue
        is_number = name == "n_gpu_layers" and str(value).isdecimal()
        if is_number and int(str(value)) > model.main.n_layers:
            continue
        raise AttncalcError(f"{option.name} needs --gpu", "give the GPU, as --gpu rtx-4090")


def check_experts_on_host(model: ModelSpec, values: Mapping[str, Any], *, is_logged: bool) -> None:
    """Raise AttncalcError if an option places experts on the host, and the model has none.

    llama.cpp starts with such an option and places nothing, so a log with one is read.
    """
    name = places_experts(values)
    if name and not model.has_experts and not is_logged:
        raise AttncalcError(
            f"{long_option(name)} needs a mixture of experts, which this model is not",
            "leave it out: -ngl leaves layers on the host",
        )


def places_experts(values: Mapping[str, Any]) -> str:
    """Return the first option that places experts on the host, as 'cpu_moe'; '' if none does."""
    moves = {name: bool(int(values.get(name) or 0)) for name in ("cpu_moe", "n_cpu_moe")}
    moves["override_tensor"] = bool(first_layers(str(values.get("override_tensor") or "")))
    return next((name for name, is_moved in moves.items() if is_moved), "")
