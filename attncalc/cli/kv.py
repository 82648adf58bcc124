"""`attncalc kv`: the KV cache."""

from __future__ import annotations

from ..report.kv import kv_report
from . import COMMANDS
from . import options as o
from .command import command_app

app = command_app()


@app.command(help=COMMANDS["kv"], epilog="For example: attncalc kv llama2-70b --batch 8 --context 4096")
def kv(
    model: o.ShardedModelOptions,
    workload: o.PaddedSizeOptions,
    dtypes: o.CacheDtypeOptions,
    output: o.OutputOptions,
    engine: o.Engine = "ideal",
) -> None:
    spec = model.read()
    output.show(kv_report(spec, o.read_workload(spec, workload, dtypes), engine))
