"""SGLang's pools of compressed attention (DeepSeek-V4 and V4.1): windows, pools of tokens, and
tokens to pool.

All have pages of 256 tokens. A page of the full pool has 64 keys in each layer with pools of 4, and
as many of its indexer, and 2 in each layer with pools of 128. A page of the sliding-window pool has
256 keys in every layer, and the last tokens to pool by 4. Tokens to pool by 128 belong to a
request; up to 0.5.14 to a page of windows too.

The sliding-window pool has 0.1 tokens per token of the full pool. From 0.5.21 on, unless a ratio is
given, it has as many as --max-running-requests may need, and the full pool gets what is left.

DeepSeek-V4.1 has pools of 2 tokens and of single ones, in the few layers that own them, with
indexer's keys in fp4. Its tokens to pool by 2 belong to a request.

Example: DeepSeek-V4-Flash in 0.5.15 takes 985,664 B per page of the full pool: 21 x 64 x (584 +
132) + 20 x 2 x 584.
A page of the sliding-window pool takes 9,869,312 B: 256 x 43 x 584 + 16 x 21 x 10,240. So a token
takes 985,664 / 256 + 0.1 x 9,869,312 / 256 = 7,705.45 B, as logged (bytes_per_full_token).
DeepSeek-V4.1-Flash in 0.5.22 takes (584 + 68) x (3 / 2 + 1) = 1,630 B, 41 / 40 of it with a
drafter: 1,670.75 B.

Source: DSV4PoolConfigurator (srt/model_executor/pool_configurator.py) and
srt/mem_cache/deepseek_v4_memory_pool.py of 0.5.12 to 0.5.23, for NVIDIA GPUs.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction

from ...errors import AttncalcError
from ...quantity import Quantity, ceil_div, named, quantity
from ...records import NamedTuple, dataclass
from ...units import BYTES, GIB, TOKENS, dtype, parse_decimal
from ..base import Detail
from ..ds_mla import (
    ALIGNMENT,
    KEY_BYTES,
    LARGE_POOL,
    SHARED_KEYS,
    SHARED_POOLED_KEYS,
    SHARED_POOLS,
    SMALL_POOL,
    check_stored,
    has_shared_pools,
    index_key_bytes,
    padded_page,
)
from ..pipeline import LayerCacheSpec, cut_into_stages
from .options import SglangArgs
from .pools import ModelPools, StageLayers, TokenRow, stage_sizes
from .share import chunked_prefill_size
from .slots import Allocated, SglangLayout, TokenCost

_PAGE = 256
# --max-running-requests unless it is given (apply_deepseek_v4_defaults in
# arg_groups/deepseek_v4_hook.py).
_REQUESTS = 256
# --swa-full-tokens-ratio unless it is given.
_SWA_RATIO = "0.1"
# Ends of cached prefixes whose windows are kept (--swa-prefix-tails).
_TAILS_PER_REQUEST = 4
_CHUNKS_IN_FLIGHT = 2


class StageBytes(NamedTuple):
    """What one pipeline stage stores."""

    layers: int
    page: int  # bytes of a page of the full pool
    window_page: int  # bytes of a page of the sliding-window pool
    request: int  # bytes of a request's tokens to pool by 128, or by 2
    padding: int  # bytes after those of all requests, as many as one pool has
    reserved: int  # bytes of reserved pages


@dataclass(frozen=True)
class CompressedLayout(SglangLayout):
    """The pools of a model with compressed attention."""

    stage_bytes: tuple[StageBytes, ...] = ()  # what each pipeline stage stores
    window_cap: int | None = None  # tokens of the sliding-window pool; None if the ratio decides
    shares_pools: bool = False  # whether the model is DeepSeek-V4.1

    @property
    def facts(self) -> tuple[str, ...]:
        facts = super().facts
        if self.window_cap is not None:
            return tuple(f for f in facts if not f.startswith("swa"))
        return facts

    @property
    def _requests(self) -> int:
        return self.max_num_seqs or _REQUESTS

    def _with_drafter(self, size: int, stage: int) -> int:
        """Return the bytes, of which a drafter takes as many as one more layer: of 43 layers, 44 /
        43.
        """
        layers = self.stage_bytes[stage].layers
        if self.args.has_drafter:
            return ceil_div(size * (layers + 1), layers)
        return size

    def _token_costs(self) -> Iterator[TokenCost]:
        for i, stage in enumerate(self.stage_bytes):
            pages = 1 if self.window_cap is not None else self.swa_ratio.denominator
            cost = pages * named(stage.page, "page_bytes", "bytes of a page of tokens in all pools")
            if self.window_cap is None:
                meaning = "bytes of a page of windows, with the tokens to pool by 4"
                cost = cost + self.swa_ratio.numerator * named(
                    stage.window_page, "window_page_bytes", meaning
                )
            if self.args.has_drafter:
                cost = cost * (stage.layers + 1)
                pages = pages * stage.layers
            yield TokenCost(i, cost, pages * self.page)

    def _unpooled_bytes(self, stage: int) -> int:
        """Return the bytes of tokens to pool: of all requests, two more, and the rows of one pool
        as padding.
        """
        return (self._requests + 2) * self.stage_bytes[stage].request + self.stage_bytes[
            stage
        ].padding

    def _window_bytes(self, stage: int, tokens: int) -> int:
        return self._with_drafter(tokens // self.page * self.stage_bytes[stage].window_page, stage)

    def _fixed_bytes(self, stage: int) -> int:
        fixed = self._unpooled_bytes(stage) + self.stage_bytes[stage].reserved
        if self.window_cap is None:
            return fixed
        return fixed + self._window_bytes(stage, self.window_cap)

    def _swa_tokens(self, tokens: Quantity) -> Quantity | None:
        if self.window_cap is None:
            return super()._swa_tokens(tokens)
        return quantity(self.window_cap)

    def _full_tokens_needed(self, batch: int, context: int) -> int:
        if self.window_cap is None:
            return super()._full_tokens_needed(batch, context)
        return self._tokens_in_pages(batch, context)

    def _details(self, found: Allocated) -> Iterator[Detail]:
        windows = int(found.swa_tokens or 0)
        yield Detail(
            "kv_bytes_per_block",
            "one page, pools",
            quantity(self.stage_bytes[found.stage].page),
            BYTES,
        )
        yield Detail("swa_tokens", "tokens of the sliding-window pool", quantity(windows), TOKENS)
        size = quantity(self._window_bytes(found.stage, windows))
        yield Detail("swa_bytes", "bytes of the sliding-window pool", size, BYTES)
        unpooled = self._unpooled_bytes(found.stage)
        if unpooled:
            label = f"tokens to pool of {self._requests} requests"
            yield Detail("unpooled_bytes", label, quantity(unpooled), BYTES)
        yield Detail("kv_block_size", "tokens per page", quantity(self.page), TOKENS)

    def _log_lines(self, found: Allocated) -> Iterator[str]:
        cost = list(self._token_costs())[found.stage]
        tokens = int(found.tokens_here)
        windows = int(found.swa_tokens or 0)
        version = self.args.version
        if self.window_cap is not None:
            yield f"DSV4 SWA sizing: mode=cap, swa_tokens={windows}, ..."
        unpooled = self._unpooled_bytes(found.stage)
        name = "c2_state_fixed" if self.shares_pools else "c128_state_fixed"
        fixed = f"{name}={unpooled / GIB:.2f} GB, ... " if unpooled else ""
        per_token = int(cost.size) / cost.tokens
        yield (
            f"DSV4 memory calculation: ... bytes_per_full_token={per_token:.2f}, "
            f"... {fixed}full_token={tokens}"
        )
        rings = (
            windows
            // (self.page if version.keeps_unpooled_by_page else LARGE_POOL)
            * _ring(SMALL_POOL, self.args)
        )
        rings = 0 if self.shares_pools else rings
        if version.keeps_unpooled_by_request:
            large = 0
        else:
            large = windows // LARGE_POOL * _ring(LARGE_POOL, self.args)
        yield (
            f"DSV4 pool sizes: full={tokens}, swa={windows}, c4={tokens // SMALL_POOL}, "
            f"c128={tokens // LARGE_POOL}, c4_state={rings}, c128_state={large}"
        )
        yield f"max_total_num_tokens={tokens}, ..."


def compressed_layout(specs: Sequence[LayerCacheSpec], args: SglangArgs) -> CompressedLayout:
    """Return SGLang's pools of compressed attention. Raises AttncalcError if it does not support
    the arguments.
    """
    version = args.version
    version.require("has_compressed_attention", "SGLang", "compressed attention (DeepSeek-V4)")
    cached = [c for spec in specs for c in spec.cached]
    shares_pools = has_shared_pools(cached)
    if shares_pools:
        version.require("has_shared_pools", "SGLang", "DeepSeek-V4.1")
        if args.pp > 1:
            raise AttncalcError(
                "SGLang does not support --pp for DeepSeek-V4.1", "use --tp instead"
            )
    check_stored(
        cached,
        args.kv_dtype.name,
        "SGLang",
        SHARED_POOLS if shares_pools else (SMALL_POOL, LARGE_POOL),
    )
    if args.block_size not in (None, _PAGE):
        raise AttncalcError(
            f"--block-size {args.block_size}: SGLang's pages of compressed attention have "
            f"{_PAGE} tokens",
            "leave --block-size out",
        )
    if args.disable_hybrid_swa_memory:
        raise AttncalcError(
            "--disable-hybrid-swa-memory does not apply to compressed attention", "leave it out"
        )
    if not version.counts_windows_by_stage and args.pp > 1:
        raise AttncalcError(
            f"SGLang {version.name} sizes the pools of each pipeline stage for all layers, which "
            "is not supported",
            "use --engine-version 0.5.13 or later, or leave --pp out",
        )
    requests = max(1, (args.max_running_requests or _REQUESTS) // args.attn_dp)
    given = args.swa_full_tokens_ratio
    ratio = Fraction(*parse_decimal(given or _SWA_RATIO, "--swa-full-tokens-ratio", upper=1))
    window = int(next(c.span.reach or 0 for c in cached if c.role == "shared"))
    stages = cut_into_stages(specs, args.pp, stage_sizes)
    key = TokenRow(KEY_BYTES, KEY_BYTES, True)
    pools = ModelPools(
        key, key, 0, window, False, False, tuple(StageLayers(0, 0, 0, 0, 0) for _ in stages)
    )
    capped = version.caps_windows and given is None
    return CompressedLayout(
        args,
        pools,
        None,
        _PAGE,
        ratio,
        requests,
        tuple(_notes(args, requests, capped=capped)),
        stage_bytes=tuple(_stage_bytes(stage, args, shares_pools=shares_pools) for stage in stages),
        window_cap=_window_cap(args, window, requests) if capped else None,
        shares_pools=shares_pools,
    )


def _ring(size: int, args: SglangArgs) -> int:
    """Return how many tokens to pool are kept: 8 for pools of 4, which overlap, 128 for 128; with a
    drafter twice.

    Those of pools of 2 have room for the drafted tokens: 8 for 2 + 6.
    """
    if size in SHARED_POOLS:
        if args.has_drafter:
            return 1 << (args.speculative_tokens + 1).bit_length()
        return size
    return (2 * SMALL_POOL if size == SMALL_POOL else size) * (2 if args.has_drafter else 1)


def _stage_bytes(
    stage: Sequence[LayerCacheSpec], args: SglangArgs, *, shares_pools: bool
) -> StageBytes:
    version = args.version
    fp32 = dtype("fp32")
    keys = (KEY_BYTES, ALIGNMENT)
    pooled = (KEY_BYTES, ALIGNMENT)
    reserves = shares_pools and version.reserves_shared_pages
    if reserves and args.capability == 10 and args.tp == args.attn_dp:
        # flashmla_mega (arg_groups/deepseek_v4_hook.py)
        keys = SHARED_KEYS
        pooled = SHARED_POOLED_KEYS

    def paged(rows: int, stored: tuple[int, int], *, padded: bool) -> int:
        if padded:
            return padded_page(rows * stored[0], stored[1])
        return rows * stored[0]

    # dsv41_index_page_size
    padded = version.counts_padded_pages
    index_page = 128 if args.capability == 10 else 64
    layers = sum(spec.layers for spec in stage)
    # that of multi-token prediction
    windows = layers + (0 if version.counts_windows_by_stage else 1)
    page = 0
    request = 0
    padding = 0
    reserved = 0
    window_page = windows * paged(_PAGE, keys, padded=padded)
    for spec in stage:
        for c in spec.cached:
            size = c.pool_size
            if c.role == "pools":
                pools = spec.layers * paged(
                    _PAGE // size, pooled, padded=reserves if shares_pools else padded
                )
                page = page + pools
                reserved = reserved + size * pools
            elif c.role == "index_pools":
                key = spec.layers * index_key_bytes(int(c.width), fp4=shares_pools)
                page = page + _PAGE // size * key
                reserved = reserved + (_PAGE // size + index_page) * key
            elif c.role == "unpooled":
                row = spec.layers * c.rows * fp32.row_bytes(int(c.width))
                ring = _ring(size, args) * row
                if size in SHARED_POOLS or (
                    size == LARGE_POOL and version.keeps_unpooled_by_request
                ):
                    request = request + ring
                    padding = padding + size * row
                else:
                    window_page += ring * (
                        1 if version.keeps_unpooled_by_page else _PAGE // LARGE_POOL
                    )
    return StageBytes(
        layers, int(page), int(window_page), int(request), int(padding), int(reserves and reserved)
    )


def _window_cap(args: SglangArgs, window: int, requests: int) -> int:
    """Return the tokens of the sliding-window pool that all requests may need
    (compute_swa_request_cap).

    A request keeps its window, 128 tokens per drafted one that wait for eviction, a page, and the
    next page or a drafter's tokens. Two chunks of a prefill are in flight. Four ends of prefixes
    per request stay in the radix cache.

    Example of a log: 4 requests with 6 drafted tokens, chunks of 1,024 and 16 ends take
    4 x (128 + 6 x 128 + 256 + 12) + 2 x 1,024 + 256 + 16 x (128 + 256), in pages 13,312 tokens.
    """
    drafted = max(1, args.speculative_tokens)
    next_tokens = 2 * drafted if args.has_drafter else _PAGE
    chunk = chunked_prefill_size(args) // args.attn_dp
    tails = _TAILS_PER_REQUEST * requests if args.radix_cache else 0
    tokens = (
        requests * (window + 128 * drafted + _PAGE + next_tokens)
        + _CHUNKS_IN_FLIGHT * chunk
        + _PAGE
    )
    return int(ceil_div(tokens + tails * (window + _PAGE), _PAGE)) * _PAGE


def _notes(args: SglangArgs, requests: int, *, capped: bool) -> Iterator[str]:
    if capped:
        yield (
            f"The sliding-window pool is for {requests} running requests and the prefixes in the "
            "radix cache, whatever "
            "their length: a smaller --max-running-requests leaves more for tokens."
        )
    else:
        yield (
            "A prompt's chunk takes more of the sliding-window pool during its prefill; that is "
            "not counted."
        )
    if args.has_drafter:
        yield (
            "SGLang keeps twice as many tokens to pool with a drafter, and counts the drafter as "
            "one more layer."
        )
    if args.device.startswith("AMD"):
        yield "These are the pools on NVIDIA GPUs; SGLang has others on AMD GPUs (unified_kv)."
    if args.attn_dp > 1:
        yield "Each rank of DP attention runs its part of the requests, with pools of its own."
