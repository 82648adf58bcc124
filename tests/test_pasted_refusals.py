"""What `attncalc fit --log` says of refusals as people paste them: fragments, without the model and
most settings.

The files are lines of public threads, whose address is their first line. What a thread says of the
cause is above it.
"""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from asking import Ask
from tables import each

from attncalc.questions.schemas import schema

FOLDER = Path(__file__).parent / "data" / "engine-logs" / "doctor"
GIB, MIB = 2**30, 2**20

PASTED = [
    # a terminal of 120 columns wrapped it, and the paste ends within the message
    ("vllm-wrapped", "kv_too_small", "needs 4.26 GiB, 4.25 GiB are left", "--kv-cache-dtype fp8"),
    # the length that the engine itself prints: each of two stages has half of the cache, and vLLM
    # wants room for all
    (
        "vllm-command",
        "kv_too_small",
        "262,144 tokens needs 24.00 GiB, 3.18 GiB",
        "--max-model-len 34736",
    ),
    # 0.70 + 1.05 / 8.00 = 0.83: 0.95 leaves 0.95 GiB, and 4,096 tokens of Qwen2.5-7B are 0.22
    (
        "vllm-v0-negative",
        "nothing_left",
        "1.05 GiB larger than the engine's share (0.70 of 8.00 GiB)",
        "0.95",
    ),
    # Process 691170 is vLLM's own: it has more than the 139.21 GiB of PyTorch
    (
        "vllm-weights",
        "weights_too_large",
        "80 MiB were wanted, 60.69 MiB of 139.72 GiB were free",
        "-tp 2",
    ),
    # 212.81 MiB of them were free, which the paste cuts off
    ("vllm-make-layers", "weights_too_large", "weights did not fit: 350 MiB were wanted", "-tp 2"),
    (
        "vllm-busy-loop",
        "cache_too_large",
        "server ran, and a step ran out of memory: 50 MiB were wanted, 56.88",
        "0.85",
    ),
    # the reporter's smaller --max-running-requests did not help
    (
        "sglang-request-slots",
        "requests_limited",
        "2 request slots were wanted, 1 was free; 4 requests are running",
        "requests N",
    ),
    # the message itself asks for a lower max_num_seqs: a quarter of 1,024
    ("vllm-sampler", "cache_too_large", "the warm-up of the sampler", "--max-num-seqs 256"),
    # the reporter's remedy was to leave the estimate of the graphs out
    ("vllm-graphs", "nothing_left", "CUDA graphs of 118.65 GiB", "--enforce-eager"),
    # 23.53 - 21.69 = 1.84 GiB
    ("other-process", "memory_taken", "other processes use 21.69 GiB of the GPU's 23.53 GiB", ""),
    (
        "sglang-compose",
        "cache_too_large",
        "32 MiB were wanted, 13 MiB",
        "--mem-fraction-static 0.75",
    ),
    (
        "sglang-graphs-h20",
        "cache_too_large",
        "CUDA graphs: 448 MiB were wanted",
        "--mem-fraction-static 0.75",
    ),
    # 1 - 21.73 / (21.73 + 166.59) = 0.885
    ("sglang-negative", "nothing_left", "Weights of 166.59 GiB", "--mem-fraction-static 0.92"),
    # 1.73 + 77.66 + 0.37 GiB on a card of 79.15
    (
        "ollama-compute",
        "compute_too_large",
        "1.73 GiB were wanted, 77.66 GiB of weights",
        "OLLAMA_FLASH_ATTENTION=1",
    ),
    ("ollama-host", "host_memory", "Host memory is too small, not the GPU's: 417.66 MiB", ""),
    (
        "llamacpp-metal",
        "compute_too_large",
        "5.60 GiB are allocated, and Metal recommends at most 5.33 GiB",
        "-ub 256",
    ),
    (
        "vllm-3090-180k",
        "kv_too_small",
        "180,000 tokens needs 3.05 GiB, 2.17 GiB",
        "--max-model-len 111456",
    ),
    (
        "vllm-5090-262k",
        "kv_too_small",
        "needs 12.00 GiB, 10.91 GiB are left",
        "--kv-cache-dtype fp8",
    ),
    (
        "vllm-hybrid-l40s",
        "kv_too_small",
        "needs 8.18 GiB, 7.04 GiB are left",
        "--max-model-len 112896",
    ),
    (
        "vllm-spark-quoted",
        "kv_too_small",
        "needs 23.25 GiB, 22.50 GiB are left",
        "--max-model-len 190272",
    ),
    ("vllm-metal", "kv_too_small", "needs 16.00 GiB, 8.99 GiB are left", "--max-model-len 73680"),
    (
        "vllm-half-share",
        "kv_too_small",
        "needs 3.00 GiB, 184.32 MiB are left",
        "--max-model-len 976",
    ),
    # 96,000 * 0.67 / 3.89 = 16,535
    (
        "vllm-96k",
        "kv_too_small",
        "needs 3.89 GiB, 686.08 MiB are left",
        "--max-model-len 16384 or less",
    ),
    # 131,072 * 5.11 / 20 = 33,489
    (
        "vllm-llama-70b",
        "kv_too_small",
        "needs 20.00 GiB, 5.11 GiB are left",
        "--max-model-len 32768 or less",
    ),
    (
        "vllm-state-blocks",
        "too_many_sequences",
        "256 sequences, and the cache has 184 blocks",
        "--max-num-seqs 184",
    ),
    (
        "vllm-mi50",
        "nothing_left",
        "leave nothing of the engine's share",
        "--gpu-memory-utilization 0.95",
    ),
    (
        "vllm-negative-alone",
        "nothing_left",
        "are 501.76 MiB larger",
        "--gpu-memory-utilization 0.95",
    ),
    # 125.65 GiB and 0.912 are in the message
    ("sglang-weights-share", "nothing_left", "Weights of 125.65 GiB", "--mem-fraction-static 0.92"),
    (
        "vllm-wsl-desktop",
        "memory_taken",
        "use 1.64 GiB of the GPU's 31.84 GiB: 30.20 GiB are free",
        "",
    ),
    (
        "vllm-spark-occupied",
        "memory_taken",
        "use 82.89 GiB of the GPU's 121.63 GiB: 38.74 GiB are free",
        "drop_caches",
    ),
    (
        "vllm-gb10-half",
        "memory_taken",
        "use 63.69 GiB of the GPU's 119.56 GiB: 55.87 GiB are free",
        "drop_caches",
    ),
    # 61.27 - 17.36 - 0.18 GiB
    ("sglang-npu", "memory_taken", "use 43.73 GiB of the GPU's 61.27 GiB", ""),
    ("vllm-small-model", "cache_too_large", "594 MiB were wanted, 500.69 MiB of 79.18 GiB", "0.85"),
    # no share of any GPU has 256 GiB: an image of the largest size is profiled
    # 4 x 131,072 / 21,840 = 24.01
    (
        "vllm-v0-cpu",
        "kv_too_small",
        "131,072 tokens, and the cache holds 21,840",
        "VLLM_CPU_KVCACHE_SPACE=25",
    ),
    ("vllm-dsv4-720", "kv_too_small", "needs 1.34 GiB, 307.20 MiB are left", "--max-model-len 720"),
    # scores without flash attention: 32 heads x 512 x 70,016 x 4 B = 4.27 GiB
    (
        "llamacpp-one-buffer",
        "compute_too_large",
        "4.43 GiB were wanted, more than the device allows",
        "-fa on -ub 256",
    ),
    ("ollama-system-memory", "host_memory", "56.00 GiB were wanted, 50.30 GiB were free", ""),
    (
        "sglang-load-alone",
        "cache_full",
        "4 requests are running, 3 waiting, 100.0% of the cache is used",
        "fp8_e4m3",
    ),
    # the thread's fitting pass is aborted, and says what was free: 22,341 MiB
    (
        "llamacpp-fit-aborted",
        "compute_too_large",
        "14.31 GiB were wanted, although the GPU has 21.82 GiB free",
        "-ub",
    ),
    # graphs in private pools are captured after the cache is allocated
    (
        "vllm-private-pools",
        "cache_too_large",
        "left too little for the rest: 80 MiB were wanted, 33.94 MiB",
        "0.85",
    ),
    # 29 GiB are more than 5 % of any GPU
    (
        "vllm-xinference",
        "kv_too_small",
        "needs 36.00 GiB, 6.94 GiB are left",
        "--max-model-len 50512",
    ),
    (
        "ollama-layout",
        "out_of_memory",
        "Weights, cache and buffers did not fit",
        "OLLAMA_KV_CACHE_TYPE=q8_0",
    ),
    ("sglang-unbalanced", "memory_taken", "16.28 GiB are free on one, 46.81 GiB on another", ""),
    ("vllm-released", "memory_taken", "21.70 GiB were free, then 83.70 GiB", ""),
    (
        "vllm-derived-length",
        "context_too_long",
        "131,072 tokens was asked for, and the model's own is 8,192",
        "len 8192",
    ),
    ("vllm-image-profile", "out_of_memory", "256.00 GiB were wanted", "--skip-mm-profiling"),
]
ANONYMOUS = [
    ("sglang-aiter-workspace", "out_of_memory", "16.25 GiB were wanted, 4.23 GiB of 255.98 GiB"),
    ("sglang-long-prefill", "cache_too_large", "1.02 GiB were wanted, 837.06 MiB of 79.18 GiB"),
]
# Messages without another line of the engine.
ALONE = [
    # https://errornotes.dev/en/errors/ai-tools/fixing-valueerror-max-seq-len-is-larger-than-kv-cache-capacity-in-vllm
    (
        "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens "
        "that can be stored in "
        "KV cache. Try increasing gpu_memory_utilization or decreasing max_model_len.",
        "kv_too_small",
        "one request may have 32,768 tokens, which is more than the cache holds",
        "--max-model-len N",
    ),
    # https://github.com/sgl-project/sglang/pull/5081
    (
        "Prefill out of memory. Try to lower your batch size.Try to allocate 1444 "
        "tokens.Avaliable tokens:5120self",
        "cache_full",
        "1,444 tokens were wanted, 5,120 were free",
        "--max-running-requests 8",
    ),
    # https://github.com/vllm-project/vllm/issues/36802
    (
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 81920, "
        "Hardware limit: 65536.",
        "gpu_unsupported",
        "a kernel needs 81,920 bytes of a multiprocessor's shared memory, and this GPU has 65,536",
        "",
    ),
    # https://github.com/ollama/ollama/issues/17246
    (
        "Error: 500 Internal Server Error: model requires 20.4 GiB but only 11.3 GiB are "
        "available (after 512.0 MiB",
        "host_memory",
        "20.40 GiB were wanted, 11.30 GiB were free",
        "",
    ),
    # https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/688 and 790
    (
        "🥲 Failed to load the model\nFailed to initialize the context: failed to allocate "
        "compute pp buffers",
        "compute_too_large",
        "The compute buffer did not fit",
        "Evaluation Batch Size 256",
    ),
    (
        "error loading model: unable to allocate CUDA0 buffer",
        "weights_too_large",
        "The weights did not fit",
        "-fit on",
    ),
    # https://github.com/ollama/ollama/issues/16130
    (
        "alloc_tensor_range: failed to allocate Vulkan0 buffer of size 4697620480",
        "out_of_memory",
        "Weights, KV cache or compute buffer did not fit: 4.38 GiB",
        "-fit on",
    ),
    # https://github.com/ggml-org/llama.cpp/issues/29270
    (
        "ggml_vulkan: Device memory allocation of size 369827840 failed.",
        "out_of_memory",
        "352.70 MiB were wanted",
        "-fit on",
    ),
    # https://github.com/continuedev/continue/issues/3464, and ollama/issues/15049, which a pager
    # cut
    (
        '{"error":"requested model (18.4 GiB) is too large for this system (6.8 GiB)"}',
        "host_memory",
        "18.40 GiB were wanted, 6.80 GiB were free",
        "",
    ),
    (
        'level=WARN msg="model request too large for system" requested="338.1 GiB" '
        'available="337.2>',
        "host_memory",
        "338.10 GiB were wanted, 337.20 GiB were free",
        "",
    ),
    # https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/1562
    (
        "Not enough resources to load the model with the current settings",
        "out_of_memory",
        "LM Studio did not load it: by its estimate",
        "lms unload --all",
    ),
    # 256,000 tokens in Ollama
    (
        "ggml_aligned_malloc: insufficient memory (attempted to allocate 36000.00 MB)\n"
        "alloc_tensor_range: failed to allocate CPU buffer of size 37748736000\n"
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for "
        "kv cache "
        "(status code: 500)",
        "host_memory",
        "The cache did not fit in host memory: 35.16 GiB were wanted",
        "/set parameter num_ctx",
    ),
    # https://github.com/vllm-project/vllm/issues/8903
    (
        "ERROR: Exception in worker while processing method determine_num_available_blocks: CUDA "
        "out of memory.",
        "compute_too_large",
        "The activations of a full step did not fit",
        "--max-num-seqs 16",
    ),
    # PyTorch 2.0 and before
    (
        "RuntimeError: CUDA out of memory. Tried to allocate 23.04 GiB (GPU 0; 23.52 GiB total; "
        "0 bytes free)",
        "out_of_memory",
        "23.04 GiB were wanted, 0 B of 23.52 GiB were free",
        "",
    ),
    (
        "Triton Error [CUDA]: out of memory, exceeded",
        "out_of_memory",
        "An allocation on the GPU failed",
        "",
    ),
    # https://github.com/vllm-project/vllm/issues/18446
    (
        "Last error: Cuda failure 'out of memory'",
        "out_of_memory",
        "An allocation on the GPU failed",
        "",
    ),
    # https://github.com/vllm-project/vllm/issues/19186 and 15598
    (
        "graphs.py, line 84, in capture_end\nsuper().capture_end()\nRuntimeError: CUDA error: "
        "out of memory",
        "cache_too_large",
        "too little for the CUDA graphs",
        "--gpu-memory-utilization 0.85",
    ),
    (
        "Capturing cudagraphs for decoding.\ntorch.OutOfMemoryError: CUDA out of memory. Tried "
        "to allocate 2.00 MiB.",
        "cache_too_large",
        "CUDA graphs: 2 MiB were wanted",
        "--gpu-memory-utilization 0.85",
    ),
]


OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {} MiB. GPU 0 has a total "
    "capacity of "
)
# Pastes with the title and the cause of the program that printed them, and an option of it.
KINDS = [
    # https://github.com/ggml-org/llama.cpp/issues/15105: 640 cells of a window, which later builds
    # pad to 768
    (
        "llama_kv_cache_unified: size =  576.00 MiB ( 16384 cells,  18 layers,  1/1 seqs), K "
        "(f16):  288.00 MiB, "
        "V (f16):  288.00 MiB\nllama_kv_cache_unified_iswa: creating     SWA KV cache, size = "
        "640 cells\n"
        "llama_kv_cache_unified: size =   22.50 MiB (   640 cells,  18 layers,  1/1 seqs), K "
        "(f16):   11.25 MiB, "
        "V (f16):   11.25 MiB\nggml_vulkan: Device memory allocation of size 2221155856 failed.\n"
        "ggml_gallocr_reserve_n: failed to allocate Vulkan1 buffer of size 2221155856\n"
        "graph_reserve: failed to allocate compute buffers\n"
        "llama_init_from_model: failed to initialize the context: failed to allocate compute pp "
        "buffers\n"
        "common_init_from_params: failed to create context with model 'gpt-oss-120b-F16.gguf'",
        "gpt-oss 120B",
        "The compute buffer did not fit: 2.07 GiB were wanted",
        "-ub 256",
    ),
    # https://github.com/sgl-project/sglang/issues/5762: host memory, before any work of the GPU
    (
        'File "/env/dist-packages/sglang/srt/managers/scheduler.py", line 1984, in '
        "run_scheduler_process\n"
        "OSError: [Errno 12] Cannot allocate memory",
        "SGLang",
        "DID NOT START: host memory is full, not the GPU's",
        "more host memory or swap",
    ),
    # https://github.com/continuedev/continue/issues/9797: the command has the context that the
    # message lacks
    (
        "llama-server --model m.gguf --ctx-size 16384 --parallel 1\n"
        "400 the request exceeds the available context size, try increasing it",
        "llama.cpp",
        "longer than the server's context of 16,384 tokens",
        "-c 32768",
    ),
    # https://github.com/hiyouga/LlamaFactory/issues/9331: num_workers are not vLLM's
    (
        "stage: sft\nper_device_train_batch_size: 1\ndataloader_num_workers: 4\n"
        "torch.AcceleratorError: CUDA error: out of memory",
        "Training",
        "OUT OF MEMORY",
        "--per_device_train_batch_size 1",
    ),
    # https://github.com/vllm-project/vllm/issues/13067: a copy in int4 of a model released in fp8
    (
        "python3 -m vllm.entrypoints.openai.api_server --max-model-len 16384 "
        "--tensor-parallel-size 8 --quantization "
        "moe_wna16 --gpu-memory-utilization 0.9 --model cognitivecomputations/DeepSeek-R1-AWQ\n"
        "INFO 02-10 18:06:30 engine.py:275] Added request "
        "cmpl-30aaf466904d4d148c2e17a584f448e0-0.\n"
        "ERROR 02-10 18:06:30 engine.py:139] OutOfMemoryError('"
        + OUT_OF_MEMORY.replace("{} MiB", "1.27 GiB")
        + "79.33 GiB of which 109.81 MiB is free. Process 2377657 has 79.19 GiB memory in use. "
        "Of the allocated memory "
        "67.68 GiB is allocated by PyTorch, with 76.00 MiB allocated in private pools (e.g., "
        "CUDA Graphs)",
        "DeepSeek-V3",
        "1.27 GiB were wanted",
        "--gpu-memory-utilization 0.88",
    ),
    # https://github.com/sgl-project/sglang-jax/issues/113: a decode step wants a token for each of
    # 127 requests
    (
        "python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 4\nRuntimeError: Decode "
        "out of memory. Try to "
        "lower your batch size.\nTry to allocate 127 tokens.\nAvailable tokens: 5248",
        "Qwen3 8B",
        "127 tokens were wanted",
        "--max-running-requests 63",
    ),
    # https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/927
    (
        "Error: Model loading aborted due to insufficient system resources. Overloading the "
        "system will likely",
        "LM Studio",
        "DID NOT START: LM Studio did not load it: by its estimate",
        "lms unload --all",
    ),
    # https://github.com/sgl-project/sglang/issues/4547: SGLang calls functions of vLLM
    (
        "File "
        '"/env/lib/python3.12/site-packages/sglang/srt/managers/tp_worker_overlap_thread.py", '
        "line 111, in "
        'forward_thread_func\n  File "/env/lib/python3.12/site-packages/vllm/utils.py", line '
        "928, in _patched\n"
        'File "/env/lib/python3.12/site-packages/vllm/utils.py", line 9, in f\nRuntimeError: '
        "CUDA error: out of memory",
        "SGLang",
        "STOPPED: The server ran, and a step ran out of memory",
        "--max-running-requests 16",
    ),
    # https://github.com/QwenLM/Qwen3-VL/issues/1224: 730 + 424 + 800 MiB + 3.70 + 2.96 GiB = 8.57
    # GiB, and (23.69 - 8.57) / 23.69 = 0.638
    (
        "ERROR engine.py:389] "
        + OUT_OF_MEMORY.format("418.00")
        + "23.69 GiB of which 193.25 MiB is free. Process 1254 "
        "has 730.00 MiB memory in use. Process 1243 has 424.00 MiB memory in use. Process 1349 "
        "has 800.00 MiB memory "
        "in use. Process 1348 has 3.70 GiB memory in use. Process 1892152 has 2.96 GiB memory in "
        "use. Process 2167142 "
        "has 14.90 GiB memory in use.",
        "vLLM",
        "other processes use at least 8.57 GiB of the GPU's 23.69 GiB",
        "--gpu-memory-utilization 0.63",
    ),
    # https://github.com/sgl-project/sglang/issues/6082: 1.81 + 16.12 + 1.91 = 19.84 GiB, of ids
    # that are near
    (
        "sglang 0.4.6: "
        + OUT_OF_MEMORY.format("38.00")
        + "23.65 GiB of which 37.44 MiB is free. Process 20909 has 1.81 "
        "GiB memory in use. Process 21068 has 16.12 GiB memory in use. Process 21070 has 1.91 "
        "GiB memory in use. Of "
        "the allocated memory 1.22 GiB is allocated by PyTorch, and 220.57 MiB is reserved by "
        "PyTorch but unallocated.",
        "SGLang",
        "started together, as ranks of a server, use 19.84 GiB",
        "--disable-fast-image-processor",
    ),
    # https://github.com/vllm-project/vllm/issues/18115: a paste has lost a line break. One of 11.5
    # % more is 103.4 %
    (
        "[loggers.py:118] Engine 000: Running: 7 reqs, Waiting: 0 reqs, GPU KV cache usage: "
        "91.2%, Prefix cache hit "
        "rate: 0.0%INFO [loggers.py:118] Engine 000: Running: 8 reqs, Waiting: 0 reqs, GPU KV "
        "cache usage: 91.9%",
        "vLLM",
        "LOAD: 8 requests are running, 0 waiting, 91.9% of the cache is used: it holds 8",
        "--kv-cache-dtype fp8",
    ),
    (
        "Decode batch. #running-req: 3, #token: 9071, token usage: 0.12, #queue-req: 0,",
        "SGLang",
        "LOAD: 3 requests are running, 0 waiting, 12.0% of the cache is used: no request waits",
        "",
    ),
    (
        "slot update_slots: id 0 | task 12 | new prompt, n_ctx_slot = 8192, n_keep = 0, "
        "task.n_tokens = 5321",
        "llama.cpp",
        "NO FAILURE: the server runs: a prompt of 5,321 tokens was computed in a slot of 8,192",
        "",
    ),
    (
        "gemma3:27b a418f5838eaf 25 GB 31%/69% CPU/GPU 32768",
        "Ollama",
        "NO FAILURE: the model runs, 31% of it",
        "num_ctx",
    ),
    (
        "[GIN] 2025/11/03 - 12:00:01 | 200 | 3.2s | 127.0.0.1\n[GIN] 2025/11/03 - 12:00:31 | 500 "
        "| 41.2s | 127.0.0.1",
        "Ollama",
        "NO RESULT: the server answered a request with an error (500)",
        "journalctl",
    ),
    (
        '{"time":"2026-03-02T10:00:00Z","msg":"load failed","error":"llama-server process has '
        "terminated: "
        'exit status 1: failed to allocate buffer for kv cache"}',
        "Ollama",
        "DID NOT START: The cache did not fit",
        "OLLAMA_KV_CACHE_TYPE=q8_0",
    ),
    # typed by hand
    (
        "Not enough memory, please try to increase mem-fraction-static",
        "SGLang",
        "leave nothing of the engine's share",
        "--mem-fraction-static 0.92",
    ),
    (
        "models max seq len 131072 is larger than the maximum number of tokens that can be "
        "stored in KV cache 43152",
        "vLLM",
        "one request may have 131,072 tokens, and the cache holds 43,152",
        "--max-model-len 43152",
    ),
    (
        "CUDA out of memroy. Tried to allocate 1.5 GiB. GPU 0 has a total capacity of 15.9GiB of "
        "which 300 MiB is free",
        "PyTorch",
        "1.50 GiB were wanted, 300 MiB of 15.90 GiB were free",
        "smaller batch",
    ),
    # tracebacks that end before their message
    (
        'Traceback (most recent call last):\n  File "/vllm/v1/worker/gpu_worker.py", line 247, in '
        "determine_available_memory\n    self.model_runner.profile_run()",
        "vLLM",
        "within an error, before its message, while it measured a full step",
        "if memory is short",
    ),
    (
        "[2025-11-02 10:11:12 TP0] Scheduler hit an exception: Traceback (most recent call "
        "last):\n  File "
        '"/sglang/srt/model_executor/cuda_graph_runner.py", line 380, in __init__\n    '
        "self.capture()\nKilled",
        "SGLang",
        "NO RESULT: The log ends within an error, before its message, while it captured CUDA",
        "-bs 4",
    ),
    # https://github.com/ggml-org/llama.cpp/issues/13085: CUDA's words beside llama.cpp's lines
    (
        "ggml_cuda_init: found 3 CUDA devices:\n`llama-server -m m.gguf`\nThe models load fine. "
        "When the first request "
        "is received, a CUDA out of memory error occurs:",
        "llama.cpp",
        "OUT OF MEMORY: An allocation on the GPU failed.",
        "-fit on",
    ),
    # https://github.com/vllm-project/vllm/issues/14376: two servers of 0.2
    (
        "--gpu-memory-utilization 0.2\nERROR core.py:291] ValueError: No available memory for "
        "the cache blocks.",
        "vLLM",
        "leave nothing of the engine's share (0.2)",
        "--gpu-memory-utilization 0.4: both shares",
    ),
    # what is neither free nor PyTorch's is less than CUDA's own contexts may take: 14.75 - 13.72 -
    # 0.01 = 1.02 GiB
    (
        '{"error":"CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 14.75 GiB total '
        "capacity; 13.59 GiB already "
        'allocated; 10.81 MiB free; 13.72 GiB reserved in total by PyTorch)"}',
        "PyTorch",
        "20 MiB were wanted, 10.81 MiB of 14.75 GiB were free",
        "",
    ),
    # https://github.com/th1nhhdk/local_ai_ocr/issues/11: 730 - 685.25 = 44.75 MiB
    (
        "Error during inference: CUDA out of memory. Tried to allocate 730.00 MiB. GPU 0 has a "
        "total capacity of 7.57 "
        "GiB of which 685.25 MiB is free. Including non-PyTorch memory, this process has 6.89 "
        "GiB memory in use. Of "
        "the allocated memory 6.68 GiB is allocated by PyTorch, and 97.46 MiB is reserved by "
        "PyTorch but unallocated.",
        "PyTorch",
        "730 MiB were wanted, 685.25 MiB of 7.57 GiB were free",
        "expandable_segments:True",
    ),
]


