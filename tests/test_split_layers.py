"""Tensor parallelism: of layers that torch splits over processes, each rank holds what `--tp`
predicts.
"""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from asking import REPOSITORY
from breaks import Patch
from layers import GROUPED, MAMBA, ZOO, saved

from attncalc import Grouped, load
from attncalc.verify import need_torch

need_torch()
import torch  # noqa: E402
from split_layers import Part, disagreeing, split_cases  # noqa: E402

GPUS = torch.cuda.device_count()
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks")


def measured(model: str, device: str = "cpu", context: int = 12) -> list[dict[str, Part]]:
    """Return what two ranks hold of each layer, by the name of the layer."""
    script = [sys.executable, str(REPOSITORY / "tests/split_layers.py"), model]
    ran = subprocess.run(
        [*script, "--context", str(context), "--device", device],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    parts: list[dict[str, Part]] = json.loads(ran.stdout)
    return parts


def test_each_rank_holds_its_part_and_all_together_give_the_whole_layers_output(
    tmp_path: Path,
) -> None:
    text = ZOO.replace("n_layers: 8", "n_layers: 10").replace("[window,", "[plain, mamba, window,")
    model = saved(f"{text}  plain: {{ n_kv_heads: 2 }}\n  mamba: {{ {MAMBA} }}\n", tmp_path)
    ranks = measured(model)
    split = split_cases(load(model))
    assert {case.name for case in split} == set(ranks[0])
    assert len(split) == 9  # all but mamba
    for case in split:
        assert disagreeing(case, 2, 12, [parts[case.name] for parts in ranks]) == set(), case.name
    # one KV head of 8, and of 64, on each rank, which replicate that of MQA: 12 tokens * 2 * 4 B
    assert [parts["plain"]["cache"] for parts in ranks] == [12 * 2 * 4 * 8] * 2
    assert [parts["mqa"]["cache"] for parts in ranks] == [12 * 2 * 4 * 64] * 2
    assert [parts["plain"]["W_q"] for parts in ranks] == [32 * 32 // 2] * 2


@pytest.mark.skipif(GPUS < 2, reason="torch sees fewer than two CUDA devices")
def test_two_gpus_hold_their_parts_of_a_layer() -> None:
    ranks = measured("llama3-8b", "cuda", 512)
    (case,) = split_cases(load("llama3-8b"))
    assert disagreeing(case, 2, 512, [parts[case.name] for parts in ranks]) == set()


def disagreeing_of_four(tmp_path: Path, error: float = 0.0) -> set[str]:
    """Return what disagrees if each of 4 ranks holds one query head of 4, and one of two KV heads
    of 8.
    """
    (case,) = split_cases(load(saved(GROUPED, tmp_path)))
    matrices = dict.fromkeys(("W_q", "W_k", "W_v", "W_o"), 32 * 8)
    held = {**matrices, "params": 4 * 32 * 8, "cache": 12 * 2 * 8 * 4}
    return disagreeing(case, 4, 12, [{**held, "error": e} for e in (0.0, 0.0, error, 0.0)])


def test_a_wrong_split_disagrees(tmp_path: Path, monkeypatch: Patch) -> None:
    """A formula that does not replicate KV heads: 2 heads over 4 ranks."""

    def wrong(self: Grouped, tp: int) -> Grouped:
        return dataclasses.replace(self, n_heads=self.n_heads // tp * 2, n_kv_heads=2)

    assert disagreeing_of_four(tmp_path) == set()
    monkeypatch.setattr(Grouped, "shard", wrong)
    assert disagreeing_of_four(tmp_path) >= {"W_q", "W_k", "params", "cache"}


def test_a_rank_with_a_wrong_output_disagrees(tmp_path: Path) -> None:
    assert disagreeing_of_four(tmp_path, float("nan")) == {"error"}
