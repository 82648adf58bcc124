"""Sizes of the cache that engines printed in 2026, from the memory that they printed or from the
GPU.
"""

from typing import Any

import pytest
from asking import Ask, results
from tables import each

GIB = 2**30
QWEN = "qwen3.6-27b --engine-version 0.27.1 --enable-prefix-caching"


@each(
    ("options", "tokens", "concurrency"),
    [
        # with 0.28, each of the 3 groups of states has 2 blocks: 2,823 blocks / (1,366 + 6)
        ("kimi-k3 --tp 8 --kv-memory 55.83GiB --engine-version 0.28.0", 2_157_529, 2.06),
        ("minimax-m3 --tp 8 --kv-memory 107.99GiB", 2_558_976, 2.44),
        (
            "gemma4-26b-a4b --kv-memory 54.14GiB --kv-dtype fp8 --engine-version 0.20.1 --context "
            "131072 --max-num-batched-tokens 8192",
            3_330_873,
            25.41,
        ),
        # A fork of 0.27.1 with prefix caching, which is not the default there: each of the 3 groups
        # of states has 2 blocks, 1,476 / (68 + 6). On an H200 NVL and on an RTX PRO 6000 (file
        # 62451585666 of an index of public GitHub files).
        (f"{QWEN} --kv-memory 70.64GiB --context 53248", 1_062_081, 19.95),
        (f"{QWEN} --kv-memory 70.64GiB --context 20480", None, 44.73),
        (f"{QWEN} --kv-memory 30.64GiB --context 28672", None, 14.88),
    ],
)
def test_a_printed_memory_holds_what_vllm_printed(
    ask: Ask, options: str, tokens: int | None, concurrency: float
) -> None:
    figures = results(ask("fit", *options.split(), "--engine", "vllm", "--json"))
    assert tokens in (None, figures["kv_tokens"])
    assert round(figures["concurrency"], 2) == concurrency


def test_ranks_of_deepseek_v4_flash_on_b200_hold_what_vllm_printed(ask: Ask) -> None:
    """156.9 requests of 1,048,576 tokens on 8 ranks of 0.25.0 (vllm-project/vllm issue 51454)."""
    options = (
        "--gpu 8xb200 --dp 8 --enable-expert-parallel --engine-version 0.25.0 --kv-dtype fp8 "
        "--gpu-memory-utilization 0.95 --block-size 256 --max-num-batched-tokens 8192 "
        "--max-num-seqs 256"
    )
    figures = results(ask("fit", "deepseek-v4-flash", *options.split(), "--json"))
    low, high = (figures[f"kv_tokens_{end}"] / 1_048_576 for end in ("low", "high"))
    assert low < 156.9 / 8 < high


MI300X = ("--gpu", "8xmi300x", "--engine", "vllm", "--kv-dtype", "fp8", "--engine-version")


def runtime_of(document: dict[str, Any]) -> dict[str, int]:
    """Return {part: expected bytes} of the runtime memory."""
    return {part["name"]: part["expected"] for part in document["runtime"]}


def test_an_indexers_logits_keep_deepseek_v4_pro_from_starting_on_mi300x(ask: Ask) -> None:
    """vllm-project/vllm issue 53961: 23.32 GiB are needed, 13.41 were left with steps of 16,384
    tokens, and enough with 8,192.

    The logits are 16,384 x 1,048,576 / 4 x 4 B = 16 GiB.
    """
    answer = ask("fit", "deepseek-v4-pro", *MI300X, "0.29.0", "--json")
    figures = results(answer)
    assert figures["kv_bytes_per_sequence"] / GIB == pytest.approx(23.32, abs=0.005)
    assert runtime_of(answer.document)["gathered_latents"] == 16_384 * 1_048_576
    low, high = (figures[f"kv_memory_{end}"] / GIB for end in ("low", "high"))
    assert low < 13.41 < high
    assert answer.document["verdict"] == "does_not_fit"
    steps = ("--max-num-batched-tokens", "8192")
    half = ask("fit", "deepseek-v4-pro", *MI300X, "0.29.0", *steps, "--json")
    assert half.document["verdict"] == "fits"


def test_newer_versions_reserve_an_indexers_logits_for_the_sequences_of_a_step(ask: Ask) -> None:
    """From 0.30 on, 1,024 sequences have a row each: 1 GiB, less than the experts' workspace."""

    def workspaces(version: str) -> set[str]:
        document = ask("fit", "deepseek-v4-pro", *MI300X, version, "--json").document
        return runtime_of(document).keys() & {"gathered_latents", "experts"}

    assert workspaces("0.29.0") == {"gathered_latents"}
    assert workspaces("0.30.0") == {"experts"}


