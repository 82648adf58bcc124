"""A GPU of NVIDIA or AMD that is not there: torch's fake tensors have the shapes and lifetimes of
real ones, and no memory.

Operators compute shapes with torch's own rules for CUDA (its meta functions), so every tensor that
a layer makes has its true size at any context. Memory inside a kernel is not seen: workspaces and
the partial outputs of split keys.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

from ...attention import Widths
from ...cost.kernels import Machine
from ...hardware import Gpu
from ..kernels import BACKENDS, as_on_rocm, efficient_shares_kv_heads
from ..masks import KernelMask
from ..simulate.sdpa import ABSENT_OUTPUTS
from ..simulate.support import AttentionCall, supports
from .base import Device, PeakMemory
from .cuda import BF16_SINCE, NO_BF16
from .live_tensors import live_tensors

aten = torch.ops.aten
# Compute capability of a GPU that is not named: Hopper's.
DEFAULT_CAPABILITY = (9, 0)
# Bytes of a GPU that is not named.
UNLIMITED = 2**62


class SimulatedCuda(Device):
    """A CUDA GPU of a given kind, or one without a limit of memory."""

    kernels = tuple(BACKENDS)
    has_values = False
    rocm: ClassVar[bool] = False  # whether it is AMD's

    def __init__(self, gpu: Gpu | None = None) -> None:
        super().__init__(torch.device("cuda", 0), gpu.title if gpu else "a CUDA GPU of any size")
        self.gpu = gpu  # the kind of GPU; None for one without a limit of memory
        self.has_bf16 = self.capability >= BF16_SINCE
        self.notes += () if self.has_bf16 else (NO_BF16,)

    @property
    def type(self) -> str:
        return "simulated"

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability, which decides the kernels that run."""
        return (self.gpu and self.gpu.compute_capability) or DEFAULT_CAPABILITY

    @property
    def machine(self) -> Machine:
        """The GPU's streaming multiprocessors."""
        multiprocessors = self.gpu.multiprocessors if self.gpu else 0
        return Machine(
            multiprocessors=multiprocessors, efficient_shares_kv_heads=efficient_shares_kv_heads()
        )

    def free(self) -> int:
        if self.gpu:
            return self.gpu.memory
        return UNLIMITED

    def peak(self, run: Callable[[], Tensor]) -> PeakMemory:
        """Return the largest sum of the tensors that exist together."""
        live = live_tensors(run, absent=ABSENT_OUTPUTS)
        return PeakMemory(live.peak, simulated=True, allocated=live.peak_in_blocks)

    def unsupported(
        self, kernel: str, widths: Widths, dtype: str, mask: KernelMask, keys: int
    ) -> str | None:
        """Return why torch does not run the kernel on this GPU; None if it does."""
        n_heads, n_kv_heads, d_qk, d_v = map(
            int, (widths.n_heads, widths.n_kv_heads, widths.d_qk, widths.d_v)
        )
        if mask.causal:
            form = "causal"
        elif mask.matrix is None:
            form = "none"
        else:
            form = "matrix"
        call = AttentionCall(
            n_heads, n_kv_heads, d_qk, d_v, dtype, form, self.capability, keys, self.rocm
        )
        return supports(kernel, call)

    def random(self, seed: int) -> None:
        """Return None: there are no values."""

    @contextmanager
    def _mode(self) -> Iterator[None]:
        with FakeTensorMode(), _LikeRealTensors():
            yield


class SimulatedRocm(SimulatedCuda):
    """An AMD Instinct, which torch calls cuda too."""

    kernels = ("math", "flash", "efficient")
    rocm = True

    @property
    def machine(self) -> Machine:
        """AMD's kernels depend on nothing but being AMD's."""
        return Machine(rocm=True)

    @contextmanager
    def _mode(self) -> Iterator[None]:
        with super()._mode(), as_on_rocm():
            yield


class _LikeRealTensors(TorchFunctionMode):
    """Calls the operators that torch calls for real tensors, where it does something else for fake
    ones.

    Copies and indexing: torch's methods select the tensor's device first, which a build without
    CUDA cannot do. The operators themselves do not need it. Linear layers: torch adds the bias in
    place to a real tensor, and out of place to a fake one (aten/src/ATen/native/Linear.cpp).
    """

    def __torch_function__(
        self,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if function is Tensor.__getitem__:
            return _view(*args)
        if function is Tensor.__setitem__:
            target, index, value = args
            return aten.copy_.default(_view(target, index), value)
        if function is Tensor.copy_:
            return aten.copy_.default(*args, **(kwargs or {}))
        if function is linear:
            return _linear(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x W^T + bias. Only with a contiguous input are the product and the sum one
    operator.
    """
    if bias is None or x.is_contiguous():
        return linear(x, weight, bias)
    return torch.matmul(x, weight.t()).add_(bias)


def _view(tensor: Tensor, index: object) -> Tensor:
    """Return tensor[index] for an index of numbers, slices, None and an ellipsis."""
    dim = 0
    parts = index if isinstance(index, tuple) else (index,)
    for i, part in enumerate(parts):
        if part is None:
            tensor = tensor.unsqueeze(dim)
            dim = dim + 1
        elif part is Ellipsis:
            dim = tensor.dim() - sum(later is not None for later in parts[i + 1 :])
        elif isinstance(part, slice):
            tensor = aten.slice.Tensor(tensor, dim, part.start, part.stop, part.step or 1)
            dim = dim + 1
        else:
            tensor = aten.select.int(tensor, dim, part)
    return tensor
