"""What is read from single lines of a start-up log of vLLM: settings, figures, and why it did not
start.
"""

import pytest
from tables import each

from attncalc.logs.startup_log import LogRefusal, Printed, StartupLog
from attncalc.logs.vllm import read_log

GIB = 2**30
TOKENS = "GPU KV cache size: 7,280 tokens"


def read(*lines: str) -> StartupLog:
    """Return the contents of a log that has these lines and the size of its cache."""
    log = read_log([*lines, TOKENS])
    assert log is not None
    return log


@pytest.mark.parametrize(
    ("lines", "version"),
    [
        ((), None),
        (("vLLM API server version 0.8.4",), "0.8.4"),
        (("vLLM version v0.10.1",), "0.10.1"),
        (("Initializing a V1 LLM engine (v0.11.0) with config: dtype=bf16",), "0.11.0"),
        (("Initializing an LLM engine (v0.6.3.post1) with config:",), "0.6.3"),
        (("Initializing a V1 LLM engine (v0.20.1.dev0+g101584af0.d20260424) with",), "0.20.1.dev0"),
        (("Initializing a V0 LLM engine (v0.8.5) with config:",), "v0"),
        # the engine's own line goes first, and the server's before any other
        (
            ("vLLM API server version 0.8.4", "Initializing a V1 LLM engine (v0.11.0) with"),
            "0.11.0",
        ),
        (("torch version 2.6.0", "vLLM API server version 0.8.4"), "0.8.4"),
        (
            ("Initializing a V1 LLM engine (v0.7.3) with", "# cuda blocks: 100, # CPU blocks: 20"),
            "v0",
        ),
    ],
)
def test_the_version_is_the_engines(lines: tuple[str, ...], version: str | None) -> None:
    assert read(*lines).version == version


