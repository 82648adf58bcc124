"""A layer split over processes by torch's own tensor parallelism, each holding what `--tp` says it holds."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from ..attention import Attention, Cross, Grouped
from ..attention.recurrent import Recurrent
from ..check import Check, Verified
from ..errors import AttncalcError, CannotCheckError
from ..model import ModelSpec
from ..quantity import symbol, total
from ..units import BYTES, PARAMS, count
from .counts import apart, close, largest, predicted_bytes
from .device import Device, settled
from .layers import GroupedAttention
from .plan import decode, planned
from .run import Tell
from .subject import REFERENCE, Asked, Layer, Subject, attend_by, subjects

COMPARED = 128
"""Tokens whose outputs are compared."""
SPLIT_BY_COLUMN = ("W_qkv", "W_q", "W_k", "W_v", "W_gate", "W_q_b", "W_kv_b")
"""Projections whose rows are heads; W_o's columns are; what has no heads is whole on every rank."""


def verify_parallel(model: ModelSpec, tp: int, asked: Asked, device: Device, *, tell: Tell) -> Verified:
    """Split every distinct attention layer of `model` over `tp` processes and check each one's part.

    CannotCheckError: fewer devices than processes, or no room. AttncalcError: heads that do not split.
    """
    model.shard(tp)
    if device.torch.index:
        raise AttncalcError(f"--tp takes devices 0 to {tp - 1}, not {device.torch} alone", "--device cuda")
    if not dist.is_available():
        raise CannotCheckError("--tp: this torch has no torch.distributed", "install a build that has it")
    if device.kind == "mps" or (device.kind == "cuda" and torch.cuda.device_count() < tp):
        here = torch.cuda.device_count() if device.kind == "cuda" else 1
        raise CannotCheckError(
            f"--tp {tp} needs as many GPUs, and {count(here)} is here", "--device cpu splits over processes"
        )
    with settled(device, asked.seed):
        plan = planned(model, asked, device, processes=1 if device.kind == "cuda" else tp, copies=3)
    whole = [f"{s.name}: {why}." for s in subjects(model) if (why := _why_whole(s.kind))]
    if not _split_here(model):
        raise CannotCheckError(f"--tp: {whole[0]}", "without --tp its layers can be checked")
    tell(f"{model.name} over {tp} processes")
    found = _spawned(model, tp, plan.asked, device, {s.name: plan.leanest(s, "prefill") for s in _split_here(model)})
    checks: list[Check] = []
    for i, symbols in enumerate(_split_here(model.symbolic())):
        checks += (check._replace(of=symbols.name) for check in _checks(symbols, tp, plan.asked, [r[i] for r in found]))
    return Verified(tuple(checks), skipped=(*plan.shrunk, *whole), context=plan.asked.context)


def _split_here(model: ModelSpec) -> list[Subject]:
    """The subjects whose layers torch's tensor parallelism can split."""
    return [subject for subject in subjects(model) if not _why_whole(subject.kind)]


def _why_whole(kind: Attention) -> str:
    """Why a layer of this kind is not split here; '' for one that is."""
    if isinstance(kind, Recurrent):
        return f"{kind.label} is not split here: torch's tensor parallelism knows no heads of states"
    shared = isinstance(kind, Grouped) and kind.shares_kv
    return "is not split here: its K and V are an earlier layer's" if shared else ""


Found = dict[str, Any]
"""What a rank reports of a layer: parameters by name, bytes of its cache, how far its output is off."""


def _checks(symbols: Subject, tp: int, asked: Asked, ranks: list[Found]) -> Iterator[Check]:
    split = symbols._replace(kind=symbols.kind.shard(symbol("tp", tp, "tensor-parallel devices")))
    matrices = {m.name: m.params for m in split.kind.matrices(split.stack.d_model, split.d_source)}
    each = f"on each of {tp} ranks; where they differ, on the one that is furthest off"
    for name in {**matrices, **ranks[0]["params"]}:
        yield Check(
            "each rank",
            f"params_{name}_per_rank",
            name,
            matrices.get(name, 0),
            _furthest(matrices.get(name, 0), [rank["params"].get(name, 0) for rank in ranks]),
            unit=PARAMS,
            note=f"elements {each}",
            failure="this matrix is split, or replicated, in another way than --tp says",
        )
    predicted = total(matrices.values())
    measured = _furthest(predicted, [sum(rank["params"].values()) for rank in ranks])
    yield Check("each rank", "params_per_rank", "parameters", predicted, measured, unit=PARAMS, note=f"all {each}")
    if symbols.decodes:
        kept = predicted_bytes(split, decode(asked, asked.context))
        measured = _furthest(kept, [rank["cache"] for rank in ranks])
        label = f"cache, {asked.context:,} tokens"
        failure = "KV heads are split, or replicated, in another way than --tp says"
        note = f"bytes {each}"
        yield Check("each rank", "cache_per_rank", label, kept, measured, 0, BYTES, note, failure)
    yield Check(
        "layer",
        "sharded_equals_whole",
        "split layer = whole layer",
        0,
        largest([rank["error"] for rank in ranks]),
        close(asked.torch_dtype),
        note="largest difference of the outputs, of the largest, on the rank where it is largest",
        failure="the ranks' parts do not add up to the layer",
    )


def _furthest(predicted: int, found: list[int]) -> int:
    return max(found, key=lambda value: abs(value - predicted))


