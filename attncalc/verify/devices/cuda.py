"""An NVIDIA or AMD GPU, through torch.cuda."""

import ctypes
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from ...cost.kernels import Machine
from ..kernels import BACKENDS, efficient_shares_kv_heads
from .allocator import AllocatorDevice

# Bytes that are written to evict the L2 cache where its size is unknown: AMD's largest last level
# has as many.
EVICTOR = 256 * 2**20
# Cycles that the GPU sleeps before a timed run: about 0.6 to 20 ms.
SHORTEST_SLEEP = 2**20
LONGEST_SLEEP = 2**25
# The first compute capability with bf16 arithmetic.
BF16_SINCE = (8, 0)
NO_BF16 = (
    "Compute capability below 8.0 has no bf16 arithmetic: by default, layers released in bf16 run "
    "in fp16."
)


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
        properties = torch.cuda.get_device_properties(device)
        self.has_bf16 = bool(rocm) or (properties.major, properties.minor) >= BF16_SINCE
        self.notes += () if self.has_bf16 else (NO_BF16,)
        self._sleep_cycles = SHORTEST_SLEEP

    @property
    def measures_memory(self) -> bool:
        """Whether torch counts requests: its own allocator does, and cudaMallocAsync does not."""
        return torch.cuda.get_allocator_backend() == "native"

    @property
    def machine(self) -> Machine:
        """The streaming multiprocessors, which decide into how many parts flash splits the keys,
        and the kernels.
        """
        return Machine(
            multiprocessors=torch.cuda.get_device_properties(self.torch).multi_processor_count,
            rocm=bool(torch.version.hip),
            efficient_shares_kv_heads=efficient_shares_kv_heads(),
        )

    def seconds(self, run: Callable[[], Tensor]) -> float:
        """Return the seconds of one run, between two events on the GPU.

        A buffer larger than the L2 cache is written first: it evicts the layer's weights, which
        other layers of a model would evict too. Then the GPU sleeps until the CPU has queued the
        whole run. Otherwise a decode step, of some ten kernels that take microseconds each, would
        measure how fast Python launches them.
        """
        evictor = torch.empty(self._evictor_bytes(), dtype=torch.uint8, device=self.torch)
        while True:
            start = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            self.synchronize()
            evictor.zero_()
            torch.cuda._sleep(self._sleep_cycles)
            start.record()
            run()
            end.record()
            slept_too_short = start.query()  # the GPU began before the last kernel was queued
            end.synchronize()
            if not slept_too_short or self._sleep_cycles == LONGEST_SLEEP:
                return float(start.elapsed_time(end)) / 1e3
            self._sleep_cycles = min(2 * self._sleep_cycles, LONGEST_SLEEP)

    def _evictor_bytes(self) -> int:
        """Return twice the bytes of the L2 cache, or EVICTOR if unknown; at most a sixteenth of the
        free memory.
        """
        l2 = int(getattr(torch.cuda.get_device_properties(self.torch), "L2_cache_size", 0) or 0)
        return max(1, min(2 * l2 or EVICTOR, self.free() // 16))

    def empty_cache(self) -> None:
        super().empty_cache()
        torch.cuda.empty_cache()

    def facts(self) -> dict[str, object]:
        properties = torch.cuda.get_device_properties(self.torch)
        return {
            **super().facts(),
            "memory": int(properties.total_memory),
            "compute_capability": f"{properties.major}.{properties.minor}",
            "cuda": torch.version.cuda,
            "rocm": torch.version.hip,
            "cudnn": _cudnn_version(),
        }

    def _mode(self) -> AbstractContextManager[object]:
        """Return a mode in which this is the current GPU: torch chooses attention kernels for the
        current one.
        """
        mode: AbstractContextManager[object] = torch.cuda.device(self.torch)
        return mode


def _cudnn_version() -> int | None:
    """Return cuDNN's version as a number; None without cuDNN, or if another one is loaded than
    torch was built with.
    """
    try:
        version: int | None = torch.backends.cudnn.version()
    except RuntimeError:
        return None
    return version


# The free memory as NVIDIA's driver reports it: torch.cuda.mem_get_info would open a context of
# some hundred MiB


LIBRARY = "libnvidia-ml.so.1"


def free_memory(index: int) -> int | None:
    """Return the free bytes of cuda:`index`; None if the driver cannot be asked, as with ROCm or on
    Windows.
    """
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    try:
        nvml = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    if uuid is None or nvml.nvmlInit_v2():
        return None
    try:
        return _free(nvml, f"GPU-{uuid}")
    finally:
        nvml.nvmlShutdown()


def _free(nvml: Any, uuid: str) -> int | None:
    # nvmlMemory_t: total, free, used
    device = ctypes.c_void_p()
    memory = (ctypes.c_ulonglong * 3)()
    if nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device)):
        return None
    if nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)):
        return None
    return int(memory[1])
