"""The kernels and the context that fit in memory, chosen before anything is allocated."""

from collections.abc import Mapping
from types import MappingProxyType

import torch

from ..attention import FULL
from ..attention.recurrent import Recurrent
from ..cost.activations import activations
from ..cost.cache import kv_cache
from ..cost.params import params
from ..errors import CannotCheckError
from ..model import ModelSpec
from ..records import NamedTuple
from ..search import grouped
from ..units import BYTES, count, human
from ..workload import Run, Workload
from .cases import Case, cases
from .devices import Device
from .errors import UNSUPPORTED, CannotRunError, MemoryRanOutError
from .extra_kernels import EXTRA_KERNELS, is_compiled, missing
from .kernels import sdpa
from .layers import layer_class
from .masks import NO_MASK, KernelMask
from .request import MIN_CONTEXT, VerifyRequest

# The name that a recurrent layer, which calls no kernel, has in place of a kernel's.
RECURRENCE = "recurrence"
# Share of the free memory that a verification may use.
USABLE_SHARE = 0.8
# Bytes for what has no formula: the small layers of the behaviour checks, and libraries'
# workspaces.
OVERHEAD = 256 * 2**20
# Elements of q beyond which torch's efficient kernel reads outside of it: on an H200 with torch
# 2.11 it was right at 0.92 x as many, and an illegal memory access at 1.03 x.
MOST_QUERY_ELEMENTS = 2**31
# torch's kernels, the one that needs the least memory first.
LEANEST = ("flash", "cudnn", "efficient", "math")

# Name of a case, and a phase.
CasePhase = tuple[str, str]
# Bytes by case, phase and kernel.
KernelBytes = dict[CasePhase, dict[str, int]]


class Plan(NamedTuple):
    """What will be run."""

    request: VerifyRequest  # the request, with a context that fits
    kernels: dict[CasePhase, tuple[str, ...]]  # the kernels that run, by case and phase
    shortened: tuple[str, ...]  # a note if the context was shortened
    skipped: tuple[str, ...]  # notes on kernels that are left out
    # The bytes that each case needs with the kernels that run, by its name
    required: Mapping[str, int] = MappingProxyType({})

    def kernels_of(self, case: Case, phase: str) -> tuple[str, ...]:
        return self.kernels.get((case.name, phase), ())

    def leanest_kernels(self, case: Case, phase: str) -> tuple[str, ...]:
        """Return kernels in the order in which to try them: those of the plan, the leanest first,
        then all others.

        Trying a few tokens does not show everything: cuDNN may have no execution plan for the true
        number.
        """
        kernels = self.kernels_of(case, phase)
        planned = sorted((k for k in kernels if k in LEANEST), key=LEANEST.index)
        return tuple(dict.fromkeys((*planned, *LEANEST)))


