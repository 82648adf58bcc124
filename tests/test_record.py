"""`attncalc verify --record`: its steps, its time, what it keeps, and the page made of it."""

import contextlib
import json
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from asking import REPOSITORY, Ask
from layers import GROUPED, saved
from schemas import check_answer

from attncalc import load
from attncalc.questions.verify import command as verify_command
from attncalc.questions.verify import record_command as verify_record
from attncalc.questions.verify.record_command import record_models
from attncalc.verify import need_torch

need_torch()
from attncalc.attention import KINDS  # noqa: E402
from attncalc.attention.recurrent import Recurrent  # noqa: E402
from attncalc.check import Check, Reported, ScalingRow, VerifyResult  # noqa: E402
from attncalc.errors import CannotCheckError  # noqa: E402
from attncalc.model import ModelSpec  # noqa: E402
from attncalc.questions.verify.record import agrees, is_empty  # noqa: E402
from attncalc.questions.verify.record_files import to_json  # noqa: E402
from attncalc.verify import time_plan  # noqa: E402
from attncalc.verify.devices import Device, find_device  # noqa: E402
from attncalc.verify.errors import DeviceFailedError  # noqa: E402
from attncalc.verify.layers import find_layer  # noqa: E402
from attncalc.verify.options import VerifyOptions  # noqa: E402
from attncalc.verify.programs import verify as verify_really  # noqa: E402
from attncalc.verify.record import machine, recorder  # noqa: E402
from attncalc.verify.record.machine import device_title, file_stem  # noqa: E402
from attncalc.verify.record.recorder import plan_record, record  # noqa: E402
from attncalc.verify.record.steps import Step, Target, kinds_of, record_steps  # noqa: E402
from attncalc.verify.timing import Ceiling  # noqa: E402

sys.path.append(str(REPOSITORY / "tools"))
record_page = import_module("record_page").record_page

CPU = Target("cpu", "fp32", "fp32")
GPU = Target("cuda", "bf16")
AGREES = Check("parameters", "params_W_q", "W_q", 10, 10, unit="parameters")
Document = dict[str, Any]
Verify = Callable[..., VerifyResult]


# Steps


def test_the_first_steps_cover_every_kind_of_attention() -> None:
    """Before any other preset is run: one model with each kind."""
    models = record_models()
    steps = record_steps(models, VerifyOptions(), CPU)
    first_batch = next(i for i, step in enumerate(steps) if step.options.batch > 1)
    covered = {kind for step in steps[:first_batch] for kind in kinds_of(models[step.model])}
    assert covered == {kind for model in models.values() for kind in kinds_of(model)}
    assert covered >= {
        "MHA",
        "GQA",
        "MQA",
        "MLA",
        "sliding",
        "chunked",
        "cross",
        "sinks",
        "recurrent",
    }


def test_every_preset_and_every_dtype_has_a_step() -> None:
    steps = record_steps(record_models(), VerifyOptions(), GPU)
    assert {step.model for step in steps} == set(record_models())
    assert {step.options.dtype for step in steps} == {"fp32", "fp16", "bf16"}
    in_fp16 = record_steps(
        record_models(), VerifyOptions(dtype="fp16"), Target("cpu", "fp16", "fp32")
    )
    assert {step.options.dtype for step in in_fp16} == {"fp16"}


def test_no_step_is_run_twice() -> None:
    arguments = [step.arguments for step in record_steps(record_models(), VerifyOptions(), CPU)]
    assert len(arguments) == len(set(arguments))


def test_contexts_double_and_come_last() -> None:
    steps = record_steps(record_models(), VerifyOptions(), CPU)
    first = next(i for i, step in enumerate(steps) if step.series)
    assert all(step.series for step in steps[first:])
    contexts = [step.options.context for step in steps if step.series == "llama3-8b"]
    assert contexts == [2**n for n in range(8, 21)]  # from twice the default of 128 to 2^20


