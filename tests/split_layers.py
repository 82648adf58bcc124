"""Attention layers split over processes by torch's own tensor parallelism, and what the formulas
say that each rank holds.

    python tests/split_layers.py MODEL.yaml --tp 2 --context 12 [--device cuda]

The script forks a process per rank and prints what each has measured, as JSON: per layer the
elements of each matrix, the bytes of its cache, and the error of its output.
"""

import argparse
import datetime
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from attncalc import load
from attncalc.verify import need_torch

need_torch()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from attncalc.attention import Cross, Grouped  # noqa: E402
from attncalc.attention.latent import Latent  # noqa: E402
from attncalc.model import ModelSpec  # noqa: E402
from attncalc.verify.cases import Case, cases  # noqa: E402
from attncalc.verify.checks.counts import predicted_bytes  # noqa: E402
from attncalc.verify.checks.tolerance import relative_error, tolerance  # noqa: E402
from attncalc.verify.devices import find_device  # noqa: E402
from attncalc.verify.kernels import REFERENCE  # noqa: E402
from attncalc.verify.layers.grouped import GroupedLayer  # noqa: E402
from attncalc.verify.layers.split import split_by_output  # noqa: E402
from attncalc.verify.real_layer import RealLayer, attend_with  # noqa: E402
from attncalc.verify.request import VerifyRequest  # noqa: E402

# What a rank has measured of a layer: elements of each matrix and of all ('params'), bytes of its
# 'cache', and the relative 'error' of the split layer's output.
Part = dict[str, Any]


def request_of(context: int) -> VerifyRequest:
    """Return the request of the ranks: one sequence in fp32, by the kernel of all devices."""
    return VerifyRequest(1, context, None, "fp32", ("math",))


def split_cases(model: ModelSpec) -> list[Case]:
    """Return the layers that torch's tensor parallelism can split: neither recurrent ones, nor
    those with the K and V of an earlier layer.
    """
    return [case for case in cases(model) if _can_be_split(case.kind)]


def _can_be_split(kind: object) -> bool:
    if isinstance(kind, Grouped):
        return not kind.shares_kv
    return isinstance(kind, Latent | Cross)


def predicted_part(case: Case, tp: int, context: int) -> dict[str, int]:
    """Return what each rank holds of a layer by the formulas, with the keys of Part."""
    kind = case.kind.shard(tp)
    part = {m.name: int(m.params) for m in kind.matrices(case.stack.d_model, case.d_source)}
    part["params"] = sum(part.values())
    if case.decodes:
        workload = request_of(context).decode()
        part["cache"] = int(predicted_bytes(case._replace(kind=kind), workload))
    return part


def disagreeing(case: Case, tp: int, context: int, parts: list[Part]) -> set[str]:
    """Return the names of what a rank holds that differs from the prediction, and 'error' if the
    output of one differs from that of the whole layer.
    """
    predicted = predicted_part(case, tp, context)
    found = {
        name
        for part in parts
        for name in {**predicted, **part}
        if name != "error" and part.get(name, 0) != predicted.get(name, 0)
    }
    limit = tolerance(torch.float32)
    if not all(part["error"] <= limit for part in parts):  # NaN is no error below the limit
        found.add("error")
    return found


def measure(layer: RealLayer, context: int, mesh: Any) -> Part:
    """Compare the output of the split layer with that of the whole one, and measure this rank's
    parameters and cache.

    Outputs are compared by the reference, which supports sinks.
    """
    attend = attend_with(REFERENCE, layer.prefill_mask(context))
    expected = layer.prefill(context, attend)
    split(layer, mesh)
    part: Part = {"error": relative_error(layer.prefill(context, attend), expected), "params": 0}
    for full_name, parameter in layer.module.named_parameters():
        name = full_name.partition(".")[0]
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        part[name] = part.get(name, 0) + local.numel()
        part["params"] += local.numel()
    if layer.case.decodes:
        cache = layer.new_cache()
        kernel = attend_with("math", layer.prefill_mask(context), with_sinks=False)
        layer.prefill(context, kernel, cache)
        part["cache"] = cache.bytes
    return part


def split(layer: RealLayer, mesh: Any) -> None:
    """Split the layer over the ranks, as an engine does: KV heads are replicated if there are fewer
    than ranks.
    """
    module = layer.module
    kind = layer.case.kind
    tp = mesh.size()
    heads = kind.heads if isinstance(kind, Cross) else kind
    if isinstance(module, GroupedLayer) and isinstance(heads, Grouped):
        _order_by_rank(module, heads, tp)
    styles: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in split_by_output(module)}
    parallelize_module(module, mesh, {**styles, "W_o": RowwiseParallel()})
    if isinstance(module, GroupedLayer):
        for name in ("sinks", "q_norm", "k_norm"):
            _split_vector(module, name, mesh.get_local_rank(), tp)


