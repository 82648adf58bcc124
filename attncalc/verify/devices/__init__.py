"""The devices that layers run on: a CPU, a CUDA GPU, Apple's GPU, or a simulated CUDA GPU."""

from __future__ import annotations

import re

import torch

from ...errors import AttncalcError, CannotCheckError
from ...hardware import Gpu
from ...units import truncate
from .base import DTYPES, Device, PeakMemory
from .cpu import Cpu
from .cuda import Cuda
from .mps import Mps
from .simulated import SimulatedCuda

__all__ = ["DTYPES", "Device", "PeakMemory", "find_device", "simulated_device"]


def find_device(name: str) -> Device:
    """Return the device called 'auto', 'cpu', 'cuda', 'cuda:1' or 'mps'.

    Raises AttncalcError if the name is unknown, CannotCheckError if this machine has no such device.
    """
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d{1,4})?", name):
        raise AttncalcError(f"unknown device '{truncate(name)}'", "known: auto, cpu, cuda, cuda:1, mps")
    has_cuda, has_mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if name == "auto":
        name = "cuda" if has_cuda else "mps" if has_mps else "cpu"
    if name.startswith("cuda"):
        index, number = int(name.partition(":")[2] or 0), torch.cuda.device_count() if has_cuda else 0
        if index >= number:
            sees = f"torch {torch.__version__} sees {number} CUDA device" + ("" if number == 1 else "s")
            tip = "--device cpu runs everywhere; --simulate cuda checks CUDA's memory without a GPU"
            raise CannotCheckError(f"--device {name} is not available: {sees}", tip)
        return Cuda(index)
    if name == "mps":
        if not has_mps:
            raise CannotCheckError("--device mps is not available on this machine", "--device cpu runs everywhere")
        return Mps()
    return Cpu()


def simulated_device(gpu: Gpu | None) -> Device:
    """Return a simulated GPU; without `gpu` one of Hopper's kind without a limit of memory.

    Raises AttncalcError if the GPU is not NVIDIA's.
    """
    if gpu is not None and gpu.compute_capability is None:
        raise AttncalcError(
            f"--simulate: {gpu.title} has no known CUDA compute capability",
            "give cuda or an NVIDIA GPU, as --simulate h100-80gb",
        )
    return SimulatedCuda(gpu)
