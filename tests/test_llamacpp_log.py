"""What is read from the lines of a start-up log of llama.cpp: attncalc/logs/llamacpp.py."""

import pytest
from tables import each

from attncalc.logs import llamacpp as reader
from attncalc.logs.llamacpp import read_log
from attncalc.logs.startup_log import MIB, Printed, StartupLog

CACHE = (
    "llama_kv_cache: size =  512.00 MiB (  8192 cells,  32 layers,  4/1 seqs), K (q8_0):  256.00 "
    "MiB, "
    "V (f16):  256.00 MiB"
)


def log_of(*lines: str) -> StartupLog:
    log = read_log([*lines, CACHE])
    assert log
    return log


def budget(*lines: str) -> dict[str, str]:
    return {name: figure.text for name, figure in log_of(*lines).budget.items()}


def test_buffers_are_those_of_the_fullest_gpu() -> None:
    """Each GPU's first line is that of the model; a later one is that of a drafter."""
    assert budget(
        "load_tensors:   CPU_Mapped model buffer size =   281.81 MiB",
        "load_tensors:        CUDA0 model buffer size =  4403.49 MiB",
        "load_tensors:        CUDA1 model buffer size =  4500.00 MiB",
        "load_tensors:        CUDA1 model buffer size =  9999.00 MiB",
        "llama_context:      CUDA0 compute buffer size =   560.00 MiB",
        "llama_context:      CUDA1 compute buffer size =   300.00 MiB",
        "llama_context:  CUDA_Host compute buffer size =    20.00 MiB",
        "llama_context:  CUDA_Host compute buffer size =    24.01 MiB",
    ) == {"model_buffer": "4500.00", "compute_buffer": "560.00", "host_compute_buffer": "24.01"}


def test_free_memory_is_that_of_the_fullest_gpu() -> None:
    log = log_of(
        "llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 4090) - 23592 "
        "MiB free",
        "llama_model_load_from_file_impl: using device CUDA1 (NVIDIA GeForce RTX 4090) - 23000 "
        "MiB free",
    )
    assert (log.budget["free_memory"].text, log.budget["free_memory"].unit) == ("23000", MIB)
    assert (log.gpu, log.devices) == ("NVIDIA GeForce RTX 4090", 2)
    assert "free_memory" not in log_of("llama_context: n_ctx = 8192").budget
    buffer = log_of("load_tensors: CUDA0 model buffer size = 1.00 MiB").budget["model_buffer"]
    assert buffer.line == "CUDA0 model buffer size = 1.00 MiB"


@pytest.mark.parametrize(
    ("lines", "devices"),
    [
        ([], 0),
        (["ggml_cuda_init: found 3 CUDA devices:"], 3),
        (["llama_model_load: using device CUDA0 (A) - 100 MiB free"], 1),
        (
            [
                "load_tensors: CUDA0 model buffer size = 1.00 MiB",
                "load_tensors: CUDA1 model buffer size = 1.00 MiB",
            ],
            2,
        ),
        (
            [
                "ggml_cuda_init: found 1 CUDA devices:",
                "load_tensors: CUDA0 model buffer size = 1.00 MiB",
            ],
            1,
        ),
    ],
)
def test_devices_are_the_most_that_any_line_has(lines: list[str], devices: int) -> None:
    assert log_of(*lines).devices == devices


