"""How whole experts get the tokens of data-parallel ranks in vLLM, and its memory:
--all2all-backend.
"""

from pathlib import Path
from typing import Any

import pytest
from asking import Ask, results
from test_runtime import on, parts

from attncalc.engines.deepep import low_latency_bytes
from attncalc.logs.vllm import read_log
from attncalc.serving.launch import launch_command
from attncalc.units import GIB

MIB = 2**20
LOW_LATENCY = "deepep_low_latency"
GATHERED = "allgather_reducescatter"
DEEPEP = "deepep_high_throughput"
SPLIT = ("--dp", "16", "--enable-expert-parallel")
FIT = ("fit", "deepseek-v3", "--gpu", "16xh200", *SPLIT, "-c", "8192")
PASTED = "vllm serve deepseek-ai/DeepSeek-V3 --data-parallel-size 16 --enable-expert-parallel"


def ranks(model: str = "deepseek-v3", dp: int = 16, **options: Any) -> Any:
    """Return what fits with so many ranks of one H200 each, as whole experts."""
    given = {"gpus": dp, "dp": dp, "enable_expert_parallel": True, "version": "0.33.0", **options}
    return on("h200", model, **given)


@pytest.mark.parametrize(
    ("tokens", "gib"), [(2048, 35.55), (1856, 32.21), (1840, 31.94), (1536, 26.66)]
)
def test_low_latency_buffers_are_as_deepep_asks_for(tokens: int, gib: float) -> None:
    """vllm-project/vllm#57894: num_rdma_bytes of DeepSeek-V4.1-Flash on 16 ranks, hidden 5120, 384
    experts and 64 copies.
    """
    assert round(int(low_latency_bytes(448, tokens, 5120)) / GIB, 2) == gib


@pytest.mark.parametrize(
    ("model", "gathered", "balanced"), [("glm-4.6", 20.0, 1.3), ("glm-5", 24.0, 1.6)]
)
def test_workspaces_are_as_vllms_developers_estimate(
    model: str, gathered: float, balanced: float
) -> None:
    """vllm-project/vllm#57270: workspaces of DeepGEMM per rank of 16 with 8,192 tokens, at worst
    and balanced.
    """

    def workspace(**options: Any) -> float:
        found = ranks(model, version="0.30.0", weights_dtype="fp8", **options)
        return int(parts(found)["experts"].expected) / GIB

    assert workspace(all2all_backend=GATHERED) == pytest.approx(gathered, abs=0.05)
    assert workspace(all2all_backend=DEEPEP, use_deep_gemm=True) == pytest.approx(
        balanced, abs=0.06
    )


def test_deepep_sends_a_token_once_to_each_gpu_with_one_of_its_experts() -> None:
    """Of 16 GPUs a token with 8 experts reaches 16 (1 - (15/16)^8) = 6.45: the default kernel has 8
    rows for each, 16 bits for 7,168 values of both products.
    """
    found = int(parts(ranks(all2all_backend=DEEPEP))["experts"].expected)
    received = 8192 * 16 * (1 - (15 / 16) ** 8)
    assert found == pytest.approx(received * 8 * (7168 + 7168) * 2, rel=0.0001)


@pytest.mark.parametrize(
    ("version", "rows"),
    [
        # DeepGEMM's: 65,536 pairs, and 127 for each of 16 experts
        ("0.11.2", 8192 * 8 + 127 * 16),
        # a chunk of 16,384 tokens, whatever a GPU receives
        ("0.17.1", 16384 * 8),
    ],
)
def test_versions_have_other_rows_behind_deepep(version: str, rows: int) -> None:
    found = ranks(version=version, all2all_backend=DEEPEP)
    terms = {name: int(size) for name, _, size in found.budget.reserve.runtime.terms}
    assert terms["experts_bytes"] == rows * (max(7168, 2048) + 7168) * 2 or version < "0.14"
    if version < "0.14":  # both products share a buffer
        assert terms["experts_bytes"] == rows * (2048 + 7168) * 2


def test_deep_gemm_has_its_inputs_in_fp8_from_0_31() -> None:
    def workspace(version: str) -> int:
        asked = ranks(version=version, all2all_backend=DEEPEP, use_deep_gemm=True)
        return int(parts(asked)["experts"].expected)

    assert workspace("0.31.0") * 4 == workspace("0.30.0") * 3


