"""How many tokens and slots of states SGLang allocates in a memory, and how much memory a number of
sequences needs.

Source: SGLang 0.5.23, srt/model_executor/pool_configurator.py and
srt/mem_cache/kv_cache_configurator.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from fractions import Fraction
from math import ceil

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

_TORCH_NAMES = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8_e4m3fn",
    "fp4": "float4_e2m1fn_x2",
}
# Tokens that may have left a window before SGLang frees them (SGLANG_SWA__EVICTION_INTERVAL).
_EVICTION_INTERVAL = 128

_FIXED = "bytes that do not depend on the tokens"


class StatePool(NamedTuple):
    """The pool of recurrent states (_handle_max_mamba_cache).

    With the ratio r it gets r / (1 + r) of the memory, in whole slots. With a drafter every running
    sequence also has a copy of its states per drafted token. One slot and one set of copies are
    never given to a sequence: `padding`.
    """

    slot: int  # bytes of the states of all layers, once
    ratio: Fraction  # --mamba-full-memory-ratio
    per_sequence: int  # slots that a sequence may take
    drafted_tokens: int  # tokens that a drafter proposes
    max_running_requests: int | None  # concurrent sequences, if they are limited
    fixed_slots: int | None  # the number of slots, if an option sets it instead of the ratio
    # slots of the pool's share that no sequence gets: 1, or 0 if there is none
    padding: int = 1
    reserved: int = 0  # bytes of all copies, if they are taken from the memory before it is divided

    def slots(self, memory: int) -> Quantity:
        """Return the slots of that memory (max_mamba_cache_size), without the one that no sequence
        gets.
        """
        if self.fixed_slots is not None:
            return quantity(self.fixed_slots)
        # r / (1 + r) as a quotient of whole numbers: 9 / 19 for 0.9
        numerator = self.ratio.numerator
        denominator = self.ratio.numerator + self.ratio.denominator
        slot = self._named_slot
        share = self._without_reserved(memory) * numerator
        if self.drafted_tokens:
            # slots + 1 + (slots / per_sequence + 1) * drafted_tokens, times slot, is the pool's
            # share
            if self.padding:
                share = share - denominator * slot * (1 + self.drafted_tokens)
            per_slot = denominator * slot * (self.per_sequence + self.drafted_tokens)
            slots = share * self.per_sequence // per_slot
        else:
            slots = share // (denominator * slot)
            if self.padding:
                slots = slots - 1
        return max(quantity(slots), quantity(0))

    def token_memory(self, memory: int, slots: int) -> Quantity:
        """Return the bytes that are left for tokens: 0 if no slot fits, or if the states need more
        than there is.
        """
        if not slots:
            return quantity(0)
        slot = self._named_slot
        taken = slots
        if self.padding:
            taken = slots + 1
        left = self._without_reserved(memory) - taken * slot
        if self.drafted_tokens:
            sequences = self._running(int(slots)) + self.padding
            left = left - sequences * self.drafted_tokens * slot
        return max(quantity(left), quantity(0))

    def _without_reserved(self, memory: int) -> int:
        if not self.reserved:
            return memory
        return memory - renamed(
            self.reserved, "state_copies", "bytes of the copies of states for a drafter"
        )

    def needed(self, token_bytes: int, sequences: int) -> int:
        """Return the least memory such that the tokens and states of the sequences fit in it and in
        any larger one.
        """
        if self.fixed_slots is not None:
            memory = int(token_bytes) + self._state_bytes(self.fixed_slots)
        else:
            memory = self._least_memory(int(token_bytes), int(sequences) * self.per_sequence)
        memory += int(self.reserved)
        meaning = "the least memory that holds both the tokens and the states"
        return symbol_like(token_bytes, "kv_memory", memory, meaning)

    @property
    def _named_slot(self) -> int:
        return renamed(self.slot, "state_bytes_per_slot", "bytes of a slot of states")

    def _least_memory(self, token_bytes: int, slots: int) -> int:
        """Return the least memory such that it and any larger one have `slots` slots and
        `token_bytes` for tokens.

        More memory can hold fewer tokens, because a further slot takes all its bytes at once. With
        slots of 10 B and ratio 1, 59 B have 1 slot and 39 B for tokens (that slot and the one that
        no sequence gets take 20 B); 60 B have 2 slots and only 30 B for tokens.

        So with n slots the least room for tokens is at the smallest memory that has n slots, and it
        grows with n.
        The search finds the first n that is always enough. Within the range of n - 1 slots the
        larger memories may be enough too: in the example 35 B of tokens are safe from n = 3 on (80
        B), but also from 65 to 79 B.
        """
        n = self._enough_slots(token_bytes, slots)
        while n > slots:
            for_tokens = self._least_memory_with(n - 1) - self._state_bytes(n - 1)
            if for_tokens < token_bytes:
                break
            n -= 1
        if n == slots:
            return self._least_memory_with(n)
        # n - 1 slots are not enough in the smallest memory that has them, but may be in a larger
        # one
        return min(self._least_memory_with(n), token_bytes + self._state_bytes(n - 1))

    def _enough_slots(self, token_bytes: int, slots: int) -> int:
        """Return an upper bound of the slots from which on there is always enough memory for the
        tokens.

        It solves _least_memory_with(n) - _state_bytes(n) >= token_bytes for n, without their
        rounding.
        """
        slot = int(self.slot)
        drafted = self.drafted_tokens
        padding = self.padding
        slots_per_n = 1 + Fraction(drafted, self.per_sequence)
        enough = (Fraction(token_bytes, slot) * self.ratio - padding * (1 + drafted)) / slots_per_n
        if self.max_running_requests is not None:
            # the same equation with the copies of max_running_requests sequences, beyond which they
            # no longer grow
            share = 1 + 1 / self.ratio
            fixed = (
                Fraction(token_bytes, slot)
                + drafted * self.max_running_requests
                - padding * (share - 1) * (1 + drafted)
            )
            enough = min(enough, fixed / (share * slots_per_n - 1))
        return max(slots, ceil(enough))

    def _least_memory_with(self, slots: int) -> int:
        slots_per_n = 1 + Fraction(self.drafted_tokens, self.per_sequence)
        padding = self.padding * (1 + self.drafted_tokens)
        return ceil((1 + 1 / self.ratio) * int(self.slot) * (slots * slots_per_n + padding))

    def _state_bytes(self, slots: int) -> int:
        """Return the bytes of the pool with that number of slots, with a drafter's copies."""
        copies = (self._running(slots) + self.padding) * self.drafted_tokens
        return (slots + self.padding + copies) * int(self.slot)

    def _running(self, slots: int) -> int:
        """Return how many sequences that number of slots is enough for."""
        sequences = slots // self.per_sequence
        if self.max_running_requests is None:
            return sequences
        return min(self.max_running_requests, sequences)


