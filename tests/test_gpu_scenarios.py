"""The whole program on many boxes, in the stand-in for CUDA: each answers, or ends with one error
line.
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import Answer, Ask
from layers import GROUPED, saved

from attncalc import load
from attncalc.questions.verify import record_command as verify_record
from attncalc.verify import need_torch

need_torch()
from cuda_stand_in import A100, B200, GPUS, H100, ROCM, RTX_4090, RTX_5090, T4, V100, Box, Gpus  # noqa: E402

from attncalc.verify.record import steps  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_checks_of_values")

OnBox = Callable[[Box], Gpus]
# Every kernel takes its heads.
MODEL = GROUPED + "d_head: 16\n"
NO_IMAGE = "CUDA error: no kernel image is available for execution on the device"
ILLEGAL = "CUDA error: an illegal memory access was encountered"


def run(ask: Ask, folder: Path, *options: str) -> Answer:
    """Return the answer for a small model; an error is one line and a tip."""
    answer = ask(
        "verify", saved(MODEL, folder), "-c", "16", "--device", "cuda", "--minutes", "60", *options
    )
    if answer.err:
        error, tip, *more = answer.err.splitlines()
        assert error.startswith("error: ")
        assert tip.startswith("  tip: ")
        assert more == []
    return answer


def kernels(document: dict[str, Any]) -> list[str]:
    """Return the kernels whose peak in a prefill was checked."""
    names = (check["name"] for check in document["checks"])
    return [
        name.removeprefix("peak_prefill_") for name in names if name.startswith("peak_prefill_")
    ]


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        (Box((V100,)), ["math", "efficient"]),
        (Box((T4,)), ["math", "efficient"]),
        *(
            (Box((gpu,)), ["math", "flash", "efficient", "cudnn"])
            for gpu in (A100, RTX_4090, H100, B200, RTX_5090)
        ),
        *(
            (Box(torch=f"2.{n}.0+cu126"), ["math", "flash", "efficient", "cudnn"])
            for n in (5, 6, 7, 8)
        ),
        (ROCM, ["math", "flash", "efficient"]),
        (Box((T4, H100)), ["math", "flash", "efficient", "cudnn"]),
        (
            Box((dataclasses.replace(H100, used=H100.memory - 2**30),)),
            ["math", "flash", "efficient", "cudnn"],
        ),
        (Box(most_queries={"cudnn": 0, "flash": 8}), ["math", "efficient"]),
        (Box(cudnn="cuDNN version incompatibility: PyTorch was compiled against another"), None),
    ],
    ids=lambda value: value.torch + value.gpus[-1].name if isinstance(value, Box) else "",
)
def test_every_box_agrees(
    ask: Ask, on_box: OnBox, tmp_path: Path, box: Box, expected: list[str] | None
) -> None:
    on_box(box)
    answer = run(ask, tmp_path, "--json")
    document = json.loads(answer.out)
    assert [check["name"] for check in document["checks"] if not check["ok"]] == []
    assert answer.code == 0
    assert kernels(document) == (expected or kernels(document))


def test_every_gpu_of_the_stand_in_is_tried() -> None:
    assert {gpu.capability for gpu in GPUS.values()} >= {
        (7, 0),
        (7, 5),
        (8, 0),
        (8, 9),
        (9, 0),
        (10, 0),
        (12, 0),
    }


def test_memory_that_runs_out_at_any_allocation_is_survived(
    ask: Ask, on_box: OnBox, tmp_path: Path
) -> None:
    """The first allocations are those of the device's choice, the rates and the plan; then those of
    the layer.
    """
    gpus = on_box(Box())
    for number in (1, 2, 3, 5, 8, 20, 60, 100, 130, 160, 190, 205):
        gpus.box = Box(out_of_memory_at=gpus.allocations + number)
        assert run(ask, tmp_path, "--kernel", "flash").code in (0, 3), number
        assert gpus.allocations >= gpus.box.out_of_memory_at, number


@pytest.mark.parametrize(
    ("error", "lasts"), [(ILLEGAL, True), (NO_IMAGE, True), ("CUDA error: out of memory", False)]
)
def test_an_error_of_cuda_at_any_operation_is_one_line(
    ask: Ask, on_box: OnBox, tmp_path: Path, error: str, lasts: bool
) -> None:
    gpus = on_box(Box())
    for number in (1, 10, 50, 200, 350):
        gpus.box = Box(error=error, error_at=gpus.operations + number, error_lasts=lasts)
        answer = run(ask, tmp_path, "--kernel", "flash")
        assert answer.code == 3 if lasts else answer.code in (0, 3), number
        assert not lasts or error in answer.err, number


def test_a_wheel_without_kernels_for_the_gpu_is_named(
    ask: Ask, on_box: OnBox, tmp_path: Path
) -> None:
    on_box(Box((V100,), error=f"{NO_IMAGE}\nCUDA kernel errors might be asynchronously reported"))
    answer = run(ask, tmp_path)
    assert answer.code == 3
    assert answer.err.startswith(
        f"error: cuda:0 cannot be used: {NO_IMAGE}\n  tip: install a wheel of torch"
    )


def test_the_smoke_check_names_the_box_in_one_line(ask: Ask, on_box: OnBox) -> None:
    on_box(Box((T4,)))
    answer = ask("verify", "--smoke", "--device", "cuda")
    line = " ".join(answer.out.partition("To paste into an issue: ")[2].split())
    assert answer.code == 0
    assert line.startswith(
        "Tesla T4, compute capability 7.5, CUDA 13.0, torch 2.13.0+cu130, attncalc "
    )
    assert "checks agree, in fp16; math, efficient ran, not flash, cudnn." in line


def test_the_smoke_check_names_what_disagrees(
    ask: Ask, on_box: OnBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_box(Box())
    monkeypatch.setattr("attncalc.verify.layers.cache.Cache.bytes", property(lambda self: 1))
    answer = ask("verify", "--smoke", "--device", "cuda", "--kernel", "math")
    assert answer.code == 1
    assert "checks agree, not decoder, cache, after 62 tokens; decoder, cache, after 2" in " ".join(
        answer.out.split()
    )


@pytest.mark.parametrize(
    "arguments",
    ["gpt2", "--context 8", "--minutes 1", "--simulate cuda", "--record out", "--scaling"],
)
def test_the_smoke_check_chooses_its_model_and_size(ask: Ask, arguments: str) -> None:
    assert ask("verify", "--smoke", *arguments.split()).error.startswith(
        "error: --smoke cannot be combined with "
    )


@pytest.mark.parametrize(
    "box", [Box((T4,)), ROCM, Box(error=ILLEGAL, error_at=3000)], ids=["T4", "ROCm", "broken"]
)
def test_a_record_is_written_on_every_box(
    ask: Ask, on_box: OnBox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, box: Box
) -> None:
    """Every step of a small model. After an illegal access no step starts, and those before are
    kept.
    """
    on_box(box)
    path = saved(MODEL, tmp_path)
    monkeypatch.setattr(verify_record, "record_models", lambda: {"small": load(path)})
    monkeypatch.setattr(steps, "MAX_CONTEXT", 0)
    answer = ask("verify", "--record", str(tmp_path / "out"), "--device", "cuda", "--minutes", "60")
    (data,) = (tmp_path / "out").glob("*.json")
    document = json.loads(data.read_text())
    assert [run["disagree"] for run in document["runs"] if run["disagree"]] == []
    failed = [step for step in document["skipped"] if step["failed"]]
    assert (answer.code, len(failed)) == ((1, 1) if box.error else (0, 0))
    assert any("no longer answers" in step["reason"] for step in document["skipped"]) == bool(
        box.error
    )
    assert len(document["runs"]) >= (1 if box.error else 5)
