"""`attncalc fit`: whether a model fits on GPUs, in an engine's own terms."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from ..errors import AttncalcError
from ..serving.fit import with_longest_context
from ..serving.request import FitRequest
from ..units import truncate
from . import COMMANDS
from . import fit_options as f
from . import fit_users as u
from . import options as o
from .command import command_app

if TYPE_CHECKING:
    from ..engines.vllm.log import Log
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
    output: u.FitOutputOptions,
) -> None:
    log = _read_log(serving)
    texts = _options_in_log(log, model) if log else {}
    dtypes = dtypes.with_defaults(texts)
    if dtypes.kv_dtype == "auto":  # what engines call their default
        dtypes = f.FitDtypeOptions(dtype=dtypes.dtype)
    spec = model.with_defaults(texts).read()
    size = workload.with_defaults(texts)
    traffic = users.traffic(output.output_tokens)
    if traffic and log:
        raise AttncalcError(
            f"--{'lengths' if traffic.lengths else 'prompt'} cannot be combined with --vllm-log",
            "leave one of them out: with a log, fit compares the log's own figures",
        )
    if traffic and size.context is None and not spec.max_context:
        size = o.SizeOptions(**{**vars(size), "context": str(int(traffic.worst_tokens))})
    longest = size.context in ("auto", "-1")
    if longest:
        size = o.SizeOptions(batch=size.batch, source_context=size.source_context)
    deployment = serving.with_defaults(texts).parsed()
    deployment.pop("vllm_log", None)
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
    request = FitRequest(
        model=spec,
        workload=o.read_workload(spec, size, dtypes),
        engine_args=engine_args,
        traffic=traffic,
        **deployment,
    )
    if longest:
        request = with_longest_context(request)
    report = _report(request, log)
    output.show(report)
    raise typer.Exit(0 if report.extra["agrees" if log else "fits"] else 1)


def _report(request: FitRequest, log: Log | None) -> Report:
    if log:
        from ..report.vllm_log import log_report

        return log_report(request, log)
    if request.engine == "all":
        from ..report.fit_all import fit_all_report

        return fit_all_report(request)
    from ..report.fit import fit_report

    return fit_report(request)


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
