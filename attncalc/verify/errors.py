"""Errors of the attention kernels, of the device's memory, and of the device itself."""

from __future__ import annotations

from ..errors import CannotCheckError
from ..units import truncate

OUT_OF_MEMORY = (
    "can't allocate memory",
    "STATUS_ALLOC_FAILED",
    "CUDA error: out of memory",
    "HIP error: out of memory",
)
"""Parts of the messages of errors of memory that torch's allocator does not raise."""
DEVICE_FAILED = ("CUDA error", "HIP error", "CUBLAS_STATUS", "CUDNN_STATUS", "NCCL error")
"""Parts of the messages of errors of CUDA and its libraries."""
NO_IMAGE = "no kernel image is available"
"""Part of the message of CUDA's error if torch was built without kernels for this GPU."""


class CannotRunError(Exception):
    """A kernel does not support these shapes, this dtype, this mask or this device."""


class MemoryRanOutError(CannotCheckError):
    """The device has less memory than the plan counted on, for example because another process took some."""


class DeviceFailedError(CannotCheckError):
    """CUDA failed. After most of its errors, every later call in the same process fails too."""


def explained(error: Exception, device: str) -> CannotCheckError | None:
    """Return an error of the device in one line, with a tip; None for an error that is not the device's.

    CUDA does not run out of memory in torch's allocator only: its context, the code of kernels and the libraries need
    memory too. That is a RuntimeError with a message, as every other error of CUDA is.
    """
    message = str(error)
    if type(error).__name__ == "OutOfMemoryError" or any(part in message for part in OUT_OF_MEMORY):
        return MemoryRanOutError(
            f"{device} ran out of memory: {first_line(error)}", "a shorter --context, or another device"
        )
    if any(part in message for part in DEVICE_FAILED):
        return DeviceFailedError(f"{device} failed: {first_line(error)}", failure_tip(error))
    return None


def failure_tip(error: Exception) -> str:
    """Return what helps against an error of CUDA."""
    if NO_IMAGE in str(error):
        return "install a wheel of torch with kernels for this GPU: https://pytorch.org/get-started/locally"
    return "try 'attncalc verify --smoke', and --device cpu, which runs everywhere"


def first_line(problem: object) -> str:
    """Return the first line of an error's message, which may go on about how to debug it."""
    return truncate((str(problem).strip() or type(problem).__name__).splitlines()[0], 120)
