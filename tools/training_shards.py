"""Compare the shards and the peak of torch's own FSDP2 and tensor parallelism with the formulas of
`train`.

    python tools/training_shards.py llama3-8b --gpus 8,64,512
    python tools/training_shards.py llama3-8b --gpus 64 --tp 8
    python tools/training_shards.py llama3-8b --gpus 8,64 --peak 4096
    python tools/training_shards.py small.yaml --gpus 2,4 --real

Rank 0 trains for a step in a process group of which the other ranks do not exist, with tensors that
have no memory; with --real all ranks exist as processes. --peak counts all tensors of a second step
with so many tokens.
"""

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import traceback
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore

from attncalc import load
from attncalc.cost.training.setup import Training
from attncalc.cost.training.states import states
from attncalc.cost.training.step import most_loaded
from attncalc.model import ModelSpec
from attncalc.records import NamedTuple
from attncalc.verify.layers.base import AttentionLayer
from attncalc.verify.layers.split import split_by_output
from attncalc.verify.training.model import TrainedModel, one_of_each
from attncalc.verify.training.saved import bytes_of, state_bytes
from attncalc.workload import Workload

TOKENS = 16


class Shards(NamedTuple):
    """Bytes that one rank holds during the whole run.

    Attributes:
        parameters: its weights.
        gradients: its gradients after the backward pass.
        states: AdamW's two moments after a step.
    """

    parameters: int
    gradients: int
    states: int


def run_of(
    model: ModelSpec, gpus: int, tp: int = 1, tokens: int = TOKENS, recompute: str = "none"
) -> Training:
    """Return the run of `attncalc train --gpus N --tp N --fsdp`, or without --fsdp if --tp uses all
    GPUs.
    """
    fields: dict[str, Any] = {"param_dtype": "fp32", "grad_dtype": "fp32", "master_weights": False}
    workload = Workload.train(1, tokens, dtype="bf16" if gpus > tp else "fp32", recompute=recompute)
    return Training(model, workload, gpus=gpus, tp=tp, zero=3 if gpus > tp else 0, **fields)


def predicted(run: Training) -> Shards:
    """Return what the formulas say of the rank that holds most."""
    held = states(run, run.stages[0])
    gradients = int(held.gradients)
    if run.tp > 1 and run.ranks == 1 and not (run.model.head and run.model.head.tied):
        # torch leaves the gradient of an embedding that is divided by rows whole on each rank, and
        # Megatron does not
        table = next(tensor for tensor in held.tensors if tensor.name == "embedding")
        gradients += ((run.model.vocab_size or 0) - table.rows) * table.columns * 4
    return Shards(int(held.weights), gradients, int(held.moments))


def every_layer(model: ModelSpec) -> ModelSpec:
    """Return the model with each layer in a group of its own, and without what `verify --train`
    leaves out.
    """
    count = [[group.count for group in stack.distinct()] for stack in model.stacks]
    small = one_of_each(model)
    stacks = (
        dataclasses.replace(
            stack,
            layers=tuple(g for g, n in zip(stack.layers, counts, strict=True) for _ in range(n)),
        )
        for stack, counts in zip(small.stacks, count, strict=True)
    )
    return dataclasses.replace(small, stacks=tuple(stacks))


def _divided(run: Training, mode: AbstractContextManager[Any]) -> TrainedModel:
    """Return the model of this rank of the process group that exists."""
    meshes = init_device_mesh("cpu", (run.ranks, run.tp), mesh_dim_names=("dp", "tp"))
    dp = meshes["dp"]
    tp = meshes["tp"]
    with mode:
        model = TrainedModel(run.model)
        model.tie()
        for layer in model.layers:
            layer.recompute = run.workload.recompute == "full"
        if run.tp > 1:
            _divide(model, tp)
    if run.ranks > 1:  # outside of the mode, since a mesh reads its own values
        mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in model.layers:
            fully_shard(layer, mesh=dp, mp_policy=mixed)
        fully_shard(model, mesh=dp, mp_policy=mixed)
    return model


def measured(run: Training, *, is_fake: bool = False) -> Shards:
    """Train for a step on this rank of the process group that exists, and return what it holds."""
    mode = FakeTensorMode(allow_non_fake_inputs=True) if is_fake else nullcontext()
    model = _divided(run, mode)
    with mode:
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        model(torch.zeros(1, TOKENS, dtype=torch.long), "flash").backward()
        gradients = bytes_of(parameter.grad for parameter in model.parameters())
        optimizer.step()
        return Shards(bytes_of(model.parameters()), gradients, state_bytes(optimizer))


