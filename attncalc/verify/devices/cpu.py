"""The CPU: its memory, and the peak of a run from torch's profiler."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from ...cost.kernels import Machine
from ..host_memory import free_on_host
from .base import Device, PeakMemory


class Cpu(Device):
    """The CPU, with the memory of the host or of the container."""

    kernels = ("math", "flash")
    default_dtype = "fp32"
    matrix_size = 1024

    def __init__(self) -> None:
        threads = torch.get_num_threads()
        super().__init__(
            torch.device("cpu"), f"cpu ({threads} thread" + ("" if threads == 1 else "s") + ")"
        )

    @property
    def machine(self) -> Machine:
        """The threads, each of which has its own block in the flash kernel."""
        return Machine(threads=torch.get_num_threads())

    def free(self) -> int:
        return free_on_host()

    def peak(self, run: Callable[[], Tensor]) -> PeakMemory:
        """Return the maximum of the running sum of the profiler's memory events."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            output = run()  # assigned, so that it is not freed while events are recorded
        results = profiler.profiler.kineto_results if profiler.profiler else None
        if results:
            events = [e for e in results.events() if e.name() == "[memory]"]
        else:
            events = []
        allocated = peak = 0
        for event in sorted(events, key=lambda e: e.start_ns()):
            allocated += event.nbytes()
            peak = max(peak, allocated)
        del output
        return PeakMemory(int(peak))

    def _mode(self) -> AbstractContextManager[object]:
        """Return a mode without oneDNN.

        oneDNN makes packed copies of half-precision weights, which are not part of the layer, and
        it kills the process on processors that report bf16 support without having it.
        """
        mode: AbstractContextManager[object] = torch.backends.mkldnn.flags(enabled=False)
        return mode
