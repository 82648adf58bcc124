"""SGLang: one pool of token slots, and with it a pool of windows or of recurrent states.

The memory that SGLang has for its pools is divided by the bytes of a token in all layers. A token of a
pool has a row in each of its layers, whole pages of them, and a page more that is never given out. For
hybrids a fixed ratio decides what each pool gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ...quantity import Quantity, Ratio, ceil_div, maximum, minimum, named, quantity, ratio, symbol
from ...units import BYTES, GIB, TOKENS
from ..base import Bound, Detail, EngineArgs, Pool
from ..pipeline import LayerCacheSpec
from .args import DEFAULTS as DEFAULTS
from .args import SETTINGS, facts, notes, understood
from .pools import Pools, Stage, read
from .states import States

NAME = "sglang"
EVICTION = 128
"""Tokens that may have left a window before SGLang frees them (SGLANG_SWA_EVICTION_INTERVAL)."""
TORCH = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn", "fp4": "float4_e2m1fn_x2"}


@dataclass(frozen=True)
class SGLang:
    """The pools of one model. share: tokens of the windows' pool for each of the full one's.

    draft: layers of the drafter, which have rows of the full pool. ahead: tokens that it proposes.
    most: sequences that run at once at the most; None where nothing was said. parts: none, since all stages
    have the memory of the GPU with the least (_profile_available_bytes) and the tokens of the fullest
    (_apply_token_constraints).
    """

    pools: Pools
    states: States | None
    page: int
    share: Fraction
    draft: int
    ahead: int
    most: int | None
    dtype: str
    version: str
    facts: tuple[str, ...]
    notes: tuple[str, ...]
    parts: tuple[SGLang, ...] = ()
    bound: Bound = "reserved"
    source: str = (
        "SGLang 0.5.23: srt/model_executor/pool_configurator.py, srt/mem_cache/kv_cache_configurator.py, memory_pool.py"
    )

    def needed(self, batch: int, context: int) -> int:
        """The least bytes from which on the pools hold that many sequences of that many tokens.

        A little less may do as well: each slot that a ratio adds to the states takes its bytes from the tokens.
        """
        tokens = self._tokens(batch, context)
        found = [ceil_div(tokens * cell, by) if by > 1 else tokens * cell for cell, by in self._cells()]
        most = max(found, key=int)
        return most if self.states is None else self.states.needed(most, batch)

    def pool(self, memory: int, context: int) -> Pool:
        """What SGLang prints with that memory for its pools. Concurrency is not printed: it is worked out."""
        memory = rest = symbol("kv_memory", memory, "bytes for the cache")
        slots = None
        if self.states is not None:
            slots = self.states.slots(memory)
            rest = self.states.rest(memory, slots)
        at, (cell, by) = max(enumerate(self._cells()), key=lambda found: Fraction(int(found[1][0]), found[1][1]))
        if by == 1:
            cell = named(cell, "kv_bytes_per_token", "bytes of a token in all layers")
        tokens = self._whole((rest if by == 1 else rest * by) // cell)
        windows = self._windows(tokens) if self.pools.swa else None
        stage = self.pools.stages[self._used()[at]]
        words = (*self._state_words(stage, slots), *self._words(stage, int(tokens), windows))
        return Pool(
            blocks=quantity(tokens // symbol("page_size", self.page, "tokens of a page")),
            tokens=quantity(tokens),
            concurrency=self._concurrency(quantity(tokens), windows, slots, context),
            details=tuple(self._details(stage, windows, slots)),
            log_lines=(*words, f"max_total_num_tokens={int(tokens)}, ..."),
        )

    def _used(self) -> list[int]:
        """The stages that limit the tokens: those with layers in a pool."""
        return [i for i, stage in enumerate(self.pools.stages) if stage.full or stage.swa]

    def _cells(self) -> Iterator[tuple[int, int]]:
        """(bytes, so many tokens' bytes) of each of those stages: whole numbers, whatever the ratio."""
        for i in self._used():
            stage = self.pools.stages[i]
            full, swa = self._full_cell(stage), self._swa_cell(stage)
            if not stage.full:  # a stage with windows alone has no ratio to keep
                yield full + swa, 1
            elif not stage.swa:
                yield full, 1
            else:
                by, times = self.share.denominator, self.share.numerator
                full, swa = _named(full, "full_bytes_per_token"), _named(swa, "swa_bytes_per_token")
                yield (full + swa, 1) if by == times else (by * full + times * swa, by)

    def _full_cell(self, stage: Stage) -> int:
        row, key = self.pools.full.total, self.pools.indexer
        layers = _layers(row, "L", stage.full, "layers")
        if self.draft:
            layers = layers + _layers(row, "L_draft", self.draft, "layers of the drafter")
        if not key or stage.indexers == stage.full:
            return layers * (row + key) if key else layers * row
        return layers * row + (stage.indexers + self.draft) * key

    def _swa_cell(self, stage: Stage) -> int:
        if self.pools.swa is None or not stage.swa:
            return 0
        row = self.pools.swa.total
        return _layers(row, "L_swa", stage.swa, "layers with a window") * row

    def _tokens(self, batch: int, context: int) -> int:
        """The least slots of the full pool that hold the sequences, in whole pages."""
        tokens = batch * self._pages(context)
        if self.pools.swa is None:
            return tokens
        # SGLang does not start with a windows' pool that holds no more than one window and one page
        floor = ((self.pools.window + self.page) // self.page + 1) * self.page
        windows = maximum(batch * self._window(context), floor)
        by, times = self.share.denominator, self.share.numerator
        return maximum(tokens, windows if by == times else self._pages(ceil_div(windows * by, times)))

    def _window(self, context: int) -> int:
        """Slots that a sequence may hold of the windows' pool (compute_swa_request_cap)."""
        drafts = self.draft or self.ahead
        next_ = 2 * max(1, self.ahead) if drafts else self.page
        held = self.pools.window + EVICTION * max(1, self.ahead) + self.page + next_
        most = -(-held // self.page) * self.page
        tokens = self._pages(context)
        if isinstance(tokens, Quantity):
            return minimum(tokens, symbol("window_slots", most, "slots that a sequence's window may hold"))
        return min(tokens, most)

    def _windows(self, tokens: int) -> Quantity:
        """Slots of the windows' pool beside so many of the full one."""
        by, times = self.share.denominator, self.share.numerator
        full = named(tokens, "full_tokens", "tokens of the full pool")
        return quantity(full if by == times else self._whole(full * times // by))

    def _pages(self, tokens: int) -> int:
        if self.page == 1:
            return tokens
        page = symbol("page_size", self.page, "tokens of a page") if isinstance(tokens, Quantity) else self.page
        return ceil_div(tokens, page) * page

    def _whole(self, tokens: int) -> int:
        if self.page == 1:
            return tokens
        page = symbol("page_size", self.page, "tokens of a page")
        return tokens // page * page

    def _concurrency(self, tokens: Quantity, windows: Quantity | None, slots: Quantity | None, context: int) -> Ratio:
        each = self._pages(symbol("T", context, "tokens of a sequence"))
        found = [ratio(named(tokens, "kv_tokens", "tokens of the pool"), each)]
        if windows is not None:
            enough = windows > self.pools.window + self.page
            slot = named(windows if enough else 0, "swa_tokens", "tokens of the windows' pool")
            found.append(ratio(slot, self._window(symbol("T", context, "tokens of a sequence"))))
        if self.states is not None and slots is not None:
            each_slots = symbol("slots_per_sequence", self.states.per_sequence, "slots that a sequence may take")
            found.append(ratio(named(slots, "state_slots", "slots of states") // each_slots, 1))
        if self.most is not None:
            found.append(ratio(symbol("max_running_requests", self.most, "sequences at once"), 1))
        return min(found, key=lambda one: Fraction(one.numerator, one.denominator))

    def _details(self, stage: Stage, windows: Quantity | None, slots: Quantity | None) -> Iterator[Detail]:
        full, swa = quantity(self._full_cell(stage)), quantity(self._swa_cell(stage))
        if windows is None:
            yield Detail("kv_bytes_per_token", "one token", full, BYTES)
        else:
            yield Detail("full_bytes_per_token", "one token, layers without a window", full, BYTES)
            yield Detail("swa_bytes_per_token", "one token, layers with a window", swa, BYTES)
            yield Detail("swa_tokens", "tokens of windows", windows, TOKENS)
        if self.states is not None and slots is not None:
            yield Detail("state_bytes_per_slot", "one slot of states", quantity(self.states.slot), BYTES)
            yield Detail("state_slots", "slots of states", slots, "")
        yield Detail("kv_block_size", "tokens of a page", quantity(self.page), TOKENS)

    def _state_words(self, stage: Stage, slots: int | None) -> Iterator[str]:
        if slots is None:
            return
        sizes = ((slots + 1) * int(stage.convolution) / GIB, (slots + 1) * int(stage.ssm) / GIB)
        yield (
            f"Mamba Cache is allocated. max_mamba_cache_size: {int(slots)}, conv_state size: {sizes[0]:.2f}GB, "
            f"ssm_state size: {sizes[1]:.2f}GB" + (" ..." if self.ahead else "")
        )

    def _words(self, stage: Stage, tokens: int, windows: int | None) -> Iterator[str]:
        full, swa = self.pools.full, self.pools.swa
        if swa is None or windows is None:
            keys = stage.indexers * int(self.pools.indexer)
            yield self._allocated("", tokens, stage.full * full.k + keys, stage.full * full.v, full.latent)
            return
        rows, window_rows = tokens + self.page, int(windows) + self.page
        full_sizes, swa_sizes = (stage.full * full.k, stage.full * full.v), (stage.swa * swa.k, stage.swa * swa.v)
        used = (rows * sum(full_sizes) + window_rows * sum(swa_sizes)) / GIB
        yield f"Use sliding window memory pool. full_layer_tokens={tokens}, swa_layer_tokens={int(windows)}"
        yield self._allocated("Full ", tokens, *full_sizes, full.latent)
        yield self._allocated("SWA ", int(windows), *swa_sizes, swa.latent)
        yield f"SWAKVPool mem usage: {used:.2f} GB, swa size: {int(windows)}, full size: {tokens}"

    def _allocated(self, label: str, tokens: int, k: int, v: int, latent: bool) -> str:
        """The line of one pool, whose buffers have a page more than its tokens. Its GB are GiB."""
        rows = tokens + self.page
        sizes = f"K size: {rows * k / GIB:.2f} GB, V size: {rows * v / GIB:.2f} GB"
        if latent:
            label, sizes = "", f"KV size: {rows * k / GIB:.2f} GB"
        return f"{label}KV Cache is allocated. dtype: torch.{self.dtype}, #tokens: {tokens}, {sizes}"


def layout(kept: Sequence[LayerCacheSpec], args: EngineArgs) -> SGLang:
    """SGLang's pools for those layers. AttncalcError: a setting is not SGLang's, or it cannot store them."""
    args.only(NAME, SETTINGS)
    pools = read(kept, args)
    told = understood(pools, args)
    return SGLang(
        pools=pools,
        states=told.states,
        page=told.page,
        share=told.share,
        draft=args.speculative_layers,
        ahead=args.speculative_tokens,
        most=told.most,
        dtype=TORCH[args.kv_dtype.name],
        version=told.version,
        facts=tuple(facts(pools, told)),
        notes=tuple(notes(kept, pools, args, told)),
    )


def _named(cell: int, name: str) -> int:
    """A name for a cell that carries a formula: another pool's layers may have other numbers for its symbols."""
    return named(cell, name, "bytes of a token in all layers of the pool") if isinstance(cell, Quantity) else cell


def _layers(row: int, name: str, layers: int, meaning: str) -> int:
    return symbol(name, layers, meaning) if isinstance(row, Quantity) else layers