@each(
    ("line", "settings"),
    [
        (
            "args: Namespace(tensor_parallel_size=2, pipeline_parallel_size=3)",
            {"tp": "2", "pp": "3"},
        ),
        (
            "args: {'decode_context_parallel_size': 4, 'max_model_len': 4096}",
            {"dcp": "4", "context": "4096"},
        ),
        ("config: max_seq_len=512, dtype=torch.bfloat16", {"context": "512", "dtype": "bfloat16"}),
        ("Using max model len 8192", {"context": "8192"}),
        ("The model's max seq len (40960) is larger", {"context": "40960"}),
        ("config: kv_cache_dtype=auto, dtype=auto", {}),
        (
            "$ vllm serve qwen3-8b --dtype=float --max-model-len 512",
            {"dtype": "float", "context": "512"},
        ),
        ("$ vllm serve qwen3-8b --dtype half", {"dtype": "half"}),
        ("config: kv_cache_dtype=fp8_e4m3", {"kv_dtype": "fp8_e4m3"}),
        ("config: kv_cache_dtype=fp8_ds_mla", {"kv_dtype": "fp8"}),
        (
            "Using fp8_e4m3 data type to store kv cache. It reduces the GPU memory footprint",
            {"kv_dtype": "fp8"},
        ),
        ("Using DeepSeek's fp8_ds_mla KV cache format.", {"kv_dtype": "fp8"}),
        (
            "Using fp8_ds_mla KV cache format for FLASHINFER_MLA_SPARSE_SM120 backend.",
            {"kv_dtype": "fp8"},
        ),
        ("config: enable_prefix_caching=True", {"prefix_caching": "True"}),
        (
            "model without support for prefix caching: disabling, enable_prefix_caching=True",
            {"prefix_caching": "False"},
        ),
        (
            "args: {'max_num_batched_tokens': 2048, 'max_num_seqs': 16}",
            {"max_num_batched_tokens": "2048"},
        ),
        ("args: {'gpu_memory_utilization': 0.85}", {"gpu_memory_utilization": "0.85"}),
        ("GPU memory utilization (0.95, 75 GiB)", {"gpu_memory_utilization": "0.95"}),
        ("block_size=32, swap_space=4.0", {"block_size": "32", "swap_space": "4.0"}),
        ("args: {'max_loras': 4, 'max_lora_rank': 64}", {"max_loras": "4", "max_lora_rank": "64"}),
        ("args: {'cpu_offload_gb': 10.0}", {"cpu_offload_gb": "10.0"}),
        ("config: cpu_offload_gb=0", {}),
        (
            "args: {'limit_mm_per_prompt': {'image': 0, 'video': {'count': 1}}, 'seed': 0}",
            {"limit_mm_per_prompt": "{'image': 0, 'video': {'count': 1}}"},
        ),
        ("args: {'limit_mm_per_prompt': {}}", {}),
        (
            "non-default args: {'max_cudagraph_capture_size': 64}",
            {"max_cudagraph_capture_size": "64"},
        ),
        # the engine's config has the default too
        (
            "Initializing a V1 LLM engine (v0.20.0) with config: 'max_cudagraph_capture_size': 512",
            {},
        ),
        ("mamba_ssm_cache_dtype='float32'", {"mamba_ssm_cache_dtype": "float32"}),
        (
            "[topk_topp_sampler.py:55] Using FlashInfer for top-p & top-k sampling.",
            {"flashinfer_sampler": "True"},
        ),
        (
            "FlashInfer is not available. Falling back to top-p & top-k sampling",
            {"flashinfer_sampler": "False"},
        ),
        (
            "FlashInfer is available, but it is not enabled. Falling back, sampling",
            {"flashinfer_sampler": "False"},
        ),
        (
            "FlashInfer top-p/top-k sampling disabled via VLLM_USE_FLASHINFER_SAMPLER=0.",
            {"flashinfer_sampler": "False"},
        ),
        (
            "FlashInfer top-p/top-k sampling unavailable: capability 7.5",
            {"flashinfer_sampler": "False"},
        ),
        (
            "CUDA graph memory profiling is disabled (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0).",
            {"estimate_cudagraphs": "False"},
        ),
        ("CUDA graph memory profiling is enabled (default since v0.21.0).", {}),
        (
            "CUDA graph memory profiling will be enabled by default "
            "(VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=1)",
            {},
        ),
        (
            "[backends.py:165] Directly load the compiled graph(s) for dynamic shape",
            {"warm_start": "True"},
        ),
        ("Directly load AOT compilation from path /cache/vllm", {"warm_start": "True"}),
        ("Compiling a graph for compile range (1, 2048) takes 8.43 s", {"warm_start": "False"}),
        # the first mention is the model's, a later one its drafter's
        ("args: max_model_len=4096, speculative args: max_model_len=128", {"context": "4096"}),
        # devices of a line of all ranks, unless the arguments have them
        ("world_size=4 rank=0", {"tp": "4"}),
        ("world_size=4 rank=0 tensor_parallel_size=2", {"tp": "2"}),
        ("world_size=4 rank=0 pipeline_parallel_size=4", {"pp": "4"}),
        ("args: quantization=None", {}),
        ("args: quantization=fp8", {"weights_dtype": "fp8"}),
        ("args: quantization=awq_marlin", {"weights_dtype": "int4"}),
        ("args: quantization='gptq_marlin'", {"weights_dtype": "int4"}),
        ("args: quantization=bitsandbytes", {"weights_dtype": "int4"}),
        ("args: quantization=compressed-tensors", {}),
    ],
)
def test_settings_are_read_from_arguments_and_from_the_config(
    line: str, settings: dict[str, str]
) -> None:
    found = read(line).settings
    if "max_num_seqs" in line:
        assert found.pop("max_num_seqs") == "16"
    assert found == settings


@pytest.mark.parametrize(
    ("method", "layers"),
    [("deepseek_mtp", "1"), ("eagle", "1"), ("eagle3", "1"), ("ngram", "0"), ("draft_model", "0")],
)
def test_drafters_with_a_layer_of_their_own(method: str, layers: str) -> None:
    found = read(
        f"model='a/b', speculative_config=SpeculativeConfig(method='{method}', num_spec_tokens=3)"
    ).settings
    assert (found["speculative_layers"], found["speculative_tokens"]) == (layers, "3")
    assert (
        read(f"args: {{'speculative_config': {{'method': '{method}'}}}}").settings[
            "speculative_layers"
        ]
        == layers
    )


