"""vLLM's cache: groups of layers take blocks of tokens from one pool."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ...model import ModelSpec
from ..base import CacheLayout
from ..engine import Engine, ExtraWeights, HeldWeights, Refusal
from ..options import DraftOptions, PagedOptions, VersionOptions
from ..pipeline import LayerCacheSpec
from ..runtime import Limits, RuntimeFacts, RuntimeMemory
from .held_weights import extra_weights
from .layout import layout
from .limits import max_num_batched_tokens, max_num_seqs
from .options import VllmArgs, VllmOptions
from .quantized import checkpoint_cache_dtype, loads_quantization
from .refusals import refusal
from .runtime import runtime
from .versions import RELEASES, vllm_version

if TYPE_CHECKING:
    from ..launch import LaunchFacts
    from ..log_check import LogChecks
    from ..startup_log import StartupLog


class Vllm(Engine[VllmArgs]):
    """vLLM."""

    name = "vllm"
    title = "vLLM"
    args = VllmArgs
    options = (VersionOptions, PagedOptions, DraftOptions, VllmOptions)
    splits = frozenset({"pp", "dcp"})
    dtype_of_fp32 = "bf16"  # _resolve_auto_dtype in config/model.py
    larger_shares = ("0.95",)
    fewer_sequences = (128, 32, 8)
    data_parallel = True
    must_fit_one = True
    has_extra_weights = True
    releases = RELEASES
    long_context_options: ClassVar[Mapping[str, Any]] = {"allow_long_max_model_len": True}
    log_signs = re.compile(
        r"vllm|LLM engine|vLLM|KV cache size: \d|# \w+ blocks: \d|KV cache is needed|KV cache memory|Model loading took"
        r"|for the cache blocks|kv_cache_utils|gpu_worker|memory profiling"
    )

    def drafted_tokens(self, args: VllmArgs) -> int:
        return args.speculative_tokens

    def layout(self, specs: Sequence[LayerCacheSpec], args: VllmArgs) -> CacheLayout:
        return layout(specs, args)

    def checkpoint_cache_dtype(self, model: ModelSpec, version: str | None) -> str | None:
        return checkpoint_cache_dtype(model, version)

    def share(self, args: VllmArgs, devices: int) -> str:
        return vllm_version(args.engine_version).utilization

    def limits(self, args: VllmArgs) -> Limits:
        version = vllm_version(args.engine_version)
        return Limits(max_num_batched_tokens(args, version), max_num_seqs(args, version))

    def runtime(self, facts: RuntimeFacts[VllmArgs]) -> RuntimeMemory:
        return runtime(facts)

    def loads_quantization(self, method: str, version: str | None) -> bool:
        return loads_quantization(method, version)

    def extra_weights(self, model: ModelSpec, args: VllmArgs, held: HeldWeights) -> Sequence[ExtraWeights]:
        return extra_weights(model, args, held)

    def refusal(self, model: ModelSpec, args: VllmArgs) -> Refusal | None:
        return refusal(model, args)

    def checks_all_layers(self, args: VllmArgs) -> bool:
        return vllm_version(args.engine_version).checks_all_layers

    def launch(self, facts: LaunchFacts[VllmArgs]) -> Iterator[str | int]:
        from .launch import launch

        return launch(facts)

    def attention_ranks(self, args: VllmArgs, dp: int) -> tuple[str, dict[str, Any]]:
        ranks = args.tp * dp
        changes = {"tp": 1, "dcp": 1, "dp": ranks, "enable_expert_parallel": True}
        return f"--tp 1 --dp {ranks} --enable-expert-parallel", changes

    def read_log(self, lines: Sequence[str]) -> StartupLog | None:
        from .log import read_log

        return read_log(lines)

    def log_checks(self, log: StartupLog, layout: CacheLayout, args: VllmArgs, context: int) -> LogChecks:
        from .log import log_checks

        return log_checks(log, layout, args, context)

    def logged_room(self, log: StartupLog, memory: int | None, share: str | float | None) -> int | None:
        return memory


ENGINE = Vllm()