@pytest.mark.parametrize(
    ("dp", "options", "size"),
    [
        (8, {}, 1024),  # NVLink in one node
        (16, {}, 2048),  # and RDMA between two
        (16, {"deepep_buffer_size_mb": 256}, 512),
    ],
)
def test_deepep_has_a_buffer_for_each_kind_of_link(
    dp: int, options: dict[str, Any], size: int
) -> None:
    found = parts(ranks(dp=dp, all2all_backend=DEEPEP, **options))["exchange"]
    assert int(found.expected) == size * MIB


def test_each_expert_has_a_place_for_the_tokens_of_every_rank() -> None:
    """16 experts x 16 ranks x 256 tokens: both products in 16 bits, and the tokens in FP8."""
    found = parts(ranks(all2all_backend=LOW_LATENCY))
    assert int(found["experts"].expected) == 16 * 16 * 256 * ((7168 + 2048) * 2 + 7168)
    # 4 x 256 experts x 256 tokens x (16 bits of 7,168, and 4 bytes per 128): 3.55 GiB, in steps of
    # 0.5, and 1 GiB for NVLink
    assert int(found["exchange"].expected) == 5 * GIB


@pytest.mark.parametrize(
    ("version", "tokens", "batch"), [("0.19.1", 8192, 256), ("0.20.0", 256, 256)]
)
def test_a_step_has_256_tokens_from_0_20_and_a_chunk_before(
    version: str, tokens: int, batch: int
) -> None:
    found = ranks(version=version, all2all_backend=LOW_LATENCY)
    assert found.resolved.args.limits.max_num_batched_tokens == tokens
    assert int(parts(found)["experts"].expected) == 16 * 16 * batch * ((7168 + 2048) * 2 + 7168)


def test_pplx_has_results_in_fp32_and_is_gone_from_0_17() -> None:
    def exchange(version: str, dp: int) -> int:
        found = parts(ranks(version=version, dp=dp, all2all_backend="pplx"))
        return int(found["exchange"].expected) if "exchange" in found else 0

    # on one node a buffer for each of 8 GPUs: 32 experts x 256 tokens in fp32
    assert exchange("0.16.0", 8) == 8 * 32 * 256 * 4 * 7168
    # on two nodes tokens in 16 bits, and two of results: 16 experts x 16 ranks x 256 tokens
    assert exchange("0.16.0", 16) == 16 * 16 * 256 * (2 + 4 + 4) * 7168
    assert exchange("0.17.0", 16) == 0


@pytest.mark.parametrize(
    ("backend", "size"),
    [
        # places for the tokens of 16 ranks, and for their results
        ("flashinfer_nvlink_one_sided", 2 * 16 * 8192 * 2 * 7168),
        # the larger of (16 + 1 + 2) to send, and 8 * 2 + 8 + 2 * 8 for results on two nodes
        ("deepep_v2", 40 * 8192 * 2 * 7168),
    ],
)
def test_other_backends_have_places_for_all_tokens(backend: str, size: int) -> None:
    found = parts(ranks(all2all_backend=backend))
    assert int(found["exchange"].expected) == size
    gathered = parts(ranks(all2all_backend=GATHERED))["experts"]
    assert found["experts"].expected == gathered.expected


def test_ranks_of_one_node_and_parts_of_experts_gather_tokens_as_vllm_does() -> None:
    assert ranks(dp=8).resolved.args.exchange == GATHERED
    parted = on("h200", "deepseek-v3", gpus=16, dp=16, version="0.33.0", all2all_backend=DEEPEP)
    args: Any = parted.resolved.args
    assert args.exchange == GATHERED


def test_experts_on_several_nodes_have_the_backend_of_vllms_guide_and_the_screen_says_so(
    ask: Ask,
) -> None:
    screen = " ".join(ask(*FIT).out.split())
    assert "--all2all-backend deepep_high_throughput is assumed" in screen
    assert "Its default, allgather_reducescatter, gathers the tokens of all ranks" in screen
    assert "a workspace of 28.00 GiB" in screen
    assert "is assumed, as vLLM's guide" not in ask(*FIT, "--all2all-backend", GATHERED).out
    # of AMD's GPUs vLLM has no DeepEP
    others = ask("fit", "deepseek-v3", "--gpu", "16xmi300x", *SPLIT, "-c", "8192")
    assert "is assumed, as vLLM's guide" not in others.out