def ask_of(ask: Ask, name: str, *options: str) -> Any:
    return ask("fit", *options, "--log", str(FOLDER / f"pasted-{name}.log"))


@each(("name", "cause", "reason", "option"), PASTED)
def test_a_pasted_refusal_has_a_cause_and_what_to_change(
    ask: Ask, name: str, cause: str, reason: str, option: str
) -> None:
    answer = ask_of(ask, name, "--json")
    result = json.loads(answer.out)
    jsonschema.validate(
        result, schema(result["schema"].removeprefix("attncalc.").partition("/")[0])
    )
    refusal = result["refusal"]
    assert (answer.code, refusal["cause"]) == (1, cause)
    assert reason in refusal["reason"]
    assert option in refusal["advice"][0]["option"]
    screen = ask_of(ask, name)
    assert screen.code == 1
    assert screen.err == "" or "counts what others hold" in screen.err
    assert len(screen.out.splitlines()) <= 24
    assert max(map(len, screen.out.splitlines())) <= 80


@each(("text", "title", "reason", "option"), KINDS)
def test_a_paste_has_the_cause_and_the_options_of_the_program_that_printed_it(
    ask: Ask, text: str, title: str, reason: str, option: str
) -> None:
    answer = ask("fit", "--log", "-", stdin=text)
    screen, said = answer.out, " ".join(answer.out.split())
    assert answer.code == (0 if "NO FAILURE" in said or "no request waits" in said else 1)
    assert f"{title} " in f"{said} "
    assert re.match("[A-Z ]+: ", said)
    assert reason in said
    assert option in said
    assert len(screen.splitlines()) <= 24


# Sentences of people, without a line or a message of an engine.
SENTENCES = [
    "OOM on a 4090",
    "out of memory on my 4090 with 8k context",
    "My sglang server dies after 2 hours, out of memory",
    "vLLM on a 3090 needs at least 30 GB, but I have 24",
    "my llama-server crashed with an out of memory error at 100k tokens",
    "serve it with 2 A10: oom\nvllm/vllm-openai:v0.6.2 --tensor-parallel-size 2",
    "sglang serve --model-path m --tp 16\nfails during graph capture with an out-of-memory error",
    "vllm serve m works without OOM",
    "llama-server hangs. No OOM, no error",
    "How do I avoid OOM in sglang?",
    "Will Qwen3-32B run out of memory on a 4090 with vllm?",
    "# lower this if you get OOM\nvllm serve m",
    "vllm serve m --max-model-len 8192: it does not run out of memory",
    "I fixed the OOM, now it works with 8192: vllm serve m",
    "vllm serve m --gpu-memory-utilization 0.8 # leave room against OOM",
    "INFO server: OutOfMemoryHandler registered",
]


@each("text", SENTENCES)
def test_sentences_of_people_are_no_log(ask: Ask, tmp_path: Path, text: str) -> None:
    file = tmp_path / "post.txt"
    file.write_text(text, encoding="utf-8")
    for source in ("-", str(file)):
        assert "neither the size of a cache nor a message" in ask(
            "fit", "--log", source, stdin=text
        ).error.replace("\n", " ")


def test_words_beside_the_lines_of_a_server_that_runs_are_not_read(ask: Ask) -> None:
    line = "slot release: id 0 | stop processing: n_tokens = 5621, truncated = 0"
    answer = ask("fit", "--log", "-", stdin=f"My llama-server crashes with OOM:\n{line}")
    assert answer.out == ask("fit", "--log", "-", stdin=line).out
    assert answer.code == 0


def test_a_launch_that_did_not_start_ran_out_of_memory(ask: Ask) -> None:
    assert (
        ask("fit", "--log", "-", stdin="vllm serve m\nIt doesn't start, CUDA out of memory").code
        == 1
    )


def test_what_a_command_has_already_is_not_advised(ask: Ask) -> None:
    text = "sglang serve --model-path m --cuda-graph-max-bs 2 --tp 2\nException: Capture cuda graph failed: CUDA out of memory"
    assert "--cuda-graph-max-bs" not in ask("fit", "--log", "-", stdin=text).out
    assert (
        "--cuda-graph-max-bs 4"
        in ask("fit", "--log", "-", stdin=text.replace("-bs 2", "-bs 8")).out
    )


def test_gpus_of_different_names_are_not_several_of_the_first(ask: Ask) -> None:
    text = "  Device {}: NVIDIA GeForce RTX {}, compute capability 8.9, VMM: yes"
    log = (
        "ggml_cuda_init: found 2 CUDA devices:\n{}\n{}\nllama-server -m Qwen3-8B-Q8_0.gguf\n"
        "CUDA error: out of memory"
    )
    heading = ask(
        "fit", "--log", "-", stdin=log.format(text.format(0, 4090), text.format(1, 3060))
    ).out
    assert "llama.cpp on 2 GPUs" in heading
    assert (
        "2 x NVIDIA"
        in ask(
            "fit", "--log", "-", stdin=log.format(text.format(0, 4090), text.format(1, 4090))
        ).out
    )


@each(("message", "cause", "reason", "option"), ALONE)
def test_a_message_alone_is_read_as_a_log(
    ask: Ask, message: str, cause: str, reason: str, option: str
) -> None:
    refusal = ask("fit", "--log", "-", "--json", stdin=message).document["refusal"]
    assert (refusal["cause"], refusal["reason"].count(reason)) == (cause, 1)
    assert option in refusal["advice"][0]["option"]


@pytest.mark.parametrize("column", range(150, 176))
def test_a_message_that_a_terminal_wrapped_once_is_joined(ask: Ask, column: int) -> None:
    """Its two rows are of any length: '(1.7' and '1 GiB)' are not 1 GiB."""
    message = (
        "(EngineCore_DP0 pid=6880) ValueError: To serve at least one request with the models's "
        "max seq len (131072), "
        "(4.54 GiB KV cache is needed, which is larger than the available KV cache memory (1.71 "
        "GiB)."
    )
    rows = f"{message[:column]}\n{message[column:]}"
    assert "needs 4.54 GiB, 1.71 GiB are left" in ask("fit", "--log", "-", stdin=rows).out


def advice_of(ask: Ask, log: str) -> list[str]:
    return [
        each["option"]
        for each in ask("fit", "--log", "-", "--json", stdin=log).document["refusal"]["advice"]
    ]


def test_a_context_beyond_the_trained_one_is_shortened_to_it(ask: Ask) -> None:
    """1,632,174,080 B of 1,500,160 tokens are 1,088 per token: 1,024 elements in q8_0, so that q8_0
    is no change.
    """
    log = (
        "W llama_context: n_ctx_seq (1500160) > n_ctx_train (262144) -- possible training "
        "context overflow\n"
        "alloc_tensor_range: failed to allocate Vulkan0 buffer of size {}\n"
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for "
        "kv cache\n"
    )
    assert advice_of(ask, log.format(1_500_160 * 1088))[:2] == ["-c 262144", "-np 1"]
    in_f16 = ["-c 262144", "-fa on -ctk q8_0 -ctv q8_0"]
    assert advice_of(ask, log.format(1_500_160 * 2048))[:2] == in_f16


def test_llama_bench_and_a_dense_model_have_options_of_their_own(ask: Ask) -> None:
    """512 + 32 tokens of the tests, of a context of 131,072; 40,184 MiB are 39.24 GiB."""
    failed = (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 40184.00 MiB on device 0: "
        "cudaMalloc failed: out of "
        "memory\nllama_model_load: error loading model: unable to allocate CUDA0 buffer\n"
        "main: error: failed to load model 'Llama-3.3-70B-Instruct-Q4_K_M.gguf'\n"
    )
    assert advice_of(ask, failed)[:2] == ["-fit on", ""]
    assert "more GPUs: it divides the layers" in ask("fit", "--log", "-", stdin=failed).out
    bench = f"$ llama-bench -m Llama-3.3-70B-Instruct-Q4_K_M.gguf -p 512 -n 32\n{failed}"
    assert advice_of(ask, bench)[0] == "-fitt 1024"
    asked = ask("fit", "--gpu", "rtx-4090", "--log", "-", "--json", stdin=bench).document
    assert (asked["workload"]["context"], asked["suggestions"][0]["launch_command"]) == (544, None)
    assert "39.24 GiB were wanted, the GPU has 23.51 GiB" in asked["refusal"]["reason"]
    served = (
        "ollama run qwen3:32b\nError: llama runner process has terminated: cudaMalloc failed: out "
        "of memory"
    )
    assert ask("fit", "--log", "-", "--json", stdin=served).document["model"]["name"] == "qwen3-32b"


METRICS = (
    "# TYPE vllm:num_requests_running gauge\n"
    'vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-8B"} 8.0\n'
    'vllm:num_requests_running{engine="1",model_name="Qwen/Qwen3-8B"} 4.0\n'
    'vllm:num_requests_waiting{engine="0"} 30.0\nvllm:kv_cache_usage_perc{engine="0"} 0.97\n'
    'vllm:kv_cache_usage_perc{engine="1"} 0.5\nvllm:num_preemptions_total{engine="0"} 51.0\n'
)


