"""An NVIDIA or AMD GPU, through torch.cuda."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...cost.kernels import Machine
from ..kernels import BACKENDS
from .base import Device, PeakMemory
from .live_tensors import live_tensors

REQUESTED, ALLOCATED = "requested_bytes.all", "allocated_bytes.all"
"""Names of torch's allocator statistics: what was requested, and the blocks that were given for it."""


class Cuda(Device):
    """A GPU that torch calls cuda: an NVIDIA GPU, or an AMD GPU with ROCm."""

    kernels = tuple(BACKENDS)
    runs_extra_kernels = True
    matrix_size = 8192

    def __init__(self, index: int) -> None:
        device = torch.device("cuda", index)
        super().__init__(device, f"{device} ({torch.cuda.get_device_name(device)})")

    @property
    def measures_memory(self) -> bool:
        """Whether torch counts requests: its own allocator does, and cudaMallocAsync does not."""
        return torch.cuda.get_allocator_backend() == "native"

    @property
    def machine(self) -> Machine:
        """The streaming multiprocessors, which decide into how many parts flash splits the keys."""
        return Machine(multiprocessors=torch.cuda.get_device_properties(self.torch).multi_processor_count)

    def free(self) -> int:
        """Return its free memory in bytes."""
        return int(torch.cuda.mem_get_info(self.torch)[0])

    def synchronize(self) -> None:
        """Wait until all queued work is done."""
        torch.cuda.synchronize(self.torch)

    def empty_cache(self) -> None:
        """Return unused memory to the device."""
        torch.cuda.empty_cache()

    def peak(self, run: Callable[[], Tensor]) -> PeakMemory:
        """Return the peak of torch's allocator.

        The first run allocates what libraries keep, for example cuBLAS' workspace of the first matmul. The second one
        is observed operator by operator, under a dispatch mode. A mode changes what torch does (it adds a bias out of
        place, for example), so that the peak is measured in a third run without one.
        """
        run()
        inside = self._inside_operators(run)
        self.synchronize()
        torch.cuda.reset_peak_memory_stats(self.torch)
        before = torch.cuda.memory_stats(self.torch)
        run()
        self.synchronize()
        after = torch.cuda.memory_stats(self.torch)
        free, total = torch.cuda.mem_get_info(self.torch)
        return PeakMemory(
            _increase(before, after, REQUESTED),
            allocated=_increase(before, after, ALLOCATED),
            reserved=after["reserved_bytes.all.peak"],
            driver=total - free,
            inside=tuple((name, size) for name, size in inside.items() if size > 0),
        )

    def _inside_operators(self, run: Callable[[], Tensor]) -> dict[str, int]:
        """Return the bytes allocated inside each operator; none if observing the run takes too much memory."""
        try:
            return live_tensors(run, _AllocatorProbe(self.torch)).inside
        except torch.OutOfMemoryError:
            self.empty_cache()
            return {}

    def facts(self) -> dict[str, object]:
        """Return the device as plain data, for JSON."""
        properties = torch.cuda.get_device_properties(self.torch)
        return {
            **super().facts(),
            "memory": int(properties.total_memory),
            "compute_capability": f"{properties.major}.{properties.minor}",
            "cuda": torch.version.cuda,
            "rocm": torch.version.hip,
            "cudnn": torch.backends.cudnn.version(),
        }


def _increase(before: dict[str, int], after: dict[str, int], name: str) -> int:
    """Return the peak of a statistic, less its value before."""
    return after[f"{name}.peak"] - before[f"{name}.current"]


class _AllocatorProbe:
    """The bytes that one operator requests from torch's allocator. Allocations are counted when they are queued."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._before = device, {}  # type: tuple[torch.device, dict[str, int]]

    def start(self) -> None:
        """Begin to measure one operator."""
        torch.cuda.reset_peak_memory_stats(self._device)
        self._before = torch.cuda.memory_stats(self._device)

    def peak(self) -> int:
        """Return the peak of the bytes requested since `start`, beyond those before."""
        return _increase(self._before, torch.cuda.memory_stats(self._device), REQUESTED)
