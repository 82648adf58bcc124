"""llama.cpp: a context of fixed size, allocated at start-up, and a buffer for the compute graph.

layout.py computes the cells of the cache, compute_buffer.py what the graph needs besides them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ...errors import AttncalcError
from ...ggml import FILE_TYPES
from ...model import ModelSpec
from ...units import DType, dtype, parse_count
from ..base import CacheLayout, Limits
from ..engine import AUTO, Engine, SmallerStep
from ..options import DraftOptions, VersionOptions
from ..pipeline import LayerCacheSpec
from ..without_cache import StepLayout
from .embedding import step_layout
from .launch import BENCH_WORDS, LM_STUDIO_WORDS, OLLAMA_WORDS, WORDS, launch
from .layout import LlamaCppLayout, check_args, layout
from .log_lines import breakdown_lines
from .offload import device_parts, held_layers
from .options import MAX_GPUS, MAX_SEQUENCES, LlamacppArgs, LlamacppOptions
from .placement import block_count
from .quantize import quantized
from .runtime import runtime
from .versions import llamacpp_version

# Tokens of a micro-batch to suggest instead of the default of 512.
_FEWER_TOKENS = (256, 128, 64)


class Llamacpp(Engine[LlamacppArgs]):
    """llama.cpp, and its fork ik_llama.cpp."""

    name = "llamacpp"
    title = "llama.cpp"
    args = LlamacppArgs
    options = (VersionOptions, DraftOptions, LlamacppOptions)
    cache_dtype = "fp16"  # common/common.h: whatever dtype the model has
    state_dtype = "fp32"  # type_r and type_s (src/llama-model.cpp)
    narrower_cache_dtypes = ("q8_0", "q4_0")
    narrower_weight_dtypes = ("q8_0", "q4_k_m", "q3_k_m", "q2_k")
    narrowest_weight_dtypes = ("iq2_xxs", "iq1_s")
    running_option = "-np"
    step_option = ("ubatch", "-ub")
    runtime_grows = True
    max_gpus = MAX_GPUS
    splits_by_layer = True
    runs_on_cpu = True
    loads_towers = False  # a file of its own, --mmproj
    typed_files = True
    offload_options = MappingProxyType(
        {"n_cpu_moe": "experts of {} on the host", "n_gpu_layers": "{} on GPUs"}
    )
    held = staticmethod(held_layers)
    runtime = staticmethod(runtime)
    launch = staticmethod(launch)
    commands = (WORDS, BENCH_WORDS, OLLAMA_WORDS, LM_STUDIO_WORDS)

    def sizes(self, size: Mapping[str, Any], args: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a request per slot, with its part of -c, which is the context of all slots
        together.

        `-c 8192 -np 4` is four requests of 2,048 tokens (n_ctx_seq in src/llama-context.cpp); with
        -kvu they share 8,192. With --batch each request has the whole context.

        Raises AttncalcError also if there are more requests than slots.
        """
        slots = args.get("sequences")
        shared = llamacpp_version(args.get("engine_version")).fork
        batch = parse_count(str(size.get("batch", 1)), "--batch")
        if slots is not None and batch > slots:
            raise AttncalcError(
                f"--batch {batch} is more requests than --sequences {slots} has slots for",
                f"give -np {batch}, or -b {slots}",
            )
        if slots is None or "batch" in size or args.get("kv_unified") or shared:
            return size
        size = {**size, "batch": slots}
        tokens = str(size.get("context", AUTO))
        if tokens in (AUTO, "-1"):
            return size
        context = parse_count(tokens, "--context") // slots
        if context == 0:
            raise AttncalcError(
                f"--context {tokens} is less than a token for each of {slots} slots",
                f"give -c {slots * 1024}, for example",
            )
        return {**size, "context": context}

    memory_lines = staticmethod(breakdown_lines)

    def held_of_draft(self, draft: ModelSpec, model: ModelSpec) -> ModelSpec:
        """Return the draft without its embedding, which stays in host memory as the model's
        does.
        """
        if draft.stored and not draft.stored.file_type:
            blocks = draft.stored.blocks
        else:
            blocks = None
        args = LlamacppArgs(
            dtype("fp16"), dtype("fp16"), blocks=blocks, model_type=draft.model_type
        )
        return device_parts(draft, args)[1]

    def for_batch(self, args: LlamacppArgs, batch: int | None) -> LlamacppArgs:
        batch = batch and min(batch, MAX_SEQUENCES)
        if batch == args.batch:
            return args
        return dataclasses.replace(args, batch=batch)

    def quantized(self, model: ModelSpec, weights_dtype: str) -> ModelSpec | None:
        has_type = weights_dtype in FILE_TYPES or weights_dtype == model.experts_dtype == "mxfp4"
        if has_type and not model.encoder:
            return quantized(model, weights_dtype)
        return None

    def layout(
        self, specs: Sequence[LayerCacheSpec], args: LlamacppArgs
    ) -> LlamaCppLayout | StepLayout:
        if args.without_cache:
            check_args(args)
            return step_layout(specs, args)
        return layout(specs, args)

    def cache_dtypes(self, args: LlamacppArgs) -> tuple[DType, DType]:
        return args.types

    def parts(self, model: ModelSpec, args: LlamacppArgs) -> Sequence[ModelSpec]:
        return device_parts(model, args)[1:]

    def on_host(self, model: ModelSpec, args: LlamacppArgs) -> ModelSpec:
        return device_parts(model, args)[0]

    def host_layout(
        self, specs: Sequence[LayerCacheSpec], args: LlamacppArgs
    ) -> CacheLayout | None:
        if args.without_cache:
            return None
        return layout(specs, args).host

    def is_placed(self, args: LlamacppArgs) -> bool:
        return args.n_gpu_layers is not None or bool(
            args.moves_experts or args.tensor_split or args.no_kv_offload
        )

    def host_notes(self, args: LlamacppArgs) -> Iterator[str]:
        if args.on_cpu:
            yield (
                "A file that is read and not mapped is in memory once. Kernels of many CPUs "
                "repack weights, and a "
                "mapped file stays beside the repacked copy (ggml-org/llama.cpp#16761)."
            )
        elif args.device_memory is not None:
            yield "The embedding stays in host memory: no GPU's figures include it."
        if args.no_kv_offload and args.ram is None:
            yield (
                "The cache is in host memory, whose size attncalc does not know: it limits "
                "nothing here."
            )

    def host_limit(self, args: LlamacppArgs) -> int | None:
        return args.ram

    def host_bandwidth(self, args: LlamacppArgs) -> int | None:
        return args.ram_bandwidth

    def cache_on_host(self, args: LlamacppArgs) -> bool:
        return args.no_kv_offload

    def offload_values(self, option: str, model: ModelSpec, args: LlamacppArgs) -> range:
        layers = block_count(model.main.n_layers, args)
        if args.on_cpu:
            return range(0)
        if option == "n_gpu_layers":
            return range(layers + 1, -1, -1)  # the output layer counts as one
        if model.has_experts:
            return range(layers + 1)
        return range(0)

    def reserves_context(self, args: LlamacppArgs) -> bool:
        return not args.kv_unified

    def limits(self, args: LlamacppArgs) -> Limits:
        return Limits(args.micro_batch, 1)

    def smaller_steps(self, args: LlamacppArgs, batch: int) -> Iterator[SmallerStep]:
        """Yield smaller micro-batches: the compute buffer holds their activations. Prompts take
        longer.
        """
        for tokens in _FEWER_TOKENS:
            if tokens < args.micro_batch:
                yield SmallerStep(f"{tokens} tokens per pass", f"-ub {tokens}", {"ubatch": tokens})


ENGINE = Llamacpp()
