"""Errors of the attention kernels, of the device's memory, and of the device itself."""

import torch

from ..errors import CannotCheckError
from ..units import truncate

UNSUPPORTED = "does not support its heads, its mask or its dtype"
# Parts of torch's messages when its own conditions rule out a backend. They do not say which
# condition.
REFUSED_BY_TORCH = ("No available kernel", "No viable backend")
# Parts of the messages of CUDA, of the host's allocator, and of cuBLAS and cuDNN.
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "STATUS_ALLOC_FAILED")
# Parts of the messages of CUDA and its libraries.
DEVICE_FAILED = ("CUDA error", "HIP error", "CUBLAS_STATUS", "CUDNN_STATUS", "NCCL error")
# Parts of the messages of CUDA's errors after which every later call in the same process fails too.
LASTING = (
    "illegal memory access",
    "launch failure",
    "device-side assert",
    "misaligned address",
    "illegal instruction",
)
# Part of CUDA's message if torch, or a package with a kernel, was built without code for this GPU.
NO_IMAGE = "no kernel image is available"


class CannotRunError(Exception):
    """A kernel does not run a shape, a dtype, a mask, or on a device. The message begins with its
    name.
    """


class MemoryRanOutError(CannotCheckError):
    """The device has less memory than the plan counted on, for example because another process took
    some.
    """


class DeviceFailedError(CannotCheckError):
    """CUDA failed, and most probably does so in every later call of this process."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out. Only torch's own allocator has a class for that error."""
    return isinstance(error, torch.OutOfMemoryError) or any(
        part in str(error) for part in OUT_OF_MEMORY
    )


def explained(error: Exception, device: str) -> CannotCheckError | None:
    """Return an error of the device in one line, with a tip; None for an error that is not the
    device's.
    """
    if is_out_of_memory(error):
        return MemoryRanOutError(
            f"{device} ran out of memory: {first_line(error)}",
            "a shorter --context, or another device",
        )
    if any(part in str(error) for part in DEVICE_FAILED):
        return DeviceFailedError(f"{device} failed: {first_line(error)}", failure_tip(error))
    return None


def failure_tip(error: Exception) -> str:
    """Return what helps against an error of CUDA."""
    if NO_IMAGE in str(error):
        return (
            "install a wheel of torch with kernels for this GPU: "
            "https://pytorch.org/get-started/locally"
        )
    return "'attncalc verify --smoke' shows what runs; --device cpu runs everywhere"


def refusal(kernel: str, error: Exception) -> Exception:
    """Return what to raise if a kernel raises `error`: a CannotRunError, or the same if all kernels
    are concerned.

    Those are errors of memory, and errors of CUDA that last. Kernels have no common class for a
    refusal: it may be a RuntimeError of cuDNN, a TypeError of another version, an ImportError of a
    package built for another torch, or an error of the compiler.
    """
    if (
        isinstance(error, CannotRunError)
        or is_out_of_memory(error)
        or any(part in str(error) for part in LASTING)
    ):
        return error
    if any(part in str(error) for part in REFUSED_BY_TORCH):
        return CannotRunError(f"{kernel} {UNSUPPORTED}")
    return CannotRunError(f"{kernel} failed: {first_line(error)}")


def first_line(problem: object) -> str:
    """Return the first line of a message, or the name of its class if it is empty."""
    return truncate((str(problem).strip() or type(problem).__name__).splitlines()[0], 120)
