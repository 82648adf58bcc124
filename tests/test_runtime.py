"""What engines keep beside weights and cache: parts, ranges and verdicts. Whole start-ups are in
test_startups.py.
"""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from asking import Ask, results
from hypothesis import given
from hypothesis import strategies as st
from tables import each

from attncalc import Latent, Layers, Workload, load
from attncalc.config.gpus import gpu
from attncalc.engines import find_engine
from attncalc.engines.runtime import RuntimeMemory, RuntimePart
from attncalc.engines.vllm.engine import ENGINE as VLLM
from attncalc.engines.vllm.options import VllmArgs
from attncalc.engines.vllm.runtime import capture_sizes
from attncalc.quantity import symbol
from attncalc.serving.fit import FitResult, fit
from attncalc.serving.request import FitRequest, resolve
from attncalc.units import GIB

MIB = 2**20


def on(
    name: str,
    model: str = "qwen3-8b",
    *,
    version: str = "0.19.0",
    context: int = 8192,
    **options: Any,
) -> FitResult:
    """Return what fits in vLLM on that GPU, one sequence of `context` tokens."""
    known = {field.name for field in dataclasses.fields(FitRequest)}
    args = {name: value for name, value in options.items() if name not in known}
    return fit(
        FitRequest(
            load(model),
            Workload.decode(1, context),
            gpu=gpu(name),
            engine_args={"engine_version": version, **args},
            **{name: value for name, value in options.items() if name in known},
        )
    )


def parts(result: FitResult) -> dict[str, RuntimePart]:
    assert result.budget.reserve is not None
    return {part.name: part for part in result.budget.reserve.runtime.parts}


def test_parts_add_up_to_the_reserve() -> None:
    result = on("h100-80gb", version="0.33.0")
    reserve = result.budget.reserve
    assert reserve is not None
    assert sum(int(part.expected) for part in reserve.runtime.parts) == reserve.total
    assert (reserve.low, reserve.high) == (reserve.runtime.low, reserve.runtime.high)
    assert all(0 <= part.low <= part.expected <= part.high for part in reserve.runtime.parts)


def test_a_reserve_without_parts_is_nothing() -> None:
    memory = RuntimeMemory((RuntimePart("a", "a", 1, symbol("a", 2, "bytes"), 5, ""),))
    assert (memory.low, memory.total, memory.high) == (1, 2, 5)
    result = fit(FitRequest(load("gpt2"), Workload.decode(1, 100), "ideal", gpu=gpu("t4")))
    assert result.budget.facts is not None
    assert find_engine("ideal").runtime(result.budget.facts).total == 0
    assert result.budget.reserve is not None
    assert result.budget.reserve.total == 0


# vLLM's profile


