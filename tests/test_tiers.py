"""The cache in host memory and on disk: attncalc/serving/tiers.py, and each engine's part of it."""

from typing import Any

import pytest
from asking import Ask, refusal, results
from tables import each

from attncalc import fit
from attncalc.serving.answer import Answer
from attncalc.serving.tiers import Tier, prefill_of, tiers

GIB = 2**30
# Bytes of a token of Llama 3 8B: 32 layers, K and V, 8 heads of 128, bf16: 131,072.
LLAMA_TOKEN = 32 * 2 * 8 * 128 * 2
# Bytes of a token of DeepSeek-V3: 61 layers, a latent of 512 and a rotary key of 64, bf16: 70,272.
LATENT_TOKEN = 61 * 576 * 2


def tiers_of(model: str, **options: Any) -> dict[str, Tier]:
    return {tier.name: tier for tier in tiers(fit(model, **options))}


def test_a_measured_load_takes_the_time_of_its_bytes_at_its_bandwidth() -> None:
    """Published: gahow/agentic-kvc, exp_a_tier_latency, Qwen3-Coder-30B-A3B with vLLM 0.18.1 on one
    NVIDIA H20.

    65,536 tokens are 6,442,450,944 B and take 0.11847 s at 54.38 GB/s. A server with the cache in
    host memory answers after 0.272 s, and without it after 15.2 s; both bounds are below these, and
    loading wins.
    """
    result = fit(
        "qwen3-coder-30b",
        gpu="h20",
        context=65_536,
        engine_version="0.18.1",
        kv_offloading_size="64GiB",
        host_bandwidth=54_379_825_367,
    )
    host = tiers(result)[1]
    assert host.load is not None
    assert host.load.numerator == 6_442_450_944
    assert float(host.load) == pytest.approx(0.11847, rel=1e-4)
    prefill = prefill_of(result.resolved, 65_536)
    assert prefill is not None
    assert float(host.load) < 0.272 < float(prefill.by_compute) < 15.2
    assert host.faster_from == 1


@each(
    ("model", "options", "copies", "token"),
    [
        # GQA: each of 4 GPUs stores 2 of 8 KV heads; together they store each token once
        ("llama3-8b", {"tp": 4, "kv_offloading_size": 64}, 4, LLAMA_TOKEN),
        ("llama3-8b", {"tp": 2, "pp": 2, "kv_offloading_size": 64}, 4, LLAMA_TOKEN),
        # MLA: one copy for all GPUs, and before 0.27 one of each GPU (pull request 50301, issue
        # 47929 of vLLM)
        ("deepseek-v3", {"tp": 8, "kv_offloading_size": 64}, 1, LATENT_TOKEN),
        (
            "deepseek-v3",
            {"tp": 8, "kv_offloading_size": 64, "engine_version": "0.26.0"},
            8,
            8 * LATENT_TOKEN,
        ),
        # LMCache has them in the first GPU's part (save_only_first_rank)
        (
            "deepseek-v3",
            {"tp": 8, "kv_offloading_size": 64, "kv_offloading_backend": "lmcache"},
            8,
            8 * LATENT_TOKEN,
        ),
        # with dcp 8 each GPU stores an eighth of the tokens
        ("deepseek-v3", {"tp": 8, "dcp": 8, "kv_offloading_size": 64}, 8, LATENT_TOKEN),
        # an indexer's keys, 132 B in fp8: one copy from 0.31 on
        ("deepseek-v3.2", {"tp": 8, "kv_offloading_size": 64}, 1, LATENT_TOKEN + 61 * 132),
        (
            "deepseek-v3.2",
            {"tp": 8, "kv_offloading_size": 64, "engine_version": "0.30.0"},
            8,
            8 * (LATENT_TOKEN + 61 * 132),
        ),
    ],
)
def test_vllm_divides_the_host_memory_between_the_gpus_that_store_something_else(
    model: str, options: dict[str, Any], copies: int, token: int
) -> None:
    found = tiers_of(model, gpu="h200", context=8192, **options)
    host = found["host"]
    assert host.memory == 64 * GIB
    # whole blocks of 64 tokens at most, on each GPU
    assert 64 * GIB // token - 64 * copies < host.tokens <= 64 * GIB // token
    assert float(host.tokens_per_gib) == pytest.approx(GIB / token, rel=1e-3)
    assert float(found["gpu"].tokens_per_gib) == pytest.approx(
        GIB / (token if copies > 1 else token * 8), rel=1e-2
    )


