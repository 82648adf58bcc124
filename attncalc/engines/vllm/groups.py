"""How vLLM puts layers into groups that share block numbers (v1/core/kv_cache_utils.py,
kv_cache_planning.py).

All layers of a model with one kind of cache form one group. In a hybrid model every group has
layers of one kind, and all groups have the same number of layers: that of the rarest kind. Gemma 3
27B has 10 layers with full attention and 52 with a sliding window: 1 group of 10 and 6 groups of
windows, which need 6 * 10 - 52 = 8 layers of padding.
"""

import dataclasses
from collections.abc import Sequence

from ...errors import NotSupportedError
from ...records import NamedTuple
from ...search import grouped
from .kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)
from .options import VllmArgs
from .versions import VllmVersion


class KVCacheGroup(NamedTuple):
    layers: tuple[int, ...]  # their numbers in the model
    specs: tuple[KVCacheSpec, ...]  # the spec of each of them

    @property
    def spec(self) -> KVCacheSpec:
        """The spec of its first layer. It decides the group's blocks, which are the same for all
        its layers.
        """
        return self.specs[0]


def group_layers(specs: Sequence[KVCacheSpec], args: VllmArgs) -> tuple[KVCacheGroup, ...]:
    """Return the groups of the layers, which are in the model's order.

    Raises AttncalcError if this version cannot group such layers.
    """
    version = args.version
    promote = args.without_hybrid_manager
    specs = _promote_windows(specs, version, promote=promote)
    if _is_one_group(specs, version):
        return (KVCacheGroup(tuple(range(len(specs))), tuple(specs)),)
    if promote:
        raise NotSupportedError(
            f"vLLM {version.name} supports only layers of one kind without its hybrid KV-cache "
            "manager, and this model has several",
            "leave out --disable-hybrid-kv-cache-manager, or the connector of the cache that needs "
            "it",
        )
    if not version.groups_hybrids:
        raise _unsupported(
            version, "supports only layers of one kind here, and this model has several"
        )
    specs = _equalize_pages(specs, version)
    kinds = grouped((spec.grouping_key, number) for number, spec in enumerate(specs))
    size = _group_size([len(layers) for layers in kinds.values()], version)
    return tuple(
        KVCacheGroup(part, tuple(specs[number] for number in part))
        for layers in kinds.values()
        for part in _split(layers, size, version)
    )


def _split(layers: Sequence[int], size: int, version: VllmVersion) -> list[tuple[int, ...]]:
    """Return the layers of one kind in parts of at most `size` layers.

    Newer versions take every n-th layer, so that each pipeline stage has its share of every group:
    layers 0 to 5 in parts of 3 are (0, 2, 4) and (1, 3, 5). Older versions take consecutive layers:
    (0, 1, 2) and (3, 4, 5).
    """
    n = -(-len(layers) // size)
    if version.groups_every_nth_layer:
        return [tuple(layers[i::n]) for i in range(n)]
    return [tuple(layers[i * size : (i + 1) * size]) for i in range(n)]


def _group_size(counts: Sequence[int], version: VllmVersion) -> int:
    """Return the layers per group: those of the rarest kind, or of the most common if the two are
    about equal.
    """
    fewest = min(counts)
    largest = max(counts)
    if version.max_padding:
        numerator, denominator = version.max_padding
        if largest * denominator < fewest * numerator:
            return largest
    return fewest


def _promote_windows(
    specs: Sequence[KVCacheSpec], version: VllmVersion, *, promote: bool
) -> list[KVCacheSpec]:
    """Return the specs, with windows and chunks as full attention if they cannot have groups of
    their own.

    vLLM does this only if the model also has layers with full attention.
    """
    full = next((spec for spec in specs if type(spec) is FullAttentionSpec), None)
    has_chunks = any(isinstance(spec, ChunkedLocalAttentionSpec) for spec in specs)
    keeps_windows = version.groups_hybrids and not promote
    if has_chunks and not version.groups_chunks:
        keeps_windows = False
    if full is None or keeps_windows:
        return list(specs)
    return [_promoted(spec, full.block_size) for spec in specs]


def _promoted(spec: KVCacheSpec, block_size: int) -> KVCacheSpec:
    if isinstance(spec, SlidingWindowSpec | ChunkedLocalAttentionSpec):
        return FullAttentionSpec(block_size, spec.shape, token_bytes=spec.token_bytes)
    return spec


def _is_one_group(specs: Sequence[KVCacheSpec], version: VllmVersion) -> bool:
    """Return whether all layers form one group: equal ones, or of the same tokens in widths that
    may be mixed.
    """
    if len({s.grouping_key for s in specs}) == 1:
        return True
    if len({int(s.block_size) for s in specs}) > 1:
        return False
    one_page_size = len({int(s.page_size_bytes) for s in specs}) == 1
    if not (version.groups_mixed_widths or version.v0 or one_page_size):
        return False
    if all(isinstance(s, FullAttentionSpec) for s in specs):
        return True
    same_window = len({(s.kind, s.window) for s in specs}) == 1
    return same_window and not isinstance(specs[0], MambaSpec)


def _equalize_pages(specs: Sequence[KVCacheSpec], version: VllmVersion) -> list[KVCacheSpec]:
    """Return the specs with pages of one size, that of the largest.

    A smaller page gets more tokens, if it divides the largest: 4 KiB beside 8 KiB holds twice as
    many. States, and from 0.24 on other pages too, are padded instead.
    """
    largest = max((spec.page_size_bytes for spec in specs), key=int)
    return [_with_page(spec, largest, version) for spec in specs]


def _with_page(spec: KVCacheSpec, size: int, version: VllmVersion) -> KVCacheSpec:
    page = spec.page_size_bytes
    if page == size:
        return spec
    if isinstance(spec, MambaSpec):
        return dataclasses.replace(spec, page_size_padded=size)
    if version.unifies_pages and size % page == 0:
        block_size = int(spec.block_size) * (int(size) // int(page))
        return dataclasses.replace(spec, block_size=block_size)
    if version.pads_pages and not isinstance(spec, MLAAttentionSpec):
        return dataclasses.replace(spec, page_size_padded=size)
    raise _unsupported(
        version, "cannot bring together pages of different sizes, which this model has"
    )


def _unsupported(version: VllmVersion, why: str) -> NotSupportedError:
    return NotSupportedError(
        f"vLLM {version.name} {why}",
        "choose a newer version with --engine-version, or another engine",
    )