def test_lengths_are_odd_and_windows_are_full() -> None:
    """Kernels pad odd lengths; a window narrower than the context needs a mask."""
    models = record_models()
    steps = [step for step in record_steps(models, VerifyOptions(), CPU) if step.options.batch > 1]
    assert len(steps) == 5
    assert all(step.options.context and step.options.context % 2 for step in steps)
    window = next(step for step in steps if "sliding" in kinds_of(models[step.model]))
    assert (window.options.context or 0) > 2 * 128  # gpt-oss has windows of 128 tokens


@pytest.mark.parametrize("target", [CPU, GPU])
def test_the_arguments_of_a_step_repeat_it(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, target: Target
) -> None:
    """Each row of the page can be typed: the command line makes the step's options of it."""
    seen: list[VerifyOptions] = []

    def capture(specs: list[ModelSpec], options: VerifyOptions, *_: object, **__: object) -> Any:
        seen.append(options)
        raise CannotCheckError("captured")

    monkeypatch.setattr(verify_command, "_device", lambda _: None)
    monkeypatch.setattr(verify_command, "_run", capture)
    monkeypatch.chdir(REPOSITORY)
    steps = record_steps(record_models(), VerifyOptions(seed=7), target)
    for step in steps:
        assert ask("verify", *step.arguments.split()).err == "error: captured\n"
    for step, options in zip(steps, seen, strict=True):
        source = options.source if step.options.source else None
        assert options._replace(source=source, minutes=step.options.minutes) == step.options, (
            step.arguments
        )


def test_the_examples_have_a_layer_of_every_recurrence() -> None:
    kinds: set[type] = {
        type(group.attention)
        for _, group in record_models()["presets/kinds/recurrent.yaml"].groups()
    }
    assert kinds == {
        kind for kind in KINDS.values() if issubclass(kind, Recurrent) and find_layer(kind)
    }


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("cuda:0 (NVIDIA H100 80GB HBM3)", "nvidia-h100-80gb-hbm3"),
        ("cuda:3 (NVIDIA A100-SXM4-40GB MIG 1g.5gb)", "nvidia-a100-sxm4-40gb-mig-1g-5gb"),
        ("cpu (2 threads)", "cpu-2-threads"),
        ("mps", "mps"),
        ("cuda:0 (../../etc)", "etc"),
    ],
)
def test_files_are_named_after_the_device(name: str, stem: str) -> None:
    device = find_device("cpu")
    device.name = name
    assert file_stem(device_title(device)) == stem


def test_the_driver_is_read_from_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = tmp_path / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC "
        "2024\nGCC\n"
    )
    amd = tmp_path / "sys/module/amdgpu/version"
    amd.parent.mkdir(parents=True)
    amd.write_text("6.8.5\n")
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    assert machine._driver({"type": "cuda"}) == "550.54.15"
    assert machine._driver({"type": "cuda", "rocm": "6.2"}) == "6.8.5"
    assert machine._driver({"type": "cpu"}) is None
    version.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build\n"
    )
    assert machine._driver({"type": "cuda"}) == "570.86.10"


# Runs and time


