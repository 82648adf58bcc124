"""`attncalc memory`: activation memory of attention."""

from __future__ import annotations

from ..errors import AttncalcError
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
    size = o.read_workload(spec, workload, dtypes, forward)
    if size.phase == "train":
        raise AttncalcError(
            "memory does not support --phase train: it counts a forward pass without gradients",
            "give --phase prefill or decode",
        )
    output.show(memory_report(spec, size))
