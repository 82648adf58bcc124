"""`verify` on boxes with odd GPUs, in the stand-in for CUDA: old versions of torch, kernels that
refuse, ROCm.
"""

import gc
import logging
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asking import Ask
from layers import GROUPED, saved

from attncalc import Workload, load
from attncalc.config.gpus import gpu
from attncalc.cost.activations import activations
from attncalc.cost.kernels import KERNELS, Machine
from attncalc.verify import need_torch

need_torch()
import torch  # noqa: E402
from cuda_stand_in import B200, H100, MI300X, T4, V100, Box, Gpu, Gpus  # noqa: E402

from attncalc.verify import extra_kernels, timing  # noqa: E402
from attncalc.verify.cases import cases  # noqa: E402
from attncalc.verify.checks.behaviour import equals_torch_mha  # noqa: E402
from attncalc.verify.checks.memory import peak_checks  # noqa: E402
from attncalc.verify.checks.numerics import Environment, numerics  # noqa: E402
from attncalc.verify.devices import PeakMemory, cuda, find_device, simulated_device  # noqa: E402
from attncalc.verify.devices.cuda import LONGEST_SLEEP, SHORTEST_SLEEP  # noqa: E402
from attncalc.verify.errors import CannotRunError, refusal  # noqa: E402
from attncalc.verify.kernels import BACKENDS, efficient_shares_kv_heads, only, sdpa  # noqa: E402
from attncalc.verify.masks import NO_MASK, KernelMask  # noqa: E402
from attncalc.verify.real_layer import RealLayer  # noqa: E402
from attncalc.verify.record.machine import main_dtype  # noqa: E402
from attncalc.verify.request import default_dtype  # noqa: E402
from attncalc.verify.simulate.support import AttentionCall, supports  # noqa: E402
from attncalc.verify.torch_versions import version_notes  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_checks_of_values")

OnBox = Callable[[Box], Gpus]
# Every kernel takes its heads.
ALIGNED = GROUPED + "d_head: 16\n"
TWO_KINDS = (
    GROUPED.replace("n_layers: 3", "n_layers: 4")
    + """\
pattern: [window, wide]
layer_kinds:
  window: { window: 5 }
  wide: { d_head: 16 }
"""
)
MIB = 2**20


def verified(ask: Ask, path: str, *options: str) -> dict[str, Any]:
    """Return the answer of `verify` on the GPU as JSON; none of its checks may disagree."""
    answer = ask("verify", path, "--device", "cuda", "--minutes", "60", "--json", *options)
    document: dict[str, Any] = answer.document
    assert [check["name"] for check in document["checks"] if not check["ok"]] == []
    assert answer.code == 0
    return document


def peaks(document: dict[str, Any]) -> set[str]:
    """Return the passes whose peak was checked: 'prefill_math'."""
    return {
        c["name"].removeprefix("peak_") for c in document["checks"] if c["section"] == "peak memory"
    }


# Kernels that fail


@pytest.mark.parametrize("version", ["2.5.1+cu124", "2.8.0+cu128", "2.13.0+cu130"])
def test_flex_runs_whatever_arguments_the_version_of_torch_has(on_box: OnBox, version: str) -> None:
    on_box(Box(torch=version))
    q = torch.ones(1, 2, 128, 16)
    torch.testing.assert_close(sdpa("flex", q, q, q, KernelMask(causal=True), 0.25), q)


@pytest.mark.parametrize(
    "error", [TypeError, KeyError, AssertionError, ImportError, OSError, RuntimeError]
)
def test_whatever_a_kernel_raises_is_a_refusal_with_its_reason(error: type[Exception]) -> None:
    found = refusal("cudnn", error("unexpected keyword\nand a second line"))
    assert isinstance(found, CannotRunError)
    assert (
        str(found) == f"cudnn failed: {str(error('unexpected keyword')).splitlines()[0]}"
        or error is KeyError
    )


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_out_of_memory_is_no_refusal(error: Exception) -> None:
    assert refusal("cudnn", error) is error


def test_a_kernel_that_refuses_the_true_size_is_named_and_the_next_one_runs(
    ask: Ask, on_box: OnBox, tmp_path: Path
) -> None:
    """16 queries are tried; 20 are run, for which cuDNN has no execution plan."""
    on_box(Box(most_queries={"cudnn": 16}))
    document = verified(
        ask, saved(ALIGNED, tmp_path), "-c", "20", "--dtype", "bf16", "--kernel", "cudnn"
    )
    assert peaks(document) == {"decode_cudnn"}
    assert any(
        note.startswith("decoder, prefill: cudnn failed: cuDNN Frontend error")
        and "No valid execution plans" in note
        for note in document["notes"]
    )


