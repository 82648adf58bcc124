"""The log of `attncalc fit --log`: reading the file, and what of its contents stands for
options.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...cli.options import NamedModel
from ...config import load
from ...config.gpus import cpu, gpu, gpu_of_device, gpus_of
from ...config.hub import parse_repository
from ...config.presets import of_gguf_file, preset_at, preset_of, presets, unquantized
from ...config.source import DOCUMENTS
from ...config.user_files import open_file, piped_in
from ...engines import DEFAULT_ENGINE, find_engine
from ...errors import AttncalcError, clash
from ...hardware import DESKTOP, Gpu
from ...logs import find_reader
from ...model import ModelSpec
from ...options import GIBIBYTES, parsed
from ...records import NamedTuple
from ...serving.request import FitRequest
from ...serving.weight_format import released_dtype
from ...show.lists import tell
from ...units import BYTES, GIB, count, dtype, human, is_dtype, long_option, parse_count, truncate
from ...what_if import what_if
from ..log_content import content
from ..options import ModelOptions, WhatIfOptions
from .options import ALL, FitOptions
from .request import fit_request, options_of_name
from .served import served_fields

if TYPE_CHECKING:
    from ...logs.startup_log import StartupLog

# Bytes by which a log is recognised.
_BEGINNING = 1 << 16
_NOT_WITH_A_LOG = ("kv_memory", "gpus", "reserve", "other_memory")


class UnknownModel(NamedTuple):
    """A log of a failed start whose model is unknown, or which states its cause: no size of a model
    changes that.
    """

    reason: str  # why the model is unknown, as a sentence
    gpu: Gpu | None  # the GPU that the log or an option names


def read_logged_request(
    source: str, named: NamedModel, options: FitOptions
) -> tuple[StartupLog, FitRequest | UnknownModel]:
    """Return the start-up log, and the request that it and the options describe; or what a failed
    start has without.

    Raises AttncalcError if the log cannot be read, is no engine's start-up log, does not name the
    model (without MODEL), or cannot be combined with another option.
    """
    log, options = _read_log(source, named, options)
    if log.refusal and (log.refusal.program or log.refusal.cause) and not log.refusal.tokens:
        given = options.get("gpu")
        unused = [long_option(name) for name in options if name not in ("gpu", "engine")]
        if named.is_given:
            unused.insert(0, "MODEL")
        if unused:
            tell(f"note: not used: {', '.join(unused)}: the message states its cause")
        return log, UnknownModel("", _gpu_in_log(log, str(given) if given else None)[1])
    log = _with_given_gpus(log, options)
    copy = unquantized(log.model or "")
    if copy and not find_engine(log.engine).typed_files:
        log = log._replace(checkpoint_dtype=copy[1])
    try:
        if named.is_given:
            model = named.read(options, ModelOptions)
        else:
            model = _model_in_log(log, options)
    except AttncalcError as error:
        if named.is_given or not (
            log.refusal or (log.model is None and log.logged.keys() - {"n_ctx"})
        ):
            raise
        return _without_model(log, options, error)
    log = log._replace(is_dense=not model.has_experts)
    options = _with_options_of_name(options, log, named)
    merged = _with_options_in_log(options, log, model)
    _note_others(log, merged["gpu"])
    # without it in the log, the command has the repository that was typed: a preset may be of
    # several
    if named.model and not log.served:
        typed = served_fields(named.model, model, options)
    else:
        typed = {}
    is_stored_so = (
        log.checkpoint_dtype is not None and merged.get("weights_dtype") == log.checkpoint_dtype
    )
    served = {
        "served_model": log.served,
        "checkpoint": log.served if is_stored_so else None,
        **typed,
    }
    return log, fit_request(model, merged, served, is_logged=True)


def _read_log(source: str, named: NamedModel, options: FitOptions) -> tuple[StartupLog, FitOptions]:
    """Return the log, and the options with the GPU in the words around it. Raises AttncalcError as
    its caller.
    """
    for name in _NOT_WITH_A_LOG:
        if name in options:
            option = long_option(name)
            raise clash(option, "--log", "leave it out: the log has the memory")
    from ...logs.log_file import read_log
    from ...logs.messages import PYTORCH

    engine = options.get("engine")
    if engine == ALL:
        raise clash("--engine all", "--log", "leave --engine out: the log names the engine")
    data = content(source)
    log = read_log(data, source, engine)
    if engine not in (None, log.engine):
        raise clash(
            f"--engine {truncate(engine)}",
            f"a log of {find_engine(log.engine).title}",
            "leave --engine out: the log names the engine",
        )
    is_of_pytorch = log.refusal is not None and log.refusal.program == PYTORCH
    if is_of_pytorch and named.is_given and options.keys() - {"gpu", "weights_dtype"}:
        log = read_log(data, source, DEFAULT_ENGINE)
        tell(f"note: no line names the engine: --engine {DEFAULT_ENGINE} is assumed")
    return log, options


def _with_options_of_name(options: FitOptions, log: StartupLog, named: NamedModel) -> FitOptions:
    """Return the options with those that a name of Ollama's library implies, if the log lacks them
    too.
    """
    if not (named.model and find_engine(log.engine).typed_files):
        return options
    runner = {"engine": "ollama"} if log.within and log.within.title == "Ollama" else {}
    implied = options_of_name(named.model, {**options, **runner})[0]
    found = {name: value for name, value in implied.items() if name not in log.settings}
    return cast("FitOptions", found | {**options})


def _without_model(
    log: StartupLog, options: FitOptions, error: AttncalcError
) -> tuple[StartupLog, UnknownModel]:
    """Return the log alone, with its GPU; `error` is why its model is not known."""
    given = options.get("gpu")
    device = _gpu_in_log(log, str(given) if given else None)[1]
    reason = f"{error.message[0].upper()}{error.message[1:]}"
    if log.refusal is None:
        return _with_its_cache(log, options), UnknownModel(f"{reason}: {error.tip}.", device)
    _note_others(log, device)
    return log, UnknownModel(f"{reason}.", device)


def _with_its_cache(log: StartupLog, options: FitOptions) -> StartupLog:
    """Return the log of a start that went well with what its cache holds, which needs no model."""
    from ...logs.startup_log import Load, LogRefusal

    most = int(log.settings.get("context", 0))
    tokens = log.logged.get("kv_tokens")
    held = int(tokens.number) if tokens else most * int(log.settings.get("batch", 1))
    sizes = [figure.bytes for name, figure in log.logged.items() if name.endswith("_size")]
    size = human(sum(sizes), BYTES)
    each = f", {human(sizes[0] // held, BYTES)} each" if held and len(sizes) == 1 else ""
    if held:
        holds = f"holds {count(held)} tokens{f' in {size}' if sizes else ''}{each}"
    else:
        holds = f"takes {size}"
    if not tokens and (concurrency := log.logged.get("concurrency")):
        holds = (
            f"holds {concurrency.text} requests of {count(most)} tokens, and more that are shorter"
        )
    elif each_of := options.get("batch"):
        holds += f", {count(held // int(each_of))} for each of {each_of} requests"
    elif asked := options.get("context") or most:
        length = parse_count(str(asked), "--context")
        holds += f": {held / length:,.2f} requests of {count(length)}, and more that are shorter"
    reason = f"the cache {holds}."
    refusal = LogRefusal("overloaded", "", where="cache", cause="no_failure", reason=reason)
    full = log._replace(refusal=refusal, load=Load(0, 0, 1, 0))  # what gives a full cache more room
    return log._replace(refusal=refusal._replace(advice=find_reader(log.engine).log_advice(full)))


def is_log_file(name: str) -> bool:
    """Return whether a file is a start-up log, by its suffix or by its first lines; '-' is standard
    input.
    """
    from ...logs.log_file import is_log  # compiles patterns, which few words need

    if name == "-":
        return is_log(piped_in())
    if name.endswith((*DOCUMENTS, ".gguf", ".safetensors")):
        return False
    with contextlib.suppress(OSError), open_file(Path(name)) as file:
        return name.endswith(".log") or is_log(file.read(_BEGINNING))
    return False


def _note_others(log: StartupLog, device: Gpu | None) -> None:
    """Say what other programs held of the GPU, if the log shows what was free, and with which
    option `fit` counts it.

    llama.cpp prints only what is free, which is then the GPU's memory here: the preset has all of
    it.
    """
    free = log.budget.get("free_memory")
    total = log.budget.get("gpu_memory")
    if free is None or device is None:
        return
    with contextlib.suppress(AttncalcError):  # a GPU that only the log names
        device = device if total else gpu(device.name)
    others = device.held_by_others(free.bytes)
    if others > DESKTOP // 2:
        counted = f"--other-memory {others / GIB:.1f}GiB counts what others hold"
        tell(f"note: {free.bytes / GIB:.2f} GiB were free: {counted}")


def _with_options_in_log(
    options: Mapping[str, Any], log: StartupLog, model: ModelSpec
) -> dict[str, Any]:
    """Return the options, with those in the log for what the command line leaves out."""
    texts = _with_drafter(dict(log.settings), options)
    if model.stored and model.stored.kind == "GGUF":  # the file has the types of its tensors
        texts.pop("weights_dtype", None)
    if log.checkpoint_dtype and log.checkpoint_dtype != released_dtype(model):
        texts.setdefault("weights_dtype", log.checkpoint_dtype)
    if "mem_fraction_static" in options:  # SGLang's name of the share, which the log has too
        texts.pop("gpu_memory_utilization", None)
    if log.version is not None:
        texts["engine_version"] = log.version
    merged: dict[str, Any] = {**texts, **options, "engine": log.engine}
    if texts.get("enable_expert_parallel"):
        merged["enable_expert_parallel"] = True
    merged |= dict.fromkeys(log.flags, True)
    own = merged.get("dtype")
    if own and is_dtype(own) and dtype(own).name == model.dtype:  # the weights are as released
        del merged["dtype"]
    ram = GIBIBYTES.parse(options["ram"], "--ram") if options.get("ram") else None
    number, merged["gpu"] = _gpu_in_log(log, options.get("gpu"), ram)
    if find_engine(log.engine).splits_by_layer and merged["gpu"] and (number or log.devices) > 1:
        merged["gpus"] = number or log.devices
    return merged


def _with_given_gpus(log: StartupLog, options: Mapping[str, Any]) -> StartupLog:
    """Return the log with --tp, or else with the number in --gpu if neither log nor options divide
    the model.
    """
    given = options.get("tp")
    if (
        not given
        and {*log.settings, *options}.isdisjoint(("tp", "pp", "dp"))
        and options.get("gpu")
    ):
        if find_engine(log.engine).splits_by_layer:
            given = None
        else:
            given = gpus_of(options["gpu"])[0]
    if given:
        return log._replace(settings={**log.settings, "tp": str(given)})
    return log


def _with_drafter(texts: dict[str, str], options: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a log with its draft model, if that can be read, and otherwise with
    its layers.

    A drafter on the command line replaces that of the log.
    """
    name = texts.pop("speculative_model", None)
    if options.get("speculative_model"):
        for key in ("speculative_layers", "speculative_config"):
            texts.pop(key, None)
    elif name and not options.get("speculative_layers"):
        known = _preset_of(name) or name
        with contextlib.suppress(OSError, ValueError, AttncalcError):
            load(known)
            texts["speculative_model"] = known
            texts.pop("speculative_layers", None)
    return texts


