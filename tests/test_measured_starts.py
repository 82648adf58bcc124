"""Starts that `verify --engine --save` measured on a machine, and what `fit --gpu box.yaml` predicts
there.
"""

import dataclasses
import itertools
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from asking import REPOSITORY, Ask
from fake_engine import GPU_LOG, FakeEngine
from schemas import check_answer
from startups import GIB, Prediction, predict, startups
from tables import each

from attncalc.config.gpu_file import to_yaml, with_start
from attncalc.config.gpus import gpu
from attncalc.config.local import NamedGpu
from attncalc.hardware import MeasuredStart

# Starts of other settings than their machine's: fp8 weights that are made from bf16 while they are
# loaded.
_OTHERS = ("own-h100-0.26.0-llama3.1-8b-fp8",)
# Files of two machines: one of the two has 0.21 GiB more outside PyTorch.
_OF_OTHER_MACHINE = 0.4


def machines() -> dict[str, list[dict[str, Any]]]:
    """Return {machine, engine and split: its starts}, of three and more models each.

    Source: tests/data/startups, its rows of controlled starts. Their publisher does not name the
    machines of one GPU: the memory outside PyTorch, 0.25 or 0.46 GiB, tells two of them apart, and
    rows without it are left out there.
    """
    found = defaultdict(list)
    for row in startups():
        logged = row["logged"]
        is_start = row["group"] == "controlled" and "kv_memory" in logged
        if not is_start or row.get("doubtful") or row["id"] in _OTHERS:
            continue
        machine = row["source"][:15]
        if machine.startswith("llm-d") and row["tp"] == 1:
            if "non_torch" not in logged:
                continue
            machine += str(logged["non_torch"] > _OF_OTHER_MACHINE)
        found[f"{machine} {row['engine']} {row['version']} tp {row['tp']}"].append(row)
    return {name: rows for name, rows in found.items() if len({row["model"] for row in rows}) >= 3}


MACHINES = machines()


def with_weights(row: dict[str, Any]) -> Prediction:
    """Return the prediction with the weights of the log."""
    prediction = predict(row)
    logged = row["logged"].get("weights")
    return prediction if logged is None else prediction.with_weights(logged)


def excess(row: dict[str, Any]) -> float:
    """Return the GiB that a start took beyond the formulas."""
    return with_weights(row).kv_memory - float(row["logged"]["kv_memory"])


def test_starts_of_six_machines_are_known() -> None:
    assert len(MACHINES) == 6
    assert sum(map(len, MACHINES.values())) == 68


@each("name", MACHINES)
def test_two_starts_on_a_machine_predict_a_third(name: str) -> None:
    """Any two starts of different models predict any third model's memory to 0.1 GiB, in 99.9 % of
    the cases, and to 0.12 in all. The formulas alone are up to 0.21 off.
    """
    excesses = [(row["model"], excess(row)) for row in MACHINES[name]]
    off = []
    for one, two, third in itertools.permutations(excesses, 3):
        if len({one[0], two[0], third[0]}) == 3:
            off.append(abs((one[1] + two[1]) / 2 - third[1]))
    assert max(off) < 0.12
    assert sum(each_off < 0.1 for each_off in off) >= 0.99 * len(off)


def start_of(row: dict[str, Any]) -> MeasuredStart:
    found = with_weights(row)
    size = int((found.kv_memory - row["logged"]["kv_memory"]) * GIB)
    return MeasuredStart(
        row["engine"],
        row["version"],
        row["tp"],
        row["pp"],
        row.get("attn_dp", 1),
        row["model"],
        size,
        tuple(found.runtime),
    )


