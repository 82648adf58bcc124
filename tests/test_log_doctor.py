"""`attncalc fit --log` of a start that failed: what is missing, and the changes with which the
engine starts.
"""

import shlex
from pathlib import Path
from typing import Any

import pytest
from asking import Ask

MODELS = Path(__file__).parent / "data" / "engine-logs" / "models"
GIB = 2**30

# Qwen3-14B on an A100 40GB (end-to-end/logs.json, qwen3-14b-a100-40-0.85), in the words of vLLM
# 0.11.
# 40 layers x 2 x 8 heads x 128 x 2 B = 163,840 B per token x 32,768 = 5.0 GiB.
TOO_SMALL = """\
(EngineCore_DP0 pid=9) INFO 10-08 20:33:40 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: \
model='Qwen/Qwen3-14B', dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=1, kv_cache_dtype=auto
(EngineCore_DP0 pid=9) INFO 10-08 20:33:48 [gpu_model_runner.py:2653] Model loading took 27.5 GiB and 9.1 seconds
(EngineCore_DP0 pid=9) INFO 10-08 20:33:48 [gpu_worker.py:298] Available KV cache memory: 3.88 GiB
(EngineCore_DP0 pid=9) ERROR 10-08 20:33:48 [core.py:708] ValueError: To serve at least one request with the models's \
max seq len (32768), (5.0 GiB KV cache is needed, which is larger than the available KV cache memory (3.88 GiB). \
Based on the available memory, the estimated maximum model length is 25424. Try increasing `gpu_memory_utilization` or \
decreasing `max_model_len` when initializing the engine.
"""
ENGINE = (
    "Initializing a V1 LLM engine (v0.11.0) with config: model='Qwen/Qwen3-8B', "
    "dtype=torch.bfloat16, "
    "max_seq_len=40960, tensor_parallel_size=1, kv_cache_dtype=auto\n"
)


def diagnosis(ask: Ask, tmp_path: Path, text: str, *options: str) -> dict[str, Any]:
    log = tmp_path / "start.log"
    log.write_text(text)
    answer = ask("fit", *options, "--log", str(log), "--json")
    assert answer.code == 1, answer.err
    result: dict[str, Any] = answer.document
    assert (result["fits"], result["agrees"]) == (False, False)
    return result


def test_a_refusal_says_what_is_missing(ask: Ask, tmp_path: Path) -> None:
    result = diagnosis(
        ask, tmp_path, TOO_SMALL, str(MODELS / "qwen3-14b.json"), "--gpu-memory-utilization", "0.85"
    )
    assert result["refusal"]["kind"] == "too_small"
    # 5.00 - 3.88 = 1.12 GiB, and a block of 16 x 163,840 B that stays free
    assert result["refusal"]["missing"] == pytest.approx(1.12 * GIB + 16 * 163_840, abs=2)
    checks = {check["name"]: check for check in result["checks"]}
    assert checks["kv_bytes_per_sequence"]["ok"]
    assert (checks["max_context"]["measured"], checks["max_context"]["ok"]) == (25424, True)


def test_changes_rest_on_the_logs_own_memory(ask: Ask, tmp_path: Path) -> None:
    """Whatever the estimate, a cache in fp8 needs 2.5 of the 3.88 GiB, and 25,424 tokens of bf16
    fit.

    One block less is suggested, since one stays free.
    """
    options = ("--gpu", "a100-40gb", "--gpu-memory-utilization", "0.85")
    result = diagnosis(ask, tmp_path, TOO_SMALL, str(MODELS / "qwen3-14b.json"), *options)
    changes = {change["flag"]: change for change in result["suggestions"]}
    assert changes["--kv-dtype fp8"]["concurrency"] == pytest.approx(3.88 / 2.5, abs=0.01)
    assert "--context 25408" in changes
    assert all(change["concurrency"] >= 1 for change in result["suggestions"])
    # 0.1 of 39.5 GiB are more than the 1.12 that are missing
    assert "--gpu-memory-utilization 0.95" in changes


def test_every_change_is_a_command_to_paste(ask: Ask, tmp_path: Path) -> None:
    options = ("--gpu", "a100-40gb", "--gpu-memory-utilization", "0.85")
    result = diagnosis(ask, tmp_path, TOO_SMALL, str(MODELS / "qwen3-14b.json"), *options)
    commands = {change["flag"]: change["launch_command"] for change in result["suggestions"]}
    words = shlex.split(commands["--kv-dtype fp8"])
    assert words[:3] == ["vllm", "serve", "Qwen/Qwen3-14B"]
    assert words[words.index("--kv-cache-dtype") + 1] == "fp8"
    assert words[words.index("--max-model-len") + 1] == "32768"
    assert words[words.index("--gpu-memory-utilization") + 1] == "0.85"


def test_without_a_gpu_only_the_cache_is_changed(ask: Ask, tmp_path: Path) -> None:
    result = diagnosis(ask, tmp_path, TOO_SMALL, str(MODELS / "qwen3-14b.json"))
    assert [change["flag"] for change in result["suggestions"]] == [
        "--kv-dtype fp8",
        "--context 25408",
    ]
    assert not any(
        "--kv-cache-memory" in change["launch_command"] for change in result["suggestions"]
    )
    assert any("With --gpu" in note for note in result["notes"])


