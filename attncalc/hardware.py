"""What a GPU (or another accelerator) can do: its memory, its bandwidth and its FLOP/s by dtype.

The facts are in presets/gpus/, each file with its vendor's page; config/gpus.py reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .errors import AttncalcError
from .quantity import Quantity, Ratio, ratio, symbol
from .units import DTYPES, dtype

SHARE = (3, 4)
"""Of a memory that is shared with the host, what the GPU may take where nobody has said: Metal's share
on Macs of 64 GB and more (recommendedMaxWorkingSetSize in llama.cpp's start-up)."""

_WIDER = {
    "fp8": ("bf16", "fp16"),
    "fp4": ("fp8", "bf16", "fp16"),
    "mxfp4": ("fp4", "fp8", "bf16", "fp16"),
    "int8": ("bf16", "fp16"),
    "int4": ("bf16", "fp16"),
    "q8_0": ("bf16", "fp16"),
    "q4_0": ("bf16", "fp16"),
}
"""The dtypes that narrow weights are multiplied in where a GPU has no units for their own, the fastest first.
Elements are unpacked into the next wider one; a wide dtype has no such place: engines refuse it."""


class Peak(NamedTuple):
    """The dtype that a GPU multiplies in, and its dense FLOP/s; an operation on integers counts as one."""

    dtype: str
    flops: int


@dataclass(frozen=True)
class Gpu:
    """One device as software sees it.

    memory: bytes that software sees, which is less than is marketed. memory_gb: GB as marketed.
    measured: memory is from a log, else it is memory_gb taken small. bandwidth: bytes/s of the memory.
    flops: dense FLOP/s (never those with sparsity) by dtype, accumulated in fp32 where the vendor tells
    them apart. unified: the memory is shared with the host.
    """

    name: str
    title: str
    vendor: str
    memory_gb: int
    memory: int
    bandwidth: int
    flops: tuple[tuple[str, int], ...]
    measured: bool = True
    unified: bool = False
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    def multiplies(self, dtype_name: str) -> Peak:
        """The dtype in which products of `dtype_name` weights run here, and its FLOP/s.

        fp8 weights on a GPU without fp8 are unpacked and run at 16 bit; so for every narrow dtype.
        AttncalcError: there is no such dtype, or the GPU has no unit for it or for a wider one that is used.
        """
        here = dict(self.flops)
        wanted = dtype_name if dtype_name in here else dtype(dtype_name).name  # tf32 is no dtype of a cache
        for name in (wanted, *_WIDER.get(wanted, ())):
            if name in here:
                return Peak(name, here[name])
        raise AttncalcError(
            f"{self.title} has no published FLOP/s for {wanted}",
            f"it has {', '.join(here)}: an engine runs the model in one of them",
        )

    def peak(self, dtype_name: str) -> int:
        """Dense FLOP/s for products of `dtype_name` weights; see `multiplies`."""
        return self.multiplies(dtype_name).flops

    def ridge(self, dtype_name: str) -> Ratio:
        """FLOP per byte at which arithmetic takes as long as memory. Williams et al. 2009, the roofline's ridge."""
        return ratio(self.peak_symbol(dtype_name), self.bandwidth_symbol)

    def peak_symbol(self, dtype_name: str) -> Quantity:
        """`peak` as formulas show it."""
        found = self.multiplies(dtype_name)
        return symbol("peak", found.flops, f"dense FLOP/s of {self.title} in {found.dtype}")

    @property
    def bandwidth_symbol(self) -> Quantity:
        """`bandwidth` as formulas show it."""
        return symbol("bandwidth", self.bandwidth, f"bytes/s of {self.title}'s memory")


KNOWN = (*(name for name, d in DTYPES.items() if d.group is None), "tf32", "fp4", "int8", "int4")
"""The dtypes that a GPU's file may give FLOP/s for."""
