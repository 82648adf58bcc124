"""`attncalc memory`: activation memory of attention."""

from ...cli import options as o
from ...cli.command import command
from ..inputs import each_size, read_workload
from ..options import ActivationsOptions
from .report import memory_report


@command("For example: attncalc memory llama2-70b --context 8192 --dtype bf16")
def memory(
    model: o.NamedModel, options: ActivationsOptions, output: o.CheckedOutputOptions
) -> None:
    spec = model.read(options)
    workloads = [read_workload(spec, {"phase": "prefill", **one}) for one in each_size(options)]
    output.show_each([memory_report(spec, workload) for workload in workloads])
