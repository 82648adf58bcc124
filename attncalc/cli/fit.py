"""`attncalc fit`: whether a model fits on GPUs, in an engine's own terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from ..serving.fit import with_longest_context
from ..serving.request import FitRequest
from . import COMMANDS
from . import fit_options as f
from . import options as o
from .command import command_app
from .fit_log import gpu_in_log, model_in_log, options_in_log, read_log_option

if TYPE_CHECKING:
    from ..engines.startup_log import StartupLog
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
    output: o.OutputOptions,
) -> None:
    log = read_log_option(serving)
    texts = options_in_log(log) if log else {}
    dtypes = dtypes.with_defaults(texts)
    if dtypes.kv_dtype == "auto":  # what engines call their default
        dtypes = f.FitDtypeOptions(dtype=dtypes.dtype)
    spec = model_in_log(log, model) if log and not model.is_given else model.read()
    size = workload.with_defaults(texts)
    longest = size.context in ("auto", "-1")
    if longest:
        size = o.SizeOptions(batch=size.batch, source_context=size.source_context)
    deployment = serving.with_defaults(texts).parsed()
    deployment.pop("log", None)
    if serving.gpu is not None:
        from ..config.gpus import gpu

        deployment["gpu"] = gpu(serving.gpu)
    engine_args: dict[str, Any] = {}
    for group in (engine, vllm, sglang, llamacpp, transformers):
        engine_args |= group.with_defaults(texts).parsed()
    if log:
        deployment["engine"] = log.engine
        deployment.setdefault("gpu", gpu_in_log(log))
        engine_args |= dict.fromkeys(log.flags, True)
    request = FitRequest(
        model=spec,
        workload=o.read_workload(spec, size, dtypes),
        engine_args=engine_args,
        **deployment,
    )
    if longest:
        request = with_longest_context(request)
    report = _report(request, log)
    output.show(report)
    raise typer.Exit(0 if report.extra["agrees" if log else "fits"] else 1)


def _report(request: FitRequest, log: StartupLog | None) -> Report:
    if log:
        from ..report.log import log_report

        return log_report(request, log)
    if request.engine == "all":
        from ..report.fit_all import fit_all_report

        return fit_all_report(request)
    from ..report.fit import fit_report

    return fit_report(request)
