"""A box with simulated GPUs, in which the whole program runs on a CPU build of torch.

    with stand_in(Box(gpus=(T4,))) as gpus:
        ...  # torch.cuda sees a T4; a tensor that is made on "cuda" says that it is there

In a test, call the fixture `on_box(Box(...))`. For a command in processes of its own,
`environment(box)` returns the variables: `subprocess.run([sys.executable, "-m", "attncalc",
"verify", ...], env=environment(box))`. By hand:

    python tests/cuda_stand_in.py '{"gpus": ["T4", "H100"], "most_queries": {"cudnn": 16}}' verify
    gpt2 --context 64

Values are computed by the CPU. Simulated are torch.cuda's facts, the allocator's counts and limits,
the choice of attention kernels and what they refuse, and the errors of a box that is odd. Kernels
are called as `simulate/sdpa.py` calls them, and make the tensors that CUDA makes; splits of keys
and accumulators are counted as memory inside.
"""

import contextlib
import json
import os
import sys
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent)]

from attncalc.verify import need_torch

need_torch()
import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.torch_version import TorchVersion  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

aten = torch.ops.aten
GIB = 2**30
# torch's allocator rounds requests up to this.
BLOCK = 512
# Bytes that cuBLAS keeps from the first matmul on: its workspace on GPUs before Hopper
# (CUDABlas.cpp).
WORKSPACE = 8_519_680
# The environment variable with a box as JSON, for processes.
VARIABLE = "CUDA_STAND_IN"


@dataclass(frozen=True)
class Gpu:
    """One GPU: its datasheet, and the memory that other processes have taken."""

    name: str
    capability: tuple[int, int]
    memory: int
    multiprocessors: int
    used: int = GIB // 2


V100 = Gpu("Tesla V100-SXM2-16GB", (7, 0), 16 * GIB, 80)
T4 = Gpu("Tesla T4", (7, 5), 15 * GIB, 40)
A100 = Gpu("NVIDIA A100-SXM4-40GB", (8, 0), 40 * GIB, 108)
RTX_4090 = Gpu("NVIDIA GeForce RTX 4090", (8, 9), 24 * GIB, 128)
H100 = Gpu("NVIDIA H100 80GB HBM3", (9, 0), 80 * GIB, 132)
B200 = Gpu("NVIDIA B200", (10, 0), 180 * GIB, 148)
RTX_5090 = Gpu("NVIDIA GeForce RTX 5090", (12, 0), 32 * GIB, 170)
MI300X = Gpu("AMD Instinct MI300X", (9, 4), 192 * GIB, 304)
GPUS = {name: gpu for name, gpu in list(globals().items()) if isinstance(gpu, Gpu)}


@dataclass(frozen=True)
class Box:
    """A machine with GPUs, its torch, and what is odd about it."""

    gpus: tuple[Gpu, ...] = (H100,)
    # The version of torch. Before 2.9, flex_attention's masks lack two arguments.
    torch: str = "2.13.0+cu130"
    rocm: str | None = None  # the version of ROCm; None for CUDA
    # the version of cuDNN, or the message of the error that asking for it raises
    cudnn: int | str = 91_900
    # By kernel, the queries of a sequence from which on it refuses; 0 to refuse everything
    most_queries: Mapping[str, int] = field(default_factory=dict)
    error: str = ""  # the message of an error that CUDA raises outside the allocator
    error_at: int = 1  # the number of the operation on a GPU that raises it, from 1
    # whether every later operation raises it too, as after an illegal access
    error_lasts: bool = True
    out_of_memory_at: int = 0  # the number of the allocation that fails, from 1; 0 for none


ROCM = Box((MI300X,), rocm="6.4.43482", torch="2.13.0+rocm6.4")


def box_from(facts: Mapping[str, Any]) -> Box:
    """Return the box of JSON, in which a GPU may be a name such as "T4"."""
    gpus = [
        GPUS[gpu] if isinstance(gpu, str) else Gpu(**gpu) for gpu in facts.get("gpus", ["H100"])
    ]
    gpus = [Gpu(**{**asdict(gpu), "capability": tuple(gpu.capability)}) for gpu in gpus]
    return Box(**{**facts, "gpus": tuple(gpus)})


