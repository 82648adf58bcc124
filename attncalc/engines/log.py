"""Reads a start-up log of vLLM, SGLang or llama.cpp: recognises the engine by its lines."""

from __future__ import annotations

import re

from ..errors import AttncalcError
from ..units import truncate
from .llamacpp.log import llamacpp_log
from .log_text import lines_of
from .sglang.log import sglang_log
from .startup_log import StartupLog
from .vllm.log import vllm_log

_READERS = {"vllm": vllm_log, "sglang": sglang_log, "llamacpp": llamacpp_log}
_SIGNS = {
    "vllm": re.compile(
        r"vllm|LLM engine|vLLM|KV cache size: \d|# \w+ blocks: \d|KV cache is needed|KV cache memory|Model loading took"
        r"|for the cache blocks|kv_cache_utils|gpu_worker|memory profiling"
    ),
    "sglang": re.compile(
        r"sglang|ServerArgs\(|KV Cache is allocated|Load weight (?:begin|end)|max_total_num_tokens=|Memory pool end"
        r"|mem.fraction.static|Mamba Cache is allocated"
    ),
    "llamacpp": re.compile(r"llama_|load_tensors|print_info|ggml_|llm_load_|sched_reserve|llama-server"),
}
"""Words of which the lines of each engine contain one."""
_SAMPLE = 10_000
"""Lines at the beginning and at the end by which the engine is recognised: a server's log can have millions."""


def read_log(data: bytes, name: str) -> StartupLog:
    """Return the contents of a log. The error names the file, `name`.

    Raises AttncalcError if no line has the size of an engine's cache, or says why there is none.
    """
    lines = lines_of(data)
    ends = [*lines[:_SAMPLE], *lines[_SAMPLE:][-_SAMPLE:]]
    signs = {engine: sum(1 for line in ends if pattern.search(line)) for engine, pattern in _SIGNS.items()}
    for engine in sorted(signs, key=lambda engine: -signs[engine]):
        log = _READERS[engine](lines) if signs[engine] else None
        if log is not None:
            return log
    raise AttncalcError(
        f"{truncate(name)} is not a start-up log of vLLM, SGLang or llama.cpp: no line has the size of a cache",
        "give a log with a line such as 'GPU KV cache size: 78,384 tokens', 'KV Cache is allocated. #tokens: 107984' "
        "or 'llama_kv_cache: size = 576.00 MiB', or with the message why there is none",
    )
