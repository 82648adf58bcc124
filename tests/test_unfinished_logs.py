"""`attncalc fit --log` of a log without a message about memory: cut, of a killed process, another
error or engine.
"""

from typing import Any

import jsonschema
import pytest
from asking import Ask
from tables import each

from attncalc.logs.messages import LONG_REQUEST
from attncalc.questions.schemas import schema

VLLM = (
    "(EngineCore pid=211) INFO 09-14 10:02:00 [core.py:109] Initializing a V1 LLM engine "
    "(v0.19.0) with config: "
    "model='Qwen/Qwen3-32B', dtype=torch.bfloat16, max_seq_len=40960, gpu_memory_utilization=0.9\n"
)
LOADING = "Loading safetensors checkpoint shards:  12% Completed | 2/17 [00:02<01:39,  2.77s/it]\n"
LOADED = "Loading safetensors checkpoint shards: 100% Completed | 17/17 [00:20<00:00,  1.27s/it]\n"
TRACEBACK = "ERROR 09-14 10:02:20 [core.py:1100] Traceback (most recent call last):\n"
SGLANG = (
    "[2026-05-16 12:09:37] server_args=ServerArgs(model_path='Qwen/Qwen3-8B', "
    "mem_fraction_static=0.85, tp_size=1)\n"
)
KILLED = "The process was killed, most often since host memory is full, not the GPU's"
ENDS = [
    (VLLM + LOADING, "log_ends", "The log ends while weights are loaded, 2 of 17 files."),
    (VLLM + LOADED, "log_ends", "The log ends before the cache has its size, without an error."),
    (
        SGLANG + "Load weight begin. avail mem=22.76 GB",
        "kv_too_small",
        "The log ends while weights are loaded. By the estimate",
    ),
    (VLLM + LOADED + TRACEBACK, "log_ends", "The log ends within an error, before its message."),
    (
        "(EngineCore pid=43) INFO 07-13 00:04:10 [gpu_worker.py:508] Available KV cache memory: "
        "3.93 GiB\n" + TRACEBACK,
        "log_ends",
        "The log ends within an error, before its message: 3.93 GiB were left for the cache.",
    ),
    (
        VLLM
        + TRACEBACK
        + "ValueError: Model architectures ['Qwen9ForCausalLM'] are not supported for now.",
        "other_error",
        "ValueError: Model architectures ['Qwen9ForCausalLM'] are not supported for now.",
    ),
    (VLLM + LOADING + "vllm-1 exited with code 137", "host_memory", KILLED),
    (
        VLLM + "RuntimeError: Engine core initialization failed. Failed core proc(s): "
        "{'EngineCore_DP0': -9}",
        "host_memory",
        KILLED,
    ),
    (SGLANG + "Killed", "host_memory", KILLED),
    (
        "./run.sh: line 22: 103525 Killed  python -m sglang.launch_server --model-path a/b",
        "host_memory",
        KILLED,
    ),
    ("Error: llama runner process has terminated: signal: killed", "host_memory", KILLED),
    (
        SGLANG + "NVRM: Check failed: Out of memory [NV_ERR_NO_MEMORY] @ mem_desc.c:1359",
        "host_memory",
        "driver found no",
    ),
    (
        'msg="starting runner" cmd="/usr/bin/ollama runner"\npanic: no tokens to sample from',
        "other_error",
        "panic: no",
    ),
    (
        "llama_model_loader: loaded meta data from a.gguf\nReason: OOMKilled\nExit Code: 137",
        "host_memory",
        KILLED,
    ),
    # 14,095,848 kB / 2^20 = 13.44 GiB
    (
        "[Mar 24 23:54:53] Out of memory: Killed process 6154 (python) total-vm:18109076kB, "
        "anon-rss:14095848kB",
        "host_memory",
        f"{KILLED}: 13.44 GiB were used.",
    ),
]


