"""From the options of `attncalc fit` to a FitRequest."""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from ...config import ModelLike, load
from ...config.presets import (
    checkpoints,
    is_family_and_size,
    preset_of,
    repository_of,
    unquantized,
    with_file_type,
)
from ...engines import DEFAULT_ENGINE, ENGINES, find_engine
from ...engines.launch import LM_STUDIO
from ...engines.llamacpp.options import ALL_LAYERS, Projector, first_layers
from ...errors import AttncalcError, clash, is_valid
from ...ggml import FILE_TYPES
from ...hardware import MOST_RAM_AT_DESKS, Gpu
from ...model import ModelSpec
from ...options import options_of, parsed
from ...serving.fit import (
    LEAST_CONTEXT,
    NO_LIMIT,
    USEFUL_CONTEXT,
    possible_verdict,
    with_longest_context,
)
from ...serving.offload import with_auto_offload, with_least_offload
from ...serving.request import FitRequest, resolve
from ...serving.traffic import USUAL, Traffic, usual_lengths
from ...serving.weight_format import released_dtype
from ...show.answer_rows import answers_of
from ...units import BYTES, count, dtype, human, is_auto, long_option, truncate
from ..inputs import read_model, read_workload, with_revision
from ..options import CacheDtypeOptions, ModelOptions, SizeOptions, WhatIfOptions
from .engine_choice import default_deployment, name_for_ollama, ollama_options
from .options import ALL, DeploymentOptions, EngineOptions, FitOptions, UserOptions

# The types that --quants leaves out: another one is about as large, or better, or answers suffer
# too much.
_UNRANKED = {
    "q5_1",
    "q5_0",
    "q4_1",
    "q4_0",
    "q3_k_l",
    "q3_k_s",
    "iq4_nl",
    "iq3_s",
    "iq3_xs",
    "iq2_s",
    "iq2_xs",
    "iq1_m",
    "iq1_s",
}
# The model in a launch command if it has no name or path that an engine could load.
UNNAMED = "MODEL"


class _ServingOptions(DeploymentOptions, UserOptions, EngineOptions, total=False):
    """The options of `fit` that are neither the model's nor the workload's."""


def fit_question(
    options: Mapping[str, Any], *, has_model: bool
) -> Literal["what_fits", "vram", "all", "fit"]:
    """Return what `attncalc fit` is asked: which models or GPUs fit, how much memory is needed, or
    an engine's answer.

    Args:
        options: The options of the command; what is None is not given.
        has_model: Whether a model is named, or described by its sizes.

    Returns:
        'what_fits' for many models or GPUs, 'vram' without a GPU, 'all' for every engine, or else
        'fit'.
    """
    gpu = options.get("gpu")
    if options.get("kv_memory") is None:
        if gpu is None:
            return "vram"
        if gpu == ALL or not has_model:
            return "what_fits"
    if options.get("engine") == ALL:
        return "all"
    return "fit"


def read_fit_request(
    model: ModelLike | None, options: FitOptions, *, is_compared: bool = False
) -> FitRequest:
    """Return the request that the options of `attncalc fit` describe. Without a model, they have
    its sizes.

    With `is_compared`, answers of many GPUs or models are compared, and a desktop's GPU has the
    usual context too.

    Raises AttncalcError if there is no such model, or as `fit_request` does.
    """
    implied, note = options_of_name(model, options)
    of_ollama = {"ollama": name_for_ollama(str(model), options) if note else None}
    options = {**options, **implied}  # type: ignore[typeddict-item]
    spec = read_model(_release_of_ollama(model, of_ollama["ollama"]), options, ModelOptions)
    check_offload(options, spec)
    return _completed_request(
        model, spec, options, of_ollama["ollama"], note, is_compared=is_compared
    )


def requests_of_engines(
    model: ModelLike | None, options: FitOptions, request: FitRequest
) -> dict[str, FitRequest | AttncalcError]:
    """Return the request, or the error, of each engine: that of the same options with --engine
    NAME.

    `request` is that of these options with --engine all. Its context is every engine's if none is
    given.
    """
    found: dict[str, FitRequest | AttncalcError] = {}
    context = options.get("context") or f"{request.workload.context}"
    for name in ENGINES:
        of_engine: FitOptions = {**options, "engine": name, "context": context}
        try:
            found[name] = _completed_request(model, request.model, of_engine)
        except AttncalcError as error:
            found[name] = error
    return found


