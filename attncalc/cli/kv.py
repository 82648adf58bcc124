"""`attncalc kv`: the KV cache."""

from __future__ import annotations

from ..report.kv import kv_report
from . import COMMANDS, command_app
from . import options as o

app = command_app()


@app.command(help=COMMANDS["kv"], epilog="For example: attncalc kv llama2-70b --batch 8 --context 4096")
def kv(
    model: o.Model = None,
    preset: o.Preset = None,
    batch: o.Batch = None,
    context: o.Context = None,
    source_context: o.Source = None,
    lengths: o.Lengths = None,
    kv_dtype: o.KvDtype = None,
    dtype: o.DtypeOption = None,
    attention: o.AttentionOption = None,
    assume_grouped: o.AssumeGrouped = False,
    tp: o.Tp = "1",
    engine: o.Engine = "ideal",
    explain: o.Explain = False,
    format: o.Format = None,
    json: o.Json = False,
    output: o.Output = None,
    force: o.Force = False,
) -> None:
    spec = o.read_model(model, preset, attention=attention, tp=tp, assume_grouped=assume_grouped)
    workload = o.read_workload(
        spec,
        batch=batch,
        context=context,
        source=source_context,
        lengths=lengths,
        in_dtype=dtype,
        kv_dtype=kv_dtype,
    )
    report = kv_report(spec, workload, engine)
    o.show(report, explain=explain, form=format, as_json=json, output=output, force=force)
