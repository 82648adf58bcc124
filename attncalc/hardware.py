"""GPUs and other accelerators: their memory, bandwidth and FLOP/s by dtype.

The facts are in presets/gpus/, with the vendor's page as source; config/gpus.py reads them.
"""

import re

from .errors import AttncalcError, NotSupportedError
from .quantity import Quantity, Ratio, ratio, symbol
from .records import NamedTuple, dataclass
from .units import BYTES, DTYPES, GIB, MIB, DType, dtype, human

# The fraction of unified memory that the GPU may use by default: Metal's on Macs of 64 GB and more
# (recommendedMaxWorkingSetSize in llama.cpp's start-up log).
UNIFIED_MEMORY_SHARE = (3, 4)

# Percent of unified memory that is free when an engine starts: the least, the expected and the
# most.
#
# Of the 121.69 GiB of a GB10, vLLM printed 101.3 to 102.2
# (MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#47, an idle host) and 104.46, and SGLang 111 to 114;
# the most is 119.6. Hosts with other servers or a full page cache have less: 85.92 to 96.75. The
# same is assumed of other machines.
FREE_OF_UNIFIED = (83, 92, 98)

# Bytes of an engine's CUDA context, the least and the usual: SGLang's logs have 0.31 to 0.87 GiB
# before the share.
_CUDA_CONTEXT = (3 * GIB // 10, GIB // 2)
# Bytes of a GPU that a desktop takes, of which none are assumed.
#
# When llama.cpp started, posted logs of cards for games had 11,013 of 12,226 MiB free (RTX 5070,
# antirez/llama.cpp-deepseek-v4-flash#11) and 15,055 of 16,311 (RTX 5060 Ti,
# lmstudio-bug-tracker#1360; this total is from memory), with llama.cpp's own CUDA context.
DESKTOP = 2**30
_AT_DESKS = ("GeForce", "Radeon RX", "Intel Arc B")
# Compute capability of the oldest GPUs of NVIDIA that vLLM runs on; SGLang's are newer.
VOLTA = (7, 0)
# The most memory of a card in a desktop, on which models mostly run from GGUF files.
_AT_DESKS_GB = 32
# The most memory that a desktop usually has, in four slots.
MOST_RAM_AT_DESKS = 128 * GIB
# The most bytes that NVIDIA's other drivers show beyond the least that a log has, and that Windows
# and WSL show.
#
# An H100 has 79.10 to 79.33 GiB, a T4 14.56 to 14.74, an A100 39.39 to 39.50, an RTX 3090 23.56 to
# 23.69 on Linux. WSL shows what the card has: 23.99 of an RTX 4090, whose logs on Linux start at
# 23.51, 31.84 and 31.34 of an RTX 5090.
_OTHER_DRIVERS = 250 * MIB
_WINDOWS = 500 * MIB
_SIXTEEN_BITS = ("bf16", "fp16")
# Weight dtypes that engines multiply with activations of the same dtype: W8A8 for fp8 and int8,
# W4A4 for NVFP4.
_NARROW_MATMULS = ("fp8", "int8", "fp4")


def _matmul_dtypes(stored: DType) -> tuple[str, ...]:
    """Return the dtypes in which matmuls of weights in `stored` can run, the fastest first.

    Weights of 16 bits or more are multiplied only in their own dtype. For its own quantised dtypes,
    llama.cpp converts activations to int8 and multiplies in int8 (mul_mat_q in
    ggml/src/ggml-cuda/mmq.cuh). int4 and mxfp4 are only storage: they are multiplied in 16 bits
    (W4A16: vLLM's Marlin kernels).
    """
    if stored.bits >= 16:
        return (stored.name,)
    if stored.name in _NARROW_MATMULS:
        return (stored.name, *_SIXTEEN_BITS)
    if stored.name.startswith(("q", "iq")):
        return ("int8", *_SIXTEEN_BITS)
    return _SIXTEEN_BITS


# The dtypes in which matmuls can run, by dtype of the weights, the fastest first. A GPU without
# units for the first uses the next. Weights of 16 bits or more have only one: engines reject them
# on a GPU without units for it.
MATMUL_DTYPES = {name: _matmul_dtypes(stored) for name, stored in DTYPES.items()}


class Peak(NamedTuple):
    """The peak of a GPU's matmuls in one dtype."""

    dtype: str
    flops: int  # dense FLOP/s; an integer operation counts as one FLOP


# Bytes/s of PCIe 4.0 x16 each way. Through the host's memory, without peer-to-peer, NCCL reaches 9
# of these GB/s.
PCIE = 31_500_000_000
# GPUs of a server, as of HGX and DGX systems.
PER_NODE = 8


class MeasuredStart(NamedTuple):
    """A start of an engine on one machine, as `attncalc verify --engine --save` measured it.

    Attributes:
        engine: The engine's name.
        engine_version: Its version, as its log names it.
        tp: Tensor-parallel devices.
        pp: Pipeline stages.
        dp: Data-parallel ranks.
        model: The model's title.
        excess: Bytes that one GPU's runtime memory had beyond the formulas, which know the model
            and not the machine; negative if it had less.
        parts: The names of the parts of the runtime memory that the start had.
    """

    engine: str
    engine_version: str
    tp: int
    pp: int
    dp: int
    model: str
    excess: int
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Gpu:
    """One device as software sees it.

    Attributes:
        name: the preset's name: 'h100-80gb'.
        title: the vendor's name for it.
        vendor: who makes it.
        memory_gb: GB as marketed.
        memory: bytes that software sees, fewer than marketed.
        bandwidth: bytes/s of the memory.
        flops: (dtype, dense FLOP/s without sparsity), accumulated in fp32 if the vendor gives both.
        measured: whether `memory` is from a log; otherwise it is a low estimate from `memory_gb`.
        is_own: whether `memory` is that of the user's machine, and not the least of all logs.
        other_memory: bytes of it that other programs hold when an engine starts; None if nobody
            says.
        unified: whether the memory is shared with the host.
        multiprocessors: streaming multiprocessors of an NVIDIA GPU, which decide the sizes of some
            kernels' buffers; 0 if unknown.
        compute_capability: NVIDIA's (major, minor), which decides the kernels that run; None if
            unknown.
        nvlink: whether several of these GPUs are connected by NVLink; None if unknown.
        link: bytes/s that one sends to others of its node; 0 if unknown.
        per_node: GPUs of one node: of a server, or of an NVLink domain.
        watts: the maximum power of one, without its host; 0 if unknown.
        aliases: other names.
        is_cpu: whether it is the host itself: its memory is the host's, and all layers are there.
        is_local: whether it is one of this machine.
        instance: the cloud's instance that has `per_node` of them: 'p5.48xlarge'; '' if none was
            named.
        starts: starts of engines that were measured on this machine.
        notes: what users of its figures should know.
        sources: where the facts are from.
    """

    name: str
    title: str
    vendor: str
    memory_gb: int
    memory: int
    bandwidth: int
    flops: tuple[tuple[str, int], ...]
    measured: bool = True
    is_own: bool = False
    other_memory: int | None = None
    unified: bool = False
    multiprocessors: int = 0
    compute_capability: tuple[int, int] | None = None
    nvlink: bool | None = None
    link: int = 0
    per_node: int = PER_NODE
    watts: int = 0
    aliases: tuple[str, ...] = ()
    is_cpu: bool = False
    is_local: bool = False
    instance: str = ""
    starts: tuple[MeasuredStart, ...] = ()
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Gpu({self.name}: {self.title}, {human(self.memory, BYTES)})"

    @property
    def rented(self) -> str:
        """What a price is of: the instance, or the GPU by its name."""
        return self.instance or self.name

    @property
    def rented_gpus(self) -> int:
        """How many GPUs are rented together: those of the instance, or one."""
        if self.instance:
            return self.per_node
        return 1

    @property
    def shares_with_host(self) -> bool:
        """Whether programs of the host use the same memory. A Mac's limit, set by Metal, leaves
        them the rest.
        """
        return self.unified and self.vendor != "Apple"

    @property
    def machine_memory(self) -> int | None:
        """Bytes of the machine's memory, of which this GPU uses a part; None if the GPU has memory
        of its own.

        Macs show programs as many GiB as Apple says GB. Fewer are counted, as macOS needs some.
        """
        if self.unified:
            return max(self.memory, self.memory_gb * 10**9)
        return None

    @property
    def counts_host_memory(self) -> bool:
        """Whether engines take the host's free memory for the GPU's, as on NVIDIA's integrated
        GPUs.

        Of a Strix Halo's memory HIP counts what is free: two logs start with vLLM's default share.
        """
        return self.shares_with_host and self.vendor == "NVIDIA"

    def measured_starts(
        self, engine: str, version: str, *, tp: int, pp: int, dp: int
    ) -> tuple[MeasuredStart, ...]:
        """Return the starts of that version of an engine, split in the same way, that were measured
        on this machine. '0.32' is the version 0.32.0.
        """
        split = (engine, _numbers(version), tp, pp, dp)
        found = []
        for start in self.starts:
            number = _numbers(start.engine_version)
            if (start.engine, number, start.tp, start.pp, start.dp) == split:
                found.append(start)
        return tuple(found)

    def measured_version(self, engine: str) -> str | None:
        """Return the version of an engine that was measured last on this machine; None if none
        was.
        """
        versions = [start.engine_version for start in self.starts if start.engine == engine]
        return versions[-1] if versions else None

    def held_by_others(self, free: int) -> int:
        """Return the bytes that other programs hold if an engine, with its CUDA context, finds
        `free` bytes free.
        """
        return max(0, self.memory - free - _CUDA_CONTEXT[1])

    def free_share(self, share: float) -> str:
        """Return the largest share of the memory that other programs leave free, as '0.88'; '' if
        `share` is free.
        """
        least, usual = _CUDA_CONTEXT
        if not self.other_memory:
            return ""
        free = self.memory - self.other_memory
        if share * self.memory <= free - least:
            return ""
        return f"0.{max(1, 100 * (free - usual) // self.memory):02d}"

    @property
    def shows_desktop(self) -> bool:
        """Whether it may show a desktop: a card for games, or one of which only the marketed memory
        is known.
        """
        return not (self.vendor or self.measured or self.is_cpu) or any(
            series in self.title for series in _AT_DESKS
        )

    @property
    def is_alone(self) -> bool:
        """Whether its machine has no further one: a Mac, or a laptop."""
        return self.vendor == "Apple" or "Laptop" in self.title

    @property
    def runs_files(self) -> bool:
        """Whether models mostly run from GGUF files on it: a card in a desktop or laptop, a Mac, a
        CPU, or a card that is too old for vLLM and SGLang.
        """
        if self.compute_capability is not None and self.compute_capability < VOLTA:
            return True
        is_unnamed = not self.vendor and not self.is_cpu  # 24GB, and 24GiB
        is_card = (self.shows_desktop or is_unnamed) and self.memory_gb <= _AT_DESKS_GB
        return self.vendor == "Apple" or self.is_cpu or is_card or "Ryzen AI" in self.title

    @property
    def more_memory(self) -> int:
        """The most bytes that another driver, or Windows, may show beyond `memory`."""
        if self.is_own or self.unified or self.vendor != "NVIDIA" or not self.measured:
            return 0
        return max(
            0,
            min(
                _WINDOWS if self.shows_desktop else _OTHER_DRIVERS,
                self.memory_gb * GIB - self.memory,
            ),
        )

    def taken_by_host(self, free: tuple[int, int, int] = FREE_OF_UNIFIED) -> tuple[int, int, int]:
        """Return the bytes in use before an engine starts: the least, the expected and the most.

        A memory that no log shows is assumed without them. Those that were given, `other_memory`,
        count apart.

        Args:
            free: Percent of the memory that the engine finds free, by its own count.
        """
        if not self.measured or self.other_memory is not None:
            return 0, 0, 0
        most, expected, least = (self.memory * (100 - percent) // 100 for percent in free)
        return least, expected, most

    @property
    def has_bf16(self) -> bool:
        """Whether it multiplies in bf16. A GPU of which no capability is known, as '24GB', is taken
        for a newer one.
        """
        return self.compute_capability is None or self.compute_capability >= (8, 0)

    def math_dtype(self, asked: str | None, released: str) -> str:
        """Return the dtype to compute in: the one asked for, or the released one, or fp16 on a GPU
        without bf16.

        Raises NotSupportedError if bf16 is asked for there, as vLLM and transformers' Trainer do.
        """
        if self.has_bf16 or (asked or released) != "bf16":
            return asked or released
        if asked:
            tip = f"give --dtype fp16: {self.title} has no bf16"
            raise NotSupportedError("bf16 needs a GPU with compute capability 8.0 or more", tip)
        return "fp16"

    def matmul_peak(self, weights_dtype: str) -> Peak:
        """Return the dtype in which this GPU multiplies weights stored in `weights_dtype`, and its
        FLOP/s.

        fp8, int8 and NVFP4 weights use the GPU's units for them (W8A8, W4A4), or 16 bits without
        such units. int4 and mxfp4 weights always run in 16 bits (W4A16), so a GPU's int4 or fp4
        peak does not apply to them: see `MATMUL_DTYPES`.

        Raises AttncalcError for an unknown dtype, and if the GPU has units for none of the dtypes.
        """
        flops = dict(self.flops)
        stored = dtype(weights_dtype).name
        for name in MATMUL_DTYPES[stored]:
            if name in flops:
                return Peak(name, flops[name])
        raise self._lacks(stored)

    def multiplies(self, weights_dtype: str) -> bool:
        """Return whether `matmul_peak` knows the FLOP/s for weights stored in that dtype."""
        return any(name in MATMUL_DTYPES[weights_dtype] for name, _ in self.flops)

    def peak(self, math_dtype: str) -> int:
        """Return the published dense FLOP/s of matmuls in `math_dtype`. Raises AttncalcError if
        there are none.
        """
        flops = dict(self.flops)
        # dtype() does not know tf32
        peak = flops.get(math_dtype) or flops.get(dtype(math_dtype).name)
        if peak is None:
            raise self._lacks(dtype(math_dtype).name)
        return peak

    def _lacks(self, name: str) -> AttncalcError:
        known = ", ".join(name for name, _ in self.flops)
        if not known:
            return AttncalcError(
                f"{self.title} has no known FLOP/s", "name the GPU, as --gpu rtx-4090"
            )
        return AttncalcError(
            f"{self.title} has no published FLOP/s for {name}",
            f"choose a dtype that it has: {known}",
        )

    def ridge(self, math_dtype: str) -> Ratio:
        """Return the FLOP per byte at which arithmetic takes as long as reading memory.

        Source: Williams et al. 2009, the ridge point of the roofline.
        """
        return ratio(self.peak_symbol(math_dtype), self.bandwidth_symbol)

    def peak_symbol(self, math_dtype: str) -> Quantity:
        return symbol(
            "peak", self.peak(math_dtype), f"dense FLOP/s of {self.title} in {math_dtype}"
        )

    @property
    def link_symbol(self) -> Quantity:
        return symbol(
            "link",
            self.link or PCIE,
            f"bytes/s to other GPUs{'' if self.link else ' over PCIe 4.0 x16'}",
        )

    @property
    def bandwidth_symbol(self) -> Quantity:
        return symbol("bandwidth", self.bandwidth, f"bytes/s of {self.title}'s memory")


def _numbers(version: str) -> list[int]:
    """Return the numbers of a version without zeros at the end: [0, 32] of '0.32.0+cu129'."""
    numbers = [int(digits) for digits in re.findall(r"\d{1,9}", version.partition("+")[0])]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers
