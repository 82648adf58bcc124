"""Logs with damaged, repeated and foreign lines: always an answer or one error, never a
traceback.
"""

import contextlib
from typing import Any

import pytest
from asking import Ask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_log_doctor import TOO_SMALL
from test_logs import LLAMACPP, SGLANG, VLLM

from attncalc.errors import AttncalcError
from attncalc.logs.log_file import lines_of, read_log

KNOWN = [line for log in (VLLM, SGLANG, LLAMACPP, TOO_SMALL) for line in log.splitlines()]
KNOWN += [
    "Available KV cache memory: -3.12 GiB",
    "# GPU blocks: 1478, # CPU blocks: 2048",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 786.00 MiB. GPU 0 has a total "
    "capacity of 0 GiB",
    "Free memory on device (78.66/0 GiB) on startup is less than desired GPU memory utilization "
    "(0.9, 71.27 GiB)",
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static",
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1 MiB on device 0: cudaMalloc "
    "failed: out of memory",
    "Mamba Cache is allocated. max_mamba_cache_size: 186, conv_state size: 0.10GB, ssm_state "
    "size: 4.38GB",
    "kv_cache_dtype=fp8, quantization=awq, dtype=float16, enforce_eager=True, "
    "gpu_memory_utilization=0.0",
    "Loading safetensors checkpoint shards: 12% Completed | 2/17 [00:02<01:39, 2.77s/it]",
    "ERROR 09-14 10:02:20 [core.py:1100] Traceback (most recent call last):",
    "Out of memory: Killed process 6154 (python) total-vm:18109076kB, anon-rss:14095848kB",
    '{"log":"GPU KV cache size: 8,192 tokens\\n"}',
]
NUMBERS = st.sampled_from(
    ["0", "-1", "9" * 30, "9" * 5000, "1e9", "NaN", "", "1.2.3", "٣", "0.0000000000001"]
)


@st.composite
def damaged_lines(draw: st.DrawFn) -> str:
    """Return a line of a log with a number replaced, cut off, or with random text in it."""
    line = draw(st.sampled_from(KNOWN))
    digits = [i for i, letter in enumerate(line) if letter.isdigit()]
    kind = draw(st.sampled_from(["same", "number", "cut", "text"]))
    if kind == "number" and digits:
        at = draw(st.sampled_from(digits))
        return line[:at] + draw(NUMBERS) + line[at + 1 :]
    if kind == "cut":
        return line[: draw(st.integers(0, len(line)))]
    if kind == "text":
        at = draw(st.integers(0, len(line)))
        return line[:at] + draw(st.text(max_size=20)) + line[at:]
    return line


LOGS = st.lists(damaged_lines(), max_size=12).map("\n".join)


@given(LOGS, st.sampled_from(["utf-8", "utf-16", "utf-16-be"]))
def test_any_log_is_read_or_is_one_error(text: str, encoding: str) -> None:
    with contextlib.suppress(AttncalcError):
        log = read_log(text.encode(encoding, "replace"), "log")
        assert log.logged or log.refusal or log.available


@given(st.binary(max_size=400))
def test_any_bytes_have_lines(data: bytes) -> None:
    assert all("\n" not in line for line in lines_of(data))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=LOGS)
def test_any_log_is_answered(ask: Ask, tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    log = tmp_path_factory.mktemp("log") / "start.log"
    log.write_text(text, encoding="utf-8", errors="replace")
    answer: Any = ask("fit", "qwen3-8b", "--log", str(log))
    assert answer.code in (0, 1, 2)
    assert "Traceback" not in answer.err
    assert (answer.code == 2) == answer.err.startswith("error: ")