def _model_in_log(log: StartupLog, options: Mapping[str, Any]) -> ModelSpec:
    """Return the model that the log names: a preset, by its own name, its title or the repository
    in its sources, or a repository or folder.

    Raises AttncalcError if there is none.
    """
    name = log.model
    if log.path and log.path.endswith(".gguf") and os.path.isfile(log.path):
        name = log.path
    tip = "give the model: attncalc fit MODEL --log FILE"
    if name is None:
        raise AttncalcError("the log does not name the model", tip)
    unknown = AttncalcError(f"the log's model, '{truncate(name)}', is not known here", tip)
    preset = _preset_of(name)
    try:
        is_here = name == log.path or os.path.isfile(os.path.join(name, "config.json"))
        if preset is None and parse_repository(name) is None and not is_here:
            raise unknown
        spec = load(preset or name)
    except (OSError, ValueError, AttncalcError):
        copy = unquantized(name)
        if copy is None:
            raise unknown from None
        spec = load(copy[0])
    return what_if(spec, **parsed(options, WhatIfOptions))


def model_by_name(log: StartupLog) -> ModelSpec | None:
    """Return the preset that the log names; None if it names none."""
    if not log.model:
        return None
    copy = unquantized(log.model)
    preset = copy[0] if copy else _preset_of(log.model)
    if preset is None:
        return None
    return load(preset)


