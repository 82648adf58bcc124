"""What a GPU (or another accelerator) can do: its memory, its bandwidth and its FLOP/s by dtype.

The facts are in presets/gpus/, each file with its vendor's page; config/gpus.py reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .errors import AttncalcError
from .quantity import Quantity, Ratio, ratio, symbol
from .units import DTYPES, DType, dtype

SHARE = (3, 4)
"""Of a memory that is shared with the host, what the GPU may take where nobody has said: Metal's share
on Macs of 64 GB and more (recommendedMaxWorkingSetSize in llama.cpp's start-up)."""

_SIXTEEN = ("bf16", "fp16")
_MULTIPLIED_NARROW = ("fp8", "int8", "fp4")
"""Weights that engines multiply with activations as narrow: W8A8 in fp8 and int8, NVFP4's W4A4."""


def _runs_in(stored: DType) -> tuple[str, ...]:
    """The dtypes that weights so stored are multiplied in, the fastest first; for a wide one its own alone.

    llama.cpp makes activations int8 and multiplies its own dtypes so (mul_mat_q in ggml/src/ggml-cuda/mmq.cuh).
    All others, int4 and mxfp4, are stored so and multiplied at 16 bit (W4A16: vLLM's Marlin kernels).
    """
    if stored.bits >= 16:
        return (stored.name,)
    if stored.name in _MULTIPLIED_NARROW:
        return (stored.name, *_SIXTEEN)
    return ("int8", *_SIXTEEN) if stored.name.startswith(("q", "iq")) else _SIXTEEN


RUNS_IN = {name: _runs_in(stored) for name, stored in DTYPES.items()}
"""By the weights' dtype, where products run: a GPU without units for the first takes the next. A wide dtype
has no other: engines refuse it."""


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

    def multiplies(self, weights_dtype: str) -> Peak:
        """The dtype in which products of weights stored in `weights_dtype` run here, and its FLOP/s.

        fp8 and int8 weights use the GPU's own units (W8A8), and run at 16 bit where it has none; so NVFP4's (W4A4).
        int4 and mxfp4 are only stored so: a GPU's int4 or fp4 peak is not theirs (W4A16). See `RUNS_IN`.
        AttncalcError: there is no such dtype, or the GPU has no unit for it or for a wider one that is used.
        """
        here, stored = dict(self.flops), dtype(weights_dtype).name
        for name in RUNS_IN[stored]:
            if name in here:
                return Peak(name, here[name])
        raise self._lacks(stored)

    def peak(self, math_dtype: str) -> int:
        """Dense FLOP/s for products in `math_dtype`, as published. AttncalcError: there are none for it."""
        here = dict(self.flops)
        found = here.get(math_dtype) or here.get(dtype(math_dtype).name)  # tf32 is no dtype of a cache
        if found is None:
            raise self._lacks(dtype(math_dtype).name)
        return found

    def _lacks(self, name: str) -> AttncalcError:
        has = ", ".join(name for name, _ in self.flops)
        return AttncalcError(
            f"{self.title} has no published FLOP/s for {name}", f"it has {has}: an engine runs the model in one of them"
        )

    def ridge(self, math_dtype: str) -> Ratio:
        """FLOP per byte at which arithmetic takes as long as memory. Williams et al. 2009, the roofline's ridge."""
        return ratio(self.peak_symbol(math_dtype), self.bandwidth_symbol)

    def peak_symbol(self, math_dtype: str) -> Quantity:
        """`peak` as formulas show it."""
        return symbol("peak", self.peak(math_dtype), f"dense FLOP/s of {self.title} in {math_dtype}")

    @property
    def bandwidth_symbol(self) -> Quantity:
        """`bandwidth` as formulas show it."""
        return symbol("bandwidth", self.bandwidth, f"bytes/s of {self.title}'s memory")


KNOWN = (*(name for name, d in DTYPES.items() if d.group is None), "tf32", "fp4", "int8", "int4")
"""The dtypes that a GPU's file may give FLOP/s for."""
