"""`attncalc memory`: activation memory of attention."""

from ..api.inputs import read_workload
from ..api.options import ActivationsOptions
from ..report.memory import memory_report
from . import options as o
from .command import command


@command("For example: attncalc memory llama2-70b --context 8192 --dtype bf16")
def memory(model: o.NamedModel, options: ActivationsOptions, output: o.CheckedOutputOptions) -> None:
    spec = model.read(options)
    output.show(memory_report(spec, read_workload(spec, {"phase": "prefill", **options})))
