"""`attncalc fit`: whether a model fits on GPUs, in an engine's own terms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import AttncalcError
from ..serving.fit import with_longest_context
from ..serving.request import FitRequest
from ..units import dtype, is_dtype, truncate
from . import COMMANDS
from . import fit_options as f
from . import fit_users as u
from . import options as o
from .command import command_app
from .fit_log import gpu_in_log, model_in_log, options_in_log, read_log_option

if TYPE_CHECKING:
    from ..engines.startup_log import StartupLog
    from ..model import ModelSpec
    from ..report.report import Report

app = command_app()

EPILOG = "For example: attncalc fit llama2-70b --gpu h100-80gb --gpus 4"


@app.command(help=COMMANDS["fit"], epilog=EPILOG)
def fit(
    model: o.ModelOptions,
    serving: f.ServingOptions,
    workload: o.SizeOptions,
    users: u.UserOptions,
    dtypes: f.FitDtypeOptions,
    engine: f.EngineOptions,
    vllm: f.VllmOptions,
    sglang: f.SglangOptions,
    llamacpp: f.LlamacppOptions,
    transformers: f.TransformersOptions,
    screen: f.ScreenOptions,
    output: u.FitOutputOptions,
) -> None:
    log = read_log_option(serving)
    texts = options_in_log(log) if log else {}
    dtypes = dtypes.with_defaults(texts)
    if dtypes.kv_dtype == "auto":  # what engines call their default
        dtypes = f.FitDtypeOptions(dtype=dtypes.dtype)
    spec = model_in_log(log, model) if log and not model.is_given else model.read()
    if log and dtypes.dtype and is_dtype(dtypes.dtype) and dtype(dtypes.dtype).name == spec.dtype:
        dtypes = f.FitDtypeOptions(dtype=None, kv_dtype=dtypes.kv_dtype)  # the model's own: weights are as released
    size = workload.with_defaults(texts)
    traffic = users.traffic(output.output_tokens)
    if traffic and log:
        raise AttncalcError(
            f"--{'lengths' if traffic.lengths else 'prompt'} cannot be combined with --log",
            "leave one of them out: with a log, fit compares the log's own figures",
        )
    if traffic and size.context is None and not spec.max_context:
        size = o.SizeOptions(**{**vars(size), "context": str(int(traffic.worst_tokens))})
    longest = size.context in ("auto", "-1")
    if longest:
        size = o.SizeOptions(batch=size.batch, source_context=size.source_context)
    deployment = serving.with_defaults(texts).parsed()
    deployment.pop("log", None)
    if serving.gpu is not None:
        from ..config.gpus import gpus_of

        number, deployment["gpu"] = gpus_of(serving.gpu)
        if number is not None and deployment.get("gpus", number) != number:
            raise AttncalcError(
                f"--gpu {truncate(serving.gpu)} cannot be combined with --gpus {serving.gpus}",
                "give the number of GPUs once",
            )
        if number is not None:
            deployment["gpus"] = number
    engine_args: dict[str, Any] = {}
    for group in (engine, vllm, sglang, llamacpp, transformers):
        engine_args |= group.with_defaults(texts).parsed()
    if log:
        deployment["engine"] = log.engine
        deployment["gpu"] = gpu_in_log(log, deployment.get("gpu"))
        if log.engine == "llamacpp" and deployment["gpu"] and log.devices > 1:  # it distributes layers over all
            deployment["gpus"] = log.devices
        engine_args |= dict.fromkeys(log.flags, True)
    request = FitRequest(
        model=spec,
        workload=o.read_workload(spec, size, dtypes),
        engine_args=engine_args,
        served_model=log.served if log else _served_model(model.name(), spec),
        traffic=traffic,
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


def _report(request: FitRequest, log: StartupLog | None, screen: f.ScreenOptions) -> Report:
    if log:
        from ..report.log import log_report

        return log_report(request, log)
    if request.engine == "all":
        from ..report.fit_all import fit_all_report

        return fit_all_report(request, full=screen.full, roofline=screen.roofline)
    from ..report.fit import fit_report

    return fit_report(request, full=screen.full, roofline=screen.roofline)