@each("name", MACHINES)
def test_a_machine_with_two_starts_has_a_narrow_range(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The range of a third start, with all parts of the first two, has the logged memory, and is at
    most 0.35 GiB wide: 0.2, and what lies between the two.
    """
    rows = MACHINES[name]
    first = rows[0]
    other = next(row for row in reversed(rows) if row["model"] != first["model"])
    box = gpu(first["gpu"])
    for row in (first, other):
        box = with_start(tmp_path / "box.yaml", box, start_of(row))
    path = tmp_path / "box.yaml"
    path.write_text(to_yaml(box))
    measured = {part for start in box.starts for part in start.parts}
    for row in rows:
        alone = with_weights(row)
        found = with_weights({**row, "gpu": str(path)})
        # GiB: a log prints two decimals
        logged = row["logged"]["kv_memory"]
        assert found.low - 0.03 <= logged <= found.high + 0.03
        assert found.high - found.low <= max(alone.high - alone.low, 0.2) + 0.01
        if set(alone.runtime) <= measured:
            assert found.high - found.low <= 0.35


def test_a_file_of_a_machine_is_read_as_it_was_written(tmp_path: Path) -> None:
    here = gpu("h100")
    start = MeasuredStart("vllm", "0.32.0", 2, 1, 1, "Qwen3 8B", -5 * 2**20, ("activations",))
    path = tmp_path / "box.yaml"
    path.write_text(to_yaml(with_start(path, here, start)))
    read = gpu(path)
    assert read.starts == (start,)
    same = (
        "title",
        "memory",
        "bandwidth",
        "flops",
        "compute_capability",
        "nvlink",
        "link",
        "watts",
    )
    assert [getattr(read, field) for field in same] == [getattr(here, field) for field in same]


def test_a_second_start_of_the_same_model_replaces_the_first(tmp_path: Path) -> None:
    path = tmp_path / "box.yaml"
    start = MeasuredStart("vllm", "0.32.0", 1, 1, 1, "Qwen3 8B", 1, ())
    for other in (start, start._replace(model="Phi-4"), start._replace(excess=2)):
        path.write_text(to_yaml(with_start(path, gpu("h100"), other)))
    assert [(one.model, one.excess) for one in gpu(path).starts] == [("Phi-4", 1), ("Qwen3 8B", 2)]


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """Return the file of an H100 with a start of vLLM 0.32.0 that took 0.25 GiB more."""
    start = MeasuredStart(
        "vllm", "0.32.0", 1, 1, 1, "Phi-4", GIB // 4, ("sampler", "outside_torch", "cuda_graphs")
    )
    path = tmp_path / "box.yaml"
    path.write_text(to_yaml(dataclasses.replace(gpu("h100"), starts=(start,))))
    return path


def test_the_version_that_was_measured_is_the_default(ask: Ask, box: Path) -> None:
    answer = ask("fit", "qwen3-8b", "--gpu", str(box), "--full").out
    assert "vLLM 0.32.0" in answer
    assert "this machine, measured" in answer
    assert "this machine's, as a start of vLLM 0.32.0 shows: Phi-4" in " ".join(answer.split())


def test_a_machine_that_takes_less_is_said_to(ask: Ask, box: Path) -> None:
    box.write_text(box.read_text().replace("excess: ", "excess: -"))
    screen = " ".join(ask("fit", "qwen3-8b", "--gpu", str(box), "--full").out.split())
    assert "This machine takes 256 MiB less, as a start of vLLM 0.32.0 shows: Phi-4." in screen


def test_a_pasted_command_has_the_arguments_of_the_version_that_was_measured(
    ask: Ask, box: Path
) -> None:
    """--swap-space is gone since 0.18."""
    box.write_text(box.read_text().replace("0.32.0", "0.17.0"))
    asked = ("fit", "--gpu", str(box), "-c", "8K", "--json")
    command = ("vllm", "serve", "Qwen/Qwen3-8B", "--swap-space", "4", "--max-model-len", "8192")
    pasted = ask(*asked, "--", *command).document
    options = ask(*asked, "qwen3-8b", "--swap-space", "4").document
    assert pasted["values"] == options["values"]
    assert pasted["engine_version"] == "0.17.0"


def test_what_a_machine_takes_is_taken_from_the_cache(ask: Ask, box: Path) -> None:
    """0.25 GiB less than on an H100 that was not measured."""
    asked = ("fit", "qwen3-8b", "--engine-version", "0.32.0", "--get", "kv_memory")
    alone = int(ask(*asked, "--gpu", "h100").out)
    assert int(ask(*asked, "--gpu", str(box)).out) == alone - GIB // 4


@each("options", [("--engine-version", "0.31.0"), ("--engine", "sglang"), ("--gpus", "2")])
def test_a_start_counts_for_its_own_engine_version_and_split(
    ask: Ask, box: Path, options: tuple[str, ...]
) -> None:
    assert "measured" not in ask("fit", "qwen3-8b", "--gpu", str(box), *options, "--full").out


@each(
    ("line", "message"),
    [
        ("tp: 0", "starts.0.tp: 0 is below 1"),
        ("excess: much", "starts.0.excess: 'much' is not a whole number"),
        ("model: ''", "is not one line of text"),
    ],
)
def test_a_wrong_start_in_a_file_is_an_error(ask: Ask, box: Path, line: str, message: str) -> None:
    key = line.partition(":")[0]
    lines = []
    for old in box.read_text().splitlines():
        lines.append(f"  {line}" if old.strip().startswith(f"{key}:") else old)
    wrong = box.with_name("wrong.yaml")
    wrong.write_text("\n".join(lines))
    answer = ask("fit", "qwen3-8b", "--gpu", str(wrong))
    assert answer.code == 2
    assert message in answer.err


# Saved by `verify`

MODEL = str(REPOSITORY / "tests/data/engine-logs/models/qwen2.5-7b.json")
VERIFY = ("verify", MODEL, "--engine", "vllm", "--context", "8K")


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """Return a fake vLLM with that log, on a machine with an RTX 5090."""
    if sys.platform == "win32":
        pytest.skip("engines are started on Unix")
    found = (NamedGpu("NVIDIA GeForce RTX 5090", 32_607 * 2**20, "NVIDIA"),)
    for place in ("attncalc.questions.verify.engine_run", "attncalc.config.local"):
        monkeypatch.setattr(f"{place}.named_gpus", lambda: found)
    fake = FakeEngine(tmp_path, GPU_LOG)
    fake.install("vllm")
    monkeypatch.setenv("PATH", f"{fake.path}:{os.environ['PATH']}")
    return fake


def test_a_saved_start_predicts_itself(ask: Ask, tmp_path: Path, started: FakeEngine) -> None:
    """`fit` on the saved file has the logged 11.92 GiB in a range of 0.2 GiB around it."""
    path = tmp_path / "box.yaml"
    answer = ask(*VERIFY, "--save", str(path))
    assert "They are saved in" in answer.out
    fit = ask("fit", MODEL, "--gpu", str(path), "--engine", "vllm", "-c", "8K", "--json")
    figures = check_answer(fit.out)["values"]
    # the weights are the formula's, 14.25 GiB and not 14.37
    assert figures["kv_memory"] / GIB == pytest.approx(11.92, abs=0.15)
    assert (figures["kv_memory_high"] - figures["kv_memory_low"]) / GIB == pytest.approx(
        0.2, abs=0.01
    )


def test_a_start_of_a_version_that_is_not_known_yet_is_not_saved(
    ask: Ask, tmp_path: Path, started: FakeEngine
) -> None:
    """`fit` with that file would be an error about its version."""
    program = started.path / "vllm"
    program.write_text(program.read_text().replace("v0.24.0", "v0.99.0"))
    path = tmp_path / "box.yaml"
    answer = ask(*VERIFY, "--save", str(path))
    screen = " ".join(answer.out.split())
    assert "Nothing was saved in" in screen
    assert "vLLM 0.99.0 is not a supported version" in screen
    assert not path.exists()


@each(
    ("line", "message"),
    [
        (("verify", "gpt2", "--save", "box.yaml"), "--save needs --engine"),
        ((*VERIFY, "--save", "box.json"), "a GPU file is YAML"),
        (("verify", "gpt2", "--engine", "llamacpp", "--save", "b.yaml"), "does not size its cache"),
        (
            (
                "verify",
                "--save",
                "b.yaml",
                "--",
                "vllm",
                "serve",
                "m",
                "--kv-cache-memory-bytes",
                "2G",
            ),
            "--save cannot be combined with --kv-memory",
        ),
    ],
)
def test_what_cannot_be_saved_is_an_error_before_the_start(
    ask: Ask, started: FakeEngine, line: tuple[str, ...], message: str
) -> None:
    answer = ask(*line)
    assert answer.code == 2
    assert message in answer.err
    assert not started.has_started


def test_a_file_of_another_gpu_is_not_changed(ask: Ask, box: Path, started: FakeEngine) -> None:
    before = box.read_text()
    answer = ask(*VERIFY, "--save", str(box))
    assert answer.code == 2
    assert "is of NVIDIA H100 80GB SXM with 79.10 GiB" in answer.err
    assert box.read_text() == before


def test_a_machine_without_a_gpu_cannot_save(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attncalc.config.local.named_gpus", tuple)
    answer = ask(*VERIFY, "--save", str(tmp_path / "box.yaml"))
    assert answer.code == 3
    assert "this machine has none" in answer.err
