"""Errors of the attention kernels and of the device's memory."""

from __future__ import annotations

import torch

from ..errors import CannotCheckError
from ..units import truncate

UNSUPPORTED = "does not support its heads, its mask or its dtype"
REFUSED_BY_TORCH = ("No available kernel", "No viable backend")
"""Parts of torch's messages when its own conditions rule out a backend. They do not say which condition."""
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "STATUS_ALLOC_FAILED")
"""Parts of the messages of CUDA, of the host's allocator, and of cuBLAS and cuDNN."""


class CannotRunError(Exception):
    """A kernel does not run a shape, a dtype, a mask, or on a device. The message begins with its name."""


class MemoryRanOutError(CannotCheckError):
    """The device has less memory than the plan counted on, for example because another process took some."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out. Only torch's own allocator has a class for that error."""
    return isinstance(error, torch.OutOfMemoryError) or any(part in str(error) for part in OUT_OF_MEMORY)


def refusal(kernel: str, error: Exception) -> Exception:
    """Return what to raise if a kernel raises `error`: the same if memory ran out, otherwise a CannotRunError.

    Kernels have no common class for a refusal: it may be a RuntimeError of cuDNN, a TypeError of another version, an
    ImportError of a package built for another torch, or an error of the compiler.
    """
    if isinstance(error, CannotRunError) or is_out_of_memory(error):
        return error
    if any(part in str(error) for part in REFUSED_BY_TORCH):
        return CannotRunError(f"{kernel} {UNSUPPORTED}")
    return CannotRunError(f"{kernel} failed: {first_line(error)}")


def first_line(problem: object) -> str:
    """Return the first line of a message, or the name of its class if it is empty."""
    return truncate((str(problem).strip() or type(problem).__name__).splitlines()[0], 120)
