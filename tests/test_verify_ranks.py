"""`verify --tp` over processes of torchrun: who prints, and how a rank that fails or is lost ends all of them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from asking import REPOSITORY
from layers import GROUPED, MAMBA, ZOO, saved

from attncalc.verify import need_torch

need_torch()
LOSSES = """
import json, os, signal, sys, time
import torch
import torch.distributed as dist
from attncalc import __main__ as program
from attncalc.errors import CannotCheckError
from attncalc.verify.programs import process_group, tensor_parallel

process_group.BEAT_SECONDS, process_group.LOST_SECONDS = 0.1, 2.0

def broken(loss):
    if loss == "it fails":
        raise CannotCheckError("there is no room", "make some")
    if loss == "it is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if loss == "torchrun ends all":
        os.kill(os.getppid(), signal.SIGALRM)
    time.sleep(60)

def rank(number, port, loss):
    os.environ.update(
        TORCHELASTIC_RUN_ID="test", TORCHELASTIC_USE_AGENT_STORE="True", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
        RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
    )
    torch.set_num_threads(1)
    if number == 1:
        tensor_parallel._measure = lambda *_: broken(loss)
    if loss == "it never comes":
        process_group.MEET_SECONDS = 1.0
        if number == 1:
            os._exit(0)
    os.dup2(os.open(loss, os.O_CREAT | os.O_WRONLY), 2)
    program.main()

codes = {}
for loss in ("it fails", "it is killed", "torchrun ends all", "it never comes"):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks = {}
    for number in range(2):
        ranks[number] = os.fork()
        if ranks[number] == 0:
            rank(number, store.port, loss)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(ranks[0], signal.SIGTERM))
    codes[loss] = os.waitstatus_to_exitcode(os.waitpid(ranks[0], 0)[1])
    os.kill(ranks[1], signal.SIGKILL)
print(json.dumps(codes))
"""
"""Runs its command line on two ranks, of which rank 1 is lost in each of several ways. It forks the ranks and hosts
torchrun's store itself: torchrun, and torch in each rank, take seconds to start."""
ERRORS = {
    "it fails": "rank 1: there is no room",
    "it is killed": "no sign of rank 1 for 2 s",
    "torchrun ends all": "torchrun ended all ranks, as it does when one of them ends",
    "it never comes": "no sign of rank 1 within 1 s",
}


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_lost_rank_is_one_error_line_on_rank_0(tmp_path: Path) -> None:
    ran = _python(tmp_path, "-c", LOSSES, "verify", saved(GROUPED, tmp_path), "-c", "8", "--tp", "2", "--device", "cpu")
    assert json.loads(ran.stdout) == dict.fromkeys(ERRORS, 3), ran.stderr
    for loss, error in ERRORS.items():
        assert re.fullmatch(rf"error: {error}\n  tip: .+\n", (tmp_path / loss).read_text())


def test_each_rank_of_torchrun_holds_its_part_and_only_rank_0_prints(tmp_path: Path) -> None:
    """Recurrent layers are not split, and both ranks hold the KV head of MQA."""
    text = ZOO.replace("n_layers: 8", "n_layers: 10").replace("[window,", "[plain, mamba, window,")
    text += f"  plain: {{ n_kv_heads: 2 }}\n  mamba: {{ {MAMBA} }}\n"
    ran = _torchrun(tmp_path, text, "--tp", "2", "--json", "-o", "one.json")
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
    answer = json.loads((tmp_path / "one.json").read_text())
    assert all(check["ok"] for check in answer["checks"])
    measured = {(check["of"], check["name"]): check["measured"] for check in answer["checks"]}
    # one KV head of 8, and of 64, on each rank: 12 tokens * 2 * 4 B
    assert measured["plain", "cache_per_rank"] == 12 * 2 * 4 * 8
    assert measured["mqa", "cache_per_rank"] == 12 * 2 * 4 * 64
    assert measured["plain", "params_W_q_per_rank"] == 32 * 32 // 2
    assert any("mamba: Mamba is not split here" in note for note in answer["notes"])


def test_torchrun_with_another_number_of_processes_is_one_error(tmp_path: Path) -> None:
    ran = _torchrun(tmp_path, GROUPED, "--tp", "4")
    assert re.findall(r"error:.*\n.*\n", ran.stderr) == [
        "error: torchrun started 2 processes, and --tp is 4\n  tip: give --tp 2\n"
    ]


def _torchrun(folder: Path, model: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `verify` in two processes of torchrun."""
    started = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "attncalc", "verify")
    return _python(folder, *started, saved(model, folder), "-c", "12", "--device", "cpu", *options)


def _python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=folder, timeout=300, check=False
    )
