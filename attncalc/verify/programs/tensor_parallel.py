"""Verify the parameters and the cache of each rank, with layers split by torch's own tensor parallelism."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from ...attention import Cross, Grouped
from ...attention.recurrent import Recurrent
from ...check import Check, VerifyResult
from ...errors import AttncalcError, CannotCheckError
from ...model import ModelSpec
from ...quantity import symbol, total
from ...units import BYTES, PARAMS, count
from ..cases import Case, cases
from ..checks.counts import predicted_bytes
from ..checks.tolerance import furthest, largest, relative_error, tolerance
from ..devices import Device, find_device
from ..kernels import REFERENCE
from ..layers import layer_class
from ..layers.base import AttentionLayer
from ..layers.grouped import GroupedAttention
from ..real_layer import RealLayer, attend_with
from ..request import VerifyRequest
from ..time_plan import plan_within_limit
from . import OnProgress

COMPARED_TOKENS = 128
"""Tokens whose outputs are compared."""
WATCH_SECONDS = 0.5
"""Seconds between two looks at whether the parent still runs."""
WEIGHT_COPIES = 3
"""Copies of the weights that a process holds while it splits a layer."""


def verify_tensor_parallel(
    model: ModelSpec, tp: int, request: VerifyRequest, device: Device, *, on_progress: OnProgress
) -> VerifyResult:
    """Split every distinct attention layer of `model` over `tp` processes and check what each rank holds.

    Raises AttncalcError if the heads cannot be split, CannotCheckError if there are fewer devices than ranks, or not
    enough memory.
    """
    model.shard(tp)
    if device.torch.index and not device.is_chosen:
        raise AttncalcError(f"--tp {tp} uses devices 0 to {tp - 1}, not {device.torch} only", "give --device cuda")
    if not dist.is_available():
        raise CannotCheckError("--tp needs torch.distributed, which this torch lacks", "install a build that has it")
    if device.type == "mps" or (device.type == "cuda" and torch.cuda.device_count() < tp):
        gpus = torch.cuda.device_count() if device.type == "cuda" else 1
        raise CannotCheckError(
            f"--tp {tp} needs {tp} GPUs, and this machine has {count(gpus)}", "--device cpu uses processes instead"
        )
    if device.type == "cuda":
        device = min((find_device(f"cuda:{rank}") for rank in range(tp)), key=lambda gpu: gpu.free())
    with device.session(request.seed):
        processes = 1 if device.type == "cuda" else tp
        plan, steps = plan_within_limit(
            model,
            request,
            device,
            program="tensor_parallel",
            ranks=tp,
            processes=processes,
            weight_copies=WEIGHT_COPIES,
        )
    unsplit = [f"{case.name}: {reason}." for case in cases(model) if (reason := _unsplit_reason(case))]
    if not _split_cases(model):
        raise CannotCheckError(f"--tp: {unsplit[0]}", "verify the layers without --tp")
    on_progress.expect(steps)
    on_progress(f"{model.name} over {tp} processes")
    kernels = {case.name: plan.leanest_kernel(case, "prefill") for case in _split_cases(model)}
    ranks = _spawn(model, tp, plan.request, device, kernels)
    checks: list[Check] = []
    for i, symbolic in enumerate(_split_cases(model.symbolic())):
        case_checks = _checks(symbolic, tp, plan.request, [reports[i] for reports in ranks])
        checks += (check._replace(of=symbolic.name) for check in case_checks)
    return VerifyResult(tuple(checks), skipped=tuple(unsplit), context=plan.request.context, limits=plan.shortened)


def _split_cases(model: ModelSpec) -> list[Case]:
    """Return the cases whose layers torch's tensor parallelism can split."""
    return [case for case in cases(model) if not _unsplit_reason(case)]


def _unsplit_reason(case: Case) -> str:
    """Return why the layers of this case are not split; '' if they are."""
    kind = case.kind
    if isinstance(kind, Recurrent):
        return f"{kind.label} is not split here: torch's tensor parallelism does not support recurrent states"
    if isinstance(kind, Grouped) and kind.shares_kv:
        return "its K and V are those of an earlier layer, so it is not split here"
    layer = layer_class(kind)
    if not (issubclass(layer, AttentionLayer) and layer.column_parallel):
        return f"{kind.label} is not split here: its layer lists no projections to split"
    return ""


RankReport = dict[str, Any]
"""The measurements of a rank on one layer: 'params' by name, bytes of its 'cache', relative 'error' of its output."""