@each(
    ("options", "per_gpu"),
    [
        # GB, for each of 4 GPUs
        ({"hicache_size": 30}, 30 * 10**9),
        # HiCache's default is twice the memory on the GPU
        ({"enable_hierarchical_cache": True}, 2 * 8 * GIB),
        ({"hicache_ratio": "1.5"}, 3 * 4 * GIB),
        ({"hicache_ratio": "3", "hicache_size": 30}, 30 * 10**9),
    ],
)
def test_sglang_has_host_memory_for_each_gpu(options: dict[str, Any], per_gpu: int) -> None:
    """Source: HostKVCache in mem_cache/pool_host/base.py: host_size * 1e9, or the device's tokens
    times the ratio.
    """
    host = tiers_of("llama3-8b", engine="sglang", kv_memory="8GiB", tp=4, context=8192, **options)[
        "host"
    ]
    assert host.memory == 4 * per_gpu
    assert host.tokens == per_gpu // (LLAMA_TOKEN // 4)


def test_all_gpus_share_the_disk_and_each_has_a_link_to_the_host() -> None:
    # 8,192 tokens are 1 GiB, of which each of 4 GPUs has a quarter
    found = tiers_of(
        "llama3-8b",
        gpu="h100",
        tp=4,
        context=8192,
        kv_offloading_size=64,
        host_bandwidth="50GB",
        disk_size="1TiB",
        disk_bandwidth="10GB",
    )
    host, disk = found["host"], found["disk"]
    assert host.load is not None
    assert disk.load is not None
    assert float(host.load) == pytest.approx(GIB / 4 / 50e9)
    assert float(disk.load) == pytest.approx(GIB / 10e9)
    assert disk.tokens == 1024 * GIB // LLAMA_TOKEN


def test_the_prompt_from_which_loading_is_faster_is_the_first_one() -> None:
    # At 5 GB/s a token takes 26.2 us to load, and 14.1 us of products on an H100; the products of
    # scores add 32 layers * 2 * 2 * 4,096 / 2 = 262,144 FLOP per token before it: 0.265 ns. So
    # about 45,700 tokens, beyond the 8,192 of this model.
    assert (
        tiers_of(
            "llama3-8b", gpu="h100", context=8192, kv_offloading_size=64, host_bandwidth="5GB"
        )["host"].faster_from
        is None
    )
    result = fit(
        "llama3.1-8b", gpu="h100", context=8192, kv_offloading_size=64, host_bandwidth="5GB"
    )
    start = tiers(result)[1].faster_from
    assert start is not None
    assert 44_000 < start < 48_000
    for tokens, faster in ((int(start) - 1, False), (int(start), True)):
        step = prefill_of(result.resolved, tokens)
        assert step is not None
        assert (float(step.by_compute) > int(step.cache) / 5e9) == faster


def test_the_logits_do_not_count_since_they_are_computed_anyway() -> None:
    """Otherwise a prompt of one token would win by the FLOPs of the head, and longer ones would
    not.
    """
    step = prefill_of(fit("llama3-8b", gpu="h100", context=8192).resolved, 1)
    assert step is not None
    layers = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14_336)
    assert step.flops == 2 * layers + 32 * 2 * 2 * 4096