@pytest.mark.parametrize(
    "end",
    [
        "Available KV cache memory: -1.25 GiB\nValueError: No available memory for the cache "
        "blocks. Try increasing "
        "`gpu_memory_utilization` when initializing the engine.\n",
        "Available KV cache memory: -1.25 GiB\n",
    ],
)
def test_negative_memory_is_missing_too(ask: Ask, tmp_path: Path, end: str) -> None:
    """40,960 tokens x 147,456 B = 5.625 GiB, 1.25 GiB for weights and runtime, and a free block of
    16 tokens.
    """
    result = diagnosis(ask, tmp_path, ENGINE + end, "--gpu", "rtx-4080")
    assert result["refusal"]["kind"] == "no_memory"
    assert result["refusal"]["missing"] == pytest.approx(6.875 * GIB + 16 * 147_456, abs=2)
    flags = [change["flag"] for change in result["suggestions"]]
    assert any("--tp 2" in flag for flag in flags)


def test_other_processes_leave_a_smaller_share(ask: Ask, tmp_path: Path) -> None:
    """70.00 of 79.19 GiB are 0.88."""
    text = ENGINE + (
        "ValueError: Free memory on device cuda:0 (70.00/79.19 GiB) on startup is less than "
        "desired GPU memory "
        "utilization (0.92, 72.86 GiB). Decrease GPU memory utilization or reduce GPU memory "
        "used by other processes.\n"
    )
    result = diagnosis(ask, tmp_path, text)
    assert result["refusal"]["kind"] == "occupied"
    changes = [change["flag"] or change["change"] for change in result["suggestions"]]
    assert changes == ["--gpu-memory-utilization 0.88", "the other processes ended"]


def test_an_allocation_after_the_cache_asks_for_a_smaller_share(ask: Ask, tmp_path: Path) -> None:
    """gpt-oss-20b at 0.95 of an H100 died in the sampler's warm-up: 786 MiB wanted, 552 free
    (runtime-memory.md).
    """
    text = (
        "Initializing a V1 LLM engine (v0.19.0) with config: model='openai/gpt-oss-20b', "
        "dtype=torch.bfloat16, "
        "max_seq_len=8192, tensor_parallel_size=1, gpu_memory_utilization=0.95\n"
        "Available KV cache memory: 56.00 GiB\nGPU KV cache size: 1,200,000 tokens\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 786.00 MiB. GPU 0 has a "
        "total capacity of 79.19 "
        "GiB of which 552.00 MiB is free.\n"
    )
    result = diagnosis(ask, tmp_path, text)
    assert result["refusal"]["kind"] == "out_of_memory"
    assert result["refusal"]["missing"] == (786 - 552) * 2**20
    shares = [c["flag"].split()[1] for c in result["suggestions"] if "utilization" in c["flag"]]
    assert [float(share) < 0.95 for share in shares] == [True]


def test_weights_that_do_not_fit_are_answered_by_the_estimate(ask: Ask, tmp_path: Path) -> None:
    """15.3 GiB of weights on a GPU of 15.57: the message is all that the log has. In int4 they are
    5.5 GiB.
    """
    text = ENGINE + (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 250.00 MiB. GPU 0 has a "
        "total capacity of 15.57 "
        "GiB of which 120.00 MiB is free.\n"
    )
    result = diagnosis(ask, tmp_path, text)
    assert (result["refusal"]["kind"], result["gpu"]) == ("out_of_memory", None)
    assert "250 MiB failed, 120 MiB were free" in result["refusal"]["reason"]
    flags = [change["flag"] for change in result["suggestions"]]
    assert "--weights-dtype int4" in flags
    assert any("--tp" in flag for flag in flags)


def test_sglang_says_the_share_that_starts(ask: Ask, tmp_path: Path) -> None:
    """f A0 - W = 0.6 x 23.00 - 15.40 = -1.60 GiB; with 0.92 it is 5.76, more than the 5.625 of one
    request.
    """
    text = (
        "server_args=ServerArgs(model_path='Qwen/Qwen3-8B', dtype='auto', kv_cache_dtype='auto', "
        "context_length=None, "
        "mem_fraction_static=0.6, tp_size=1)\n"
        "[2025-11-04 05:27:13 TP0] Load weight begin. avail mem=23.00 GB\n"
        "[2025-11-04 05:27:19 TP0] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, "
        "avail mem=7.60 GB, "
        "mem usage=15.40 GB.\n"
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current "
        "value: "
        "mem_fraction_static=0.6\n"
    )
    result = diagnosis(ask, tmp_path, text)
    assert result["refusal"]["missing"] == pytest.approx((1.60 + 5.625) * GIB, rel=1e-3)
    changes = {change["flag"]: change["launch_command"] for change in result["suggestions"]}
    assert "--mem-fraction-static 0.92" in changes
    assert changes["--mem-fraction-static 0.92"].startswith(
        "python -m sglang.launch_server --model-path Qwen/Qwen3-8B"
    )


