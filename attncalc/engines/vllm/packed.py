"""How vLLM packs layers whose pages have several sizes into blocks (DeepSeek-V4's compressed
attention, Qwen4).

The pools of all layers are one group. Windows, and the tokens that are still to be pooled by 4 and
by 128, have groups of their own, which have about as many layers as there are pages of one size in
the group of pools. DeepSeek-V4-Flash has 43 windows, 21 layers with pools of 4 and 20 with pools of
128: 43 windows fill 2 groups of at most 22.

Qwen4's pools are in the group of its 12 layers of keys and values. Its 36 states fill 3 groups of
12, and its short convolution and the tokens to pool have groups of their own. GLM-5.3-Flash has 11
latents and 34 states, in 4 groups.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

from .groups import KVCacheGroup
from .kv_cache_interface import CONVOLUTION, UNPOOLED, FullAttentionSpec, KVCacheSpec, MambaSpec
from .versions import VllmVersion

# Layers with their numbers in the model.
_Members = list[tuple[int, KVCacheSpec]]


def is_packed(groups: Sequence[KVCacheGroup]) -> bool:
    """Return whether the groups are those of `pack_layers`."""
    return any(spec.title for group in groups for spec in group.specs)


def pack_layers(specs: Sequence[KVCacheSpec], version: VllmVersion) -> tuple[KVCacheGroup, ...]:
    """Return the groups of the layers, which are in the model's order: that of the pools first."""
    buckets: dict[tuple[object, ...], _Members] = {}
    page = max(spec.page_size_bytes for spec in specs if isinstance(spec, FullAttentionSpec))
    for number, spec in enumerate(specs):
        kind: str = spec.kind
        if isinstance(spec, FullAttentionSpec):
            kind = "full"
        elif spec.title == CONVOLUTION:
            kind = CONVOLUTION
        members = buckets.setdefault(
            (kind, int(spec.block_size), spec.window and int(spec.window)), []
        )
        if isinstance(spec, MambaSpec) and not spec.title.startswith(UNPOOLED):
            members.append((number, dataclasses.replace(spec, page_size_padded=page)))
        else:
            members.append((number, spec))
    pools, *others = sorted(buckets.values(), key=_has_no_pools)
    if version.pads_unpooled_pages:
        others = [
            [(number, _padded(spec, pools)) for number, spec in members] for members in others
        ]
    counts = [_pages(spec for _, spec in members) for members in (pools, *others)]
    per_group = _layers_per_group(counts, version)
    groups = [pools]
    for members, of_size in zip(others, counts[1:], strict=True):
        if per_group and len(set(of_size.values())) == 1:
            parts = -(-max(of_size.values()) // per_group)
        else:
            parts = 1
        if version.has_shared_pools and (per_group is None or isinstance(members[0][1], MambaSpec)):
            # as many layers as a block of the pools has room for
            room = sum(spec.page_size_bytes for _, spec in pools) // members[0][1].page_size_bytes
            parts = max(parts, -(-len(members) // max(1, room)))
        by_size = [
            [member for member in members if member[1].page_size_bytes == page] for page in of_size
        ]
        groups += [
            sorted(member for layers in by_size for member in layers[i::parts])
            for i in range(parts)
        ]
    return tuple(
        KVCacheGroup(tuple(n for n, _ in members), tuple(spec for _, spec in members))
        for members in groups
    )


def _has_no_pools(members: _Members) -> bool:
    return not isinstance(members[0][1], FullAttentionSpec)


def block_pages(groups: Sequence[KVCacheGroup], version: VllmVersion) -> dict[int, int]:
    """Return the pages of a block on one pipeline stage, as {bytes of a page: how many}."""
    counts = [_pages(group.specs) for group in groups]
    if version.block_pages == "tuples":
        return tuple_pages(groups)
    if version.block_pages == "slots":
        return {page: max(of_size[page] for of_size in counts) for page in sum(counts, Counter())}
    return max(counts, key=lambda of_size: sum(int(page) * n for page, n in of_size.items()))


def tuple_pages(groups: Sequence[KVCacheGroup]) -> dict[int, int]:
    """Return the pages of a block that has one page of each size of the pools per layer tuple.

    A block has as many tuples as a group has pages of one size, at most: 22 in DeepSeek-V4-Flash.
    """
    counts = [_pages(group.specs) for group in groups]
    sizes = counts[0] or sum(counts, Counter())  # a pipeline stage may have no pools
    return dict.fromkeys(sizes, max(n for of_size in counts for n in of_size.values()))


def weighed_blocks(blocks: Sequence[int], groups: Sequence[KVCacheGroup]) -> int:
    """Return those blocks of each group as the log counts them: by bytes, in units of a block of
    the first group.
    """
    group_bytes = [sum(int(spec.page_size_bytes) for spec in group.specs) for group in groups]
    return -(-sum(n * size for n, size in zip(blocks, group_bytes, strict=True)) // group_bytes[0])


def _pages(specs: Iterable[KVCacheSpec]) -> Counter[int]:
    """Return how many pages of each size the layers have."""
    return Counter(spec.page_size_bytes for spec in specs)


def _padded(spec: KVCacheSpec, pools: _Members) -> KVCacheSpec:
    """Return the spec with its page padded to the next larger page of the pools."""
    if not spec.title.startswith(UNPOOLED):
        return spec
    page = spec.page_size_bytes
    pages = (pool.page_size_bytes for _, pool in pools)
    larger = min((of_pools for of_pools in pages if of_pools >= page), default=page)
    return dataclasses.replace(spec, page_size_padded=larger)


def _layers_per_group(counts: Sequence[Counter[int]], version: VllmVersion) -> int | None:
    """Return how many layers with pages of one size a group has, at most; None without a limit.

    Source: _get_kv_cache_groups_uniform_groups, from 0.29 on _get_packed_kv_cache_groups.
    """
    sizes = [max(of_size.values()) for of_size in counts]
    if not version.splits_only_equal_counts:
        return _approximate_gcd(sizes, sizes[0])
    balanced = [of_size for of_size in counts if len(set(of_size.values())) == 1]
    smallest = max((max(of_size.values()) for of_size in balanced if len(of_size) > 1), default=0)
    if smallest:
        return _approximate_gcd([max(of_size.values()) for of_size in balanced], smallest)
    return None


def _approximate_gcd(sizes: Sequence[int], smallest: int) -> int:
    """Return the number from `smallest` on to whose multiples the sizes can be rounded up with the
    least padding.

    The larger of two equally good ones: for 21, 43, 21 and 20 it is 22, with a padding of 1 + 1 + 1
    + 2.
    """
    candidates = range(smallest, max(smallest, *sizes) + 1)
    return min(candidates, key=lambda n: (sum(-size % n for size in sizes), -n))
