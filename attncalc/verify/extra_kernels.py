"""Attention kernels besides the four of torch's scaled_dot_product_attention, where they are
installed.

flex is torch's `flex_attention` (torch/nn/attention/flex_attention.py). flash_attn2 is the package
flash_attn (flash_attn/flash_attn_interface.py, 2.8.4), and flash_attn3 its version for Hopper
(hopper/flash_attn_interface.py). All three take shared KV heads as they are.
"""

import inspect
import logging
from collections.abc import Callable, Hashable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ..records import NamedTuple
from .errors import CannotRunError, refusal
from .masks import KernelMask

# Queries and keys of a block of flex_attention's mask.
BLOCK = 128
# Graphs that torch compiles of one function. After that it would run it uncompiled
# (torch._dynamo.config).
GRAPHS = 8

Kernel = Callable[[Tensor, Tensor, Tensor, KernelMask, float], Tensor]


class ExtraKernel(NamedTuple):
    """A kernel that is not one of torch's four."""

    module: str  # the module that has it
    # computes softmax(Q K^T * scale) V from (B, heads, tokens, width) and returns (B, n_heads, S,
    # d_v)
    run: Kernel
    like: str  # the kernel of `attncalc memory` whose tensors it has
    # whether it splits the keys of a decode step, as that kernel does on a GPU
    splits_keys: bool = False

    @property
    def package(self) -> str:
        """The top-level package that has to be installed."""
        return self.module.split(".", maxsplit=1)[0]

    @property
    def is_installed(self) -> bool:
        """Whether the package is found. It is not imported, so it may still fail to load."""
        return find_spec(self.package) is not None


def run(
    kernel: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: KernelMask,
    scale: float,
    sinks: Tensor | None = None,
) -> Tensor:
    """Return what one of EXTRA_KERNELS computes, as `kernels.sdpa` does for torch's own.

    Raises CannotRunError if the kernel is not installed or does not run these inputs.
    """
    if sinks is not None:
        raise CannotRunError(f"{kernel} has no sinks")
    extra = EXTRA_KERNELS[kernel]
    if not extra.is_installed:
        raise CannotRunError(f"{extra.package} is not installed")
    try:
        return extra.run(q, k, v, mask, scale)
    except Exception as error:
        raise refusal(kernel, error) from None


def cost_kernel(kernel: str) -> str:
    """Return the kernel of `attncalc memory` that predicts this one: itself for torch's four."""
    extra = EXTRA_KERNELS.get(kernel)
    if extra:
        return extra.like
    return kernel


def has_split_buffers(kernel: str) -> bool:
    """Whether the kernel has the buffers for split keys that `attncalc memory` predicts for
    `cost_kernel`.
    """
    extra = EXTRA_KERNELS.get(kernel)
    return extra is None or extra.splits_keys


def is_compiled(kernel: str) -> bool:
    """Whether torch compiles the kernel, so that its operations cannot be counted.

    Under a mode that watches operations, torch runs the uncompiled kernel instead, with the whole
    score matrix.
    """
    return kernel == "flex"


def missing(kernel: str) -> str | None:
    """Return 'flash_attn is not installed' for a kernel without its package, otherwise None."""
    extra = EXTRA_KERNELS.get(kernel)
    if extra and not extra.is_installed:
        return f"{extra.package} is not installed"
    return None


def _flex(q: Tensor, k: Tensor, v: Tensor, mask: KernelMask, scale: float) -> Tensor:
    """Run flex_attention: compiled on a GPU, where the uncompiled one holds the whole score
    matrix.
    """
    form: str | int | None = None
    if mask.causal:
        form = "causal"
    elif mask.matrix is not None:
        form = mask.matrix.dim()
    if q.is_cuda:
        function = _compiled_flex((q.shape, k.shape, v.shape, q.dtype, form))
    else:
        function = import_module(EXTRA_KERNELS["flex"].module).flex_attention
    grouped = q.shape[1] != k.shape[1]
    out: Tensor = function(
        q, k, v, block_mask=_block_mask(mask, q, k), scale=scale, enable_gqa=grouped
    )
    return out


# The inputs that torch has compiled flex_attention for.
_compiled_shapes: set[Hashable] = set()