SIZED = (
    "(EngineCore_0 pid=92) INFO 09-05 10:11:20 [gpu_worker.py:276] Available KV cache memory: "
    "4.53 GiB\n"
    "(EngineCore_0 pid=92) INFO 09-05 10:11:21 [kv_cache_utils.py:864] GPU KV cache size: 37,072 "
    "tokens\n"
)
STARTED = SIZED + "INFO:     Application startup complete.\n"
STARTED_LLAMACPP = (
    "llama_kv_cache: size = 1024.00 MiB (  8192 cells,  32 layers,  1/1 seqs), K (f16):  512.00 "
    "MiB, V (f16):  512.00 "
    "MiB\nmain: model loaded\nslot update_slots: id  0 | task 0 | new prompt, n_ctx_slot = 8192\n"
)
STARTED_SGLANG = (
    "[2025-06-18 18:10:05] KV Cache is allocated. #tokens: 34214, K size: 2.09 GB, V size: 2.09 "
    "GB\n"
    "[2025-06-18 18:10:11] The server is fired up and ready to roll!\n"
)
RAISED = (
    "Traceback (most recent call last):\nRuntimeError: CUDA error: an illegal memory access was "
    "encountered\n"
)
# What ended after the cache had its size.
LATER = [
    (STARTED + "vllm-1 exited with code 137", "host_memory", KILLED),
    (STARTED_LLAMACPP + "Killed", "host_memory", KILLED),
    (
        STARTED_SGLANG + "Scheduler hit an exception: " + RAISED + "Killed",
        "other_error",
        "CUDA error: an illegal",
    ),
    (
        STARTED + "ERROR EngineCore encountered a fatal error.\n" + RAISED,
        "other_error",
        "CUDA error: an illegal",
    ),
    (
        SIZED + RAISED + "RuntimeError: Engine core initialization failed.",
        "other_error",
        "CUDA error: an illegal",
    ),
]


MESSAGES = [
    (
        "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (854)",
        "too_many_sequences",
        "1,024 sequences, and the cache has 854",
    ),
    (
        "[2026-02-11 06:45:01] max_total_tokens=20480 is larger than the profiled value -89624. "
        "Use the profiled value",
        "nothing_left",
        "leave nothing",
    ),
    (
        "[2026-04-16 01:02:09 TP1] Capture CUDA graph failed: CUDA out of memory. Tried to "
        "allocate 24.00 MiB. "
        "GPU 6 has a total capacity of 44.53 GiB of which 448.00 KiB is free.",
        "cache_too_large",
        "CUDA graphs: 24 MiB were wanted, 448 KiB of 44.53 GiB were free",
    ),
    # 14.36e9 / 2^30 = 13.37 GiB
    (
        "Model loading was stopped due to insufficient system resources. Under the current "
        "settings, this model "
        "requires approximately 14.36 GB of memory, and continuing to load it",
        "out_of_memory",
        "by its estimate the free memory is too small: 14.36 GB (13.37 GiB) were wanted",
    ),
]


def result_of(ask: Ask, log: str, *options: str) -> dict[str, Any]:
    answer = ask("fit", *options, "--log", "-", "--json", stdin=log)
    assert answer.code == 1, answer.err
    result: dict[str, Any] = answer.document
    return result


@each(("log", "cause", "reason"), ENDS)
def test_a_log_without_a_message_says_how_far_the_start_came(
    ask: Ask, log: str, cause: str, reason: str
) -> None:
    result = result_of(ask, log)
    refusal = result["refusal"]
    assert refusal["cause"] == cause
    assert reason in refusal["reason"]
    screen = ask("fit", "--log", "-", stdin=log)
    assert screen.out.count("NO RESULT: ") == reason.startswith("The log ends")
    assert len(screen.out.splitlines()) <= 24


@each(("log", "cause", "reason"), LATER)
def test_a_server_that_ended_later_does_not_agree(
    ask: Ask, log: str, cause: str, reason: str
) -> None:
    refusal = result_of(ask, log, "llama3-8b")["refusal"]
    assert (refusal["cause"], reason in refusal["reason"]) == (cause, True), refusal["reason"]
    screen = ask("fit", "llama3-8b", "--log", "-", stdin=log)
    assert screen.out.startswith("STOPPED: ")
    assert len(screen.out.splitlines()) <= 24


def test_an_error_that_a_server_survives_is_no_end(ask: Ask) -> None:
    log = (
        STARTED
        + RAISED
        + 'INFO:     10.0.0.3:5532 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error'
    )
    assert ask("fit", "llama3-8b", "--log", "-", stdin=log).code == 0


def test_a_shell_says_killed_after_an_error_too(ask: Ask) -> None:
    error = (
        TRACEBACK
        + "ERROR 09-14 10:02:20 [core.py:386] RuntimeError: 'tuple' object has no attribute "
        "'ndim'\n"
    )
    assert result_of(ask, VLLM + error + "Killed")["refusal"]["cause"] == "other_error"
    assert (
        result_of(ask, VLLM + "BrokenPipeError: [Errno 32] Broken pipe\nKilled")["refusal"]["cause"]
        == "host_memory"
    )


