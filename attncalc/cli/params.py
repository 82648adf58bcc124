"""`attncalc params`: parameters."""

from __future__ import annotations

from ..report.params import params_report
from . import COMMANDS, command_app
from . import options as o

app = command_app()


@app.command(help=COMMANDS["params"], epilog="For example: attncalc params gpt3")
def params(
    model: o.Model = None,
    preset: o.Preset = None,
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
    o.show(params_report(spec), explain=explain, form=format, as_json=json, output=output, force=force)