class Clock:
    """A clock that only a step advances."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def tiny(folder: Path) -> dict[str, ModelSpec]:
    return {"tiny": load(saved(GROUPED, folder))}


def recorded(
    models: dict[str, ModelSpec],
    steps: list[Step],
    monkeypatch: pytest.MonkeyPatch,
    verify: Verify,
    minutes: float = 3,
) -> list[Document]:
    """Return the records after each step; `verify` replaces the measurement and may advance its
    clock.
    """
    monkeypatch.setattr(recorder, "verify", verify)
    monkeypatch.setattr(time_plan, "known_ceiling", lambda *_: Ceiling(1e9, 1e9))
    clock, written = getattr(verify, "clock", Clock()), list[Document]()
    with contextlib.suppress(KeyboardInterrupt):
        record(
            steps,
            models,
            find_device("cpu"),
            minutes,
            "attncalc verify",
            lambda _: None,
            written.append,
            now=clock,
        )
    return written


def taking(seconds: float, *errors: Exception | None) -> Verify:
    """Return a measurement that takes this time and agrees, or raises the n-th of `errors`."""
    clock, left = Clock(), list(errors)

    def verify(model: ModelSpec, request: Any, *_: object) -> VerifyResult:
        clock.seconds += seconds
        error = left.pop(0) if left else None
        if error:
            raise error
        return VerifyResult((AGREES,), context=request.context)

    verify.clock = clock  # type: ignore[attr-defined]
    return verify


def contexts(*numbers: int, series: str = "") -> list[Step]:
    return [Step("tiny", VerifyOptions(context=n), series) for n in numbers]


def test_a_step_that_does_not_fit_in_the_time_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 180 s the first takes 100, so the second is expected to take as long: 80 s are left."""
    *_, last = recorded(tiny(tmp_path), contexts(8, 9), monkeypatch, taking(100))
    assert [run["arguments"] for run in last["runs"]] == ["tiny --context 8"]
    (left,) = last["skipped"]
    assert (left["arguments"], left["reason"]) == ("tiny --context 9", "no time left")
    assert left["seconds"] == pytest.approx(100, rel=0.1)
    assert "`tiny --context 9` (2 min)" in record_page(last)
    assert agrees(last)


def test_a_shorter_step_after_one_that_is_too_long_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        recorder, "predicted_steps", lambda model, request, *_, **__: [float(request.context)]
    )
    *_, last = recorded(tiny(tmp_path), contexts(10, 1000, 20), monkeypatch, taking(10))
    assert [run["arguments"] for run in last["runs"]] == ["tiny --context 10", "tiny --context 20"]


def test_a_doubling_ends_with_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan shortens 16 to 12 tokens, so 32 and 64 are not tried."""

    def verify(model: ModelSpec, request: Any, *_: object) -> VerifyResult:
        note = "Context 16 does not fit in 1 GiB: shortened to 12."
        return VerifyResult(
            (AGREES,),
            context=min(request.context, 12),
            limits=(note,) if request.context > 12 else (),
        )

    *_, last = recorded(tiny(tmp_path), contexts(8, 16, 32, 64, series="tiny"), monkeypatch, verify)
    assert [run["context"] for run in last["runs"]] == [8, 12]
    assert last["skipped"] == []
    assert "shortened to 12" in record_page(last)


def test_a_doubling_without_time_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = contexts(8, 16, 32, series="tiny")
    *_, last = recorded(tiny(tmp_path), steps, monkeypatch, taking(100))
    assert [step["arguments"] for step in last["skipped"]] == ["tiny --context 16"]
    assert "`tiny --context 16` and longer contexts" in record_page(last)


def test_a_step_that_cannot_be_checked_is_skipped_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = taking(1, CannotCheckError("one layer needs 3 GiB"))
    *_, last = recorded(tiny(tmp_path), contexts(8, 9), monkeypatch, verify)
    assert [(step["reason"], step["failed"]) for step in last["skipped"]] == [
        ("one layer needs 3 GiB", False)
    ]
    assert [run["arguments"] for run in last["runs"]] == ["tiny --context 9"]
    assert agrees(last)
    assert "one layer needs 3 GiB" in record_page(last)


def test_an_unexpected_error_is_shown_and_the_other_steps_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = taking(
        1, RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with")
    )
    *_, last = recorded(tiny(tmp_path), contexts(8, 9), monkeypatch, verify)
    assert len(last["runs"]) == 1
    assert not agrees(last)
    page = record_page(last)
    assert "1 step ended in an error" in page
    assert "error: RuntimeError: CUDA error: an illegal memory access" in page


def test_nothing_runs_on_a_device_that_no_longer_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder._Recorder, "_answers", lambda self: False)
    verify = taking(1, None, RuntimeError("CUDA error"))
    *_, last = recorded(tiny(tmp_path), contexts(8, 9, 10), monkeypatch, verify)
    assert len(last["runs"]) == 1
    assert "no longer answers after tiny --context 9" in last["skipped"][1]["reason"]


def test_the_record_after_each_step_names_what_has_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_, last = recorded(tiny(tmp_path), contexts(8, 9), monkeypatch, taking(1))
    assert [step["reason"] for step in first["skipped"]] == [recorder.INTERRUPTED]
    assert last["skipped"] == []


def measuring(clock: Clock, *seconds: float, end: BaseException) -> Verify:
    """Return a measurement with a result after each of these seconds, which then ends early."""

    def verify(model: ModelSpec, request: Any, device: Device, on: Any) -> VerifyResult:
        for i, elapsed in enumerate(seconds, 1):
            clock.seconds += elapsed
            on.keep(VerifyResult((AGREES,) * i, context=request.context))
        raise end

    verify.clock = clock  # type: ignore[attr-defined]
    return verify


def test_results_of_a_long_step_are_written_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results after 3, 6 and 9 s: the second is written, as 5 s are over, and the third when the
    step ends.
    """
    verify = measuring(Clock(), 3, 3, 3, end=KeyboardInterrupt())
    written = recorded(tiny(tmp_path), contexts(8, 9), monkeypatch, verify)
    assert [len(document["runs"][0]["checks"]) for document in written] == [2, 3]
    for document in written:
        assert document["runs"][0]["notes"] == [recorder.UNFINISHED]
        assert [step["arguments"] for step in document["skipped"]] == ["tiny --context 9"]
        assert recorder.UNFINISHED in record_page(document)