@dataclass(frozen=True)
class SglangLayout:
    """The pools of one model."""

    args: SglangArgs
    pools: ModelPools  # rows and slots of the model's layers
    states: StatePool | None  # the pool of recurrent states; None without such layers
    page: int  # tokens of a page
    swa_ratio: Fraction  # tokens of the sliding-window pool per token of the full pool
    max_num_seqs: int | None  # concurrent sequences of one rank; None without a limit
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
        if self.max_num_seqs:
            facts.append(f"max-running-requests {self.max_num_seqs}")
        return tuple(facts)

    def needed(self, batch: int, context: int) -> int:
        """Return the least bytes such that the sequences fit in them and in any larger memory.

        With recurrent states a slightly smaller memory may be enough too: see StatePool.
        """
        tokens = self._full_tokens_needed(batch, context)
        token_bytes = max(
            (self._stage_bytes(tokens, *stage_cost) for stage_cost in self._stage_costs()), key=int
        )
        if self.states is None:
            return token_bytes
        return self.states.needed(token_bytes, batch)

    def with_shared_prefix(self, tokens: int) -> SglangLayout | None:
        if self.args.radix_cache:
            return dataclasses.replace(self, shared_prefix=tokens)
        return None

    def pool(self, memory: int, context: int) -> Pool:
        """Return what fits. SGLang does not log a concurrency: it is computed from the pools."""
        memory = symbol("kv_memory", memory, "bytes for the cache")
        token_memory = memory
        slots = None
        if self.states is not None:
            slots = self.states.slots(memory)
            token_memory = self.states.token_memory(memory, slots)
        stage, tokens_here = self._fewest_tokens(token_memory)
        if self.args.max_total_tokens and self.args.max_total_tokens < tokens_here:
            most = symbol("max_total_tokens", self.args.max_total_tokens, "most tokens of the pool")
            tokens_here = quantity(self._whole_pages(most))
        tokens = tokens_here
        if self.args.dcp > 1:
            here = named(
                tokens_here, "tokens_per_gpu", "tokens that one GPU stores, as SGLang logs them"
            )
            tokens = quantity(here * self._dcp(here))
        swa_tokens = self._swa_tokens(tokens)
        return Pool(
            blocks=quantity(tokens_here // symbol("page_size", self.page, "tokens per page")),
            tokens=tokens,
            concurrency=self._concurrency(tokens, swa_tokens, slots, context),
            details=tuple(self._details(stage, swa_tokens, slots)),
            log_lines=tuple(self._log_lines(stage, int(tokens_here), swa_tokens, slots)),
        )

    def _stage_bytes(self, tokens: int, stage: int, cost: int, per_tokens: int) -> int:
        """Return the bytes that so many tokens of the full pool need on that stage."""
        if per_tokens == 1:
            token_bytes = tokens * cost
        else:
            token_bytes = ceil_div(tokens * cost, per_tokens)
        fixed = self._fixed_bytes(stage)
        if fixed:
            return symbol_like(tokens, "fixed_bytes", fixed, _FIXED) + token_bytes
        return token_bytes

    def has_tokens(self, batch: int, context: int) -> bool:
        """Return whether --max-total-tokens allows so many (_apply_token_constraints in
        kv_cache_configurator.py).
        """
        most = self.args.max_total_tokens
        return not most or self._full_tokens_needed(batch, context) <= self._whole_pages(most)

    def _fewest_tokens(self, memory: Quantity) -> tuple[int, Quantity]:
        """Return the stage on which the fewest tokens of the full pool fit, and these tokens."""

        def fits(stage_cost: tuple[int, int, int]) -> tuple[Fraction, Fraction]:
            stage, cost, per_tokens = stage_cost
            token_cost = Fraction(int(cost), per_tokens)
            return max(0, int(memory) - self._fixed_bytes(stage)) / token_cost, -token_cost

        stage, cost, per_tokens = min(self._stage_costs(), key=fits)
        fixed = self._fixed_bytes(stage)
        if fixed:
            memory = quantity(maximum(memory - named(fixed, "fixed_bytes", _FIXED), 0))
        if per_tokens == 1:
            cost = named(cost, "kv_bytes_per_token", "bytes of a token in all layers")
        else:
            memory = quantity(memory * per_tokens)
        return stage, quantity(self._whole_pages(memory // cost))

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

    def _stage_costs(self) -> Iterator[tuple[int, int, int]]:
        """Yield (stage, cost, tokens) of the stages with a token pool: as many tokens of the full
        pool cost that much.

        The sliding-window pool is included. With --swa-full-tokens-ratio 0.8 it has 4 tokens per 5
        of the full pool, so 5 tokens cost 5 * full + 4 * swa bytes. So all numbers are whole.
        """
        meaning = "bytes of a token in all layers of the pool"
        for i, stage in enumerate(self.pools.stages):
            full = self._full_bytes_per_token(stage)
            swa = self._swa_bytes_per_token(stage)
            if stage.full and stage.swa:
                full = renamed(full, "full_bytes_per_token", meaning)
                swa = renamed(swa, "swa_bytes_per_token", meaning)
                tokens = self.swa_ratio.denominator
                yield i, tokens * full + self.swa_ratio.numerator * swa, tokens
            elif stage.full:
                yield i, full, 1
            elif stage.swa:  # as many tokens as its one pool holds
                yield i, full + swa, 1

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

    def _concurrency(
        self, tokens: Quantity, swa_tokens: Quantity | None, slots: Quantity | None, context: int
    ) -> Ratio:
        """Return how many sequences of that context fit: the least that a pool or a limit
        allows.
        """
        length = symbol("T", context, "tokens of a sequence")
        limits = [
            ratio(named(tokens, "kv_tokens", "tokens of the pool"), self._round_up_to_pages(length))
        ]
        if swa_tokens is not None:
            if swa_tokens <= self.pools.window + self.page:  # SGLang does not start
                swa_tokens = quantity(0)
            usable = named(swa_tokens, "swa_tokens", "tokens of the sliding-window pool")
            limits.append(ratio(usable, self._swa_tokens_per_sequence(length)))
        if self.states is not None and slots is not None:
            per_sequence = symbol(
                "slots_per_sequence", self.states.per_sequence, "slots that a sequence may take"
            )
            limits.append(ratio(named(slots, "state_slots", "slots of states") // per_sequence, 1))
        if self.max_num_seqs is not None:
            limits.append(
                ratio(symbol("max_running_requests", self.max_num_seqs, "concurrent sequences"), 1)
            )
        return min(limits, key=lambda limit: Fraction(limit.numerator, limit.denominator))

    def _details(
        self, stage_number: int, swa_tokens: Quantity | None, slots: Quantity | None
    ) -> Iterator[Detail]:
        stage = self.pools.stages[stage_number]
        full = quantity(self._full_bytes_per_token(stage))
        swa = quantity(self._swa_bytes_per_token(stage))
        if swa_tokens is None:
            token: Quantity | Ratio = full
            if self.args.dcp > 1:
                token = ratio(
                    named(full, "row", "bytes of a row of one GPU"), quantity(self._dcp(full))
                )
            yield Detail("kv_bytes_per_token", "one token", token, BYTES)
        else:
            yield Detail("full_bytes_per_token", "one token, full attention", full, BYTES)
            yield Detail("swa_bytes_per_token", "one token, sliding windows", swa, BYTES)
            yield Detail("swa_tokens", "tokens of the sliding-window pool", swa_tokens, TOKENS)
        if self.states is not None and slots is not None:
            yield Detail(
                "state_bytes_per_slot", "one slot of states", quantity(self.states.slot), BYTES
            )
            yield Detail("state_slots", "slots of states", slots, "")
        yield Detail("kv_block_size", "tokens per page", quantity(self.page), TOKENS)

    def _log_lines(
        self, stage_number: int, tokens: int, swa_tokens: int | None, slots: int | None
    ) -> Iterator[str]:
        stage = self.pools.stages[stage_number]
        full = self.pools.full
        swa = self.pools.swa
        if slots is not None:
            convolution = (slots + 1) * int(stage.convolution) / GIB
            ssm = (slots + 1) * int(stage.ssm) / GIB
            line = (
                f"Mamba Cache is allocated. max_mamba_cache_size: {int(slots)}, conv_state size: "
                f"{convolution:.2f}GB, ssm_state size: {ssm:.2f}GB"
            )
            if self.args.speculative_tokens:
                line += " ..."
            yield line
        if swa is None or swa_tokens is None:
            layers = stage.full * self._heads_per_dcp
            k = layers * full.k + stage.indexers * int(self.pools.indexer) * self.args.dcp
            yield self._allocated("", tokens, k, layers * full.v, latent=full.latent)
        else:
            full_k = stage.full * full.k
            full_v = stage.full * full.v
            swa_k = stage.swa * swa.k
            swa_v = stage.swa * swa.v
            full_bytes = (tokens + self.page) * (full_k + full_v)
            swa_bytes = (int(swa_tokens) + self.page) * (swa_k + swa_v)
            used = (full_bytes + swa_bytes) / GIB
            yield (
                f"Use sliding window memory pool. full_layer_tokens={tokens}, "
                f"swa_layer_tokens={int(swa_tokens)}"
            )
            yield self._allocated("Full ", tokens, full_k, full_v, latent=full.latent)
            yield self._allocated("SWA ", int(swa_tokens), swa_k, swa_v, latent=swa.latent)
            yield (
                f"SWAKVPool mem usage: {used:.2f} GB, swa size: {int(swa_tokens)}, full size: "
                f"{tokens}"
            )
        yield f"max_total_num_tokens={tokens}, ..."

    def _allocated(self, label: str, tokens: int, k: int, v: int, *, latent: bool) -> str:
        """Return the line of one pool, which has one page more than its tokens. Its "GB" are
        GiB.
        """
        rows = tokens + self.page
        sizes = f"K size: {rows * k / GIB:.2f} GB, V size: {rows * v / GIB:.2f} GB"
        if latent:
            label = ""
            sizes = f"KV size: {rows * k / GIB:.2f} GB"
        dtype = _TORCH_NAMES[self.args.kv_dtype.name]
        return f"{label}KV Cache is allocated. dtype: torch.{dtype}, #tokens: {tokens}, {sizes}"
