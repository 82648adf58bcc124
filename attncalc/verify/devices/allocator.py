"""A GPU whose memory torch's caching allocator counts, for CUDA and for Intel's XPU alike."""

from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from .base import Block, Device, PeakMemory
from .live_tensors import live_tensors

# Names of torch's allocator statistics: what was requested, and the blocks that were given for it.
REQUESTED = "requested_bytes.all"
ALLOCATED = "allocated_bytes.all"
# Allocations and frees of one run that torch records.
MOST_EVENTS = 100_000
# The folder of attncalc, in whose code a block is named.
PACKAGE = Path(__file__).parents[2].name


class AllocatorDevice(Device):
    """A GPU with the memory statistics of torch.cuda."""

    api: ModuleType  # torch.cuda, or the module that mirrors it

    def free(self) -> int:
        return int(self.api.mem_get_info(self.torch)[0])

    def synchronize(self) -> None:
        self.api.synchronize(self.torch)

    def peak(self, run: Callable[[], Tensor]) -> PeakMemory:
        """Return the peak of torch's allocator.

        The run before it has allocated what libraries keep, for example cuBLAS' workspace of the
        first matmul. A second run is observed operator by operator, under a dispatch mode. A mode
        changes what torch does (it adds a bias out of place, for example), so that the peak is
        measured in another run without one.
        """
        inside = self._inside_operators(run)
        self.synchronize()
        self.api.reset_peak_memory_stats(self.torch)
        before = self.api.memory_stats(self.torch)
        run()
        self.synchronize()
        after = self.api.memory_stats(self.torch)
        return PeakMemory(
            _increase(before, after, REQUESTED),
            allocated=_increase(before, after, ALLOCATED),
            reserved=after["reserved_bytes.all.peak"],
            driver=self._used(),
            inside=None
            if inside is None
            else tuple((name, size) for name, size in inside.items() if size > 0),
        )

    def _used(self) -> int | None:
        """Return the memory in use on the whole device, as its driver reports it."""
        free, total = self.api.mem_get_info(self.torch)
        return int(total - free)

    def _inside_operators(self, run: Callable[[], Tensor]) -> dict[str, int] | None:
        """Return the bytes allocated inside each operator; None if observing the run takes too much
        memory.
        """
        try:
            return live_tensors(run, _AllocatorProbe(self.api, self.torch)).inside
        except torch.OutOfMemoryError:
            self.empty_cache()
            return None

    def blocks_at_peak(self, run: Callable[[], Tensor]) -> list[Block]:
        """Return the blocks that one run holds at its peak; none if this torch does not record
        them.
        """
        memory = self.api.memory
        try:
            memory._record_memory_history(
                "all", context="alloc", stacks="python", max_entries=MOST_EVENTS
            )
            try:
                run()
                self.synchronize()
                traces = memory._snapshot(self.torch)["device_traces"]
            finally:
                memory._record_memory_history(None)
            return _held_at_peak(traces[self.torch.index])
        except Exception:  # it only helps to explain a disagreement, and its format is torch's own
            self.empty_cache()
            return []


def _held_at_peak(events: Iterable[dict[str, Any]]) -> list[Block]:
    """Return the blocks that exist when their sum is the largest, from the events of a snapshot."""
    held: dict[int, Block] = {}
    most = 0
    at_peak: list[Block] = []
    for event in events:
        if event["action"] == "alloc":
            held[event["addr"]] = Block(event["size"], _place(event.get("frames", ())))
            size = sum(block.size for block in held.values())
            if size > most:
                most = size
                at_peak = list(held.values())
        elif event["action"] == "free_requested":
            held.pop(event["addr"], None)
    return at_peak


def _place(frames: Iterable[dict[str, Any]]) -> str:
    """Return the innermost line of attncalc in a stack: 'forward (verify/layers/grouped.py:88)'; ''
    without one.
    """
    for frame in frames:
        path = Path(str(frame["filename"]))
        if PACKAGE in path.parts:
            inner = path.parts[len(path.parts) - path.parts[::-1].index(PACKAGE) :]
            return f"{frame['name']} ({'/'.join(inner)}:{frame['line']})"
    return ""


def _increase(before: dict[str, int], after: dict[str, int], name: str) -> int:
    """Return the peak of a statistic, less its value before."""
    return after[f"{name}.peak"] - before[f"{name}.current"]


class _AllocatorProbe:
    """The bytes that one operator requests from torch's allocator. Allocations are counted when
    they are queued.
    """

    def __init__(self, api: ModuleType, device: torch.device) -> None:
        self._api = api
        self._device = device
        self._before: dict[str, int] = {}

    def start(self) -> None:
        """Begin to measure one operator."""
        self._api.reset_peak_memory_stats(self._device)
        self._before = self._api.memory_stats(self._device)

    def peak(self) -> int:
        """Return the peak of the bytes requested since `start`, beyond those before."""
        return _increase(self._before, self._api.memory_stats(self._device), REQUESTED)