@each(
    ("model", "gpu", "version", "is_warned"),
    [
        ("deepseek-v3.2", "8xmi325x", "0.31.0", True),
        ("deepseek-v4-flash", "8xmi300x", "0.31.0", True),
        ("deepseek-v3.2", "8xmi355x", "0.29.0", True),
        ("deepseek-v3.2", "8xmi355x", "0.30.0", False),
        ("minimax-m3", "8xmi325x", "0.31.0", False),  # another indexer, of blocks
        ("deepseek-v3.2", "8xh200", "0.31.0", False),
    ],
)
def test_an_indexer_on_amds_gpus_needs_aiter(
    ask: Ask, model: str, gpu: str, version: str, is_warned: bool
) -> None:
    """forward_hip of sparse_attn_indexer.py raises an error otherwise."""
    options = ("--gpu", gpu, "--engine", "vllm", "--engine-version", version)
    notes = ask("fit", model, *options, "--kv-dtype", "fp8", "--json").document["notes"]
    assert any("VLLM_ROCM_USE_AITER=1" in note for note in notes) == is_warned


def test_llama_4_maverick_runs_its_recipe_on_8_mi300x(ask: Ask) -> None:
    answer = ask("fit", "llama4-maverick", "--gpu", "8xmi300x", "--context", "1M", "--json")
    assert answer.document["verdict"] == "fits"


def test_memory_that_an_engine_reported_is_no_verdict_on_the_weights(ask: Ask) -> None:
    """61 GiB of weights leave nothing of an L4: the engine that reported 12 GiB had others."""
    options = ("qwen3-32b", "--gpu", "l4", "--engine", "vllm", "--kv-memory")
    answer = ask("fit", *options, "12GiB", "--json")
    document: dict[str, Any] = answer.document
    assert (document["verdict"], results(answer)["kv_memory"]) == ("fits", 12 * GIB)
    assert any("weights of 61.03 GiB leave no cache" in note for note in document["notes"])
    # memory that the weights do not leave is one
    beside = ask("fit", "qwen3-8b", "--gpu", "l4", "--engine", "vllm", "--kv-memory", "12GiB")
    assert beside.out.startswith("DOES NOT START: a cache of 12.00 GiB")


def test_ollamas_old_files_of_deepseek_are_a_warning_with_the_sizes_of_their_heads(
    ask: Ask,
) -> None:
    """27 layers x 16 heads x (192 + 128) x 2 B x 16,384 tokens = 4,320 MiB, as llama.cpp logs for
    deepseek-coder-v2:16b; its latents would be 486.
    """
    options = ("deepseek-coder-v2:16b", "--gpu", "rtx-4090", "--context", "16384")
    assert "8.9 times as much: --attention mha" in " ".join(ask("fit", *options).out.split())
    of_heads = ask("fit", *options, "--attention", "mha", "--json")
    assert results(of_heads)["kv_needed"] == 4_320 * 2**20
    assert not any("April 2025" in note for note in of_heads.document["notes"])


@each(
    ("model", "gpu", "before", "after"),
    [
        ("kimi-k3", "8xmi355x", "0.27.1", "0.28.0"),
        ("deepseek-v4-pro", "8xmi300x", "0.30.0", "0.31.0"),
    ],
)
def test_amds_newer_kernels_do_not_pad_384_of_an_expert_to_512(
    ask: Ask, model: str, gpu: str, before: str, after: str
) -> None:
    """A third of the experts: vLLM's comment says that the padding 'would inflate weights and
    OOM'.
    """

    def padding(version: str) -> int:
        options = ("--gpu", gpu, "--engine", "vllm", "--engine-version", version, "--json")
        return int(results(ask("fit", model, *options))["weights_expert_padding"] or 0)

    assert padding(before) > 30 * GIB
    assert padding(after) < GIB


def test_graphs_of_amds_gpus_are_subtracted_from_0_26_on(ask: Ask) -> None:
    """Before, current_platform.is_cuda() left them out (v1/worker/gpu_worker.py): Gemma 3 4B on an
    MI300X logs 162.84 GiB for the cache with 0.23.0.
    """
    options = ("qwen3-30b-a3b", "--gpu", "mi300x", "--engine", "vllm", "--engine-version")
    figures = {}
    for version in ("0.25.1", "0.26.0"):
        document = ask("fit", *options, version, "--json").document
        figures[version] = runtime_of(document).keys() & {"cuda_graphs"}
    assert figures == {"0.25.1": set(), "0.26.0": {"cuda_graphs"}}