def _completed_request(
    model: ModelLike | None,
    spec: ModelSpec,
    options: FitOptions,
    ollama: str | None = None,
    note: str = "",
    *,
    is_compared: bool = False,
) -> FitRequest:
    """Return the request of options with all that the model's name implies, if it does, with a note
    on it.

    `ollama` is the model's name in Ollama's library, if Ollama runs it. `is_compared` is as in
    `read_fit_request`.
    """
    served = served_fields(model, spec, options) | {"ollama": ollama}
    served["batch_is_given"] = options.get("batch") is not None
    request = fit_request(spec, options, served)
    if ollama is not None:
        request = _with_own_projector(request)
    if note:
        request = request.with_workload(assumed=(*request.workload.assumed, note))
    return with_needed_offload(request, options, is_compared=is_compared)


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
    if request.engine == "all" or not find_engine(request.engine).typed_files:
        return False
    if str(options.get("weights_dtype")).lower() in FILE_TYPES:
        return True
    stored = request.model.stored
    if stored is not None and stored.kind == "GGUF":
        return True
    is_one = options.get("batch") is None or request.workload.batch == 1
    return request.gpu.runs_files and is_one and not is_compared


def _release_of_ollama(model: ModelLike | None, tag: str | None) -> ModelLike | None:
    """Return the name of the release that Ollama runs: its 'qwen2.5:7b' is Instruct, with a shorter
    context.
    """
    is_same = (
        tag not in (None, LM_STUDIO)
        and isinstance(model, str)
        and preset_of(tag) == preset_of(model)
    )
    if tag and is_same:
        return tag
    return model


