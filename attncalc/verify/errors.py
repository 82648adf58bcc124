"""Errors of the attention kernels."""

from __future__ import annotations


class CannotRunError(Exception):
    """A kernel does not support these shapes, this dtype, this mask or this device."""
