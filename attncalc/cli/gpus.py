"""`attncalc gpus`: the GPUs that are here; one of them with all its facts and sources."""

from __future__ import annotations

from typing import Annotated

import typer

from ..config.gpus import gpu, gpu_names
from ..report.gpus import gpu_report, gpus_report
from . import COMMANDS, command_app
from . import options as o

app = command_app()


@app.command(help=COMMANDS["gpus"], epilog="For example: attncalc gpus h100-80gb")
def gpus(
    name: Annotated[
        str | None,
        typer.Argument(help="Show one: its name, or a .yaml of your own. Left out: list all.", metavar="[GPU]"),
    ] = None,
    explain: o.Explain = False,
    format: o.Format = None,
    json: o.Json = False,
    output: o.Output = None,
    force: o.Force = False,
) -> None:
    report = gpus_report([gpu(each) for each in gpu_names()]) if name is None else gpu_report(gpu(name))
    o.show(report, explain=explain, form=format, as_json=json, output=output, force=force)
