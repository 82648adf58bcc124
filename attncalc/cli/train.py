"""`attncalc train`: whether a training run fits on its GPUs, and what a step costs."""

# typer reads the annotations when a command is registered. Without `from __future__ import annotations` they are
# objects already, and need not be evaluated from strings.

from functools import partial
from typing import Annotated, ClassVar

import typer

from ..api.train_options import GROUPS, TrainOptions
from ..api.train_request import read_train_request
from ..api.training import request_answer, request_report
from . import COMMANDS
from . import options as o
from .command import Options, command_app
from .plot_options import PlotOptions
from .trial import accepted

app = command_app()


class ScreenOptions(Options):
    """What the screen shows besides the answer; JSON and CSV always have every figure."""

    LAST: ClassVar[bool] = True

    full: Annotated[bool, typer.Option("--full", help="Also show FLOPs, stages and all notes.")] = False


EPILOG = "For example: attncalc train llama3-8b --gpu rtx-4090 --lora r=16 --weights-dtype nf4 -c 2048"


@app.command(help=COMMANDS["train"], epilog=EPILOG, headings=GROUPS)
def train(
    model: o.NamedModel, options: TrainOptions, screen: ScreenOptions, plot: PlotOptions, output: o.CheckedOutputOptions
) -> None:
    plot.check(output, excludes={"--gpu all": options.get("gpu") == "all"})
    trained = model.name_or_sizes(options)
    o.note_file_types(trained)
    request = read_train_request(trained, options)
    accepted(*() if request.all_gpus else (partial(request_answer, request),))
    report = request_report(request, full=screen.full)
    plot.write(report, output)
    raise typer.Exit(1 if report.verdict == "does_not_fit" else 0)