@each(
    ("text", "reason"),
    [
        (
            METRICS,
            "12 requests are running, 30 waiting, 97.0% of the cache is used: it holds 12 such "
            "requests; running requests were preempted: they lost their cache",
        ),
        (
            "vllm:kv_cache_usage_perc 0.97, vllm:num_preemptions_total 51",
            "97.0% of the cache is used; running requests were preempted: they lost their cache",
        ),
        (
            'sglang:token_usage{x="y"} 0.99 sglang:num_running_reqs 7',
            "7 requests are running, 0 waiting, 99.0% of the cache",
        ),
    ],
)
def test_metrics_are_read_as_the_line_about_the_load(ask: Ask, text: str, reason: str) -> None:
    """Requests of all ranks together, and the usage of the fullest: 8 + 4, and 0.97 of 0.97 and
    0.5.
    """
    result = ask("fit", "--log", "-", "--json", stdin=text).document["refusal"]
    assert (result["cause"], result["reason"].startswith(reason)) == ("cache_full", True)
    options = {each["option"] for each in result["advice"]}
    assert "--max-num-seqs 1" not in options


def test_layers_that_fit_are_counted_from_what_is_free(ask: Ask) -> None:
    """0.9 x 24,000 / 48,000 of 80 layers are 36. Without these figures llama.cpp can choose
    them.
    """
    failed = (
        "load_tensors: loading model tensors, this can take a while...\n"
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 48000.00 MiB on device 0: "
        "cudaMalloc failed: out of "
        "memory\nalloc_tensor_range: failed to allocate CUDA0 buffer of size 50331648000\n"
    )
    assert advice_of(ask, failed)[:2] == ["-fit on", "--n-cpu-moe N"]
    free = (
        "llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 4090) - 24000 "
        "MiB free\n"
    )
    assert advice_of(ask, f"{free}print_info: n_layer = 80\n{failed}")[0] == "-ngl 36"


def test_an_estimate_of_lm_studio_is_not_that_of_the_models_maximum(ask: Ask) -> None:
    """273.25 GB are of a context of 1,024,000 tokens, and not of 128,000.

    https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/1202
    """
    log = (
        "Loading model mistralai/mistral-nemo-instruct-2407 Q4_K_M shows error message: Model "
        "loading was stopped due "
        "to insufficient system resources. Under the current settings, this model requires "
        "approximately 273.25 GB of "
        "memory"
    )
    result = ask("fit", "--log", "-", "--gpu", "24GB", "--json", stdin=log).document
    assert (result["model"]["name"], result["suggestions"]) == ("mistral-nemo-12b", [])
    assert "273.25 GB (254.48 GiB) were wanted" in result["refusal"]["reason"]
    assert result["refusal"]["advice"][0]["option"] == "lms load --context-length 8192"
    assert "with --context, changes are computed" in " ".join(result["notes"])
    given = ask("fit", "--log", "-", "--gpu", "24GB", "-c", "1000K", "--json", stdin=log).document
    assert given["suggestions"]


def test_the_cache_that_did_not_fit_shows_the_context(ask: Ask) -> None:
    """16 layers x 2 x 4 heads x 256 x 2 B are 64 KiB per token of Qwen3.5-27B: 2 GiB are 32,768, of
    262,144.
    """
    log = (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 2048.00 MiB on device 0: "
        "cudaMalloc failed: "
        "out of memory\n"
        "alloc_tensor_range: failed to allocate ROCm0 buffer of size 2147483648\n"
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for "
        "kv cache\n"
        "common_init_result: failed to create context with model "
        "'/home/b/Qwen3.5-27B-Q4_K_M.gguf'\n"
    )
    result = ask("fit", "--log", "-", "--gpu", "rx-9070-xt", "--json", stdin=log).document
    assert (result["workload"]["context"], result["refusal"]["cause"]) == (32_768, "kv_too_small")
    assert any("Context 32,768: by the size of the cache" in note for note in result["notes"])
    given = ask(
        "fit", "--log", "-", "--gpu", "rx-9070-xt", "-c", "64K", "--json", stdin=log
    ).document
    assert given["workload"]["context"] == 65_536
    # what one of several GPUs needs is the cache of some layers only
    part = ask("fit", "--log", "-", "--json", stdin=log.replace("device 0", "device 3")).document
    assert part["workload"]["context"] == 262_144


def test_a_log_that_ends_while_layers_are_chosen_has_no_result(ask: Ask) -> None:
    """410,593 and 97,017 MiB, of https://github.com/ggml-org/llama.cpp/pull/16653."""
    line = (
        "llama_params_fit_impl: projected to use {} MiB of device memory vs. 97017 MiB of free "
        "device memory"
    )
    answer = ask("fit", "--log", "-", stdin=line.format(410_593))
    assert "NO RESULT" in answer.out
    assert "all of it needs 400.97 GiB, and 94.74 GiB are free" in answer.out
    assert (
        "neither the size of a cache" in ask("fit", "--log", "-", stdin=line.format(90_000)).error
    )


def test_lines_of_a_traceback_without_its_message_have_no_result(ask: Ask) -> None:
    line = 'File "/opt/vllm/v1/worker/gpu_worker.py", line 538, in initialize_from_config\n'
    assert "ends within an error, before its message" in ask("fit", "--log", "-", stdin=line).out


def test_the_lines_of_slots_show_that_llama_server_ran(ask: Ask) -> None:
    """https://github.com/TheTom/llama-cpp-turboquant/issues/72 and
    https://github.com/ggml-org/llama.cpp/issues/20509
    """
    slot = "slot update_slots: id  2 | task 10391 | prompt processing progress, n_tokens = 40960\n"
    answer = ask(
        "fit",
        "--log",
        "-",
        stdin=f"{slot}CUDA error: out of memory\n  current device: 0, in function alloc\n",
    )
    assert "STOPPED: The server ran, and a step ran out of memory" in answer.out
    killed = ask(
        "fit",
        "--log",
        "-",
        "--json",
        stdin=f"{slot}Failed with result 'oom-kill'.\nkilled by the OOM killer\n",
    )
    assert (killed.document["engine"], killed.document["refusal"]["cause"]) == (
        "llamacpp",
        "host_memory",
    )


def test_a_message_of_mlx_has_its_options(ask: Ask) -> None:
    """36,507,222,016 / 2^30 = 34.00 GiB."""
    tried = (
        "[metal::malloc] Attempting to allocate {} bytes which is greater than the maximum "
        "allowed buffer size of {}"
    )
    answer = ask(
        "fit",
        "--log",
        "-",
        stdin=f"RuntimeError: {tried} bytes.".format(36_507_222_016, 22_613_000_192),
    )
    assert "\nMLX  message\n" in answer.out
    assert "one buffer of 34.00 GiB was wanted, and Metal allows at most 21.06 GiB" in " ".join(
        answer.out.split()
    )