def environment(box: Box) -> dict[str, str]:
    """Return the environment of a process, and of all that it starts, that runs in this box."""
    folder = Path(__file__).parent
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [str(folder / "stand_in_site"), str(folder), str(folder.parent)]
        ),
        VARIABLE: json.dumps(asdict(box)),
    }


class Allocator:
    """torch's caching allocator on one GPU. Nothing is allocated: storages are counted while they
    exist.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.requested = self.requested_peak = self.blocks = self.blocks_peak = self.reserved = (
            self.reserved_peak
        ) = 0

    @property
    def free(self) -> int:
        """Free memory as the driver sees it: blocks that torch keeps are in use."""
        return max(0, self.gpu.memory - self.gpu.used - self.reserved)

    def add(self, requested: int) -> int:
        """Allocate, and return the bytes of the block. Raises torch.OutOfMemoryError as torch
        does.
        """
        block = -(-requested // BLOCK) * BLOCK
        if self.blocks + block > self.gpu.memory - self.gpu.used:
            raise out_of_memory(requested)
        self.requested += requested
        self.blocks += block
        self.reserved = max(self.reserved, self.blocks)
        self.requested_peak = max(self.requested_peak, self.requested)
        self.blocks_peak = max(self.blocks_peak, self.blocks)
        self.reserved_peak = max(self.reserved_peak, self.reserved)
        return block

    def remove(self, requested: int, block: int) -> None:
        """Free a block, which torch keeps."""
        self.requested -= requested
        self.blocks -= block

    def empty_cache(self) -> None:
        """Give the blocks that torch keeps back to the driver."""
        self.reserved = self.blocks

    def reset_peaks(self) -> None:
        """Start to measure peaks anew."""
        self.requested_peak, self.blocks_peak, self.reserved_peak = (
            self.requested,
            self.blocks,
            self.reserved,
        )

    def statistics(self) -> dict[str, int]:
        """Return torch.cuda.memory_stats."""
        return {
            "requested_bytes.all.current": self.requested,
            "requested_bytes.all.peak": self.requested_peak,
            "allocated_bytes.all.current": self.blocks,
            "allocated_bytes.all.peak": self.blocks_peak,
            "reserved_bytes.all.current": self.reserved,
            "reserved_bytes.all.peak": self.reserved_peak,
        }


def out_of_memory(requested: int) -> torch.OutOfMemoryError:
    """Return the allocator's error."""
    return torch.OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {requested / 2**20:.2f} MiB. GPU 0 has ..."
    )


