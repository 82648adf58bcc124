"""What kernels must compute: their definition, no masked pair, weights that sum to 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from ..attention import FULL, Attention, Grouped, Latent, Span, Widths, pairs
from ..check import Check
from ..workload import CAUSAL, Mask, Run
from .counts import largest
from .device import DTYPES
from .kernels import CannotRunError, reference, sdpa
from .masks import EVERY_KEY, Seen, allowed, padded, seen_by
from .small import Lab, short
from .subject import REFERENCE, attend_by

TOKENS = 48
"""Of a kernel's test: enough for every block of a mask, few enough for fp64."""
FEW = 12
"""Of a mask's test, which runs a kernel once for each key."""
LARGE = 64
"""What is added to a value: any weight above rounding shows it."""
Found = TypeVar("Found")


def numerics(kind: Attention, lab: Lab) -> Iterator[Check]:
    """Every check of the kernels, at the heads of this kind."""
    for kernel in lab.kernels:
        yield from kernel_equals_reference(kernel, kind, lab)
    for kernel in (REFERENCE, *lab.kernels):
        yield from masks(kernel, kind, lab)
        yield from probabilities(kernel, kind, lab)


def kernel_equals_reference(kernel: str, kind: Attention, lab: Lab) -> Iterator[Check]:
    """At the model's own heads, as MHA, GQA and MQA, every key seen and causal: fp32, and half against fp64."""
    for name, dtype in DTYPES.items():
        errors, ran = [], []
        for around in _variants(kind):
            for seen in (EVERY_KEY, Seen(causal=True)):
                error = _error(kernel, around, seen, dtype, lab, _sinks(kind, lab))
                if error is not None:
                    errors.append(error)
                    ran.append(f"{around.n_heads}/{around.n_kv_heads}{' causal' if seen.causal else ''}")
        if ran:
            full = dtype == torch.float32
            yield Check(
                "kernel = reference",
                f"{kernel}_equals_reference_{name}",
                f"{kernel}, {name}",
                0,
                largest(errors),
                1e-5 if full else torch.finfo(dtype).eps,
                note=("largest difference" if full else "error relative to fp64, of the whole output")
                + f"; query/KV heads: {', '.join(dict.fromkeys(ran))}",
                failure="the kernel does not compute softmax(Q K^T / sqrt(d)) V",
            )


def _variants(kind: Attention) -> Iterator[Widths]:
    """The widths around the kernel with a K and V for every head, for a part of them, for one, and as they are."""
    own = kind.widths()
    if isinstance(kind, Latent):
        yield own
        yield kind.widths(Run(1, 1, 2))
        return
    heads = own.n_heads
    between = [n for n in range(2, heads) if heads % n == 0]
    grouped = own.n_kv_heads if own.n_kv_heads in between else max(between, default=heads)
    for n in dict.fromkeys((heads, grouped, 1)):
        yield own._replace(n_kv_heads=n)


def _sinks(kind: Attention, lab: Lab) -> Tensor | None:
    return lab.normal(kind.n_heads) if isinstance(kind, Grouped) and kind.sinks else None


def _error(kernel: str, around: Widths, seen: Seen, dtype: torch.dtype, lab: Lab, sinks: Tensor | None) -> float | None:
    """How far the kernel is from the reference; None where it does not run."""
    q, k, v = _heads(around, TOKENS, dtype, lab)
    scale = around.d_qk**-0.5
    try:
        found = sdpa(kernel, q, k, v, seen, scale, sinks)
    except CannotRunError:
        return None
    if dtype == torch.float32:
        return float((found - reference(q, k, v, seen, scale, sinks)).abs().max())
    q, k, v = (t.cpu().double() for t in (q, k, v))
    truth = reference(q, k, v, seen, scale, None if sinks is None else sinks.cpu().double())
    return float((found.cpu().double() - truth).norm() / truth.norm())


def _heads(around: Widths, tokens: int, dtype: torch.dtype, lab: Lab) -> tuple[Tensor, Tensor, Tensor]:
    q = lab.normal(1, around.n_heads, tokens, around.d_qk, dtype=dtype)
    k = lab.normal(1, around.n_kv_heads, tokens, around.d_qk, dtype=dtype)
    return q, k, lab.normal(1, around.n_kv_heads, tokens, around.d_v, dtype=dtype)


