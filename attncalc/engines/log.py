"""Reads a start-up log of an engine: recognises the engine by its lines."""

from __future__ import annotations

from ..errors import AttncalcError
from ..units import truncate
from . import ENGINES, find_engine
from .log_text import lines_of
from .startup_log import StartupLog

_SAMPLE = 10_000
"""Lines at the beginning and at the end by which the engine is recognised: a server's log can have millions."""


def read_log(data: bytes, name: str) -> StartupLog:
    """Return the contents of a log. The error names the file, `name`.

    Raises AttncalcError if no line has the size of an engine's cache, or says why there is none.
    """
    lines = lines_of(data)
    ends = [*lines[:_SAMPLE], *lines[_SAMPLE:][-_SAMPLE:]]
    readers = [(known, known.log_signs) for known in map(find_engine, ENGINES) if known.log_signs]
    signs = [(sum(1 for line in ends if pattern.search(line)), known) for known, pattern in readers]
    for number, known in sorted(signs, key=lambda sign: -sign[0]):
        log = known.read_log(lines) if number else None
        if log is not None:
            return log
    raise AttncalcError(
        f"{truncate(name)} is not a start-up log of vLLM, SGLang or llama.cpp: no line has the size of a cache",
        "give a log with a line such as 'GPU KV cache size: 78,384 tokens', 'KV Cache is allocated. #tokens: 107984' "
        "or 'llama_kv_cache: size = 576.00 MiB', or with the message why there is none",
    )
