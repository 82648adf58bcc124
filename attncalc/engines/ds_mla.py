"""FlashMLA's formats of compressed attention (DeepSeek-V4 and V4.1), fp8_ds_mla, in which vLLM and
SGLang store keys.

Source: FlashMLA's README; vLLM's v1/attention/backends/mla/sparse_swa.py; SGLang's
mem_cache/deepseek_v4_memory_pool.py and kernels/ops/attention/dsv4/kv_layout.py.
"""

from collections.abc import Iterable

from ..attention import CacheSpec
from ..errors import AttncalcError
from ..model import ModelSpec
from ..quantity import ceil_div, symbol_like
from ..units import DS_MLA, dtype

# Bytes of a key of 512 elements: 448 in fp8 with 8 B of scales, and 64 rotary ones in 16 bits.
KEY_BYTES = 448 + 8 + 2 * 64
# Tokens of DeepSeek-V4's two kinds of pools.
SMALL_POOL = 4
LARGE_POOL = 128
# Tokens of DeepSeek-V4.1's pools, which several layers read.
SHARED_POOLS = (1, 2)
_KEY_WIDTH = 512
_LATENT = (512 + 64, 64)  # its elements, and those of its rotary key among them
_UNPOOLED = ("unpooled", "last_pool")
# Bytes that a page is a multiple of by default.
ALIGNMENT = 576


# DeepSeek-V4.1 on Blackwell data-center GPUs: bytes of a key in fp8 and of a pool in fp4, with
# scales per 32 and per 16 elements, and the bytes that a page of them is a multiple of.
SHARED_KEYS = (_KEY_WIDTH + _KEY_WIDTH // 32, 512)
SHARED_POOLED_KEYS = (_KEY_WIDTH // 2 + _KEY_WIDTH // 16, 256)


def has_pools(model: ModelSpec) -> bool:
    """Return whether the model has compressed attention."""
    return "pools" in cache_roles(model)


def picks_latents(model: ModelSpec) -> bool:
    """Return whether an indexer picks the latents that a query attends to (DeepSeek-V3.2,
    GLM-5).
    """
    roles = cache_roles(model)
    return "latent" in roles and not roles.isdisjoint({"indexer", "gated_averages"})


def cache_roles(model: ModelSpec) -> set[str]:
    """Return the roles of all that the layers cache."""
    return {c.role for _, layers in model.groups() for c in layers.cache()}


def index_key_bytes(width: int, *, fp4: bool = False) -> int:
    """Return the bytes of an indexer's key: in fp8 with a 4-byte scale per 128 elements, in fp4
    with 1 B per 32.
    """
    if fp4:
        return width // 2 + width // 32
    return width + 4 * ceil_div(width, 128)


def row_bytes(cached: CacheSpec) -> int:
    """Return the bytes of one row of a cache in fp8_ds_mla, without the padding of pages."""
    if cached.role == "latent":
        return latent_row_bytes(cached)
    if cached.role in ("indexer", "index_pools"):
        return index_key_bytes(cached.width)
    if cached.role in ("shared", "pools"):
        return symbol_like(
            cached.width, "key_bytes", KEY_BYTES, f"bytes of a key of 512 elements in {DS_MLA}"
        )
    return dtype("fp32" if cached.role in _UNPOOLED else "fp8").row_bytes(cached.width)


def latent_row_bytes(latent: CacheSpec) -> int:
    """Return the bytes of one token's latent: in fp8 with an fp32 scale per 128 elements, its
    rotary key in 16 bits.

    512 + 512 / 128 * 4 + 64 * 2 = 656 B.
    """
    rank = latent.width - latent.rotary
    return rank + 4 * ceil_div(rank, 128) + latent.rotary * dtype("bf16").row_bytes(1)


def ds_mla_problem(model: ModelSpec) -> str:
    """Return why a model's cache cannot be in fp8_ds_mla, in words that follow the model's title;
    '' if it can.
    """
    if not (picks_latents(model) or has_pools(model)):
        return "has neither"
    for c in (c for _, layers in model.groups() for c in layers.cache()):
        if c.role == "latent" and (c.width, c.rotary) != _LATENT:
            rotary = f"{int(c.width) - int(c.rotary or 0)} + {int(c.rotary or 0)}"
            return f"has latents of {rotary} elements, not of 512 + 64"
        if c.role in ("shared", "pools") and c.width != _KEY_WIDTH:
            return f"has keys of {int(c.width)} elements, not of 448 + 64"
    return ""


def padded_page(page: int, alignment: int = ALIGNMENT) -> int:
    """Return the bytes of a page of keys with its padding: 64 keys of 584 B are 37,376 B, padded to
    37,440.
    """
    return alignment * ceil_div(page, alignment)


def has_shared_pools(cached: Iterable[CacheSpec]) -> bool:
    """Return whether one of these caches has the pools of DeepSeek-V4.1."""
    return any(c.role == "pools" and c.pool_size in SHARED_POOLS for c in cached)


def check_stored(
    cached: Iterable[CacheSpec],
    kv_dtype: str,
    engine: str,
    sizes: tuple[int, ...] = (SMALL_POOL, LARGE_POOL),
) -> None:
    """Raise AttncalcError if these caches of compressed attention, with pools of these sizes,
    cannot be so stored.
    """
    from ..attention.picked import Pools  # most models have none

    other_engine = "use --engine ideal for a lower bound"
    if kv_dtype != "fp8":
        raise AttncalcError(
            f"{engine}'s FlashMLA stores compressed attention in fp8 (fp8_ds_mla), not in "
            f"{kv_dtype}",
            "use --kv-dtype fp8",
        )
    for c in cached:
        if c.role in ("shared", "pools") and c.width != _KEY_WIDTH:
            raise AttncalcError(
                f"{engine}'s fp8_ds_mla is for keys of 448 + 64 elements here, not of "
                f"{int(c.width)}",
                other_engine,
            )
        if isinstance(c.span, Pools) and int(c.span.size) not in sizes:
            raise AttncalcError(
                f"attncalc does not know how {engine} stores pools of {int(c.span.size)} tokens, "
                f"only those of {' and '.join(map(str, sizes))}",
                other_engine,
            )