@each(("message", "cause", "reason"), MESSAGES)
def test_a_message_alone_is_read(ask: Ask, message: str, cause: str, reason: str) -> None:
    refusal = result_of(ask, message)["refusal"]
    assert (refusal["cause"], reason in refusal["reason"]) == (cause, True), refusal["reason"]


def test_lm_studio_is_told_in_its_own_words(ask: Ask) -> None:
    answer = ask("fit", "--log", "-", stdin=MESSAGES[-1][0])
    assert "LM Studio (llama.cpp)" in answer.out
    assert "lms load --context-length 8192" in answer.out


def test_what_a_cut_log_lacks_is_estimated(ask: Ask) -> None:
    """61 GiB of weights in bf16 on 24; the log itself has no error."""
    refusal = result_of(ask, VLLM + LOADING, "--gpu", "rtx-4090")["refusal"]
    assert refusal["cause"] == "weights_too_large"
    assert refusal["reason"].startswith(
        "The log ends while weights are loaded, 2 of 17 files. By the estimate, the wei"
    )
    assert "is enough" in ask("fit", "--gpu", "h200", "--log", "-", stdin=VLLM + LOADING).out


def test_a_cut_log_with_its_memory_is_computed(ask: Ask) -> None:
    """40,960 tokens of 256 KiB are 10 GiB, and 3.93 are left."""
    log = VLLM + "Available KV cache memory: 3.93 GiB\n" + TRACEBACK
    refusal = result_of(ask, log)["refusal"]
    assert refusal["cause"] == "kv_too_small"
    assert (
        "before its message: 3.93 GiB were left for the cache. One request of 40,960"
        in refusal["reason"]
    )


def test_memory_without_tokens_is_no_refusal(ask: Ask) -> None:
    log = VLLM + "Current kv cache memory in use is 11.00 GiB."
    answer = ask("fit", "--log", "-", "--full", stdin=log)
    assert (answer.code, "KV memory                               11.00 GiB" in answer.out) == (
        0,
        True,
    )


@pytest.mark.parametrize(
    ("name", "sign", "option"),
    [
        ("TensorRT-LLM", "[TRT-LLM] [E] Executor", "--kv_cache_free_gpu_memory_fraction 0.8"),
        ("LMDeploy", "[TM][ERROR]", "--cache-max-entry-count 0.5"),
        ("transformers", "out = model.generate(**inputs)", 'device_map="auto"'),
        ("Training", "    trainer.train()", "--per_device_train_batch_size 1"),
    ],
)
def test_an_allocation_of_a_program_that_is_no_engine_has_its_options(
    ask: Ask, name: str, sign: str, option: str
) -> None:
    failed = (
        "CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 23.52 GiB "
        "of which 1.31 GiB"
    )
    log = f"{sign}\n{failed} is free."
    screen = ask("fit", "--log", "-", stdin=log).out
    assert f"\n{name}  message\n" in screen
    assert "1.96 GiB were wanted, 1.31 GiB of 23.52 GiB were free" in " ".join(screen.split())
    assert result_of(ask, log)["refusal"]["advice"][0]["option"].startswith(option)
    assert f"is a log of {name}, without a message" in ask("fit", "--log", "-", stdin=sign).error


def test_a_request_beside_which_no_other_fits_fills_the_cache(ask: Ask) -> None:
    """Two of 76.8 % are more than the cache; 34 of 65.4 % leave room for one more."""
    load = (
        "[loggers.py:257] Engine 000: Running: {} reqs, Waiting: 14 reqs, GPU KV cache usage: "
        "{}%, Prefix"
    )
    causes = [
        result_of(ask, load.format(*each))["refusal"]["cause"] for each in ((1, 76.8), (34, 65.4))
    ]
    assert causes == ["cache_full", "requests_limited"]


def test_sglangs_prefills_and_its_ranks_are_signs_of_its_log(ask: Ask) -> None:
    prefill = (
        "Prefill batch. #new-seq: 6, #new-token: 8192, token usage: 0.24, #running-req: 64, "
        "#queue-req: 53, "
    )
    assert (
        "64 requests are running, 53 waiting, 24.0% of"
        in result_of(ask, prefill)["refusal"]["reason"]
    )
    failed = "[2026-04-16 01:02:09 TP1] Failed: CUDA out of memory. Tried to allocate 24.00 MiB."
    assert result_of(ask, failed)["engine"] == "sglang"


