"""`verify --tp` over processes of torchrun: who prints, and how a rank that fails or is lost ends
all of them.
"""

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
# Runs its command line on two ranks, of which rank 1 is lost in each of several ways, and once not.
# It forks the ranks and hosts torchrun's store itself: torchrun, and torch in each rank, take
# seconds to start.
LOSSES = """
import json, os, signal, sys, time
import torch
import torch.distributed as dist
from attncalc import __main__ as program
from attncalc.errors import CannotCheckError
from attncalc.verify.programs import process_group, tensor_parallel

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
    if loss == "no loss":
        sys.argv[2] = "all.yaml"
        os.dup2(os.open(f"printed by {number}", os.O_CREAT | os.O_WRONLY), 1)
    else:
        process_group.BEAT_SECONDS, process_group.LOST_SECONDS = 0.1, 2.0
    if number == 1 and loss != "no loss":
        tensor_parallel._measure = lambda *_: broken(loss)
    if loss == "it never comes":
        process_group.MEET_SECONDS = 1.0
        if number == 1:
            os._exit(0)
    os.dup2(os.open(loss, os.O_CREAT | os.O_WRONLY), 2)
    try:
        program.main()
    except SystemExit as end:
        sys.stdout.flush()
        os._exit(end.code)  # torch would end threads that a fork does not have

codes = {}
for loss in ("no loss", "it fails", "it is killed", "torchrun ends all", "it never comes"):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks = {}
    for number in range(2):
        ranks[number] = os.fork()
        if ranks[number] == 0:
            rank(number, store.port, loss)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(ranks[0], signal.SIGTERM))
    codes[loss] = os.waitstatus_to_exitcode(os.waitpid(ranks[0], 0)[1])
    if loss == "no loss":
        os.waitpid(ranks[1], 0)
    else:
        os.kill(ranks[1], signal.SIGKILL)
print(json.dumps(codes))
"""
ERRORS = {
    "it fails": "rank 1: there is no room",
    "it is killed": "no sign of rank 1 for 2 s",
    "torchrun ends all": "torchrun ended all ranks, as it does when one of them ends",
    "it never comes": "no sign of rank 1 within 1 s",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which LOSSES ran: its exit codes, and what rank 0 printed."""
    if sys.platform != "linux":
        pytest.skip("forks")
    folder = tmp_path_factory.mktemp("ranks")
    text = ZOO.replace("n_layers: 8", "n_layers: 10").replace("[window,", "[plain, mamba, window,")
    (folder / "all.yaml").write_text(
        f"{text}  plain: {{ n_kv_heads: 2 }}\n  mamba: {{ {MAMBA} }}\n"
    )
    options = ("-c", "12", "--tp", "2", "--device", "cpu", "--json")
    ran = _python(folder, "-c", LOSSES, "verify", saved(GROUPED, folder), *options)
    (folder / "codes").write_text(ran.stdout or ran.stderr)
    return folder


def test_a_lost_rank_is_one_error_line_on_rank_0(folder: Path) -> None:
    assert json.loads((folder / "codes").read_text()) == {"no loss": 0, **dict.fromkeys(ERRORS, 3)}
    for loss, error in ERRORS.items():
        assert re.fullmatch(rf"error: {error}\n  tip: .+\n", (folder / loss).read_text())


def test_each_rank_holds_its_part_and_only_rank_0_prints(folder: Path) -> None:
    """Recurrent layers are not split, and both ranks hold the KV head of MQA."""
    assert (folder / "printed by 1").read_text() == (folder / "no loss").read_text() == ""
    answer = json.loads((folder / "printed by 0").read_text())
    assert all(check["ok"] for check in answer["checks"])
    measured = {(check["of"], check["name"]): check["measured"] for check in answer["checks"]}
    # one KV head of 8, and of 64, on each rank: 12 tokens * 2 * 4 B
    assert measured["plain", "cache_per_rank"] == 12 * 2 * 4 * 8
    assert measured["mqa", "cache_per_rank"] == 12 * 2 * 4 * 64
    assert measured["plain", "params_W_q_per_rank"] == 32 * 32 // 2
    assert any("mamba: Mamba is not split here" in note for note in answer["notes"])


def test_torchrun_with_another_number_of_processes_is_one_error(tmp_path: Path) -> None:
    started = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "attncalc", "verify")
    ran = _python(
        tmp_path, *started, saved(GROUPED, tmp_path), "-c", "12", "--device", "cpu", "--tp", "4"
    )
    assert re.findall(r"error:.*\n.*\n", ran.stderr) == [
        "error: torchrun started 2 processes, and --tp is 4\n  tip: give --tp 2\n"
    ]


def _python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        timeout=300,
        check=False,
    )