def test_an_interrupt_before_the_first_result_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        recorded(
            tiny(tmp_path), contexts(8), monkeypatch, measuring(Clock(), end=KeyboardInterrupt())
        )
        == []
    )


def test_a_step_that_ends_in_an_error_keeps_its_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = measuring(
        Clock(), 1, end=DeviceFailedError("cuda:0 failed: CUDA error: an illegal memory access")
    )
    *_, last = recorded(tiny(tmp_path), contexts(8), monkeypatch, verify)
    assert [run["notes"] for run in last["runs"]] == [[recorder.UNFINISHED]]
    assert [(step["arguments"], step["failed"]) for step in last["skipped"]] == [
        ("tiny --context 8", True)
    ]


def test_progress_has_a_number_and_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of three steps takes as long as the first, 50 s, and a third such would not fit in
    120 s.
    """
    shown: list[str] = []
    verify = taking(50)
    monkeypatch.setattr(recorder, "verify", verify)
    monkeypatch.setattr(recorder, "predicted_steps", lambda *_, **__: [50.0])
    clock: Any = verify.clock  # type: ignore[attr-defined]
    steps = contexts(8, 9, 10)
    record(
        steps, tiny(tmp_path), find_device("cpu"), 2, "", shown.append, lambda _: None, now=clock
    )
    assert shown == [
        "1 of 2, about 2 min left: tiny --context 8",
        "2 of 2, about 50 s left: tiny --context 9",
    ]


# The page


def disagreeing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Document:
    """A record of a GPU with a peak that disagrees, an output that is no number, and figures for
    information.
    """
    mib = 2**20
    peak = Check(
        "peak memory",
        "peak_prefill_math",
        "prefill, math",
        100 * mib,
        103 * mib,
        mib,
        "B",
        "QK: q",
        "a tensor",
        "dec",
    )
    nan = Check(
        "kernels vs reference",
        "math_equals_reference_fp32",
        "math",
        0,
        float("nan"),
        1e-5,
        of="dec",
    )
    figures = {"allocated": 104, "reserved": 200, "driver": 900}
    reported = tuple(
        Reported("memory", f"{name}_prefill_math", name, value * mib, "B", "", "dec")
        for name, value in figures.items()
    )
    row = ScalingRow("dec", "math", 1024, 1.5, 10, 100, 100)

    def verify(*_: object) -> VerifyResult:
        return VerifyResult(
            (AGREES, peak, nan), scaling=(row,), context=8, reported=reported, skipped=("a note.",)
        )

    *_, last = recorded(tiny(tmp_path), contexts(8), monkeypatch, verify)
    return last


def test_the_page_shows_a_disagreement_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = disagreeing(tmp_path, monkeypatch)
    page = record_page(json.loads(to_json(document)))
    assert "**2 of 3 checks DISAGREE on cpu (2 threads), in 1 run." in page.replace(
        document["device"]["name"], "cpu (2 threads)"
    )
    assert "Largest difference: 3.00 % (tiny --context 8, dec, peak_prefill_math)" in page.replace(
        "\\_", "_"
    )
    row = next(line for line in page.splitlines() if "`peak_prefill_math`" in line)
    assert row.count("|") == 9
    assert "104,857,600 | 108,003,328" in row  # 100 MiB and 103 MiB
    assert "no number" in page
    assert "| `tiny --context 8` | fp32 | 1 | 8 | 1 of 3 | 1 | 3.00 % | 3.00 % | 0 |" in page
    assert not agrees(document)
    assert not is_empty(document)


def test_the_page_explains_the_memory_that_other_tools_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = record_page(disagreeing(tmp_path, monkeypatch))
    assert (
        "| `tiny --context 8` | prefill, math | 100 MiB | 103 MiB | 104 MiB | 200 MiB | 900 MiB |"
        in page
    )
    assert all(
        name in page for name in ("max_memory_allocated", "max_memory_reserved", "nvidia-smi")
    )


def test_the_json_has_no_nan_and_one_line_per_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = disagreeing(tmp_path, monkeypatch)
    text = to_json(document)
    assert "NaN" not in text
    assert check_answer(text)["runs"][0]["checks"][2][3] is None
    assert sum(line.startswith('{"arguments"') for line in text.splitlines()) == len(
        document["runs"]
    )


# The command


def stub_plan(monkeypatch: pytest.MonkeyPatch, folder: Path, steps: list[Step]) -> None:
    monkeypatch.setattr(verify_record, "record_models", lambda: tiny(folder))
    monkeypatch.setattr(recorder, "plan_record", lambda *_: steps)


def test_a_record_of_a_cpu_is_written_and_read(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real layers of a tiny model."""
    steps = [*contexts(8, 9), Step("tiny", VerifyOptions(context=16, scaling=True))]
    stub_plan(monkeypatch, tmp_path, steps)
    folder = tmp_path / "measured"
    answer = ask("verify", "--record", str(folder), "--device", "cpu", "--seed", "3")
    assert (answer.code, answer.err) == (0, "")
    stem = file_stem(device_title(find_device("cpu")))
    assert [path.name for path in folder.iterdir()] == [f"{stem}.json"]
    document = json.loads((folder / f"{stem}.json").read_text())
    assert [run["arguments"] for run in document["runs"]] == [step.arguments for step in steps]
    assert (
        document["command"]
        == "attncalc verify --record measured --device cpu --seed 3 --minutes 10"
    )
    assert answer.out.startswith(
        f"All {sum(len(run['checks']) for run in document['runs'])} checks agree"
    )
    assert f"Written: {folder / stem}.json\nTo share it, attach it to an issue" in answer.out
    kernels = {row[2] for run in document["runs"] for row in run["times"]}
    assert kernels == {"math", "flash"}


