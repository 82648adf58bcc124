"""Checks of the kernels: equal to the reference, only visible keys have an effect, and weights sum
to 1.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from ...attention import FULL, Attention, Grouped, Span, Widths, pairs
from ...check import Check
from ...records import NamedTuple
from ...workload import CAUSAL, Mask, Run
from ..devices import DTYPES, Device
from ..errors import CannotRunError
from ..extra_kernels import is_compiled
from ..kernels import REFERENCE, reference, sdpa
from ..layers.base import shrink_span
from ..masks import NO_MASK, KernelMask, mask_matrix, padded, prefill_mask
from ..real_layer import attend_with
from .tolerance import largest

# Tokens that a kernel is compared with the reference on: several blocks of a kernel, few enough for
# fp64.
TOKENS = 48
# Tokens of the mask checks, which run a kernel once per key.
MASK_TOKENS = 12
# Added to a value: large enough that every weight above rounding changes the output.
VALUE_CHANGE = 64
Result = TypeVar("Result")


class Environment(NamedTuple):
    """The device, the kernels to check on it, and the random numbers of the checks on small
    tensors.
    """

    device: Device
    kernels: tuple[str, ...]
    random: torch.Generator | None

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return normally distributed random numbers on the device."""
        return torch.randn(shape, generator=self.random, device=self.device.torch).to(dtype)


def numerics(kind: Attention, env: Environment) -> Iterator[Check]:
    """Yield every check of the kernels, with the heads of this kind.

    A kernel that torch compiles is checked on one input only, as each shape, dtype and mask takes
    some seconds.
    """
    for kernel in env.kernels:
        yield from kernel_equals_reference(kernel, kind, env)
    for kernel in (REFERENCE, *(kernel for kernel in env.kernels if not is_compiled(kernel))):
        yield from masks(kernel, kind, env)
        yield from probabilities(kernel, kind, env)


def kernel_equals_reference(kernel: str, kind: Attention, env: Environment) -> Iterator[Check]:
    """Compare the kernel with the reference, with and without a causal mask, as MHA, GQA and MQA.

    In fp32 the two are compared directly; half precision is compared with fp64.
    """
    masks = (NO_MASK, KernelMask(causal=True))
    once = is_compiled(kernel)
    for name, dtype in [("fp16", torch.float16)] if once else DTYPES.items():
        errors = []
        heads = []
        for widths in [kind.widths()] if once else _head_variants(kind):
            for mask in masks[once:]:
                if isinstance(kind, Grouped) and kind.sinks:
                    sinks = env.normal(kind.n_heads)
                else:
                    sinks = None
                key = ("equals reference", kernel, widths, mask.causal, dtype, sinks is not None)
                error = env.device.kept(
                    key, partial(_error, kernel, widths, mask, dtype, env, sinks)
                )
                if error is not None:
                    errors.append(error)
                    heads.append(
                        f"{widths.n_heads}/{widths.n_kv_heads}{' causal' if mask.causal else ''}"
                    )
        if errors:
            full = dtype == torch.float32
            limit = 1e-5 if full else torch.finfo(dtype).eps
            if full:
                note = "largest difference"
            else:
                note = "relative error to fp64, over the whole output"
            note += f"; query/KV heads: {', '.join(dict.fromkeys(heads))}"
            failure = "the kernel does not compute softmax(Q K^T / sqrt(d)) V"
            section = "kernels vs reference"
            check = f"{kernel}_equals_reference_{name}"
            yield Check(
                section, check, f"{kernel}, {name}", 0, largest(errors), limit, "", note, failure
            )


def _head_variants(kind: Attention) -> Iterator[Widths]:
    """Yield the kernel's widths with one KV head per query head, fewer, and one.

    A kind whose decode step has other widths than its prefill (absorbed MLA) yields those two
    instead.
    """
    prefill = kind.widths()
    decode = kind.widths(Run(1, 1, 2))
    if prefill != decode:
        yield prefill
        yield decode
        return
    heads = prefill.n_heads
    kv_heads = prefill.n_kv_heads
    divisors = [n for n in range(2, heads) if heads % n == 0]
    grouped = kv_heads if kv_heads in divisors else max(divisors, default=heads)
    for n in dict.fromkeys((heads, grouped, 1)):
        yield prefill._replace(n_kv_heads=n)


def _error(
    kernel: str,
    widths: Widths,
    mask: KernelMask,
    dtype: torch.dtype,
    env: Environment,
    sinks: Tensor | None,
) -> float | None:
    """Return the kernel's error; None if it does not run."""
    q, k, v = _random_heads(widths, TOKENS, dtype, env)
    scale = widths.d_qk**-0.5
    try:
        result = sdpa(kernel, q, k, v, mask, scale, sinks)
    except CannotRunError:
        return None
    if dtype == torch.float32:
        return float((result - reference(q, k, v, mask, scale, sinks)).abs().max())
    q, k, v = (t.cpu().double() for t in (q, k, v))
    expected = reference(q, k, v, mask, scale, None if sinks is None else sinks.cpu().double())
    return float((result.cpu().double() - expected).norm() / expected.norm())


