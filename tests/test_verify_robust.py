"""`attncalc verify` plans its time and keeps to memory: limits of containers, busy GPUs, memory
that runs out.
"""

import io
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asking import Ask
from hypothesis import given
from hypothesis import strategies as st
from layers import GROUPED, MHA, ZOO, saved

from attncalc import load
from attncalc.errors import CannotCheckError
from attncalc.show import progress as progress_lines
from attncalc.units import duration
from attncalc.verify import need_torch

need_torch()
import torch  # noqa: E402
from cuda_stand_in import H100, ROCM, Box, Gpus  # noqa: E402

from attncalc.verify import host_memory, timing  # noqa: E402
from attncalc.verify.cases import cases  # noqa: E402
from attncalc.verify.checks import memory  # noqa: E402
from attncalc.verify.devices import find_device, simulated_device  # noqa: E402
from attncalc.verify.devices.cpu import Cpu  # noqa: E402
from attncalc.verify.devices.cuda import Cuda  # noqa: E402
from attncalc.verify.options import VerifyOptions  # noqa: E402
from attncalc.verify.plan import refused_because  # noqa: E402
from attncalc.verify.programs.layers import verify_layers  # noqa: E402
from attncalc.verify.progress import Models, Progress  # noqa: E402
from attncalc.verify.request import resolve  # noqa: E402
from attncalc.verify.time_plan import plan_within_limit, predicted_steps  # noqa: E402
from attncalc.verify.timing import Ceiling  # noqa: E402
from attncalc.verify.torch_versions import MEASURED, version_notes  # noqa: E402

GIB = 2**30
Patch = pytest.MonkeyPatch
OnBox = Callable[[Box], Gpus]
# A device with 10 GFLOP/s and 1 GB/s.
SLOW = Ceiling(1e10, 1e9)


# Host memory


def root(tmp_path: Path, files: dict[str, str]) -> Path:
    """Return a fake root of the file system with these files."""
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


MEMINFO = {"proc/meminfo": "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n"}
V1 = "sys/fs/cgroup/memory"


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 8 * GIB),
        # v2: limit 4 GiB, 3 GiB used, of which 1 GiB is page cache that can be dropped
        (
            {
                "proc/self/cgroup": "0::/job\n",
                "sys/fs/cgroup/job/memory.max": f"{4 * GIB}\n",
                "sys/fs/cgroup/job/memory.current": f"{3 * GIB}\n",
                "sys/fs/cgroup/job/memory.stat": f"anon {2 * GIB}\ninactive_file {GIB}\n",
            },
            2 * GIB,
        ),
        # the parent's limit is smaller than the job's
        (
            {
                "proc/self/cgroup": "0::/slice/job\n",
                "sys/fs/cgroup/slice/memory.max": str(2 * GIB),
                "sys/fs/cgroup/slice/memory.current": str(GIB),
                "sys/fs/cgroup/slice/job/memory.max": str(6 * GIB),
                "sys/fs/cgroup/slice/job/memory.current": "0",
            },
            GIB,
        ),
        # in a container the path is the host's, and the files are at the top
        (
            {
                "proc/self/cgroup": "0::/docker/0123\n",
                "sys/fs/cgroup/memory.max": str(3 * GIB),
                "sys/fs/cgroup/memory.current": str(GIB),
            },
            2 * GIB,
        ),
        # v1
        (
            {
                "proc/self/cgroup": "11:cpu,cpuacct:/docker/0123\n9:memory:/docker/0123\n",
                f"{V1}/docker/0123/memory.limit_in_bytes": str(5 * GIB),
                f"{V1}/docker/0123/memory.usage_in_bytes": str(2 * GIB),
                f"{V1}/docker/0123/memory.stat": f"inactive_file 5\ntotal_inactive_file {GIB}\n",
            },
            4 * GIB,
        ),
        # v1 without a limit: the largest multiple of a page below 2^63
        (
            {
                "proc/self/cgroup": "9:memory:/\n",
                f"{V1}/memory.limit_in_bytes": "9223372036854771712",
                f"{V1}/memory.usage_in_bytes": str(GIB),
            },
            8 * GIB,
        ),
        # more used than the limit, which was lowered meanwhile
        (
            {
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/memory.max": "10",
                "sys/fs/cgroup/memory.current": "20",
            },
            0,
        ),
        (
            {
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/memory.max": "max",
                "sys/fs/cgroup/memory.current": "1",
            },
            8 * GIB,
        ),
        ({"proc/self/cgroup": "nonsense\n\n0:\n::\n"}, 8 * GIB),
        ({"proc/self/cgroup": "0::/../..\n", "sys/fs/cgroup/memory.max": "many\n"}, 8 * GIB),
    ],
)
def test_free_memory_is_the_least_that_any_limit_leaves(
    tmp_path: Path, monkeypatch: Patch, files: dict[str, str], free: int
) -> None:
    monkeypatch.setattr(host_memory, "ROOT", root(tmp_path, MEMINFO | files))
    assert host_memory.free_on_host() == free


