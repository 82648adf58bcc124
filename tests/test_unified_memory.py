"""Memory that the host uses too: GB10, Jetson Thor, Strix Halo and Macs."""

import dataclasses

import pytest
from asking import Ask
from tables import each

from attncalc import Workload, load
from attncalc.config.gpus import gpu
from attncalc.hardware import FREE_OF_UNIFIED
from attncalc.serving.fit import FitResult, fit
from attncalc.serving.request import FitRequest
from attncalc.units import GIB

MODEL = load("qwen3-8b")


def fitted(name: str, engine: str, share: str | None = None, tp: int = 1) -> FitResult:
    return fit(
        FitRequest(
            MODEL,
            Workload.decode(context=4096),
            gpu=gpu(name),
            engine=engine,
            gpu_memory_utilization=share,
            tp=tp,
        )
    )


def parts(result: FitResult) -> dict[str, tuple[float, float, float]]:
    """Return the GiB of each part of the runtime memory: low, expected and high."""
    assert result.budget.reserve
    return {
        part.name: (part.low / GIB, int(part.expected) / GIB, part.high / GIB)
        for part in result.budget.reserve.runtime.parts
    }


def test_sglang_starts_on_a_gb10_with_the_memory_that_logs_print() -> None:
    """Of 121.63 GiB, 5 % are 6.08, 8 % 9.73 and 10 % 12.16. Logs start with 109.83 to 115.36,
    111.47 on four.
    """
    for tp in (1, 4):
        low, expected, high = (
            size / 0.8 for size in parts(fitted("gb10", "sglang", "0.8", tp))["before_share"]
        )
        assert (round(low, 2), round(expected, 2), round(high, 2)) == (6.08, 9.73, 12.16)
        assert all(
            121.63 - high < logged < 121.63 - low for logged in (109.83, 111.34, 111.47, 115.36)
        )
        assert 111 < 121.63 - expected < 114


def test_what_the_host_holds_may_be_given() -> None:
    """Of 121.63 GiB, 11.65 leave 109.98, of which a CUDA context takes 0.25 to 1.0."""
    device = dataclasses.replace(gpu("gb10"), other_memory=int(11.65 * GIB))
    budget = fitted("gb10", "sglang", "0.8").budget
    given = fit(dataclasses.replace(fitted("gb10", "sglang", "0.8").request, gpu=device)).budget
    assert (
        given.kv_memory_high - given.kv_memory_low
        < (budget.kv_memory_high - budget.kv_memory_low) / 4
    )
    assert given.kv_memory_low < given.kv_memory < given.kv_memory_high


def test_vllm_has_more_outside_pytorch_on_unified_memory() -> None:
    """19 logs of GB10s have 2.24 to 6.01 GiB, a Strix Halo 0.56, and one GPU with memory of its own
    0.13.

    A Jetson's free memory may grow while weights are loaded: -3.3 to -1.1 GiB in 3 logs.
    """
    assert [round(size, 2) for size in parts(fitted("gb10", "vllm"))["outside_torch"]] == [
        2.0,
        3.4,
        6.3,
    ]
    assert [round(size, 1) for size in parts(fitted("gb10", "vllm", tp=2))["outside_torch"]] == [
        2.2,
        6.6,
        11.7,
    ]
    assert [
        round(size, 1) for size in parts(fitted("jetson-agx-orin", "vllm"))["outside_torch"]
    ] == [-3.3, 0.5, 7.0]
    assert parts(fitted("strix-halo-128gb", "vllm"))["outside_torch"][1:] > (0.12, 0.56)
    assert round(parts(fitted("l4", "vllm"))["outside_torch"][1], 2) == 0.13


def test_known_neighbours_narrow_what_vllm_has_outside_pytorch(ask: Ask) -> None:
    """Four logs of shares below 0.75 have 0.98 to 2.05 GiB, and one -2.77, beside a server that was
    starting.
    """
    words = (
        "fit",
        "qwen3-8b",
        "--gpu",
        "gb10",
        "--engine",
        "vllm",
        "--gpu-memory-utilization",
        "0.6",
        "--json",
    )
    for more, expected in ((), [-3.0, 2.0, 6.3]), (("--other-memory", "30GiB"), [0.9, 2.0, 4.0]):
        (part,) = (
            part
            for part in ask(*words, *more).document["runtime"]
            if part["name"] == "outside_torch"
        )
        assert [round(part[name] / GIB, 1) for name in ("low", "expected", "high")] == expected