def _random_heads(
    widths: Widths, tokens: int, dtype: torch.dtype, env: Environment
) -> tuple[Tensor, Tensor, Tensor]:
    q = env.normal(1, widths.n_heads, tokens, widths.d_qk, dtype=dtype)
    k = env.normal(1, widths.n_kv_heads, tokens, widths.d_qk, dtype=dtype)
    return q, k, env.normal(1, widths.n_kv_heads, tokens, widths.d_v, dtype=dtype)


def masks(kernel: str, kind: Attention, env: Environment) -> Iterator[Check]:
    """Check that a key changes the outputs of exactly the queries that see it, under several
    masks.
    """
    span = shrink_span(kind.span)
    lengths = (MASK_TOKENS, MASK_TOKENS - 5, 3)
    prefix = Mask("prefix", 4)
    full_lengths = (MASK_TOKENS,) * 3
    predicted = 0
    measured = 0
    names = []
    for name, mask_span, mask, real_lengths in (
        ("causal", FULL, CAUSAL, full_lengths),
        ("prefix", FULL, prefix, full_lengths),
        ("padding", FULL, Mask("bidirectional"), lengths),
        (span.label, span, CAUSAL, full_lengths),
        (f"{span.label}, prefix and padding", span, prefix, lengths),
    ):
        widths = kind.widths()._replace(n_heads=2, n_kv_heads=1)
        run = partial(_influential_pairs, kernel, widths, mask_span, mask, real_lengths, env)
        key = ("influential pairs", kernel, widths, mask_span, mask, real_lengths)
        count = env.device.kept(key, partial(_first_that_runs, run))
        if count is not None:
            measured += count
            predicted += sum(pairs(mask_span, Run(1, n, n), mask) for n in real_lengths)
            names.append(name)
    if names:
        note = (
            "query-key pairs; each key is changed in turn. Masks: "
            f"{', '.join(dict.fromkeys(names))}"
        )
        failure = "a masked key changes an output, or a visible key does not"
        yield Check(
            "mask effect, pairs",
            f"{kernel}_masks",
            kernel,
            predicted,
            measured,
            0,
            "",
            note,
            failure,
        )


def _first_that_runs(run: Callable[[torch.dtype], Result]) -> Result | None:
    """Return the result of `run` in fp32, or in fp16 if the kernel has no fp32; None if it has
    neither.
    """
    for dtype in (torch.float32, torch.float16):
        try:
            return run(dtype)
        except CannotRunError:
            continue
    return None


def _influential_pairs(
    kernel: str,
    widths: Widths,
    span: Span,
    mask: Mask,
    lengths: tuple[int, ...],
    env: Environment,
    dtype: torch.dtype,
) -> int:
    """Return how many pairs of a real query and a key there are whose key affects the query's
    output.
    """
    rows = [_random_heads(widths, MASK_TOKENS, dtype, env) for _ in lengths]
    q, k, v = (torch.cat(parts) for parts in zip(*rows, strict=True))
    positions = torch.arange(MASK_TOKENS, device=env.device.torch)
    given_mask = prefill_mask(span, mask, positions)
    real = positions < torch.tensor(lengths, device=positions.device)[:, None]
    if not bool(real.all()):
        given_mask = KernelMask(
            matrix=padded(mask_matrix(span, mask, positions, positions), lengths)
        )
    attend = attend_with(kernel, given_mask)
    before = attend(q, k, v, scale=widths.d_qk**-0.5, sinks=None)
    count = 0
    for key in range(MASK_TOKENS):
        changed_k = k.clone()
        changed_v = v.clone()
        changed_k[:, :, key] *= 0.9
        changed_v[:, :, key] += VALUE_CHANGE
        after = attend(q, changed_k, changed_v, scale=widths.d_qk**-0.5, sinks=None)
        count += int((((after - before).abs().amax((1, 3)) > 0) & real).sum())
    return count


def probabilities(kernel: str, kind: Attention, env: Environment) -> Iterator[Check]:
    """Check that no weight is negative and that a query's weights sum to 1.

    V is the identity, so that the output is the weights.
    """
    widths = kind.widths()._replace(n_heads=2, n_kv_heads=1)
    run = partial(_first_that_runs, partial(_weight_error, kernel, widths, env))
    result = env.device.kept(("weights", kernel, widths), run)
    if result is not None:
        error, dtype = result
        limit = 1e-5 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
        note = "largest |sum - 1|, or the most negative weight"
        failure = "the output is not a weighted mean of the values"
        yield Check(
            "softmax sum error",
            f"{kernel}_weights_sum_to_1",
            kernel,
            0,
            error,
            limit,
            "",
            note,
            failure,
        )


def _weight_error(
    kernel: str, widths: Widths, env: Environment, dtype: torch.dtype
) -> tuple[float, torch.dtype]:
    q, k, _ = _random_heads(widths, widths.d_v, dtype, env)
    v = torch.eye(widths.d_v, device=q.device, dtype=dtype).expand(1, 1, -1, -1).contiguous()
    weights = attend_with(kernel, KernelMask(causal=True))(
        q, k, v, scale=widths.d_qk**-0.5, sinks=None
    ).float()
    return largest([float((weights.sum(-1) - 1).abs().max()), -float(weights.min())]), dtype
