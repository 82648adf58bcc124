"""llama.cpp's compute buffer beside what ggml's allocator finds and what people's logs say.

tests/data/llamacpp has the facts: runs of the allocator on a CPU backend, runs on a device that has
CUDA's alignment and sizes but no memory, and posted logs.
"""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import pytest
from evaluate import text_of
from llamacpp_parts import spread_over_gpus
from tables import each

from attncalc import AttncalcError, load
from attncalc.config.gpus import cpu, gpu
from attncalc.engines.llamacpp.options import FLASH
from attncalc.engines.llamacpp.versions import llamacpp_version
from attncalc.engines.runtime import RuntimeMemory
from attncalc.model import ModelSpec
from attncalc.serving.devices import devices_of
from attncalc.serving.fit import fit
from attncalc.serving.memory_budget import memory_budget
from attncalc.serving.request import FitRequest, resolve
from attncalc.workload import Workload

DATA = Path(__file__).parent / "data" / "llamacpp"
MIB = 2**20
RUNS = json.loads((DATA / "allocator-runs.json").read_text())["runs"]
CUDA_RUNS = json.loads((DATA / "cuda-runs.json").read_text())["runs"]
DEVICE_RUNS = json.loads((DATA / "device-runs.json").read_text())["runs"]
LOGS = json.loads((DATA / "logs.json").read_text())["logs"]


@functools.cache
def model(name: str) -> ModelSpec:
    path = DATA / "models" / f"{name}.json"
    return load(str(path) if path.exists() else name)


def request(
    name: str,
    context: int,
    *,
    slots: int = 1,
    kv: str = "f16",
    gpus: int = 1,
    device: str = "b300",
    **args: Any,
) -> FitRequest:
    workload = Workload.decode(slots, context, kv_dtype=kv)
    return FitRequest(
        model(name),
        workload,
        engine="llamacpp",
        gpu=cpu(2**40) if device == "cpu" else gpu(device),
        gpus=gpus,
        engine_args=args,
    )


def runtimes(name: str, context: int, *, gpus: int = 1, **args: Any) -> list[RuntimeMemory]:
    """Return the runtime memory of each GPU."""
    resolved = resolve(request(name, context, gpus=gpus, **args))
    parts = spread_over_gpus(resolved.model, gpus)
    budgets = [
        memory_budget(resolved, p, first=i == 0, last=i == gpus - 1) for i, p in enumerate(parts)
    ]
    return [budget.reserve.runtime for budget in budgets if budget.reserve]


def mib(name: str, context: int, **args: Any) -> list[float]:
    """Return the compute buffer of each GPU in MiB."""
    return [int(runtime.parts[0].expected) / MIB for runtime in runtimes(name, context, **args)]


def run_args(run: dict[str, Any]) -> dict[str, Any]:
    return {
        "flash_attn": "on" if run["flash_attn"] else "off",
        "ubatch": run["n_ubatch"],
        "engine_version": run["engine_version"],
    }


