"""What `attncalc fit --log` advises: nothing that the log contradicts, and nothing that the engine
lacks where it ran.

The lines are those of vLLM 0.32.0 and SGLang 0.5.23, in their own formats.
"""

from pathlib import Path
from typing import Any

import pytest
from asking import Ask

DATA = Path(__file__).parent / "data" / "engine-logs"
GIB = 2**30

ENGINE = (
    "(EngineCore pid=213) INFO 11-12 09:12:20 [core.py:114] Initializing a V1 LLM engine (v0.32.0) "
    "with config: model='Qwen/Qwen3-8B', dtype=torch.bfloat16, max_seq_len=32768, "
    "tensor_parallel_size=1\n"
)
PROFILED = (
    "(EngineCore pid=213) INFO 11-12 09:14:02 [gpu_model_runner.py:6369] Profiling CUDA graph "
    "memory: PIECEWISE=51 (largest=512), FULL=35 (largest=256)\n"
)
# vllm/v1/worker/gpu_worker.py and gpu_model_runner.py of 0.32.0
IN_THE_PROFILE = """\
  File "/usr/lib/python3/vllm/v1/worker/gpu_worker.py", line 704, in determine_available_memory
    cudagraph_memory_estimate = self.model_runner.profile_cudagraph_memory()
  File "/usr/lib/python3/vllm/v1/worker/gpu_model_runner.py", line 6335, in profile_cudagraph_memory
    self._init_minimal_kv_cache_for_profiling()
  File "/usr/lib/python3/vllm/v1/worker/gpu_model_runner.py", line 6231, in \
_init_minimal_kv_cache_for_profiling
    self.initialize_kv_cache(minimal_config, is_profiling=True)
"""
OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 578.00 MiB. GPU 0 has a total "
    "capacity of 23.52 GiB of which 412.00 MiB is free.\n"
)
GRAPHS_ARE_ESTIMATED = (
    "(EngineCore pid=90) INFO 11-12 09:14:02 [gpu_worker.py:770] CUDA graph memory profiling is "
    "enabled (default since v0.21.0). The current --gpu-memory-utilization=0.4500 is equivalent to "
    "--gpu-memory-utilization=0.4300 without CUDA graph memory profiling.\n"
)
NOTHING_LEFT = (
    "Available KV cache memory: -0.61 GiB\nValueError: No available memory for the cache blocks. "
    "Try increasing `gpu_memory_utilization` when initializing the engine.\n"
)
AFTER_THE_CACHE = (
    "(EngineCore pid=90) INFO 11-12 09:14:02 [gpu_worker.py:298] Available KV cache memory: 10.61 "
    'GiB\n{}  File "/usr/lib/python3/vllm/v1/worker/gpu_model_runner.py", line 4242, in '
    "_dummy_sampler_run\n" + OUT_OF_MEMORY
)


def answer_to(ask: Ask, text: str, *options: str) -> dict[str, Any]:
    answer: dict[str, Any] = ask("fit", "--log", "-", "--json", *options, stdin=text).document
    return answer


def refusal_of(ask: Ask, text: str, *options: str) -> dict[str, Any]:
    refusal: dict[str, Any] = answer_to(ask, text, *options)["refusal"]
    return refusal


def advised(ask: Ask, text: str, *options: str) -> dict[str, str]:
    """Return {what to type: what it is}, as the log alone suggests it."""
    return {
        advice["option"]: advice["change"] for advice in refusal_of(ask, text, *options)["advice"]
    }


@pytest.mark.parametrize("text", [IN_THE_PROFILE + OUT_OF_MEMORY, PROFILED + OUT_OF_MEMORY])
def test_graphs_that_are_only_measured_are_no_activations(ask: Ask, text: str) -> None:
    refusal = refusal_of(ask, text)
    assert refusal["cause"] == "compute_too_large"
    assert refusal["reason"].startswith("The CUDA graphs of the memory profile")
    assert refusal["advice"][0]["option"] == "--enforce-eager"


def test_no_graphs_are_the_first_change_where_measuring_them_failed(ask: Ask) -> None:
    changes = answer_to(ask, ENGINE + PROFILED + IN_THE_PROFILE + OUT_OF_MEMORY)
    assert "--enforce-eager" in changes["suggestions"][0]["flag"]


def test_a_profile_whose_graphs_were_measured_failed_later(ask: Ask) -> None:
    measured = "Estimated CUDA graph memory: 0.36 GiB total\n"
    text = PROFILED + measured + "Available KV cache memory: 6.00 GiB\n" + OUT_OF_MEMORY
    assert refusal_of(ask, text)["cause"] == "cache_too_large"


def test_a_share_that_the_log_lacks_is_only_smaller_than_a_default(ask: Ask) -> None:
    """vLLM's default is 0.92 since 0.20, and was 0.9."""
    unknown = advised(ask, AFTER_THE_CACHE.format(""))["--gpu-memory-utilization 0.85"]
    assert unknown == "a smaller share, if it has the default, 0.92 or 0.9"
    known = AFTER_THE_CACHE.format("vLLM API server version 0.32.0\n")
    assert advised(ask, known)["--gpu-memory-utilization 0.85"].endswith("the default, 0.92")


def test_a_share_of_sglang_that_the_log_lacks_is_a_condition(ask: Ask) -> None:
    text = (
        "[2026-11-04 05:27:13 TP0] Memory pool end. avail mem=2.20 GB\n"
        "Capture cuda graph failed: " + OUT_OF_MEMORY
    )
    words = advised(ask, text)["--mem-fraction-static 0.75"]
    assert words == "a smaller share, if the log's mem_fraction_static is larger"


