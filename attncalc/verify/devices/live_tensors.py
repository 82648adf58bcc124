"""The tensors that exist at each moment of a run, as torch's dispatcher sees them."""

import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# The caching allocator rounds each request up to this many bytes (kMinBlockSize in its source,
# c10/cuda/CUDACachingAllocator.cpp).
BLOCK = 512


class Probe(Protocol):
    """The allocator's own counts around one operator."""

    def start(self) -> None:
        """Begin to measure one operator."""

    def peak(self) -> int:
        """Return the peak of the bytes requested since `start`, beyond those before."""


class LiveTensors(TorchDispatchMode):
    """Adds up the storages that operators return, from their creation until they are freed.

    Tensors that existed before are not counted, and a view is not counted again. Nor are `absent`
    outputs, given by operator: those that torch's fake tensors have and a real run does not.

    Attributes:
        peak: the largest sum of bytes that existed together.
        peak_in_blocks: the same, with each storage rounded up to BLOCK.
        inside: {operator: the most bytes that one call allocated and did not return}, if there is a
            probe.
    """

    def __init__(
        self, probe: Probe | None = None, absent: Mapping[Any, tuple[int, ...]] | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = self.peak_in_blocks = 0
        self.inside: dict[str, int] = {}
        self._probe = probe
        self._absent = absent or {}
        self._bytes = self._in_blocks = 0
        self._counted: set[int] = set()
        self._existing: dict[int, Any] = {}

    def __torch_dispatch__(
        self,
        op: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        for storage in _storages((args, kwargs)):
            if storage._cdata not in self._counted:
                # kept, so that its address is not used again
                self._existing[storage._cdata] = storage
        if self._probe:
            self._probe.start()
        output = op(*args, **(kwargs or {}))
        absent = self._absent.get(op, ())
        if absent:
            present = [part for i, part in enumerate(output) if i not in absent]
        else:
            present = output
        returned = sum(self._add(storage) for storage in _storages(present))
        if self._probe:
            inside = self._probe.peak() - returned
            name = str(op).removeprefix("aten.")
            self.inside[name] = max(self.inside.get(name, 0), inside)
        return output

    def _add(self, storage: Any) -> int:
        """Count a storage and return its bytes; 0 if it is counted already, or existed before."""
        key = storage._cdata
        if key in self._counted or key in self._existing:
            return 0
        size = int(storage.nbytes())
        in_blocks = -(-size // BLOCK) * BLOCK
        self._counted.add(key)
        self._bytes += size
        self._in_blocks += in_blocks
        self.peak = max(self.peak, self._bytes)
        self.peak_in_blocks = max(self.peak_in_blocks, self._in_blocks)
        weakref.finalize(storage, self._remove, key, size, in_blocks)
        return size

    def _remove(self, key: int, size: int, in_blocks: int) -> None:
        self._counted.discard(key)
        self._bytes -= size
        self._in_blocks -= in_blocks


def _storages(values: object) -> list[Any]:
    return [leaf.untyped_storage() for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def live_tensors(
    run: Callable[[], Tensor],
    probe: Probe | None = None,
    absent: Mapping[Any, tuple[int, ...]] | None = None,
) -> LiveTensors:
    """Run once and return the counts."""
    live = LiveTensors(probe, absent)
    with torch.no_grad(), live:
        output = run()
    del output
    return live
