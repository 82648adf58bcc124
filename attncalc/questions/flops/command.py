"""`attncalc flops`: FLOPs of a prefill, a decode step or a training step."""

from typing import Annotated, ClassVar

import typer

from ...cli import options as o
from ...cli.command import Options, command
from ..inputs import each_size, phase_of_flops, read_workload
from ..options import FlopsOptions
from .report import flops_report


class ScreenOptions(Options):
    """What the screen shows besides the FLOPs; JSON and CSV always have every figure."""

    LAST: ClassVar[bool] = True

    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Also show one layer beside those of Table 1 of Vaswani et al. 2017."
        ),
    ] = False


@command("For example: attncalc flops llama2-70b --phase decode --context 32K")
def flops(
    model: o.NamedModel,
    options: FlopsOptions,
    screen: ScreenOptions,
    output: o.CheckedOutputOptions,
) -> None:
    spec = model.read(options)
    phase = phase_of_flops(options)
    workloads = [read_workload(spec, {"phase": phase, **one}) for one in each_size(options)]
    output.show_each([flops_report(spec, workload, full=screen.full) for workload in workloads])
