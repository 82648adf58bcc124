"""`attncalc memory`: activation memory of attention."""

from __future__ import annotations

from ..report.memory import memory_report
from . import COMMANDS
from . import options as o
from .command import command_app

app = command_app()


@app.command(help=COMMANDS["memory"], epilog="For example: attncalc memory llama2-70b --context 8192 --dtype bf16")
def memory(
    model: o.ShardedModelOptions,
    workload: o.PaddedSizeOptions,
    forward: o.PassOptions,
    dtypes: o.DtypeOptions,
    output: o.OutputOptions,
) -> None:
    spec = model.read()
    output.show(memory_report(spec, o.read_workload(spec, workload, dtypes, forward)))
