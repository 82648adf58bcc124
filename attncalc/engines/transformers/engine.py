"""The caches of Hugging Face transformers 5.23.0: dynamic, static and quantized (cache_utils.py).

DynamicSlidingWindowLayer stores the last W - 1 tokens of a window, because the next token makes the
W-th: with a window of 4 and 10 tokens it stores tokens 8, 9 and 10. It treats a chunk like a
window. A static cache is allocated for the whole context at the start. A quantized cache stores its
newest tokens unquantized.
Everything else is as in
the ideal engine, except that a ragged batch is padded to its longest sequence.
"""

from collections.abc import Callable, Iterator, Sequence

from ...attention import FULL, CacheSpec
from ...attention.kind import POOLING_ROLES
from ...errors import AttncalcError, NotSupportedError, known_tip
from ...quantity import ceil_div, minimum, quantity, symbol_like
from ...units import DType, truncate
from ...workload import Workload
from ..base import Bound
from ..engine import PerLayerEngine
from ..estimate import estimated_runtime
from ..ideal import ENGINE as IDEAL
from ..options import VersionOptions
from ..pipeline import LayerCacheSpec, describe, merge_equal
from ..unpaged import UnpagedLayout, check_specs
from .options import TransformersArgs, TransformersOptions

VERSION = "5.23.0"
# Defaults of QuantizedLayer: elements that share a scale, bits per element, residual_length.
GROUP = 64
BITS = 4
RESIDUAL = 128
_QUANTIZED_ROLES = ("kv", "k", "v", "latent")


class Transformers(PerLayerEngine[TransformersArgs]):
    name = title = "transformers"
    args = TransformersArgs
    options = (VersionOptions, TransformersOptions)
    whole_prompts = True
    runtime_grows = True
    runtime = staticmethod(estimated_runtime)

    def layer_bytes(self, cached: CacheSpec, workload: Workload, kv_dtype: DType) -> int:
        """Return the bytes that one layer of a dynamic cache stores of `cached` for the whole
        batch.
        """
        cached = _as_stored(cached)
        if cached.per != "token" or cached.span.reach is None:
            return IDEAL.layer_bytes(cached, workload, kv_dtype)
        row_bytes = IDEAL.token_bytes(cached._replace(span=FULL), workload, kv_dtype)
        return workload.batch * minimum(workload.context, cached.span.reach - 1) * row_bytes

    def token_bytes(self, cached: CacheSpec, workload: Workload, kv_dtype: DType) -> int:
        """Return the bytes that the next token of one sequence adds to one layer: 0 once its window
        is full.
        """
        cached = _as_stored(cached)
        reach = cached.span.reach
        if cached.per == "token" and reach is not None and workload.context >= reach - 1:
            return quantity(0)
        return IDEAL.token_bytes(
            cached if reach is None else cached._replace(span=FULL), workload, kv_dtype
        )

    def check_cache_dtype(self, kv_dtype: DType) -> None:
        if not _is_plain(kv_dtype):
            raise AttncalcError(
                f"--kv-dtype {kv_dtype.name}: transformers' cache has the dtype of the model",
                "leave it out, or leave out --engine transformers; 'attncalc fit' has "
                "--cache-implementation quantized",
            )

    def storage_notes(self, cached: Sequence[CacheSpec]) -> Iterator[str]:
        if any(spec.span.reach is not None for spec in cached):
            yield "transformers stores one token less than the window: the next token completes it."
        if any(spec.repeated != 1 for spec in cached):
            yield "This model's class in transformers stores K and V once per query head."

    def reserves_context(self, args: TransformersArgs) -> bool:
        return args.cache_implementation == "static"

    def layout(self, specs: Sequence[LayerCacheSpec], args: TransformersArgs) -> UnpagedLayout:
        """Return the layout of the cache that `args.cache_implementation` names, dynamic by
        default.

        Its dtype is the model's own. fp8 selects the fp8 backend of the quantized cache.

        Raises AttncalcError if the cache or the version is not supported, or cannot store these
        layers.
        """
        if args.engine_version not in (None, VERSION):
            raise AttncalcError(
                f"--engine-version {truncate(args.engine_version)}: only transformers {VERSION} "
                "is supported",
                "leave --engine-version out",
            )
        check_specs(specs, args)
        name = args.cache_implementation or "dynamic"
        if name not in _IMPLEMENTATIONS:
            what = f"--cache-implementation {truncate(name)}"
            raise NotSupportedError(f"{what} is not supported", known_tip(name, _IMPLEMENTATIONS))
        if args.residual_length is not None and (
            name != "quantized" or args.kv_dtype.name == "fp8"
        ):
            raise AttncalcError(
                "--residual-length needs the 4-bit quantized cache",
                "add --cache-implementation quantized, without fp8",
            )
        return _IMPLEMENTATIONS[name](merge_equal(specs), args)


ENGINE = Transformers()


def _dynamic(specs: tuple[LayerCacheSpec, ...], args: TransformersArgs) -> UnpagedLayout:
    _check_plain_dtype(args)
    return _layout(
        specs,
        args,
        ENGINE.layer_bytes,
        "DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer",
        "DynamicCache",
        "Each step copies K and V of one layer at a time (torch.cat); the copy is not counted.",
    )