def test_math_fills_the_cache_if_every_other_kernel_refuses(
    ask: Ask, on_box: OnBox, tmp_path: Path
) -> None:
    on_box(Box(most_queries={"cudnn": 16, "flash": 16, "efficient": 16}))
    document = verified(ask, saved(ALIGNED, tmp_path), "-c", "20", "--dtype", "bf16")
    assert peaks(document) == {"prefill_math", *(f"decode_{kernel}" for kernel in KERNELS)}
    assert sum("prefill" in note and "failed" in note for note in document["notes"]) == 3


def test_scaling_notes_the_kernels_that_refuse(ask: Ask, on_box: OnBox, tmp_path: Path) -> None:
    on_box(Box(most_queries={"cudnn": 16}))
    document = verified(
        ask,
        saved(ALIGNED, tmp_path),
        "-c",
        "32",
        "--dtype",
        "bf16",
        "--scaling",
        "--kernel",
        "cudnn",
    )
    assert [row["context"] for row in document["scaling"]] == [4, 8, 16]
    assert any("32 tokens: cudnn failed" in note for note in document["notes"])


def test_the_reason_is_given_if_no_kernel_runs(ask: Ask, on_box: OnBox, tmp_path: Path) -> None:
    on_box(Box(most_queries={"flash": 8}))
    options = ("--device", "cuda", "--kernel", "flash", "--dtype", "bf16", "--minutes", "60")
    answer = ask("verify", saved(ALIGNED, tmp_path), *options)
    assert answer.code == 3
    assert answer.err.startswith("error: model, decoder: flash failed: cuDNN Frontend error")
    assert "tip: leave out --kernel" in answer.err


def test_torchs_own_layer_does_not_depend_on_the_kernel_that_torch_would_choose(
    on_box: OnBox,
) -> None:
    on_box(Box(most_queries={"efficient": 16}))
    device = find_device("cuda")
    with device.session(0) as random:
        env = Environment(device, ("math",), random)
        assert equals_torch_mha(cases(load("gpt2").plain())[0], env).ok


# flex_attention


def test_flex_runs_where_it_is_asked_for(ask: Ask, on_box: OnBox, tmp_path: Path) -> None:
    on_box(Box())
    document = verified(
        ask, saved(ALIGNED, tmp_path), "-c", "12", "--dtype", "bf16", "--kernel", "flex"
    )
    assert {time["kernel"] for time in document["times"]} == {"flex"}