def masks(kernel: str, kind: Attention, lab: Lab) -> Iterator[Check]:
    """A masked key changes nothing, a seen one does: the pairs that matter are those the formula counts."""
    span, lengths = short(kind.span), (FEW, FEW - 5, 3)
    prefix = Mask("prefix", 4)
    predicted, measured, ran = 0, 0, []
    for name, near, mask, real in (
        ("causal", FULL, CAUSAL, (FEW,) * 3),
        ("prefix", FULL, prefix, (FEW,) * 3),
        ("padding", FULL, Mask("bidirectional"), lengths),
        (span.label, span, CAUSAL, (FEW,) * 3),
        (f"{span.label}, prefix and padding", span, prefix, lengths),
    ):
        found = _first_that_runs(partial(_influential, kernel, kind.widths(), near, mask, real, lab))
        if found is not None:
            measured += found
            predicted += sum(pairs(near, Run(1, n, n), mask) for n in real)
            ran.append(name)
    if ran:
        yield Check(
            "pairs that change an output",
            f"{kernel}_masks",
            kernel,
            predicted,
            measured,
            note=f"a key is changed, and outputs are compared; masks: {', '.join(dict.fromkeys(ran))}",
            failure="a masked key changes an output, or one that is seen does not",
        )


def _first_that_runs(run: Callable[[torch.dtype], Found]) -> Found | None:
    """What `run` finds in fp32, or in fp16 where the kernel takes no fp32; None where it takes neither."""
    for dtype in (torch.float32, torch.float16):
        try:
            return run(dtype)
        except CannotRunError:
            continue
    return None


def _influential(
    kernel: str, widths: Widths, span: Span, mask: Mask, lengths: tuple[int, ...], lab: Lab, dtype: torch.dtype
) -> int:
    """Pairs of a real query and a key whose change changes its output."""
    around = widths._replace(n_heads=2, n_kv_heads=1)
    rows = [_heads(around, FEW, dtype, lab) for _ in lengths]
    q, k, v = (torch.cat(parts) for parts in zip(*rows, strict=True))
    positions = torch.arange(FEW, device=lab.device.torch)
    seen = seen_by(span, mask, positions, positions)
    real = positions < torch.tensor(lengths, device=positions.device)[:, None]
    if not bool(real.all()):
        seen = Seen(matrix=padded(allowed(span, mask, positions, positions), lengths))
    attend = attend_by(kernel, seen)
    before = attend(q, k, v, scale=around.d_qk**-0.5, sinks=None)
    count = 0
    for key in range(FEW):
        other_k, other_v = k.clone(), v.clone()
        other_k[:, :, key] *= 0.9
        other_v[:, :, key] += LARGE
        after = attend(q, other_k, other_v, scale=around.d_qk**-0.5, sinks=None)
        count += int((((after - before).abs().amax((1, 3)) > 0) & real).sum())
    return count


def probabilities(kernel: str, kind: Attention, lab: Lab) -> Iterator[Check]:
    """With the identity for V a kernel gives its weights: none is negative, and a query's sum is 1."""
    found = _first_that_runs(partial(_sums, kernel, kind.widths()._replace(n_heads=2, n_kv_heads=1), lab))
    if found is not None:
        error, dtype = found
        yield Check(
            "weights of a query sum to 1",
            f"{kernel}_weights_sum_to_1",
            kernel,
            0,
            error,
            1e-5 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps,
            note="largest |sum - 1|, or the most negative weight",
            failure="what a query reads is not a mean of the values",
        )


def _sums(kernel: str, around: Widths, lab: Lab, dtype: torch.dtype) -> tuple[float, torch.dtype]:
    q, k, _ = _heads(around, around.d_v, dtype, lab)
    v = torch.eye(around.d_v, device=q.device, dtype=dtype).expand(1, 1, -1, -1).contiguous()
    weights = attend_by(kernel, Seen(causal=True))(q, k, v, scale=around.d_qk**-0.5, sinks=None).float()
    return largest([float((weights.sum(-1) - 1).abs().max()), -float(weights.min())]), dtype
