"""`attncalc flops`: FLOPs of a prefill, a decode step or a training step."""

from __future__ import annotations

from ..api.cost_options import FlopsOptions
from ..api.workloads import workload_of
from ..report.flops import flops_report
from . import COMMANDS
from . import options as o
from .command import command_app

app = command_app()


@app.command(help=COMMANDS["flops"], epilog="For example: attncalc flops llama2-70b --phase decode --context 32K")
def flops(model: o.NamedModel, options: FlopsOptions, output: o.OutputOptions) -> None:
    spec = model.read(options)
    output.show(flops_report(spec, workload_of(spec, options, phase="prefill")))
