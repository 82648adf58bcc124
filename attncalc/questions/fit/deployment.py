"""Where a model runs: GPUs, engine, split and share of the memory, as fields of FitRequest."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...engines import DEFAULT_ENGINE, find_engine
from ...errors import AttncalcError, clash, is_valid
from ...hardware import Gpu
from ...model import ModelSpec
from ...options import parsed
from ...serving.weight_format import released_dtype
from ...units import BYTES, human
from ..options import CacheDtypeOptions
from .engine_choice import default_deployment
from .options import ALL, DeploymentOptions, EngineOptions, UserOptions


class ServingOptions(DeploymentOptions, UserOptions, EngineOptions, total=False):
    """The options of `fit` that are neither the model's nor the workload's."""


def read_deployment(
    model: ModelSpec, values: Mapping[str, Any], *, is_logged: bool, is_of_ollama: bool = False
) -> tuple[dict[str, Any], str]:
    """Return where the model runs, as fields of FitRequest, and a note if an option chose the
    engine.
    """
    deployment = of_kind(DeploymentOptions, values)
    note = ""
    if "gpu" in deployment and not isinstance(deployment["gpu"], Gpu):
        deployment |= _gpus(str(deployment["gpu"]), deployment.get("gpus"), values.get("ram"))
    device = _with_other_memory(deployment)
    if is_logged:
        deployment.setdefault("engine", DEFAULT_ENGINE)
    else:
        found, note = _engine_fields(model, {**values, **deployment}, device)
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
    if not is_logged and device and device.counts_host_memory and deployment["engine"] != ALL:
        share = find_engine(deployment["engine"]).share_of_unified
        if share and deployment.get("kv_memory") is None:
            deployment.setdefault("gpu_memory_utilization", share)
    return deployment, note


def engine_and_weights(model: ModelSpec, options: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the engine and the dtype of weights of a request, None for those as released.

    Raises AttncalcError as `fit_request` does.
    """
    values = with_ram_of_mac(parsed(options, ServingOptions))
    deployment, _ = read_deployment(
        model, values | parsed(options, CacheDtypeOptions), is_logged=False
    )
    return deployment["engine"], deployment.get("weights_dtype")


def with_ram_of_mac(values: Mapping[str, Any]) -> dict[str, Any]:
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


def _engine_fields(
    model: ModelSpec, options: Mapping[str, Any], device: Gpu | None
) -> tuple[dict[str, Any], str]:
    """Return the engine and the dtype of weights, given or by default, as fields; and a note."""
    default = default_deployment(model, options, device)
    weights_dtype = default.weights_dtype
    has_files = default.engine != ALL and find_engine(default.engine).typed_files
    if device and has_files and weights_dtype is None and released_dtype(model) == "mxfp4":
        weights_dtype = "mxfp4"  # the usual file
    of_weights = {} if weights_dtype is None else {"weights_dtype": weights_dtype}
    return {"engine": default.engine, **of_weights}, default.note


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


def _stages(model: ModelSpec, deployment: Mapping[str, Any]) -> tuple[int, str]:
    """Return the number of pipeline stages by default, as 3 where 3 GPUs divide no heads, and
    why.
    """
    gpus = deployment.get("gpus") or 1
    name = deployment["engine"]
    is_split = any(deployment.get(option) for option in ("tp", "pp", "dp", "dcp", "attn_dp"))
    if is_split or name == ALL or find_engine(name).splits_by_layer or gpus > model.main.n_layers:
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
    if name != ALL and find_engine(name).share_option != "--mem-fraction-static":
        find_engine(name).reject("mem_fraction_static")
    if "gpu_memory_utilization" in deployment:
        raise clash(
            "--mem-fraction-static", "--gpu-memory-utilization", "they are the same: give one"
        )
    return {"gpu_memory_utilization": share}


def found_ram(values: Mapping[str, Any], deployment: Mapping[str, Any]) -> dict[str, Any]:
    """Return this machine's memory as --ram for its GPUs, if none is given and the engine leaves
    layers on the host.

    A Mac's GPU has its memory from the same.
    """
    gpu = deployment.get("gpu")
    engine = deployment["engine"]
    if gpu is None or not gpu.is_local or gpu.unified or "ram" in values or engine == ALL:
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
    if name != ALL and not find_engine(name).ranks_share_tp:
        find_engine(name).reject("enable_dp_attention")
    if deployment.get("attn_dp"):
        return {}
    if not deployment.get("dp"):
        raise AttncalcError(
            "--enable-dp-attention needs --dp",
            "add --dp N, the number of ranks; or use --attn-dp N",
        )
    return {"attn_dp": deployment["dp"], "dp": 1}


def of_kind(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the values that are options of the TypedDict `kind`."""
    return {name: values[name] for name in kind.__annotations__ if name in values}