def test_a_batch_without_tokens_asks_for_half_of_the_requests(ask: Ask) -> None:
    load = "Decode batch. #running-req: 4, #token: 9071, token usage: 0.98, #queue-req: 0,\n"
    advice = result_of(ask, load + "Decode out of memory. Try to lower your batch size.")[
        "refusal"
    ]["advice"]
    assert advice[0]["option"] == "--max-running-requests 2"


@pytest.mark.parametrize(
    ("lines", "asked", "context", "option"),
    [
        (
            "error: the request exceeds the available context size (4096 tokens), try increasing "
            "it",
            "a request was",
            "context of 4,096 tokens",
            "-c 8192",
        ),
        # https://github.com/oobabooga/textgen/issues/7257
        (
            '{"error":{"code":400,"message":"the request exceeds the available context size. try '
            "increasing the "
            "context "
            'size","type":"exceed_context_size_error","n_prompt_tokens":14429,"n_ctx":8192}}',
            "a request of 14,429 tokens",
            "context of 8,192 tokens",
            "-c 16384",
        ),
        # https://github.com/llmmllab/llmmllab-api/issues/69
        (
            "{'code': 400, 'message': 'request (25837 tokens) exceeds the available context size "
            "(25088 tokens), try'}",
            "a request of 25,837 tokens",
            "context of 25,088 tokens",
            "-c 28672",
        ),
        # https://github.com/QwenLM/qwen-code/issues/371, after another prompt
        (
            "slot update_slots: id 1 | task 9 | new prompt, n_ctx_slot = 131072, n_keep = 0, "
            "n_prompt_tokens = 12\n"
            "slot update_slots: id 0 | task 2119 | new prompt, n_ctx_slot = 131072, n_keep = 0, "
            "n_prompt_tokens = "
            "896091\nslot release: id 0 | task 2119 | stop processing: n_past = 0, truncated = 0\n"
            "srv send_error: task id = 2119, error: the request exceeds the available context "
            "size. try increasing",
            "a request of 896,091 tokens",
            "context of 131,072 tokens",
            "-c 917504",
        ),
        (  # 128,000 + 134,145 tokens: OpenCowork issue 82
            "This model's maximum context length is 262144 tokens. However, you requested 128000 "
            "output tokens and "
            "your prompt contains at least 134145 input tokens",
            "a request of 262,145 tokens",
            "context of 262,144 tokens",
            "max_tokens=127999",
        ),
        (
            "This model's maximum context length is 40960 tokens. However, your request has "
            "91714 input tokens.",
            "a request of 91,714 tokens",
            "context of 40,960 tokens",
            "--max-model-len 98304",
        ),
        (
            r'{"message":"The input (61709 tokens) is longer than the model\'s context length '
            r'(40960 tokens)."}',
            "a request of 61,709 tokens",
            "context of 40,960 tokens",
            "--context-length 65536",
        ),
        (
            "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens)",
            "a request of 160,062 tokens",
            "context of 59,862 tokens",
            "--context-length 163840",
        ),
        (
            "[ERROR] Trying to keep the first 10136 tokens when context the overflows. However, "
            "the model is loaded "
            "with context length of only 7866 tokens, which is not enough.",
            "a request of 10,136 tokens",
            "context of 7,866 tokens",
            "--context-length 10240",
        ),
        (
            "error: the request exceeds the available context size. try",
            "a request was",
            "server's context.",
            "-c 16384",
        ),
        (
            'source=runner.go:153 msg="truncating input prompt" limit=4096 prompt=15713 keep=4 '
            "new=4096",
            "a request of 15,713 tokens",
            "context of 4,096 tokens",
            "num_ctx 16384",
        ),
        (
            "This model's maximum context length is 4096 tokens. However, you requested 9220 "
            "tokens",
            "a request of 9,220 tokens",
            "context of 4,096 tokens",
            "--max-model-len 10240",
        ),
        (
            "ValueError: The input (9220 tokens) is longer than the model's context length (4096 "
            "tokens).",
            "a request of 9,220 tokens",
            "context of 4,096 tokens",
            "--context-length 10240",
        ),
    ],
)
def test_a_request_beyond_the_context_is_no_refused_start(
    ask: Ask, lines: str, asked: str, context: str, option: str
) -> None:
    """The advised context is the next multiple of an eighth of the power of two above the request.

    10,136 is below 16,384, of which an eighth is 2,048: 10,240.
    """
    refusal = result_of(ask, lines)["refusal"]
    assert (refusal["cause"], refusal["reason"].count(asked), refusal["reason"].count(context)) == (
        LONG_REQUEST,
        1,
        1,
    )
    assert option in refusal["advice"][0]["option"]
    assert "REQUEST REFUSED: " in ask("fit", "--log", "-", stdin=lines).out