def test_advice_for_old_versions_is_not_given_for_the_log_of_a_newer_one(ask: Ask) -> None:
    """vLLM counts other servers' memory until 0.9.1, and '(default since v0.21.0)' is of 0.20."""
    share = "gpu_memory_utilization=0.45\n"
    assert "--gpu-memory-utilization 0.9" in advised(ask, share + NOTHING_LEFT)
    for newer in (GRAPHS_ARE_ESTIMATED, f"{share}vLLM API server version 0.9.2\n"):
        assert "--gpu-memory-utilization 0.9" not in advised(ask, newer + NOTHING_LEFT)


def test_a_mac_has_no_second_gpu_and_no_cache_in_fp8(ask: Ask) -> None:
    """vllm-metal refuses tensor parallelism (platform.py), and caches in the model's dtype."""
    text = (DATA / "doctor" / "pasted-vllm-metal.log").read_text()
    options = advised(ask, text)
    assert [*options] == ["--max-model-len 73680", ""]
    assert options[""].startswith("weights in fewer bits")
    path = str(DATA / "doctor" / "pasted-vllm-metal.log")
    computed = ask("fit", "llama3.1-8b", "--log", path, "--json").document["suggestions"]
    assert [change["flag"] for change in computed] == ["--context 73616"]


SGLANG = """\
[2026-11-04 05:27:10] server_args=ServerArgs(model_path='deepseek-ai/DeepSeek-V4-Pro', dtype='auto', \
context_length=None, mem_fraction_static=0.88, tp_size=8)
[2026-11-04 05:27:13 TP0] Load weight begin. avail mem=138.20 GB
[2026-11-04 05:29:19 TP0] Load weight end. elapsed=110.12 s, type=DeepseekV4ForCausalLM, quant=fp8, \
avail mem=12.25 GB, mem usage=125.65 GB.
ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.88. Raise \
--mem-fraction-static above 0.912 (minimum viable = 1 - available/pre = 0.9113). If using speculative \
decoding, draft weights are now counted.
"""


def test_the_share_that_sglang_asks_for_is_named_beside_more_gpus(ask: Ask) -> None:
    """github.com/SemiAnalysisAI/InferenceX/issues/2128: 12.25 of 138.2 GiB are free, so 1 - 0.0887
    = 0.9113.
    """
    notes = " ".join(answer_to(ask, SGLANG)["notes"])
    assert "SGLang goes on with --mem-fraction-static 0.92: a share above 0.912" in notes


def test_sglangs_own_name_of_the_share_overrides_the_logs(ask: Ask) -> None:
    """0.92 x 138.2 - 125.95 = 1.19 GiB."""
    refusal = refusal_of(ask, SGLANG, "--mem-fraction-static", "0.92")
    assert refusal["available"] == pytest.approx(1.194 * GIB, rel=1e-3)
    answer = ask("fit", "--log", "-", "--mem-fraction-static", "0.92", stdin=ENGINE + NOTHING_LEFT)
    assert "--mem-fraction-static has no effect on engine vllm" in answer.error


def test_a_log_that_contradicts_the_model_keeps_its_own_advice(ask: Ask) -> None:
    """5.3 GiB are 6 % more than the 40 x 2 x 8 x 128 x 2 x 32,768 B = 5.0 GiB of Qwen3-14B."""
    text = (
        "Initializing a V1 LLM engine (v0.11.0) with config: model='/models/mine', "
        "dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=1\n"
        "Available KV cache memory: 3.88 GiB\n"
        "ValueError: To serve at least one request with the models's max seq len (32768), (5.3 GiB "
        "KV cache is needed, which is larger than the available KV cache memory (3.88 GiB). Based "
        "on the available memory, the estimated maximum model length is 24064.\n"
    )
    alone = advised(ask, text)
    assert [*alone][:2] == ["--max-model-len 24064", "--kv-cache-dtype fp8"]
    model = str(DATA / "models" / "qwen3-14b.json")
    result = ask("fit", model, "--gpu", "a100-40gb", "--log", "-", "--json", stdin=text).document
    assert (result["refusal"]["cause"], result["suggestions"]) == ("other_model", [])
    assert {each["option"]: each["change"] for each in result["refusal"]["advice"]} == alone


RUNNING = (
    "Engine 000: Avg prompt throughput: 1234.5 tokens/s, Avg generation throughput: 512.0 "
    "tokens/s, Running: 38 reqs, Waiting: 61 reqs, {}GPU KV cache usage: 99.7%, Prefix cache hit "
    "rate: 12.0%\n"
)


# 0.32 has the deferred requests, those that are fetched, and preemptions between the two
# (v1/metrics/loggers.py)
@pytest.mark.parametrize(
    "lines",
    [
        "Request cmpl-12 was preempted.\n" + RUNNING.format(""),
        RUNNING.format(
            "Deferred: 3 reqs, KV fetch: 5 waiting to start, 2 in progress, 1 completed waiting, "
            "Preemptions: 4, "
        ),
    ],
)
def test_a_server_that_preempts_is_described_in_vllms_words(ask: Ask, lines: str) -> None:
    reason = refusal_of(ask, lines)["reason"]
    assert "38 requests are running, 61 waiting" in reason
    assert "running requests were preempted" in reason


def test_a_server_that_retracts_is_described_in_sglangs_words(ask: Ask) -> None:
    text = (
        "[2026-11-04 05:27:13 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 3\n"
        "[2026-11-04 05:27:14 TP0] Decode batch. #running-req: 20, #token: 9071, token usage: "
        "0.98, #queue-req: 7\n"
    )
    assert "running requests were retracted" in refusal_of(ask, text)["reason"]
