"""`attncalc flops`: FLOPs of a prefill, a decode step or a training step."""

from __future__ import annotations

from ..report.flops import flops_report
from . import COMMANDS, command_app
from . import options as o

app = command_app()


@app.command(help=COMMANDS["flops"], epilog="For example: attncalc flops llama2-70b --phase decode --context 32K")
def flops(
    model: o.Model = None,
    preset: o.Preset = None,
    phase: o.Phase = "prefill",
    batch: o.Batch = None,
    context: o.Context = None,
    past: o.Past = "0",
    source_context: o.Source = None,
    lengths: o.Lengths = None,
    mask: o.MaskOption = None,
    attention: o.AttentionOption = None,
    assume_grouped: o.AssumeGrouped = False,
    tp: o.Tp = "1",
    explain: o.Explain = False,
    format: o.Format = None,
    json: o.Json = False,
    output: o.Output = None,
    force: o.Force = False,
) -> None:
    spec = o.read_model(model, preset, attention=attention, tp=tp, assume_grouped=assume_grouped)
    workload = o.read_workload(
        spec,
        phase=phase,
        batch=batch,
        context=context,
        past=past,
        source=source_context,
        lengths=lengths,
        mask=mask,
    )
    o.show(flops_report(spec, workload), explain=explain, form=format, as_json=json, output=output, force=force)