@each(
    ("line", "expected"),
    [
        ("llama_context: n_ctx = 8192", {"context": "8192", "batch": "1"}),
        (
            "llama_context: n_seq_max = 4 llama_context: n_ctx = 8193",
            {"context": "2048", "batch": "4", "sequences": "4"},
        ),
        (
            "llama_context: n_seq_max = 4 llama_context: n_ctx = 3",
            {"context": "1", "batch": "4", "sequences": "4"},
        ),
        (
            "llama_context: n_seq_max = 0 llama_context: n_ctx = 100",
            {"context": "100", "batch": "1", "sequences": "0"},
        ),
        ("llama_context: n_ctx = 0", {}),
        ("llama_context: n_seq_max = 4", {"sequences": "4"}),
        ("llama_context: n_ubatch = 256", {"ubatch": "256"}),
        ("llama_context: flash_attn = 1", {"flash_attn": "on"}),
        ("llama_context: flash_attn = enabled", {"flash_attn": "on"}),
        ("llama_context: flash_attn = 0", {"flash_attn": "off"}),
        ("llama_context: flash_attn = disabled", {"flash_attn": "off"}),
        ("llama_context: flash_attn = auto", {"flash_attn": "auto"}),
        ("llama_context: flash_attn = perhaps", {}),
        ("load_tensors: offloaded 25/33 layers to GPU", {"n_gpu_layers": "25"}),
        ("load_tensors: offloaded 32/33 layers to GPU", {"n_gpu_layers": "32"}),
        ("load_tensors: offloaded 33/33 layers to GPU", {"n_gpu_layers": "33"}),
        ("print_info: file type   = Q4_0", {"weights_dtype": "q4_0"}),
        ("print_info: file type   = all F32", {"weights_dtype": "f32"}),
        ("print_info: file type   = Q4_K - Medium", {"weights_dtype": "q4_k_m"}),
        ("print_info: file type   = Q3_K - Large", {"weights_dtype": "q3_k_l"}),
        ("print_info: file type   = Q2_K - Medium", {"weights_dtype": "q2_k"}),
        ("print_info: file type   = Q6_K", {"weights_dtype": "q6_k"}),
        (
            "llm_load_print_meta: model ftype      = mostly Q4_K - Small",
            {"weights_dtype": "q4_k_s"},
        ),
        ("print_info: file type   = IQ4_XS - 4.25 bpw", {"weights_dtype": "iq4_xs"}),
        ("print_info: file type   = MOSTLY", {}),
        (
            "common_init_from_params: failed to load model '/models/Qwen3-14B-Q4_K_M.gguf'",
            {"weights_dtype": "q4_k_m"},
        ),
        ("llama-server -m a-Q8_0-00001-of-00002.gguf", {"weights_dtype": "q8_0"}),
        (
            "llama-server -m a-Q8_0.gguf -c 16384 -fa on -ub 256",
            {
                "weights_dtype": "q8_0",
                "context": "16384",
                "batch": "1",
                "flash_attn": "on",
                "ubatch": "256",
            },
        ),
        ("llama_context: n_ctx_per_seq (70000) < n_ctx_train (262144)", {"context": "70000"}),
        ("llama_context: n_ctx_seq     = 8192", {"context": "8192"}),
        (
            # 2 * 4096 cells of 4 sequences
            "llama_kv_cache: size = 1.00 MiB ( 4096 cells, 36 layers, 4/2 seqs)",
            {"context": "2048", "batch": "4", "sequences": "4"},
        ),
        (
            "llama-server -c 16384 -np 2 llama_context: n_ctx_seq (4096) < n_ctx_train",
            {"context": "4096", "sequences": "2"},
        ),
    ],
)
def test_settings_of_a_start(line: str, expected: dict[str, str]) -> None:
    types = {"kv_dtype_k": "q8_0", "kv_dtype_v": "f16"}
    assert log_of(line).settings == expected | types


def test_types_of_the_cache_need_a_cache() -> None:
    """A recurrent model's log has types too, of a cache that it does not have."""
    states = "llama_memory_recurrent: size =  125.62 MiB (     2 cells"
    log = read_log(["llama_init: type_k = 'f16', type_v = 'f16'", states])
    assert log
    assert "kv_dtype_k" not in log.settings
    assert "kv_dtype_v" not in log.settings
    assert {name: figure.text for name, figure in log.logged.items()} == {
        "recurrent_size": "125.62"
    }
    log = read_log(
        ["llama_init: type_k = 'f16', type_v = 'f16'", "llama_kv_cache: size =  1.00 MiB", states]
    )
    assert log
    assert log.settings["kv_dtype_k"] == "f16"


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("build: 7000 (abcdef0) with cc", "b7000"),
        ("version: 999 (abcdef0)", "b999"),
        ("system_info: build = b5123", "b5123"),
        ("llama-server b6001-abcdef0 load_tensors", "b6001"),
        ("build: 000 (unknown) with cc", None),
        ("llama_context: n_ctx = 8192", None),
    ],
)
def test_the_build_is_the_version(line: str, version: str | None) -> None:
    assert log_of(line).version == version


