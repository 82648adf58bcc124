"""The shards of torch's own FSDP2 and tensor parallelism have the bytes that `train` predicts for a
rank.
"""

import dataclasses
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from asking import REPOSITORY
from layers import GROUPED, LATENT, MHA, OPTIONS, saved
from tables import each

from attncalc import load
from attncalc.cost.training.setup import Lora
from attncalc.cost.training.states import states
from attncalc.verify import need_torch
from attncalc.what_if import what_if

need_torch()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

from attncalc.verify.training.saved import bytes_of  # noqa: E402

sys.path.append(str(REPOSITORY / "tools"))

GATED = OPTIONS.replace("sinks: true\n", "")
POSITIONS = MHA.replace("rmsnorm", "layernorm") + "bias: true\nfused: true\nlearned_positions: 64\n"
MODELS = {
    "grouped": GROUPED,
    "tied": GROUPED + "tied_embeddings: true\n",
    "gate and norms of heads": GATED,
    "latent": LATENT,
    "experts": GROUPED + "n_experts: 4\nn_experts_per_token: 2\n",
    "biases and positions": POSITIONS,
}


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """Return tools/training_shards.py, whose parts of torch take seconds to import."""
    return import_module("training_shards")


def shards(tool: ModuleType, name: str, folder: Path, gpus: int, tp: int) -> tuple[Any, Any]:
    """Return what rank 0 holds and what is predicted, with a vocabulary that no number of GPUs
    divides.
    """
    model = load(saved(MODELS[name].replace("vocab_size: 10\n", "vocab_size: 1001\n"), folder))
    run = tool.run_of(tool.every_layer(model), gpus, tp)
    return tool.without_others(run), tool.predicted(run)


@each("name", MODELS)
@pytest.mark.parametrize("gpus", [8, 512])
def test_fsdp_rounds_each_tensor_up_by_its_first_dimension(
    tool: ModuleType, tmp_path: Path, name: str, gpus: int
) -> None:
    found, expected = shards(tool, name, tmp_path, gpus, 1)
    assert found == expected


@each("name", [name for name in MODELS if name != "gate and norms of heads"])
@pytest.mark.parametrize("gpus", [2, 64])
def test_a_tensor_parallel_rank_holds_its_part_alone_and_with_fsdp(
    tool: ModuleType, tmp_path: Path, name: str, gpus: int
) -> None:
    found, expected = shards(tool, name, tmp_path, gpus, 2)
    assert found == expected


@each(
    ("gpus", "tp", "tokens"),
    # the peak is in the backward pass of the loss, and of the embedding
    [(64, 8, 4096), (64, 1, 16)],
)
def test_the_peak_is_that_of_all_tensors_of_a_rank(
    tool: ModuleType, gpus: int, tp: int, tokens: int
) -> None:
    model = tool.every_layer(what_if(load("llama3-8b"), layers=2))
    peak, of_train = tool.peaks(tool.run_of(model, gpus, tp, tokens))
    assert of_train == pytest.approx(peak, rel=0.0005)


def test_fsdp_divides_adapters_and_frozen_weights_by_rows(tool: ModuleType, tmp_path: Path) -> None:
    from torch.distributed.fsdp import fully_shard

    # 4 rows of A on 8 ranks: half of the ranks hold a row of it, and the others none
    model = load(saved(GROUPED.replace("vocab_size: 10\n", "vocab_size: 1001\n"), tmp_path))
    run = dataclasses.replace(tool.run_of(model, 8), lora=Lora(4, ("W_q", "W_v")))
    held = states(run, run.stages[0])
    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (8,))
        found = []
        for tensors, dtype in (
            (held.trained_tensors, torch.float32),
            (held.tensors, torch.bfloat16),
        ):
            shapes = [
                (t.rows, t.columns) if t.columns > 1 else (t.rows,)
                for t in tensors
                for _ in range(int(t.copies))
            ]
            module = nn.ParameterList([torch.empty(shape, dtype=dtype) for shape in shapes])
            fully_shard(module, mesh=mesh)
            found.append(bytes_of(module.parameters()))
    finally:
        dist.destroy_process_group()
    assert found == [int(held.weights), int(held.frozen_weights)]


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_real_processes_hold_what_is_predicted(tmp_path: Path) -> None:
    """Two tensor-parallel ranks, then four of which two are data-parallel, train for a step."""
    path = saved(GROUPED.replace("vocab_size: 10\n", "vocab_size: 1001\n"), tmp_path)
    command = [
        sys.executable,
        "tools/training_shards.py",
        path,
        "--gpus",
        "2,4",
        "--tp",
        "2",
        "--real",
    ]
    ran = subprocess.run(
        command, capture_output=True, text=True, cwd=REPOSITORY, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("+0 than predicted") == 6