@each(("name", "cause", "reason"), ANONYMOUS)
def test_a_log_that_names_no_engine_is_that_of_the_option(
    ask: Ask, name: str, cause: str, reason: str
) -> None:
    """The messages are PyTorch's, whose advice they get, and the note says how to get an engine's.

    The address of SGLang's thread names it.
    """
    assert "\nSGLang  " in ask_of(ask, name).out
    lines = (FOLDER / f"pasted-{name}.log").read_text(encoding="utf-8").partition("\n")[2]
    alone = " ".join(ask("fit", "--log", "-", stdin=lines).out.split())
    assert "--engine " in alone
    refusal = ask("fit", "--log", "-", "--engine", "sglang", "--json", stdin=lines).document[
        "refusal"
    ]
    assert refusal["cause"] == cause
    assert reason in refusal["reason"]
    assert refusal["advice"][0]["option"] == "--mem-fraction-static 0.75"
    wrong = ask_of(ask, "vllm-96k", "--engine", "sglang")
    assert (wrong.code, "cannot be combined with a log of vLLM" in wrong.err) == (2, True)


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ("Possible solutions: set --mem-fraction-static to a smaller value", "sglang"),
        (
            "  current device: 0, in function alloc at /app/ggml/src/ggml-cuda/ggml-cuda.cu:385",
            "llamacpp",
        ),
        ("torch.OutOfMemoryError: CUDA out of memory.", "vllm"),
    ],
)
def test_a_line_that_names_an_engine_counts_more_than_messages_of_cuda(
    ask: Ask, line: str, engine: str
) -> None:
    log = f"CUDA error: out of memory\nCUDA error: out of memory\n{line}\n"
    result = ask("fit", "--log", "-", "--json", stdin=log).document
    assert (result["engine"], result["refusal"]["cause"]) == (engine, "out_of_memory")


def test_a_traceback_without_its_cause_asks_for_the_lines_above(ask: Ask) -> None:
    for message in (
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core "
        "proc(s): {'EngineCore': 1}",
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
    ):
        answer = ask("fit", "--log", "-", stdin=message)
        assert (answer.code, "NO RESULT: the message only follows" in answer.out) == (1, True)
        assert "give the lines above it too" in answer.out


def test_what_ollama_has_available_is_read(ask: Ask) -> None:
    log = (
        'msg="gpu memory" id=GPU-1 library=CUDA available="6.8 GiB" free="7.3 GiB"\nmemory layout '
        "cannot be allocated"
    )
    answer = ask("fit", "--log", "-", stdin=log)
    assert "Weights, cache and buffers did not fit: the GPU has 6.80 GiB" in answer.out


def test_only_what_the_log_shows_is_known_to_start(ask: Ask) -> None:
    advice = json.loads(ask_of(ask, "vllm-command", "--json").out)["refusal"]["advice"]
    assert [each["option"] for each in advice if each["known"]] == ["--max-model-len 34736"]


@pytest.mark.parametrize(
    ("log", "larger"),
    # 0.90 of 80 GiB leaves 4 GiB up to 0.95: 3 of them are 3.75 %, and 5 are more; a GPU of unknown
    # memory has 80
    [
        (
            "(20/80 GiB) gpu_memory_utilization=0.9 SIZE (6.0 GiB KV cache is needed ... memory "
            "(3.0 GiB)",
            "above 0.94",
        ),
        (
            "(20/80 GiB) gpu_memory_utilization=0.9 SIZE (6.0 GiB KV cache is needed ... memory "
            "(1.0 GiB)",
            "",
        ),
        ("SIZE (16.0 GiB KV cache is needed ... memory (13.0 GiB)", "a larger share"),
        ("SIZE (16.0 GiB KV cache is needed ... memory (11.0 GiB)", ""),
    ],
)
def test_a_larger_share_is_only_advised_if_it_can_be_enough(
    ask: Ask, tmp_path: Path, log: str, larger: str
) -> None:
    text = log.replace("SIZE", "max_model_len=32768 vLLM").replace(
        "...", "larger than the available KV cache"
    )
    (tmp_path / "a.log").write_text(
        f"Free memory on device cuda:0 {text}.".replace("cuda:0 max", "max")
    )
    advice = ask("fit", "--log", str(tmp_path / "a.log"), "--json").document["refusal"]["advice"]
    changes = [
        each["change"] for each in advice if each["option"].startswith("--gpu-memory-utilization")
    ]
    assert [larger in change for change in changes] == [True] * bool(larger)


def test_smaller_steps_and_more_gpus_are_advised_where_a_short_context_is_no_help(ask: Ask) -> None:
    """1.04 GiB are missing; 16 sequences per step are in the command already."""
    advice = json.loads(ask_of(ask, "vllm-dsv4-720", "--json").out)["refusal"]["advice"]
    assert [each["option"] for each in advice[1:]] == ["--max-num-batched-tokens 2048", "-tp 8"]


@pytest.mark.parametrize(
    ("needed", "left", "options", "more"),
    [
        # https://jishuzhan.net/article/2002605617710694401
        # 36 / 2 is more than 7.84 + 2 / 2, and 36 / 4 less than 7.84 + 3 / 4 x 2
        (36.00, 7.84, (), ["-tp 4"]),
        # https://github.com/wtdcode/vllm-backport/issues/15 runs on 8
        (1.8, 0.35, ("--gpu", "8xrtx-3090"), ["-tp 16"]),
        (1.8, 0.35, ("--tp", "4"), ["-tp 8"]),
        # 36 / 8 is more than 0.18 + 7 / 8 x 2
        (36.00, 0.18, (), []),
    ],
)
def test_more_gpus_are_more_than_are_used_and_hold_one_request(
    ask: Ask, needed: float, left: float, options: tuple[str, ...], more: list[str]
) -> None:
    log = (
        f"({needed} GiB KV cache is needed, which is larger than the available KV cache memory "
        f"({left} GiB)"
    )
    advice = ask("fit", *options, "--log", "-", "--json", stdin=log).document["refusal"]["advice"]
    assert [each["option"] for each in advice if each["option"].startswith("-tp")] == more


def test_a_command_has_the_repository_that_was_typed(ask: Ask) -> None:
    """Its preset is of Qwen2.5-32B, which has the same sizes."""
    log = (
        "ValueError: To serve at least one request with the models's max seq len (32768), (8.00 "
        "GiB KV cache is "
        "needed, which is larger than the available KV cache memory (4.46 GiB)."
    )
    asked = ("Qwen/Qwen2.5-Coder-32B-Instruct", "--gpu", "h100-80gb", "--json")
    result = ask("fit", *asked, "--log", "-", stdin=log).document
    assert result["suggestions"][0]["launch_command"].startswith(
        "vllm serve Qwen/Qwen2.5-Coder-32B-Instruct "
    )


@pytest.mark.parametrize(
    ("model", "needed", "newest"),
    # 0.13 prints two decimals, 0.14 none that are 0; 0.22 corrects "models's"
    [("models's", "8.00", "0.13.0"), ("models's", "8.0", "0.21.0"), ("models's", "8.25", "0.21.0")],
)
def test_the_words_of_a_refusal_show_how_old_vllm_is(
    ask: Ask, model: str, needed: str, newest: str
) -> None:
    log = (
        f"ValueError: To serve at least one request with the {model} max seq len (32768), "
        f"({needed} GiB KV cache is "
        "needed, which is larger than the available KV cache memory (4.46 GiB)."
    )
    result = ask("fit", "qwen2.5-32b", "--log", "-", "--json", stdin=log).document
    assert result["engine_version"] == newest
    corrected = log.replace("models's", "model's").replace(f"({needed} ", "(8.0 ")
    assert (
        ask("fit", "qwen2.5-32b", "--log", "-", "--json", stdin=corrected).document[
            "engine_version"
        ]
        == "0.33.0"
    )


