"""`attncalc kv`: the KV cache."""

from ...cli import options as o
from ...cli.command import command
from ..inputs import each_size, read_workload
from ..options import KVCacheOptions
from .report import kv_report


@command("For example: attncalc kv llama2-70b --batch 8 --context 4096")
def kv(model: o.NamedModel, options: KVCacheOptions, output: o.CheckedOutputOptions) -> None:
    spec = model.read(options)
    engine = options.get("engine", "ideal")
    output.show_each(
        [kv_report(spec, read_workload(spec, one), engine) for one in each_size(options)]
    )