def _preset_of(name: str) -> str | None:
    """Return the preset whose name, title, repository, folder or GGUF file is `name`; None if there
    is none.
    """
    file = of_gguf_file(name)
    if file:
        preset = preset_of(file[0])
    else:
        preset = preset_of(name.strip("/")) or preset_at(name)
    titles = {_letters(known.title): known.name for known in presets()}
    return preset or titles.get(_letters(name))


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def _gpu_in_log(
    log: StartupLog, text: str | None, ram: int | None = None
) -> tuple[int | None, Gpu | None]:
    """Return the number in --gpu, as of '2xh100', and the GPU of --gpu, or else of the log, with
    the memory in the log.

    None if nothing is known. Raises AttncalcError if that of --gpu is unknown.
    """
    number, known = gpus_of(text) if text is not None else (None, None)
    known = cpu(ram) if known and known.is_cpu and ram else known
    if known is None and log.gpu is not None:
        words = [
            word for word in log.gpu.split() if word not in ("NVIDIA", "GeForce", "AMD", "Radeon")
        ]
        with contextlib.suppress(AttncalcError):
            if words and all(re.fullmatch(r"\w+", word) for word in words):
                known = gpu(" ".join(words))
            else:
                known = None
    size = find_reader(log.engine).logged_gpu_memory(log)
    if size is None or size <= 0:
        return number, known
    if known is not None:
        # 'a100' of 39.4 GiB is a100-40gb
        known = gpu_of_device(re.sub(r"-\d+gb$", "", known.name), size) or known
        return number, dataclasses.replace(known, memory=size, measured=True, is_own=True)
    title = log.gpu or f"GPU of {size / GIB:.2f} GiB"
    printed = f"{log.gpu} {log.refusal.line if log.refusal else ''}"
    if any(sign in printed for sign in ("AMD", "Radeon", "HIP")):
        vendor = "AMD"
    else:
        vendor = "NVIDIA"
    return number, Gpu(
        "logged",
        title,
        vendor,
        memory_gb=max(1, size // 10**9),
        memory=size,
        bandwidth=1,
        flops=(),
        is_own=True,
    )