def test_llamacpp_says_what_does_not_fit(ask: Ask, tmp_path: Path) -> None:
    """131,072 tokens in f16 need 18 GiB beside a model of 7.49 GiB: 23,592 MiB are free. In q8_0
    they need 9.56.
    """
    text = (
        "build: 6325 (abcdef12) with cc for x86_64\n"
        "llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 4090) - 23592 "
        "MiB free\n"
        "llama_model_loader: loaded meta data with 28 key-value pairs and 399 tensors from "
        "/models/Qwen3-8B-Q8_0.gguf\n"
        "print_info: file type   = Q8_0\nprint_info: general.name     = Qwen3 8B\n"
        "load_tensors:        CUDA0 model buffer size =  7669.77 MiB\n"
        "load_tensors:   CPU_Mapped model buffer size =   630.59 MiB\n"
        "llama_context: n_seq_max     = 1\nllama_context: n_ctx         = 131072\nllama_context: "
        "n_ubatch      = 512\n"
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 18432.00 MiB on device 0: "
        "cudaMalloc failed: out of "
        "memory\nalloc_tensor_range: failed to allocate CUDA0 buffer of size 19327352832\n"
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for "
        "kv cache\n"
    )
    result = diagnosis(ask, tmp_path, text)
    assert (result["engine"], result["refusal"]["kind"]) == ("llamacpp", "out_of_memory")
    # 18 + 7.49 + 0.5 to 1 of compute buffer and CUDA - 23.04
    assert 2.9 * GIB < result["refusal"]["missing"] < 3.6 * GIB
    changes = {change["flag"]: change["launch_command"] for change in result["suggestions"]}
    words = shlex.split(changes["--kv-dtype q8_0"])
    assert words[:3] == ["llama-server", "-m", "/models/Qwen3-8B-Q8_0.gguf"]
    assert words[words.index("-ctk") + 1] == "q8_0"


def test_the_screen_begins_with_what_is_missing(ask: Ask) -> None:
    log = ENGINE + "Available KV cache memory: 4.50 GiB\n5.62 GiB KV cache is needed\n"
    answer = ask("fit", "--log", "-", stdin=log)
    assert (
        "DID NOT START: one request of 40,960 tokens needs 5.63 GiB, 4.50 GiB are left"
        in answer.out
    )
    assert "vllm serve Qwen/Qwen3-8B --kv-cache-dtype fp8" in answer.out


# SGLang's own line; 70.6 B parameters in fp8 are 65.7 GiB, and the embeddings, in bf16, have 2 GiB
# more.
FP8_BY_SIZE = """\
[2025-09-10 09:11:33] Load weight begin. avail mem=78.81 GB
[2025-09-10 09:12:40] Load weight end. type=LlamaForCausalLM, avail mem=11.92 GB, mem usage=66.89 GB.
[2025-09-10 09:12:40] RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.
"""


def test_a_dtype_found_by_the_size_of_the_weights_is_in_the_command_and_in_each_view(
    ask: Ask, tmp_path: Path
) -> None:
    result = diagnosis(ask, tmp_path, FP8_BY_SIZE, "llama3.1-70b", "--gpu", "h100")
    log = tmp_path / "start.log"
    full = ask("fit", "llama3.1-70b", "--gpu", "h100", "--log", str(log), "--full").out
    assert "weights in fp8" in full
    assert "in the range" in full
    two = next(change for change in result["suggestions"] if change["flag"] == "--gpus 2 --tp 2")
    assert "--quantization fp8" in two["launch_command"]


@pytest.mark.parametrize(
    "words", [("fit", "LOG", "--gpu", "h100"), ("LOG",), ("fit", "LOG", "--json")]
)
def test_a_log_in_the_place_of_a_model_is_an_error_that_names_log(
    ask: Ask, tmp_path: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("start.log").write_text(TOO_SMALL, encoding="utf-8")
    assert (
        "'attncalc fit --log start.log'"
        in ask(*(word.replace("LOG", "start.log") for word in words)).error
    )


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        (
            "ValueError: Total number of attention heads (40) must be divisible by tensor "
            "parallel size (3).",
            "--tensor-parallel-size 2",
        ),
        ("RuntimeError: Failed to infer device type", "nvidia-smi"),
    ],
)
def test_a_start_refused_for_another_reason_than_memory_has_advice(
    ask: Ask, tmp_path: Path, message: str, advice: str
) -> None:
    result = diagnosis(ask, tmp_path, message, "qwen2.5-14b", "--gpu", "h100")
    assert advice in str(result["refusal"]["advice"])


def test_a_number_of_gpus_is_the_tensor_parallel_size_of_a_log_without_one(
    ask: Ask, tmp_path: Path
) -> None:
    result = diagnosis(ask, tmp_path, FP8_BY_SIZE, "llama3.1-70b", "--gpu", "2xh100")
    # bf16 over two GPUs is as large as fp8 on one
    assert result["suggestions"][-1]["flag"] == "--gpus 4 --tp 4"
