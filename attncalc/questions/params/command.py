"""`attncalc params`: parameters."""

from ...cli import options as o
from ...cli.command import command
from ..options import ShardedModelOptions
from .report import params_report


@command("For example: attncalc params gpt3")
def params(
    model: o.NamedModel, options: ShardedModelOptions, output: o.CheckedOutputOptions
) -> None:
    output.show(params_report(model.read(options)))
