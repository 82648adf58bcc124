"""How many tokens SGLang allocates in a memory, and how much memory a number of sequences needs.

Source: SGLang 0.5.23, srt/model_executor/pool_configurator.py and
srt/mem_cache/kv_cache_configurator.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from fractions import Fraction

from ...quantity import (
    Quantity,
    Ratio,
    ceil_div,
    maximum,
    minimum,
    named,
    quantity,
    ratio,
    renamed,
    summed,
    symbol,
    symbol_like,
)
from ...records import NamedTuple, dataclass
from ...units import BYTES, GIB, TOKENS
from ..base import Bound, Detail, Pool
from .options import SglangArgs
from .pools import ModelPools, StageLayers
from .states import StatePool

_TORCH_NAMES = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8_e4m3fn",
    "fp4": "float4_e2m1fn_x2",
}
# Tokens that may have left a window before SGLang frees them (SGLANG_SWA__EVICTION_INTERVAL).
_EVICTION_INTERVAL = 128
# Requests that run at once by default, if 8 of the whole context fit or more: 512 for each that
# fits, but at least 2,048 and at most so many (resolve_max_num_reqs in
# mem_cache/kv_cache_configurator.py).
MOST_REQUESTS = 4096

_FIXED = "bytes that do not depend on the tokens"


class TokenCost(NamedTuple):
    """What tokens of the full pool cost on one pipeline stage, with those of the sliding-window
    pool beside them.

    Both numbers are whole. With --swa-full-tokens-ratio 0.8 the sliding-window pool has 4 tokens
    per 5 of the full pool: `tokens` is 5, and `size` is 5 * full + 4 * swa bytes.
    """

    stage: int  # the index of the stage
    size: int  # bytes of `tokens` tokens in all layers of the stage
    tokens: int


class Allocated(NamedTuple):
    """What SGLang allocates in a memory."""

    stage: int  # the index of the pipeline stage with room for the fewest tokens, which decides
    tokens_here: Quantity  # tokens of the full pool that one GPU stores
    # tokens of the full pool: with --dcp those of all GPUs that share a sequence
    tokens: Quantity
    swa_tokens: Quantity | None  # tokens of the sliding-window pool; None without one
    slots: Quantity | None  # slots of recurrent states; None without recurrent layers


@dataclass(frozen=True)
class SglangLayout:
    """The pools of one model."""

    args: SglangArgs
    pools: ModelPools  # rows and slots of the model's layers
    states: StatePool | None  # the pool of recurrent states; None without such layers
    page: int  # tokens of a page
    swa_ratio: Fraction  # tokens of the sliding-window pool per token of the full pool
    max_num_seqs: int  # concurrent sequences of one rank
    notes: tuple[str, ...]  # see CacheLayout, also for bound and source
    drafted: int = 0  # layers of a drafter with rows of the full pool
    draft_row: int = 0  # bytes of a token in all layers of a drafter with rows of its own (DFlash)
    # Always (): all pipeline stages get the memory of the GPU with the least
    # (_profile_available_bytes) and the tokens of the fullest stage (_apply_token_constraints)
    parts: tuple[SglangLayout, ...] = ()
    # Tokens with which all requests start, and whose whole pages of the full pool they share.
    # Tokens of the sliding-window pool and states are counted for each request.
    shared_prefix: int = 0
    bound: Bound = "reserved"
    source: str = (
        "SGLang 0.5.23: srt/model_executor/pool_configurator.py, "
        "srt/mem_cache/kv_cache_configurator.py, memory_pool.py"
    )

    @property
    def version(self) -> str:
        return self.args.version.name

    @property
    def facts(self) -> tuple[str, ...]:
        facts = [f"version {self.version}", f"page size {self.page}"]
        if self.args.dcp > 1:
            facts.append(f"{self.page * self.args.dcp} tokens per page of {self.args.dcp} GPUs")
        if self.pools.swa:
            facts.append(f"swa-full-tokens-ratio {float(self.swa_ratio):g}")
        if self.states and self.states.fixed_slots is None:
            facts.append(f"mamba-full-memory-ratio {float(self.states.ratio):g}")
        if self.args.max_running_requests or self.max_num_seqs != MOST_REQUESTS:
            facts.append(f"max-running-requests {self.max_num_seqs}")
        return tuple(facts)

    def needed(self, batch: int, context: int) -> int:
        """Return the least bytes such that the sequences fit in them and in any larger memory.

        With recurrent states a slightly smaller memory may be enough too: see StatePool.
        """
        tokens = self._full_tokens_needed(batch, context)
        token_bytes = max(
            (self._stage_bytes(tokens, cost) for cost in self._token_costs()), key=int
        )
        if self.states is None:
            return token_bytes
        return self.states.needed(token_bytes, batch)

    def has_tokens(self, batch: int, context: int) -> bool:
        """Return whether --max-total-tokens allows so many (_apply_token_constraints in
        kv_cache_configurator.py).
        """
        most = self.args.max_total_tokens
        return not most or self._full_tokens_needed(batch, context) <= self._whole_pages(most)

    def with_shared_prefix(self, tokens: int) -> SglangLayout | None:
        if self.args.radix_cache:
            return dataclasses.replace(self, shared_prefix=tokens)
        return None

    def pool(self, memory: int, context: int) -> Pool:
        """Return what fits. SGLang does not log a concurrency: it is computed from the pools."""
        found = self._allocated(memory)
        return Pool(
            blocks=quantity(found.tokens_here // symbol("page_size", self.page, "tokens per page")),
            tokens=found.tokens,
            concurrency=self._concurrency(found, context),
            details=tuple(self._details(found)),
            log_lines=tuple(self._log_lines(found)),
        )

    def _allocated(self, memory: int) -> Allocated:
        """Return what SGLang allocates in a memory: the states first, and tokens in what they
        leave.
        """
        memory = symbol("kv_memory", memory, "bytes for the cache")
        token_memory = memory
        slots = None
        if self.states is not None:
            slots = self.states.slots_in(memory)
            token_memory = self.states.token_memory(memory, slots)
        cost = self._tightest(token_memory)
        tokens_here = self._tokens_in(token_memory, cost)
        if self.args.max_total_tokens and self.args.max_total_tokens < tokens_here:
            most = symbol("max_total_tokens", self.args.max_total_tokens, "most tokens of the pool")
            tokens_here = quantity(self._whole_pages(most))
        tokens = tokens_here
        if self.args.dcp > 1:
            here = named(
                tokens_here, "tokens_per_gpu", "tokens that one GPU stores, as SGLang logs them"
            )
            tokens = quantity(here * self._dcp(here))
        return Allocated(cost.stage, tokens_here, tokens, self._swa_tokens(tokens), slots)

    def _stage_bytes(self, tokens: int, cost: TokenCost) -> int:
        """Return the bytes that so many tokens of the full pool need on the stage of that cost."""
        if cost.tokens == 1:
            token_bytes = tokens * cost.size
        else:
            token_bytes = ceil_div(tokens * cost.size, cost.tokens)
        fixed = self._fixed_bytes(cost.stage)
        if fixed:
            return symbol_like(tokens, "fixed_bytes", fixed, _FIXED) + token_bytes
        return token_bytes

    def _tightest(self, memory: Quantity) -> TokenCost:
        """Return the cost on the stage with room for the fewest tokens of the full pool: of equal
        ones, the stage with the larger cost.
        """

        def room(cost: TokenCost) -> tuple[Fraction, Fraction]:
            bytes_per_token = Fraction(int(cost.size), cost.tokens)
            free = max(0, int(memory) - self._fixed_bytes(cost.stage))
            return free / bytes_per_token, -bytes_per_token

        return min(self._token_costs(), key=room)

    def _tokens_in(self, memory: Quantity, cost: TokenCost) -> Quantity:
        """Return the tokens of the full pool that fit on the stage of that cost, in whole pages."""
        fixed = self._fixed_bytes(cost.stage)
        if fixed:
            memory = quantity(maximum(memory - named(fixed, "fixed_bytes", _FIXED), 0))
        if cost.tokens > 1:
            return quantity(self._whole_pages(quantity(memory * cost.tokens) // cost.size))
        per_token = named(cost.size, "kv_bytes_per_token", "bytes of a token in all layers")
        return quantity(self._whole_pages(memory // per_token))

    def _fixed_bytes(self, stage: int) -> int:
        """Return the bytes of that stage that do not depend on the tokens of the full pool."""
        return 0

    def _swa_tokens(self, tokens: Quantity) -> Quantity | None:
        """Return the tokens of the sliding-window pool beside so many of the full pool."""
        if self.pools.swa is None:
            return None
        full_tokens = named(tokens, "full_tokens", "tokens of the full pool")
        if self.swa_ratio == 1:
            return full_tokens
        by_ratio = full_tokens * self.swa_ratio.numerator // self.swa_ratio.denominator
        return quantity(self._whole_pages(by_ratio))

    def _token_costs(self) -> Iterator[TokenCost]:
        """Yield the cost of tokens on each stage that has a pool of tokens."""
        meaning = "bytes of a token in all layers of the pool"
        for i, stage in enumerate(self.pools.stages):
            full = self._full_bytes_per_token(stage)
            swa = self._swa_bytes_per_token(stage)
            if stage.full and stage.swa:
                full = renamed(full, "full_bytes_per_token", meaning)
                swa = renamed(swa, "swa_bytes_per_token", meaning)
                tokens = self.swa_ratio.denominator
                yield TokenCost(i, tokens * full + self.swa_ratio.numerator * swa, tokens)
            elif stage.full:
                yield TokenCost(i, full, 1)
            elif stage.swa:  # as many tokens as its one pool holds
                yield TokenCost(i, full + swa, 1)

    def _full_bytes_per_token(self, stage: StageLayers) -> int:
        """Return the bytes of a row of one GPU. With --dcp it is one token of `dcp`, and some of
        them are stored whole.

        A GPU stores the KV heads of all GPUs of its group, an indexer's keys of every token, and
        with an indexer the drafter's rows of every token too. So are DFlash's rows, also without
        one (DefaultPoolConfigurator and _dflash_draft_cell_size in
        model_executor/pool_configurator.py).
        """
        row = self.pools.full.total
        indexer = self.pools.indexer
        if self._heads_per_dcp > 1:
            meaning = "times the KV heads without --dcp"
            row = symbol_like(row, "heads_per_dcp", self._heads_per_dcp, meaning) * row
        layers = symbol_like(row, "L", stage.full, "layers")
        drafted = symbol_like(row, "L_draft", self.drafted, "layers of the drafter")
        whole: list[int] = []  # what is stored of every token
        if indexer:
            indexers = symbol_like(row, "L_indexer", stage.indexers, "layers with an indexer")
            whole.append(indexers * indexer)
            if self.drafted:
                whole.append(drafted * (row + indexer))
        elif self.drafted:
            layers = layers + drafted
        if self.draft_row:
            meaning = "bytes of a token in the drafter's layers"
            whole.append(symbol_like(row, "draft_row", self.draft_row, meaning))
        divided = layers * row
        if not whole:
            return divided
        if self.args.dcp == 1:
            return divided + summed(whole)
        return divided + self._dcp(row) * summed(whole)

    @property
    def _heads_per_dcp(self) -> int:
        if self.pools.full.latent:
            return 1
        return self.args.heads_per_dcp

    def _dcp(self, like: int) -> int:
        return symbol_like(like, "dcp", self.args.dcp, "decode-context-parallel devices")

    def _swa_bytes_per_token(self, stage: StageLayers) -> int:
        if self.pools.swa is None:
            return 0
        row = self.pools.swa.total
        return symbol_like(row, "L_swa", stage.swa, "layers with a sliding window") * row

    def _full_tokens_needed(self, batch: int, context: int) -> int:
        """Return the tokens of one GPU's full pool with which both pools hold the sequences, in
        whole pages.
        """
        tokens = self._tokens_in_pages(batch, context)
        if self.pools.swa is None:
            if self.args.dcp == 1:
                return tokens
            return tokens // self._dcp(tokens)
        # SGLang does not start unless the sliding-window pool holds more than one window and one
        # page
        least = ((self.pools.window + self.page) // self.page + 1) * self.page
        swa_tokens = maximum(batch * self._swa_tokens_per_sequence(context), least)
        if self.swa_ratio == 1:
            return maximum(tokens, swa_tokens)
        by_ratio = ceil_div(swa_tokens * self.swa_ratio.denominator, self.swa_ratio.numerator)
        return maximum(tokens, self._round_up_to_pages(by_ratio))

    def _tokens_in_pages(self, batch: int, context: int) -> int:
        """Return the tokens of the sequences in whole pages, those of a shared prefix once."""
        tokens = batch * self._round_up_to_pages(context)
        if self.shared_prefix:
            page = self.page * self.args.dcp
            # the last token is computed
            shared = min(self.shared_prefix, int(context) - 1) // page * page
            meaning = "tokens of the shared prefix, in whole pages"
            tokens -= (batch - 1) * symbol_like(tokens, "shared_tokens", shared, meaning)
        return tokens

    def _swa_tokens_per_sequence(self, context: int) -> int:
        """Return the tokens that a sequence may take of the sliding-window pool
        (compute_swa_request_cap).

        These are the window, tokens that have left it and wait for eviction, a page, and the next
        page or the tokens of a drafter: with a window of 128 (127 before the query) and pages of 1
        token, 127 + 128 + 1 + 1 = 257.
        """
        steps = max(1, self.args.speculative_tokens)
        next_tokens = self.page
        if self.args.has_drafter:
            next_tokens = 2 * steps
        tokens = self.pools.window + _EVICTION_INTERVAL * steps + self.page + next_tokens
        limit = -(-tokens // self.page) * self.page
        context_tokens = self._round_up_to_pages(context)
        meaning = "tokens that a sequence may take of the sliding-window pool"
        return minimum(context_tokens, symbol_like(context_tokens, "window_slots", limit, meaning))

    def _round_up_to_pages(self, tokens: int) -> int:
        """Return whole pages of tokens; with --dcp a page has its tokens on each of these GPUs."""
        size = self.page * self.args.dcp
        if size == 1:
            return tokens
        page = symbol_like(tokens, "page_size", size, "tokens per page")
        return ceil_div(tokens, page) * page

    def _whole_pages(self, tokens: int) -> int:
        if self.page == 1:
            return tokens
        page = symbol("page_size", self.page, "tokens per page")
        return tokens // page * page

    def _concurrency(self, found: Allocated, context: int) -> Ratio:
        """Return how many sequences of that context fit: the least that a pool or a limit
        allows.
        """
        length = symbol("T", context, "tokens of a sequence")
        limits = [
            ratio(
                named(found.tokens, "kv_tokens", "tokens of the pool"),
                self._round_up_to_pages(length),
            )
        ]
        if found.swa_tokens is not None:
            swa_tokens = found.swa_tokens
            if swa_tokens <= self.pools.window + self.page:  # SGLang does not start
                swa_tokens = quantity(0)
            usable = named(swa_tokens, "swa_tokens", "tokens of the sliding-window pool")
            limits.append(ratio(usable, self._swa_tokens_per_sequence(length)))
        if self.states is not None and found.slots is not None:
            per_sequence = symbol(
                "slots_per_sequence",
                self.states.slots_per_sequence,
                "slots that a sequence may take",
            )
            slots = named(found.slots, "state_slots", "slots of states")
            limits.append(ratio(slots // per_sequence, 1))
        limits.append(
            ratio(symbol("max_running_requests", self.max_num_seqs, "concurrent sequences"), 1)
        )
        return min(limits, key=lambda limit: Fraction(limit.numerator, limit.denominator))

    def _details(self, found: Allocated) -> Iterator[Detail]:
        stage = self.pools.stages[found.stage]
        full = quantity(self._full_bytes_per_token(stage))
        swa = quantity(self._swa_bytes_per_token(stage))
        if found.swa_tokens is None:
            token: Quantity | Ratio = full
            if self.args.dcp > 1:
                token = ratio(
                    named(full, "row", "bytes of a row of one GPU"), quantity(self._dcp(full))
                )
            yield Detail("kv_bytes_per_token", "one token", token, BYTES)
        else:
            yield Detail("full_bytes_per_token", "one token, full attention", full, BYTES)
            yield Detail("swa_bytes_per_token", "one token, sliding windows", swa, BYTES)
            yield Detail(
                "swa_tokens", "tokens of the sliding-window pool", found.swa_tokens, TOKENS
            )
        if self.states is not None and found.slots is not None:
            yield Detail(
                "state_bytes_per_slot",
                "one slot of states",
                quantity(self.states.slot_bytes),
                BYTES,
            )
            yield Detail("state_slots", "slots of states", found.slots, "")
        yield Detail("kv_block_size", "tokens per page", quantity(self.page), TOKENS)

    def _log_lines(self, found: Allocated) -> Iterator[str]:
        stage = self.pools.stages[found.stage]
        tokens = int(found.tokens_here)
        if found.slots is not None:
            yield self._states_line(stage, int(found.slots))
        if found.swa_tokens is None:
            yield self._one_pool_line(stage, tokens)
        else:
            yield from self._two_pools_lines(stage, tokens, int(found.swa_tokens))
        yield f"max_total_num_tokens={tokens}, ..."

    def _states_line(self, stage: StageLayers, slots: int) -> str:
        """Return the line of the recurrent states, whose pool has one slot more. Its "GB" are
        GiB.
        """
        convolution = (slots + 1) * int(stage.convolution) / GIB
        ssm = (slots + 1) * int(stage.ssm) / GIB
        line = (
            f"Mamba Cache is allocated. max_mamba_cache_size: {slots}, conv_state size: "
            f"{convolution:.2f}GB, ssm_state size: {ssm:.2f}GB"
        )
        if self.args.speculative_tokens:
            return f"{line} ..."
        return line

    def _one_pool_line(self, stage: StageLayers, tokens: int) -> str:
        full = self.pools.full
        layers = stage.full * self._heads_per_dcp
        k = layers * full.k + stage.indexers * int(self.pools.indexer) * self.args.dcp
        return self._pool_line("", tokens, k, layers * full.v, latent=full.latent)

    def _two_pools_lines(self, stage: StageLayers, tokens: int, swa_tokens: int) -> Iterator[str]:
        """Yield the lines of the full pool and of the sliding-window pool."""
        full = self.pools.full
        swa = self.pools.swa
        assert swa is not None
        full_k = stage.full * full.k
        full_v = stage.full * full.v
        swa_k = stage.swa * swa.k
        swa_v = stage.swa * swa.v
        full_bytes = (tokens + self.page) * (full_k + full_v)
        swa_bytes = (swa_tokens + self.page) * (swa_k + swa_v)
        used = (full_bytes + swa_bytes) / GIB
        yield (
            f"Use sliding window memory pool. full_layer_tokens={tokens}, "
            f"swa_layer_tokens={swa_tokens}"
        )
        yield self._pool_line("Full ", tokens, full_k, full_v, latent=full.latent)
        yield self._pool_line("SWA ", swa_tokens, swa_k, swa_v, latent=swa.latent)
        yield f"SWAKVPool mem usage: {used:.2f} GB, swa size: {swa_tokens}, full size: {tokens}"

    def _pool_line(self, label: str, tokens: int, k: int, v: int, *, latent: bool) -> str:
        """Return the line of one pool, which has one page more than its tokens. Its "GB" are GiB.

        Args:
            label: How the line begins: '' for an only pool, or else 'Full ' or 'SWA '.
            tokens: Tokens of the pool.
            k: Bytes of K of a token in all layers of the pool.
            v: Bytes of V.
            latent: Whether the pool holds latents (MLA), in one buffer of `k` bytes per token.
        """
        rows = tokens + self.page
        sizes = f"K size: {rows * k / GIB:.2f} GB, V size: {rows * v / GIB:.2f} GB"
        if latent:
            label = ""
            sizes = f"KV size: {rows * k / GIB:.2f} GB"
        dtype = _TORCH_NAMES[self.args.kv_dtype.name]
        return f"{label}KV Cache is allocated. dtype: torch.{dtype}, #tokens: {tokens}, {sizes}"
