"""The device that layers run on: which one, how much of it is free, what it can run, and its peak of memory."""

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
    """A device as torch has it, with its name in words."""

    torch: torch.device
    name: str

    @property
    def kind(self) -> str:
        """'cpu', 'cuda' or 'mps'."""
        return self.torch.type

    @property
    def machine(self) -> Machine:
        """What the kernels' own buffers depend on."""
        if self.kind == "cuda":
            return Machine(multiprocessors=torch.cuda.get_device_properties(self.torch).multi_processor_count)
        return Machine(threads=torch.get_num_threads()) if self.kind == "cpu" else Machine()

    @property
    def measures_memory(self) -> bool:
        """Whether the peak of its memory can be read."""
        return self.kind in ("cpu", "cuda")

    def free(self) -> int:
        """Bytes that are free on it."""
        if self.kind == "cuda":
            return int(torch.cuda.mem_get_info(self.torch)[0])
        if self.kind == "mps":
            return int(torch.mps.recommended_max_memory()) - int(torch.mps.driver_allocated_memory())
        return _free_on_host()

    def finish(self) -> None:
        """Wait until it has done what it was told."""
        if self.kind == "cuda":
            torch.cuda.synchronize(self.torch)
        elif self.kind == "mps":
            torch.mps.synchronize()

    def forget(self) -> None:
        """Give back what nobody holds any more."""
        if self.kind == "cuda":
            torch.cuda.empty_cache()

    def peak(self, run: Callable[[], Tensor]) -> int:
        """Bytes alive at most while `run` runs, beyond what was alive before; after a run to warm up."""
        run()
        if self.kind == "cuda":
            return _peak_on_cuda(self.torch, run)
        return _peak_on_cpu(run)

    def facts(self) -> dict[str, object]:
        """Itself as plain data, for JSON."""
        return {"type": self.kind, "name": self.name, "torch": str(torch.__version__), **self.machine._asdict()}


def find(asked: str) -> Device:
    """The device called 'auto', 'cpu', 'cuda', 'cuda:1' or 'mps'.

    AttncalcError: for another name. CannotCheckError: there is no such device here.
    """
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", asked):
        raise AttncalcError(f"there is no device '{truncate(asked)}'", "known: auto, cpu, cuda, cuda:1, mps")
    has_cuda, has_mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if asked == "auto":
        asked = "cuda" if has_cuda else "mps" if has_mps else "cpu"
    here = torch.device(asked)
    if here.type == "cuda":
        number = torch.cuda.device_count() if has_cuda else 0
        if (here.index or 0) >= number:
            found = f"torch {torch.__version__} sees {number} CUDA device" + ("" if number == 1 else "s")
            raise CannotCheckError(f"--device {asked}: {found}", "--device cpu runs everywhere")
        here = torch.device("cuda", here.index or 0)
        return Device(here, f"{here} ({torch.cuda.get_device_name(here)})")
    if here.type == "mps":
        if not has_mps:
            raise CannotCheckError("--device mps: torch sees none here", "--device cpu runs everywhere")
        return Device(here, "mps")
    threads = torch.get_num_threads()
    return Device(here, f"cpu ({threads} thread" + ("" if threads == 1 else "s") + ")")


@contextmanager
def settled(device: Device, seed: int) -> Iterator[torch.Generator]:
    """Inference alone, matmuls in full precision, and the same random numbers each time.

    On a CPU oneDNN is left out: the packed copies it makes of half precision are no part of a layer, and
    on processors that claim bf16 and lack it, it ends the process.
    """
    before = torch.get_float32_matmul_precision()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of torch's own doing: a NumPy it does not find, a setting it renames
        torch.set_float32_matmul_precision("highest")
        try:
            with torch.backends.mkldnn.flags(enabled=False) if device.kind == "cpu" else nullcontext():
                yield torch.Generator(device.torch).manual_seed(seed)
        except torch.OutOfMemoryError as error:
            raise _no_room(device, error) from None
        except RuntimeError as error:
            if not any(words in str(error) for words in ("can't allocate memory", "STATUS_ALLOC_FAILED")):
                raise
            raise _no_room(device, error) from None
        finally:
            torch.set_float32_matmul_precision(before)


def _no_room(device: Device, error: Exception) -> CannotCheckError:
    return CannotCheckError(
        f"{device.name} ran out of memory: {truncate(str(error).splitlines()[0], 100)}",
        "a shorter --context, or another device",
    )


def _peak_on_cuda(where: torch.device, run: Callable[[], Tensor]) -> int:
    """As many bytes as were asked for, before the allocator rounds them up."""
    torch.cuda.synchronize(where)
    torch.cuda.reset_peak_memory_stats(where)
    resting = torch.cuda.memory_stats(where)["requested_bytes.all.current"]
    run()
    torch.cuda.synchronize(where)
    return int(torch.cuda.memory_stats(where)["requested_bytes.all.peak"] - resting)


def _peak_on_cpu(run: Callable[[], Tensor]) -> int:
    """The running sum of the profiler's memory events at its highest."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        held = run()
    results = profiler.profiler.kineto_results if profiler.profiler else None
    events = [e for e in results.events() if e.name() == "[memory]"] if results else []
    alive = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        alive += event.nbytes()
        most = max(most, alive)
    del held
    return int(most)


def _free_on_host() -> int:
    """Bytes that are available, and no more than a container may still take."""
    limits = []
    meminfo = _read("/proc/meminfo")
    available = re.search(r"MemAvailable:\s+(\d+) kB", meminfo)
    if available:
        limits.append(int(available[1]) * 1024)
    most, used = _read("/sys/fs/cgroup/memory.max").strip(), _read("/sys/fs/cgroup/memory.current").strip()
    if most.isdigit() and used.isdigit():
        limits.append(int(most) - int(used))
    if not limits:
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    return min(limits)


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
