"""The devices that layers run on: a CPU, a CUDA GPU, Intel's or Apple's GPU, or a simulated CUDA
GPU.
"""

import re
import warnings

import torch

from ...errors import AttncalcError, CannotCheckError
from ...hardware import Gpu
from ...units import BYTES, human, truncate
from .. import WITHOUT_GPU
from ..errors import NO_IMAGE, failure_tip, first_line
from . import cuda
from .base import DTYPES, Block, Device, PeakMemory
from .cpu import Cpu
from .cuda import Cuda
from .mps import Mps
from .simulated import SimulatedCuda, SimulatedRocm
from .xpu import Xpu, has_xpu, missing_for_xpu

__all__ = ["DTYPES", "Block", "Device", "PeakMemory", "find_device", "simulated_device"]

FOR_XPU = (
    "torch 2.9 or later from https://download.pytorch.org/whl/xpu; --device cpu runs everywhere"
)


def find_device(name: str) -> Device:
    """Return the device called 'auto', 'cpu', 'cuda', 'cuda:1', 'xpu' or 'mps'.

    For 'cuda' it is the GPU with the most free memory.

    Raises AttncalcError if the name is unknown, CannotCheckError if this machine has no such device
    or cannot use it.
    """
    if not re.fullmatch(r"auto|cpu|mps|(cuda|xpu)(:\d{1,4})?", name):
        raise AttncalcError(
            f"unknown device '{truncate(name)}'", "known: auto, cpu, cuda, cuda:1, xpu, mps"
        )
    # such as a driver that is too old for this torch
    with warnings.catch_warnings(record=True) as problems:
        warnings.simplefilter("always")
        has_cuda = torch.cuda.is_available()
        has_mps = torch.backends.mps.is_available()
    if name == "auto":
        name = _quickest(has_cuda=has_cuda, has_mps=has_mps)
        if name == "xpu" and missing_for_xpu():
            cpu = Cpu()
            cpu.notes += (f"The Intel GPU of this machine is not used: {missing_for_xpu()}.",)
            return cpu
    if name.startswith("cuda"):
        number = torch.cuda.device_count() if has_cuda else 0
        if int(name.partition(":")[2] or 0) >= number:
            sees = f"torch {torch.__version__} sees {number} CUDA device" + (
                "" if number == 1 else "s"
            )
            reason = f" ({first_line(problems[0].message)})" if problems and not number else ""
            raise CannotCheckError(f"--device {name} is not available: {sees}{reason}", WITHOUT_GPU)
        return _usable_gpu(int(name[5:])) if name != "cuda" else _freest_gpu(number)
    if name.startswith("xpu"):
        return _intel_gpu(int(name[4:] or 0))
    if name == "mps":
        if not has_mps:
            raise CannotCheckError(
                "--device mps is not available on this machine", "--device cpu runs everywhere"
            )
        return Mps()
    return Cpu()


def _quickest(*, has_cuda: bool, has_mps: bool) -> str:
    """Return the type of device that 'auto' means."""
    if has_cuda:
        return "cuda"
    if has_xpu():
        return "xpu"
    return "mps" if has_mps else "cpu"


def _intel_gpu(index: int) -> Xpu:
    """Return an Intel GPU. Raises CannotCheckError if there is no such GPU, or torch lacks what is
    needed.
    """
    missing = missing_for_xpu()
    if missing:
        raise CannotCheckError(f"--device xpu is not available: {missing}", FOR_XPU)
    number = torch.xpu.device_count()
    if index >= number:
        raise CannotCheckError(
            f"--device xpu:{index} is not available: torch sees {number} of them", WITHOUT_GPU
        )
    return Xpu(index)


def _usable_gpu(index: int) -> Cuda:
    """Return a GPU on which a kernel ran.

    Raises CannotCheckError if this process cannot use it: it is in exclusive mode, or torch has no
    kernels for it.
    """
    try:
        device = Cuda(index)
        device.free()
        torch.ones(1, device=device.torch).add_(1).item()
    except RuntimeError as error:
        tip = failure_tip(error) if NO_IMAGE in str(error) else WITHOUT_GPU
        raise CannotCheckError(f"cuda:{index} cannot be used: {first_line(error)}", tip) from None
    return device


def _freest_gpu(number: int) -> Cuda:
    """Return the GPU with the most free memory of the first `number`. Raises CannotCheckError if
    none can be used.
    """
    free = {index: _free_memory(index) for index in range(number)}
    # the first of several that are equal
    for index in sorted(free, key=lambda index: -free[index]):
        try:
            freest = _usable_gpu(index)
        except CannotCheckError as error:
            failed = error
            continue
        if number > 1:
            most = human(freest.free(), BYTES)
            freest.notes += (
                f"{freest.torch} has the most free memory of {number} GPUs, {most}; --device "
                "chooses another.",
            )
        return freest
    raise failed


def _free_memory(index: int) -> int:
    """Return the free bytes of a GPU, without opening a context on it if that is possible; -1 if it
    cannot be used.
    """
    free = cuda.free_memory(index)
    try:
        if free is None:
            return Cuda(index).free()
        return free
    except RuntimeError:
        return -1


def simulated_device(gpu: Gpu | None) -> Device:
    """Return a simulated GPU; without `gpu` one of Hopper's kind without a limit of memory.

    Raises AttncalcError if the GPU is neither NVIDIA's nor an AMD Instinct. On AMD's Radeons,
    variables and versions decide which kernels run.
    """
    if gpu is not None and gpu.title.startswith("AMD Instinct"):
        return SimulatedRocm(gpu)
    if gpu is not None and gpu.compute_capability is None:
        raise AttncalcError(
            f"--simulate: which of torch's kernels run on {gpu.title} is not known",
            "give cuda, an NVIDIA GPU or an AMD Instinct, as --simulate mi300x",
        )
    return SimulatedCuda(gpu)