def test_the_model_is_its_name_or_its_file() -> None:
    file = (
        "llama_model_loader: loaded meta data with 20 key-value pairs and 291 tensors from "
        "/models/a.gguf (version GGUF"
    )
    named = log_of(file, "print_info: general.name     = Meta Llama 3 8B")
    assert (named.model, named.path) == ("Meta Llama 3 8B", "/models/a.gguf")
    assert (log_of(file).model, log_of(file).path) == ("/models/a.gguf", "/models/a.gguf")
    assert log_of().model is None
    assert log_of("llama_context: kv_unified    = true").flags == {"kv_unified"}
    assert log_of("llama_context: kv_unified    = false").flags == frozenset()


def figures_of(lines: list[str]) -> dict[str, Printed]:
    return reader.figures_of(" ".join(" ".join(line.split()) for line in lines))


def test_each_cache_has_its_own_size() -> None:
    figures = figures_of(
        [
            "llama_context: n_ctx                 = 4096",
            "llama_kv_cache_iswa: creating     SWA KV cache, size = 1536 cells",
            "llama_kv_cache: size =  624.00 MiB (  1536 cells",
            "llama_kv_cache_iswa: creating non-SWA KV cache, size = 4096 cells",
            "llama_kv_cache: size =  320.00 MiB (  4096 cells",
            "llama_kv_cache: size =  999.00 MiB (  4096 cells",
            "llama_memory_recurrent: size =  125.62 MiB (     2 cells",
            "llama_memory_recurrent: size =  130.00 MiB (     2 cells",
        ]
    )
    assert {name: (figure.text, figure.unit) for name, figure in figures.items()} == {
        "swa_kv_size": ("624.00", MIB),
        "kv_size": ("320.00", MIB),
        "recurrent_size": ("125.62", MIB),
        "n_ctx": ("4096", 1),
    }
    assert {name: figure.line for name, figure in figures.items()} == {
        "swa_kv_size": "llama_kv_cache: size = 624.00 MiB",
        "kv_size": "llama_kv_cache: size = 320.00 MiB",
        "recurrent_size": "llama_memory_recurrent: size = 125.62 MiB",
        "n_ctx": "n_ctx = 4096",
    }
    # the kind is that of the next size only
    indexed = figures_of(
        [
            "llama_kv_cache_dsa: creating indexer KV cache, size = 4096 cells",
            "llama_kv_cache: size =   61.00 MiB (  4096 cells",
            "llama_kv_cache: size =  274.50 MiB (  4096 cells",
        ]
    )
    assert {name: figure.text for name, figure in indexed.items()} == {
        "indexer_kv_size": "61.00",
        "kv_size": "274.50",
    }
    assert figures_of(["llama_context: n_ctx_train = 8192"]) == {}


def test_a_log_with_neither_a_cache_nor_a_message_is_none() -> None:
    assert read_log([]) is None
    assert read_log(["llama_context: n_ctx = 8192"]) is None
    assert read_log(["llama_context: n_ctx = 8192", CACHE])


NOT_FITTED = [
    "llama_params_fit_impl: projected to use 410593 MiB of device memory vs. 97017 MiB of free "
    "device memory",
    "llama_params_fit: failed to fit params to free device memory: n_gpu_layers already set by "
    "user to 99, abort",
]
FAILED = "ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory"