def test_flex_is_compiled_for_every_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch compiles 8 graphs of a function. It forgets them before the ninth, which would run
    uncompiled.
    """
    calls: list[str] = []

    def compiled(function: Any, *, dynamic: bool, fullgraph: bool) -> Any:
        assert (dynamic, fullgraph) == (False, True)
        calls.append("compile")

    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setattr(torch.compiler, "reset", lambda: calls.append("reset"))
    monkeypatch.setattr(extra_kernels, "_compiled_shapes", set())
    for width in [*range(8), *range(9)]:
        extra_kernels._compiled_flex(width)
    assert calls == ["compile"] * 16 + ["reset", "compile"]
    assert logging.getLogger("torch._dynamo").level == logging.ERROR


def test_compiled_kernels_are_compared_with_the_reference_on_one_input(on_box: OnBox) -> None:
    on_box(Box())
    (group,) = load("gpt2").plain().main.layers
    assert group.attention is not None
    env = Environment(find_device("cuda"), ("flex",), torch.Generator().manual_seed(0))
    names = [
        check.name for check in numerics(group.attention, env) if check.name.startswith("flex")
    ]
    assert names == ["flex_equals_reference_fp16"]


# Memory


def test_temporary_tensors_of_softmax_are_not_taken_for_workspaces(
    ask: Ask, on_box: OnBox, tmp_path: Path
) -> None:
    """torch's _safe_softmax is one operator under a dispatch mode: what it allocates inside is part
    of the formula.
    """
    on_box(Box())
    text = GROUPED.replace("n_heads: 4", "n_heads: 16")  # the score matrices are most of the peak
    document = verified(
        ask, saved(text, tmp_path), "-c", "48", "--kernel", "math", "--dtype", "bf16"
    )
    assert peaks(document) == {"prefill_math", "decode_math"}
    assert not any(figure["section"] == "inside matmuls" for figure in document["reported"])


def predicted(machine: Machine, preset: str = "llama3-8b", context: int = 4096) -> Any:
    """Return the predicted activations of a decode step in bf16."""
    return activations(load(preset), Workload.decode(1, context, dtype="bf16"), machine)[0]


def test_amd_kernels_neither_split_keys_nor_hold_an_accumulator() -> None:
    """Llama 3 8B at 4,096 tokens: q, out and y of 32 * 128 bf16 numbers are 24,576 B, and flash's
    logsumexp is less.
    """
    amd = predicted(Machine(multiprocessors=304, rocm=True))
    assert amd.peaks["flash"].size == amd.tensor_peaks["flash"].size
    assert predicted(Machine(multiprocessors=304)).peaks["flash"].size == 544_896
    assert amd.tensor_peaks["flash"].size < 25_000
    wide = {
        rocm: predicted(Machine(rocm=rocm), "gemma2-2b").buffers["efficient"]
        for rocm in (False, True)
    }
    assert wide == {False: 8 * 256 * 4, True: 0}


def test_the_peaks_of_an_amd_gpu_agree(ask: Ask, on_box: OnBox, tmp_path: Path) -> None:
    """One KV head of 64 and 600 keys, whose 3 blocks an NVIDIA GPU would split."""
    on_box(Box((MI300X,), rocm="6.4.1"))
    text = GROUPED.replace("n_heads: 4\nn_kv_heads: 2", "n_heads: 2\nn_kv_heads: 1\nd_head: 64")
    document = verified(
        ask, saved(text, tmp_path), "-c", "600", "--dtype", "bf16", "--kernel", "flash"
    )
    assert peaks(document) == {"prefill_flash", "decode_flash"}


def test_flash_attention_3_does_not_split_keys() -> None:
    """Its num_splits is 1 by default; flash_attn 2 splits as torch's flash does."""
    layer = predicted(Machine(multiprocessors=132))
    tensors, split = layer.tensor_peaks["flash"].size, layer.peaks["flash"].size
    assert tensors < split
    for kernel, peak, inside in (
        ("flash_attn3", tensors, 0),
        ("flash_attn2", split, layer.buffers["flash"]),
    ):
        measured = PeakMemory(
            peak, allocated=peak, inside=(("flash_attn::_flash_attn_forward", inside),)
        )
        checks = peak_checks("decode", "decode", kernel, layer, measured).checks
        assert all(check.ok for check in checks), kernel