def test_a_pasted_command_gathers_tokens_unless_it_says_otherwise(ask: Ask) -> None:
    def pasted(command: str) -> dict[str, Any]:
        asked = ("fit", "--gpu", "16xh200", "--json", "-c", "8192", "--", *command.split())
        return results(ask(*asked))

    assert pasted(PASTED) == results(ask(*FIT, "--json", "--all2all-backend", GATHERED))
    assert pasted(f"{PASTED} --all2all-backend {DEEPEP}") == results(ask(*FIT, "--json"))
    variable = f"VLLM_ALL2ALL_BACKEND={LOW_LATENCY} {PASTED}"
    assert pasted(variable) == results(ask(*FIT, "--json", "--all2all-backend", LOW_LATENCY))


@pytest.mark.parametrize(
    ("before", "command"),
    [
        ("--dp 16", "vllm serve deepseek-ai/DeepSeek-V3 --enable-expert-parallel"),
        ("--enable-expert-parallel", "vllm serve deepseek-ai/DeepSeek-V3 -dp 16"),
    ],
)
def test_options_before_a_pasted_command_gather_tokens_as_its_own_do(
    ask: Ask, before: str, command: str
) -> None:
    asked = ("fit", "--gpu", "16xh200", "--json", "-c", "8192")
    whole = results(ask(*asked, "--", *PASTED.split()))
    assert results(ask(*asked, *before.split(), "--", *command.split())) == whole


def test_another_engine_gets_no_backend_of_a_pasted_vllm_command(ask: Ask) -> None:
    pasted = "vllm serve deepseek-ai/DeepSeek-V3 -tp 8 -dp 2 --enable-expert-parallel"
    asked = ("--gpu", "h200", "--engine", "sglang", "-c", "8192", "--json")
    options = ("--tp", "8", "--dp", "2", "--enable-expert-parallel")
    whole = results(ask("fit", "deepseek-v3", *asked, *options))
    assert results(ask("fit", *asked, "--", *pasted.split())) == whole


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.33.0", "--enable-expert-parallel --all2all-backend deepep_high_throughput"),
        ("0.11.0", "VLLM_ALL2ALL_BACKEND=deepep_high_throughput vllm serve"),
    ],
)
def test_the_printed_command_has_the_backend_that_is_assumed(version: str, words: str) -> None:
    command = launch_command(ranks(version=version).resolved) or ""
    assert words in command
    assert "all2all" not in (launch_command(ranks(version=version, dp=8).resolved) or "").lower()


def test_the_range_of_deepseek_v3_2_on_eight_ranks_decides(ask: Ask) -> None:
    """From 0.18 on the workspace has no limit: 8 x 8,192 tokens with 8 experts, 28,672 bytes each,
    are 14 GiB, which leave less than a request of 163,840 tokens needs.
    """
    asked = ("fit", "deepseek-v3.2", "--gpu", "8xh200", "--dp", "8", "--enable-expert-parallel")
    answer = ask(*asked, "--json")
    assert (answer.code, answer.document["verdict"]) == (1, "does_not_fit")
    screen = " ".join(ask(*asked).out.split())
    assert "--max-num-batched-tokens 2048 narrows the range most" in screen
    assert ask(*asked, "--max-num-batched-tokens", "2048", "--max-num-seqs", "128").code == 0


def test_an_unknown_kernel_of_the_experts_is_named_with_the_option_that_settles_it(
    ask: Ask,
) -> None:
    def width(*options: str) -> int:
        found = ask(*FIT, *options, "--json").document["runtime"]
        experts = next(part for part in found if part["name"] == "experts")
        return int(experts["high"] - experts["low"])

    assert "--use-deep-gemm (VLLM_USE_DEEP_GEMM=1) settles most of the range" in " ".join(
        ask(*FIT, "--full").out.split()
    )
    assert width("--use-deep-gemm") < width() / 8


