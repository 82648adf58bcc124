"""An NVIDIA or AMD GPU, through torch.cuda."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...cost.kernels import Machine
from ..kernels import BACKENDS
from .allocator import AllocatorDevice

EVICTOR = 256 * 2**20
"""Bytes that are written to evict the L2 cache where its size is unknown: AMD's largest last level has as many."""


class Cuda(AllocatorDevice):
    """A GPU that torch calls cuda: an NVIDIA GPU, or an AMD GPU with ROCm."""

    api = torch.cuda
    runs_extra_kernels = True
    matrix_size = 8192
    copied_bytes = 2**29

    def __init__(self, index: int) -> None:
        device = torch.device("cuda", index)
        rocm = f", ROCm {torch.version.hip}" if torch.version.hip else ""
        super().__init__(device, f"{device} ({torch.cuda.get_device_name(device)}{rocm})")
        self.kernels = tuple(kernel for kernel in BACKENDS if not (rocm and kernel == "cudnn"))

    @property
    def measures_memory(self) -> bool:
        """Whether torch counts requests: its own allocator does, and cudaMallocAsync does not."""
        return torch.cuda.get_allocator_backend() == "native"

    @property
    def machine(self) -> Machine:
        """The streaming multiprocessors, which decide into how many parts flash splits the keys."""
        return Machine(multiprocessors=torch.cuda.get_device_properties(self.torch).multi_processor_count)

    def seconds(self, run: Callable[[], Tensor]) -> float:
        """Return the seconds of one run, between two events on the GPU.

        A buffer larger than the L2 cache is written first. It evicts the layer's weights, which other layers of a model
        would evict too, and it keeps the GPU busy while the CPU queues the run: otherwise a short run would
        measure how fast the CPU launches kernels.
        """
        with torch.cuda.device(self.torch):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            evictor = torch.empty(self._evictor_bytes(), dtype=torch.uint8, device=self.torch)
            self.synchronize()
            evictor.zero_()
            start.record()
            run()
            end.record()
            end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def _evictor_bytes(self) -> int:
        """Return twice the bytes of the L2 cache, or EVICTOR if unknown; at most a sixteenth of the free memory."""
        l2 = int(getattr(torch.cuda.get_device_properties(self.torch), "L2_cache_size", 0) or 0)
        return max(1, min(2 * l2 or EVICTOR, self.free() // 16))

    def empty_cache(self) -> None:
        """Return unused memory to the device."""
        torch.cuda.empty_cache()

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
