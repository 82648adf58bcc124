"""From the options of `attncalc fit` to a FitRequest."""

import dataclasses
import os
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal

from ...config import ModelLike
from ...config.presets import preset_of, with_file_type
from ...engines import ENGINES, find_engine
from ...engines.launch import LM_STUDIO
from ...engines.llamacpp.options import ALL_LAYERS, Projector, first_layers
from ...errors import AttncalcError, clash
from ...ggml import FILE_TYPES
from ...model import ModelSpec
from ...options import options_of, parsed
from ...serving.fit import NO_LIMIT, USEFUL_CONTEXT, possible_verdict, with_longest_context
from ...serving.offload import with_auto_offload
from ...serving.request import FitRequest, resolve, usual_layouts
from ...serving.traffic import USUAL, Traffic, usual_lengths
from ...show.answer_rows import answers_of
from ...units import count, dtype, is_auto, truncate
from ..inputs import read_model, read_workload
from ..options import CacheDtypeOptions, ModelOptions, SizeOptions
from .deployment import ServingOptions, found_ram, of_kind, read_deployment, with_ram_of_mac
from .engine_choice import name_for_ollama, ollama_options
from .on_host import check_experts_on_host, check_offload, with_needed_offload
from .options import ALL, EngineOptions, FitOptions, UserOptions
from .served import UNNAMED, draft_fields, given_checkpoint, served_fields

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
    _check_local_ranks(request)
    if ollama is not None:
        request = _with_own_projector(request)
    if note:
        request = request.with_workload(assumed=(*request.workload.assumed, note))
    return with_needed_offload(request, options, is_compared=is_compared)


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
    values = with_ram_of_mac(parsed(options, ServingOptions))
    is_of_ollama = served.get("ollama") not in (None, LM_STUDIO)
    all_values = values | parsed(options, CacheDtypeOptions)
    deployment, chosen = read_deployment(
        model, all_values, is_logged=is_logged, is_of_ollama=is_of_ollama
    )
    check_experts_on_host(model, values, is_logged=is_logged)
    engine_args = _engine_args(of_kind(EngineOptions, values)) | found_ram(values, deployment)
    size = {
        name: options[name] for name in SizeOptions.__annotations__ if options.get(name) is not None
    }
    longest = is_auto(size.get("context"))
    if longest:
        del size["context"]
    if deployment["engine"] != ALL:
        size = _size_of_engine(deployment["engine"], size, engine_args)
    traffic, assumed = _traffic(
        model, of_kind(UserOptions, values), parsed(size, SizeOptions).get("context")
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
        **draft_fields(engine_args),
        **{**served, **deployment, **given_checkpoint(model, values)},
        engine_args=engine_args,
    )
    if not is_logged:
        _check_math_dtype(request)
    notes += _layout_notes(request)
    request = with_auto_offload(request.with_workload(assumed=(*request.workload.assumed, *notes)))
    if longest:
        return _at_longest_context(request)
    return request


def _layout_notes(request: FitRequest) -> Iterator[str]:
    """Yield of which checkpoint the weights are, if checkpoints of the model may differ."""
    usual = () if request.engine == ALL else usual_layouts(request)
    if usual and usual[0].differs:
        yield (
            f"--weights-dtype {request.weights_dtype} is as in {usual[0].repository}: "
            f"{usual[0].words}. --keep or --weights-size sets others."
        )


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


def _check_local_ranks(request: FitRequest) -> None:
    """Raise AttncalcError if a node has more data-parallel ranks than there are, with which vLLM
    does not start (ParallelConfig).
    """
    local = request.engine_args.get("data_parallel_size_local") or 0
    if local > request.dp:
        raise AttncalcError(
            f"--data-parallel-size-local {local} is more than --dp {request.dp}",
            "it is the number of ranks of one node: leave it out, or give a larger --dp",
        )


def _check_math_dtype(request: FitRequest) -> None:
    """Raise AttncalcError if the GPU lacks the dtype, as one without bf16 for --dtype bf16."""
    if request.gpu is None or request.engine == ALL:
        return
    if find_engine(request.engine).dtype_of_fp32:
        request.gpu.math_dtype(request.workload.dtype, "")


def _at_longest_context(request: FitRequest) -> FitRequest:
    """Return the request with the longest context that fits, and a note if it may not fit.

    Raises AttncalcError with --engine all.
    """
    if request.engine == ALL:
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