@pytest.mark.parametrize(
    ("manager", "version", "backend"),
    [
        ("FlashInferAllToAllManager", "0.16.0", "flashinfer_all2allv"),
        ("MoriAll2AllManager", "0.16.0", "mori"),
        ("MoriAll2AllManager", "0.33.0", "mori_high_throughput"),
    ],
)
def test_a_log_has_a_backend_that_its_version_has(
    ask: Ask, tmp_path: Path, manager: str, version: str, backend: str
) -> None:
    """vLLM is not said to refuse what it runs."""
    file = tmp_path / "vllm.log"
    file.write_text(
        f"INFO [core.py:114] Initializing a V1 LLM engine (v{version}) with config: "
        "model='deepseek-ai/DeepSeek-V3', max_seq_len=8192, data_parallel_size=16\n"
        "INFO [utils.py:233] non-default args: {'data_parallel_size': 16, "
        "'enable_expert_parallel': True}\n"
        f"INFO [cuda_communicator.py:281] Using {manager} all2all manager.\n"
        "INFO [gpu_worker.py:508] Available KV cache memory: 40.00 GiB\n"
        "INFO [kv_cache_utils.py:1] GPU KV cache size: 611,136 tokens\n"
    )
    log = read_log(file.read_text().splitlines())
    assert log
    assert log.settings["all2all_backend"] == backend
    assert "does not start" not in ask("fit", "--gpu", "h200", "--log", str(file), "--full").out


@pytest.mark.parametrize(
    ("line", "backend"),
    [
        ("Using DeepEPHTAll2AllManager all2all manager.", DEEPEP),
        ("Using DeepEP Low-Latency all2all manager.", LOW_LATENCY),
        ("Using AgRsAll2AllManager all2all manager.", GATHERED),
        ("", GATHERED),
    ],
)
def test_a_log_names_the_manager_of_the_exchange(line: str, backend: str) -> None:
    log = read_log(
        [
            "INFO [api_server.py:1] vLLM API server version 0.33.0",
            "INFO [utils.py:233] non-default args: {'model': 'a/b', 'data_parallel_size': 16, "
            "'enable_expert_parallel': True, 'enable_eplb': True, "
            "'eplb_config': EPLBConfig(window_size=1000, num_redundant_experts=32)}",
            f"INFO [cuda_communicator.py:281] {line}",
            "INFO [kv_cache_utils.py:1] GPU KV cache size: 157,200 tokens",
        ]
    )
    assert log
    assert log.settings["all2all_backend"] == backend
    assert log.settings["num_redundant_experts"] == "32"
    assert "enable_eplb" in log.flags


def test_deepep_of_sglang_has_buffers_for_both_kernels() -> None:
    """Of 8 GPUs: 10 channels x 8 x 256 tokens of 2 x 7,168 bytes and 2,056 beside them, and 4 x 256
    experts x 128 tokens of 14,560 bytes.
    """
    normal = 10 * 8 * 256 * (2 * 7168 + 2056)
    low_latency = 4 * 256 * 128 * 14560

    def buffers(**options: Any) -> int:
        args = {"moe_a2a_backend": "deepep", "version": "0.5.23", **options}
        found = on("h200", "deepseek-v3", engine="sglang", gpus=8, tp=8, **args)
        assert found.budget.reserve is not None
        outside = {part.name: part for part in found.budget.reserve.runtime.outside}
        return int(outside["exchange"].expected)

    assert buffers() == normal + low_latency
    assert buffers(deepep_mode="normal") == normal
    assert buffers(deepep_mode="low_latency") == low_latency


@pytest.mark.parametrize(
    ("version", "backend", "code"),
    [("0.23.0", "deepep_v2", 1), ("0.24.0", "deepep_v2", 0), ("0.24.0", "mori", 1)],
)
def test_a_backend_that_a_version_lacks_is_refused(
    ask: Ask, version: str, backend: str, code: int
) -> None:
    answer = ask(*FIT, "--engine-version", version, "--all2all-backend", backend)
    assert answer.code == code
    refused = f"vLLM {version} has no --all2all-backend {backend}"
    assert (refused in " ".join(answer.out.split())) == (code == 1)
