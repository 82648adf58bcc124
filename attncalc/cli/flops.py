"""`attncalc flops`: FLOPs of a prefill, a decode step or a training step."""

from __future__ import annotations

from ..api.inputs import read_workload
from ..api.options import FlopsOptions
from ..report.flops import flops_report
from . import COMMANDS
from . import options as o
from .command import command_app

app = command_app()


@app.command(help=COMMANDS["flops"], epilog="For example: attncalc flops llama2-70b --phase decode --context 32K")
def flops(model: o.NamedModel, options: FlopsOptions, output: o.CheckedOutputOptions) -> None:
    spec = model.read(options)
    output.show(flops_report(spec, read_workload(spec, {"phase": "prefill", **options})))
