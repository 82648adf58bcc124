"""The device that layers run on: its type, its free memory, and the peak memory of a run."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ..cost.kernels import Machine
from ..errors import AttncalcError, CannotCheckError
from ..units import truncate

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class Device(NamedTuple):
    """A device that torch can use.

    Attributes:
        torch: the torch.device.
        name: its name on screens: 'cpu (2 threads)', 'cuda:0 (NVIDIA H100)'.
    """

    torch: torch.device
    name: str

    @property
    def type(self) -> str:
        """'cpu', 'cuda' or 'mps'."""
        return self.torch.type

    @property
    def machine(self) -> Machine:
        """The facts of the device that the kernels' buffers depend on."""
        if self.type == "cuda":
            return Machine(multiprocessors=torch.cuda.get_device_properties(self.torch).multi_processor_count)
        return Machine(threads=torch.get_num_threads()) if self.type == "cpu" else Machine()

    @property
    def measures_memory(self) -> bool:
        """Whether torch can report its peak memory."""
        return self.type in ("cpu", "cuda")

    def free(self) -> int:
        """Return its free memory in bytes."""
        if self.type == "cuda":
            return int(torch.cuda.mem_get_info(self.torch)[0])
        if self.type == "mps":
            return int(torch.mps.recommended_max_memory()) - int(torch.mps.driver_allocated_memory())
        return _free_on_host()

    def synchronize(self) -> None:
        """Wait until all queued work is done."""
        if self.type == "cuda":
            torch.cuda.synchronize(self.torch)
        elif self.type == "mps":
            torch.mps.synchronize()

    def empty_cache(self) -> None:
        """Return unused memory to the device."""
        if self.type == "cuda":
            torch.cuda.empty_cache()

    def peak(self, run: Callable[[], Tensor]) -> int:
        """Return the peak memory of `run` in bytes, beyond what was allocated before, after one warm-up run."""
        run()
        if self.type == "cuda":
            return _peak_on_cuda(self.torch, run)
        return _peak_on_cpu(run)

    def facts(self) -> dict[str, object]:
        """Return the device as plain data, for JSON."""
        return {"type": self.type, "name": self.name, "torch": str(torch.__version__), **self.machine._asdict()}


def find_device(name: str) -> Device:
    """Return the device called 'auto', 'cpu', 'cuda', 'cuda:1' or 'mps'.

    Raises AttncalcError if the name is unknown, CannotCheckError if this machine has no such device.
    """
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", name):
        raise AttncalcError(f"unknown device '{truncate(name)}'", "known: auto, cpu, cuda, cuda:1, mps")
    has_cuda, has_mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if name == "auto":
        name = "cuda" if has_cuda else "mps" if has_mps else "cpu"
    device = torch.device(name)
    if device.type == "cuda":
        number = torch.cuda.device_count() if has_cuda else 0
        if (device.index or 0) >= number:
            sees = f"torch {torch.__version__} sees {number} CUDA device" + ("" if number == 1 else "s")
            raise CannotCheckError(f"--device {name} is not available: {sees}", "--device cpu runs everywhere")
        device = torch.device("cuda", device.index or 0)
        return Device(device, f"{device} ({torch.cuda.get_device_name(device)})")
    if device.type == "mps":
        if not has_mps:
            raise CannotCheckError("--device mps is not available on this machine", "--device cpu runs everywhere")
        return Device(device, "mps")
    threads = torch.get_num_threads()
    return Device(device, f"cpu ({threads} thread" + ("" if threads == 1 else "s") + ")")


@contextmanager
def deterministic(device: Device, seed: int) -> Iterator[torch.Generator]:
    """Run without gradients and with full-precision matmuls; yield a random generator with this seed.

    oneDNN is switched off on a CPU: it makes packed copies of half-precision weights, which are not part of the
    layer, and it kills the process on processors that report bf16 support without having it. Raises CannotCheckError
    if the device runs out of memory.
    """
    precision = torch.get_float32_matmul_precision()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch warns about a missing NumPy and about settings that it renamed
        torch.set_float32_matmul_precision("highest")
        try:
            with torch.backends.mkldnn.flags(enabled=False) if device.type == "cpu" else nullcontext():
                yield torch.Generator(device.torch).manual_seed(seed)
        except torch.OutOfMemoryError as error:
            raise _out_of_memory(device, error) from None
        except RuntimeError as error:
            if not any(part in str(error) for part in ("can't allocate memory", "STATUS_ALLOC_FAILED")):
                raise
            raise _out_of_memory(device, error) from None
        finally:
            torch.set_float32_matmul_precision(precision)


def _out_of_memory(device: Device, error: Exception) -> CannotCheckError:
    return CannotCheckError(
        f"{device.name} ran out of memory: {truncate(str(error).splitlines()[0], 100)}",
        "a shorter --context, or another device",
    )


def _peak_on_cuda(device: torch.device, run: Callable[[], Tensor]) -> int:
    """Return the peak of the bytes that torch requested, before the allocator rounds them up."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_stats(device)["requested_bytes.all.current"]
    run()
    torch.cuda.synchronize(device)
    return int(torch.cuda.memory_stats(device)["requested_bytes.all.peak"] - before)


def _peak_on_cpu(run: Callable[[], Tensor]) -> int:
    """Return the maximum of the running sum of the profiler's memory events."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        output = run()  # assigned, so that it is not freed while events are recorded
    results = profiler.profiler.kineto_results if profiler.profiler else None
    events = [e for e in results.events() if e.name() == "[memory]"] if results else []
    allocated = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        allocated += event.nbytes()
        peak = max(peak, allocated)
    del output
    return int(peak)


def _free_on_host() -> int:
    """Return the available memory in bytes, and no more than the container's limit leaves."""
    limits = []
    meminfo = _read("/proc/meminfo")
    available = re.search(r"MemAvailable:\s+(\d+) kB", meminfo)
    if available:
        limits.append(int(available[1]) * 1024)
    limit, used = _read("/sys/fs/cgroup/memory.max").strip(), _read("/sys/fs/cgroup/memory.current").strip()
    if limit.isdigit() and used.isdigit():
        limits.append(int(limit) - int(used))
    if not limits:
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    return min(limits)


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