def test_flags_and_the_model_are_read() -> None:
    assert read("model='a/b', enforce_eager=True").flags == {"enforce_eager"}
    assert read("model='a/b', enforce_eager=False").flags == frozenset()
    assert read("args: {'model': 'a/b', 'enable_lora': True}").flags == {"enable_lora"}
    both = "args: {'model': 'a/b', 'language_model_only': True, 'skip_mm_profiling': True}"
    assert read(both).flags == {"language_model_only", "skip_mm_profiling"}
    assert read("model='a/b', enforce_eager=False").model == "a/b"
    assert read("args: {'model_tag': 'c/d'}").model == "c/d"
    assert (read().model, read().engine) == (None, "vllm")


def test_ranks_print_different_figures_of_which_the_least_applies() -> None:
    log = read(
        "GPU KV cache size: 9,000 tokens",
        "Maximum concurrency for 4,096 tokens per request: 2.10x",
        "Maximum concurrency for 4,096 tokens per request: 1.90x",
        "Available KV cache memory: 1.50 GiB",
        "Available KV cache memory: 1.25 GiB",
        "Free memory on device (70.5/79.1 GiB) on startup",
        "Free memory on device cuda:1 (70.25/79.15 GiB) on startup",
    )
    assert (log.logged["kv_tokens"].text, log.logged["concurrency"].text) == ("7280", "1.90")
    assert [figure.text for figure in log.available] == ["1.50", "1.25"]
    assert {figure.unit for figure in (*log.available, *log.budget.values())} == {GIB}
    assert (log.budget["free_memory"].text, log.budget["gpu_memory"].text) == ("70.25", "79.1")
    assert log.settings["context"] == "4096"


def test_of_weights_and_activations_the_most_applies() -> None:
    log = read(
        "Model loading took 15.0 GiB memory",
        "Model loading took 15.5 GiB memory",
        "SIZE for peak activation",
    )
    assert log.budget == {"weights": Printed("15.5", "Model loading took 15.5 GiB", GIB)}
    log = read("0.50 GiB for peak activation and 0.25 GiB for peak activation")
    assert log.budget["activations"].text == "0.50"


def test_the_last_concurrency_line_has_the_context() -> None:
    log = read(
        "config: max_seq_len=512",
        "Maximum concurrency for 8_192 tokens per request: 2.00x",
        "Maximum concurrency for 1,024 tokens per request: 3.00x",
    )
    assert (log.settings["context"], log.logged["concurrency"].text) == ("1024", "2.00")


def test_v0_prints_blocks() -> None:
    log = read_log(["# GPU blocks: 507, # CPU blocks: 1024"])
    assert log is not None
    line = "# GPU blocks: 507, # CPU blocks: 1024"
    assert log.logged == {"kv_blocks": Printed("507", line), "cpu_blocks": Printed("1024", line)}
    assert (log.version, log.refusal) == ("v0", None)


@pytest.mark.parametrize(
    ("line", "name", "text"),
    [
        ("Overriding; after num_gpu_blocks is: 455 block", "kv_blocks", "455"),
        ("args: kv_cache_memory_bytes=1073741824", "kv_memory", "1073741824"),
        ("Available memory: 555, total memory: 777", "kv_memory", "555"),
        ("Current kv cache memory in use is 999 bytes", "kv_memory", "999"),
        ("the estimated maximum model length is 12,000", "max_context", "12000"),
        ("Setting attention block size to 528 tokens to ensure", "kv_block_size", "528"),
    ],
)
def test_figures_of_the_cache(line: str, name: str, text: str) -> None:
    assert read(line).logged[name].text == text


def test_the_memory_in_use_counts_if_no_line_has_the_available_memory() -> None:
    used = "Current kv cache memory in use is 3.5 GiB."
    assert [figure.text for figure in read(used).available] == ["3.5"]
    assert [
        figure.text for figure in read(used, "Available KV cache memory: 4.5 GiB").available
    ] == ["4.5"]


