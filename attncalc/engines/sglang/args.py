"""What SGLang is told and what it takes where it is not: pages, ratios, sequences at once, and what to say of it.

Source: SGLang 0.5.23, srt/arg_groups (fields/schedule.py, overrides.py, model_overrides/deepseek_v2.py,
speculative_hook.py, mamba_hook.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from ...attention import Chunked, Sliding
from ...errors import AttncalcError
from ...units import truncate
from ..base import EngineArgs
from ..defaults import EngineDefaults, Limits, by_memory
from ..pipeline import LayerCacheSpec
from .pools import WINDOWED, Pools, stage_sizes
from .states import States

VERSION = "0.5.23"
DRAFTING = 48
"""Sequences that SGLang runs at once with a drafter, where --max-running-requests does not say."""
SETTINGS = frozenset(
    {
        "pp",
        "block_size",
        "swa_full_tokens_ratio",
        "mamba_full_memory_ratio",
        "mamba_ssm_cache_dtype",
        "max_running_requests",
        "speculative_layers",
        "speculative_tokens",
        "prefix_caching",
        "disable_hybrid_swa_memory",
        "engine_version",
    }
)


class ResolvedArgs(NamedTuple):
    """version; tokens of a page; the windows' pool's tokens for each of the full one's; states' pool; sequences
    that run at once at the most, None where nothing says so.
    """

    version: str
    page: int
    share: Fraction
    states: States | None
    most: int | None


_STEPS = ((20, 2048), (60, 4096), (160, 8192))


def _limits(args: EngineArgs) -> Limits:
    """chunked_prefill_size (srt/arg_groups/memory_hook.py)."""
    return Limits(by_memory(args.device_memory, _STEPS, 16384), 256)


def _mem_fraction_static(args: EngineArgs, devices: int) -> str:
    """handle_gpu_memory_settings (srt/arg_groups/memory_hook.py, 0.5.23).

    It runs before a drafter sets 48 sequences at once: those that are given alone make fewer graphs. Not here:
    less for a model that sees images, by the size of its encoder (adjust_mem_fraction_for_vlm), and graphs of
    prefills up to 4,096 tokens alone where the model's path says llama-2.
    """
    memory = (args.device_memory or 0) // 2**20
    tokens = by_memory(args.device_memory, _STEPS, 16384)
    small = ((20, 8), (35, 48), (60, 32), (160, 256))
    graphs = by_memory(args.device_memory, small if args.tp < 4 else ((20, 8), (60, 160)), 512)
    if args.max_running_requests:
        graphs = min(graphs, args.max_running_requests)
    reserved = 512 + tokens * 3 // 2 + devices * 128 + graphs * 2 + _prefill_graphs(args, tokens)
    if memory > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    return f"0.{max(1, (2000 * (memory - reserved) + memory) // (2 * memory)):03d}"


def _prefill_graphs(args: EngineArgs, tokens: int) -> int:
    """MiB for the graphs of prefills, "breakable" ones on NVIDIA's GPUs: 8 a size up to that of a chunk.

    None over pipeline stages, nor with KDA. Source: reserve_for_graph_mb (memory_hook.py),
    generate_prefill_cuda_graph_batch_sizes and apply_cuda_graph_compatibility (cuda_graph_hook.py).
    """
    if args.pp > 1 or "KDA" in args.attentions:
        return 0
    if "MLA" in args.attentions:
        return 1536
    steps = ((4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256), (4608, tokens, 512))
    return 8 * sum(size <= tokens for first, last, step in steps for size in range(first, last + 1, step))


DEFAULTS = EngineDefaults(
    "SGLang", _limits, _mem_fraction_static, "--mem-fraction-static", keeps_back="constant", stage_sizes=stage_sizes
)


def understood(pools: Pools, args: EngineArgs) -> ResolvedArgs:
    """The settings with SGLang's defaults. AttncalcError: it has none such, or not for these pools."""
    version = _version(args.engine_version)
    drafts = bool(args.speculative_layers or args.speculative_tokens)
    most = args.max_running_requests or (DRAFTING if drafts else None)
    if pools.swa and args.prefix_caching is False and args.max_running_requests:
        raise AttncalcError(
            "SGLang without its radix cache sizes the windows' pool by --max-running-requests and its prefill chunks",
            "leave --max-running-requests out, or give --disable-hybrid-swa-memory",
        )
    return ResolvedArgs(
        version,
        _page(pools, args),
        _decimal(args.swa_full_tokens_ratio or "0.8", "--swa-full-tokens-ratio", 1),
        _states(pools, args, most) if pools.states else None,
        most,
    )


def facts(pools: Pools, told: ResolvedArgs) -> Iterator[str]:
    """The settings that count, in SGLang's words."""
    yield f"version {told.version}"
    yield f"page size {told.page}"
    if pools.swa:
        yield f"swa-full-tokens-ratio {float(told.share):g}"
    if told.states and told.states.fixed is None:
        yield f"mamba-full-memory-ratio {float(told.states.share):g}"
    if told.most:
        yield f"max-running-requests {told.most}"


