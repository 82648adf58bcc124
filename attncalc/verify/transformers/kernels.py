"""Stand-ins for the fused kernels of recurrent layers, which save what the kernels save.

Without a GPU, transformers computes recurrent layers in single operations, which save several times
as much as the kernels of causal-conv1d, mamba-ssm and flash-linear-attention that people train
with. Its classes call each kernel by a function of their module. A stand-in returns a tensor
without values, of the kernel's shape, and saves the tensors that the kernel's
`ctx.save_for_backward` lists. So the kernels' own lists are read from their source, and all that a
class computes around them is measured.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

# Tokens of a chunk of flash-linear-attention, and of mamba-ssm's selective scan.
_CHUNK = 64
_SCAN_CHUNK = 2048


class _Kernel(torch.autograd.Function):
    """Its gradients have the shapes of the inputs, and no values."""

    @staticmethod
    def forward(
        ctx: Any, result: tuple[Tensor], saved: tuple[Tensor | None, ...], *inputs: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(*saved)
        ctx.inputs = [None if t is None else (t.shape, t.dtype) for t in inputs]
        return result[0]

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        return None, None, *(like and torch.empty(like[0], dtype=like[1]) for like in ctx.inputs)


def _run(result: Tensor, saved: tuple[Tensor | None, ...], *inputs: Tensor | None) -> Tensor:
    """Return `result` as the output of a kernel with these inputs, which saves the tensors
    `saved`.
    """
    output: Tensor = _Kernel.apply((result,), saved, *inputs)  # type: ignore[no-untyped-call]
    return output


def _fp32(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32)


def _causal_conv1d(x: Tensor, weight: Tensor, bias: Tensor | None = None, **_: Any) -> Tensor:
    """causal_conv1d_interface.py of causal-conv1d."""
    if x.stride(1) != 1 and x.stride(2) != 1:
        x = x.contiguous()
    return _run(torch.empty_like(x), (x, weight, bias), x, weight, bias)


def _delta_rule(
    matrices: int, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, **_: Any
) -> tuple[Tensor, None]:
    """ops/gated_delta_rule/chunk.py and ops/kda/chunk.py of flash-linear-attention."""
    q, k, v, g, beta = inputs = [tensor.contiguous() for tensor in (q, k, v, g, beta)]
    normalized = (
        torch.empty_like(q),
        _fp32(*q.shape[:-1]),
        torch.empty_like(k),
        _fp32(*k.shape[:-1]),
    )
    chunks = (v.new_empty(*v.shape[:-1], _CHUNK) for _ in range(matrices))
    of_kda = (g,) if matrices > 1 else ()
    saved = (*normalized, v, torch.empty_like(g), beta, *chunks, *of_kda)
    return _run(torch.empty_like(v), saved, *inputs), None


def _scan_states(x: Tensor, A: Tensor) -> Tensor:
    """Return the states between chunks of the selective scan: two values per state."""
    return _fp32(x.shape[0], x.shape[1], -(-x.shape[2] // _SCAN_CHUNK), 2 * A.shape[1])


def _selective_scan(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    z: Tensor,
    delta_bias: Tensor,
    **_: Any,
) -> Tensor:
    """ops/selective_scan_interface.py of mamba-ssm, SelectiveScanFn."""
    x, dt, B, C, z = (t if t.stride(-1) == 1 else t.contiguous() for t in (x, dt, B, C, z))
    inputs = (x, dt, A, B, C, D, z, delta_bias)
    return _run(torch.empty_like(dt), (*inputs, _scan_states(x, A), torch.empty_like(dt)), *inputs)


def _mamba_inner(
    xz: Tensor,
    conv: Tensor,
    conv_bias: Tensor | None,
    W_x: Tensor,
    W_dt: Tensor,
    W_out: Tensor,
    out_bias: Tensor | None,
    A: Tensor,
    B: None,
    C: None,
    D: Tensor,
    delta_bias: Tensor,
    **_: Any,
) -> Tensor:
    """MambaInnerFn there, which computes the convolution and the step sizes again."""
    xz = xz if xz.stride(-1) == 1 else xz.contiguous()
    batch = xz.shape[0]
    tokens = xz.shape[2]
    d_inner, d_state = A.shape
    projected = xz.new_empty(batch * tokens, W_x.shape[0])
    b_and_c = (xz.new_empty(batch, 1, d_state, tokens) for _ in range(2))
    output = xz.new_empty(batch, d_inner, tokens)
    inputs = (xz, conv, conv_bias, W_x, W_dt, W_out, out_bias, A, D, delta_bias)
    saved = (
        xz,
        conv,
        conv_bias,
        projected,
        W_x,
        W_dt,
        W_out,
        A,
        *b_and_c,
        D,
        delta_bias,
        _scan_states(output, A),
        output,
    )
    return _run(xz.new_empty(batch, tokens, W_out.shape[0]), saved, *inputs)


def _mamba2(
    projected: Tensor,
    conv: Tensor,
    conv_bias: Tensor | None,
    dt_bias: Tensor,
    A: Tensor,
    D: Tensor,
    *,
    rmsnorm_weight: Tensor | None = None,
    outproj_weight: Tensor,
    outproj_bias: Tensor | None,
    headdim: int,
    ngroups: int,
    **_: Any,
) -> Tensor:
    """ops/triton/ssd_combined.py of mamba-ssm, MambaSplitConv1dScanCombinedFn."""
    batch, tokens = projected.shape[:2]
    inputs = (
        projected,
        conv,
        conv_bias,
        dt_bias,
        A,
        D,
        rmsnorm_weight,
        outproj_weight,
        outproj_bias,
    )
    scanned = projected.new_empty(batch, tokens, len(D), headdim)
    norms = None if rmsnorm_weight is None else _fp32(batch * tokens * ngroups)
    return _run(
        projected.new_empty(batch, tokens, outproj_weight.shape[0]),
        (*inputs, scanned, norms),
        *inputs,
    )


# By the name of the function in modeling_*.py that calls the kernel if it is installed.
STAND_INS = {
    "causal_conv1d_fn": _causal_conv1d,
    "torch_chunk_gated_delta_rule": partial(_delta_rule, 1),
    "chunk_kimi_delta_attention": partial(_delta_rule, 2),
    "mamba_selective_scan": _selective_scan,
    "mamba_inner_fn": _mamba_inner,
    "mamba2_split_conv1d_scan_combined": _mamba2,
}


@contextmanager
def stand_ins(model_class: type) -> Iterator[bool]:
    """Let a class call the stand-ins; whether it calls any."""
    module = sys.modules[model_class.__module__]
    replaced = {name: getattr(module, name) for name in STAND_INS if hasattr(module, name)}
    try:
        for name in replaced:
            setattr(module, name, STAND_INS[name])
        yield bool(replaced)
    finally:
        for name, function in replaced.items():
            setattr(module, name, function)