def _with_own_projector(request: FitRequest) -> FitRequest:
    """Return the request with the towers of a multimodal model, which Ollama's and LM Studio's
    models contain in fp16.

    A reserve replaces them, as all of the runtime memory.
    """
    towers = sum(tower.params for tower in request.model.towers)
    if not towers or request.reserve is not None or request.engine_args.get("mmproj"):
        return request
    return request.with_engine_args(mmproj=Projector("", towers * dtype("fp16").bits // 8))


def options_of_name(
    model: ModelLike | None, options: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """Return the options that a model's name implies, as q4_k_m of 'llama3.1-8b:q4_k_m', and a note
    on Ollama's.

    Raises AttncalcError if --weights-dtype is another type than that of the name.
    """
    if not isinstance(model, str):
        return {}, ""
    name, file_type = with_file_type(model)
    typed = options.get("weights_dtype")
    # GGUF's f16 is fp16
    is_other = str(typed).lower().replace("fp", "f") != str(file_type).replace("fp", "f")
    if file_type and typed is not None and is_other:
        raise clash(
            f"--weights-dtype {truncate(str(typed))}",
            f"{truncate(model)}, whose weights are in {file_type}",
            f"name the model without a type: {truncate(name)}",
        )
    of_file = {"weights_dtype": file_type} if file_type and typed is None else {}
    implied, note = ollama_options(model, {**options, **of_file})
    return {**of_file, **implied}, note


def served_fields(
    model: ModelLike | None, spec: ModelSpec, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what an engine loads, as fields of FitRequest: UNNAMED if no engine could load the
    model.
    """
    if model is None or any(options.get(name) for name in WhatIfOptions.__annotations__):
        return {"served_model": UNNAMED}
    named = with_revision(model, options.get("revision"))
    if isinstance(named, str | os.PathLike):
        is_preset = isinstance(named, str) and not os.path.exists(named) and preset_of(named)
        known = {"checkpoints": checkpoints(spec.name)} if is_preset else {}
        return served_model(os.fspath(named), spec) | known
    if isinstance(model, ModelSpec):
        return {}
    return {"served_model": UNNAMED}


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


def read_quants(model: ModelLike, options: FitOptions) -> list[tuple[str, FitRequest]]:
    """Return (name, request) of each type of GGUF files that llama.cpp has for the model, or of
    each file of a folder.

    Types that do not suit the model's widths are left out. Raises AttncalcError as
    `read_fit_request` does, and if there is none.
    """
    from ...config.gguf.files import local_models, model_name

    options = {"context": f"{USEFUL_CONTEXT}", **options}
    files = local_models(model) if isinstance(model, str) else []
    if files:
        return [(model_name(path.name), read_fit_request(str(path), options)) for path in files]
    spec = read_model(model, options, ModelOptions)
    served = None if isinstance(model, str) else UNNAMED

    def in_type(name: str) -> tuple[str, FitRequest]:
        request = read_fit_request(spec, {**options, "weights_dtype": name})
        resolve(request)  # raises the error of an engine
        return name, dataclasses.replace(request, served_model=served)

    ranked = [name for name in FILE_TYPES if name not in _UNRANKED]
    found, errors = answers_of(ranked, in_type)
    if found:
        return found
    if errors:
        raise errors[0]
    raise AttncalcError(f"{truncate(spec.name)} has no type of GGUF files", "leave --quants out")


def fit_request(
    model: ModelSpec,
    options: Mapping[str, Any],
    served: Mapping[str, Any] = MappingProxyType({}),
    *,
    is_logged: bool = False,
) -> FitRequest:
    """Return the request that the options of `attncalc fit` describe. Without a model, they have
    its sizes.

    With `is_logged` an engine was started so: its share is then its default, unless one is given.
    Raises AttncalcError if an option cannot be parsed, a name in it is unknown, or two options
    exclude each other.
    """
    values = _with_ram_of_mac(parsed(options, _ServingOptions))
    is_of_ollama = served.get("ollama") not in (None, LM_STUDIO)
    all_values = values | parsed(options, CacheDtypeOptions)
    deployment, chosen = _deployment(
        model, all_values, is_logged=is_logged, is_of_ollama=is_of_ollama
    )
    _check_experts_on_host(model, values, is_logged=is_logged)
    engine_args = _engine_args(_of(EngineOptions, values)) | _found_ram(values, deployment)
    size = _of(SizeOptions, _given(options))
    longest = is_auto(size.get("context"))
    if longest:
        del size["context"]
    if deployment["engine"] != "all":
        size = _size_of_engine(deployment["engine"], size, engine_args)
    traffic, assumed = _traffic(
        model, _of(UserOptions, values), parsed(size, SizeOptions).get("context")
    )
    notes = [note for note in (chosen, assumed) if note]
    if traffic and "context" not in size and not (is_logged or longest):
        size["context"] = min(int(traffic.worst_tokens), model.max_context or NO_LIMIT)
        notes.append(
            f"--context {size['context']} is the length of these requests; -c sets another."
        )
    dtypes = {name: options.get(name) for name in CacheDtypeOptions.__annotations__}
    request = FitRequest(
        model=model,
        workload=read_workload(model, {**size, **dtypes}),
        traffic=traffic,
        ram_is_given="ram" in values,
        **_draft_fields(engine_args),
        **{**served, **deployment, **_given_checkpoint(values)},
        engine_args=engine_args,
    )
    if not is_logged:
        _check_math_dtype(request)
    request = with_auto_offload(request.with_workload(assumed=(*request.workload.assumed, *notes)))
    if longest:
        return _at_longest_context(request)
    return request


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _size_of_engine(
    engine: str, size: Mapping[str, Any], engine_args: dict[str, Any]
) -> dict[str, Any]:
    """Return batch and context as the engine counts them; its slots, which are then the batch,
    leave `engine_args`.
    """
    found = dict(find_engine(engine).sizes(size, engine_args))
    if "batch" in found and "batch" not in size:  # '-c 8192 -np 4' is '-c 2048 --batch 4'
        engine_args.pop("sequences", None)
    return found


def _check_math_dtype(request: FitRequest) -> None:
    """Raise AttncalcError if the GPU lacks the dtype, as one without bf16 for --dtype bf16."""
    if request.gpu is None or request.engine == "all":
        return
    if find_engine(request.engine).dtype_of_fp32:
        request.gpu.math_dtype(request.workload.dtype, "")


def _at_longest_context(request: FitRequest) -> FitRequest:
    """Return the request with the longest context that fits, and a note if it may not fit.

    Raises AttncalcError with --engine all.
    """
    if request.engine == "all":
        raise clash(
            "--context auto", "--engine all", "name one engine: each has another longest context"
        )
    answer = with_longest_context(request)
    if possible_verdict(answer) != "may_not_fit":
        return answer
    note = (
        f"--context {count(answer.workload.context)} is the longest that may fit: none is sure to."
    )
    return answer.with_workload(assumed=(*answer.workload.assumed, note))


def engine_and_weights(model: ModelSpec, options: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the engine and the dtype of weights of a request, None for those as released.

    Raises AttncalcError as `fit_request` does.
    """
    values = _with_ram_of_mac(parsed(options, _ServingOptions))
    deployment, _ = _deployment(model, values | parsed(options, CacheDtypeOptions), is_logged=False)
    return deployment["engine"], deployment.get("weights_dtype")


def _given_checkpoint(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return --served-model as a checkpoint in --weights-dtype, as fields of FitRequest.

    One whose name has the dtype, as org/name-FP8, is not converted to it; another one may be, if
    the engine can.
    """
    served = values.get("served_model")
    weights_dtype = values.get("weights_dtype")
    if served is None or weights_dtype is None:
        return {}
    fields = {"checkpoints": {weights_dtype: served}}
    copy = unquantized(served)
    if copy is not None and copy[1] == weights_dtype:
        fields["checkpoint"] = served
    return fields


def _with_ram_of_mac(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with a Mac of the memory in --ram, which is the GPU's too: '--gpu m2 --ram
    16GB'.
    """
    from ...config.gpus import gpus_of, with_ram

    text = values.get("gpu")
    ram = values.get("ram")
    if ram is None or not isinstance(text, str):
        return {**values}
    number, device = gpus_of(text)
    if device.vendor != "Apple":
        return {**values}
    found = {name: value for name, value in values.items() if name != "ram"}
    found["gpu"] = with_ram(device, ram)
    if number:
        found["gpus"] = number
    return found


def _of(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in kind.__annotations__ if name in values}


def _traffic(
    model: ModelSpec, values: Mapping[str, Any], context: int | None
) -> tuple[Traffic | None, str]:
    """Return the users' requests, None if there are none, and a note on the usual lengths that they
    have.

    Raises AttncalcError if options exclude each other.
    """
    if not values:
        return None, ""
    names = {field: option.name for field, option in options_of(UserOptions).items()}
    if "lengths" in values:
        for field in ("prompt", "output"):
            if field in values:
                raise clash("--lengths", names[field], "the lengths include prompt and output")
        return Traffic(**values), ""
    lengths = usual_lengths(
        values.get("prompt"), values.get("output"), context, model.max_context or NO_LIMIT
    )
    found = dict(zip(("prompt", "output"), lengths, strict=True))
    traffic = Traffic(**{**values, **found})
    usual = [
        f"{names[field]} {USUAL.get(tokens, tokens)}"
        for field, tokens in found.items()
        if field not in values
    ]
    if not usual:
        return traffic, ""
    if len(usual) == 1:
        return traffic, f"{usual[0]} is assumed."
    return traffic, f"{' and '.join(usual)} are assumed."


def _deployment(
    model: ModelSpec, values: Mapping[str, Any], *, is_logged: bool, is_of_ollama: bool = False
) -> tuple[dict[str, Any], str]:
    """Return where the model runs, as fields of FitRequest, and a note if an option chose the
    engine.
    """
    deployment = _of(DeploymentOptions, values)
    note = ""
    if "gpu" in deployment and not isinstance(deployment["gpu"], Gpu):
        deployment |= _gpus(str(deployment["gpu"]), deployment.get("gpus"), values.get("ram"))
    device = _with_other_memory(deployment)
    if is_logged:
        deployment.setdefault("engine", DEFAULT_ENGINE)
    else:
        found, note = _engine_and_weights(model, {**values, **deployment}, device)
        if is_of_ollama:  # its library has types of its own: other matrices of gpt-oss are in bf16
            found = {"engine": found["engine"]}
            note = ""
        deployment |= found
        stages, why = _stages(model, deployment)
        if stages > 1:
            deployment["pp"] = stages
            note = f"{note} --pp {stages} is chosen: {why}.".lstrip()
    if "mem_fraction_static" in values:
        deployment |= _static_share(deployment, values["mem_fraction_static"])
    if deployment.pop("enable_dp_attention", False):
        deployment |= _ranks_of_attention(deployment)
    if not is_logged and device and device.counts_host_memory and deployment["engine"] != "all":
        share = find_engine(deployment["engine"]).share_of_unified
        if share and deployment.get("kv_memory") is None:
            deployment.setdefault("gpu_memory_utilization", share)
    return deployment, note


def _engine_and_weights(
    model: ModelSpec, options: Mapping[str, Any], device: Gpu | None
) -> tuple[dict[str, Any], str]:
    """Return the engine and the dtype of weights, given or by default, as fields; and a note."""
    default = default_deployment(model, options, device)
    weights_dtype = default.weights_dtype
    has_files = default.engine != "all" and find_engine(default.engine).typed_files
    if device and has_files and weights_dtype is None and released_dtype(model) == "mxfp4":
        weights_dtype = "mxfp4"  # the usual file
    of_weights = {} if weights_dtype is None else {"weights_dtype": weights_dtype}
    return {"engine": default.engine, **of_weights}, default.note


def _stages(model: ModelSpec, deployment: Mapping[str, Any]) -> tuple[int, str]:
    """Return the number of pipeline stages by default, as 3 where 3 GPUs divide no heads, and
    why.
    """
    gpus = deployment.get("gpus") or 1
    name = deployment["engine"]
    is_split = any(deployment.get(option) for option in ("tp", "pp", "dp", "dcp", "attn_dp"))
    if is_split or name == "all" or find_engine(name).splits_by_layer or gpus > model.main.n_layers:
        return 1, ""
    try:
        model.shard(gpus)
    except AttncalcError as error:
        has_smaller = any(gpus % n == 0 and is_valid(model.shard, n) for n in range(2, gpus))
        if has_smaller:
            return (1, "")
        return (gpus, error.message)
    return 1, ""


def _with_other_memory(deployment: dict[str, Any]) -> Gpu | None:
    """Return the GPU, which --other-memory is put into. Raises AttncalcError if it does not
    apply.
    """
    device: Gpu | None = deployment.get("gpu")
    other = deployment.pop("other_memory", None)
    if other is None:
        return device
    if device is None:
        raise AttncalcError("--other-memory needs --gpu", "give the GPU, as --gpu rtx-4090")
    if "reserve" in deployment:
        raise clash("--other-memory", "--reserve", "add it to --reserve")
    if other >= device.memory:
        raise AttncalcError(
            f"--other-memory {human(other, BYTES)} is all of the GPU's "
            f"{human(device.memory, BYTES)}",
            "give what other programs hold of it, as nvidia-smi shows before the start",
        )
    deployment["gpu"] = device = dataclasses.replace(device, other_memory=other)
    return device


def _static_share(deployment: Mapping[str, Any], share: Any) -> dict[str, Any]:
    """Return SGLang's share of the memory. Raises AttncalcError if another engine is named, or the
    share twice.
    """
    name = str(deployment["engine"])
    if name != "all" and find_engine(name).share_option != "--mem-fraction-static":
        find_engine(name).reject("mem_fraction_static")
    if "gpu_memory_utilization" in deployment:
        raise clash(
            "--mem-fraction-static", "--gpu-memory-utilization", "they are the same: give one"
        )
    return {"gpu_memory_utilization": share}


def _found_ram(values: Mapping[str, Any], deployment: Mapping[str, Any]) -> dict[str, Any]:
    """Return this machine's memory as --ram for its GPUs, if none is given and the engine leaves
    layers on the host.

    A Mac's GPU has its memory from the same.
    """
    gpu = deployment.get("gpu")
    engine = deployment["engine"]
    if gpu is None or not gpu.is_local or gpu.unified or "ram" in values or engine == "all":
        return {}
    # it starts programs, which other requests need not load
    from ...config.local import machine_memory

    if find_engine(engine).splits_by_layer:
        return {"ram": machine_memory()}
    return {}


def _ranks_of_attention(deployment: dict[str, Any]) -> dict[str, Any]:
    """Return --dp as --attn-dp, as SGLang does with --enable-dp-attention. Raises AttncalcError
    without --dp.
    """
    name = str(deployment["engine"])
    if name != "all" and not find_engine(name).ranks_share_tp:
        find_engine(name).reject("enable_dp_attention")
    if deployment.get("attn_dp"):
        return {}
    if not deployment.get("dp"):
        raise AttncalcError(
            "--enable-dp-attention needs --dp",
            "add --dp N, the number of ranks; or use --attn-dp N",
        )
    return {"attn_dp": deployment["dp"], "dp": 1}


def _gpus(text: str, gpus: int | None, ram: int | None) -> dict[str, Any]:
    """Return the GPU, and its number if the text has one, as in '2xh100'; the host with `ram` bytes
    for 'cpu'.

    Raises AttncalcError if the GPU is unknown, or has fewer than `gpus`.
    """
    from ...config.gpus import CPU, check_number, cpu, gpus_of

    if ram is not None and text.strip().lower() == CPU:
        return {"gpu": cpu(ram)}
    number, device = gpus_of(text)
    check_number(text, number, gpus, device.rented_gpus)
    # --gpus 2 uses 2 of 8xh100
    return {"gpu": device, "gpus": gpus or number, "gpus_there": number}


def _draft_fields(engine_args: dict[str, Any]) -> dict[str, Any]:
    """Return the draft model as fields of FitRequest; its name leaves `engine_args`."""
    name = engine_args.pop("speculative_model", None)
    if not name:
        return {}
    draft = _draft(name, engine_args.get("speculative_config"))
    return {"draft": draft, "served_draft": served_model(name, draft).get("served_model")}


def _draft(name: str, speculation: str | None) -> ModelSpec:
    """Return the draft model. `speculation` is the JSON of --speculative-config.

    Raises AttncalcError for a type of GGUF files, since only files have their weights in it, and
    for a draft of EAGLE with the class of a whole model: yuhuili/EAGLE-LLaMA3-Instruct-8B has
    LlamaForCausalLM, and vLLM renames it.
    """
    base, file_type = with_file_type(name)
    if file_type and preset_of(base) and not os.path.exists(name):
        raise AttncalcError(
            f"--speculative-model: attncalc does not compute a draft model in {file_type}",
            f"name its GGUF file, or leave the type out: --speculative-model {truncate(base)}",
        )
    draft = load(name)
    is_eagle = "eagle-" in name.lower() or json.loads(speculation or "{}").get("method") == "eagle"
    has_class_of_eagle = any(matrix.name == "fc" for matrix in draft.extra)
    if is_eagle and draft.model_type == "llama" and not has_class_of_eagle:
        raise AttncalcError(
            f"--speculative-model: {draft.title} has the class of a whole model, not of EAGLE",
            "give a copy of its config.json in which 'architectures' is EagleLlamaForCausalLM, "
            "as vLLM reads it",
        )
    return draft


def _check_experts_on_host(model: ModelSpec, values: Mapping[str, Any], *, is_logged: bool) -> None:
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


def _engine_args(args: dict[str, Any]) -> dict[str, Any]:
    """Return the engine's arguments, by the names of EngineArgs, and `speculative_model` as a name.

    --cpu-moe is --n-cpu-moe of all layers, and so is an --override-tensor of as many experts.
    --mmproj is the bytes of its file.

    Raises AttncalcError if both of the former are given, or the file is no projector.
    """
    args.pop("mem_fraction_static", None)  # it is of the deployment
    if args.pop("cpu_moe", False):
        if "n_cpu_moe" in args:
            raise clash("--cpu-moe", "--n-cpu-moe", "give one of them")
        args["n_cpu_moe"] = ALL_LAYERS
    moved = first_layers(args.get("override_tensor") or "")
    if moved:
        del args["override_tensor"]
        args["n_cpu_moe"] = max(moved, args.get("n_cpu_moe", 0))
    if "mmproj" in args:
        from ...config.gguf.model import projector_bytes

        path = os.fspath(args["mmproj"])
        args["mmproj"] = Projector(path, projector_bytes(path))
    return args


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


def served_model(name: str, spec: ModelSpec) -> dict[str, Any]:
    """Return what the engine loads, as fields of FitRequest: a folder, a file, or org/name on the
    hub.

    There are none for a preset or a model file in YAML. Engines load a folder with a config.json:
    for a config under another name, or from standard input, the command has MODEL in its place.
    """
    path = Path(name)
    if name == spec.name or path.suffix in (".yaml", ".yml") or is_family_and_size(name):
        return {}
    from ...config.hub import MAIN, parse_repository

    repository = None if os.path.exists(name) else parse_repository(name)
    is_gguf = spec.stored is not None and spec.stored.kind == "GGUF"
    if is_gguf and repository is None:
        from ...config.gguf.files import local_gguf

        # 'blobs/sha256-01' looks like a repository; './blobs/sha256-01' does not
        file = str(local_gguf(name) or name)
        return {"served_model": file if file.lower().endswith(".gguf") else os.path.join(".", file)}
    if repository:
        quantization = f":{repository.file}" if is_gguf and repository.file else ""
        revision = None if repository.revision == MAIN else repository.revision
        return {"served_model": f"{repository.name}{quantization}", "revision": revision}
    if not os.path.exists(name) and preset_of(name):
        # 'qwen3-32B' is Qwen/Qwen3-32B; 'qwen3:32b' is what the preset's sources name
        found = repository_of(name)
        if found:
            return {"served_model": found}
        return {}
    if path.name in ("config.json", "params.json"):
        name = str(path.parent)
    elif name == "-" or os.path.isfile(name):
        name = UNNAMED
    return {"served_model": name}