def test_python_arguments_of_vllm_are_read(ask: Ask) -> None:
    """max_model_len=30_000 and kv_cache_dtype="fp8" of LLM(...). vLLM itself estimates 13,528
    tokens.
    """
    result = json.loads(ask_of(ask, "vllm-python-arguments", "--json").out)
    assert (result["workload"]["context"], result["workload"]["kv_dtype"]) == (30_000, "fp8")
    assert [change["flag"] for change in result["suggestions"]] == ["--context 13524"]


def test_the_first_change_is_the_context_of_the_users_requests(ask: Ask) -> None:
    """4,096 + 1,024 tokens."""
    answer = ask_of(ask, "vllm-python-arguments", "--prompt", "4K", "--output-len", "1K", "--json")
    changes = [change["flag"] for change in json.loads(answer.out)["suggestions"]]
    assert changes == ["--context 5120", "--context 13524"]


def test_processes_that_hold_most_of_a_gpu_are_ended_before_anything_else(ask: Ask) -> None:
    """Beside 132 of 140 GiB, 32 GPUs would be needed for 43.75 GiB of weights."""
    options = ("mixtral-8x7b", "--weights-dtype", "fp8", "--json")
    result = json.loads(ask_of(ask, "vllm-occupied-h200", *options).out)
    assert result["refusal"]["available"] == int(7.34 * GIB)
    (change,) = result["suggestions"]
    assert (change["change"], change["flag"]) == ("the other processes ended", "")
    assert "--tensor-parallel-size" not in change["launch_command"]


def test_a_log_of_ollama_advises_no_command_of_llamacpp(ask: Ask) -> None:
    """Its environment has other names, and --n-cpu-moe is not among them."""
    options = ("mixtral-8x22b", "--gpu", "a100-80gb-pcie", "--weights-dtype", "q5_k_m", "--json")
    result = json.loads(ask_of(ask, "ollama-compute", *options).out)
    flags = [change["flag"] for change in result["suggestions"]]
    assert "--n-gpu-layers 46" in flags  # one fewer than the log offloads
    assert not any("--n-cpu-moe" in flag for flag in flags)
    assert all(change["launch_command"] is None for change in result["suggestions"])
    assert any("num_gpu" in note for note in result["notes"])


def test_a_model_replaces_what_the_log_suggests_by_changes_that_are_computed(ask: Ask) -> None:
    """9.1 GiB of bf16 weights less than the estimate are a checkpoint in int4, which needs no
    narrower weights.
    """
    model = str(FOLDER.parent / "models" / "qwen2.5-7b.json")
    result = json.loads(ask_of(ask, "vllm-v0-negative", model, "--gpu", "rtx-4060", "--json").out)
    assert result["refusal"]["advice"] == []
    flags = [change["flag"] for change in result["suggestions"]]
    assert flags[0] == "--gpu-memory-utilization 0.95"
    assert not any("--weights-dtype" in flag for flag in flags)
    # the name of a checkpoint in int4 is not known
    assert result["suggestions"][0]["launch_command"] is None


def test_a_quantized_copy_is_known_by_its_name(ask: Ask) -> None:
    """32 GiB in fp8 leave room in an L40S; the copy is quantized, so its command has no
    --quantization.
    """
    log = (
        "vllm serve /models/Qwen3-32B-FP8 --max-model-len 40960\n"
        "ValueError: (10.0 GiB KV cache is needed, which is larger than the available KV cache "
        "memory (3.88 GiB)."
    )
    result = ask("fit", "--gpu", "l40s", "--log", "-", "--json", stdin=log).document
    assert (result["model"]["name"], result["refusal"]["cause"]) == ("qwen3-32b", "kv_too_small")
    command = result["suggestions"][0]["launch_command"]
    assert command.startswith("vllm serve /models/Qwen3-32B-FP8 ")
    assert "--quantization" not in command


def test_a_share_in_a_pasted_command_stays_in_the_advised_one(ask: Ask) -> None:
    """1.71 GiB were left at 0.95: at the default share there is less."""
    log = (
        "vllm serve openai/gpt-oss-120b --gpu-memory-utilization 0.95 --max-num-batched-tokens "
        "1024\n"
        "(EngineCore_DP0 pid=6880) ValueError: To serve at least one request with the models's "
        "max seq len (131072), "
        "(4.54 GiB KV cache is needed, which is larger than the available KV cache memory (1.71 "
        "GiB).\n"
    )
    result = ask("fit", "--log", "-", "--json", stdin=log).document
    assert all(
        "--gpu-memory-utilization 0.95" in change["launch_command"]
        for change in result["suggestions"]
    )


def test_weights_that_were_loaded_are_never_called_too_large(ask: Ask, tmp_path: Path) -> None:
    """The compute buffer failed, so all layers were there: 57 GiB in bf16 on 24 contradict it."""
    model = str(FOLDER.parent / "models" / "gemma-4-31b.json")
    options = (model, "--gpu", "rtx-3090", "--weights-dtype", "bf16", "--json")
    log = tmp_path / "start.log"
    layers = "load_tensors: offloaded 61/61 layers to GPU\n"
    log.write_text(layers + (FOLDER / "pasted-llamacpp-metal.log").read_text())
    refusal = ask("fit", *options, "--log", str(log)).document["refusal"]
    assert refusal["cause"] == "other_model"
    assert "the weights were loaded" in refusal["reason"]


def test_a_server_that_ran_out_of_memory_is_not_refused_for_its_weights(ask: Ask) -> None:
    """Its checkpoint was quantized: 51 GiB in bf16 are no cause, since the server ran on 23.56."""
    answer = ask_of(ask, "vllm-busy-loop", "qwen3.6-27b", "--gpu", "rtx-3090")
    assert "STOPPED: The server ran, and a step ran out of memory: 50 MiB were wanted" in answer.out
    assert "--weights-dtype may be missing" in answer.out


def test_a_server_that_refuses_a_request_is_no_failed_start(ask: Ask) -> None:
    answer = ask_of(ask, "vllm-long-request")
    assert "REQUEST REFUSED: a request of 122,946 tokens" in answer.out
    assert "context of 16,384 tokens, by 106,562." in " ".join(answer.out.split())


def test_an_allocation_that_was_retried_is_no_refusal(ask: Ask) -> None:
    """51,748.72 MiB are 50.54 GiB."""
    answer = ask_of(ask, "llamacpp-retry")
    assert (
        "NO FAILURE: 50.54 GiB of buffers for pipeline parallelism did not fit on GPU 1"
        in " ".join(answer.out.split())
    )


def test_weights_are_not_converted_where_the_gpu_cannot_hold_them_first(ask: Ask) -> None:
    """vLLM 0.11 holds the 61 GiB in bf16 before it converts them, on a GPU of 47.5; 0.15 converts
    each layer.
    """
    log = str(FOLDER / "vllm-weights-oom.log")
    commands = {}
    for version in ("0.11.0", "0.15.0"):
        result = ask("fit", "--log", log, "--engine-version", version, "--json").document
        commands[version] = {
            change["flag"]: change["launch_command"] for change in result["suggestions"]
        }
    assert commands["0.11.0"]["--weights-dtype fp8"] is None
    assert "--quantization fp8" in commands["0.15.0"]["--weights-dtype fp8"]