def test_a_runner_of_ollama_that_stopped_asks_for_the_servers_log(ask: Ask) -> None:
    """https://github.com/continuedev/continue/issues/11241"""
    log = (
        'Provider: ollama\nStatus Code: 500\n\nError Output\n"model runner has unexpectedly '
        "stopped, this may be due "
        'to resource limitations or an internal error, check ollama server logs for details"\n'
    )
    refusal = result_of(ask, log)["refusal"]
    assert (refusal["cause"], refusal["advice"][0]["option"]) == (
        "log_ends",
        "journalctl -u ollama",
    )
    assert "journalctl -u ollama" in ask("fit", "--log", log).out
    failed = log + "alloc_tensor_range: failed to allocate CUDA0 buffer of size 151851674624\n"
    assert result_of(ask, failed)["refusal"]["cause"] == "out_of_memory"


def test_a_gpu_without_memory_for_cudas_context_is_taken(ask: Ask) -> None:
    log = "Error: llama runner process has terminated: CUDA error: out of memory\n in function "
    refusal = result_of(ask, log + "ggml_backend_cuda_device_get_memory at ggml-cuda.cu:2898")[
        "refusal"
    ]
    assert (refusal["cause"], refusal["advice"][1]["option"]) == (
        "memory_taken",
        "CUDA_VISIBLE_DEVICES=N",
    )


def test_a_server_that_cannot_load_for_its_compute_buffer_names_it(ask: Ask) -> None:
    log = (
        "ggml_gallocr_reserve_n: failed to allocate Vulkan0 buffer of size 9\nsrv load_model: "
        "failed to load model"
    )
    assert result_of(ask, log)["refusal"]["cause"] == "compute_too_large"


def test_ollamas_llama_server_is_ollama(ask: Ask) -> None:
    log = (
        "llama-server process has terminated: exit status 1: alloc_tensor_range: failed to "
        "allocate CUDA0 buffer"
    )
    assert "num_gpu" in result_of(ask, log)["refusal"]["advice"][0]["option"]
    cut = (
        "llama-server reported out-of-memory during startup: "
        "ggml_backend_cpu_buffer_type_alloc_buffer: failed to all"
    )
    assert result_of(ask, cut)["refusal"]["cause"] == "host_memory"
    # which did not fit
    plan = 'source=device.go:240 msg="model weights" device=CUDA0 size="13.1 GiB"\n'
    assert "are there" not in result_of(ask, plan + log)["refusal"]["reason"]


def test_data_parallel_ranks_of_a_pasted_command_are_read(ask: Ask) -> None:
    log = (
        "# vllm serve Qwen/Qwen3-235B-A22B -dp=8 --enable-expert-parallel --max-model-len 40960\n"
        "ValueError: (7.34 GiB KV cache is needed, which is larger than the available KV cache "
        "memory (5.00 GiB)."
    )
    commands = [
        change["launch_command"] for change in result_of(ask, log, "--gpu", "h200")["suggestions"]
    ]
    for command in filter(None, commands):
        assert "--data-parallel-size 8 " in command
        assert "--enable-expert-parallel" in command


def test_sglang_starts_with_a_pool_below_the_context(ask: Ask) -> None:
    """A share that leaves room for the graphs holds 25,201 tokens of the 40,960: requests of 25,200
    are served.
    """
    log = SGLANG + (
        "Load weight begin. avail mem=23.00 GB\nLoad weight end. type=Qwen3ForCausalLM, "
        "dtype=torch.bfloat16, "
        "avail mem=7.60 GB, mem usage=15.40 GB.\nKV Cache is allocated. #tokens: 30221, K size: "
        "2.08 GB, V size: 2.08 "
        "GB\nException: Capture cuda graph failed: CUDA out of memory. Tried to allocate 448.00 "
        "MiB. GPU 0 has a total "
        "capacity of 23.52 GiB of which 120.00 MiB is free.\n"
    )
    result = result_of(ask, log, "--gpu", "rtx-4090")
    assert [change["flag"] for change in result["suggestions"]] == ["--mem-fraction-static 0.82"]
    assert "up to 25,200 tokens" in ask("fit", "--gpu", "rtx-4090", "--log", "-", stdin=log).out
    jsonschema.validate(result, schema("fit"))
