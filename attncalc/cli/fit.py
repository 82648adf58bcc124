"""`attncalc fit`: whether a model fits on GPUs, in an engine's own terms."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import AttncalcError
from ..serving.fit import with_longest_context
from ..serving.request import FitRequest
from ..units import truncate
from . import COMMANDS
from . import fit_options as f
from . import options as o
from .command import command_app

if TYPE_CHECKING:
    from ..engines.vllm.log import Log
    from ..model import ModelSpec
    from ..report.report import Report

app = command_app()

EPILOG = "For example: attncalc fit llama2-70b --gpu h100-80gb --gpus 4"


@app.command(help=COMMANDS["fit"], epilog=EPILOG)
def fit(
    model: o.ModelOptions,
    serving: f.ServingOptions,
    workload: o.SizeOptions,
    dtypes: f.FitDtypeOptions,
    engine: f.EngineOptions,
    vllm: f.VllmOptions,
    sglang: f.SglangOptions,
    llamacpp: f.LlamacppOptions,
    transformers: f.TransformersOptions,
    screen: f.ScreenOptions,
    output: o.OutputOptions,
) -> None:
    log = _read_log(serving)
    texts = _options_in_log(log, model) if log else {}
    dtypes = dtypes.with_defaults(texts)
    if dtypes.kv_dtype == "auto":  # what engines call their default
        dtypes = f.FitDtypeOptions(dtype=dtypes.dtype)
    spec = model.with_defaults(texts).read()
    size = workload.with_defaults(texts)
    longest = size.context in ("auto", "-1")
    if longest:
        size = o.SizeOptions(batch=size.batch, source_context=size.source_context)
    deployment = serving.with_defaults(texts).parsed()
    deployment.pop("vllm_log", None)
    if serving.gpu is not None:
        from ..config.gpus import gpu

        deployment["gpu"] = gpu(serving.gpu)
    engine_args: dict[str, Any] = {}
    for group in (engine, vllm, sglang, llamacpp, transformers):
        engine_args |= group.with_defaults(texts).parsed()
    request = FitRequest(
        model=spec,
        workload=o.read_workload(spec, size, dtypes),
        engine_args=engine_args,
        served_model=_served_model(texts.get("model") or model.name(), spec),
        **deployment,
    )
    if longest:
        request = with_longest_context(request)
    if screen.roofline and request.gpu is None:
        raise AttncalcError("--roofline needs --gpu", "a roofline is computed from the FLOP/s and bandwidth of a GPU")
    report = _report(request, log, screen)
    output.show(report)
    raise typer.Exit(0 if report.extra["agrees" if log else "fits"] else 1)


def _served_model(name: str, spec: ModelSpec) -> str | None:
    """Return what the engine loads: a folder, or org/name on the hub; None for a preset or a model file in YAML."""
    path = Path(name)
    if name in ("-", spec.name) or path.suffix in (".yaml", ".yml"):
        return None
    return str(path.parent) if path.name == "config.json" else name


def _report(request: FitRequest, log: Log | None, screen: f.ScreenOptions) -> Report:
    if log:
        from ..report.vllm_log import log_report

        return log_report(request, log)
    if request.engine == "all":
        from ..report.fit_all import fit_all_report

        return fit_all_report(request, full=screen.full, roofline=screen.roofline)
    from ..report.fit import fit_report

    return fit_report(request, full=screen.full, roofline=screen.roofline)


def _read_log(serving: f.ServingOptions) -> Log | None:
    """Return the start-up log; None if there is none.

    Raises AttncalcError if it cannot be read, is not a start-up log of vLLM, or cannot be combined with another option.
    """
    path = serving.vllm_log
    if path is None:
        return None
    for name in ("kv_memory", "gpu", "gpus", "gpu_memory_utilization", "reserve", "weights_dtype"):
        if getattr(serving, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise AttncalcError(f"{option} cannot be combined with --vllm-log", "leave it out: the log has the memory")
    if serving.engine != "vllm":
        raise AttncalcError(
            f"--engine {truncate(serving.engine)} cannot be combined with --vllm-log",
            "leave --engine out: the log is vLLM's",
        )
    from ..engines.vllm.log import read_log

    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise AttncalcError(
            f"{truncate(path)}: {reason}", "name a file with what vLLM printed when it started"
        ) from None
    return read_log(data.decode("utf-8", "replace"), str(path))


def _options_in_log(log: Log, model: o.ModelOptions) -> dict[str, str]:
    """Return {option: text} of the arguments in the log; an option on the command line overrides them."""
    texts = dict(log.settings)
    if log.version is not None:
        texts["engine_version"] = log.version
    if log.model is not None and model.preset is None:
        texts["model"] = log.model
    return texts
