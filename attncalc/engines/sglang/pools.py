"""What SGLang stores of a model's layers: the rows of its token pools and the slots of its states.

All layers of a pool have rows of one size, and a layer without keys of its own (it shares another's) has
them too: SGLang counts layers, not caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...attention import CacheSpec, Chunked, Full, Sliding
from ...attention.span import Selected
from ...errors import AttncalcError
from ...quantity import Quantity, named, symbol
from ...units import DType, dtype
from ..base import EngineArgs
from ..pipeline import LayerCacheSpec, gathered, stages, summed

SCALED = 128
"""Elements that share an fp32 scale, in an fp8 latent and in an indexer's key."""
KEYS = ("kv", "k", "v", "latent")
WINDOWED = frozenset(
    {
        *("beam", "deepseek_v4", "diffusion_gemma", "dots3_note", "embedding_gemma2", "gemma4", "gemma4_text"),
        *("gemma4_unified", "gpt_oss", "granite_swa", "granitemoe_swa", "inkling_mm_model", "iquest_q1", "laguna"),
        *("llama4", "mellum", "mimo_v2", "mimo_v2_flash", "muse_glimmer", "muse_spark", "spark2_5", "step3p5"),
        *("step3p7", "unlimited-ocr", "unlimited_ocr"),
    }
)
"""The model_types whose windows SGLang keeps in a pool of their own; all others' are kept like full attention.

Source: SGLang 0.5.23, is_hybrid_swa_model (srt/configs/model_config.py), which lists classes, and the configs
in srt/configs that say is_hybrid_swa. Text-only Llama 4 (llama4_text) is not among them, and Gemma 2 and 3,
Exaone 4 and OLMo 3 are switched off besides (srt/arg_groups/model_overrides).
"""


class Row(NamedTuple):
    """Bytes of one token in one layer of a pool.

    k, v: those that the start-up lines count as K and V; a latent is K alone, and the scales of its fp4
    are not counted there.
    """

    total: int
    k: int
    v: int
    latent: bool


class Stage(NamedTuple):
    """One pipeline stage: its layers in the full pool and in the windows' pool, those with an indexer,
    and the bytes of one slot of its states, convolutions and the rest.
    """

    full: int
    swa: int
    indexers: int
    convolution: int
    ssm: int


class Pools(NamedTuple):
    """A model as SGLang's pools have it.

    full, swa: a row of each pool; no swa: one pool. indexer: bytes of an indexer's key. window: tokens
    before a query that it sees. states: some layers keep states; buffered: SGLang copies them for its radix
    cache while a request runs (its extra_buffer), as it can where they are more than a convolution.
    """

    full: Row
    swa: Row | None
    indexer: int
    window: int
    states: bool
    buffered: bool
    stages: tuple[Stage, ...]


def read(kept: Sequence[LayerCacheSpec], args: EngineArgs) -> Pools:
    """Those layers as SGLang has them. AttncalcError: it has no pool for them, or none is known here."""
    everything = [cached for run in kept for cached in run.cached]
    for cached in everything:
        _known(cached)
    keys = [cached for cached in everything if cached.role in KEYS]
    if not keys:
        raise AttncalcError(
            "SGLang: no layer keeps keys or a latent", "its token pool is sized by them: choose another engine"
        )
    windows = {cached.span for cached in keys if isinstance(cached.span, (Sliding, Chunked))}
    states = [cached for cached in everything if cached.scales_with == "never"]
    two = bool(windows) and args.model_type in {None, *WINDOWED} and not args.disable_hybrid_swa_memory
    if two and (states or all(cached.span.reach is not None for cached in keys)):
        if args.model_type is not None:
            beside = "beside states" if states else "without full attention"
            raise AttncalcError(f"SGLang: a pool of windows {beside} is not known here", _ALONE)
        two = False
    if two and len(windows) > 1:
        raise AttncalcError("SGLang: its pool of windows has one window, these layers have several", _ALONE)
    dsa = next((cached for cached in everything if cached.role == "indexer"), None)
    _can_store(keys, args, dsa, two)
    if two and not all(any(c.role in KEYS for c in run.cached) for run in kept):
        raise AttncalcError(
            "SGLang: layers without keys of their own have rows too, and of which of the two pools is not known",
            "choose another engine",
        )
    return Pools(
        full=_row(kept, args, dsa is not None, two, windowed=False),
        swa=_row(kept, args, False, two, windowed=True) if two else None,
        indexer=0 if dsa is None else dsa.width + dsa.width // SCALED * 4,
        window=_before(next(iter(windows))) if two else 0,
        states=bool(states),
        buffered=any(cached.role == "state" for cached in states),
        stages=tuple(_stage(part, args, two, bool(states)) for part in stages(kept, args.pp, stage_sizes)),
    )


_ALONE = "give --disable-hybrid-swa-memory to keep them like full attention, or choose another engine"


