"""Verify the parameters and the cache of each rank, with layers split by torch's own tensor
parallelism.
"""

import logging
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from ...attention import Cross, Grouped
from ...attention.recurrent import Recurrent
from ...check import Check, VerifyResult
from ...errors import AttncalcError, CannotCheckError
from ...model import ModelSpec
from ...quantity import symbol, total
from ...records import NamedTuple
from ...units import BYTES, PARAMS, count
from ..cases import Case, cases
from ..checks.counts import predicted_bytes
from ..checks.tolerance import furthest, largest, relative_error, tolerance
from ..devices import Device, find_device
from ..kernels import REFERENCE
from ..layers import layer_class
from ..layers.base import AttentionLayer
from ..layers.grouped import GroupedLayer
from ..progress import Progress
from ..ranks import Rank, torchrun_rank
from ..real_layer import RealLayer, attend_with
from ..request import VerifyRequest
from ..time_plan import plan_within_limit
from .process_group import FAILED, MEET_SECONDS, Ranks, read_all

# Tokens whose outputs are compared.
COMPARED_TOKENS = 128
# Copies of the weights that a process holds while it splits a layer.
WEIGHT_COPIES = 3
WITH_PROCESSES = "--device cpu uses processes instead"
# The environment of the processes that are started here.
QUIET = {"PYTHONWARNINGS": "ignore", "TORCH_CPP_LOG_LEVEL": "ERROR"}


def verify_tensor_parallel(
    model: ModelSpec, request: VerifyRequest, device: Device, on_progress: Progress
) -> VerifyResult:
    """Split every distinct attention layer of `model` over processes and check what each rank
    holds.

    The processes are those that torchrun started, of which this is one; without torchrun they are
    started here. All processes of torchrun return the same result.

    Raises AttncalcError if the heads cannot be split, CannotCheckError if there are fewer devices
    than ranks, or not enough memory.
    """
    model.shard(request.tp)
    if not dist.is_available():
        raise CannotCheckError(
            "--tp needs torch.distributed, which this torch lacks", "install a build that has it"
        )
    unsplit = [
        f"{case.name}: {reason}." for case in cases(model) if (reason := _unsplit_reason(case))
    ]
    if not _split_cases(model):
        raise CannotCheckError(f"--tp: {unsplit[0]}", "verify the layers without --tp")
    measure = _measure_under_torchrun if torchrun_rank() else _measure_in_processes
    plan, ranks = measure(model, request, device, on_progress)
    request = request._replace(context=plan.context)
    checks: list[Check] = []
    for i, symbolic in enumerate(_split_cases(model.symbolic())):
        case_checks = _checks(symbolic, request, [reports[i] for reports in ranks])
        checks += (check._replace(of=symbolic.name) for check in case_checks)
    return VerifyResult(
        tuple(checks), skipped=tuple(unsplit), context=request.context, limits=tuple(plan.shortened)
    )


def _split_cases(model: ModelSpec) -> list[Case]:
    """Return the cases whose layers torch's tensor parallelism can split."""
    return [case for case in cases(model) if not _unsplit_reason(case)]


def _unsplit_reason(case: Case) -> str:
    """Return why the layers of this case are not split; '' if they are."""
    kind = case.kind
    if isinstance(kind, Recurrent):
        return (
            f"{kind.label} is not split here: torch's tensor parallelism does not support "
            "recurrent states"
        )
    if isinstance(kind, Grouped) and kind.shares_kv:
        return "its K and V are those of an earlier layer, so it is not split here"
    layer = layer_class(kind)
    if not (issubclass(layer, AttentionLayer) and layer.column_parallel):
        return f"{kind.label} is not split here: its layer lists no projections to split"
    return ""


# The measurements of a rank on one layer: 'params' by name, bytes of its 'cache', relative 'error'
# of its output.
RankReport = dict[str, Any]


