"""The device, kernels and random numbers of the checks on small tensors."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .devices import Device


class Environment(NamedTuple):
    """A device, the kernels to check on it, and a source of random numbers."""

    device: Device
    kernels: tuple[str, ...]
    random: torch.Generator | None

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return normally distributed random numbers on the device."""
        return torch.randn(shape, generator=self.random, device=self.device.torch).to(dtype)