def make_plan(model: ModelSpec, request: VerifyRequest, device: Device) -> Plan:
    """Return the plan that fits in the device's free memory: the requested context, or a half, a
    quarter, ... of it.

    Raises CannotCheckError if not even MIN_CONTEXT fits, if no kernel supports a layer, or if there
    is no such layer.
    """
    for case in cases(model):
        layer_class(case.kind)
    available = int(device.free() * USABLE_SHARE)
    requested = request.context
    while True:
        choice = _choose_kernels(model, request, device, available)
        without_kernel = [
            case_phase for case_phase, kernels in choice.kernels.items() if not kernels
        ]
        if not without_kernel:
            break
        if request.context == MIN_CONTEXT or without_kernel[0] not in choice.too_large:
            raise _cannot_check(model, request, device, available, without_kernel[0], choice)
        request = request._replace(context=max(MIN_CONTEXT, request.context // 2))
    shortened: tuple[str, ...] = ()
    if request.context != requested:
        memory = human(available, BYTES)
        shortened = (
            f"Context {count(requested)} does not fit in {memory}: shortened to "
            f"{count(request.context)}.",
        )
    too_large = [
        f"{name}, {phase}: {kernel} is left out, as it needs {human(needed, BYTES)}."
        for (name, phase), by_kernel in choice.too_large.items()
        for kernel, needed in by_kernel.items()
    ]
    absent = [f"{kernel}: {missing(kernel)}." for kernel in EXTRA_KERNELS if missing(kernel)]
    refused = [
        f"{name}: {reason} ({' and '.join(phases)})."
        for (name, reason), phases in choice.refusals.items()
    ]
    notes = (*too_large, *refused, *(absent if device.runs_extra_kernels else ()))
    required = required_bytes(model, request)
    sizes = grouped(
        (key[0], required[key][kernel])
        for key, kernels in choice.kernels.items()
        for kernel in kernels
    )
    return Plan(
        request, choice.kernels, shortened, notes, {name: max(size) for name, size in sizes.items()}
    )


def check_memory(plan: Plan, case: Case, device: Device) -> None:
    """Raise MemoryRanOutError if another process has meanwhile taken memory that this layer
    needs.
    """
    needed = plan.required.get(case.name, 0)
    free = device.free()
    if needed > free:
        raise MemoryRanOutError(
            f"{device.name} ran out of memory: {case.name} needs {human(needed, BYTES)}, "
            f"and only {human(free, BYTES)} is left",
            "a shorter --context, or another device",
        )


class _Choice(NamedTuple):
    """The kernels that run and fit, those that do not fit, and why others do not run."""

    kernels: dict[CasePhase, tuple[str, ...]]  # the kernels that run, by case and phase
    too_large: KernelBytes  # the bytes that those need that do not fit
    # The phases in which a kernel does not run, by the name of the case and the reason
    refusals: dict[tuple[str, str], list[str]]


def _choose_kernels(
    model: ModelSpec, request: VerifyRequest, device: Device, available: int
) -> _Choice:
    required = required_bytes(model, request)
    kernels: dict[CasePhase, tuple[str, ...]] = {}
    too_large: KernelBytes = {}
    refusals: dict[tuple[str, str], list[str]] = {}
    for case in cases(model):
        for phase in ("prefill", "decode") if case.decodes else ("prefill",):
            key = (case.name, phase)
            if isinstance(case.kind, Recurrent):
                supported: tuple[str, ...] = (RECURRENCE,)
            else:
                refused = {
                    k: refused_because(k, case, phase, request, device) for k in request.kernels
                }
                supported = tuple(kernel for kernel, reason in refused.items() if not reason)
                for reason in filter(None, refused.values()):
                    refusals.setdefault((case.name, reason), []).append(phase)
            kernels[key] = tuple(k for k in supported if required[key][k] <= available)
            left_out = {k: required[key][k] for k in supported if required[key][k] > available}
            if left_out:
                too_large[key] = left_out
    return _Choice(kernels, too_large, refusals)


def _cannot_check(
    model: ModelSpec,
    request: VerifyRequest,
    device: Device,
    available: int,
    key: CasePhase,
    choice: _Choice,
) -> CannotCheckError:
    if key in choice.too_large:
        least = human(min(choice.too_large[key].values()), BYTES)
        return CannotCheckError(
            f"{model.name}, {key[0]}: one layer needs {least}, and {device.name} has "
            f"{human(available, BYTES)} for it",
            "give a smaller --batch, --dtype bf16 or another --device",
        )
    reasons = [reason for name, reason in choice.refusals if name == key[0]]
    special = [reason for reason in reasons if UNSUPPORTED not in reason]
    reason = "; ".join(special) or f"{' or '.join(request.kernels)} {UNSUPPORTED}"
    return CannotCheckError(
        f"{model.name}, {key[0]}: {reason} on {device.name} in {request.dtype}",
        "leave out --kernel to use every kernel that runs",
    )


def required_bytes(model: ModelSpec, request: VerifyRequest) -> KernelBytes:
    """Return the bytes that each case needs in each phase, by kernel.

    They are its weights, its input and output, two caches (one is compared with the other), the
    kernel's peak, and the mask twice: the caller's, and the copy for the kernel.
    """
    size = request.torch_dtype.itemsize
    weights = {g.group: int(g.attention_per_layer) * size for g in params(model).groups}
    cached = {g.group: int(g.per_layer) for g in kv_cache(model, request.decode()).groups}
    required: KernelBytes = {}
    for phase, workload in (("prefill", request.prefill()), ("decode", request.decode())):
        if phase == "decode" and not model.main.has_cache:
            continue
        layers = {layer.name: layer for layer in activations(model, workload)}
        for case in cases(model):
            fixed = weights[case.group] + 2 * cached[case.group] + OVERHEAD
            if isinstance(case.kind, Recurrent):
                required[case.name, phase] = {RECURRENCE: fixed + _recurrent_bytes(case, workload)}
                continue
            layer = layers.get(case.cost_name)
            if layer is None:  # an encoder has no decode step
                continue
            _, _, S, T = layer.score_shape
            tokens = (
                request.batch
                * (request.context + (request.source or 0))
                * int(case.stack.d_model)
                * size
            )
            mask = 2 * S * T if case.kind.span != FULL else 0
            by_kernel = {
                kernel: fixed + 4 * tokens + mask + moment.size
                for kernel, moment in layer.peaks.items()
            }
            alike = {name: by_kernel[extra.like] for name, extra in EXTRA_KERNELS.items()}
            required[case.name, phase] = by_kernel | alike
    return required


def _recurrent_bytes(case: Case, workload: Workload) -> int:
    """Bytes of a recurrent layer's tokens in fp32: the input, and four times the output of its
    widest projection.
    """
    d_model = int(case.stack.d_model)
    widest = max(int(m.cols) for m in case.kind.matrices(d_model, d_model) if m.applied_to)
    return workload.batch * workload.new * (d_model + 4 * widest) * 4


def refused_because(
    kernel: str, case: Case, phase: str, request: VerifyRequest, device: Device
) -> str:
    """Return why the kernel does not run the case's heads, dtype and form of mask, with its name;
    '' if it does.

    A few tokens are tried, unless torch would have to compile the kernel for them.
    """
    new, keys = (1, 16) if phase == "decode" else (16, 16)
    widths = case.kind.widths(Run(1, new, keys))
    q = torch.zeros(
        1, widths.n_heads, new, widths.d_qk, dtype=request.torch_dtype, device=device.torch
    )
    k = q.new_zeros(1, widths.n_kv_heads, keys, widths.d_qk)
    v = q.new_zeros(1, widths.n_kv_heads, keys, widths.d_v)
    mask = _mask_of_same_form(case, phase, request.context, q)
    if device.unsupported(kernel, widths, request.dtype, mask, keys=request.context):
        return f"{kernel} {UNSUPPORTED}"
    queries = request.batch * (1 if phase == "decode" else request.context)
    if (
        kernel == "efficient"
        and device.type == "cuda"
        and queries * widths.n_heads * widths.d_qk > MOST_QUERY_ELEMENTS
    ):
        return (
            f"{kernel} is left out, as q has more than 2^31 elements, which torch's kernel cannot "
            "address"
        )
    if is_compiled(kernel):
        return ""
    try:
        sdpa(kernel, q, k, v, mask, 1.0)
    except CannotRunError as error:
        return str(error)
    return ""


def _mask_of_same_form(case: Case, phase: str, context: int, q: torch.Tensor) -> KernelMask:
    """Return a small mask of the form that the true context needs: none, the causal flag, or a
    matrix.
    """
    span = case.kind.span
    if case.crosses or (
        phase == "decode" and span.cached_tokens(context) == span.visible_keys(context)
    ):
        return NO_MASK
    narrowed = span.visible_keys(context) < (
        context if phase == "prefill" else span.cached_tokens(context)
    )
    if not narrowed and case.mask.kind != "prefix":
        return KernelMask(causal=case.mask.kind == "causal")
    return KernelMask(matrix=torch.ones(q.shape[2], 16, dtype=torch.bool, device=q.device).tril())