def _checks(symbolic: Case, request: VerifyRequest, ranks: list[RankReport]) -> Iterator[Check]:
    sharded = symbolic._replace(
        kind=symbolic.kind.shard(symbol("tp", request.tp, "tensor-parallel devices"))
    )
    matrices = {
        m.name: m.params for m in sharded.kind.matrices(sharded.stack.d_model, sharded.d_source)
    }

    def per_rank(
        name: str, label: str, predicted: int, measured: list[int], unit: str, counted: str, of: str
    ) -> Check:
        value = furthest(measured, predicted)
        note = (
            f"{counted} per rank, of {request.tp}; if the ranks differ, the value furthest from "
            "the prediction"
        )
        failure = f"{of} split or replicated differently than --tp predicts"
        return Check(
            "per rank", f"{name}_per_rank", label, predicted, value, 0, unit, note, failure
        )

    predicted: int = total(matrices.values())
    for name in {**matrices, **ranks[0]["params"]}:
        held = [rank["params"].get(name, 0) for rank in ranks]
        yield per_rank(
            f"params_{name}",
            name,
            matrices.get(name, 0),
            held,
            PARAMS,
            "elements",
            "this matrix is",
        )
    held = [sum(rank["params"].values()) for rank in ranks]
    yield per_rank(
        "params",
        "all parameters",
        predicted,
        held,
        PARAMS,
        "elements of all parameters",
        "a matrix is",
    )
    if symbolic.decodes:
        held = [rank["cache"] for rank in ranks]
        predicted = predicted_bytes(sharded, request.decode())
        yield per_rank(
            "cache",
            f"cache, {request.context:,} tokens",
            predicted,
            held,
            BYTES,
            "bytes",
            "KV heads are",
        )
    error = largest([rank["error"] for rank in ranks])
    limit = tolerance(request.torch_dtype)
    note = "outputs of the split and of the whole layer; largest relative difference on any rank"
    failure = "the ranks' parts do not add up to the layer"
    yield Check(
        "layer behaviour",
        "sharded_equals_whole",
        "split vs whole",
        0,
        error,
        limit,
        "",
        note,
        failure,
    )


class _SplitPlan(NamedTuple):
    """What the ranks run, as plain data: the context, the kernel of each case, and notes on a
    shortened context.
    """

    context: int
    kernels: dict[str, str]
    shortened: tuple[str, ...]


# What was run, and the reports of every rank.
_Measured = tuple[_SplitPlan, list[list[RankReport]]]


def _planned(
    model: ModelSpec, request: VerifyRequest, device: Device, processes: int, on_progress: Progress
) -> _SplitPlan:
    """Return what fits on the device, on which `processes` ranks run."""
    with device.session(request.seed):
        plan, steps = plan_within_limit(
            model,
            request,
            device,
            processes=1 if device.type == "cuda" else processes,
            weight_copies=WEIGHT_COPIES,
        )
    on_progress.expect(steps)
    on_progress(f"{model.name} over {request.tp} processes")
    kernels = {case.name: plan.leanest_kernels(case, "prefill")[0] for case in _split_cases(model)}
    return _SplitPlan(plan.request.context, kernels, plan.shortened)


def _measure_under_torchrun(
    model: ModelSpec, request: VerifyRequest, device: Device, on_progress: Progress
) -> _Measured:
    """Measure this rank's part, and return the reports of all. The rank with the least memory plans
    for all.
    """
    rank = torchrun_rank()
    assert rank is not None
    if device.type not in ("cpu", "cuda"):
        raise CannotCheckError(f"--tp does not run on {device.type}", WITH_PROCESSES)
    store, *_ = next(rendezvous("env://", timeout=timedelta(seconds=MEET_SECONDS)))
    ranks = Ranks(rank, store, prints=True)
    with ranks.group(device, request.seconds or 0) as mesh:
        plans = ranks.exchange(
            "plan", _planned(model, request, device, rank.local_ranks, on_progress)
        )
        plan = min((_SplitPlan(*plan) for plan in plans), key=lambda plan: plan.context)
        reports = ranks.exchange("report", _measure(model, request, device, mesh, plan))
        ranks.leave()
    return plan, reports


def _measure_in_processes(
    model: ModelSpec, request: VerifyRequest, device: Device, on_progress: Progress
) -> _Measured:
    """Start one process per rank and return their reports. Raises CannotCheckError if a process
    fails.
    """
    from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, spawn

    tp = request.tp
    if device.torch.index and not device.is_chosen:
        raise AttncalcError(
            f"--tp {tp} uses devices 0 to {tp - 1}, not {device.torch} only", "give --device cuda"
        )
    gpus = {"cpu": tp, "cuda": torch.cuda.device_count()}.get(device.type, 1)
    if gpus < tp:
        raise CannotCheckError(
            f"--tp {tp} needs {tp} GPUs, and this machine has {count(gpus)}", WITH_PROCESSES
        )
    if device.type == "cuda":
        device = min(
            (find_device(f"cuda:{rank}") for rank in range(tp)), key=lambda gpu: gpu.free()
        )
    plan = _planned(model, request, device, tp, on_progress)
    # it tells which processes it ends
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)
    before = {name: os.environ.get(name) for name in QUIET}
    os.environ.update({name: value for name, value in QUIET.items() if before[name] is None})
    try:
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        spawn(_run_rank, (store.port, model, request, device.type, plan), nprocs=tp, daemon=True)
    except (ProcessExitedException, ProcessRaisedException) as error:
        if store.check([FAILED]):
            failed = store.get(FAILED).decode()
        else:
            failed = str(error).strip().splitlines()[-1]
        message, _, tip = failed.partition("\n  tip: ")
        raise CannotCheckError(
            f"--tp {tp}: {message}", tip or "give fewer ranks, or a shorter --context"
        ) from None
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
    return plan, read_all(store, "report", tp)