@pytest.mark.parametrize(
    ("lines", "where", "tried"),
    [
        (
            [FAILED, "llama_model_load: error loading model: unable to allocate CUDA0 buffer"],
            "weights",
            None,
        ),
        ([FAILED], "buffer", None),
        (["load_tensors: loading model tensors", FAILED], "weights", None),
        ([CACHE, FAILED], "compute", None),
        ([CACHE, FAILED, "llama_model_load: error loading model"], "weights", None),
        (
            [
                "ggml_cuda: allocating 512.00 MiB on device 0: cudaMalloc failed: out of memory",
                "failed to allocate buffer for kv cache",
            ],
            "cache",
            512 * MIB,
        ),
        # of LM Studio
        (
            ["Failed to initialize the context: failed to allocate buffer for rs cache"],
            "cache",
            None,
        ),
        (
            [
                CACHE,
                "failed to allocate CUDA0 buffer of size 1048577",
                "failed to allocate compute pp buffers",
            ],
            "compute",
            1048577,
        ),
        ([FAILED, "ggml_vulkan: memory allocation of size 77 failed"], "buffer", 77),
        (NOT_FITTED, "fit", 410593 * MIB),
        ([*NOT_FITTED, FAILED], "buffer", None),
        # far from the message another cache is another start's
        ([CACHE, FAILED, "llama_" + "x" * 2000 + " kv cache"], "compute", None),
    ],
)
def test_what_could_not_be_allocated(lines: list[str], where: str, tried: int | None) -> None:
    log = read_log(lines)
    assert log
    assert log.refusal
    assert (log.refusal.kind, log.refusal.where) == ("out_of_memory", where)
    assert (log.refusal.tried.bytes if log.refusal.tried else None) == tried
    assert log_of().refusal is None


def test_a_start_after_a_failed_fitting_pass_is_no_refusal() -> None:
    assert log_of(*NOT_FITTED).refusal is None


@pytest.mark.parametrize(("distance", "where"), [(1992, "cache"), (1993, "buffer")])
def test_the_cache_is_named_within_2000_characters_of_the_message(
    distance: int, where: str
) -> None:
    message = "cudaMalloc failed: out of memory"
    log = read_log([message + "x" * (distance - len(message)) + "kv cache"])
    assert log
    assert log.refusal
    assert log.refusal.where == where


@pytest.mark.parametrize(
    "line",
    [
        "allocating 512.00 MiB on device 0",
        "failed to allocate CUDA0 buffer of size 77",
        "memory allocation of size 7 failed",
    ],
)
def test_what_was_tried_has_its_line(line: str) -> None:
    log = read_log([f"ggml_cuda: {line}: cudaMalloc failed: out of memory"])
    assert log
    assert log.refusal
    assert log.refusal.tried
    assert log.refusal.tried.line == line


FITTING_PASS = [
    # The lines of a posted log of 2026, with the attempt at the longest context that the pass makes
    # first
    "0.00.521 I llama_prepare_model_devices: using device ROCm0 (RX 7900 XTX) (0000:03:00.0) - "
    "24000 MiB free",
    "0.00.529.481 I load_tensors: offloaded 65/65 layers to GPU",
    "0.00.529.483 I load_tensors:        ROCm0 model buffer size =     0.00 MiB",
    "0.00.529.484 I load_tensors:    ROCm_Host model buffer size =     0.00 MiB",
    "0.00.534.448 I llama_context: n_seq_max             = 1",
    "0.00.534.449 I llama_context: n_ctx                 = 262144",
    "0.00.547.064 I llama_kv_cache:      ROCm0 KV buffer size =     0.00 MiB",
    "0.00.547.065 I llama_kv_cache: size = 16384.00 MiB (262144 cells,  16 layers,  1/1 seqs)",
    "0.00.578.703 I sched_reserve:      ROCm0 compute buffer size =   400.28 MiB",
    "0.00.578.709 I sched_reserve:  ROCm_Host compute buffer size =    84.28 MiB",
]
REAL_LOAD = [
    "0.00.987 I llama_prepare_model_devices: using device ROCm0 (RX 7900 XTX) (0000:03:00.0) - "
    "23900 MiB free",
    "0.01.522.670 I load_tensors: offloaded 65/65 layers to GPU",
    "0.01.522.675 I load_tensors:   CPU_Mapped model buffer size =   322.07 MiB",
    "0.01.522.676 I load_tensors:        ROCm0 model buffer size =  6539.67 MiB",
    "0.04.285.857 I llama_context: n_seq_max             = 1",
    "0.04.285.858 I llama_context: n_ctx                 = 65536",
    "0.04.364.938 I llama_kv_cache:      ROCm0 KV buffer size =  4096.00 MiB",
    "0.04.364.939 I llama_kv_cache: size = 4096.00 MiB ( 65536 cells,  16 layers,  1/1 seqs)",
    "0.04.417.931 I sched_reserve:      ROCm0 compute buffer size =   410.28 MiB",
    "0.04.417.938 I sched_reserve:  ROCm_Host compute buffer size =    84.28 MiB",
]


