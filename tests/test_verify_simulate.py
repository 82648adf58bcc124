"""`attncalc verify --simulate`: layers on a GPU that is not there, and the checks of a GPU's
memory.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import Answer, Ask
from layers import GROUPED, MAMBA, ZOO, one_per_kind, saved

from attncalc import Grouped, Workload, activations, load
from attncalc.cost.kernels import Machine
from attncalc.quantity import quantity
from attncalc.verify import need_torch

need_torch()
import torch  # noqa: E402
from cuda_stand_in import Box  # noqa: E402
from torch import Tensor  # noqa: E402

import attncalc.cost.kernels  # noqa: E402
from attncalc.verify import time_plan  # noqa: E402
from attncalc.verify.checks.memory import SEEDS, PeakChecks, peak_checks  # noqa: E402
from attncalc.verify.devices import simulated_device  # noqa: E402
from attncalc.verify.devices.base import PeakMemory  # noqa: E402
from attncalc.verify.devices.cuda import Cuda  # noqa: E402
from attncalc.verify.devices.live_tensors import LiveTensors, live_tensors  # noqa: E402
from attncalc.verify.devices.simulated import SimulatedCuda  # noqa: E402
from attncalc.verify.options import VerifyOptions  # noqa: E402
from attncalc.verify.request import resolve  # noqa: E402
from attncalc.verify.simulate.support import RULES, AttentionCall, supports  # noqa: E402
from attncalc.verify.timing import Ceiling  # noqa: E402

MIB = 2**20


def document(answer: Answer) -> dict[str, Any]:
    assert answer.code in (0, 1), answer.err
    parsed: dict[str, Any] = answer.document
    return parsed


def disagreeing(ask: Ask, *arguments: str) -> list[str]:
    """Return the checks that disagree, with both figures."""
    checks = document(ask("verify", *arguments, "--json"))["checks"]
    assert checks
    return [
        f"{c['of']} {c['name']}: {c['predicted']} {c['measured']}" for c in checks if not c["ok"]
    ]


# The presets of the catalogue whose recurrences are simulated token by token.
RECURRENT = ("granite4-h-tiny", "jamba-1.5-mini", "minimax-m1", "qwen3-next-80b-a3b")


def test_the_context_of_a_recurrence_is_shortened_to_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At 10 ms per token of a prefill, all checks take 30: 65,536 tokens half an hour, and 1,024
    tokens 31 s.
    """
    monkeypatch.setattr(time_plan, "_simulated_token", lambda *_: 0.01)
    device, model = simulated_device(None), load("qwen3-next-80b-a3b")
    request = resolve(model, VerifyOptions(context=65_536, minutes=1), device)
    with device.session(0):
        plan, steps = time_plan.plan_within_limit(model, request, device)
    assert plan.request.context == 1024
    assert steps == [pytest.approx(30.72), 0.0]
    assert plan.shortened == ("Context 65,536 would take about 33 min: shortened to 1,024.",)


def test_the_time_of_a_recurrence_is_measured_on_a_few_tokens() -> None:
    """Once for layers that are equal, whatever the context."""
    device, model = simulated_device(None), load("qwen3-next-80b-a3b")
    requests = [resolve(model, VerifyOptions(context=n), device) for n in (1_000_000, 2_000_000)]
    with device.session(0):
        short, long = (time_plan.predicted_steps(model, r, device, Ceiling(1, 1)) for r in requests)
    assert 0 < 2 * short[0] == pytest.approx(long[0])
    assert short[1] == long[1] == 0


@pytest.mark.parametrize(
    ("gpu", "dtype", "options", "presets"),
    [
        ("cuda", "bf16", "", ()),  # at their longest contexts
        ("cuda", "fp32", "", ("deepseek-v3", "gemma3-27b")),
        # 1,003 keys are no multiple of 8: torch pads masks and, with odd head widths, heads
        ("t4", "fp16", "-b 3 -c 1003", ("deepseek-v3", "gemma3-27b", "whisper-large-v3")),
        ("h100-80gb", "fp16", "-b 3 -c 1003", ("deepseek-v3", "gemma-2b", "gemma3-27b")),
        ("mi300x", "bf16", "", ("llama3-8b", "deepseek-v3", "gemma3-27b", "whisper-large-v3")),
        ("mi210", "fp16", "-b 3 -c 1003", ("gemma-2b", "gemma3-27b", "gpt2")),
    ],
)
def test_the_catalogue_agrees(
    ask: Ask,
    monkeypatch: pytest.MonkeyPatch,
    gpu: str,
    dtype: str,
    options: str,
    presets: tuple[str, ...],
) -> None:
    """By default one preset per kind of layer. Recurrences have no kernel of their own on a GPU."""
    names = tuple(name for name in presets or one_per_kind() if name not in RECURRENT)
    monkeypatch.setattr("attncalc.questions.verify.command.CATALOGUE", names)
    assert disagreeing(ask, "--simulate", gpu, "--dtype", dtype, *options.split()) == []


