"""What fits in the caches of Hugging Face transformers: dynamic, static and quantised.

A static cache is made as long as the context at once; a quantised one keeps its last tokens as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...attention import CacheSpec
from ...errors import AttncalcError, did_you_mean
from ...quantity import Quantity, ceil_div, minimum, symbol
from ...units import DType, truncate
from ...workload import Workload
from .. import ideal
from ..base import EngineArgs
from ..defaults import EngineDefaults, Limits
from ..pipeline import LayerCacheSpec, gathered, words
from ..transformers import NAME, layer_bytes, stored
from . import Unpaged, check

DEFAULTS = EngineDefaults("transformers", lambda args: Limits(1, 1), whole_prompts=True)
VERSION = "5.23.0"
IMPLEMENTATIONS = ("dynamic", "static", "quantized")
GROUP, BITS, RESIDUAL = 64, 4, 128
"""QuantizedLayer's own: elements that share a scale, bits of an element, tokens of the residual."""


def layout(kept: Sequence[LayerCacheSpec], args: EngineArgs) -> Unpaged:
    """Hugging Face's own caches, by cache_implementation: dynamic (the default), static or quantized.

    kv_dtype is the model's own there; fp8 is QuantizedCache's backend of that name. Source: transformers
    5.23.0, cache_utils.py. AttncalcError: another cache, another version, or layers that it cannot hold.
    """
    args.only(NAME, frozenset({"cache_implementation", "residual_length", "engine_version"}))
    if args.engine_version not in (None, VERSION):
        raise AttncalcError(
            f"--engine-version {truncate(args.engine_version)}: the caches of transformers {VERSION} are known here",
            "leave it out",
        )
    check(kept, args)
    name = args.cache_implementation or "dynamic"
    if name not in IMPLEMENTATIONS:
        raise AttncalcError(
            f"--cache-implementation {truncate(name)}: its bytes on the device are not known here",
            f"{did_you_mean(name, IMPLEMENTATIONS)}known: {', '.join(IMPLEMENTATIONS)}",
        )
    if args.residual_length is not None and (name != "quantized" or args.kv_dtype.name == "fp8"):
        raise AttncalcError("--residual-length is of groups of 4-bit elements", "add --cache-implementation quantized")
    made = {"dynamic": _dynamic, "static": _static, "quantized": _quantized}[name]
    return made(gathered(kept), args)


def _dynamic(runs: tuple[LayerCacheSpec, ...], args: EngineArgs) -> Unpaged:
    _plain(args)
    return Unpaged(
        (runs,),
        args.kv_dtype,
        args.source,
        layer_bytes,
        "transformers, cache_utils.py: DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer",
        version=VERSION,
        facts=(f"version {VERSION}", "DynamicCache"),
        notes=("A step copies one layer's K and V at a time (torch.cat); the copy is not counted.",),
    )


def _static(runs: tuple[LayerCacheSpec, ...], args: EngineArgs) -> Unpaged:
    _plain(args)
    for run in runs:
        if any(cached.role == "other" and cached.scales_with == "context" for cached in run.cached):
            raise AttncalcError(
                f"StaticCache: no layout is known here for layers that keep {words(run)}",
                "ask without --cache-implementation static",
            )
    return Unpaged(
        (runs,),
        args.kv_dtype,
        args.source,
        lambda cached, asked, kv_dtype: ideal.layer_bytes(stored(cached), asked, kv_dtype),
        "transformers, cache_utils.py: StaticLayer, StaticSlidingWindowLayer",
        "reserved",
        (f"version {VERSION}", "StaticCache, max_cache_len the context"),
        version=VERSION,
    )


def _quantized(runs: tuple[LayerCacheSpec, ...], args: EngineArgs) -> Unpaged:
    for run in runs:
        if any(c.scales_with != "context" or c.span.reach is not None or c.role not in _QUANTIZED for c in run.cached):
            raise AttncalcError(
                f"QuantizedCache is for full attention alone; layers here keep {words(run)}",
                "ask without --cache-implementation quantized",
            )
    source = "transformers, cache_utils.py: QuantizedCache, "
    copied = "A step makes one layer's K and V whole again at a time; that is not counted."
    if args.kv_dtype.name == "fp8":
        return Unpaged(
            (runs,),
            args.kv_dtype,
            args.source,
            layer_bytes,
            source + "Fp8QuantizedLayer",
            version=VERSION,
            facts=(f"version {VERSION}", "QuantizedCache, backend fp8"),
            notes=(copied, "Two fp32 scales a layer, 8 B, are not counted."),
        )
    _plain(args)
    residual = RESIDUAL if args.residual_length is None else args.residual_length
    return Unpaged(
        (runs,),
        args.kv_dtype,
        args.source,
        lambda cached, asked, kv_dtype: _in_groups(cached, asked, kv_dtype, residual),
        source + "QuantizedLayer (backends quanto and hqq)",
        version=VERSION,
        facts=(f"version {VERSION}", f"QuantizedCache, {BITS} bits in groups of {GROUP}, residual {residual}"),
        notes=(copied, "The residual is counted as long as it becomes: it fills, and is quantised with all before it."),
    )


_QUANTIZED = ("kv", "k", "v", "latent")


def _plain(args: EngineArgs) -> None:
    """AttncalcError: a dtype that K and V of a model cannot have."""
    if args.kv_dtype.group is not None or args.kv_dtype.name == "fp8":
        raise AttncalcError(
            f"--kv-dtype {args.kv_dtype.name}: this cache has the model's own dtype",
            "leave it out; --cache-implementation quantized keeps 4 bits, with --kv-dtype fp8 8 bits",
        )


def _in_groups(cached: CacheSpec, workload: Workload, kv_dtype: DType, residual: int) -> int:
    """Bytes that one layer of QuantizedCache keeps at the most.

    The first call's tokens are quantised, then up to residual_length - 1 wait as they came.
    """
    cached = stored(cached)
    whole = isinstance(workload.context, Quantity)
    length = symbol("residual_length", residual, "tokens from which the residual is quantised") if whole else residual
    waiting = minimum(workload.context - 1, length - 1)
    elements = workload.batch * (workload.context - waiting) * cached.rows * cached.width
    # quanto and hqq give each group a scale and a zero point in the model's dtype.
    scales = 2 * (kv_dtype.bits // 8)
    packed = ceil_div(elements * BITS, 8) + ceil_div(elements, GROUP) * scales
    return packed + workload.batch * waiting * cached.rows * kv_dtype.row_bytes(cached.width)
