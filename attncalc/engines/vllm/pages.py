"""What one layer's cache is to vLLM: a page of some tokens, or of a state (v1/kv_cache_interface.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from ...attention import CacheSpec, Chunked, Sliding
from ...errors import AttncalcError
from ...quantity import Quantity, ceil_div, symbol, total
from ...units import DType, dtype
from ..base import EngineArgs
from .versions import VllmVersion

Kind = Literal["full", "mla", "sliding", "chunked", "cross", "mamba"]
_DTYPES = ("fp32", "fp16", "bf16", "fp8", "int8", "int4", "fp4")
"""Dtypes that vLLM has for a cache; a latent has the plain ones alone."""


class LayerSpec(NamedTuple):
    """One layer's cache: `block_size` tokens of `token_bytes` each; of a state, one page of `token_bytes`.

    shape: what tells specs of equal bytes apart. reach: the window's or the chunk's tokens. padded: bytes
    that its page is padded to.
    """

    kind: Kind
    block_size: int
    token_bytes: int
    shape: tuple[tuple[int, int], ...] = ()
    reach: int | None = None
    padded: int | None = None

    @property
    def page_bytes(self) -> int:
        """Bytes of one block of one layer."""
        return self.padded or self.real_bytes

    @property
    def real_bytes(self) -> int:
        """The same without padding."""
        return self.token_bytes if self.kind == "mamba" else self.block_size * self.token_bytes

    @property
    def full(self) -> bool:
        """It keeps every token: what vLLM calls one type, whatever its widths."""
        return self.kind in ("full", "mla")

    @property
    def words(self) -> str:
        """'full', 'sliding 1,024'."""
        return self.kind if self.reach is None else f"{self.kind} {int(self.reach):,}"

    @property
    def alike(self) -> tuple[object, ...]:
        """What equal specs share; plain ints, since formulas are no part of it."""
        return (self.kind, int(self.block_size), int(self.page_bytes), self.shape, self.reach and int(self.reach))


def specs(cached: tuple[CacheSpec, ...], args: EngineArgs, does: VllmVersion, block_size: int) -> Iterator[LayerSpec]:
    """The caches of one layer: its keys and values, an indexer's beside them, its state, what it keeps of a source.

    AttncalcError: for a cache that vLLM's layout is not known of here.
    """
    sparse = any(c.role == "indexer" for c in cached)
    heads = [c for c in cached if c.role in ("kv", "k", "v") and c.scales_with == "context"]
    across = [c for c in cached if c.role in ("kv", "k", "v") and c.scales_with == "source"]
    states = [c for c in cached if c.role in ("convolution", "state")]
    for c in cached:
        if c.role == "other":
            raise AttncalcError(f"vLLM's layout of '{c.name}' is not known here", "'--engine ideal' counts it")
    if heads:
        yield _of_heads(heads, args.kv_dtype, does, block_size)
    for c in cached:
        if c.role == "latent":
            yield LayerSpec("mla", block_size, _latent_bytes(c, args.kv_dtype, sparse), _shape([c]))
        if c.role == "indexer":
            yield LayerSpec("mla", block_size, _indexer_bytes(c), _shape([c]))
    if states:
        page = total(_state_bytes(c, args) for c in states)
        yield LayerSpec(
            "mamba", block_size, page if isinstance(states[0].rows, Quantity) else int(page), _shape(states)
        )
    if across:
        yield _of_heads(across, args.kv_dtype, does, block_size)._replace(kind="cross")


def _shape(cached: list[CacheSpec]) -> tuple[tuple[int, int], ...]:
    return tuple((int(c.rows), int(c.width)) for c in cached)


def _of_heads(cached: list[CacheSpec], stored: DType, does: VllmVersion, block_size: int) -> LayerSpec:
    if stored.name not in _DTYPES:
        raise AttncalcError(f"vLLM has no cache in {stored.name}", f"known: {', '.join(_DTYPES)}")
    span = cached[0].span
    kind: Kind = "full"
    if isinstance(span, Sliding):
        kind = "sliding"
    elif isinstance(span, Chunked):
        kind = "chunked"
    widths = [c.width for c in cached]
    if does.pads_values:  # K and V of one width: the narrower is padded
        widths = [max(widths, key=int)] * len(widths)
    token = sum(c.rows * stored.row_bytes(width) for c, width in zip(cached, widths, strict=True))
    block = does.window_block(block_size) if kind == "sliding" else block_size
    return LayerSpec(kind, block, token, _shape(cached), span.reach)


def _latent_bytes(latent: CacheSpec, stored: DType, sparse: bool) -> int:
    """Bytes of a token's latent. Where an indexer picks tokens, fp8 is fp8_ds_mla: the rotary key stays in
    16 bits, and each 128 elements of the latent have an fp32 scale: 512 + 4 * 4 + 64 * 2 = 656.
    """
    if stored.group is not None:
        raise AttncalcError(f"vLLM has no cache of latents in {stored.name}", "known: fp32, fp16, bf16, fp8")
    if not (sparse and stored.name == "fp8"):
        return stored.row_bytes(latent.width)
    if latent.width != 576:
        raise AttncalcError(
            f"vLLM's fp8_ds_mla is of latents of 512 + 64, not of {int(latent.width)}", "--kv-dtype bf16 is another"
        )
    rank = latent.width - latent.rotary
    scales = 4 * ceil_div(rank, 128)
    return rank + scales + latent.rotary * dtype("bf16").row_bytes(1)


def _indexer_bytes(keys: CacheSpec) -> int:
    """Bytes of a token's indexer key: fp8, with an fp32 scale for each 128 elements, whatever the cache's dtype."""
    return keys.width + 4 * ceil_div(keys.width, 128)


def _state_bytes(state: CacheSpec, args: EngineArgs) -> int:
    """Bytes of a convolution's last tokens, or of a state (model_executor/layers/mamba/mamba_utils.py).

    A convolution of width k keeps k - 1 tokens and those that a drafter may have to take back.
    """
    plain = args.dtype
    if state.role == "convolution":
        drafted = args.speculative_tokens
        if isinstance(state.rows, Quantity) and drafted:
            drafted = symbol("speculative_tokens", drafted, "tokens that a drafter proposes in a step")
        return state.rows * plain.row_bytes(state.width - 1 + drafted, "conv_bytes")
    if state.dtype is None:  # lightning attention's, which mamba_ssm_cache_dtype is not for
        return state.rows * plain.row_bytes(state.width, "state_bytes")
    kept = args.mamba_ssm_cache_dtype or (dtype(state.requested_dtype) if state.requested_dtype else plain)
    return state.rows * kept.row_bytes(state.width, "state_bytes")