def _compiled_flex(shape: Hashable) -> Callable[..., Any]:
    """Return flex_attention, compiled for these inputs.

    torch compiles GRAPHS of them and runs all others uncompiled. It forgets what it has compiled
    before that happens, and `fullgraph` makes it an error if it happens nevertheless.
    """
    if shape not in _compiled_shapes and len(_compiled_shapes) == GRAPHS:
        torch.compiler.reset()
        _compiled_shapes.clear()
    _compiled_shapes.add(shape)
    for name in ("torch._dynamo", "torch._inductor"):  # they warn on standard error
        logging.getLogger(name).setLevel(logging.ERROR)
    function = import_module(EXTRA_KERNELS["flex"].module).flex_attention
    return torch.compile(function, dynamic=False, fullgraph=True)


def _block_mask(mask: KernelMask, q: Tensor, k: Tensor) -> Any:
    """Return flex_attention's mask, which lists the blocks of keys that each block of queries sees.

    The causal one is made from block numbers: torch's `create_block_mask` would hold a byte per
    pair.
    """
    flex = import_module(EXTRA_KERNELS["flex"].module)
    matrix = mask.matrix
    queries = q.shape[2]
    keys = k.shape[2]
    if matrix is not None:
        per_sequence = matrix.dim() == 4

        def sees(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            if per_sequence:
                return matrix[b, 0, i, j]
            return matrix[i, j]

        sequences = matrix.shape[0] if per_sequence else None
        return flex.create_block_mask(
            sees, sequences, None, queries, keys, device=q.device, BLOCK_SIZE=BLOCK
        )
    if not mask.causal:
        return None

    def is_past(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return i >= j

    rows = -(-queries // BLOCK)
    columns = -(-keys // BLOCK)
    numbers = torch.arange(rows, dtype=torch.int32, device=q.device)
    # block i of the queries sees the blocks before it whole, and block i in part
    full = (
        torch.arange(columns, dtype=torch.int32, device=q.device)
        .expand(1, 1, rows, columns)
        .contiguous()
    )
    in_part = torch.zeros_like(full)
    in_part[..., 0] = numbers
    make = flex.BlockMask.from_kv_blocks
    # blocks of queries are for gradients only
    newer = {"seq_lengths": (queries, keys), "compute_q_blocks": False}
    return make(
        torch.ones_like(numbers).view(1, 1, rows),
        in_part,
        numbers.view(1, 1, rows),
        full,
        BLOCK_SIZE=BLOCK,
        mask_mod=is_past,
        **{
            name: value
            for name, value in newer.items()
            if name in inspect.signature(make).parameters
        },
    )


def _flash_attn(
    kernel: str, q: Tensor, k: Tensor, v: Tensor, mask: KernelMask, scale: float
) -> Tensor:
    """Run flash_attn_func of either package: (B, tokens, heads, width), and a mask that is causal
    or none.

    The causal flag lets the last query see every key, so it is used only with as many queries as
    keys.
    """
    if mask.matrix is not None:
        raise CannotRunError(f"{kernel} has no mask matrix")
    if not q.is_cuda:
        raise CannotRunError(f"{kernel} runs on a GPU")
    if mask.causal and q.shape[2] != k.shape[2]:
        raise CannotRunError(f"{kernel} aligns the causal mask with the last key")
    function = import_module(EXTRA_KERNELS[kernel].module).flash_attn_func
    out = function(*(t.transpose(1, 2) for t in (q, k, v)), softmax_scale=scale, causal=mask.causal)
    if isinstance(out, tuple):  # flash_attn3 before August 2025 returned the logsumexp too
        out = out[0]
    attended: Tensor = out.transpose(1, 2)
    return attended


# The kernels besides torch's four, by the name that `--kernel` takes.
EXTRA_KERNELS = {
    "flex": ExtraKernel("torch.nn.attention.flex_attention", _flex, "flash"),
    "flash_attn2": ExtraKernel(
        "flash_attn.flash_attn_interface",
        partial(_flash_attn, "flash_attn2"),
        "flash",
        splits_keys=True,
    ),
    # num_splits is 1 by default
    "flash_attn3": ExtraKernel(
        "flash_attn_interface", partial(_flash_attn, "flash_attn3"), "flash"
    ),
}
