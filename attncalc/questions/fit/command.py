"""`attncalc fit`: how much GPU memory a model needs, and whether it fits on GPUs, in an engine's
own terms.
"""

import os
import sys
from typing import TYPE_CHECKING, Annotated, ClassVar, NoReturn

import typer

from ...cli import options as o
from ...cli.command import Options, command
from ...cli.plot_options import PlotOptions
from ...config import ModelLike
from ...errors import AttncalcError, clash
from ...serving.request import FitRequest, resolve
from ...show.lists import tell
from ...units import is_auto, parse_count, truncate
from .on_host import partly_on_host
from .options import ALL, GROUPS, FitOptions
from .request import fit_question, read_fit_request, read_quants, requests_of_engines

if TYPE_CHECKING:
    from ...logs.startup_log import StartupLog
    from ...show.report import Report


class LogOptions(Options):
    """A start-up log of an engine."""

    log: Annotated[
        o.Text,
        o.option(
            "--log",
            "--vllm-log",
            metavar="FILE",
            help="A start-up log or message (- is standard input), to compare with the prediction.",
        ),
    ] = None


class ScreenOptions(Options):
    """What the screen shows besides the answer; JSON and CSV always have every figure."""

    LAST: ClassVar[bool] = True

    full: Annotated[
        bool, typer.Option("--full", help="Also show budget, blocks, notes, log lines.")
    ] = False
    quants: Annotated[
        bool,
        typer.Option(
            "--quants",
            help="List types of GGUF files by the context they hold: of a model, or in a folder.",
        ),
    ] = False
    roofline: Annotated[
        bool,
        typer.Option(
            "--roofline", help="Show lower bounds of time; with --full also with other attention."
        ),
    ] = False


_BOUNDS_NEED = (
    "--roofline needs --gpu",
    "give the GPU, as --gpu h100-80gb: its FLOP/s and bandwidth bound the times",
)
_PICTURE_NEEDS = "--gpu", "it draws how a GPU's memory is shared, and its roofline"


@command(headings=GROUPS)
def fit(
    model: o.NamedModel,
    options: FitOptions,
    start: LogOptions,
    screen: ScreenOptions,
    plot: PlotOptions,
    output: o.CheckedOutputOptions,
) -> None:
    if start.log is None and model.model is not None:
        _refuse_log(model.model)
    plot.check(output, excludes={"--log": start.log is not None, "--quants": screen.quants})
    if screen.quants:
        _check_quants(options, start, screen)
    asked = (
        fit_question(options, has_model=model.describes(options)) if start.log is None else "fit"
    )
    if asked == "what_fits":
        _show_what_fits(model, options, screen, plot, output)
    if asked == "vram":
        _show_vram(model, options, screen, plot, output)
    if screen.quants or ("gpu" in options and start.log is None and _is_several_files(model.model)):
        output.show(report := _quants(model.name_or_sizes(options), options))
        raise typer.Exit(0 if report.extra["fits"] else 1)
    log = None
    if start.log is None:
        request = read_fit_request(model.name_or_sizes(options), options)
        _note_visible_gpus(request)
    else:
        from .log_command import UnknownModel, read_logged_request

        log, found = read_logged_request(start.log, model, options)
        if isinstance(found, UnknownModel):
            from .log_report import refusal_report

            report = refusal_report(log, found.gpu, found.reason)
            plot.write(report, output, needs=("a model", "it draws its memory"))
            raise typer.Exit(0 if report.extra["agrees"] else 1)
        request = found
    if screen.roofline and request.gpu is None:
        raise AttncalcError(*_BOUNDS_NEED)
    if asked == "all":
        _show_every_engine(model.name_or_sizes(options), options, request, screen, plot, output)
    with_bounds = (
        screen.roofline or output.explain or output.chosen.name != "table" or bool(output.fail_if)
    )
    report = _report(request, log, screen, with_bounds=with_bounds)
    plot.write(report, output, needs=_PICTURE_NEEDS)
    is_yes = report.extra["agrees"] if log else report.extra["fits"]
    raise typer.Exit(0 if is_yes else 1)


def _refuse_log(name: str) -> None:
    """Raise AttncalcError if MODEL is a start-up log, or - with one on standard input."""
    if name != "-" and not os.path.isfile(name):
        return
    from .log_command import is_log_file

    if is_log_file(name):
        raise AttncalcError(
            f"{truncate(name)} is a log of an engine, and no model",
            f"'attncalc fit --log {truncate(name)}' reads it",
        )


