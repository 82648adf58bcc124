"""`attncalc fit`: whether a model fits on GPUs, in an engine's own terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from ..api.fit_request import check_offload, fit_request, served_model
from ..errors import AttncalcError
from ..serving.request import FitRequest
from . import COMMANDS
from . import fit_llamacpp as lc
from . import fit_options as f
from . import fit_users as u
from . import options as o
from .command import command_app
from .fit_log import model_in_log, not_with_log, read_log_option, with_options_in_log
from .plot_options import PlotOptions

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
    users: u.UserOptions,
    dtypes: f.FitDtypeOptions,
    engine: f.EngineOptions,
    vllm: f.VllmOptions,
    sglang: f.SglangOptions,
    llamacpp: f.LlamacppOptions,
    offload: lc.OffloadOptions,
    transformers: f.TransformersOptions,
    screen: f.ScreenOptions,
    plot: PlotOptions,
    output: u.FitOutputOptions,
) -> None:
    plot.check(output, excludes={"--log": serving.log is not None})
    log = read_log_option(serving)
    spec = model_in_log(log, model) if log and not model.is_given else model.read()
    traffic = users.traffic(output.output_tokens)
    options: dict[str, Any] = {}
    for group in (serving, workload, dtypes, engine, vllm, sglang, llamacpp, offload, transformers):
        options |= group.given()
    if log:
        if traffic:
            raise not_with_log(f"--{'lengths' if traffic.lengths else 'prompt'}")
        options = with_options_in_log(options, log, spec)
    else:
        check_offload(options)
    request = fit_request(
        spec,
        options,
        traffic=traffic,
        served={"served_model": log.served} if log else served_model(model.name(), spec),
    )
    if screen.roofline and request.gpu is None:
        raise AttncalcError("--roofline needs --gpu", "a roofline is computed from the FLOP/s and bandwidth of a GPU")
    report = _report(request, log, screen)
    plot.write(report, output, needs=("--gpu", "it draws how a GPU's memory is shared, and its roofline"))
    raise typer.Exit(0 if report.extra["agrees" if log else "fits"] else 1)


def _report(request: FitRequest, log: StartupLog | None, screen: f.ScreenOptions) -> Report:
    if log:
        from ..report.log import log_report

        return log_report(request, log)
    if request.engine == "all":
        from ..report.fit_all import fit_all_report

        return fit_all_report(request, full=screen.full, roofline=screen.roofline)
    from ..report.fit import fit_report

    return fit_report(request, full=screen.full, roofline=screen.roofline)