def test_without_a_lower_tier_there_are_no_tiers(ask: Ask) -> None:
    assert tiers(fit("llama3-8b", gpu="h100")) == ()
    assert Answer(fit("llama3-8b", gpu="h100")).tiers == ()
    assert "host memory" not in ask("fit", "llama3-8b", "--gpu", "h100").out


def test_without_a_gpu_a_tier_has_no_prefill_to_compare_with(ask: Ask) -> None:
    host = tiers_of("llama3-8b", kv_memory="8GiB", context=8192, kv_offloading_size=64)["host"]
    assert host.faster_from is None
    assert (
        "prefilling again"
        not in ask("fit", "llama3-8b", "--kv-memory", "8GiB", "--kv-offloading-size", "64").out
    )


@each(
    ("engine", "options", "command"),
    [
        (
            "vllm",
            ("--kv-offloading-size", "0.5TiB"),
            "--kv-offloading-size 512 --kv-offloading-backend native",
        ),
        ("sglang", ("--hicache-size", "30"), "--enable-hierarchical-cache --hicache-size 30"),
        ("sglang", ("--hicache-ratio", "1.5"), "--enable-hierarchical-cache --hicache-ratio 1.5"),
        ("sglang", ("--enable-hierarchical-cache",), "--enable-hierarchical-cache"),
    ],
)
def test_the_command_has_the_tier(
    ask: Ask, engine: str, options: tuple[str, ...], command: str
) -> None:
    answer = ask("fit", "llama3-8b", "--engine", engine, "--gpu", "h100", *options, "--json")
    assert command in answer.document["launch_command"]


@each(
    ("options", "message", "tip"),
    [
        (
            {"host_bandwidth": "50GB"},
            "host_bandwidth needs a cache in host memory",
            "add kv_offloading_size=64, for example",
        ),
        (
            {"disk_bandwidth": "5GB"},
            "disk_bandwidth needs disk_size",
            "give the size of the cache on disk: ",
        ),
        (
            {"disk_size": "1TB", "engine": "llamacpp"},
            "disk_size has no effect on engine llamacpp",
            "leave it out",
        ),
        (
            {"kv_offloading_size": 4, "engine_version": "0.11.0"},
            "vLLM 0.11.0 has no kv_offloading_size",
            "use engine_version='0.11.1' or later",
        ),
        (
            {"engine": "sglang", "hicache_ratio": "much"},
            "hicache_ratio: 'much' is not a number above 0",
            "",
        ),
        (
            {"engine": "sglang", "hicache_size": 4, "prefix_caching": False},
            "SGLang's cache in host memory cannot be combined with no_prefix_caching",
            "leave one of them out",
        ),
    ],
)
def test_an_option_without_its_tier_is_an_error(
    options: dict[str, Any], message: str, tip: str
) -> None:
    error = refusal(fit, "llama3-8b", gpu="h100", **options)
    assert error.message == message
    assert (error.tip or "").startswith(tip)


@each(
    ("engine", "option", "sizes"),
    [("vllm", "--kv-offloading-size", ("16", "64")), ("sglang", "--hicache-size", ("16", "64"))],
)
def test_a_sweep_has_the_figures_of_fit(
    ask: Ask, engine: str, option: str, sizes: tuple[str, ...]
) -> None:
    names = [
        "gpu_tokens_per_gib",
        "host_kv_memory",
        "host_kv_tokens",
        "host_load_time",
        "host_faster_from",
    ]
    asked = (
        "llama3.1-8b",
        "--engine",
        engine,
        "--gpu",
        "h100",
        "--context",
        "8K",
        "--host-bandwidth",
        "5GB",
    )
    swept = ask(
        "sweep", *asked, option, ",".join(sizes), "--columns", ",".join(names), "--format", "json"
    )
    found = [[row[name] for name in names] for row in swept.document["rows"]]
    one_by_one = [results(ask("fit", *asked, option, size, "--json")) for size in sizes]
    assert found == [[figures[name] for name in names] for figures in one_by_one]