def _run_rank(
    number: int,
    port: int,
    model: ModelSpec,
    request: VerifyRequest,
    device_type: str,
    plan: _SplitPlan,
) -> None:
    """Measure this rank's part of every layer, and write the reports into the store of the process
    that started it.
    """
    device = find_device(f"cuda:{number}" if device_type == "cuda" else device_type)
    if device.type == "cpu":
        torch.set_num_threads(max(1, torch.get_num_threads() // request.tp))
    store = TCPStore("127.0.0.1", port, is_master=False)
    ranks = Ranks(Rank(number, request.tp, number, request.tp), store, prints=False)
    with ranks.group(device, request.seconds or 0) as mesh:
        ranks.exchange("report", _measure(model, request, device, mesh, plan))
        ranks.leave()


def _measure(
    model: ModelSpec, request: VerifyRequest, device: Device, mesh: Any, plan: _SplitPlan
) -> list[RankReport]:
    """Return this rank's measurements of every layer."""
    request = request._replace(context=plan.context)
    with device.session(request.seed) as random:
        return [
            _measure_part(
                RealLayer(case, request, device.torch, random), mesh, plan.kernels[case.name]
            )
            for case in _split_cases(model)
        ]


def _measure_part(layer: RealLayer, mesh: Any, kernel: str) -> RankReport:
    """Compare the output of the split layer with that of the whole one, and measure this rank's
    parameters and cache.

    Outputs are compared by the reference, which supports sinks, on a few tokens; the cache is
    filled with all tokens.
    """
    tokens = layer.x.shape[1]
    compared = min(tokens, COMPARED_TOKENS)
    attend = attend_with(REFERENCE, layer.prefill_mask(compared))
    expected = layer.prefill(compared, attend)
    _split(layer, mesh)
    error = relative_error(layer.prefill(compared, attend), expected)
    cache = layer.new_cache() if layer.case.decodes else None
    if cache is not None:
        layer.prefill(
            tokens, attend_with(kernel, layer.prefill_mask(tokens), with_sinks=False), cache
        )
    params: dict[str, int] = {}
    for name, parameter in layer.module.named_parameters():
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        params[name.partition(".")[0]] = params.get(name.partition(".")[0], 0) + local.numel()
    return {"params": params, "cache": cache.bytes if cache else 0, "error": error}


def _split(layer: RealLayer, mesh: Any) -> None:
    """Split the layer over the ranks, as an engine does: KV heads are replicated if there are fewer
    than ranks.
    """
    module = layer.module
    kind = layer.case.kind
    tp = mesh.size()
    assert isinstance(module, AttentionLayer)
    heads = kind.heads if isinstance(kind, Cross) else kind
    if isinstance(module, GroupedLayer) and isinstance(heads, Grouped):
        _order_by_rank(module, heads, tp)
    styles: dict[str, ParallelStyle] = {
        name: ColwiseParallel() for name in module.column_parallel if hasattr(module, name)
    }
    parallelize_module(module, mesh, {**styles, "W_o": RowwiseParallel()})
    rank = mesh.get_local_rank()
    if isinstance(module, GroupedLayer):
        for name in ("sinks", "q_norm", "k_norm"):
            _split_vector(module, name, rank, tp)


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
        return torch.cat(
            [
                part.chunk(tp)[rank]
                for rank in range(tp)
                for part in (q, replicated(k), replicated(v))
            ]
        )

    names, reorder = (("W_qkv",), fused_by_rank) if module.fused else (("W_k", "W_v"), replicated)
    for name in (n for n in names if hasattr(module, n)):
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
    setattr(module, name, _NormOverRanks(gain, tp))


class _NormOverRanks(nn.Module):
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
