"""Apple's GPU, through torch's MPS backend. Its peak memory cannot be measured."""

import torch

from .base import Device


class Mps(Device):
    kernels = ("math",)

    def __init__(self) -> None:
        super().__init__(torch.device("mps"), "mps")

    @property
    def measures_memory(self) -> bool:
        """False: torch does not report the peak on MPS."""
        return False

    def free(self) -> int:
        return int(torch.mps.recommended_max_memory()) - int(torch.mps.driver_allocated_memory())

    def synchronize(self) -> None:
        torch.mps.synchronize()

    def empty_cache(self) -> None:
        super().empty_cache()
        torch.mps.empty_cache()