class Gpus(TorchDispatchMode):
    """The state of the GPUs of a box, and the mode in which torch's operations reach them.

    Attributes:
        operations: operations that ran on a GPU so far.
        allocations: allocations so far.
    """

    def __init__(self, box: Box) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.box = box
        self.allocators = [Allocator(gpu) for gpu in box.gpus]
        self.current = 0
        self.operations = self.allocations = 0
        self.target: int | None = None
        self.on: dict[int, int] = {}
        self._has_workspace: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler, for seconds

    def index(self, device: Any = None) -> int:
        """Return the number of a GPU: of 'cuda:1', a torch.device, a number, or None for the
        current one.
        """
        if isinstance(device, int):
            return device
        index = None if device is None else torch.device(device).index
        return self.current if index is None else index

    def gpu(self, device: Any = None) -> Gpu:
        """Return the GPU of that number or name."""
        return self.box.gpus[self.index(device)]

    def allocator(self, device: Any = None) -> Allocator:
        """Return the allocator of a GPU."""
        return self.allocators[self.index(device)]

    @contextlib.contextmanager
    def device(self, device: Any) -> Iterator[None]:
        """Let a GPU be the current one: torch.cuda.device."""
        before, self.current = self.current, self.index(device)
        try:
            yield
        finally:
            self.current = before

    def properties(self, device: Any = None) -> SimpleNamespace:
        """Return torch.cuda.get_device_properties."""
        gpu = self.gpu(device)
        return SimpleNamespace(
            name=gpu.name,
            major=gpu.capability[0],
            minor=gpu.capability[1],
            total_memory=gpu.memory,
            multi_processor_count=gpu.multiprocessors,
            L2_cache_size=2**20,
        )

    def empty_cache(self) -> None:
        """Give what torch keeps back on every GPU."""
        for allocator in self.allocators:
            allocator.empty_cache()

    def cudnn_version(self) -> int:
        """Return torch.backends.cudnn.version."""
        if isinstance(self.box.cudnn, str):
            raise RuntimeError(self.box.cudnn)
        return self.box.cudnn

    def index_of(self, tensor: Tensor) -> int | None:
        """Return the GPU that a tensor is on; None if it is on the host."""
        return self.on.get(tensor.untyped_storage()._cdata)

    def put(self, tensor: Tensor, index: int) -> Tensor:
        """Count the tensor's storage as memory of a GPU, unless it is already, and return it."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self.on:
            self.on[key] = index
            weakref.finalize(storage, self.on.pop, key, None)
            if size:
                weakref.finalize(
                    storage, self.allocators[index].remove, size, self.allocate(index, size)
                )
        return tensor

    def allocate(self, index: int, size: int) -> int:
        """Allocate on a GPU and return the bytes of the block."""
        self.allocations += 1
        if self.allocations == self.box.out_of_memory_at:
            raise out_of_memory(size)
        return self.allocators[index].add(size)

    def inside(self, index: int, size: int) -> None:
        """Allocate and free what an operation holds only inside."""
        if size:
            self.allocators[index].remove(size, self.allocate(index, size))

    def __torch_dispatch__(
        self,
        op: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, given)) if isinstance(leaf, Tensor)]
        # a GPU takes numbers from the host
        places = {self.index_of(tensor) for tensor in tensors if tensor.dim()}
        places |= {index for tensor in tensors if (index := self.index_of(tensor)) is not None}
        if not tensors:
            places = {self.target}
        with torch._C.DisableTorchFunction():
            if places <= {None}:
                return op(*args, **given)
            if len(places) > 1 and op is not aten.copy_.default:
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but got {places}: {op}"
                )
            index = min(place for place in places if place is not None)
            self._launch()
            output = self._run(op, index, *args, **given)
            for leaf in tree_leaves(output):
                if isinstance(leaf, Tensor) and op is not aten._local_scalar_dense.default:
                    self.put(leaf, index)
        return output

    def _launch(self) -> None:
        self.operations += 1
        late = self.operations - self.box.error_at
        if self.box.error and (late == 0 or (late > 0 and self.box.error_lasts)):
            raise getattr(torch, "AcceleratorError", RuntimeError)(self.box.error)

    def _run(self, op: Any, index: int, *args: Any, **kwargs: Any) -> Any:
        kernel = FUSED.get(op)
        if kernel:
            names = (argument.name for argument in op._schema.arguments)
            return self._fused(kernel, index, **dict(zip(names, args, strict=False)), **kwargs)
        if op in MATMULS:
            if index not in self._has_workspace:
                self._has_workspace.add(index)
                self.allocate(index, WORKSPACE)
            # as on a GPU: a CPU may lack instructions for them
            if args[-1].dtype in (torch.float16, torch.bfloat16):
                return op(*(arg.float() for arg in args), **kwargs).to(args[-1].dtype)
        # under a dispatch mode one operation; these are its temporary tensors
        if op is aten._safe_softmax.default:
            softmax = self.put(op(*args, **kwargs), index)
            self.inside(index, args[0].numel() + args[0].numel() // args[0].shape[-1] + 4)
            return softmax
        return op(*args, **kwargs)

    def _fused(
        self,
        kernel: str,
        index: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: float,
        attn_bias: Tensor | None = None,
        is_causal: bool = False,
        **unused: Any,
    ) -> Any:
        """Return the outputs of a fused kernel, as torch/_meta_registrations.py and the C++ code
        have them.
        """
        q, k, v = query, key, value
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            out = CPU_SDPA(
                q.float(),
                k.float(),
                v.float(),
                attn_mask=None if attn_bias is None else attn_bias.float(),
                is_causal=is_causal,
                scale=scale,
                enable_gqa=q.shape[1] != k.shape[1],
            )
        batch, heads, queries, width = out.shape
        laid_out = (
            torch.empty(batch, queries, heads, width, dtype=q.dtype).transpose(1, 2).copy_(out)
        )
        seed = torch.zeros(2 if kernel == "flash" else 1, dtype=torch.int64)
        nothing = torch.empty(0)
        if kernel == "flash":
            self.inside(index, 0 if self.box.rocm else self._partial_outputs(q, k, index))
            logsumexp = torch.zeros(batch, heads, queries)
            return (
                laid_out,
                logsumexp,
                nothing,
                nothing,
                queries,
                k.shape[2],
                seed,
                nothing.clone(),
                nothing.clone(),
            )
        if kernel == "efficient":
            wide = (
                max(q.shape[-1], v.shape[-1]) > 128
                and q.dtype != torch.float32
                and not self.box.rocm
            )
            self.inside(index, out.numel() * 4 if wide else 0)
            return laid_out, torch.empty(batch, heads, 0), seed, seed.clone()
        return (
            laid_out,
            nothing,
            nothing,
            nothing,
            queries,
            k.shape[2],
            seed,
            seed.clone(),
            nothing.clone(),
        )

    def _partial_outputs(self, q: Tensor, k: Tensor, index: int) -> int:
        """Return the bytes of FlashAttention 2's partial outputs (set_params_splitkv in
        flash_api.cpp).
        """
        batch, heads, queries, width = q.shape
        rows, tiles_of = (
            (heads // k.shape[1], k.shape[1])
            if queries == 1 and heads > k.shape[1]
            else (queries, heads)
        )
        tiles, slots = batch * tiles_of * -(-rows // 64), 2 * self.box.gpus[index].multiprocessors
        if tiles >= 0.8 * slots:
            return 0
        blocks = -(-k.shape[2] // (256 if width <= 64 else 128 if width <= 128 else 64))
        useful = [
            n
            for n in range(1, min(128, slots, blocks) + 1)
            if n == 1 or -(-blocks // n) != -(-blocks // (n - 1))
        ]
        share = {n: tiles * n / slots / -(-tiles * n // slots) for n in useful}
        splits = next(n for n in useful if share[n] >= 0.85 * max(share.values()))
        step = 32 if width <= 128 else 64
        return (
            splits * batch * heads * queries * (-(-width // step) * step + 1) * 4
            if splits > 1
            else 0
        )


FUSED = {
    aten._scaled_dot_product_flash_attention.default: "flash",
    aten._scaled_dot_product_efficient_attention.default: "efficient",
    aten._scaled_dot_product_cudnn_attention.default: "cudnn",
}
MATMULS = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default}
CPU_SDPA = torch.nn.functional.scaled_dot_product_attention
CPU_LINEAR = torch.nn.functional.linear
# The kernels in the order in which torch tries them, and whether each is enabled.
CHOICE = {
    "flash": torch.backends.cuda.flash_sdp_enabled,
    "efficient": torch.backends.cuda.mem_efficient_sdp_enabled,
    "cudnn": torch.backends.cuda.cudnn_sdp_enabled,
    "math": torch.backends.cuda.math_sdp_enabled,
}


class Devices(TorchFunctionMode):
    """Makes tensors on the CPU where a call names a GPU, and lets them say that they are on it."""

    def __init__(self, gpus: Gpus) -> None:
        super().__init__()
        self.gpus = gpus

    def __torch_function__(
        self,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
        if owner in (Tensor.device, Tensor.is_cuda):
            index = self.gpus.index_of(args[0])
            if index is not None:
                return torch.device("cuda", index) if owner is Tensor.device else True
            return function(*args)
        if name in ("to", "cpu", "cuda") and isinstance(args[0], Tensor):
            return self._moved(function, name, args, given)
        device = given.get("device")
        if device is None or torch.device(device).type != "cuda":
            if function is CPU_LINEAR:
                return _linear(*args, **given)
            return function(*args, **given)
        before, self.gpus.target = self.gpus.target, self.gpus.index(device)
        try:
            made = function(*args, **{**given, "device": "cpu"})
            return self.gpus.put(made, self.gpus.target) if isinstance(made, Tensor) else made
        finally:
            self.gpus.target = before

    def _moved(
        self, function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Tensor:
        """Return what .to(), .cpu() or .cuda() returns: a copy if the tensor was on another
        device.
        """
        tensor, *rest = args
        given = (*rest, *kwargs.values())
        devices = [value for value in given if isinstance(value, (str, torch.device))]
        if not devices and name == "to":
            same: Tensor = function(*args, **kwargs)
            return same
        goal = torch.device("cpu" if name == "cpu" else devices[0] if devices else "cuda")
        index, there = (
            self.gpus.index_of(tensor),
            self.gpus.index(goal) if goal.type == "cuda" else None,
        )
        if index != there:
            with _disable_current_modes():
                tensor = tensor.clone()
            if there is not None:
                self.gpus.put(tensor, there)
        dtype = next((value for value in given if isinstance(value, torch.dtype)), tensor.dtype)
        moved: Tensor = tensor.to(dtype)
        return moved


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x W^T + b. Under a mode torch would add the bias out of place, where without one it
    does it in place.
    """
    if bias is None or x.is_contiguous():
        return CPU_LINEAR(x, weight, bias)
    return torch.matmul(x, weight.t()).add_(bias)