def _divide(model: TrainedModel, mesh: Any) -> None:
    """Divide the matrices over the ranks of a mesh, as Megatron does: the first ones by rows, the
    last by columns.
    """
    styles: dict[str, ParallelStyle] = {
        "embedding": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(),  # each rank computes a loss of its logits
    }
    for path, module in model.named_modules():
        if isinstance(module, AttentionLayer):
            styles |= {f"{path}.{name}": ColwiseParallel() for name in split_by_output(module)}
            styles[f"{path}.W_o"] = RowwiseParallel()
        elif path.endswith(("W_up", "W_gate")) and isinstance(module, nn.Linear):
            styles[path] = ColwiseParallel()
        elif path.endswith("W_down"):
            styles[path] = RowwiseParallel()
    parallelize_module(model, mesh, styles)
    model.tie()


def without_others(run: Training, *, is_fake: bool = False) -> Shards:
    """Return what rank 0 holds, in a process group whose collective operations do nothing."""
    dist.init_process_group("fake", rank=0, world_size=run.gpus, store=FakeStore())
    try:
        return measured(run, is_fake=is_fake)
    finally:
        dist.destroy_process_group()


def peaks(run: Training) -> tuple[int, int]:
    """Return the most bytes that all tensors of rank 0 hold in a step, and what is predicted
    without workspaces.
    """
    dist.init_process_group("fake", rank=0, world_size=run.gpus, store=FakeStore())
    try:
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        model = _divided(run, mode)
        with mode:
            optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
            tokens = torch.zeros(1, run.workload.context, dtype=torch.long)
            tracker = FSDPMemTracker(model, optimizer) if run.ranks > 1 else MemTracker()
            if run.ranks > 1:
                tracker.track_inputs((tokens,))
            else:
                tracker.track_external(model, optimizer, tokens)
            for _ in range(2):
                with tracker:
                    model(tokens, "flash").backward()
                    optimizer.step()
                    optimizer.zero_grad()
                tracker.reset_mod_stats()
        (held,) = tracker.get_tracker_snapshot("peak").values()
    finally:
        dist.destroy_process_group()
    budget = most_loaded(run, plain=True)
    return held["Total"], budget.allocated - int(budget.workspaces)


def in_processes(run: Training) -> Shards:
    """Return the most that one of real processes holds. They are forks: this process must not have
    run autograd.
    """
    with tempfile.TemporaryDirectory() as folder:
        processes = [os.fork() or _rank(run, rank, Path(folder)) for rank in range(run.gpus)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
        if any(codes):
            sys.exit(f"ranks ended with {codes}")
        held = [json.loads((Path(folder) / str(rank)).read_text()) for rank in range(run.gpus)]
    return Shards(*map(max, zip(*held, strict=True)))


def _rank(run: Training, rank: int, folder: Path) -> NoReturn:
    """Write what this process holds as a rank, and end it."""
    try:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        store = dist.FileStore(str(folder / "store"), run.gpus)
        dist.init_process_group(
            "gloo", rank=rank, world_size=run.gpus, store=store, timeout=timedelta(seconds=60)
        )
        (folder / str(rank)).write_text(json.dumps(measured(run)))
        dist.barrier()
        os._exit(0)
    finally:
        traceback.print_exc()
        os._exit(1)


def main() -> None:
    """Print what a rank holds of a model beside the prediction. Exit with 1 if they differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--gpus", default="8,64,512")
    parser.add_argument("--tp", default="1")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--peak", type=int, help="compare the peak of a step with so many tokens")
    parser.add_argument("--recompute", default="none")
    given = parser.parse_args()
    model = every_layer(load(given.model))
    differ = False
    for gpus, tp in (
        (gpus, tp)
        for gpus in map(int, given.gpus.split(","))
        for tp in map(int, given.tp.split(","))
    ):
        run = run_of(model, gpus, tp, given.peak or TOKENS, given.recompute)
        if given.peak:
            peak, of_train = peaks(run)
            line = (
                f"{gpus} GPUs, tp {tp}, {given.peak} tokens: peak {peak:,} B, predicted "
                f"{of_train / peak - 1:+.2%}"
            )
            sys.stdout.write(f"{line}\n")
            continue
        found = in_processes(run) if given.real else without_others(run, is_fake=True)
        expected = predicted(run)
        for name, value in found._asdict().items():
            error = value - getattr(expected, name)
            differ |= error != 0
            sys.stdout.write(
                f"{gpus} GPUs, tp {tp}: {name} {value:,} B, {error:+,} than predicted\n"
            )
    sys.exit(differ)


if __name__ == "__main__":
    main()