def test_json_has_what_a_jetson_may_gain(ask: Ask) -> None:
    document = ask("fit", "qwen3-8b", "--gpu", "jetson-agx-orin", "--json").document
    (low,) = (part["low"] for part in document["runtime"] if part["name"] == "outside_torch")
    assert low < 0


def test_llamacpp_leaves_the_host_its_part_of_unified_memory() -> None:
    """0.45 GiB of libraries and 8 % of 121.63 GiB, 9.73, are 10.18."""
    assert round(parts(fitted("gb10", "llamacpp"))["outside_buffers"][1], 2) == 10.18
    assert round(parts(fitted("l4", "llamacpp"))["outside_buffers"][1], 2) == 0.45


@each("name", ["strix-halo-128gb", "m4-max-36gb"])
def test_an_assumed_share_of_unified_memory_leaves_the_host_the_rest(name: str) -> None:
    """Three quarters are assumed where no log shows more, and Metal's limit of a Mac leaves the
    rest too.
    """
    assert round(parts(fitted(name, "llamacpp"))["outside_buffers"][1], 2) == 0.45


@pytest.mark.parametrize(
    ("name", "is_warned"), [("gb10", True), ("thor", True), ("strix-halo", False), ("l4", False)]
)
def test_vllm_may_not_start_with_its_default_share_of_unified_memory(
    ask: Ask, name: str, is_warned: bool
) -> None:
    """0.92 of 121.63 GiB are 111.90, more than the 83 % that an idle host had; 0.83 is not."""
    words = ("fit", "qwen3-0.6b", "--gpu", name, "--engine", "vllm")
    said = " ".join(ask(*words, "--gpu-memory-utilization", "0.92").out.split())
    assert ("--gpu-memory-utilization 0.83 starts with the least" in said) is is_warned
    assert ("vLLM starts only if 111.90 GiB are free" in said) is (name == "gb10")
    alone = ask(*words).out
    assert "starts only if" not in alone
    assert (f"--gpu-memory-utilization 0.{FREE_OF_UNIFIED[0]}" in alone) is is_warned


def test_a_mac_runs_llamacpp_unless_another_engine_is_named(ask: Ask) -> None:
    assert "llama-server -m " in ask("fit", "qwen3-8b", "--gpu", "m4-max").out
    assert "vllm serve " in ask("fit", "qwen3-8b", "--gpu", "m4-max", "--engine", "vllm").out
    assert "vllm serve " in ask("fit", "qwen3-8b", "--gpu", "l4").out


def test_sglang_is_warned_of_shares_that_left_the_host_no_memory(ask: Ask) -> None:
    words = ("fit", "qwen3-0.6b", "--gpu", "gb10", "--engine", "sglang")
    larger = ask(*words, "--mem-fraction-static", "0.85").out
    assert "--mem-fraction-static 0.8 is published" in " ".join(larger.split())
    assert "--mem-fraction-static 0.8" in ask(*words).out
    assert "published" not in ask(*words, "--mem-fraction-static", "0.8").out
    assert "published" not in ask(*words[:3], "h100", *words[4:]).out


def test_no_larger_share_of_unified_memory_is_suggested(ask: Ask) -> None:
    """A request that needs a little more than 0.92 leaves would fit with 0.95, which does not start
    on a GB10.
    """
    words = ("fit", "qwen3-8b", "--engine", "vllm", "--batch", "1000", "--context", "4K")
    assert "0.95 of the GPU" not in ask(*words, "--gpu", "gb10").out


def test_a_mac_states_its_limit(ask: Ask) -> None:
    said = " ".join(
        ask("fit", "qwen3-8b", "--gpu", "M3 Max 64GB", "--engine", "llamacpp", "--full").out.split()
    )
    assert "Metal lets the GPU use 48.00 GiB of the Mac's 64 GB by default." in said


def test_tables_that_an_engine_would_keep_on_the_host_count_where_that_is_the_same_memory() -> None:
    """47.7 GiB of Qwen3.8-Flash-Next in fp8, of 16 * 20,000,096 rows of 160, in whole blocks of 2
    MiB.
    """
    request = FitRequest(
        load("qwen3.8-flash-next"),
        Workload.decode(context=4096),
        engine="vllm",
        weights_dtype="fp8",
    )
    results = [
        fit(dataclasses.replace(request, gpu=gpu(name)))
        for name in ("jetson-agx-thor", "rtx-pro-6000")
    ]
    on_unified, on_a_card = (
        int(result.budget.weights.total) for result in results if result.budget.weights
    )
    assert on_unified - on_a_card == 24_415 * 2 * 1024**2 >= 320_001_536 * 160
    assert ["a mapped file" in " ".join(result.request.model.notes) for result in results] == [
        True,
        False,
    ]
