"""Options of vLLM that change its memory: weights on the host, CUDA graphs, the class LLM."""

from typing import Any

import pytest
from asking import Ask

from attncalc import AttncalcError, Workload, load
from attncalc.config.gpus import gpu
from attncalc.engines.vllm.runtime import capture_sizes
from attncalc.serving.fit import FitResult, fit
from attncalc.serving.launch import launch_command
from attncalc.serving.request import FitRequest
from attncalc.units import GIB

MIB = 2**20


def on(name: str, model: str = "llama3-8b", tp: int = 1, **args: Any) -> FitResult:
    request = FitRequest(
        load(model), Workload.decode(1, 4096), gpu=gpu(name), gpus=tp, tp=tp, engine_args=args
    )
    return fit(request)


def weights(name: str, **options: Any) -> int:
    found = on(name, **options).budget.weights
    assert found is not None
    return int(found.total)


# Weights on the host


def test_weights_on_the_host_leave_each_gpu() -> None:
    for tp in (1, 2):
        assert weights("l4", tp=tp) - weights("l4", tp=tp, cpu_offload_gb=3 * GIB) == 3 * GIB


def test_only_layers_are_moved_to_the_host() -> None:
    """Llama 3 8B: 32 layers of 4,096 x (4,096 + 2 x 1,024 + 4,096 + 3 x 14,336) in bf16; embedding
    and head stay.

    32 x 4,096 x 53,248 x 2 = 13,958,643,712 B are 13 GiB of 14.96.
    """
    layers = 32 * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336) * 2
    assert weights("l4") - weights("l4", cpu_offload_gb=20 * GIB) == layers


def test_experts_in_mxfp4_are_moved_too() -> None:
    """24 layers of 32 experts with 3 x 2,880 x 2,880 weights of 17 / 32 bytes: 9.5 GiB can leave
    the GPU.
    """
    without = weights("a10g", model="gpt-oss-20b")
    assert without - weights("a10g", model="gpt-oss-20b", cpu_offload_gb=9 * GIB) == 9 * GIB


def test_the_screen_has_weights_on_the_host(ask: Ask) -> None:
    screen = ask(
        "fit", "llama3-8b", "--gpu", "l4", "--cpu-offload-gb", "4", "-c", "4096", "--full"
    ).out
    assert "moved to the host" in screen
    assert "-4.00 GiB" in screen
    assert "over PCIe" in " ".join(screen.split())
    assert "--cpu-offload-gb 4" in screen
    without = ask("fit", "llama3-8b", "--gpu", "l4", "--cpu-offload-gb", "0", "--json").document
    assert without["fits"] is not None


def test_a_log_with_weights_on_the_host_is_compared_without_them(ask: Ask) -> None:
    """14.96 GiB of weights, of which 10 are on the host, are logged as 4.96."""
    log = (
        "non-default args: {'model': 'meta-llama/Meta-Llama-3-8B', 'max_model_len': 4096, "
        "'cpu_offload_gb': 10.0}\n"
        "INFO Initializing a V1 LLM engine (v0.20.0) with config: "
        "model='meta-llama/Meta-Llama-3-8B'\n"
        "INFO Model loading took 4.96 GiB memory and 9.1 seconds\n"
        "INFO Available KV cache memory: 12.00 GiB\n"
        "INFO GPU KV cache size: 98,304 tokens\n"
    )
    answer = ask("fit", "llama3-8b", "--log", "-", "--json", stdin=log).document
    (estimate,) = (estimate for estimate in answer["estimates"] if estimate["name"] == "weights")
    assert estimate["low"] <= 4.96 * GIB <= estimate["high"]


# CUDA graphs