@pytest.mark.parametrize(
    ("version", "bytes_per_logit", "buffer"),
    [
        ("0.16.0", 38, 0),
        ("0.17.0", 14, 132),
        ("0.21.0", 14, 0),
        ("0.22.1", 6, 0),
        ("0.28.0", 2, 0),
        ("0.33.0", 14, 0),
    ],
)
def test_the_sampler_holds_bytes_per_logit_by_version(
    version: str, bytes_per_logit: int, buffer: int
) -> None:
    activations = parts(on("h100-80gb", version=version))["activations"]
    # 1,024 sequences x 151,936 logits; a row of fp32 logits per multiprocessor; hidden states of
    # 8,192 and twice 1,024 tokens; cuBLAS' 32 MiB
    sampler = (
        1024 * 151_936 * bytes_per_logit
        + 4 * buffer * 151_936
        + (8192 + 2048) * 4096 * 2
        + 32 * MIB
    )
    # gate, up and their product, 12,288 wide each, and 3.75 d_model
    forward = 8192 * 2 * (3 * 12_288 + 15 * 4096 // 4) + 32 * MIB
    # from 0.22 on the compiler may need more: see below
    compiler = (151_936 + 8192) * 4096 * 2 if version in ("0.22.1", "0.28.0", "0.33.0") else 0
    assert activations.expected == max(sampler, forward, compiler)


def test_the_compiler_benchmarks_kernels_with_a_copy_of_the_embedding() -> None:
    """A first start of Qwen3-8B in 0.24 on an RTX 4090 had 0.95 GiB less for the cache than a later
    one.
    """

    def activations(version: str, model: str = "qwen3-8b", **options: Any) -> RuntimePart:
        return parts(on("rtx-4090", model, version=version, context=1024, **options))["activations"]

    cold, before, old = activations("0.24.0"), activations("0.21.0"), activations("0.11.0")
    copy = (151_936 + 2048) * 4096 * 2
    assert (cold.expected, cold.label) == (copy, "compiler, which copies the embedding")
    # nothing is compiled with --enforce-eager
    eager = activations("0.24.0", enforce_eager=True)
    assert abs(cold.expected - eager.expected - 0.95 * GIB) < 0.025 * GIB
    # only in the range where no log has it, or if compiled graphs may be cached
    assert cold.low == eager.low
    assert before.expected < copy < before.high
    assert old.label.startswith("sampler")
    # each device has a part of the embedding
    assert activations("0.24.0", tp=2, gpus=2).expected == (151_936 // 2 + 2048) * 4096 * 2
    # a model with towers looks tokens up outside the graph
    assert activations("0.24.0", "gemma3-27b", tp=4, gpus=4).label.startswith(
        ("sampler", "forward")
    )


def test_the_logits_are_not_divided_by_tensor_parallelism() -> None:
    one, two = (parts(on("h100-80gb", tp=tp, gpus=tp))["activations"] for tp in (1, 2))
    assert one.expected == two.expected


def test_fewer_sequences_than_the_default_take_less() -> None:
    assumed, same = (
        parts(on("h100-80gb"))["activations"],
        parts(on("h100-80gb", max_num_seqs=1024))["activations"],
    )
    assert assumed == same
    few = parts(on("h100-80gb", max_num_seqs=16))["activations"]
    assert few.expected < same.expected
    assert few.label == "forward pass, 8,192 tokens"


def test_a_note_names_the_limits_that_are_assumed() -> None:
    def notes(**args: Any) -> str:
        reserve = on("h100-80gb", **args).budget.reserve
        assert reserve is not None
        return " ".join(reserve.runtime.notes)

    assert "--max-num-seqs 1,024 and --max-num-batched-tokens 8,192 are assumed" in notes()
    assert "--max-num-batched-tokens 8,192 is assumed" in notes(max_num_seqs=8)
    assert "assumed" not in notes(max_num_seqs=8, max_num_batched_tokens=2048)


def test_cuda_graphs_are_subtracted_from_0_20_on() -> None:
    assert "cuda_graphs" not in parts(on("h100-80gb", version="0.19.0"))
    # 32 heads x 128 x 512 rows x 32 splits x 4 B = 256 MiB and 4, then 50 sizes of 2 + 0.34 x 36
    # MiB
    graphs = parts(on("h100-80gb", version="0.20.0"))["cuda_graphs"]
    assert abs(graphs.expected - (256 + 4) * MIB - 50 * (2 * MIB + 36 * MIB * 34 // 100)) < MIB
    assert "cuda_graphs" not in parts(on("h100-80gb", version="0.20.0", enforce_eager=True))
    # the second runner, which Qwen3 has from 0.22 on, returned 0 up to 0.28
    assert "cuda_graphs" not in parts(on("h100-80gb", version="0.22.1"))
    assert "cuda_graphs" in parts(on("h100-80gb", version="0.22.1", model="gpt-oss-20b"))
    assert "cuda_graphs" in parts(on("h100-80gb", version="0.29.0"))


@pytest.mark.parametrize(
    ("gpu_name", "layers", "sequences", "logged"),
    [
        # "Profiling CUDA graph memory: PIECEWISE=51 (largest=512), FULL=35 (largest=256)",
        # Qwen3.5-4B: 0.64 GiB
        ("a100-80gb", 32, 256, 0.64),
        # "PIECEWISE=35 (largest=256), FULL=19 (largest=128)", Qwen2.5-7B in vLLM 0.22.0: 0.37 GiB
        ("l40s", 28, 128, 0.37),
        # Qwen3-235B on RTX PRO 6000 in 0.27.1, --max-num-seqs 32: 0.32 GiB
        ("rtx-pro-6000", 94, 32, 0.32),
    ],
)
def test_graphs_off_hopper_are_near_public_logs(
    gpu_name: str, layers: int, sequences: int, logged: float
) -> None:
    model = load("qwen3-8b")
    (group,) = model.main.layers
    stack = dataclasses.replace(model.main, layers=(dataclasses.replace(group, count=layers),))
    request = FitRequest(
        dataclasses.replace(model, stacks=(stack,)),
        Workload.decode(1, 4096),
        gpu=dataclasses.replace(gpu(gpu_name), memory=400 * GIB),
        engine_args={"engine_version": "0.20.0", "max_num_seqs": sequences},
    )
    graphs = parts(fit(request))["cuda_graphs"]
    assert abs(graphs.expected / GIB - logged) < 0.05
    assert graphs.low / GIB < logged < graphs.high / GIB


def test_flashinfers_workspace_is_in_the_first_graph() -> None:
    """It runs the attention of compute capability 10, and on other GPUs but Hopper of a cache in
    fp8.
    """

    def first(name: str, kv_dtype: str | None = None, model: str = "qwen3-8b") -> float:
        workload = Workload.decode(1, 4096, kv_dtype=kv_dtype)
        args = {"engine_version": "0.20.0", "max_num_seqs": 1, "max_num_batched_tokens": 2048}
        found = parts(fit(FitRequest(load(model), workload, gpu=gpu(name), engine_args=args)))[
            "cuda_graphs"
        ]
        # two sizes, 1 and 2, of which the second is captured for prefills only
        layers = load(model).main.n_layers
        return (int(found.expected) - 2 * (2 * MIB + layers * (MIB * 34 // 100)) // 3) / MIB

    assert abs(first("b200") - 394) < 1
    assert abs(first("rtx-5090", "fp8") - 394) < 1
    assert abs(first("rtx-5090") - 50) < 1
    assert abs(first("l40s", "fp8") - 394) < 1
    assert abs(first("a100-40gb") - 50) < 1
    # FlashAttention 3, whose splits of one row take 0.5 MiB
    assert abs(first("h100-80gb", "fp8") - 130) < 1


def test_hip_graphs_take_more_than_cuda_graphs() -> None:
    def graphs(name: str, version: str) -> RuntimePart:
        return parts(on(name, version=version, max_num_seqs=256))["cuda_graphs"]

    hip = graphs("mi300x", "0.29.0")
    cuda = graphs("b200", "0.20.0")
    assert abs((hip.expected - 50 * MIB) / (cuda.expected - 394 * MIB) - 5) < 0.01
    assert hip.high == 2 * int(hip.expected)


def test_graphs_are_captured_for_51_sizes_by_default() -> None:
    facts = on("h100-80gb").budget.facts
    assert facts is not None
    assert len(capture_sizes(facts)) == 51  # 1, 2, 4, 8 to 248 by 8, 256 to 512 by 16
    few = on("h100-80gb", max_num_seqs=16).budget.facts
    assert few is not None
    assert capture_sizes(few) == [1, 2, 4, 8, 16, 24, 32]


@each(
    ("name", "version", "sequences", "last"),
    [
        ("b200", "0.27.1", 1024, [480, 496, 512]),
        ("b200", "0.28.0", 1024, [992, 1008, 1024]),
        ("b300", "0.33.0", 400, [768, 784, 800]),
        ("b200", "0.32.0", 300, [560, 576, 592]),
        ("h200", "0.33.0", 1024, [480, 496, 512]),
        ("rtx-5090", "0.33.0", 1024, [480, 496, 512]),
        ("h100-80gb", "0.28.0", 20, [24, 32, 40]),
    ],
)
def test_blackwell_captures_steps_of_1024_from_0_28_on(
    name: str, version: str, sequences: int, last: list[int]
) -> None:
    facts = on(name, version=version, max_num_seqs=sequences).budget.facts
    assert facts is not None
    assert capture_sizes(facts)[-3:] == last
    # from 0.31 on a step of all sequences has a graph of its own, on a stride of 16 or not
    assert (sequences in capture_sizes(facts)) == (
        sequences % 16 == 0 and sequences <= last[-1]
    ) or version >= "0.31"


@each(
    ("sequences", "largest", "rows"),
    [(1024, None, 512), (256, None, 256), (1024, 1024, 1024), (1024, 100, 96), (3, None, 2)],
)
def test_flashattention_3_has_splits_for_the_largest_decode_step(
    sequences: int, largest: int | None, rows: int
) -> None:
    """64 heads of 128 and 32 splits in fp32: 1 MiB per row, and 4 MiB; a first capture takes 130
    MiB at least.
    """
    given: dict[str, Any] = {
        "max_num_seqs": sequences,
        "max_cudagraph_capture_size": largest,
        "max_num_batched_tokens": 2048,
    }
    found = on("h100-80gb", model="qwen3-32b", version="0.20.0", **given)
    assert found.budget.facts
    sizes = capture_sizes(found.budget.facts)
    decodes = [size for size in sizes if size <= sequences]
    graph = (2 * MIB + 64 * (MIB * 34 // 100)) // 3
    first = parts(found)["cuda_graphs"].expected - (2 * (len(sizes) - 1) + len(decodes) - 1) * graph
    assert first == max(rows + 4, 130) * MIB


def test_the_second_runner_counts_tokens_of_prompts_and_outputs() -> None:
    states = parts(on("h100-80gb", version="0.27.1"))["sampler_states"]
    assert states.expected == 1024 * 151_936 * 33 // 8  # 4 bytes and a bit
    assert "sampler_states" not in parts(on("h100-80gb", version="0.26.0"))


def test_the_experts_workspace_lives_on_from_0_14() -> None:
    options: dict[str, Any] = {"model": "mixtral-8x7b", "tp": 2, "gpus": 2}
    workspace = parts(on("h100-80gb", version="0.14.0", **options))["experts"]
    assert workspace.expected == 8192 * 2 * (7168 + 2 * 7168) * 2  # two experts of 14,336 / 2
    before = on("h100-80gb", version="0.13.0", **options)
    assert "experts" not in parts(before)


def test_data_parallel_ranks_gather_their_tokens_for_the_experts() -> None:
    def found(version: str, dp: int) -> dict[str, RuntimePart]:
        divided: dict[str, Any] = {"dp": dp, "gpus": dp, "enable_expert_parallel": dp > 1}
        return parts(on("h100-80gb", "qwen3-30b-a3b", version=version, **divided))

    alone, ranks = found("0.27.0", 1)["experts"], found("0.27.0", 8)["experts"]
    assert (ranks.expected, ranks.low) == (8 * alone.expected, 8 * alone.expected * 9 // 10)
    # 0.7 GiB for each communicator: of the world, the ranks and the experts, and up to 0.10 another
    # to broadcast
    outside = [
        int(found(version, 8)["outside_torch"].expected) / GIB for version in ("0.10.1", "0.27.0")
    ]
    assert [round(size, 2) for size in outside] == [2.78, 2.08]


def test_starts_that_were_refused_for_their_drafts_and_ranks_are_in_range() -> None:
    """vllm-project/recipes#831: 939 and 556 blocks of Qwen3.8-27B with 3 drafts; #12: 8 ranks of
    Qwen3-Coder-480B.
    """
    drafts: dict[str, Any] = {
        "model": "qwen3.6-27b",
        "speculative_tokens": 3,
        "speculative_layers": 1,
    }
    for weights_dtype, share, blocks in (("fp8", "0.92", 939), (None, "0.95", 556)):
        options: dict[str, Any] = {"gpu_memory_utilization": share, "weights_dtype": weights_dtype}
        found = on("rtx-pro-6000", version="0.27.0", **options, **drafts)
        # a block has 800 tokens of 4,096 B in 16 layers and in the drafter's
        assert abs(found.budget.room() / (800 * 4096 * 17) / blocks - 1) < 0.02
    for share, kv_memory in (("0.9", 48.66), ("0.95", 55.65)):
        options = {
            "gpu_memory_utilization": share,
            "weights_dtype": "fp8",
            "dp": 8,
            "enable_expert_parallel": True,
        }
        budget = on(
            "h200", "qwen3-coder-480b", version="0.10.1", context=262144, gpus=8, **options
        ).budget
        assert budget.kv_memory_low < kv_memory * GIB < budget.kv_memory_high
        assert abs(budget.room() / GIB - kv_memory) < 1.1


def test_gpt_oss_experts_have_no_workspace_on_hopper() -> None:
    assert "experts" not in parts(on("h100-80gb", model="gpt-oss-20b"))
    assert "experts" in parts(on("a100-80gb", model="gpt-oss-20b"))


def test_a_later_stage_receives_hidden_states_and_a_residual() -> None:
    result = on("h100-80gb", model="llama2-70b", gpus=4, tp=2, pp=2, context=4096)
    received = parts(result).get("received")
    assert received is not None  # the last stage is the tightest: it has the logits
    assert received.expected == 2 * 8192 * 8192 * 2


def test_links_decide_what_tensor_parallelism_takes() -> None:
    nvlink = parts(on("h100-80gb", tp=2, gpus=2))["outside_torch"]
    pcie = parts(on("l40s", tp=2, gpus=2))["outside_torch"]
    assert abs(nvlink.expected / GIB - 2.07) < 0.01
    assert abs(pcie.expected / GIB - 0.23) < 0.01


def test_links_took_less_before_symmetric_memory() -> None:
    def link(tp: int, version: str) -> float:
        part = parts(on("h200", "llama3-70b", gpus=tp, tp=tp, version=version))["outside_torch"]
        assert part.low < part.expected < part.high
        return round(int(part.expected) / GIB, 2)

    assert [link(tp, "0.11.2") for tp in (2, 4)] == [0.74, 1.39]
    assert [link(tp, "0.15.0") for tp in (2, 4)] == [2.1, 2.21]
    assert [link(8, version) for version in ("0.10.1", "0.10.2")] == [2.25, 1.39]


def test_kernels_that_tune_themselves_raise_the_high_end_alone() -> None:
    model = str(Path(__file__).parent / "data" / "startups" / "models" / "qwen3.5-27b.json")

    def activations(version: str) -> RuntimePart:
        return parts(on("h100-80gb", model, version=version, max_num_seqs=8))["activations"]

    old, new = activations("0.17.1"), activations("0.19.0")
    assert (new.expected, new.low) == (old.expected, old.low)
    assert abs(new.high - old.high - GIB) < MIB


def test_the_range_is_wider_beyond_the_gpus_that_were_measured() -> None:
    def above(tp: int) -> int:
        part = parts(on("h200", "llama3-70b", gpus=tp, tp=tp))["outside_torch"]
        return part.high - int(part.expected)

    assert above(8) > above(4)


def test_products_of_mla_may_leave_gaps_in_old_versions() -> None:
    def above(version: str) -> int:
        part = parts(on("h200", "deepseek-v3", version=version, gpus=8, tp=8))["outside_torch"]
        return part.high - int(part.expected)

    # as many bytes as the products have: in fp8, 61 layers x 16 heads x 512 x (1,536 + 7,168)
    gaps = 61 * 16 * 512 * (1536 + 7168)
    assert abs(above("0.7.3") - above("0.8.5") - gaps) < GIB // 500


def test_v0_takes_whole_prompts_in_one_step() -> None:
    def tokens(context: int, model: str = "llama3.1-405b") -> int:
        facts = on("h200", model=model, version="v0", context=context, tp=8, gpus=8).budget.facts
        assert facts is not None
        return facts.limits.max_num_batched_tokens

    assert [tokens(n) for n in (1000, 20_000, 32_768, 32_769)] == [2048, 20_000, 32_768, 2048]
    assert tokens(100_000, "deepseek-v3") == 100_000


# Verdicts


@given(st.integers(10 * GIB, 40 * GIB), st.integers(1, 40_960))
def test_the_verdict_follows_from_the_range(memory: int, context: int) -> None:
    device = dataclasses.replace(gpu("rtx-4090"), memory=memory)
    result = fit(FitRequest(load("qwen3-8b"), Workload.decode(1, context), gpu=device))
    budget, needed = result.budget, int(result.needed)
    assert budget.kv_memory_low <= budget.kv_memory <= budget.kv_memory_high
    fits = (budget.room("low") >= needed, budget.room("high") >= needed)
    assert (
        result.verdict
        == {(True, True): "fits", (False, True): "may_not_fit", (False, False): "does_not_fit"}[
            fits
        ]
    )
    assert result.fits == fits[1]


@pytest.mark.parametrize(
    ("context", "verdict", "words", "code"),
    [
        ("2000", "fits", "FITS: ", 0),
        ("37000", "may_not_fit", "MAY NOT FIT: ", 0),
        ("40960 --batch 2", "does_not_fit", "DOES NOT FIT: ", 1),
    ],
)
def test_each_verdict_has_its_words_and_exit_code(
    ask: Ask, context: str, verdict: str, words: str, code: int
) -> None:
    command = (
        "fit",
        "qwen3-8b",
        "--gpu",
        "rtx-4090",
        "--engine",
        "vllm",
        "--engine-version",
        "0.19.0",
        "--context",
        *context.split(),
    )
    answer = ask(*command, "--json")
    document = answer.document
    assert (answer.code, document["verdict"], document["fits"]) == (code, verdict, code == 0)
    assert document["summary"].startswith(words)
    assert any(note.startswith("warning: ") for note in document["notes"]) is (
        verdict == "may_not_fit"
    )
    figures = results(answer)
    assert figures["kv_memory_low"] < figures["kv_memory"] < figures["kv_memory_high"]
    assert {"activations", "outside_torch"} <= {part["name"] for part in document["runtime"]}
    screen = ask(*command, "--full")
    assert screen.out.startswith(words)
    assert re.search(r"= KV memory +\d\.\d\d GiB +\d\.\d\d to \d\.\d\d GiB", screen.out)


def test_a_reserve_that_is_given_has_no_range(ask: Ask) -> None:
    answer = ask(
        "fit", "qwen3-8b", "--gpu", "rtx-4090", "--engine", "vllm", "--reserve", "2GiB", "--json"
    )
    figures = results(answer)
    assert figures["kv_memory_low"] == figures["kv_memory"] == figures["kv_memory_high"]
    assert answer.document["runtime"] == []


def test_suggestions_fit_even_with_the_least_memory(ask: Ask) -> None:
    command = (
        "fit",
        "qwen3-8b",
        "--gpu",
        "rtx-4090",
        "--engine",
        "vllm",
        "--engine-version",
        "0.11.0",
    )
    context = ("--context", "37000")
    changes = ask(*command, *context, "--json").document["suggestions"]
    flags = [change["flag"].split() for change in changes]
    assert ["--max-num-seqs", "32", "--max-num-batched-tokens", "2048"] in flags
    for flag in flags:
        assert (
            ask(*command, *(() if "--context" in flag else context), *flag, "--json").document[
                "verdict"
            ]
            == "fits"
        )


# What vLLM refuses, and the longest context


def test_vllm_refuses_a_context_beyond_the_models_maximum(ask: Ask) -> None:
    command = ("fit", "qwen3-8b", "--gpu", "h100", "--context", "40961")
    answer = ask(*command)
    assert answer.code == 1
    assert "DOES NOT START: context 40,961 is beyond the model's maximum of 40,960." in answer.out
    assert "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1" in answer.out
    document = ask(*command, "--json").document
    assert (document["verdict"], document["fits"]) == ("does_not_fit", False)
    assert [change["flag"] for change in document["suggestions"]] == ["--context 40960"]
    assert ask(*command, "--allow-long-max-model-len").code == 0
    assert ask("fit", "qwen3-8b", "--gpu", "h100", "--context", "40960").code == 0


def test_sglang_refuses_a_context_beyond_the_models_maximum(ask: Ask) -> None:
    # ValueError in _derive_context_length of SGLang 0.5.23 (srt/configs/model_config.py)
    command = ("fit", "qwen3-8b", "--gpu", "h100", "--engine", "sglang", "--context", "40961")
    answer = ask(*command)
    assert answer.code == 1
    assert "DOES NOT START: context 40,961 is beyond the model's maximum of 40,960." in answer.out
    variable = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"
    assert variable in answer.out
    launch = ask(*command, "--allow-long-max-model-len", "--json").document["launch_command"]
    assert launch.startswith(f"{variable} python -m sglang.launch_server")
    assert ask("fit", "--gpu", "h100", "--json", "--", *launch.split()).code == 0
    assert ask(*command, "--engine-version", "0.4.10").code == 0  # it only warned


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_tp_that_cuts_fp8_blocks_is_refused(ask: Ask, tmp_path: Path, engine: str) -> None:
    # 1,536 / 8 = 192 is no multiple of 128 (vllm-project/vllm issue 17569); 1,536 / 4 = 384 is
    config = json.loads(
        (Path(__file__).parent / "data/engine-logs/models/qwen3-235b-a22b.json").read_text()
    )
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    command = ("fit", str(path), "--engine", engine, "--gpu", "8xh100")
    answer = ask(*command, "--tp", "8")
    assert answer.code == 1
    assert "DOES NOT START: --tp 8 leaves 192 of 1,536 outputs of experts" in answer.out
    assert "Use --tp 4, or --enable-expert-parallel." in answer.out
    assert ask(*command, "--tp", "8", "--enable-expert-parallel").code == 0
    assert ask("fit", str(path), "--engine", engine, "--gpu", "4xh200", "--tp", "4").code == 0
    # the release by its name, without its config; FP8 that vLLM makes of the weights in 16 bits has
    # no blocks
    fp8 = (
        "fit",
        "qwen3-235b-a22b",
        "--weights-dtype",
        "fp8",
        "--engine",
        engine,
        "--gpu",
        "8xh100",
        "--tp",
        "8",
    )
    assert ask(*fp8, "--served-model", "Qwen/Qwen3-235B-A22B-FP8").out.startswith(
        "DOES NOT START: --tp 8 leaves 192"
    )
    assert ask(*fp8).code == 0


def test_vllm_refuses_tp_that_does_not_divide_the_padded_vocabulary() -> None:
    # 151,936 is 2,374 times 64, and not a multiple of 5: "151936 is not divisible by 5" in the log
    # of Qwen3-14B
    qwen = dataclasses.replace(load("qwen3-8b"), stacks=load("gpt3").stacks)  # 96 heads
    args = resolve(FitRequest(qwen, Workload.decode(1, 100), kv_memory=GIB)).args
    assert isinstance(args, VllmArgs)
    refused = VLLM.refusal(qwen, dataclasses.replace(args, tp=5))
    assert refused is not None
    assert refused.reason == "--tp 5 does not divide the padded vocabulary of 151,936"
    assert refused.tip == "Use a --tp that does: 1, 2, 4."
    assert VLLM.refusal(qwen, dataclasses.replace(args, tp=2)) is None


@pytest.mark.parametrize("text", ["auto", "-1"])
def test_an_automatic_context_is_the_longest_that_fits(ask: Ask, text: str) -> None:
    command = ("fit", "qwen3-8b", "--gpu", "rtx-4090", "--engine", "vllm", "--context")
    document = ask(*command, text, "--json").document
    assert document["verdict"] == "fits"
    longest = document["workload"]["context"]
    assert ask(*command, str(longest + 16), "--json").document["verdict"] == "may_not_fit"
    enough = ask("fit", "qwen3-8b", "--gpu", "h100", "--context", text, "--json").document
    assert enough["workload"]["context"] == 40_960  # the model's maximum


@pytest.mark.parametrize(
    ("version", "whole"), [("0.13.0", 1), ("0.15.0", 2), ("0.16.0", 2), ("0.17.0", 1)]
)
def test_some_versions_check_all_layers_against_one_stage(version: str, whole: int) -> None:
    """vllm-project/vllm issue 34076: 24.0 GiB are needed of a stage that has half of the layers,
    12.0 GiB.
    """
    request = FitRequest(
        load("llama3-70b"),
        Workload.decode(1, 8192),
        gpu=gpu("h100-80gb"),
        gpus=4,
        tp=2,
        pp=2,
        engine_args={"engine_version": version},
    )
    # 40 of 80 layers with 4 of 8 KV heads: 8,192 tokens and a block of 16, each 40 x 2 x 4 x 128 x
    # 2 B
    assert fit(request).needed == whole * (8192 + 16) * 40 * 2048
    little = dataclasses.replace(request, gpu=None, gpus=None, kv_memory=GIB)
    assert fit(little).fits  # a memory that was given is one device's


def test_a_share_above_the_default_is_a_warning() -> None:
    def warnings(share: str) -> list[str]:
        reserve = on("h100-80gb", gpu_memory_utilization=share).budget.reserve
        assert reserve is not None
        return [note for note in reserve.runtime.notes if note.startswith("warning: ")]

    assert warnings("0.92") == []
    assert len(warnings("0.95")) == 1
    assert "3.95 GiB are left outside vLLM's share" in warnings("0.95")[0]  # 0.05 x 79.1


def test_sparse_mla_gathers_five_contexts() -> None:
    v32 = load("deepseek-v3")

    def with_indexer(group: Layers) -> Layers:
        assert isinstance(group.attention, Latent)
        sparse = dataclasses.replace(
            group.attention, index_topk=2048, index_n_heads=64, index_head_dim=128
        )
        return dataclasses.replace(group, attention=sparse)

    stack = dataclasses.replace(v32.main, layers=tuple(map(with_indexer, v32.main.layers)))
    request = FitRequest(
        dataclasses.replace(v32, stacks=(stack,)),
        Workload.decode(1, 163_840),
        gpu=gpu("h200"),
        gpus=8,
        engine_args={"engine_version": "0.19.0", "max_num_batched_tokens": 2048},
    )
    # 5 x 163,840 latents of 576 elements, "825 MB" in vLLM's comment for the indexer's part of it
    assert parts(fit(request))["gathered_latents"].expected == 5 * 163_840 * 576 * 2


def test_ranges_on_hopper_are_as_wide_as_its_logs() -> None:
    """53 logs have at most 0.71 GiB more of graphs, and 33 at most 0.2 GiB more outside PyTorch and
    0.07 of the sampler's. Gated delta nets keep four fifths more of graphs (vLLM's issue 50780).
    """

    def above(name: str, part: str, model: str = "gpt-oss-120b") -> float:
        found = parts(on(name, model, version="0.33.0"))[part]
        return found.high - int(found.expected)

    assert above("h100-80gb", "cuda_graphs") == 3 * GIB // 4
    estimate = int(parts(on("h100-80gb", "qwen3.6-27b", version="0.33.0"))["cuda_graphs"].expected)
    assert above("h100-80gb", "cuda_graphs", "qwen3.6-27b") == max(3 * GIB // 10, estimate * 4 // 5)
    assert above("h100-80gb", "outside_torch") == 220 * (GIB // 1000)
    assert above("l40s", "outside_torch") == 350 * (GIB // 1000)
    assert above("h100-80gb", "activations") == pytest.approx(0.15 * GIB, rel=0.01)