def _checks(symbolic: Case, tp: int, request: VerifyRequest, ranks: list[RankReport]) -> Iterator[Check]:
    sharded = symbolic._replace(kind=symbolic.kind.shard(symbol("tp", tp, "tensor-parallel devices")))
    matrices = {m.name: m.params for m in sharded.kind.matrices(sharded.stack.d_model, sharded.d_source)}
    scope = f"per rank, of {tp}; if the ranks differ, the value furthest from the prediction"
    for name in {**matrices, **ranks[0]["params"]}:
        predicted = matrices.get(name, 0)
        yield Check(
            "per rank",
            f"params_{name}_per_rank",
            name,
            predicted,
            furthest([rank["params"].get(name, 0) for rank in ranks], predicted),
            unit=PARAMS,
            note=f"elements {scope}",
            failure="this matrix is split or replicated differently than --tp predicts",
        )
    predicted = total(matrices.values())
    yield Check(
        "per rank",
        "params_per_rank",
        "all parameters",
        predicted,
        furthest([sum(rank["params"].values()) for rank in ranks], predicted),
        unit=PARAMS,
        note=f"elements of all parameters {scope}",
        failure="a matrix is split or replicated differently than --tp predicts",
    )
    if symbolic.decodes:
        predicted = predicted_bytes(sharded, request.decode())
        yield Check(
            "per rank",
            "cache_per_rank",
            f"cache, {request.context:,} tokens",
            predicted,
            furthest([rank["cache"] for rank in ranks], predicted),
            unit=BYTES,
            note=f"bytes {scope}",
            failure="KV heads are split or replicated differently than --tp predicts",
        )
    yield Check(
        "layer behaviour",
        "sharded_equals_whole",
        "split vs whole",
        0,
        largest([rank["error"] for rank in ranks]),
        tolerance(request.torch_dtype),
        note="outputs of the split and of the whole layer; largest relative difference on any rank",
        failure="the ranks' parts do not add up to the layer",
    )


def _spawn(
    model: ModelSpec, tp: int, request: VerifyRequest, device: Device, kernels: dict[str, str]
) -> list[list[RankReport]]:
    """Run one process per rank and return each rank's reports. Raises CannotCheckError if a process fails."""
    from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, spawn

    with tempfile.TemporaryDirectory(prefix="attncalc-") as folder:
        quiet = {"PYTHONWARNINGS": "ignore", "TORCH_CPP_LOG_LEVEL": "ERROR"}
        if sys.platform == "linux":
            quiet["GLOO_SOCKET_IFNAME"] = "lo"  # otherwise gloo resolves the host name
        before = {name: os.environ.get(name) for name in quiet}
        os.environ.update({name: value for name, value in quiet.items() if before[name] is None})
        try:
            spawn(_run_rank, (tp, folder, os.getpid(), model, request, device.type, kernels), nprocs=tp, daemon=True)
        except (ProcessExitedException, ProcessRaisedException) as error:
            last = str(error).strip().splitlines()[-1]
            raise CannotCheckError(
                f"--tp {tp}: a process failed: {last}", "give fewer ranks, or a shorter --context"
            ) from None
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
        return [json.loads(Path(folder, f"{rank}.json").read_text(encoding="utf-8")) for rank in range(tp)]


