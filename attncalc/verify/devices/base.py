"""What every device can do: run layers, report its free memory, and measure the peak memory of a
run.
"""

import gc
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import ClassVar

import torch
from torch import Tensor

from ...attention import Widths
from ...cost.kernels import Machine
from ...records import Keeper, NamedTuple
from ..errors import explained
from ..masks import KernelMask
from ..torch_versions import version_notes

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class PeakMemory(NamedTuple):
    """The peak memory of one run, beyond what was allocated before it, in bytes."""

    # all that torch requested from its allocator; in a simulation, the tensors that operators
    # return
    requested: int
    # whether it is a simulation, which does not see what kernels allocate inside
    simulated: bool = False
    # The same in the allocator's blocks, as torch.cuda.max_memory_allocated counts it; None on a
    # CPU
    allocated: int | None = None
    # all memory that the allocator held, as torch.cuda.max_memory_reserved; None on a CPU
    reserved: int | None = None
    # Memory in use on the whole device as the driver reports it (nvidia-smi), other processes
    # included; None on a CPU
    driver: int | None = None
    # Bytes allocated inside single operators and not returned, by the operator's name; None if they
    # were not observed
    inside: tuple[tuple[str, int], ...] | None = None


class Block(NamedTuple):
    """Memory that torch's allocator gave out: the bytes requested, and the line of code that asked
    for them.
    """

    size: int
    where: str


class Device(Keeper):
    """A device that layers run on. It keeps checks that many layers share: those of a kernel with
    the same heads.
    """

    kernels: tuple[str, ...]  # the kernels that may run on it
    # whether it runs EXTRA_KERNELS too, where they are installed
    runs_extra_kernels: ClassVar[bool] = False
    # whether tensors have values; a simulated device has only their shapes
    has_values: ClassVar[bool] = True
    # the dtype of layers if none is given; None for the model's own
    default_dtype: ClassVar[str | None] = None
    has_bf16 = True
    # rows of the square matrices whose product gives the device's rate of FLOP
    matrix_size: ClassVar[int] = 4096
    # bytes of the tensor whose copy gives its rate of memory: more than its caches hold
    copied_bytes: ClassVar[int] = 2**26

    def __init__(self, device: torch.device, name: str) -> None:
        self.torch = device
        self.name = name  # its name on screens: 'cpu (2 threads)', 'cuda:0 (NVIDIA H100)'
        # what a reader should know about the device
        self.notes = version_notes(str(torch.__version__))
        # then `empty_cache` collects, and need not look at all objects of torch
        if not gc.isenabled():
            gc.freeze()

    @property
    def type(self) -> str:
        """'cpu', 'cuda', 'xpu', 'mps' or 'simulated'."""
        return self.torch.type

    @property
    def measures_memory(self) -> bool:
        """Whether it can measure the peak memory of a run."""
        return True

    @property
    def machine(self) -> Machine:
        """The facts of the device that the kernels' own buffers depend on."""
        return Machine()

    def dtype_for(self, released: str) -> str:
        """Return the dtype to run layers in by default if their model was released in this one."""
        return self.default_dtype or (
            "fp16" if released == "bf16" and not self.has_bf16 else released
        )

    def free(self) -> int:
        """Return its free memory in bytes."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait until all queued work is done."""

    def seconds(self, run: Callable[[], Tensor]) -> float:
        """Return the seconds of one run, from the moment when the device is idle until its work is
        done.
        """
        self.synchronize()
        start = time.perf_counter()
        run()
        self.synchronize()
        return time.perf_counter() - start

    def empty_cache(self) -> None:
        """Return unused memory to the device, of tensors in reference cycles too."""
        if not gc.isenabled():  # the command runs without automatic collections
            gc.collect()

    def peak(self, run: Callable[[], Tensor]) -> PeakMemory:
        """Return the peak memory of `run`, which must have been run before: libraries keep memory
        of a first run.
        """
        raise NotImplementedError

    def blocks_at_peak(self, run: Callable[[], Tensor]) -> list[Block]:
        """Return the blocks that one run holds at its peak; none if the device does not record
        them.
        """
        return []

    def unsupported(
        self, kernel: str, widths: Widths, dtype: str, mask: KernelMask, keys: int
    ) -> str | None:
        """Return why the kernel cannot run on this device, as far as that is known without trying;
        None if it may.
        """
        return None

    def random(self, seed: int) -> torch.Generator | None:
        """Return a random generator with this seed; None if tensors have no values."""
        return torch.Generator(self.torch).manual_seed(seed)

    def facts(self) -> dict[str, object]:
        """Return the device as plain data, for JSON."""
        facts: dict[str, object] = {
            "type": self.type,
            "name": self.name,
            "torch": str(torch.__version__),
            "threads": self.machine.threads,
            "multiprocessors": self.machine.multiprocessors,
        }
        if self.notes:
            return {**facts, "notes": list(self.notes)}
        return facts

    @contextmanager
    def session(self, seed: int) -> Iterator[torch.Generator | None]:
        """Run without gradients and with full-precision matmuls; yield `random(seed)`.

        Raises MemoryRanOutError if the device runs out of memory, DeviceFailedError if CUDA fails
        in another way.
        """
        precision = torch.get_float32_matmul_precision()
        with warnings.catch_warnings(), torch.no_grad():
            # torch warns about a missing NumPy and about settings that it renamed
            warnings.simplefilter("ignore")
            torch.set_float32_matmul_precision("highest")
            try:
                with self._mode():
                    yield self.random(seed)
            except RuntimeError as error:  # torch.OutOfMemoryError is one
                known = explained(error, self.name)
                if known is None:
                    raise
                raise known from None
            finally:
                torch.set_float32_matmul_precision(precision)

    def _mode(self) -> AbstractContextManager[object]:
        """Return the mode of torch that layers run in."""
        return nullcontext()