NEEDED = (
    "To serve at least one request (4.50 GiB KV cache is needed, larger than the available KV "
    "cache memory (3.2 GiB)"
)
FAILED = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
OCCUPIED = (
    "Free memory on device (5.0/79.1 GiB) on startup is less than desired GPU memory utilization "
    "(0.9, 71.2 GiB)"
)
NONE_LEFT = "ValueError: No available memory for the cache blocks."


@pytest.mark.parametrize(
    ("lines", "kind", "line", "where"),
    [
        ((NEEDED,), "too_small", "4.50 GiB KV cache is needed", ""),
        ((NEEDED, FAILED), "too_small", "4.50 GiB KV cache is needed", ""),
        ((FAILED,), "out_of_memory", "torch.OutOfMemoryError", ""),
        ((TOKENS, FAILED), "out_of_memory", "torch.OutOfMemoryError", "sampler"),
        (
            ("# GPU blocks: 22982, # CPU blocks: 6241", FAILED),
            "out_of_memory",
            "torch.OutOfMemoryError",
            "rest",
        ),
        (
            ("Capturing the model for CUDA graphs.", FAILED),
            "out_of_memory",
            "torch.OutOfMemoryError",
            "graphs",
        ),
        (
            ('File "vit_attn.py", line 178, in vit_sdpa_wrapper', FAILED),
            "out_of_memory",
            "torch.OutOfMemoryError",
            "encoder",
        ),
        (
            (f"{FAILED} try setting VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0",),
            "out_of_memory",
            FAILED[:22],
            "graphs",
        ),
        ((OCCUPIED,), "occupied", "is less than desired GPU memory utilization", ""),
        ((NONE_LEFT,), "no_memory", "No available memory for the cache blocks", ""),
        (("Available KV cache memory: -1.50 GiB", NONE_LEFT), "no_memory", NONE_LEFT[12:-1], ""),
        (
            ("Available KV cache memory: -1.50 GiB", "# cuda blocks: 0, # CPU blocks: 5"),
            "no_memory",
            "Available KV cache memory: -1.50 GiB",
            "",
        ),
        (
            ("Available KV cache memory: 0.00 GiB", "after num_gpu_blocks is: 0"),
            "no_memory",
            "Available KV cache memory: 0.00 GiB",
            "",
        ),
    ],
)
def test_why_vllm_did_not_start(lines: tuple[str, ...], kind: str, line: str, where: str) -> None:
    log = read_log(lines)
    assert log is not None
    assert log.refusal is not None
    assert (log.refusal.kind, log.refusal.line, log.refusal.where) == (kind, line, where)


def test_a_log_with_the_size_of_its_cache_is_of_a_start() -> None:
    for lines in ((NEEDED,), (OCCUPIED,), (NONE_LEFT,), ("Available KV cache memory: -1.50 GiB",)):
        assert read(*lines).refusal is None
    concurrency = "Maximum concurrency for 4,096 tokens per request: 1.78x"
    for figure in (TOKENS, concurrency):
        log = read_log([NEEDED, figure])
        assert log is not None
        assert log.refusal is None
    log = read_log(
        ["Available KV cache memory: 0.01 GiB", "after num_gpu_blocks is: 7", "# cuda blocks: 7"]
    )
    assert log is not None
    assert log.refusal is None


def test_a_log_without_figures_and_refusals_is_none() -> None:
    for lines in ([], ["model='a/b'"], ["gpu_memory_utilization=0.9"], ["block_size=16"]):
        assert read_log(lines) is None


def test_the_last_start_is_read_and_starts_are_counted() -> None:
    start = "vLLM API server version 0.8.4"
    log = read_log(
        [start, "GPU KV cache size: 100 tokens", start, "model='a/b'", TOKENS, "unrelated"]
    )
    assert log is not None
    assert (log.starts, log.logged["kv_tokens"].text, log.model) == (2, "7280", "a/b")


def test_an_allocation_that_fails_beside_a_cache_is_the_samplers() -> None:
    log = read(FAILED)
    assert log.refusal == LogRefusal(
        "out_of_memory",
        "torch.OutOfMemoryError",
        Printed("2.00", "Tried to allocate 2.00 GiB", GIB),
        None,
        "sampler",
    )
