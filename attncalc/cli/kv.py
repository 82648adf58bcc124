"""`attncalc kv`: the KV cache."""

from ..api.inputs import each_size, read_workload
from ..api.options import KVCacheOptions
from ..report.kv import kv_report
from . import options as o
from .command import command


@command("For example: attncalc kv llama2-70b --batch 8 --context 4096")
def kv(model: o.NamedModel, options: KVCacheOptions, output: o.CheckedOutputOptions) -> None:
    spec = model.read(options)
    engine = options.get("engine", "ideal")
    output.show_each(
        [kv_report(spec, read_workload(spec, one), engine) for one in each_size(options)]
    )