def test_a_layer_is_gone_before_the_next_one_is_built(
    ask: Ask, on_box: OnBox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command runs without automatic garbage collections."""
    from attncalc.verify.programs import layers

    on_box(Box())
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    earlier = []

    class Watched(RealLayer):
        def __init__(self, *arguments: Any) -> None:
            earlier.append(len(alive))
            super().__init__(*arguments)
            alive.add(self)

    monkeypatch.setattr(layers, "RealLayer", Watched)
    gc.disable()
    try:
        verified(ask, saved(TWO_KINDS, tmp_path), "-c", "12", "--kernel", "efficient")
    finally:
        gc.enable()
    assert earlier == [0, 0]


def test_the_measurement_of_the_rates_leaves_no_memory_behind(on_box: OnBox) -> None:
    gpus = on_box(Box())
    device = find_device("cuda")
    with device.session(0):
        timing.measure_ceiling(device, torch.bfloat16)
    workspace = gpus.allocators[0].reserved
    assert workspace < 10 * MIB  # cuBLAS keeps its own


def test_the_matmul_of_the_rates_fits_in_the_free_memory(
    on_box: OnBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 MiB are free, besides what cuBLAS keeps: an eighth holds three matrices of 576 rows in
    bf16.
    """
    gpus = on_box(Box((Gpu("small", (8, 0), 26 * MIB, 10, used=2 * MIB),)))
    device = find_device("cuda")
    monkeypatch.setattr(type(device), "matrix_size", 8192)
    with device.session(0):
        ceiling = timing.measure_ceiling(device, torch.bfloat16)
    assert ceiling.flop_per_s > 0
    assert gpus.allocators[0].blocks_peak < 20 * MIB


# The choice of a device and a dtype


def test_the_gpu_is_the_current_one_while_layers_run(on_box: OnBox) -> None:
    """torch chooses kernels for the current GPU: a T4 has no flash, an H100 has."""
    gpus = on_box(Box((T4, H100)))
    device = find_device("cuda:1")
    with device.session(0):
        q = torch.ones(1, 2, 16, 16, dtype=torch.bfloat16, device=device.torch)
        assert sdpa("flash", q, q, q, NO_MASK, 0.25).shape == q.shape
        assert gpus.current == 1
    assert gpus.current == 0


def test_the_freest_gpu_is_found_without_a_context_on_each(
    on_box: OnBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_box(Box((T4, H100, T4)))
    asked: list[int] = []
    info = torch.cuda.mem_get_info

    def mem_get_info(device: torch.device) -> tuple[int, int]:
        asked.append(int(device.index))
        free: tuple[int, int] = info(device)
        return free

    monkeypatch.setattr(torch.cuda, "mem_get_info", mem_get_info)
    monkeypatch.setattr(cuda, "free_memory", lambda index: [5, 70, 6][index])
    assert find_device("cuda").torch.index == 1
    assert set(asked) == {1}


def test_the_driver_is_asked_by_the_gpus_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA_VISIBLE_DEVICES and the order of the driver may differ from torch's numbers."""

    class Library:
        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: self.call(name, *arguments)

        def call(self, name: str, *arguments: Any) -> int:
            if name == "nvmlDeviceGetHandleByUUID":
                return 0 if arguments[0] == b"GPU-1234" else 6
            if name == "nvmlDeviceGetMemoryInfo":
                arguments[1]._obj[:] = [100, 70, 30]  # total, free, used
            return 0

    monkeypatch.setattr("ctypes.CDLL", lambda name: Library())
    for uuid, free in (("1234", 70), ("5678", None)):
        properties = SimpleNamespace(uuid=uuid)
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda index, facts=properties: facts
        )
        assert cuda.free_memory(0) == free


@pytest.mark.parametrize(
    ("gpu", "rocm", "dtype"),
    [(V100, None, "fp16"), (T4, None, "fp16"), (H100, None, "bf16"), (MI300X, "6.4", "bf16")],
)
def test_gpus_without_bf16_run_in_fp16(
    on_box: OnBox, gpu: Gpu, rocm: str | None, dtype: str
) -> None:
    on_box(Box((gpu,), rocm=rocm))
    device = find_device("cuda")
    assert default_dtype(load("llama3-8b"), device) == main_dtype(device) == dtype
    assert default_dtype(load("gpt2"), device) == "fp32"
    assert any("no bf16 arithmetic" in note for note in device.notes) == (dtype == "fp16")


def test_a_cpu_runs_in_fp32() -> None:
    assert (
        main_dtype(find_device("cpu"))
        == default_dtype(load("llama3-8b"), find_device("cpu"))
        == "fp32"
    )


def test_a_simulated_gpu_without_bf16_runs_in_fp16() -> None:
    device = simulated_device(gpu("t4"))
    assert default_dtype(load("llama3-8b"), device) == "fp16"
    assert any("no bf16 arithmetic" in note for note in device.notes)


def test_a_mismatched_cudnn_is_no_version(ask: Ask, on_box: OnBox, tmp_path: Path) -> None:
    on_box(
        Box(
            cudnn="cuDNN version incompatibility: PyTorch was compiled against (9, 19, 0) but "
            "found (9, 1, 0)."
        )
    )
    document = verified(ask, saved(GROUPED, tmp_path), "-c", "8", "--kernel", "math")
    assert document["device"]["cudnn"] is None


# Versions of torch


@pytest.mark.parametrize(
    ("version", "hopper", "blackwell", "mla"),
    [
        ("2.8.0", False, False, False),
        ("2.10.0", True, False, False),
        ("2.13.0", True, False, True),
        ("2.15.0", True, True, True),
    ],
)
def test_cudnn_takes_wider_heads_in_newer_versions(
    on_box: OnBox, version: str, hopper: bool, blackwell: bool, mla: bool
) -> None:
    on_box(Box(torch=version))

    def runs(gpu: Gpu, d_qk: int, d_v: int) -> bool:
        return (
            supports(
                "cudnn", AttentionCall(8, 8, d_qk, d_v, "bf16", "none", gpu.capability, keys=64)
            )
            is None
        )

    assert (runs(H100, 256, 256), runs(B200, 256, 256), runs(B200, 192, 128)) == (
        hopper,
        blackwell,
        mla,
    )
    assert runs(H100, 128, 128)


@pytest.mark.parametrize(
    ("version", "rocm", "shares"), [("2.13.0", None, False), ("2.14.0", None, True)]
)
def test_the_efficient_kernel_shares_kv_heads_from_2_14_on(
    ask: Ask, on_box: OnBox, tmp_path: Path, version: str, rocm: str | None, shares: bool
) -> None:
    """Its peak has K and V of every query head before, and the formula with it."""
    on_box(Box(torch=version, rocm=rocm))
    assert efficient_shares_kv_heads() == shares
    document = verified(
        ask, saved(ALIGNED, tmp_path), "-c", "32", "--kernel", "efficient", "--dtype", "bf16"
    )
    assert peaks(document) == {"prefill_efficient", "decode_efficient"}
    (note,) = (c["note"] for c in document["checks"] if c["name"] == "peak_prefill_efficient")
    assert ("kv_repeated" in note) != shares
    assert bool(version_notes(version)) == shares


def test_the_efficient_kernel_shares_no_kv_heads_on_amd_gpus(on_box: OnBox) -> None:
    on_box(Box((MI300X,), torch="2.14.0", rocm="6.4"))
    assert not efficient_shares_kv_heads()


# Times


class SlowCpu:
    """Events of a GPU that sleeps for some cycles and then runs, while a CPU needs `queueing`
    cycles for the run.
    """

    def __init__(self, queueing: int) -> None:
        self.queueing, self.slept = queueing, [0]

    def sleep(self, cycles: int) -> None:
        self.slept.append(cycles)

    def event(self, **settings: Any) -> Any:
        return SimpleNamespace(
            record=lambda: None,
            synchronize=lambda: None,
            query=lambda: self.slept[-1] < self.queueing,
            elapsed_time=lambda end: 2.5,
        )


@pytest.mark.parametrize(
    ("queueing", "sleeps"), [(SHORTEST_SLEEP, 1), (3 * SHORTEST_SLEEP, 3), (2 * LONGEST_SLEEP, 6)]
)
def test_the_gpu_sleeps_until_the_cpu_has_queued_the_run(
    on_box: OnBox, monkeypatch: pytest.MonkeyPatch, queueing: int, sleeps: int
) -> None:
    """2^20 cycles, doubled until they are as many as the CPU needs, up to 2^25."""
    on_box(Box())
    cpu = SlowCpu(queueing)
    monkeypatch.setattr(torch.cuda, "_sleep", cpu.sleep)
    monkeypatch.setattr(torch.cuda, "Event", cpu.event)
    device = find_device("cuda")
    assert device.seconds(lambda: torch.ones(1, device="cuda")) == 0.0025
    assert cpu.slept[1:] == [SHORTEST_SLEEP * 2**i for i in range(sleeps)]
    device.seconds(lambda: torch.ones(1, device="cuda"))
    assert cpu.slept[-1] == cpu.slept[-2]  # the next run begins with what was enough


def test_the_context_of_a_kernel_is_entered_once_for_all_timed_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered: list[object] = []
    original = sys.modules["attncalc.verify.kernels"].sdpa_kernel

    def counted(backend: object) -> Any:
        entered.append(backend)
        return original(backend)

    monkeypatch.setattr("attncalc.verify.kernels.sdpa_kernel", counted)
    q = torch.ones(1, 1, 4, 8)
    with only("math"):
        for _ in range(3):
            sdpa("math", q, q, q, NO_MASK, 1.0)
        sdpa("flash", q, q, q, NO_MASK, 1.0)  # another kernel is entered
        sdpa("math", q, q, q, NO_MASK, 1.0)
    assert entered == [BACKENDS["math"], BACKENDS["flash"]]
    sdpa("math", q, q, q, NO_MASK, 1.0)
    assert entered[2:] == [BACKENDS["math"]]


def test_times_have_their_minimum_median_and_90th_percentile(
    ask: Ask, on_box: OnBox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten runs of 1 to 10 ms: 1, 5.5 and 9."""
    on_box(Box())
    monkeypatch.setattr(
        timing, "repeated", lambda device, run: [i / 1000 for i in (3, 1, 10, 2, 4, 9, 5, 8, 6, 7)]
    )
    document = verified(ask, saved(GROUPED, tmp_path), "-c", "8", "--kernel", "math")
    assert [(t["ms_min"], t["ms"], t["ms_p90"]) for t in document["times"]] == [(1, 5.5, 9)] * 2