def test_compute_buffers_are_those_of_the_cuda_backend() -> None:
    """53 runs, all in the range: seven in ten figures within 0.2 %, the others within 11 % (gaps in
    the buffer).
    """
    errors = []
    for run in CUDA_RUNS:
        args = run["args"] | {"engine_version": "v0.5.0"}
        slots = 1 if args.get("kv_unified") else args.get("sequences", 1)
        asked = request(
            run["model"], run["n_ctx"] // slots, device="h100-80gb", gpus=run["gpus"], **args
        )
        asked = dataclasses.replace(
            asked, weights_dtype="mxfp4" if "oss" in run["model"] else "q8_0"
        )
        found = [
            device.budget.reserve.runtime
            for device in devices_of(resolve(asked))
            if device.budget.reserve
        ]
        for runtime, printed in zip(found, run["compute_MiB"], strict=True):
            part = runtime.parts[0]
            assert part.low <= printed * MIB <= part.high, run
            errors.append(abs(int(part.expected) / MIB / printed - 1))
        host = next(
            detail.quantity for detail in found[0].details if detail.name == "host_compute_buffer"
        )
        close = 0.2 if args.get("no_kv_offload") else 0.03
        assert int(float(host)) / MIB == pytest.approx(run["host_compute_MiB"], rel=close), run
    errors.sort()
    assert errors[len(errors) * 7 // 10] < 0.002
    assert errors[-1] < 0.11


def test_compute_buffers_are_those_of_ggmls_allocator() -> None:
    """92 runs on a CPU backend: within 4%, and 0.6% on average."""
    errors = []
    for run in RUNS:
        old = run["engine_version"] == "b9190"
        args = run_args(run) | {"n_outputs_max": run.get("n_outputs_max"), "swa_full": old}
        (runtime,) = runtimes(run["model"], run["n_ctx"], device="cpu", **args)
        part = runtime.parts[0]
        errors.append(abs(int(part.expected) / MIB / run["compute_MiB"] - 1))
        assert errors[-1] < 0.04, run
        assert part.low <= run["compute_MiB"] * MIB <= part.high, run
    assert sum(errors) / len(errors) < 0.006


@pytest.mark.parametrize(
    ("version", "typical", "tenth"), [("0.3.36", 0.01, 0.025), ("b9190", 0.03, 0.1)]
)
def test_compute_buffers_are_those_of_a_device(version: str, typical: float, tenth: float) -> None:
    """386 runs: MLA, delta nets, indexers, windows, experts, slots, quantized caches, two GPUs.

    All are inside the range. `typical` is the mean error, `tenth` the error that one in ten
    exceeds. That device has no kernel for the sum of experts, as CUDA before b10830. Of two GPUs
    the first is compared:
    the runs have no allocation, and so the second's buffer has a hidden state that no start has,
    and the host's three embeddings.
    """
    errors = []
    for run in DEVICE_RUNS:
        if run["engine_version"] != version:
            continue
        args = run_args(run) | {"slots": run["slots"], "kv_unified": run["kv_unified"]}
        args |= {"kv": run["kv_type"], "gpus": run["gpus"]}
        args["engine_version"] = "b10829" if version == "0.3.36" else version
        runtime = runtimes(run["model"], run["context"], **args)[0]
        if run["flash_attn"] and version == "0.3.36" and run["gpus"] == 1:
            host = next(
                detail.quantity
                for detail in runtime.details
                if detail.name == "host_compute_buffer"
            )
            assert int(float(host)) / MIB == pytest.approx(run["host_compute_MiB"], rel=0.03), run
        part = runtime.parts[0]
        assert part.low <= run["compute_MiB"][0] * MIB <= part.high, run
        errors.append(abs(int(part.expected) / MIB / run["compute_MiB"][0] - 1))
    errors.sort()
    assert sum(errors) / len(errors) < typical
    assert errors[len(errors) * 9 // 10] < tenth


@each("log", LOGS)
def test_compute_buffers_are_those_of_posted_logs(log: dict[str, Any]) -> None:
    (runtime,) = runtimes(log["model"], log["n_ctx"], kv=log["kv_type"], **run_args(log))
    part = runtime.parts[0]
    assert part.low <= log["compute_MiB"] * MIB <= part.high
    if log["model"] != "gemma4-26b-a4b":  # a quantized cache with windows: a range only
        assert int(part.expected) / MIB == pytest.approx(log["compute_MiB"], rel=0.017)


@pytest.mark.parametrize(
    ("name", "context", "printed"),
    [("qwen3.6-27b", 196608, 212.02), ("qwen3-30b-a3b", 4096, 12.01)],
)
def test_the_hosts_buffer_has_masks_and_embeddings(name: str, context: int, printed: float) -> None:
    """A log of b11258, and a run on a device: 2 B * 4096 * 512 and 2 * 2048 * 4 B * 512 are 4 + 8
    MiB.
    """
    (runtime,) = runtimes(name, context)
    host = next(
        detail.quantity for detail in runtime.details if detail.name == "host_compute_buffer"
    )
    assert int(float(host)) / MIB == pytest.approx(printed, abs=0.03)


def test_the_largest_of_three_moments_decides() -> None:
    args = {"ubatch": 512, "engine_version": "b11258"}
    # masks 2 B * 4096 * 512, MLP (3 * 12288 + 2 * 4096 + 4096) * 4 B * 512: 4 + 96 MiB
    assert mib("qwen3-8b", 4096, **args) == [100]
    # logits of 512 tokens: 512 * 151936 * 4 B = 296.75 MiB, and 8 MiB of hidden states
    assert mib("qwen3-8b", 4096, n_outputs_max=512, **args) == [304.75]
    # scores of 32 heads: 32 * 65536 * 4 B * 512 = 4096 MiB, masks 128, (2 * 4096 + 2 * 4096) * 2
    # KiB = 32, and places of 1,024 elements of V: 1024 * 8 B * 512 = 4
    assert mib("qwen3-8b", 65536, flash_attn="off", **args) == [4096 + 128 + 32 + 4]
    # before, the server computed all logits
    assert mib("qwen3-8b", 4096, ubatch=512, engine_version="b9190") == [304.75]


def test_flash_attention_is_the_default_since_august_2025() -> None:
    def attention(version: str, **args: Any) -> list[float]:
        return mib("qwen3-8b", 131072, engine_version=version, **args)

    assert (
        attention("b6000")
        == attention("b6000", flash_attn="off")
        != attention("b6000", flash_attn="on")
    )
    assert (
        attention("b9190")
        == attention("b9190", flash_attn="auto")
        == attention("b9190", flash_attn="on")
    )
    # a quantized V needs it, whatever the build
    assert attention("b6000", kv="q8_0") == attention("b6000", kv="q8_0", flash_attn="on")


def test_a_quantized_cache_is_copied_to_f16_since_june_2026() -> None:
    # K and V of 131,072 cells of 8 * 128 elements, 2 B: 512 MiB; masks 128, (2 * 4096 + 2 * 4096) *
    # 2 KiB = 32
    assert mib("qwen3-8b", 131072, kv="q8_0") == [512 + 128 + 32]
    assert mib("qwen3-8b", 131072, kv="q8_0", engine_version="b9190") == mib(
        "qwen3-8b", 131072, engine_version="b9190"
    )


def test_with_several_gpus_inputs_have_four_copies() -> None:
    # 4 masks of 32,768 cells: 128 MiB; MLP 96; embeddings on the first GPU, hidden states on
    # others: 4 * 8
    assert mib("qwen3-8b", 32768, gpus=3) == 3 * [128 + 96 + 32]
    # logits on the last GPU only
    *_, last = mib("qwen3-8b", 32768, gpus=3, n_outputs_max=512)
    assert last == 128 + 296.75 + 8 + 32


def test_slots_have_a_mask_each_or_share_a_larger_one() -> None:
    # 4 slots of 8,192: each token has a mask of 8,192 cells (8 MiB), or of all 32,768 (32 MiB)
    apart, shared = mib("qwen3-8b", 8192, slots=4), mib("qwen3-8b", 8192, slots=4, kv_unified=True)
    assert shared[0] - apart[0] == 32 - 8


def test_a_build_between_two_graphs_has_the_range_of_both() -> None:
    def part(version: str) -> tuple[int, int]:
        found = runtimes("llama3-8b", 8192, engine_version=version)[0].parts[0]
        return found.low, found.high

    assert part("b9450") == (part("b9500")[0], part("b9371")[1])
    notes = runtimes("llama3-8b", 8192, engine_version="b9450")[0].notes
    assert any("may or may not" in note for note in notes)


def test_the_range_of_a_build_between_two_graphs_holds_its_estimate_with_a_quantized_cache() -> (
    None
):
    """The newer graph is the larger one: it copies the cache in f16."""
    part = runtimes("llama3-8b", 131072, kv="q8_0", engine_version="b9450")[0].parts[0]
    assert part.low <= part.expected <= part.high


def test_memory_outside_the_buffers_is_that_of_posted_logs() -> None:
    outside = runtimes("llama3-8b", 8192)[0].parts[1]
    for row in json.loads((DATA / "logs.json").read_text())["unaccounted"]:
        if row["gpu"].startswith(("RTX 4090", "RTX PRO")) and "unaccounted_MiB" in row:
            assert all(
                outside.low <= unaccounted * MIB <= outside.high
                for unaccounted in row["unaccounted_MiB"]
            )


def test_buffers_are_in_the_report_and_in_the_log_lines() -> None:
    result = fit(request("qwen3-8b", 4096, device="rtx-4090"))
    # 7,568,405,504 parameters without the embedding, in bf16
    assert "load_tensors:        CUDA0 model buffer size = 14435.59 MiB" in result.log_lines
    assert "sched_reserve:      CUDA0 compute buffer size =   100.00 MiB" in result.log_lines
    # 36 layers * 4096 cells * 2 * 1024 * 2 B
    assert "llama_kv_cache:      CUDA0 KV buffer size =   576.00 MiB" in result.log_lines
    # 19 and 17 of 36 layers
    two = fit(request("qwen3-8b", 4096, device="rtx-4090", gpus=2)).log_lines
    assert "llama_kv_cache:      CUDA0 KV buffer size =   304.00 MiB" in two
    assert "llama_kv_cache:      CUDA1 KV buffer size =   272.00 MiB" in two
    assert result.budget.reserve
    details = {detail.name: detail.quantity for detail in result.budget.reserve.runtime.details}
    assert details["model_buffer"] == 2 * 7568405504
    assert details["compute_buffer"] == 100 * MIB
    # and 0.45 GiB outside the buffers
    assert result.budget.reserve.total == 100 * MIB + 45 * 2**30 // 100


@each("name", ["qwen3-8b", "gemma3-27b", "deepseek-v3.2", "qwen3.6-35b-a3b", "gpt-oss-20b"])
@each("args", [{}, {"kv": "q8_0"}, {"flash_attn": "off"}, {"engine_version": "b9190"}, {"gpus": 2}])
def test_formulas_evaluate_to_their_figures(name: str, args: dict[str, Any]) -> None:
    for runtime in runtimes(name, 16384, **args):
        figures = [part.expected for part in runtime.parts] + [term[2] for term in runtime.terms]
        for figure in figures:
            text_of(figure)


@pytest.mark.parametrize(
    "text", ["b", "b0", "b123456", "9190", "0.3.35", "bb1", "b-1", "b1.5", "IK", "v0.5", "0.5.0"]
)
def test_unknown_versions_are_errors(text: str) -> None:
    with pytest.raises(AttncalcError, match="no such version") as raised:
        llamacpp_version(text)
    assert "b11739" in (raised.value.tip or "")


def test_releases_are_newer_than_every_change() -> None:
    """The first, v0.1.0, is of August 2026."""
    assert llamacpp_version("v0.5.0").number == llamacpp_version(None).number


def test_flash_attention_has_three_modes_and_a_quantized_v_needs_it() -> None:
    assert [FLASH.parse(text, "--flash-attn") for text in ("-", "off", "AUTO")] == [
        "on",
        "off",
        "auto",
    ]
    with pytest.raises(AttncalcError, match="--flash-attn yes is unknown"):
        FLASH.parse("yes", "--flash-attn")
    with pytest.raises(AttncalcError, match="needs flash attention for V in q8_0"):
        fit(request("qwen3-8b", 4096, kv="q8_0", flash_attn="off"))