def test_the_largest_graph_limits_the_batches_that_are_captured() -> None:
    """Up to 32 there are 1, 2, 4, 8, 16, 24 and 32; 44 fewer of both kinds than up to 512.

    Each of 2 x 44 + 44 further graphs of 32 layers takes (2 MiB + 32 x 0.34 MiB) / 3. The first one
    takes 50 MiB.
    """
    few, many = (
        on("a100-80gb", engine_version="0.20.0", max_num_seqs=1024, max_cudagraph_capture_size=32),
        on("a100-80gb", engine_version="0.20.0", max_num_seqs=1024),
    )
    assert few.budget.facts
    assert capture_sizes(few.budget.facts) == [1, 2, 4, 8, 16, 24, 32]
    graph = (2 * MIB + 32 * (MIB * 34 // 100)) // 3
    assert graphs(many) - graphs(few) == 3 * 44 * graph
    wide = on("h100-80gb", max_cudagraph_capture_size=1024).budget.facts
    assert wide
    assert capture_sizes(wide)[-3:] == [992, 1008, 1024]


def graphs(result: FitResult) -> int:
    assert result.budget.reserve
    (part,) = (part for part in result.budget.reserve.runtime.parts if part.name == "cuda_graphs")
    return int(part.expected)


# Adapters


def test_adapters_have_a_pair_for_each_matrix() -> None:
    """Qwen3 8B: d_model 4,096, q and o 4,096, k and v 1,024, MLP 12,288, 36 layers, vocabulary
    151,936.

    A layer has 2 x (4,096 + 4,096) + 2 x (4,096 + 1,024) + 3 x (4,096 + 12,288) inputs and outputs,
    75,776. Embedding and head have 2 x (151,936 + 4,096). All have rank 16 in bf16, 97 MB per
    adapter.
    """
    layers, tables = 36 * 75776, 2 * (151936 + 4096)
    without = weights("h100-80gb", model="qwen3-8b")
    one = weights("h100-80gb", model="qwen3-8b", enable_lora=True)
    assert one - without == 16 * (layers + tables) * 2
    four = weights("h100-80gb", model="qwen3-8b", enable_lora=True, max_loras=4, max_lora_rank=64)
    assert four - without == 4 * 64 * (layers + tables) * 2
    assert weights("h100-80gb", model="qwen3-8b", max_loras=4, max_lora_rank=64) == without


def test_tensor_parallelism_divides_one_side_of_each_pair() -> None:
    """On 2 devices the outputs of q, k, v, gate and up are halved, and the inputs of o and down;
    tables are whole.
    """
    halves = 2 * (4096 + 2048) + 2 * (4096 + 512) + 3 * (4096 + 6144)
    added = weights("h100-80gb", model="qwen3-8b", tp=2, enable_lora=True) - weights(
        "h100-80gb", model="qwen3-8b", tp=2
    )
    assert added == 16 * (36 * halves + 2 * (151936 + 4096)) * 2


def test_each_expert_has_its_pairs() -> None:
    """Mixtral 8x7B: 32 layers with 8 experts of 3 x (4,096 + 14,336), a router of 4,096 + 8,
    attention as Llama's.
    """
    layer = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 8 * 3 * (4096 + 14336) + 4096 + 8
    added = weights("h200", model="mixtral-8x7b", enable_lora=True) - weights(
        "h200", model="mixtral-8x7b"
    )
    assert added == 16 * (32 * layer + 2 * (32000 + 4096)) * 2


def test_graphs_are_captured_with_adapters_and_without() -> None:
    """51 and 51 sizes are twice as many: 2 x 51 + 51 more graphs of (2 MiB + 32 x 0.34 MiB) / 3."""
    with_adapters = on("h100-80gb", engine_version="0.20.0", enable_lora=True)
    graph = (2 * MIB + 32 * (MIB * 34 // 100)) // 3
    assert (
        graphs(with_adapters) - graphs(on("h100-80gb", engine_version="0.20.0")) == 3 * 51 * graph
    )


# The class LLM


@pytest.mark.parametrize(
    ("name", "server", "offline"),
    [
        ("h100-80gb", 8192, 16384),
        ("l4", 2048, 8192),
        ("a100-80gb", 2048, 8192),  # its name is among those with small defaults
        ("b200", 16384, 16384),
    ],
)
def test_the_class_llm_has_larger_steps(name: str, server: int, offline: int) -> None:
    for tokens, args in (
        (server, {}),
        (offline, {"offline": True}),
        (4096, {"offline": True, "max_num_batched_tokens": 4096}),
    ):
        facts = on(name, **args).budget.facts
        assert facts
        assert facts.limits.max_num_batched_tokens == tokens


def test_the_class_llm_has_no_command_and_a_narrower_range() -> None:
    offline, server = on("l4", offline=True), on("l4")
    assert launch_command(offline.resolved) is None
    assert launch_command(server.resolved) is not None
    assert offline.budget.reserve
    assert server.budget.reserve
    assert offline.budget.reserve.low > server.budget.reserve.low


# What is rejected


@pytest.mark.parametrize(
    "limits",
    ["image", "[1]", '{"image": -1}', '{"image": true}', '{"image": {"width": 9}}', '{"a": 1e9}'],
)
def test_limits_are_counts(ask: Ask, limits: str) -> None:
    error = ask("fit", "llama3-8b", "--gpu", "l4", "--limit-mm-per-prompt", limits).error
    assert error.startswith("error: --limit-mm-per-prompt: ")
    assert "tip: give the counts by kind" in error


def test_python_takes_a_dictionary_of_limits() -> None:
    from attncalc import fit as answer

    assert "--limit-mm-per-prompt" in str(
        answer("qwen3-vl-8b", gpu="h100", limit_mm_per_prompt={"image": 0}).report
    )
    with pytest.raises(AttncalcError, match="is not a JSON object"):
        answer("qwen3-vl-8b", gpu="h100", limit_mm_per_prompt="image=1")


def test_a_key_of_the_drafter_that_changes_figures_is_an_option_of_its_own(ask: Ask) -> None:
    from attncalc import fit as answer

    for key in ("num_speculative_tokens", "model"):
        with pytest.raises(AttncalcError, match=f"{key} has an option of its own"):
            answer("qwen3-8b", gpu="h100", speculative_config={key: 4})
    written = ask(
        "fit", "qwen3-8b", "--gpu", "h100", "--speculative-config", '{"num_speculative_tokens": 4}'
    )
    same = ask(
        "fit", "qwen3-8b", "--gpu", "h100", "--speculative-tokens", "4", "--speculative-layers", "1"
    )
    assert written.out == same.out


def test_engram_config_leaves_the_tables_of_n_grams_in_host_memory() -> None:
    """384,006,168 and 384,016,682 rows of 256 in fp8 with 8 scales: a quarter on each of 4 GPUs."""
    from attncalc import fit as answer

    def on_gpu(**options: Any) -> int:
        return int(
            str(answer("deepseek-v4.1-flash", gpu="b200", tp=4, **options).to_dict()["weights"])
        )

    tables = (384_006_168 // 4 + -(-384_016_682 // 4)) * (256 + 8)
    on_host = on_gpu(engram_config={"cpu_offload": True})
    assert on_gpu(engram_config={"cpu_offload": False}) - on_host == pytest.approx(tables, rel=1e-3)
    assert on_gpu() == on_gpu(engram_config="{}") == on_host  # from 0.30 on
    for wrong in ('{"offload": true}', '{"cpu_offload": 1}', "true"):
        with pytest.raises(AttncalcError, match="engram_config: "):
            on_gpu(engram_config=wrong)
