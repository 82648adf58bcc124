"""SGLang: a pool of token rows, and a second pool for sliding windows or for recurrent states."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ...model import ModelSpec
from ...units import GIB, parse_decimal
from ..base import CacheLayout
from ..engine import Engine, ExtraWeights, HeldWeights
from ..launch import LaunchFacts
from ..log_check import LogChecks
from ..options import DraftOptions, PagedOptions, VersionOptions
from ..pipeline import LayerCacheSpec
from ..runtime import Limits, RuntimeFacts, RuntimeMemory
from ..startup_log import StartupLog
from .graphs import chunked_prefill_size
from .held_weights import extra_weights
from .layout import layout
from .options import SglangArgs, SglangOptions
from .quantized import checkpoint_cache_dtype, loads_quantization
from .runtime import sglang_runtime
from .share import mem_fraction_static
from .stages import stage_sizes
from .versions import sglang_version

_OUTSIDE = GIB * 55 // 100
"""Bytes that CUDA and communication take before SGLang prints what is free."""


class Sglang(Engine[SglangArgs]):
    """SGLang."""

    name = "sglang"
    title = "SGLang"
    args = SglangArgs
    options = (VersionOptions, PagedOptions, DraftOptions, SglangOptions)
    splits = frozenset({"pp", "attn_dp"})
    share_option = "--mem-fraction-static"
    dtype_of_fp32 = "fp16"  # _get_and_verify_dtype in configs/model_config.py
    larger_shares = ("0.8", "0.85", "0.88", "0.9", "0.92")
    data_parallel = True
    ranks_share_tp = True
    pads_tower_heads = True
    has_extra_weights = True
    log_signs = re.compile(
        r"sglang|ServerArgs\(|KV Cache is allocated|Load weight (?:begin|end)|max_total_num_tokens=|Memory pool end"
        r"|mem.fraction.static|Mamba Cache is allocated"
    )

    def drafted_tokens(self, args: SglangArgs) -> int:
        return args.speculative_tokens

    def layout(self, specs: Sequence[LayerCacheSpec], args: SglangArgs) -> CacheLayout:
        return layout(specs, args)

    def stage_sizes(self, layers: int, pp: int) -> Sequence[int]:
        return stage_sizes(layers, pp)

    def checkpoint_cache_dtype(self, model: ModelSpec, version: str | None) -> str | None:
        return checkpoint_cache_dtype(model, version)

    def share(self, args: SglangArgs, devices: int) -> str:
        return mem_fraction_static(args, devices)

    def limits(self, args: SglangArgs) -> Limits:
        return Limits(chunked_prefill_size(args, sglang_version(args.engine_version)), 256)

    def runtime(self, facts: RuntimeFacts[SglangArgs]) -> RuntimeMemory:
        return sglang_runtime(facts)

    def loads_quantization(self, method: str, version: str | None) -> bool:
        return loads_quantization(method, version)

    def extra_weights(self, model: ModelSpec, args: SglangArgs, held: HeldWeights) -> Sequence[ExtraWeights]:
        return extra_weights(model, args, held)

    def launch(self, facts: LaunchFacts[SglangArgs]) -> Iterator[str | int]:
        from .launch import launch

        return launch(facts)

    def attention_ranks(self, args: SglangArgs, dp: int) -> tuple[str, dict[str, Any]]:
        return f"--tp {args.tp} --attn-dp {args.tp}", {"tp": args.tp, "attn_dp": args.tp}

    def read_log(self, lines: Sequence[str]) -> StartupLog | None:
        from .log import read_log

        return read_log(lines)

    def log_checks(self, log: StartupLog, layout: CacheLayout, args: SglangArgs, context: int) -> LogChecks:
        from .log import log_checks

        return log_checks(log, layout, args, context)

    def logged_gpu_memory(self, log: StartupLog) -> int | None:
        """Return the bytes of the GPU. SGLang prints what is free after CUDA and communication have started."""
        free = log.budget.get("free_memory")
        return super().logged_gpu_memory(log) or (free.bytes + _OUTSIDE if free else None)

    def logged_room(self, log: StartupLog, memory: int | None, share: str | float | None) -> int | None:
        """Return f A0 - W: what is free after the weights, less 1 - f of what was before."""
        before, after = log.budget.get("free_memory"), log.budget.get("after_weights")
        if not before or not after or not share:
            return None
        numerator, denominator = parse_decimal(str(share), self.share_option, upper=1)
        return after.bytes - before.bytes * (denominator - numerator) // denominator


ENGINE = Sglang()