ODD_HEADS = """
title: heads of 84, which flash pads to 88
d_model: 336
vocab_size: 100
n_layers: 1
n_heads: 4
n_kv_heads: 2
d_head: 84
d_ff: 64
norm: rmsnorm
dtype: bf16
"""


def test_flops_of_flash_with_head_widths_that_8_does_not_divide_agree(
    ask: Ask, tmp_path: Path
) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text(ODD_HEADS)
    for context in ("64", "37"):
        assert disagreeing(ask, str(file), "--simulate", "h100", "-c", context) == []


@pytest.mark.parametrize("model", RECURRENT)
def test_recurrent_layers_agree_at_the_context_that_the_minutes_allow(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """At 2 s per token, 3 prefills of 4,096 tokens take 24,576 s; 60 s are 10 tokens, so 8."""
    monkeypatch.setattr("attncalc.verify.time_plan._simulated_token", lambda *_: 2.0)
    answer = document(
        ask("verify", model, "--simulate", "cuda", "-c", "4096", "--minutes", "1", "--json")
    )
    assert "Context 4,096 would take about 7 hours: shortened to 8." in answer["notes"]
    assert [check for check in answer["checks"] if not check["ok"]] == []


@pytest.mark.parametrize("model", ["deepseek-v3", "gemma3-27b"])
def test_scaling_agrees_and_has_no_times(ask: Ask, model: str) -> None:
    answer = document(ask("verify", model, "--simulate", "cuda", "--scaling", "--json"))
    assert all(check["ok"] for check in answer["checks"])
    assert {row["ms"] for row in answer["scaling"]} == {None}
    longest = max(row["context"] for row in answer["scaling"])
    assert longest == {"deepseek-v3": 163_840, "gemma3-27b": 131_072}[model]


def test_a_simulation_says_that_it_is_one(ask: Ask) -> None:
    answer = ask("verify", "llama3-8b", "--simulate", "h100-80gb", "-c", "512")
    assert "agree with a simulation of NVIDIA H100 80GB SXM in bf16" in " ".join(answer.out.split())
    assert "--device cuda runs on a GPU" in " ".join(answer.out.split())
    assert "inside kernels" in answer.out  # what it does not see
    parsed = document(ask("verify", "llama3-8b", "--simulate", "h100-80gb", "-c", "512", "--json"))
    assert parsed["simulated"] is True
    assert parsed["device"]["type"] == "simulated"
    assert parsed["device"]["multiprocessors"] == 132


def test_a_large_context_is_shortened_to_the_gpus_memory(ask: Ask) -> None:
    answer = ask("verify", "gpt3", "--simulate", "t4", "-c", "1000000", "--kernel", "math")
    assert answer.code == 0
    assert "does not fit in" in answer.out


def test_a_gpu_without_flash_runs_the_other_kernels(ask: Ask) -> None:
    """FlashAttention 2 needs compute capability 8.0, and a T4 has 7.5."""
    checks = document(ask("verify", "llama2-7b", "--simulate", "t4", "-c", "256", "--json"))[
        "checks"
    ]
    names = {check["name"] for check in checks}
    assert "peak_prefill_efficient" in names
    assert "peak_prefill_flash" not in names


def peaks_on(ask: Ask, gpu: str, *arguments: str) -> dict[str, int]:
    """Return the simulated peaks of LLaMA-3 8B with 4,096 tokens, by the name of the check."""
    line = ("verify", "llama3-8b", "--simulate", gpu, "-c", "4096", *arguments, "--json")
    checks = document(ask(*line))["checks"]
    return {c["name"]: c["measured"] for c in checks if c["section"] == "peak memory"}


def test_an_amd_instinct_runs_three_kernels(ask: Ask) -> None:
    """K and V of every query head: 2 * 4,096 tokens * 32 heads * 128 * 2 B; and q, out, and 16 B of
    the random number generator.
    """
    peaks = peaks_on(ask, "mi300x")
    kernels = ("math", "flash", "efficient")
    assert set(peaks) == {f"peak_{phase}_{k}" for phase in ("prefill", "decode") for k in kernels}
    assert peaks["peak_decode_efficient"] == 2 * 4096 * 32 * 128 * 2 + 2 * 4096 * 2 + 16


def test_an_amd_gpu_shares_no_kv_heads_in_later_versions_of_torch(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = peaks_on(ask, "mi300x", "--kernel", "efficient")
    monkeypatch.setattr("attncalc.verify.kernels.EFFICIENT_SHARES_KV_HEADS", True)
    assert peaks_on(ask, "mi300x", "--kernel", "efficient") == before
    assert peaks_on(ask, "h100", "--kernel", "efficient") != before


@pytest.mark.parametrize(
    ("n_heads", "d_qk", "d_v", "dtype", "kernels"),
    [
        (8, 128, 128, "bf16", "math flash efficient"),
        (8, 128, 128, "fp32", "math efficient"),
        (8, 192, 128, "bf16", "math"),  # DeepSeek's prefill
        (8, 84, 84, "bf16", "math flash"),  # torch pads the heads of flash
        (8, 512, 512, "bf16", "math flash"),
        (8, 576, 576, "bf16", "math"),
    ],
)
def test_kernels_of_an_amd_instinct(
    n_heads: int, d_qk: int, d_v: int, dtype: str, kernels: str
) -> None:
    call = AttentionCall(n_heads, n_heads, d_qk, d_v, dtype, "none", (9, 0), rocm=True)
    assert [kernel for kernel in RULES if supports(kernel, call) is None] == kernels.split()
    with_mask = call._replace(mask="matrix")
    assert "flash" not in [kernel for kernel in RULES if supports(kernel, with_mask) is None]


# One of several tensor-parallel devices


@pytest.mark.parametrize(
    ("tp", "q_heads", "kv_heads"),
    [(1, 32, 8), (8, 4, 1), (16, 2, 1)],  # each of 16 devices has one of 8 KV heads
)
def test_one_of_several_devices_has_its_share(
    ask: Ask, tp: int, q_heads: int, kv_heads: int
) -> None:
    """The heads of LLaMA-3 8B have 128 elements, and its tokens 4,096: a cache of 64 tokens has
    64 * 2 * 128 * 2 B per KV head.
    """
    line = ("verify", "llama3-8b", "--simulate", "h100", "-c", "64", "--tp", str(tp), "--json")
    answer = ask(*line)
    checks = {check["name"]: check["measured"] for check in document(answer)["checks"]}
    assert answer.code == 0
    assert checks["params_W_q"] == checks["params_W_o"] == 4096 * q_heads * 128
    assert checks["params_W_k"] == checks["params_W_v"] == 4096 * kv_heads * 128
    assert checks["cache_decode"] == 64 * 2 * kv_heads * 128 * 2
    cache = ask("kv", "llama3-8b", "-c", "64", "--tp", str(tp), "--json").document
    assert checks["kv_cache"] == cache["values"]["kv_cache"]
    params = ask("params", "llama3-8b", "--tp", str(tp), "--json").document
    assert checks["params_attention"] == params["values"]["params_attention"]


def test_the_part_of_one_device_agrees_for_every_kind(ask: Ask, tmp_path: Path) -> None:
    text = ZOO.replace("n_layers: 8", "n_layers: 10").replace("[window,", "[plain, mamba, window,")
    file = saved(f"{text}  plain: {{ n_kv_heads: 2 }}\n  mamba: {{ {MAMBA} }}\n", tmp_path)
    asked = (file, "--simulate", "cuda", "-c", "16", "--tp")
    assert disagreeing(ask, *asked, "4") == []
    answer = ask("verify", *asked, "2", "--full")
    assert answer.code == 0  # all checks agree
    assert "mamba: it has the sizes of one device; its split is not checked." in answer.out
    assert "2 tensor-parallel devices; figures are per device" in answer.out


def test_a_wrong_split_disagrees(ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A formula that does not replicate KV heads: 2 heads over 4 devices."""
    file = saved(GROUPED, tmp_path)

    def wrong(self: Grouped, tp: int) -> Grouped:
        return dataclasses.replace(self, n_heads=self.n_heads // tp * 2, n_kv_heads=2)

    line = ("verify", file, "--simulate", "cuda", "-c", "16", "--tp", "4", "--json")
    assert ask(*line).code == 0
    monkeypatch.setattr(Grouped, "shard", wrong)
    answer = ask(*line)
    failed = {check["name"] for check in document(answer)["checks"] if not check["ok"]}
    assert answer.code == 1
    assert failed >= {"params_W_q", "params_W_k", "cache_decode", "kv_cache"}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("gpt2 --simulate nothing", "no GPU named 'nothing'"),
        (
            "gpt2 --simulate rx-7900-xtx",
            "which of torch's kernels run on AMD Radeon RX 7900 XTX is not known",
        ),
        ("llama3-8b --tp 8", "--tp needs --simulate"),
        ("--simulate h100 --tp 8", "--tp needs a model"),
        ("gpt2 --simulate h100 --tp 8", "--tp 8 does not divide 12 query heads"),
        ("--tp 2 --smoke", "--smoke cannot be combined with --tp"),
        ("gpt2 --simulate cuda --device cpu", "--simulate cannot be combined with --device"),
        ("gpt2 --simulate cuda --seed 3", "--simulate cannot be combined with --seed"),
        (
            "gpt2 --simulate cuda --against transformers",
            "--against cannot be combined with --simulate",
        ),
    ],
)
def test_options_that_need_a_device_are_an_error(ask: Ask, arguments: str, error: str) -> None:
    said = ask("verify", *arguments.split()).error
    assert error in said
    assert said.startswith("error: ")


def one_byte_more(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Return a mutation of a formula of one tensor: 64 bytes more, which is more than SEEDS."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        true = getattr(attncalc.cost.kernels, name)
        patch.setattr(
            attncalc.cost.kernels,
            name,
            lambda s: (t := true(s))._replace(size=quantity(t.size + 2 * SEEDS)),
        )

    return mutate


@pytest.mark.parametrize(
    ("formula", "checks"),
    [
        ("_queries", {"peak_prefill_math", "peak_prefill_flash", "peak_decode_cudnn"}),
        ("_output", {"peak_prefill_flash", "peak_prefill_efficient", "peak_prefill_cudnn"}),
    ],
)
def test_a_wrong_formula_disagrees(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, formula: str, checks: set[str]
) -> None:
    one_byte_more(formula)(monkeypatch)
    answer = ask("verify", "llama2-7b", "--simulate", "cuda", "-c", "64", "--json")
    assert answer.code == 1
    failed = {check["name"] for check in document(answer)["checks"] if not check["ok"]}
    assert failed >= checks


# The tensors that exist


def counts(run: Callable[[], Tensor]) -> LiveTensors:
    return live_tensors(run)


def test_tensors_count_until_they_are_freed() -> None:
    def run() -> Tensor:
        a = torch.empty(100)  # 400 bytes
        b = torch.empty(200)  # 800 more
        del a
        c = torch.empty(50)  # 800 + 200
        return b[:50] + c  # 200 more: 1,200 together, as many as a and b

    assert counts(run).peak == 1200


def test_views_and_earlier_tensors_do_not_count() -> None:
    earlier = torch.empty(1000)
    assert counts(lambda: earlier.view(10, 100).t()[2:]).peak == 0
    assert counts(lambda: earlier.add_(1)).peak == 0
    assert counts(lambda: earlier.clone().view(10, 100)).peak == 4000


def test_blocks_are_multiples_of_512_bytes() -> None:
    live = counts(lambda: torch.empty(1) + torch.empty(129))  # 4 and 516 bytes, and the sum: 516
    assert (live.peak, live.peak_in_blocks) == (4 + 516 + 516, 512 + 1024 + 1024)


def test_what_an_operator_keeps_to_itself_is_counted_by_its_name() -> None:
    class Probe:
        def start(self) -> None:
            pass

        def peak(self) -> int:
            return 1000  # an allocator that sees 1,000 bytes in every operator

    live = live_tensors(lambda: torch.empty(100), Probe())
    assert live.inside == {"empty.memory_format": 600}


# Checks of a real GPU's memory, from figures as a GPU would report them


def checks_of(
    kernel: str, phase: str = "prefill", extra: int = 0, **measured: Any
) -> tuple[PeakChecks, Any]:
    """Return the checks of one layer of LLaMA-3 8B on an H100 that requests `extra` bytes more than
    predicted.

    The second value is the layer's prediction.
    """
    workload = Workload.prefill(1, 4096) if phase == "prefill" else Workload.decode(1, 4096)
    (layer,) = activations(load("llama3-8b"), workload, Machine(multiprocessors=132))
    memory = PeakMemory(
        layer.peaks[kernel].size + extra, **{"allocated": 0, "inside": (), **measured}
    )
    return peak_checks(phase, f"{phase}, {kernel}", kernel, layer, memory), layer


def test_a_peak_may_differ_by_one_percent() -> None:
    _, layer = checks_of("math")
    percent = layer.peaks["math"].size // 100
    for extra, agrees in (
        (percent - 1, True),
        (percent + 100, False),
        (1 - percent, True),
        (-percent - 100, False),
    ):
        found, _ = checks_of("math", extra=extra)
        assert found.checks[0].ok is agrees


def test_partial_outputs_inside_flash_are_checked() -> None:
    _, layer = checks_of("flash", "decode")
    partial = layer.buffers["flash"]
    # 8 KV heads, each with one block of 64 rows: 8 tiles for 264 slots; 4,096 keys are 32 blocks of
    # 128: 32 parts
    assert partial == 32 * 32 * (128 + 1) * 4
    operator = "_scaled_dot_product_flash_attention.default"
    right, _ = checks_of("flash", "decode", inside=((operator, partial),))
    wrong, _ = checks_of("flash", "decode", partial, inside=((operator, 2 * partial),))
    assert [check.ok for check in right.checks] == [True, True]
    assert [check.name for check in wrong.checks if not check.ok] == [
        "peak_decode_flash",
        "buffers_decode_flash",
    ]


def test_a_workspace_of_cudnn_is_reported_and_never_agrees() -> None:
    """The peak of cudnn's prefill is the output projection: a small workspace in the kernel does
    not raise it.
    """
    operator = "_scaled_dot_product_cudnn_attention.default"
    _, layer = checks_of("cudnn")
    kernel = next(moment.size for moment in layer.moments["cudnn"] if moment.name == "the kernel")
    room = layer.peaks["cudnn"].size - kernel
    for workspace, raises in ((room // 2, 0), (room + 32 * MIB, 32 * MIB)):
        found, _ = checks_of("cudnn", extra=raises, inside=((operator, workspace),))
        assert [(check.name, check.ok) for check in found.checks] == [("peak_prefill_cudnn", True)]
        shown = next(figure for figure in found.reported if figure.section == "inside kernels")
        assert (shown.measured, shown.predicted) == (workspace, None)


def test_memory_that_no_workspace_explains_disagrees() -> None:
    operator = "_scaled_dot_product_cudnn_attention.default"
    found, _ = checks_of("cudnn", extra=64 * MIB, inside=((operator, 1 * MIB),))
    assert not found.checks[0].ok


def test_a_workspace_of_a_matmul_is_no_disagreement() -> None:
    # the peak is the softmax
    found, _ = checks_of("math", extra=0, inside=(("addmm.default", 32 * MIB),))
    assert all(check.ok for check in found.checks)
    # the output projection
    found, _ = checks_of("flash", extra=32 * MIB, inside=(("addmm.default", 32 * MIB),))
    assert all(check.ok for check in found.checks)
    figures = [(figure.section, figure.measured) for figure in found.reported]
    assert ("inside matmuls", 32 * MIB) in figures


def test_the_figures_of_allocator_and_driver_are_reported() -> None:
    found, layer = checks_of("math", allocated=5, reserved=6, driver=7)
    by_section = {figure.section: (figure.predicted, figure.measured) for figure in found.reported}
    assert by_section == {
        "max_memory_allocated": (layer.peaks["math"].size, 5),
        "max_memory_reserved": (None, 6),
        "driver (nvidia-smi)": (None, 7),
    }


def test_a_gpu_reports_the_allocators_increase(
    on_box: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stubs of torch.cuda: 1,000 bytes exist before the run, which requests 300 more in blocks of
    512.
    """
    stats = {
        "requested_bytes.all.current": 1000,
        "requested_bytes.all.peak": 1300,
        "allocated_bytes.all.current": 1024,
        "allocated_bytes.all.peak": 1536,
        "reserved_bytes.all.peak": 2 * MIB,
    }
    on_box(Box())
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: stats)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (60 * MIB, 80 * MIB))
    peak = Cuda(0).peak(lambda: torch.empty(75))
    assert peak == PeakMemory(300, allocated=512, reserved=2 * MIB, driver=20 * MIB, inside=())


def test_an_allocator_that_counts_no_requests_is_not_checked(
    on_box: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_box(Box())
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "cudaMallocAsync")
    assert not Cuda(0).measures_memory


def test_a_simulated_gpu_has_the_facts_of_the_named_one() -> None:
    assert SimulatedCuda().capability == (9, 0)
    assert SimulatedCuda().machine == Machine()


def test_buffers_that_were_not_observed_are_not_checked() -> None:
    """If observing a decode step took too much memory, nothing is known of what flash allocated
    inside.
    """
    found, _ = checks_of("flash", "decode", inside=None)
    assert [(check.name, check.ok) for check in found.checks] == [("peak_decode_flash", True)]
