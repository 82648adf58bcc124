"""Errors of the attention kernels and of the device's memory."""

from __future__ import annotations

from ..errors import CannotCheckError


class CannotRunError(Exception):
    """A kernel does not support these shapes, this dtype, this mask or this device."""


class MemoryRanOutError(CannotCheckError):
    """The device has less memory than the plan counted on, for example because another process took some."""
