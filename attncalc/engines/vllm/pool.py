"""vLLM's pool of blocks: how many there are, how many a request takes, and what the log says of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from ...quantity import Formula, Quantity, Ratio, ceil_div, formula_of, maximum, minimum, named, quantity, ratio, symbol
from ...units import BYTES, GIB, NO_UNIT, TOKENS, count
from ..base import Bound, Detail, EngineArgs, Pool
from .defaults import batched_tokens
from .groups import Group, Padding
from .pages import LayerSpec
from .states import Alignment, States
from .versions import VllmVersion

_SWAP_SPACE = 4 * GIB


def on_stage(groups: Sequence[Group], stage_of: Sequence[int], stage: int) -> tuple[Group, ...]:
    """The groups with the layers of one pipeline stage alone."""
    found = []
    for group in groups:
        mine = [(n, spec) for n, spec in zip(group.layers, group.specs, strict=True) if stage_of[n] == stage]
        found.append(Group(tuple(n for n, _ in mine), tuple(spec for _, spec in mine)))
    return tuple(found)


@dataclass(frozen=True)
class VllmLayout:
    """vLLM's groups of layers, all of them and by pipeline stage."""

    args: EngineArgs
    does: VllmVersion
    groups: tuple[Group, ...]
    by_stage: tuple[tuple[Group, ...], ...]
    padding: tuple[Padding, ...]
    alignment: Alignment | None
    states: States | None
    notes: tuple[str, ...]
    most: int

    @property
    def parts(self) -> tuple[VllmLayout, ...]:
        """Each pipeline stage by itself."""
        if len(self.by_stage) == 1:
            return ()
        return tuple(dataclasses.replace(self, by_stage=(stage,)) for stage in self.by_stage)

    @property
    def version(self) -> str:
        return self.does.name

    @property
    def bound(self) -> Bound:
        return "reserved"

    @property
    def source(self) -> str:
        if self.does.v0:
            return "vLLM 0.8.5, worker/cache_engine.py and executor/executor_base.py"
        return f"vLLM {self.does.name}, v1/kv_cache_interface.py and v1/core/{self.does.planner}"

    @property
    def facts(self) -> tuple[str, ...]:
        sizes = sorted({int(g.spec.block_size) for g in self.groups})
        found = [f"version {self.does.name}", f"block size {' and '.join(map(count, sizes))}"]
        if any(g.spec.kind in ("sliding", "chunked", "cross") for g in self.groups):
            found.append(f"{count(self._batched)} batched tokens")
        return tuple(found)

    @property
    def _batched(self) -> int:
        return batched_tokens(self.args, self.does)

    @property
    def in_flight(self) -> int:
        """Tokens that are scheduled and whose blocks are not yet free."""
        pp = self.args.pp
        steps = pp + 1 if self.does.two_steps_in_flight else 1
        return self._batched * steps

    @property
    def bytes_per_block(self) -> int:
        """Bytes of a block, in all layers that share it: on the stage where they are most."""
        return max((_bytes_per_block(groups) for groups in self.by_stage), key=int)

    def blocks_per_request(self, context: int) -> int:
        """Blocks that one request of `context` tokens takes of the pool, in all groups."""
        found: dict[LayerSpec, int] = {}
        for group in self.groups:
            found[group.spec] = found.get(group.spec, 0) + 1
        parts = [(spec, times * self._blocks(spec, context)) for spec, times in found.items()]
        if sum(spec.reach is not None for spec in found) > 1 and isinstance(parts[0][1], Quantity):
            # windows of several sizes: one letter cannot stand for both
            return sum(named(n, f"blocks_{i}", f"blocks of {s.words} layers") for i, (s, n) in enumerate(parts, 1))
        return sum(blocks for _, blocks in parts)

    def _blocks(self, spec: LayerSpec, context: int) -> int:
        if spec.kind == "mamba":
            kept = self.states.per_request if self.states else 1
            shown = isinstance(spec.token_bytes, Quantity)
            return symbol("state_blocks", kept, "blocks of a request in a group of states") if shown else kept
        if spec.kind == "cross":
            source = symbol("T_source", self.args.source or 1, "source tokens, on the encoder's side")
            # max_num_encoder_input_tokens is max_num_batched_tokens (config/scheduler.py)
            most = source if self.does.crosses_by_length else maximum(self._batched, source)
            found = ceil_div(most, spec.block_size)
            return found if isinstance(spec.token_bytes, Quantity) else int(found)
        if spec.reach is None:
            here = context if self.args.dcp == 1 else ceil_div(context, self.args.dcp)
            return ceil_div(here, spec.block_size)
        flying = self.in_flight
        if isinstance(spec.token_bytes, Quantity):
            flying = symbol("in_flight", flying, "tokens that are scheduled and not yet processed")
        if spec.kind == "chunked":
            return ceil_div(minimum(spec.reach + flying, context), spec.block_size)
        # the window may begin within a block
        return ceil_div(minimum(spec.reach - 1 + flying, context), spec.block_size) + 1

    def needed(self, batch: int, context: int) -> int:
        """Bytes in which `batch` requests of `context` tokens fit; the pool's null block is one more."""
        blocks = batch * self.blocks_per_request(context)
        if not self.does.v0:
            shown = isinstance(blocks, Quantity)
            blocks += symbol("null_block", 1, "block that the pool keeps back") if shown else 1
        return blocks * self.bytes_per_block

    def pool(self, memory: int, context: int) -> Pool:
        one_block = named(self.bytes_per_block, "bytes_per_block", "bytes of a block in all its layers")
        blocks = quantity(symbol("kv_memory", memory, "bytes for the cache") // one_block)
        there = named(blocks, "num_gpu_blocks", "blocks in the pool")
        length = symbol("max_model_len", context, "tokens of a request")
        taken = quantity(self.blocks_per_request(length))
        request = named(taken, "blocks_per_request", "blocks that a request takes")
        tokens, concurrency = self._answer(there, request, length)
        swapped = quantity(
            symbol("swap_space", self.args.swap_space or _SWAP_SPACE, "bytes of host memory") // one_block
        )
        details = [
            Detail("kv_bytes_per_block", "one block", quantity(self.bytes_per_block), BYTES),
            *self._block_details(),
            Detail("kv_groups", "groups of layers", quantity(len(self.groups)), NO_UNIT),
            Detail("kv_blocks_per_request", f"blocks of one request of {count(context)} tokens", taken, NO_UNIT),
            Detail("kv_bytes_per_sequence", "bytes of that request", quantity(request * one_block), BYTES),
        ]
        if self.does.v0:
            details.append(Detail("cpu_blocks", "blocks in host memory", swapped, NO_UNIT))
        return Pool(
            blocks, tokens, concurrency, tuple(details), self._words(blocks, tokens, concurrency, length, swapped)
        )

    def _block_details(self) -> list[Detail]:
        block = quantity(self.groups[0].spec.block_size)
        if self.alignment is None:
            return [Detail("kv_block_size", "tokens of a block", block, TOKENS)]
        return [
            Detail("kv_bytes_per_token_per_layer", "a token in one layer", quantity(self.alignment.token_bytes), BYTES),
            Detail("state_bytes_per_layer", "one layer's state", quantity(self.alignment.state_bytes), BYTES),
            Detail("kv_block_size", "tokens of a block", quantity(self.alignment.block_size), TOKENS),
        ]

    def _answer(self, blocks: Quantity, request: Quantity, length: Quantity) -> tuple[Quantity, Ratio]:
        """'GPU KV cache size' and 'Maximum concurrency', whose meanings changed."""
        if self.does.tokens_from_concurrency:
            return _in_floats(blocks, request, length), ratio(blocks, request)
        size = min((self._logged_block(g.spec, length) for g in self.groups), key=int)
        groups = len(self.groups)
        tokens = (blocks if groups == 1 else blocks // symbol("groups", groups, "groups of layers")) * size
        if self.args.dcp > 1 and (groups == 1 or self.does.multiplies_dcp):
            tokens = tokens * symbol("dcp", self.args.dcp, "decode-context-parallel devices")
        if self.does.counts_requests:
            return quantity(tokens), ratio(blocks, request)
        return quantity(tokens), ratio(named(tokens, "tokens", "tokens in the pool"), length)

    def _logged_block(self, spec: LayerSpec, length: int) -> int:
        """Tokens of a group's block as 'GPU KV cache size' counted them: a state's is as long as a request."""
        if spec.kind != "mamba":
            return spec.block_size
        if len(self.groups) == 1 and self.does.logs_told_block:
            return self.args.block_size or spec.block_size
        return spec.block_size if self.states and self.states.prefixes else length

    def _words(self, blocks: int, tokens: int, concurrency: Ratio, length: int, swapped: int) -> tuple[str, ...]:
        times = f"{float(concurrency):.2f}x"
        if self.does.v0:
            return (
                f"# GPU blocks: {int(blocks)}, # CPU blocks: {int(swapped)}",
                f"Maximum concurrency for {int(length)} tokens per request: {times}",
            )
        lines = [*self._alignment_words(), *map(_padding_words, self.padding)]
        size, most = (
            f"GPU KV cache size: {count(tokens)} tokens",
            f"Maximum concurrency for {count(length)} tokens per request: {times}",
        )
        return (*lines, f"{size}, {most}") if self.does.one_line else (*lines, size, most)

    def _alignment_words(self) -> list[str]:
        state = next((g.spec for g in self.groups if g.spec.kind == "mamba"), None)
        other = next((g.spec for g in self.groups if g.spec.kind != "mamba"), None)
        if state is None or other is None or self.alignment is None:
            return []
        lines = []
        changed = self.alignment.block_size > self.alignment.told
        if changed or (self.args.block_size is None and self.does.always_announces_block):
            lines = [
                f"Setting attention block size to {int(self.alignment.block_size)} tokens "
                "to ensure that attention page size is >= mamba page size."
            ]
        if state.page_bytes != state.real_bytes:
            more = 100 * (int(state.page_bytes) - int(state.real_bytes)) / int(state.real_bytes)
            lines.append(
                f"Padding mamba page size by {more:.2f}% to ensure that mamba page size and "
                "attention page size are exactly equal."
            )
        return lines


def _padding_words(padding: Padding) -> str:
    waste = padding.added / padding.layers * 100
    return f"Add {padding.added} padding layers, may waste at most {waste:.2f}% KV cache memory"


def _bytes_per_block(groups: Sequence[Group]) -> int:
    """One group: the pages of all its layers. Several: a page for each layer of the largest."""
    there = [group for group in groups if group.layers]
    if len(there) > 1 or (len(groups) > 1 and there):
        widest = max(there, key=lambda group: len(group.layers))
        return _times(len(widest.layers), widest.spec.page_bytes, "L_group", "layers of a group")
    pages: dict[LayerSpec, int] = {}
    for spec in there[0].specs if there else ():
        pages[spec] = pages.get(spec, 0) + 1
    parts = [_times(n, spec.page_bytes, "L", "layers with a cache") for spec, n in pages.items()]
    if len(parts) > 1 and isinstance(parts[0], Quantity):
        return sum(named(p, f"pages_{i}", "bytes of a block in layers of one width") for i, p in enumerate(parts, 1))
    return sum(parts)


def _times(layers: int, page: int, name: str, meaning: str) -> int:
    return (symbol(name, layers, meaning) if isinstance(page, Quantity) else layers) * page


def _in_floats(blocks: Quantity, request: Quantity, length: Quantity) -> Quantity:
    """int(blocks / request * length) as Python's floats have it: it may be one below the exact quotient."""
    a, b, c = formula_of(blocks), formula_of(request), formula_of(length)
    tokens = (("int(", "int("), *a.tokens, ("/", "/"), *b.tokens, ("*", "*"), *c.tokens, (")", ")"))
    return Quantity(int(int(blocks) / int(request) * int(length)), Formula(tokens))