def _order_by_rank(module: GroupedLayer, kind: Grouped, tp: int) -> None:
    """Order the rows of the projections so that each rank's are contiguous, and replicate KV heads.

    With 2 KV heads on 4 ranks the rows of W_k become head 0, 0, 1, 1. The rows of a fused W_qkv
    become the queries, keys and values of rank 0, then those of rank 1, and so on.
    """
    copies = max(1, tp // kind.n_kv_heads)
    widths = (
        kind.n_heads * module.d_head,
        kind.n_kv_heads * module.d_head,
        kind.n_kv_heads * module.d_v,
    )
    shard = kind.shard(tp)
    module.share = shard.n_heads // shard.n_kv_heads

    def replicated(rows: Tensor) -> Tensor:
        heads: Tensor = rows.unflatten(0, (kind.n_kv_heads, -1))
        return heads.repeat_interleave(copies, 0).flatten(0, 1)

    def fused_by_rank(rows: Tensor) -> Tensor:
        q, k, v = rows.split(widths)
        parts = (q, replicated(k), replicated(v))
        return torch.cat([part.chunk(tp)[rank] for rank in range(tp) for part in parts])

    if module.fused:
        _reorder(module, "W_qkv", fused_by_rank)
        return
    for name in ("W_k", "W_v"):
        if hasattr(module, name):
            _reorder(module, name, replicated)


def _reorder(module: GroupedLayer, name: str, reorder: Any) -> None:
    linear = module.get_submodule(name)
    for parameter_name, parameter in list(linear.named_parameters()):
        setattr(linear, parameter_name, nn.Parameter(reorder(parameter)))


def _split_vector(module: GroupedLayer, name: str, rank: int, tp: int) -> None:
    """Split sinks by heads, and a gain over the width of all heads, whose norm then spans the
    ranks.
    """
    if name == "sinks" and hasattr(module, name):
        module.sinks = nn.Parameter(module.sinks.chunk(tp)[rank])
        return
    norm = getattr(module, name, None)
    if norm is None or norm.weight.numel() == module.d_head:
        return
    heads = norm.weight.unflatten(0, (-1, module.d_head))
    copies = max(1, tp // heads.shape[0])
    gain = heads.repeat_interleave(copies, 0).chunk(tp)[rank].flatten()
    setattr(module, name, NormOverRanks(gain, tp))


class NormOverRanks(nn.Module):
    """RMSNorm over a width that is split over the ranks."""

    def __init__(self, gain: Tensor, tp: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(gain)
        self.tp = tp

    def forward(self, x: Tensor) -> Tensor:
        mean = x.square().mean(-1, keepdim=True)
        dist.all_reduce(mean)
        scale: Tensor = self.weight / (mean / self.tp).sqrt().add(1e-6)
        return x * scale


def run_rank(rank: int, asked: argparse.Namespace, folder: Path) -> None:
    """Measure this rank's part of every layer, and write it into the folder of all ranks."""
    torch.set_num_threads(1)
    on_gpu = asked.device == "cuda"
    device = find_device(f"cuda:{rank}" if on_gpu else asked.device)
    if on_gpu:
        torch.cuda.set_device(device.torch)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # otherwise gloo resolves the host name
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=asked.tp,
        timeout=datetime.timedelta(minutes=1),
    )
    mesh = init_device_mesh(device.type, (asked.tp,))
    parts = {}
    with device.session(0) as random:
        for case in split_cases(load(asked.model)):
            layer = RealLayer(case, request_of(asked.context), device.torch, random)
            parts[case.name] = measure(layer, asked.context, mesh)
    (folder / str(rank)).write_text(json.dumps(parts))
    dist.destroy_process_group()


def run_ranks(asked: argparse.Namespace, folder: Path) -> bool:
    """Run all ranks, and return whether none has failed.

    The processes are forked: torch, which is imported here, takes seconds to start in each.
    """
    processes = []
    for rank in range(asked.tp):
        process = os.fork()
        if process == 0:
            code = 0
            try:
                run_rank(rank, asked, folder)
            except Exception:
                traceback.print_exc()
                code = 1
            os._exit(code)  # torch would end threads that a fork does not have
        processes.append(process)
    codes = [os.waitpid(process, 0)[1] for process in processes]
    return not any(codes)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not run_ranks(asked, folder):
            sys.exit(1)
        reports = [json.loads((folder / str(rank)).read_text()) for rank in range(asked.tp)]
    sys.stdout.write(json.dumps(reports))


if __name__ == "__main__":
    main()