@pytest.mark.parametrize(
    ("error", "code"),
    [(CannotCheckError("no memory"), 3), (RuntimeError("broken"), 1)],
    ids=["skipped", "failed"],
)
def test_the_exit_code_of_a_record_without_runs(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    stub_plan(monkeypatch, tmp_path, contexts(8))
    monkeypatch.setattr(recorder, "verify", taking(0, error))
    answer = ask("verify", "--record", str(tmp_path / "out"), "--device", "cpu")
    assert answer.code == code
    assert answer.out.startswith("Nothing was checked.")


def test_a_disagreement_is_exit_code_1(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub_plan(monkeypatch, tmp_path, contexts(8))
    wrong = AGREES._replace(measured=11)
    monkeypatch.setattr(recorder, "verify", lambda *_: VerifyResult((wrong,), context=8))
    answer = ask("verify", "--record", str(tmp_path / "out"), "--device", "cpu")
    assert answer.code == 1
    assert "1 of 1 check DISAGREES" in answer.out


def test_an_earlier_record_is_kept_without_force(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is looked for before anything is measured."""
    stub_plan(monkeypatch, tmp_path, contexts(8))
    file = tmp_path / f"{file_stem(device_title(find_device('cpu')))}.json"
    file.write_text("an earlier record")
    verify = taking(1)
    monkeypatch.setattr(recorder, "verify", verify)
    refused = ask("verify", "--record", str(tmp_path), "--device", "cpu")
    assert (refused.code, file.read_text()) == (2, "an earlier record")
    assert verify.clock() == 0  # type: ignore[attr-defined]
    assert "already exists" in refused.err
    assert "--force overwrites it" in refused.err
    assert ask("verify", "--record", str(tmp_path), "--device", "cpu", "--force").code == 0
    assert check_answer(file.read_text())["runs"]


def test_a_folder_that_cannot_be_written_is_an_error_before_anything_is_measured(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub_plan(monkeypatch, tmp_path, contexts(8))
    monkeypatch.setattr(recorder, "verify", lambda *_: pytest.fail("measured"))
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "missing" / "below"):
        assert ask("verify", "--record", str(folder), "--device", "cpu").error.startswith(
            "error: --record "
        )


@pytest.mark.parametrize(
    "arguments",
    [
        "gpt2",
        "--preset gpt2",
        "--batch 2",
        "--context 8",
        "--scaling",
        "--train",
        "--against transformers",
        "--simulate cuda",
        "--json",
        "--format csv",
        "-o page.md",
        "--explain",
        "--full",
        "--attention mha",
        "--minutes 0",
        "--smoke",
        "--minutes -1",
        "--minutes soon",
        "--minutes 1000000",
        "--dtype int4",
        "--kernel flsh",
        "--seed x",
    ],
)
def test_an_option_that_a_record_does_not_take_is_an_error(
    ask: Ask, tmp_path: Path, arguments: str
) -> None:
    error = ask(
        "verify", "--record", str(tmp_path / "out"), "--device", "cpu", *arguments.split()
    ).error
    assert error.startswith("error: ")
    assert not (tmp_path / "out").exists()


def test_an_unknown_dtype_or_kernel_is_an_error_of_the_plan() -> None:
    models = {"gpt2": load("gpt2")}
    assert (
        plan_record(models, VerifyOptions(dtype="fp16"), find_device("cpu"))[0].arguments
        == "gpt2 --dtype fp16"
    )


@pytest.mark.usefixtures("interruptible", "untimed")
def test_an_interrupted_record_keeps_its_runs(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes in the second step."""
    stub_plan(monkeypatch, tmp_path, contexts(8, 9))

    def measured(model: ModelSpec, request: Any, *rest: Any) -> VerifyResult:
        if request.context == 9:
            signal.raise_signal(signal.SIGINT)
        return verify_really(model, request, *rest)

    monkeypatch.setattr(recorder, "verify", measured)
    answer = ask("verify", "--record", str(tmp_path / "out"), "--device", "cpu")
    assert (answer.code, answer.out) == (130, "")
    (data,) = (tmp_path / "out").glob("*.json")
    document = json.loads(data.read_text())
    assert [run["arguments"] for run in document["runs"]] == ["tiny --context 8"]
    assert [step["arguments"] for step in document["skipped"]] == ["tiny --context 9"]
    assert f"interrupted: 1 run is in {data}" in answer.err
    assert "Traceback" not in answer.err