def _static(specs: tuple[LayerCacheSpec, ...], args: TransformersArgs) -> UnpagedLayout:
    _check_plain_dtype(args)
    for spec in specs:
        if any(
            cached.role in ("other", *POOLING_ROLES) and cached.per == "token"
            for cached in spec.cached
        ):
            raise NotSupportedError(
                f"StaticCache does not support layers that cache {describe(spec)}",
                "leave --cache-implementation static out",
            )
    return _layout(
        specs,
        args,
        lambda cached, workload, kv_dtype: IDEAL.layer_bytes(
            _as_stored(cached), workload, kv_dtype
        ),
        "StaticLayer, StaticSlidingWindowLayer",
        "StaticCache, max_cache_len the context",
        bound="reserved",
    )


def _quantized(specs: tuple[LayerCacheSpec, ...], args: TransformersArgs) -> UnpagedLayout:
    for spec in specs:
        if any(
            c.per != "token" or c.span.reach is not None or c.role not in _QUANTIZED_ROLES
            for c in spec.cached
        ):
            raise AttncalcError(
                "QuantizedCache supports only full attention; this model has layers that cache "
                f"{describe(spec)}",
                "leave --cache-implementation quantized out",
            )
    dequantized = "Each step dequantizes K and V of one layer at a time; that copy is not counted."
    if args.kv_dtype.name == "fp8":
        scales = "Two fp32 scales per layer, 8 B, are not counted."
        source = "QuantizedCache, Fp8QuantizedLayer"
        cache = "QuantizedCache, backend fp8"
        return _layout(specs, args, ENGINE.layer_bytes, source, cache, dequantized, scales)
    _check_plain_dtype(args)
    residual = RESIDUAL if args.residual_length is None else args.residual_length
    return _layout(
        specs,
        args,
        lambda cached, workload, kv_dtype: _quantized_bytes(cached, workload, kv_dtype, residual),
        "QuantizedCache, QuantizedLayer (backends quanto and hqq)",
        f"QuantizedCache, {BITS} bits in groups of {GROUP}, residual {residual}",
        dequantized,
        "The residual is counted at its longest: when it is full, it is quantized with all "
        "tokens before it.",
    )


def _layout(
    specs: tuple[LayerCacheSpec, ...],
    args: TransformersArgs,
    layer_bytes: Callable[[CacheSpec, Workload, DType], int],
    classes: str,
    cache: str,
    *notes: str,
    bound: Bound = "lower",
) -> UnpagedLayout:
    source = f"transformers, cache_utils.py: {classes}"
    facts = (f"version {VERSION}", cache)
    return UnpagedLayout(
        (specs,),
        args.kv_dtype,
        args.source,
        layer_bytes,
        source,
        bound,
        facts,
        notes,
        None,
        VERSION,
    )


_IMPLEMENTATIONS = {"dynamic": _dynamic, "static": _static, "quantized": _quantized}


def _is_plain(kv_dtype: DType) -> bool:
    """Return whether a model's own K and V can have the dtype."""
    return kv_dtype.group is None and kv_dtype.name != "fp8"


def _check_plain_dtype(args: TransformersArgs) -> None:
    """Raise AttncalcError if the dtype is not one that a model's own K and V can have."""
    if not _is_plain(args.kv_dtype):
        raise AttncalcError(
            f"--kv-dtype {args.kv_dtype.name}: this cache has the dtype of the model",
            "leave it out; --cache-implementation quantized stores 4 bits, and with --kv-dtype "
            "fp8 8 bits",
        )


def _as_stored(cached: CacheSpec) -> CacheSpec:
    """Return `cached` as transformers' own class stores it.

    Falcon repeats K and V for every query head, and convolutions of width 4 keep 4 tokens, of which
    the next needs 3.
    """
    if cached.repeated != 1:
        cached = cached._replace(rows=cached.rows * cached.repeated, repeated=1)
    if cached.spare:
        return cached._replace(spare=0)
    return cached


def _quantized_bytes(
    cached: CacheSpec, workload: Workload, kv_dtype: DType, residual_length: int
) -> int:
    """Return the bytes that one layer of a 4-bit QuantizedCache stores, with the residual at its
    longest.

    The tokens of the first call are quantized at once. Later tokens wait unquantized; when there
    are `residual_length` of them, all tokens are quantized. So with residual_length 128 at most 127
    tokens wait.
    """
    cached = _as_stored(cached)
    length = symbol_like(
        workload.context,
        "residual_length",
        residual_length,
        "tokens at which the residual is quantized",
    )
    waiting = minimum(workload.context - 1, length - 1)
    elements = workload.batch * (workload.context - waiting) * cached.rows * cached.width
    # quanto and hqq store a scale and a zero point per group, in the model's dtype.
    scale_bytes = 2 * (kv_dtype.bits // 8)
    quantized = ceil_div(elements * BITS, 8) + ceil_div(elements, GROUP) * scale_bytes
    return quantized + workload.batch * waiting * cached.rows * kv_dtype.row_bytes(cached.width)
