"""`attncalc params`: parameters."""

from ..api.options import ShardedModelOptions
from ..report.params import params_report
from . import options as o
from .command import command


@command("For example: attncalc params gpt3")
def params(
    model: o.NamedModel, options: ShardedModelOptions, output: o.CheckedOutputOptions
) -> None:
    output.show(params_report(model.read(options)))