def _show_what_fits(
    model: o.NamedModel,
    options: FitOptions,
    screen: ScreenOptions,
    plot: PlotOptions,
    output: o.OutputOptions,
) -> NoReturn:
    """Show the models that fit on the GPU, or the answer of each GPU, and exit: with 1 if none is
    enough.
    """
    for name, is_given in (("--quants", screen.quants), ("--roofline", screen.roofline)):
        if is_given:
            raise AttncalcError(
                f"{name} needs a model and one GPU",
                f"name both, as: attncalc fit qwen3-8b --gpu 12GB {name}",
            )
    from .what_fits import what_fits_report_of

    named = model.name_or_sizes(options) if options["gpu"] == ALL else None
    is_screen = output.chosen.name == "table" and not output.explain
    report = what_fits_report_of(named, options, full=screen.full, is_screen=is_screen)
    plot.write(report, output, needs=_PICTURE_NEEDS)
    raise typer.Exit(1 if report.verdict == "does_not_fit" else 0)


def _show_vram(
    model: o.NamedModel,
    options: FitOptions,
    screen: ScreenOptions,
    plot: PlotOptions,
    output: o.OutputOptions,
) -> NoReturn:
    """Show the memory that is needed, and exit."""
    if not model.describes(options):
        o.check_numbers(options)
    named = model.name_or_sizes(options)
    if screen.roofline:
        raise AttncalcError(*_BOUNDS_NEED)
    from .vram import read_vram_request, vram_request_report

    request = read_vram_request(named, options, lists_quants=screen.quants)
    plot.write(vram_request_report(request, full=screen.full), output, needs=_PICTURE_NEEDS)
    raise typer.Exit(0)


def _show_every_engine(
    model: ModelLike,
    options: FitOptions,
    request: FitRequest,
    screen: ScreenOptions,
    plot: PlotOptions,
    output: o.OutputOptions,
) -> NoReturn:
    """Show the answer of each engine, and exit: with 1 if it fits with none."""
    from .all_report import fit_all_report

    requests = requests_of_engines(model, options, request)
    report = fit_all_report(request, requests, full=screen.full, roofline=screen.roofline)
    plot.write(report, output, needs=_PICTURE_NEEDS)
    raise typer.Exit(0 if report.extra["fits"] else 1)


def _note_visible_gpus(request: FitRequest) -> None:
    """Name the GPUs that CUDA_VISIBLE_DEVICES lists, if one is counted and no option says so."""
    number = len(os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","))
    gpu = request.gpu
    if number == 1 or gpu is None or gpu.is_local or request.engine == ALL or "--" in sys.argv:
        return
    if resolve(request).gpus == 1:
        tell(f"note: CUDA_VISIBLE_DEVICES is not used: --gpus {number} counts its GPUs")


def _is_several_files(name: str | None) -> bool:
    """Return whether a folder has several GGUF models and no config, so that --quants ranks those
    that fit.
    """
    if name is None or not os.path.isdir(name):
        return False
    from ...config.gguf.files import local_models

    return len(local_models(name, with_config=False)) > 1


def _check_quants(options: FitOptions, start: LogOptions, screen: ScreenOptions) -> None:
    """Raise AttncalcError if --quants is combined with another answer."""
    others = {"--log": start.log, "--full": screen.full, "--roofline": screen.roofline}
    for name, value in (*others.items(), ("--weights-dtype", options.get("weights_dtype"))):
        if value:
            raise clash("--quants", name)


def _quants(model: ModelLike, options: FitOptions) -> "Report":
    """Return the report of --quants on a GPU. Raises AttncalcError as `read_quants` does."""
    from .quants_report import fit_quants_report

    context = options.get("context")
    if context is None or is_auto(context):
        asked = None
    else:
        asked = parse_count(str(context), "--context")
    return fit_quants_report(read_quants(model, options), context=asked)


def _report(
    request: FitRequest, log: "StartupLog | None", screen: ScreenOptions, *, with_bounds: bool
) -> "Report":
    if log:
        from .log_command import model_by_name
        from .log_report import log_report

        return log_report(request, log, model_by_name(log), full=screen.full)
    from .report import fit_report

    if screen.roofline:
        # 'If it fitted' is no speed that a desktop has
        request = partly_on_host(request, {}) or request
    return fit_report(request, full=screen.full, roofline=screen.roofline, with_bounds=with_bounds)
