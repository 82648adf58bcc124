"""How many blocks fit in a memory, how many a request takes, and the lines that vLLM logs about
them.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from ...quantity import (
    Formula,
    Quantity,
    Ratio,
    formula_of,
    maximum,
    named,
    quantity,
    ratio,
    renamed,
    symbol,
    symbol_like,
)
from ...records import dataclass
from ...search import grouped
from ...units import BYTES, GIB, NO_UNIT, TOKENS, count
from ..base import Bound, Detail, Pool
from ..ds_mla import padded_page
from .groups import KVCacheGroup
from .kv_cache_interface import (
    POOLS,
    UNPOOLED,
    WINDOWS,
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)
from .options import VllmArgs
from .packed import block_pages, is_packed, tuple_pages, weighed_blocks
from .state_blocks import Alignment, StateBlocks
from .versions import VllmVersion

# The default of --swap-space (V0).
_SWAP_SPACE = 4 * GIB


@dataclass(frozen=True)
class VllmLayout:
    """The groups of a model's layers, of the whole model and of each pipeline stage."""

    args: VllmArgs
    groups: tuple[KVCacheGroup, ...]  # the groups of the whole model
    # the same groups with the layers of one stage each
    groups_by_stage: tuple[tuple[KVCacheGroup, ...], ...]
    # how attention's blocks grew so that a state fits; None without recurrent layers
    alignment: Alignment | None
    states: StateBlocks | None  # how recurrent states are stored; None without such layers
    notes: tuple[str, ...]  # see CacheLayout, also for bound
    # tokens with which all requests start, and whose whole blocks they share
    shared_prefix: int = 0
    bound: Bound = "reserved"

    @property
    def parts(self) -> "tuple[VllmLayout, ...]":
        """The layout of each pipeline stage, if there are several."""
        if len(self.groups_by_stage) == 1:
            return ()
        return tuple(
            dataclasses.replace(self, groups_by_stage=(groups,)) for groups in self.groups_by_stage
        )

    @property
    def version(self) -> str:
        return self.args.version.name

    @property
    def max_num_seqs(self) -> int:
        return self.args.limits.max_num_seqs

    @property
    def source(self) -> str:
        if self.args.version.v0:
            return "vLLM 0.8.5, worker/cache_engine.py and executor/executor_base.py"
        return (
            f"vLLM {self.version}, v1/kv_cache_interface.py and v1/core/{self.args.version.planner}"
        )

    @property
    def facts(self) -> tuple[str, ...]:
        sizes = sorted({int(group.spec.block_size) for group in self.groups})
        facts = [f"version {self.version}", f"block size {' and '.join(map(count, sizes))}"]
        if self.args.dcp > 1:
            facts.append(
                f"{count(max(sizes) * self.args.dcp)} tokens per block of {self.args.dcp} GPUs"
            )
        by_step = SlidingWindowSpec | ChunkedLocalAttentionSpec | CrossAttentionSpec
        if any(isinstance(group.spec, by_step) for group in self.groups):
            facts.append(f"{count(self.args.limits.max_num_batched_tokens)} batched tokens")
        return tuple(facts)

    @property
    def offloads_once(self) -> bool:
        """Whether tensor-parallel GPUs share one copy of their latents in host memory: only without
        other splits.
        """
        specs = {spec.grouping_key for group in self.groups for spec in group.specs}
        plain = self.args.version.offloads_latents_once == "plain"
        return (
            self.args.version.offloads_latents_once != "never"
            and all(isinstance(group.spec, MLAAttentionSpec) for group in self.groups)
            and not (plain and len(specs) > 1)
            and self.args.pp == self.args.dcp == 1
        )

    @cached_property
    def bytes_per_block(self) -> int:
        """Bytes of a block in all layers that share it, on the pipeline stage with the most."""
        return max(
            (_bytes_per_block(groups, self.args.version) for groups in self.groups_by_stage),
            key=int,
        )

    @cached_property
    def _admitted_bytes_per_block(self) -> int:
        """Bytes per block with which vLLM checks that one request fits."""
        if not (is_packed(self.groups) and self.args.version.admits_by_tuples):
            return self.bytes_per_block
        return max(
            (_sum_pages(tuple_pages(groups).items()) for groups in self.groups_by_stage), key=int
        )

    @cached_property
    def _times(self) -> dict[KVCacheSpec, int]:
        """{a spec: the groups that have it}."""
        return Counter(group.spec for group in self.groups)

    def blocks_per_request(self, context: int) -> int:
        """Return the blocks that one request of `context` tokens takes, in all groups together."""
        blocks = [
            (spec, times * spec.max_admission_blocks_per_request(context, self.args))
            for spec, times in self._times.items()
        ]
        if sum(spec.window is not None for spec in self._times) > 1:
            # in one formula the symbol W would mean windows of several sizes
            return sum(
                renamed(n, f"blocks_{i}", f"blocks of {s.title or f'{s.label} layers'}")
                for i, (s, n) in enumerate(blocks, 1)
            )
        return sum(n for _, n in blocks)

    def needed(self, batch: int, context: int) -> int:
        """Return the bytes that `batch` requests of `context` tokens need, with the null block,
        which is never used.
        """
        blocks = batch * self.blocks_per_request(context)
        if self.shared_prefix:
            shared = self.shared_blocks(int(context))
            meaning = "blocks of the shared prefix, which each request would have"
            blocks -= (batch - 1) * symbol_like(blocks, "shared_blocks", shared, meaning)
        if not self.args.version.v0:
            blocks += symbol_like(blocks, "null_block", 1, "block that is never used")
        needed = blocks * self.bytes_per_block
        admitted = self._admitted_bytes_per_block
        if admitted == self.bytes_per_block:
            return needed
        return maximum(needed, self.blocks_per_request(context) * admitted)

    def with_shared_prefix(self, tokens: int) -> "VllmLayout | None":
        caches_prefixes = self.args.prefix_caching
        if self.states:
            caches_prefixes = self.states.prefix_caching
        elif caches_prefixes is None:
            has_source = any(isinstance(group.spec, CrossAttentionSpec) for group in self.groups)
            caches_prefixes = not has_source and not self.args.version.v0
        if caches_prefixes:
            return dataclasses.replace(self, shared_prefix=tokens)
        return None

    def shared_blocks(self, context: int) -> int:
        """Return the blocks of the shared prefix that all requests of `context` tokens hold, in all
        groups together.

        A hit is a multiple of the block sizes of all groups (HybridKVCacheCoordinator). A request
        holds no blocks before its window or chunk: with a window of 4, a request of 10 tokens still
        needs tokens 7 to 9. Each request has states of its own.
        """
        sizes = {int(group.spec.block_size) * self.args.dcp for group in self.groups}
        tokens = min(self.shared_prefix, context - 1)  # the last token is computed
        hit = tokens // math.lcm(*sizes) * math.lcm(*sizes)
        shared = 0
        for spec in (group.spec for group in self.groups):
            if spec.shares_prefixes:
                size = int(spec.block_size)
                before = spec.first_token(context) // size
                shared += max(0, hit // (size * self.args.dcp) - before)
        return shared

    def pool(self, memory: int, context: int) -> Pool:
        block_bytes = named(
            self.bytes_per_block, "bytes_per_block", "bytes of a block in all its layers"
        )
        admitted = block_bytes
        if self._admitted_bytes_per_block != self.bytes_per_block:
            meaning = "bytes of a block with which vLLM checks that a request fits"
            admitted = named(self._admitted_bytes_per_block, "admitted_bytes_per_block", meaning)
        blocks = quantity(symbol("kv_memory", memory, "bytes for the cache") // block_bytes)
        num_gpu_blocks = named(blocks, "num_gpu_blocks", "blocks in the pool")
        length = symbol("max_model_len", context, "tokens of a request")
        request_blocks = quantity(self.blocks_per_request(length))
        request = named(request_blocks, "blocks_per_request", "blocks that a request takes")
        logged = request
        if is_packed(self.groups) and self.args.version.weighs_groups:
            of_groups = [
                group.spec.max_admission_blocks_per_request(context, self.args)
                for group in self.groups
            ]
            weighed = weighed_blocks(of_groups, self.groups)
            meaning = (
                "blocks of a request as the log counts them: by bytes, in units of a block of pools"
            )
            logged = symbol("logged_blocks", weighed, meaning)
        tokens, concurrency = self._tokens_and_concurrency(num_gpu_blocks, logged, length)
        label = f"blocks of one request of {count(context)} tokens"
        details = [
            Detail("kv_bytes_per_block", "one block", quantity(self.bytes_per_block), BYTES),
            *self._block_details(),
            Detail("kv_groups", "groups of layers", quantity(len(self.groups)), NO_UNIT),
            Detail("kv_blocks_per_request", label, request_blocks, NO_UNIT),
            *self._packed_details(length),
            Detail(
                "kv_bytes_per_sequence",
                "bytes of that request",
                quantity(request * admitted),
                BYTES,
            ),
            *self._growth_details(length, admitted, block_bytes),
        ]
        if self.args.version.v0:
            swap_space = symbol(
                "swap_space", self.args.swap_space or _SWAP_SPACE, "bytes of host memory"
            )
            cpu_blocks = quantity(swap_space // block_bytes)
            details.append(Detail("cpu_blocks", "blocks in host memory", cpu_blocks, NO_UNIT))
            lines: Iterable[str] = (
                f"# GPU blocks: {int(blocks)}, # CPU blocks: {int(cpu_blocks)}",
                f"Maximum concurrency for {int(length)} tokens per request: "
                f"{float(concurrency):.2f}x",
            )
        else:
            lines = self._log_lines(tokens, concurrency, length)
        return Pool(blocks, tokens, concurrency, tuple(details), tuple(lines))

    def _packed_details(self, length: int) -> Iterator[Detail]:
        """Yield which of a request's blocks grow with its length, and which with the tokens in
        flight.
        """
        if not any(group.spec.title == POOLS for group in self.groups):
            return
        blocks = dict.fromkeys((POOLS, WINDOWS, UNPOOLED), 0)
        for group in self.groups:
            title = next(title for title in blocks if group.spec.title.startswith(title))
            blocks[title] += group.spec.max_admission_blocks_per_request(length, self.args)
        yield Detail("kv_blocks_of_pools", "  of pools", quantity(blocks[POOLS]), NO_UNIT)
        yield Detail("kv_blocks_of_windows", "  of windows", quantity(blocks[WINDOWS]), NO_UNIT)
        yield Detail(
            "kv_blocks_of_unpooled_tokens",
            "  of tokens to pool",
            quantity(blocks[UNPOOLED]),
            NO_UNIT,
        )

    def _growth_details(self, length: int, admitted: int, block_bytes: int) -> Iterator[Detail]:
        """Yield the bytes that a request takes whatever its length, and those per token.

        Windows and states do not grow: with 3 groups of states of 2 blocks each, a request of 1 or
        of 100,000 tokens takes 6 blocks for them. Issue 51041 of vLLM asks why the logged tokens
        depend on the context.
        """
        growing = [group.spec for group in self.groups if isinstance(group.spec, FullAttentionSpec)]
        fixed = [
            group.spec.max_admission_blocks_per_request(length, self.args)
            for group in self.groups
            if not isinstance(group.spec, FullAttentionSpec)
        ]
        if fixed:
            size = (
                named(quantity(sum(fixed)), "fixed_blocks", "blocks of a request that do not grow")
                * admitted
            )
            yield Detail(
                "kv_fixed_bytes_per_sequence", "  whatever its length", quantity(size), BYTES
            )
        if growing:
            tokens = math.lcm(*(int(spec.block_size) for spec in growing))
            blocks = sum(tokens // int(spec.block_size) for spec in growing)
            shared = symbol(
                "tokens_of_blocks",
                tokens * self.args.dcp,
                "tokens that fill whole blocks of all groups",
            )
            added = block_bytes * symbol("added_blocks", blocks, "blocks that those tokens take")
            yield Detail("kv_bytes_per_token", "  per token", ratio(added, shared), BYTES)

    def _block_details(self) -> Iterator[Detail]:
        aligned = self.alignment
        if aligned is None:
            block_size = quantity(self.groups[0].spec.block_size)
            yield Detail("kv_block_size", "tokens per block", block_size, TOKENS)
            return
        label = "a token in one layer"
        yield Detail("kv_bytes_per_token_per_layer", label, quantity(aligned.token_bytes), BYTES)
        yield Detail(
            "state_bytes_per_layer", "one layer's state", quantity(aligned.state_bytes), BYTES
        )
        yield Detail("kv_block_size", "tokens per block", quantity(aligned.block_size), TOKENS)

    def _tokens_and_concurrency(
        self, blocks: Quantity, request: Quantity, length: Quantity
    ) -> tuple[Quantity, Ratio]:
        """Return 'GPU KV cache size' and 'Maximum concurrency', whose definitions changed between
        versions.
        """
        if self.args.version.tokens_from_concurrency:
            return _float_tokens(blocks, request, length), ratio(blocks, request)
        block_size = min(
            (self._logged_block_size(group.spec, length) for group in self.groups), key=int
        )
        groups = len(self.groups)
        if groups == 1:
            per_group = blocks
        else:
            per_group = blocks // symbol("groups", groups, "groups of layers")
        tokens = per_group * block_size
        if self.args.dcp > 1 and (groups == 1 or self.args.version.multiplies_dcp):
            tokens = tokens * symbol("dcp", self.args.dcp, "decode-context-parallel devices")
        if self.args.version.concurrency_from_blocks:
            return quantity(tokens), ratio(blocks, request)
        return quantity(tokens), ratio(named(tokens, "tokens", "tokens in the pool"), length)

    def _logged_block_size(self, spec: KVCacheSpec, length: int) -> int:
        """Return the tokens of a group's block as 'GPU KV cache size' counts them: a state's is a
        whole request.
        """
        if not isinstance(spec, MambaSpec):
            return spec.block_size
        if len(self.groups) == 1 and self.args.version.logs_requested_block:
            return self.args.block_size or spec.block_size
        if self.states and self.states.prefix_caching:
            return spec.block_size
        return length

    def _log_lines(self, tokens: int, concurrency: Ratio, length: int) -> Iterator[str]:
        yield from self._alignment_log_lines()
        for added, layers in self.padding():
            yield (
                f"Add {added} padding layers, may waste at most {added / layers * 100:.2f}% KV "
                "cache memory"
            )
        size = f"GPU KV cache size: {count(tokens)} tokens"
        maximum_concurrency = (
            f"Maximum concurrency for {count(length)} tokens per request: {float(concurrency):.2f}x"
        )
        if self.args.version.logs_one_line:
            yield f"{size}, {maximum_concurrency}"
        else:
            yield size
            yield maximum_concurrency

    def padding(self) -> Iterator[tuple[int, int]]:
        """Yield (layers of padding, layers) of each kind of layer whose groups are not full."""
        if is_packed(self.groups):
            return
        kinds = grouped((group.spec.grouping_key, len(group.layers)) for group in self.groups)
        full = max(len(group.layers) for group in self.groups)
        for sizes in kinds.values():
            if sum(sizes) < full * len(sizes):
                yield full * len(sizes) - sum(sizes), sum(sizes)

    def _alignment_log_lines(self) -> Iterator[str]:
        if self.alignment is None:
            return
        grew = self.alignment.block_size > self.alignment.requested
        if grew or (self.args.block_size is None and self.args.version.always_announces_block):
            yield (
                f"Setting attention block size to {int(self.alignment.block_size)} tokens "
                "to ensure that attention page size is >= mamba page size."
            )
        state = next(group.spec for group in self.groups if isinstance(group.spec, MambaSpec))
        page = int(state.page_size_bytes)
        unpadded = int(state.real_page_size_bytes)
        if page != unpadded:
            yield (
                f"Padding mamba page size by {100 * (page - unpadded) / unpadded:.2f}% to ensure "
                "that mamba page size and attention page size are exactly equal."
            )


def groups_on_stage(
    groups: Sequence[KVCacheGroup], stage_of: Sequence[int], stage: int
) -> tuple[KVCacheGroup, ...]:
    """Return the groups with only the layers of one pipeline stage; `stage_of` is the stage of each
    layer.
    """
    groups_here = []
    for group in groups:
        members = [
            (n, spec)
            for n, spec in zip(group.layers, group.specs, strict=True)
            if stage_of[n] == stage
        ]
        groups_here.append(
            KVCacheGroup(tuple(n for n, _ in members), tuple(spec for _, spec in members))
        )
    return tuple(groups_here)


def _bytes_per_block(groups: Sequence[KVCacheGroup], version: VllmVersion) -> int:
    """Return the bytes of a block on one pipeline stage.

    A single group has a page in each of its layers. Several groups share the pages: the n-th layers
    of all groups use one tensor, so a block has one page per layer of the largest group.
    """
    if is_packed(groups):
        stride = math.lcm(*(spec.alignment for group in groups for spec in group.specs))
        pages = _sum_pages(block_pages(groups, version).items())
        if stride == 1:
            return pages
        return padded_page(pages, stride)
    with_layers = [group for group in groups if group.layers]
    if with_layers and len(groups) > 1:
        largest = max(with_layers, key=lambda group: len(group.layers))
        return _layers_times_page(
            len(largest.layers), largest.spec.page_size_bytes, "L_group", "layers of a group"
        )
    layers = Counter(spec for group in with_layers for spec in group.specs)
    return _sum_pages((spec.page_size_bytes, n) for spec, n in layers.items())


def _sum_pages(layers: Iterable[tuple[int, int]]) -> int:
    """Return the sum of pages; `layers` are (bytes of a page, how many layers have one)."""
    pages = [_layers_times_page(n, page, "L", "layers with a cache") for page, n in layers]
    if len(pages) > 1:
        return sum(
            renamed(p, f"pages_{i}", "bytes of a block in layers of one width")
            for i, p in enumerate(pages, 1)
        )
    return sum(pages)


def _layers_times_page(layers: int, page: int, name: str, meaning: str) -> int:
    return symbol_like(page, name, layers, meaning) * page


def _float_tokens(blocks: Quantity, request: Quantity, length: Quantity) -> Quantity:
    """Return int(blocks / request * length) in Python's floats, as vLLM computes it.

    It may be one below the exact quotient.
    """
    a = formula_of(blocks)
    b = formula_of(request)
    c = formula_of(length)
    tokens = (("int(", "int("), *a.tokens, ("/", "/"), *b.tokens, ("*", "*"), *c.tokens, (")", ")"))
    return Quantity(int(int(blocks) / int(request) * int(length)), Formula(tokens))