class Event:
    """torch.cuda.Event with the time of the CPU."""

    def __init__(self, **settings: Any) -> None:
        self.seconds = 0.0

    def record(self, stream: Any = None) -> None:
        """Record the time."""
        self.seconds = time.perf_counter()

    def synchronize(self) -> None:
        """Do nothing: the CPU waits for each operation."""

    def query(self) -> bool:
        """Return False: the GPU sleeps until the CPU has queued everything."""
        return False

    def elapsed_time(self, end: "Event") -> float:
        """Return the milliseconds until another event; a GPU's clock has steps of a microsecond."""
        return max(1e-3, (end.seconds - self.seconds) * 1e3)


def _sdpa(gpus: Gpus) -> Any:
    """Return scaled_dot_product_attention, which chooses among the enabled kernels for the current
    GPU.
    """
    from attncalc.verify.simulate.sdpa import fused_sdpa
    from attncalc.verify.simulate.support import AttentionCall, supports

    def sdpa(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if gpus.index_of(q) is None:
            return CPU_SDPA(
                q,
                k,
                v,
                attn_mask=attn_mask,
                is_causal=is_causal,
                scale=scale,
                enable_gqa=enable_gqa,
            )
        for kernel in (name for name, is_enabled in CHOICE.items() if is_enabled()):  # type: ignore[no-untyped-call]
            call = AttentionCall(
                n_heads=q.shape[1],
                n_kv_heads=k.shape[1],
                d_qk=q.shape[-1],
                d_v=v.shape[-1],
                dtype={torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}[
                    q.dtype
                ],
                mask="matrix" if attn_mask is not None else "causal" if is_causal else "none",
                capability=gpus.box.gpus[gpus.current].capability,
                keys=k.shape[2],
            )
            refused = supports(kernel, call)
            most = gpus.box.most_queries.get(kernel)
            if refused or most == 0:
                continue
            if most is not None and q.shape[2] > most:
                raise RuntimeError(
                    "cuDNN Frontend error: [cudnn_frontend] Error: No valid execution plans built."
                )
            if kernel == "math":
                return _math(q, k, v, attn_mask, is_causal, scale, enable_gqa)
            return fused_sdpa(kernel, q, k, v, attn_mask, is_causal, scale, enable_gqa)
        raise RuntimeError("No available kernel. Aborting execution.")

    return sdpa


def _math(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    """Run _scaled_dot_product_attention_math of attention.cpp, whose steps real tensors go
    through.
    """
    dtype, factor = q.dtype, (q.shape[-1] ** -0.5 if scale is None else scale) ** 0.5
    q_acc, k_acc, v_acc = (t.float() if t.dtype != torch.float32 else t for t in (q, k, v))
    q_scaled = q_acc * factor
    if is_causal:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
    if mask is not None and mask.dtype == torch.bool:
        zero = torch.scalar_tensor(
            -torch.inf, dtype=q_scaled.dtype if is_causal else dtype, device=q.device
        )
        mask = torch.where(mask, 0.0, zero)
    k_all, v_all = k_acc, v_acc
    if enable_gqa and q.shape[1] != k.shape[1]:
        k_all, v_all = (t.repeat_interleave(q.shape[1] // k.shape[1], -3) for t in (k_acc, v_acc))
    scores = torch.matmul(q_scaled, k_all.transpose(-2, -1) * factor)
    if mask is not None:
        scores.add_(mask)
    weights = torch._safe_softmax(scores, -1)
    del scores
    in_dtype = weights.to(dtype)
    out = torch.matmul(weights, v_all).to(dtype)
    del in_dtype
    return out


def _flex(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    block_mask: Any = None,
    scale: float,
    enable_gqa: bool = False,
) -> Tensor:
    """Return what the compiled flex_attention returns."""
    from torch.nn.attention.flex_attention import create_mask

    mask = None
    if block_mask is not None:
        mask = create_mask(
            block_mask.mask_mod, q.shape[0], 1, q.shape[2], k.shape[2], device=q.device
        )
    return _math(q, k, v, mask, False, scale, enable_gqa)


class Generator(torch.Generator):
    """torch.Generator, whatever the device that is asked for."""

    def __new__(cls, device: Any = None) -> "Generator":
        """Return a generator of the CPU."""
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]


def _patches(gpus: Gpus) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield the modules and their attributes that are replaced."""
    from attncalc.verify.devices.cuda import Cuda

    box, gpu, allocator = gpus.box, gpus.gpu, gpus.allocator
    yield (
        torch.cuda,
        {
            "is_available": lambda: bool(box.gpus),
            "device_count": lambda: len(box.gpus),
            "current_device": lambda: gpus.current,
            "set_device": lambda device: setattr(gpus, "current", gpus.index(device)),
            "device": gpus.device,
            "get_device_name": lambda device=None: gpu(device).name,
            "get_device_capability": lambda device=None: gpu(device).capability,
            "get_device_properties": gpus.properties,
            "get_arch_list": lambda: (
                ["gfx942"] if box.rocm else ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]
            ),
            "is_bf16_supported": lambda including_emulation=True: (
                including_emulation or gpu().capability >= (8, 0)
            ),
            "mem_get_info": lambda device=None: (allocator(device).free, gpu(device).memory),
            "get_allocator_backend": lambda: "native",
            "synchronize": lambda device=None: None,
            "empty_cache": gpus.empty_cache,
            "memory_stats": lambda device=None: allocator(device).statistics(),
            "reset_peak_memory_stats": lambda device=None: allocator(device).reset_peaks(),
            "memory_allocated": lambda device=None: allocator(device).blocks,
            "max_memory_allocated": lambda device=None: allocator(device).blocks_peak,
            "memory_reserved": lambda device=None: allocator(device).reserved,
            "Event": Event,
            "_sleep": lambda cycles: None,
        },
    )
    yield (
        torch,
        {
            "Generator": Generator,
            "__version__": TorchVersion(box.torch),
            "compile": lambda f, **settings: f,
        },
    )
    yield torch.version, {"cuda": None if box.rocm else "13.0", "hip": box.rocm}
    yield torch.backends.cudnn, {"version": gpus.cudnn_version}
    yield torch.nn.functional, {"scaled_dot_product_attention": _sdpa(gpus)}
    yield Cuda, {"matrix_size": 256, "copied_bytes": 2**20}  # the CPU's rates, soon
    yield from _flex_patches(box.torch.split(".")[1] in "5678")


def _flex_patches(is_old: bool) -> Iterator[tuple[Any, dict[str, Any]]]:
    from torch.nn.attention import flex_attention as flex

    yield flex, {"flex_attention": _flex}
    if is_old:
        make: Any = vars(flex.BlockMask)["from_kv_blocks"].__func__

        def from_kv_blocks(
            cls: Any,
            kv_num_blocks: Tensor,
            kv_indices: Tensor,
            full_kv_num_blocks: Tensor | None = None,
            full_kv_indices: Tensor | None = None,
            BLOCK_SIZE: Any = 128,
            mask_mod: Any = None,
        ) -> Any:
            """Take the arguments of torch 2.5."""
            return make(
                cls,
                kv_num_blocks,
                kv_indices,
                full_kv_num_blocks,
                full_kv_indices,
                BLOCK_SIZE,
                mask_mod,
            )

        yield flex.BlockMask, {"from_kv_blocks": classmethod(from_kv_blocks)}


@contextlib.contextmanager
def stand_in(box: Box) -> Iterator[Gpus]:
    """Let torch.cuda be that of `box`; yield the state of its GPUs."""
    gpus = Gpus(box)
    with contextlib.ExitStack() as stack:
        for target, values in _patches(gpus):
            stack.enter_context(mock.patch.multiple(target, create=True, **values))
        stack.enter_context(gpus)
        stack.enter_context(Devices(gpus))
        yield gpus


if __name__ == "__main__":
    os.environ.update(environment(box_from(json.loads(sys.argv[1]))))
    os.execv(sys.executable, [sys.executable, "-m", "attncalc", *sys.argv[2:]])
