"""llama.cpp: a context of fixed size, allocated at start-up, and a buffer for the compute graph.

layout.py computes the cells of the cache, compute_buffer.py what the graph needs besides them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...units import DType
from ..base import CacheLayout
from ..engine import Engine
from ..launch import LaunchFacts
from ..options import DraftOptions, VersionOptions
from ..pipeline import LayerCacheSpec
from ..runtime import Limits, RuntimeFacts, RuntimeMemory
from ..startup_log import LogChecks, StartupLog
from .layout import layout
from .limits import DEFAULT_UBATCH, MAX_GPUS, MAX_SEQUENCES
from .options import LlamacppArgs, LlamacppOptions
from .runtime import llamacpp_runtime


class Llamacpp(Engine[LlamacppArgs]):
    """llama.cpp, and its fork ik_llama.cpp."""

    name = "llamacpp"
    title = "llama.cpp"
    args = LlamacppArgs
    options = (VersionOptions, DraftOptions, LlamacppOptions)
    cache_dtype = "fp16"  # common/common.h: whatever dtype the model has
    narrower_cache_dtypes = ("q8_0", "q4_0")
    narrower_weight_dtypes = ("q8_0", "q4_0")
    runtime_grows = True
    max_slots = MAX_SEQUENCES
    max_gpus = MAX_GPUS
    splits_by_layer = True
    loads_towers = False  # a file of its own, --mmproj
    log_signs = re.compile(r"llama_|load_tensors|print_info|ggml_|llm_load_|sched_reserve|llama-server")
    # A GGUF file may have its output matrix quantized, which the estimate has in 16 bits: 7,670 MiB of Qwen3-8B in Q8_0
    # instead of 8,220.
    weights_tolerance = (12, 2)

    def cache_dtypes(self, args: LlamacppArgs) -> tuple[DType, DType]:
        return args.kv_dtype_k or args.kv_dtype, args.kv_dtype_v or args.kv_dtype

    def layout(self, specs: Sequence[LayerCacheSpec], args: LlamacppArgs) -> CacheLayout:
        return layout(specs, args)

    def reserves_context(self, args: LlamacppArgs) -> bool:
        return not args.kv_unified

    def limits(self, args: LlamacppArgs) -> Limits:
        return Limits(args.ubatch or DEFAULT_UBATCH, 1)

    def runtime(self, facts: RuntimeFacts[LlamacppArgs]) -> RuntimeMemory:
        return llamacpp_runtime(facts)

    def launch(self, facts: LaunchFacts[LlamacppArgs]) -> Iterator[str | int]:
        from .launch import launch

        return launch(facts)

    def read_log(self, lines: Sequence[str]) -> StartupLog | None:
        from .log import read_log

        return read_log(lines)

    def log_checks(self, log: StartupLog, layout: CacheLayout, args: LlamacppArgs, context: int) -> LogChecks:
        from .log import log_checks

        return log_checks(log, layout, args, context)

    def logged_gpu_memory(self, log: StartupLog) -> int | None:
        """Return the bytes that were free, which is what llama.cpp prints of a GPU."""
        free = log.budget.get("free_memory")
        return super().logged_gpu_memory(log) or (free.bytes if free else None)


ENGINE = Llamacpp()