def notes(kept: Sequence[LayerCacheSpec], pools: Pools, args: EngineArgs, told: ResolvedArgs) -> Iterator[str]:
    """What a reader must know."""
    states = told.states
    if told.version != VERSION:
        yield f"SGLang {told.version} is taken to be as {VERSION}, the newest that was read."
    if args.block_size is None and not pools.indexer:
        yield "Pages of 1 token are SGLang's default; some attention backends take 64 or 128: --block-size says so."
    yield from _windows(kept, pools, args)
    if pools.indexer and args.kv_dtype.name == "fp8":
        yield "An fp8 latent has scales and its rotary key is bf16; SGLang's TRT-LLM and TileLang kernels keep neither."
    if args.kv_dtype.name == "fp4":
        yield "fp4 is SGLang's fp4_mx_block16; its nvfp4 may need a workspace besides."
    if args.speculative_layers:
        yield "The drafter's layers are taken to have rows as the full layers have."
    if states and states.per_sequence > 1:
        yield f"A sequence is taken to need {states.per_sequence} slots of states: the radix cache copies them."
    if told.most is None:
        yield "SGLang without --max-running-requests runs no more than 2,048 to 4,096 sequences at once."


def _windows(kept: Sequence[LayerCacheSpec], pools: Pools, args: EngineArgs) -> Iterator[str]:
    """What a reader must know of layers with a window or a chunk."""
    if pools.swa and args.model_type is None:
        yield (
            "SGLang has a pool of windows for gpt-oss, Llama 4, Gemma 4, MiMo-V2, Step-3.5 and a few more; other "
            "models (Gemma 2 and 3) keep windows like full attention: --disable-hybrid-swa-memory says so."
        )
    if pools.swa:
        yield "The chunk of a prompt that is being read takes more of the windows' pool; it is not counted."
    elif any(isinstance(c.span, (Sliding, Chunked)) for run in kept for c in run.cached if c.scales_with == "context"):
        listed = args.model_type is None or args.model_type in WINDOWED
        why = "" if listed else f"SGLang's list of models with a pool of windows has no {truncate(args.model_type)}: "
        yield why + ("windows" if why else "Windows") + " and chunks have slots for the whole context."


def _version(given: str | None) -> str:
    """The version asked about. AttncalcError: it is none, or before the first that was read."""
    found = re.fullmatch(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?(?:\.?(?:post|rc|dev)\d{0,6})?", given or VERSION)
    if not found:
        raise AttncalcError(f"SGLang has no version '{truncate(given)}'", f"write it as {VERSION}")
    if tuple(int(part or 0) for part in found.groups()) < tuple(map(int, VERSION.split("."))):
        raise AttncalcError(
            f"SGLang {truncate(given)}: no layout is known here",
            f"{VERSION} is the first that was read, and the default",
        )
    return (given or VERSION).removeprefix("v")


def _decimal(text: str, option: str, most: int | None = None) -> Fraction:
    """A ratio as it was written, exactly. AttncalcError: none, nothing at all, or above `most`."""
    found = Fraction(text) if re.fullmatch(r"\d{1,9}(\.\d{0,12})?|\.\d{1,12}", text, re.ASCII) else Fraction(0)
    if not found or (most is not None and found > most):
        limit = f" and at most {most}" if most else ""
        raise AttncalcError(f"{option}: '{truncate(text)}' is not a number above 0{limit}", "write it as 0.8")
    return found


def _page(pools: Pools, args: EngineArgs) -> int:
    """Tokens of a page. AttncalcError: SGLang would take another one than was given."""
    if pools.indexer:
        if args.block_size not in {None, 64}:
            raise AttncalcError(
                f"SGLang takes pages of 64 tokens where there is an indexer, not of {args.block_size}",
                "leave --block-size out",
            )
        return 64
    page = args.block_size or 1
    if page != 1 and pools.states and not pools.buffered and args.prefix_caching is not False:
        raise AttncalcError(
            "SGLang takes pages of 1 token where convolutions are all the states that its radix cache keeps",
            "leave --block-size out, or the radix cache with --no-prefix-caching",
        )
    return page


def _states(pools: Pools, args: EngineArgs, most: int | None) -> States:
    if args.speculative_layers and not args.speculative_tokens:
        raise AttncalcError(
            "SGLang keeps a copy of the states for each token that a drafter proposes", "give --speculative-tokens N"
        )
    cached = args.prefix_caching is not False
    # the radix cache's copies: 3 slots a sequence, and 2 more where it may write them while the sequence runs
    per_sequence = 1 if not cached else 5 if pools.buffered else 3
    slot = max((stage.convolution + stage.ssm for stage in pools.stages), key=int)
    return States(
        slot=slot,
        share=_decimal(args.mamba_full_memory_ratio or "0.9", "--mamba-full-memory-ratio"),
        per_sequence=per_sequence,
        ahead=args.speculative_tokens,
        most=most,
        fixed=most if not cached else None,
    )
