"""FlashMLA's format of compressed attention (DeepSeek-V4), fp8_ds_mla, in which vLLM and SGLang store keys.

Source: FlashMLA's README; vLLM's v1/attention/backends/mla/sparse_swa.py; SGLang's
mem_cache/deepseek_v4_memory_pool.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..attention import CacheSpec
from ..errors import AttncalcError
from ..model import ModelSpec
from ..quantity import ceil_div

KEY_BYTES = 448 + 8 + 2 * 64
"""Bytes of a key of 512 elements: 448 in fp8 with 8 B of scales, and 64 rotary ones in 16 bits."""
SMALL_POOL, LARGE_POOL = 4, 128
"""Tokens of the two kinds of pools."""
_KEY_WIDTH = 512
_ALIGNMENT = 576
"""Bytes that a page is a multiple of."""


def has_pools(model: ModelSpec) -> bool:
    """Return whether the model has compressed attention."""
    return any(c.role == "pools" for _, layers in model.groups() for c in layers.cache())


def index_key_bytes(width: int) -> int:
    """Return the bytes of an indexer's key: in fp8, with an fp32 scale per 128 elements."""
    return width + 4 * ceil_div(width, 128)


def padded_page(page: int) -> int:
    """Return the bytes of a page of keys with its padding: 64 keys of 584 B are 37,376 B, padded to 37,440."""
    return _ALIGNMENT * ceil_div(page, _ALIGNMENT)


def check_stored(cached: Iterable[CacheSpec], kv_dtype: str, engine: str) -> None:
    """Raise AttncalcError if these caches of compressed attention cannot be in this format."""
    from ..attention.picked import Pools  # most models have none

    other_engine = "use --engine ideal for a lower bound"
    if kv_dtype != "fp8":
        raise AttncalcError(
            f"{engine}'s FlashMLA stores compressed attention in fp8 (fp8_ds_mla), not in {kv_dtype}",
            "use --kv-dtype fp8",
        )
    for c in cached:
        if c.role in ("shared", "pools") and c.width != _KEY_WIDTH:
            raise AttncalcError(
                f"{engine}'s fp8_ds_mla is for keys of 448 + 64 elements here, not of {int(c.width)}", other_engine
            )
        if isinstance(c.span, Pools) and int(c.span.size) not in (SMALL_POOL, LARGE_POOL):
            raise AttncalcError(
                f"{engine} has pools of {SMALL_POOL} and of {LARGE_POOL} tokens, not of {int(c.span.size)}",
                other_engine,
            )
