"""How vLLM puts layers into groups that share block numbers (v1/core/kv_cache_utils.py, kv_cache_planning.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...errors import AttncalcError
from .pages import LayerSpec
from .versions import VllmVersion


class Group(NamedTuple):
    """Layers that share block numbers.

    layers: their numbers in the model. specs: one of each layer, or all the same. padding: layers that
    the group has room for and that are none.
    """

    layers: tuple[int, ...]
    specs: tuple[LayerSpec, ...]

    @property
    def spec(self) -> LayerSpec:
        """That of its first layer, which stands for the tokens that it keeps."""
        return self.specs[0]


class Padding(NamedTuple):
    """'Add 2 padding layers, may waste at most 9.09% KV cache memory'."""

    added: int
    layers: int


def grouped(
    specs: Sequence[LayerSpec], does: VllmVersion, *, promote: bool
) -> tuple[tuple[Group, ...], tuple[Padding, ...]]:
    """The groups of layers with those specs, in the model's order, and the layers that padding adds.

    promote: windows and chunks keep every token (--disable-hybrid-kv-cache-manager, and old versions).
    AttncalcError: for pages that this version cannot bring together.
    """
    specs = _promoted(specs, does, promote)
    numbers = range(len(specs))
    if len({s.alike for s in specs}) == 1:
        return (Group(tuple(numbers), tuple(specs)),), ()
    if _one_type(specs) and (does.uniform_type or len({int(s.page_bytes) for s in specs}) == 1 or does.v0):
        return (Group(tuple(numbers), tuple(specs)),), ()
    if promote or not does.groups_hybrids:
        raise _cannot(does, "keeps layers of one kind alone then")
    specs = _unified(specs, does)
    buckets: dict[tuple[object, ...], list[int]] = {}
    for number in numbers:
        buckets.setdefault(specs[number].alike, []).append(number)
    size = _group_size([len(bucket) for bucket in buckets.values()], does)
    groups: list[Group] = []
    added: list[Padding] = []
    for bucket in buckets.values():
        parts = -(-len(bucket) // size)
        if len(bucket) % size:
            added.append(Padding(size - len(bucket) % size, len(bucket)))
        for i in range(parts):
            # every parts-th layer: so that a pipeline stage has its share of each group
            mine = tuple(bucket[i::parts]) if does.strides_groups else tuple(bucket[i * size : (i + 1) * size])
            groups.append(Group(mine, tuple(specs[n] for n in mine)))
    return tuple(groups), tuple(added)


def _group_size(counts: Sequence[int], does: VllmVersion) -> int:
    """Layers of a group: as many as the rarest kind has, or the commonest where they are about as many."""
    least, most = min(counts), max(counts)
    if does.most_padding:
        over, under = does.most_padding
        if most * under < least * over:
            return most
    return least


def _promoted(specs: Sequence[LayerSpec], does: VllmVersion, promote: bool) -> list[LayerSpec]:
    """Windows and chunks as full attention, where they are not grouped apart and another layer is full."""
    if not any(s.kind == "full" for s in specs):
        return list(specs)
    whole = promote or not does.groups_hybrids or (not does.groups_chunks and any(s.kind == "chunked" for s in specs))
    narrow = ("sliding", "chunked") if whole else ()
    block = next(s.block_size for s in specs if s.kind == "full")
    return [s._replace(kind="full", reach=None, block_size=block) if s.kind in narrow else s for s in specs]


def _one_type(specs: Sequence[LayerSpec]) -> bool:
    """All layers need the same number of tokens, whatever their widths."""
    if len({int(s.block_size) for s in specs}) > 1:
        return False
    return all(s.full for s in specs) or (len({(s.kind, s.reach) for s in specs}) == 1 and specs[0].kind != "mamba")


def _unified(specs: Sequence[LayerSpec], does: VllmVersion) -> list[LayerSpec]:
    """The specs with pages of one size: smaller ones take more tokens, or are padded (from 0.24)."""
    largest = max((s.page_bytes for s in specs), key=int)
    found = []
    for s in specs:
        if s.page_bytes == largest:
            found.append(s)
        elif s.kind == "mamba":
            found.append(s._replace(padded=largest))
        elif does.unifies_pages and largest % s.page_bytes == 0:
            found.append(s._replace(block_size=int(s.block_size) * (int(largest) // int(s.page_bytes))))
        elif does.pads_pages and s.kind != "mla":
            found.append(s._replace(padded=largest))
        else:
            raise _cannot(does, "cannot bring together pages of different sizes")
    return found


def _cannot(does: VllmVersion, why: str) -> AttncalcError:
    return AttncalcError(
        f"vLLM {does.name} {why}, which this model has", "choose a newer one with --engine-version, or another engine"
    )