def end_with_parent(parent: int) -> None:
    """End this process when the process `parent`, which started it, ends in whatever way.

    A thread notices within a second that this process has another parent. SIGTERM ends the parent without its clean-up,
    and a rank would otherwise wait for the others for half an hour.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_rank(
    rank: int,
    tp: int,
    folder: str,
    parent: int,
    model: ModelSpec,
    request: VerifyRequest,
    device_type: str,
    kernels: dict[str, str],
) -> None:
    """Measure this rank's part of every layer, and write the reports into `folder`."""
    end_with_parent(parent)
    cuda = device_type == "cuda"
    device = find_device(f"cuda:{rank}" if cuda else device_type)
    if cuda:
        torch.cuda.set_device(device.torch)
    else:
        torch.set_num_threads(max(1, torch.get_num_threads() // tp))
    dist.init_process_group("nccl" if cuda else "gloo", f"file://{folder}/meet", rank=rank, world_size=tp)
    try:
        mesh = init_device_mesh(device_type, (tp,))
        reports = []
        with device.session(request.seed) as random:
            for case in _split_cases(model):
                reports.append(
                    _measure_part(RealLayer(case, request, device.torch, random), tp, mesh, kernels[case.name])
                )
        Path(folder, f"{rank}.json").write_text(json.dumps(reports), encoding="utf-8")
    finally:
        dist.destroy_process_group()


def _measure_part(layer: RealLayer, tp: int, mesh: Any, kernel: str) -> RankReport:
    """Compare the output of the split layer with that of the whole one, and measure this rank's parameters and cache.

    Outputs are compared by the reference, which supports sinks, on a few tokens; the cache is filled with all tokens.
    """
    tokens = layer.x.shape[1]
    compared = min(tokens, COMPARED_TOKENS)
    attend = attend_with(REFERENCE, layer.prefill_mask(compared))
    expected = layer.prefill(compared, attend)
    split(layer, tp, mesh)
    error = relative_error(layer.prefill(compared, attend), expected)
    cache = layer.new_cache() if layer.case.decodes else None
    if cache is not None:
        layer.prefill(tokens, attend_with(kernel, layer.prefill_mask(tokens), with_sinks=False), cache)
    params: dict[str, int] = {}
    for name, parameter in layer.module.named_parameters():
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        params[name.partition(".")[0]] = params.get(name.partition(".")[0], 0) + local.numel()
    return {"params": params, "cache": cache.bytes if cache else 0, "error": error}


def split(layer: RealLayer, tp: int, mesh: Any) -> None:
    """Split the layer over the ranks, as an engine does: KV heads are replicated if there are fewer than ranks."""
    module, kind = layer.module, layer.case.kind
    assert isinstance(module, AttentionLayer)
    heads = kind.heads if isinstance(kind, Cross) else kind
    if isinstance(module, GroupedAttention) and isinstance(heads, Grouped):
        _order_by_rank(module, heads, tp)
    styles: dict[str, ParallelStyle] = {}
    for name in module.column_parallel:
        if hasattr(module, name):
            styles[name] = ColwiseParallel()
    parallelize_module(module, mesh, {**styles, "W_o": RowwiseParallel()})
    rank = mesh.get_local_rank()
    if isinstance(module, GroupedAttention):
        for name in ("sinks", "q_norm", "k_norm"):
            _split_vector(module, name, rank, tp)


def _order_by_rank(module: GroupedAttention, kind: Grouped, tp: int) -> None:
    """Order the rows of the projections so that each rank's are contiguous, and replicate KV heads.

    With 2 KV heads on 4 ranks the rows of W_k become head 0, 0, 1, 1. The rows of a fused W_qkv become the queries,
    keys and values of rank 0, then those of rank 1, and so on.
    """
    copies = max(1, tp // kind.n_kv_heads)
    widths = (kind.n_heads * module.d_head, kind.n_kv_heads * module.d_head, kind.n_kv_heads * module.d_v)
    shard = kind.shard(tp)
    module.share = shard.n_heads // shard.n_kv_heads

    def replicated(rows: Tensor) -> Tensor:
        heads: Tensor = rows.unflatten(0, (kind.n_kv_heads, -1))
        return heads.repeat_interleave(copies, 0).flatten(0, 1)

    def fused_by_rank(rows: Tensor) -> Tensor:
        q, k, v = rows.split(widths)
        return torch.cat([part.chunk(tp)[rank] for rank in range(tp) for part in (q, replicated(k), replicated(v))])

    names, reorder = (("W_qkv",), fused_by_rank) if module.fused else (("W_k", "W_v"), replicated)
    for name in (n for n in names if hasattr(module, n)):
        linear = module.get_submodule(name)
        for parameter_name, parameter in list(linear.named_parameters()):
            setattr(linear, parameter_name, nn.Parameter(reorder(parameter)))


def _split_vector(module: GroupedAttention, name: str, rank: int, tp: int) -> None:
    """Split sinks by heads, and a gain over the width of all heads, whose norm then spans the ranks."""
    if name == "sinks" and hasattr(module, name):
        module.sinks = nn.Parameter(module.sinks.chunk(tp)[rank])
        return
    norm = getattr(module, name, None)
    if norm is None or norm.weight.numel() == module.d_head:
        return
    heads = norm.weight.unflatten(0, (-1, module.d_head))
    copies = max(1, tp // heads.shape[0])
    gain = heads.repeat_interleave(copies, 0).chunk(tp)[rank].flatten()
    setattr(module, name, _NormOverRanks(gain, tp))


class _NormOverRanks(nn.Module):
    """RMSNorm over a width that is split over the ranks."""

    def __init__(self, gain: Tensor, tp: int) -> None:
        super().__init__()
        self.weight, self.tp = nn.Parameter(gain), tp

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised `x`."""
        mean = x.square().mean(-1, keepdim=True)
        dist.all_reduce(mean)
        scale: Tensor = self.weight / (mean / self.tp).sqrt().add(1e-6)
        return x * scale