@each(
    "lines",
    [
        REAL_LOAD,
        [*FITTING_PASS, *REAL_LOAD],
        [*FITTING_PASS, *FITTING_PASS, *REAL_LOAD],
        # without the lines about offloaded layers
        [line for line in [*FITTING_PASS, *REAL_LOAD] if "offloaded" not in line],
    ],
)
def test_the_load_counts_and_not_the_fitting_pass_before_it(lines: list[str]) -> None:
    log = read_log(lines)
    assert log
    assert log.settings["context"] == "65536"
    assert log.logged["kv_size"].text == "4096.00"
    sizes = {name: figure.text for name, figure in log.budget.items() if name != "free_memory"}
    assert sizes == {
        "model_buffer": "6539.67",
        "compute_buffer": "410.28",
        "host_compute_buffer": "84.28",
    }
    assert log.devices == 1


def test_the_context_of_a_draft_does_not_change_the_figures_of_the_model() -> None:
    """A posted log of multi-token prediction with -np auto: 4 sequences with 1 + 2 states each."""
    states = (
        "llama_memory_recurrent: size = 1795.50 MiB (     4 cells,  64 layers,  4 seqs  2 "
        "rs_seq), R (f32):   67.50 MiB"
    )
    log = read_log(
        [
            "llama_server: n_parallel is set to auto, using n_parallel = 4 and kv_unified = true",
            "llama_prepare_model_devices: using device Vulkan0 (RTX 3090) (0000:c1:00.0) - 23525 "
            "MiB free",
            "load_tensors:      Vulkan0 model buffer size = 17913.46 MiB",
            "llama_context: n_ctx         = 8192",
            "llama_kv_cache: size =  512.00 MiB (  8192 cells,  16 layers,  4/1 seqs)",
            states,
            "sched_reserve:    Vulkan0 compute buffer size =   174.45 MiB",
            "sched_reserve: Vulkan_Host compute buffer size =    79.42 MiB",
            "srv    load_model: creating MTP draft context against the target model 'qwen.gguf'",
            "llama_prepare_model_devices: using device Vulkan0 (RTX 3090) (0000:c1:00.0) - 2100 "
            "MiB free",
            "llama_context: n_ctx         = 8192",
            "llama_kv_cache: size =   32.00 MiB (  8192 cells,   1 layers,  4/1 seqs)",
            "sched_reserve:    Vulkan0 compute buffer size =   130.02 MiB",
            "sched_reserve: Vulkan_Host compute buffer size =    28.02 MiB",
        ]
    )
    assert log
    sizes = {name: figure.bytes for name, figure in log.logged.items() if name.endswith("kv_size")}
    assert sizes == {"kv_size": 512 * MIB, "draft_kv_size": 32 * MIB}
    expected = {
        "context": "2048",
        "batch": "4",
        "sequences": "4",
        "speculative_tokens": "2",
        "speculative_layers": "1",
    }
    assert log.settings == expected
    assert {name: figure.text for name, figure in log.budget.items()} == {
        "draft_compute_buffer": "130.02",
        "model_buffer": "17913.46",
        "compute_buffer": "174.45",
        "host_compute_buffer": "79.42",
        "free_memory": "23525",
    }