def test_without_any_file_half_of_the_memory_counts_as_free(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(host_memory, "ROOT", tmp_path)
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert host_memory.free_on_host() == physical // 2


# Time


def test_a_context_that_takes_too_long_is_shortened_with_a_note(
    ask: Ask, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(timing, "measure_ceiling", lambda device, dtype: Ceiling(1e8, 1e7))
    answer = ask(
        "verify",
        saved(MHA, tmp_path),
        "-c",
        "100000",
        "--minutes",
        "1",
        "--device",
        "cpu",
        "--json",
    )
    assert answer.code == 0
    document = answer.document
    note = next(note for note in document["notes"] if "would take about" in note)
    assert note.startswith("Context 100,000 would take about ")
    assert ": shortened to " in note


def test_a_batch_that_takes_too_long_at_any_context_is_an_error(
    ask: Ask, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(timing, "measure_ceiling", lambda device, dtype: Ceiling(1e6, 1e6))
    answer = ask("verify", "gpt2", "--minutes", "1", "--device", "cpu")
    assert (answer.code, answer.out) == (3, "")
    assert "gpt2: 4 tokens would take about" in answer.err
    assert "the limit is 60 s" in answer.err
    assert "--minutes" in answer.err


@pytest.mark.parametrize("context", [99_999_999_999, 10**18])
def test_a_context_beyond_any_memory_is_planned_without_running_it(
    context: int, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(timing, "measure_ceiling", lambda device, dtype: SLOW)
    device, model = find_device("cpu"), load("gpt2")
    plan, steps = plan_within_limit(
        model, resolve(model, VerifyOptions(context=context), device), device
    )
    assert 4 <= plan.request.context < 100_000
    assert sum(steps) <= 60


@pytest.mark.parametrize("text", ["0", "-1", "ten", "600000", "0.0", "1e3", "nan"])
def test_invalid_minutes_are_an_error(ask: Ask, text: str) -> None:
    assert "--minutes" in ask("verify", "gpt2", "--minutes", text).error


@given(
    st.integers(4, 10**7),
    st.integers(1, 64),
    st.sampled_from(["gpt2", "deepseek-v3", "t5-base", "gemma3-27b"]),
)
def test_a_longer_context_is_never_predicted_to_be_quicker(
    context: int, batch: int, name: str
) -> None:
    device, model = find_device("cpu"), load(name)

    def seconds(tokens: int, rates: Ceiling = SLOW) -> float:
        request = resolve(model, VerifyOptions(context=tokens, batch=batch, dtype="fp32"), device)
        return sum(predicted_steps(model, request, device, rates))

    assert seconds(context) <= seconds(2 * context)
    assert seconds(context, Ceiling(1e11, 1e10)) < seconds(context)


def test_attention_over_long_contexts_is_predicted_to_take_quadratic_time() -> None:
    """From 2^20 to 2^21 tokens the scores dominate: 4 times the time."""
    device, model = find_device("cpu"), load("gpt2")
    times = [
        sum(
            predicted_steps(
                model, resolve(model, VerifyOptions(context=2**n), device), device, SLOW
            )
        )
        for n in (20, 21)
    ]
    assert 3.8 < times[1] / times[0] < 4.0


def test_a_simulated_device_needs_no_time() -> None:
    device, model = simulated_device(None), load("gpt2")
    request = resolve(model, VerifyOptions(context=10**9), device)
    assert sum(predicted_steps(model, request, device, SLOW)) == 0


@pytest.mark.parametrize(("scaling", "expected"), [(False, 2), (True, 8)])
def test_there_is_one_step_per_layer_and_context(
    ask: Ask, tmp_path: Path, monkeypatch: Patch, scaling: bool, expected: int
) -> None:
    """A model with two kinds of layer; --scaling runs four contexts of each."""
    shown: list[str] = []
    device, model = find_device("cpu"), load(saved(ZOO, tmp_path))
    options = VerifyOptions(context=64, scaling=scaling, timed=False)
    request = resolve(model, options, device)
    from attncalc.verify.programs import verify

    verify(model, request, device, Progress(shown.append))
    steps = predicted_steps(model, request, device, SLOW)
    total = int(shown[0].split()[2].rstrip(",:"))
    assert len(shown) == total == len(steps)
    assert [line.split()[0] for line in shown] == [str(i + 1) for i in range(total)]


# Progress


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_progress_counts_the_models_if_there_are_several() -> None:
    shown: list[str] = []
    clock = Clock()
    on_progress = Progress(shown.append, clock)
    on_progress.models = Models(1, 2, 120.0, deadline=600.0)
    on_progress.expect([60.0])
    on_progress("a, decoder")
    clock.now = 60.0
    on_progress.models = Models(2, 2, 0.0, deadline=600.0)
    on_progress.expect([60.0, 60.0])
    on_progress("b, encoder")
    assert shown == ["1 of 2, about 3 min left: a, decoder", "2 of 2, about 2 min left: b, encoder"]


def test_the_time_left_of_several_models_is_at_most_that_of_the_limit() -> None:
    """The rest would take 15 min, and the limit ends in 5: the models that do not fit are not
    run.
    """
    shown: list[str] = []
    on_progress = Progress(shown.append, Clock())
    on_progress.models = Models(3, 27, 840.0, deadline=300.0)
    on_progress.expect([60.0])
    on_progress("a, decoder")
    assert shown == ["3 of 27, about 5 min left: a, decoder"]


def test_finished_steps_correct_the_time_left() -> None:
    """The first step took 20 s and not 10, so the second will take 20 s as well."""
    shown: list[str] = []
    clock = Clock()
    on_progress = Progress(shown.append, clock)
    on_progress.expect([10.0, 10.0])
    on_progress("one")
    clock.now = 20.0
    on_progress("two")
    assert shown == ["1 of 2, about 20 s left: one", "2 of 2, about 20 s left: two"]


def test_progress_without_predictions_names_the_step_only() -> None:
    shown: list[str] = []
    Progress(shown.append)("building")
    assert shown == ["building"]


def test_a_pipe_gets_a_line_now_and_then_however_long_a_step_takes(monkeypatch: Patch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(progress_lines, "LINE_SECONDS", 0.01)
    with progress_lines.progress() as show:
        show("one long step")
        while stderr.getvalue().count("one long step\n") < 3:
            time.sleep(0.01)
    assert not [thread for thread in threading.enumerate() if "print_steps" in thread.name]


def test_a_short_run_prints_no_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_lines.progress() as show:
        show("a step")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"),
        (40, "40 s"),
        (180, "3 min"),
        (3 * 3600, "3 hours"),
        (20 * 86_400, "20 days"),
        (1e12, "more than a year"),
    ],
)
def test_durations_are_rounded_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# Memory that runs out


def test_memory_taken_after_the_plan_shortens_the_context(
    ask: Ask, tmp_path: Path, monkeypatch: Patch
) -> None:
    """The plan sees 8 GiB; then another process takes most of it, and the plan is made anew with
    what is left.
    """
    answers = iter([8 * GIB] * 4)  # for the measurement of rates and for the first plan
    monkeypatch.setattr(Cpu, "free", lambda _: next(answers, 350 * 2**20))
    monkeypatch.setattr(timing, "measure_ceiling", lambda device, dtype: Ceiling(1e14, 1e14))
    next(answers), next(answers), next(answers)
    answer = ask(
        "verify",
        saved(MHA, tmp_path),
        "-b",
        "2",
        "-c",
        "32768",
        "--kernel",
        "flash",
        "--device",
        "cpu",
        "--json",
    )
    assert answer.code == 0, answer.err
    notes = answer.document["notes"]
    assert any("cpu" in note and "ran out of memory: decoder needs" in note for note in notes)
    assert answer.document["workload"]["context"] < 32768


@pytest.mark.parametrize(("failures", "left_out"), [(1, False), (2, True)])
def test_a_pass_that_runs_out_of_memory_is_retried_once(
    tmp_path: Path, monkeypatch: Patch, failures: int, left_out: bool
) -> None:
    original, attempts = memory.peak, iter(range(100))

    def runs_out(layer_pass: Any, *arguments: Any) -> Any:
        if (
            layer_pass.kernel == "flash"
            and layer_pass.phase == "prefill"
            and next(attempts) < failures
        ):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(layer_pass, *arguments)

    monkeypatch.setattr(memory, "peak", runs_out)
    device, model = find_device("cpu"), load(saved(GROUPED, tmp_path))
    request = resolve(model, VerifyOptions(context=12, timed=False), device)
    result = verify_layers(model, request, device, Progress())
    assert ("decoder, prefill: flash ran out of memory." in result.skipped) == left_out
    assert ("peak_prefill_flash" in {check.name for check in result.checks}) != left_out


def test_memory_that_keeps_running_out_is_one_error_line(
    ask: Ask, tmp_path: Path, monkeypatch: Patch
) -> None:
    def runs_out(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr("attncalc.verify.checks.counts.decode_some", runs_out)
    answer = ask("verify", saved(GROUPED, tmp_path), "-c", "64", "--device", "cpu")
    assert (answer.code, answer.out) == (3, "")
    assert answer.err.startswith("error: cpu")
    assert "ran out of memory: CUDA out of memory" in answer.err


# GPUs


def box(*free: int) -> Box:
    """Return a box of H100s with this much free memory."""
    return Box(tuple(replace(H100, used=H100.memory - n) for n in free))


@pytest.mark.parametrize("name", ["auto", "cuda"])
def test_the_gpu_with_the_most_free_memory_is_chosen(on_box: OnBox, name: str) -> None:
    on_box(box(2 * GIB, 0, 70 * GIB, 60 * GIB))
    device = find_device(name)
    assert device.name == f"cuda:2 ({H100.name})"
    assert any(
        note.startswith("cuda:2 has the most free memory of 4 GPUs, 70.00 GiB")
        for note in device.notes
    )


def test_a_gpu_that_is_named_is_used(on_box: OnBox) -> None:
    on_box(box(2 * GIB, 70 * GIB))
    assert find_device("cuda:0").name == f"cuda:0 ({H100.name})"
    assert not any("free memory" in note for note in find_device("cuda:0").notes)


@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
@pytest.mark.parametrize(
    ("error", "tip"),
    [
        (
            "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
            "--device cpu runs everywhere",
        ),
        (
            "CUDA error: no kernel image is available for execution on the device",
            "install a wheel of torch",
        ),
        ("CUDA error: out of memory", "--device cpu runs everywhere"),
    ],
)
def test_a_gpu_on_which_no_kernel_runs_is_one_error_line(
    on_box: OnBox, name: str, error: str, tip: str
) -> None:
    """The first launch shows it; torch's message goes on about how to debug it."""
    on_box(
        Box(
            error=f"{error}\nCUDA kernel errors might be asynchronously reported at some other API "
            "call"
        )
    )
    with pytest.raises(CannotCheckError) as caught:
        find_device(name)
    assert caught.value.message == f"cuda:0 cannot be used: {error}"
    assert caught.value.tip.startswith(tip)


def test_efficient_is_left_out_beyond_2_to_the_31_elements_of_q(on_box: OnBox) -> None:
    on_box(Box((H100,)))
    model = load("deepseek-v3").plain()
    (case, *_) = cases(model)  # 128 heads of 192
    request = resolve(model, VerifyOptions(context=2**31 // (128 * 192)), find_device("cuda"))
    allowed, refused = (
        refused_because(
            "efficient",
            case,
            "prefill",
            request._replace(context=request.context + more),
            find_device("cuda"),
        )
        for more in (0, 1)
    )
    assert "2^31" not in allowed
    assert "2^31" in refused


def test_rocm_is_named_and_has_no_cudnn(on_box: OnBox) -> None:
    on_box(ROCM)
    device = find_device("cuda")
    assert device.name == "cuda:0 (AMD Instinct MI300X, ROCm 6.4.43482)"
    assert device.kernels == ("math", "flash", "efficient")


@pytest.mark.parametrize(
    ("version", "noted"), [("2.13.0+cu130", False), ("2.14.0", True), ("2.1.3", True)]
)
def test_a_version_of_torch_that_was_not_measured_is_noted(version: str, noted: bool) -> None:
    notes = version_notes(version)
    assert bool(notes) == noted
    assert all(version in note and ".".join(map(str, MEASURED[-1])) in note for note in notes)


def test_cuda_runs_are_timed_between_events_after_the_l2_cache_was_evicted(
    on_box: OnBox, monkeypatch: Patch
) -> None:
    """An L2 cache of 50 MiB is evicted by writing twice as much."""
    log: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            log.append("record")

        def synchronize(self) -> None:
            log.append("wait")

        def query(self) -> bool:
            return False

        def elapsed_time(self, end: "Event") -> float:
            return 2.5

    evictor = SimpleNamespace(zero_=lambda: log.append("evict"))
    on_box(box(70 * GIB))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: log.append("sleep"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: log.append("synchronize"))
    facts = SimpleNamespace(L2_cache_size=50 * 2**20, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: facts)
    device = Cuda(0)
    sizes: list[int] = []

    def empty(size: int, **_: Any) -> Any:
        sizes.append(size)
        return evictor

    monkeypatch.setattr(torch, "empty", empty)

    def run() -> Any:
        log.append("run")

    assert device.seconds(run) == 0.0025
    assert log == ["synchronize", "evict", "sleep", "record", "run", "record", "wait"]
    assert sizes == [100 * 2**20]


def test_the_time_of_a_pass_is_a_median_and_the_rates_are_the_fastest(monkeypatch: Patch) -> None:
    monkeypatch.setattr(timing, "MAX_SECONDS", 0.2)
    seconds = iter([9.0, 0.01, 0.03, 0.02, 0.11, 0.05])
    device = SimpleNamespace(seconds=lambda run: next(seconds))
    next(seconds)
    # 0.01 + 0.03 + 0.02 + 0.11 = 0.17 s is less than 0.2 s, so that a fifth run follows
    assert timing.typical(device, lambda: torch.zeros(1)) == 0.03  # type: ignore[arg-type]
    seconds = iter([0.1, 0.05, 0.15])
    assert timing.fastest(device, lambda: torch.zeros(1)) == 0.05  # type: ignore[arg-type]
