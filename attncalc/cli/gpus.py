"""`attncalc gpus`: the known GPUs; one of them with all its facts and sources."""

from __future__ import annotations

from typing import Annotated

import typer

from ..config.gpus import gpu, gpu_names
from ..report.gpus import gpu_report, gpus_report
from . import COMMANDS
from . import options as o
from .command import command_app

app = command_app()


@app.command(help=COMMANDS["gpus"], epilog="For example: attncalc gpus h100-80gb")
def gpus(
    output: o.OutputOptions,
    name: Annotated[
        str | None,
        typer.Argument(help="Show one: its name, or a .yaml of your own. Default: list all.", metavar="[GPU]"),
    ] = None,
) -> None:
    output.show(gpus_report([gpu(known) for known in gpu_names()]) if name is None else gpu_report(gpu(name)))