def _spawned(model: ModelSpec, tp: int, asked: Asked, device: Device, kernels: dict[str, str]) -> list[list[Found]]:
    """What each rank found, from processes that have ended."""
    from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, spawn

    with tempfile.TemporaryDirectory(prefix="attncalc-") as place:
        quiet = {"PYTHONWARNINGS": "ignore", "TORCH_CPP_LOG_LEVEL": "ERROR"}
        if sys.platform == "linux":
            quiet["GLOO_SOCKET_IFNAME"] = "lo"  # or gloo looks the host's name up
        before = {name: os.environ.get(name) for name in quiet}
        os.environ.update({name: value for name, value in quiet.items() if before[name] is None})
        try:
            spawn(_rank, (tp, place, model, asked, device.kind, kernels), nprocs=tp, daemon=True)
        except (ProcessExitedException, ProcessRaisedException) as error:
            last = str(error).strip().splitlines()[-1]
            raise CannotCheckError(
                f"--tp {tp}: a process failed: {last}", "fewer ranks, or a shorter --context"
            ) from None
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
        return [json.loads(Path(place, f"{rank}.json").read_text()) for rank in range(tp)]


def _rank(rank: int, tp: int, place: str, model: ModelSpec, asked: Asked, kind: str, kernels: dict[str, str]) -> None:
    """One process: its part of every layer, and what the whole layer answers."""
    where = torch.device(kind, rank) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(where)
    else:
        torch.set_num_threads(max(1, torch.get_num_threads() // tp))
    dist.init_process_group("nccl" if kind == "cuda" else "gloo", f"file://{place}/meet", rank=rank, world_size=tp)
    try:
        mesh = init_device_mesh(kind, (tp,))
        found = []
        with settled(Device(where, kind), asked.seed) as random:
            for subject in _split_here(model):
                found.append(_part(Layer(subject, asked, where, random), tp, mesh, kernels[subject.name]))
        Path(place, f"{rank}.json").write_text(json.dumps(found))
    finally:
        dist.destroy_process_group()


def _part(layer: Layer, tp: int, mesh: Any, kernel: str) -> Found:
    """Both answer a few tokens by the reference, which knows sinks; the cache is of all of them."""
    tokens = layer.x.shape[1]
    few = min(tokens, COMPARED)
    attend = attend_by(REFERENCE, layer.seen(few))
    whole = layer.prefill(few, attend)
    split(layer, tp, mesh)
    error = apart(layer.prefill(few, attend), whole)
    cache = layer.cache() if layer.subject.decodes else None
    if cache is not None:
        layer.prefill(tokens, attend_by(kernel, layer.seen(tokens), with_sinks=False), cache)
    params: dict[str, int] = {}
    for name, parameter in layer.module.named_parameters():
        here = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        params[name.partition(".")[0]] = params.get(name.partition(".")[0], 0) + here.numel()
    return {"params": params, "cache": cache.bytes if cache else 0, "error": error}


def split(layer: Layer, tp: int, mesh: Any) -> None:
    """Put the layer's parameters in the order of the ranks, KV heads as often as they are held, and split them."""
    module, kind = layer.module, layer.subject.kind
    heads = kind.heads if isinstance(kind, Cross) else kind
    if isinstance(module, GroupedAttention) and isinstance(heads, Grouped):
        _arrange(module, heads, tp)
    styles: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in SPLIT_BY_COLUMN if hasattr(module, name)}
    parallelize_module(module, mesh, {**styles, "W_o": RowwiseParallel()})
    rank = mesh.get_local_rank()
    if isinstance(module, GroupedAttention):
        for name in ("sinks", "q_norm", "k_norm"):
            _split_vector(module, name, rank, tp)


def _arrange(module: GroupedAttention, kind: Grouped, tp: int) -> None:
    """Rows of the projections so that each rank's are together: its queries, its keys, its values."""
    copies = max(1, tp // kind.n_kv_heads)
    widths = (kind.n_heads * module.d_head, kind.n_kv_heads * module.d_head, kind.n_kv_heads * module.d_v)
    shard = kind.shard(tp)
    module.share = shard.n_heads // shard.n_kv_heads

    def held(rows: Tensor) -> Tensor:
        heads: Tensor = rows.unflatten(0, (kind.n_kv_heads, -1))
        return heads.repeat_interleave(copies, 0).flatten(0, 1)

    def of_ranks(rows: Tensor) -> Tensor:
        q, k, v = rows.split(widths)
        return torch.cat([part.chunk(tp)[rank] for rank in range(tp) for part in (q, held(k), held(v))])

    names, change = (("W_qkv",), of_ranks) if module.fused else (("W_k", "W_v"), held)
    for name in (n for n in names if hasattr(module, n)):
        linear = module.get_submodule(name)
        for parameter_name, parameter in list(linear.named_parameters()):
            setattr(linear, parameter_name, nn.Parameter(change(parameter)))


def _split_vector(module: GroupedAttention, name: str, rank: int, tp: int) -> None:
    """Sinks are of heads; so is a gain over all heads' width, whose norm then spans the ranks."""
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
    """RMSNorm over a width of which each rank has a part."""

    def __init__(self, gain: Tensor, tp: int) -> None:
        super().__init__()
        self.weight, self.tp = nn.Parameter(gain), tp

    def forward(self, x: Tensor) -> Tensor:
        """Of the same shape as `x`."""
        mean = x.square().mean(-1, keepdim=True)
        dist.all_reduce(mean)
        scale: Tensor = self.weight / (mean / self.tp).sqrt().add(1e-6)
        return x * scale