def stage_sizes(layers: int, pp: int) -> list[int]:
    """How many layers each pipeline stage has: those that do not divide go to the last stages, one each.

    Source: SGLang's get_pp_indices (distributed/utils.py). AttncalcError: fewer layers than stages.
    """
    if pp > layers:
        raise AttncalcError(f"--pp {pp}: there are {layers} layers", "give each stage at least one layer")
    return [(layers + stage) // pp for stage in range(pp)]


def _known(cached: CacheSpec) -> None:
    """AttncalcError: what no pool of SGLang's is known for."""
    what = None
    if cached.role == "other":
        what = cached.name
    elif cached.scales_with == "source":
        what = f"{cached.name} of a source"
    elif cached.scales_with == "context" and not isinstance(cached.span, _spans(cached)):
        what = f"{cached.name} of {cached.span.description}"
    elif cached.role == "indexer" and int(cached.width) != SCALED:
        what = f"indexer keys of {int(cached.width)} elements (SGLang's have {SCALED})"
    if what:
        raise AttncalcError(f"SGLang: no layout is known here for {what}", "choose another engine with --engine")


def _spans(cached: CacheSpec) -> tuple[type, ...]:
    """The spans that its pools are known for: an indexer picks among latents alone."""
    return (Full, Sliding, Chunked, Selected) if cached.role == "latent" else (Full, Sliding, Chunked)


def _can_store(keys: Sequence[CacheSpec], args: EngineArgs, dsa: CacheSpec | None, two: bool) -> None:
    """AttncalcError: SGLang has no such dtype, or not for these layers."""
    kv = args.kv_dtype
    if kv.name not in {"bf16", "fp8", "fp4", args.dtype.name} or args.dtype.group is not None:
        raise AttncalcError(
            f"SGLang has no cache in {kv.name} for a model in {args.dtype.name}",
            "its --kv-cache-dtype: auto (the model's own), bf16, fp8_e4m3, fp8_e5m2 or fp4",
        )
    if dsa and kv.name not in {"bf16", "fp8"}:
        raise AttncalcError(f"SGLang: a cache with an indexer cannot be in {kv.name}", "give bf16 or fp8")
    if dsa and kv.name == "fp8" and any((c.width - c.rotary) % SCALED for c in keys if c.role == "latent"):
        raise AttncalcError(f"SGLang: an fp8 latent is a multiple of {SCALED} elements here", "give bf16")
    if kv.name == "fp4" and (two or any(c.role in {"k", "v"} or c.width % 16 for c in keys)):
        raise AttncalcError(
            "SGLang: fp4 is for keys and values of one width, a multiple of 16, in one pool", "give fp8 or bf16"
        )


def _row(kept: Sequence[LayerCacheSpec], args: EngineArgs, dsa: bool, two: bool, *, windowed: bool) -> Row:
    """The row of a pool. AttncalcError: its layers' differ, where SGLang has one size for all."""
    rows = [
        _row_of(mine, args.kv_dtype, dsa)
        for run in kept
        if (mine := [c for c in run.cached if c.role in KEYS and _windowed(c, two) == windowed])
    ]
    if len({tuple(map(int, row)) for row in rows}) > 1:
        sizes = ", ".join(sorted({f"{int(row.total):,} B" for row in rows}))
        raise AttncalcError(
            f"SGLang: all layers of a pool have rows of one size, and these differ ({sizes} a token)",
            "choose another engine with --engine",
        )
    return rows[0]


def _row_of(mine: Sequence[CacheSpec], kv: DType, dsa: bool) -> Row:
    first = mine[0]
    if first.role == "latent":
        if dsa and kv.name == "fp8":  # fp8 latent with fp32 scales, the rotary key in bf16
            nope = first.width - first.rotary
            total = nope + nope // SCALED * 4 + first.rotary * 2
            return Row(total, int(total), 0, True)
        total = kv.row_bytes(first.width)
        return Row(total, int(first.width) // 2 if kv.name == "fp4" else int(total), 0, True)
    sizes = [c.rows * kv.row_bytes(c.width) for c in mine]
    total = sizes[0] if len(sizes) == 1 else sum(sizes)
    k = (
        int(total) // 2
        if first.role == "kv"
        else sum(int(s) for c, s in zip(mine, sizes, strict=True) if c.role == "k")
    )
    return Row(total, k, int(total) - k, False)


def _windowed(cached: CacheSpec, two: bool) -> bool:
    return two and isinstance(cached.span, (Sliding, Chunked))


def _before(span: Sliding | Chunked) -> int:
    """SGLang's sliding_window_size: a window without the query's own token, a chunk whole."""
    return int(span.window) - 1 if isinstance(span, Sliding) else int(span.chunk)


def _stage(part: Sequence[LayerCacheSpec], args: EngineArgs, two: bool, states: bool) -> Stage:
    """What one pipeline stage has. Without states every layer has its rows, in hybrids those with keys."""
    full = swa = indexers = 0
    for run in part:
        keys = [c for c in run.cached if c.role in KEYS]
        if any(_windowed(c, two) for c in keys):
            swa += run.layers
        elif keys or not states:
            full += run.layers
        indexers += run.layers if any(c.role == "indexer" for c in run.cached) else 0
    return Stage(
        full,
        swa,
        indexers,
        _slot(part, "convolution", args),
        _slot(part, "state", args),
    )


def _slot(part: Sequence[LayerCacheSpec], role: str, args: EngineArgs) -> int:
    """Bytes of a slot: the states of that role in all layers of a stage."""

    def one(run: LayerCacheSpec) -> int:
        return sum(_state(c, args) for c in run.cached if c.role == role)

    found = summed(gathered(part), one, f"{role}_bytes", f"bytes of a {role}")
    return named(found, f"{role}_slot", f"bytes of a slot, {role}s") if isinstance(found, Quantity) else found


def _state(cached: CacheSpec, args: EngineArgs) -> int:
    """Bytes of a layer's state; of a convolution its inputs before the newest, in bf16 whatever the model is in.

    Source: SGLang's mamba2_state_dtype and Mamba2StateShape (configs/mamba_utils.py).
    """
    if cached.role == "convolution":
        return cached.rows * (cached.width - 1) * _bytes(cached.width, "convolution_bytes", dtype("bf16"))
    kept_in = args.mamba_ssm_cache_dtype or dtype(cached.requested_dtype or "fp32")
    return cached.rows * cached.width * _bytes(cached.width, "state_bytes", kept_in)


def _bytes(shown: int, name: str, kept_in: DType) -> int:
    size = kept_in.bits // 8
    return symbol(name, size, f"bytes of an element in {kept_in.name}") if isinstance(shown, Quantity) else size
