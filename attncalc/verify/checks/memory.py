"""Checks of peak memory: the prediction of `attncalc memory`, and the device's measurement.

A CPU measures everything together. On a GPU the tensors that operators return are told apart from what a kernel
allocates inside, since only some kernels' sources say how much that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...check import Check, Reported
from ...cost.activations import LayerActivations, activations
from ...cost.kernels import Machine, Moment
from ...model import ModelSpec
from ...quantity import quantity
from ...units import BYTES
from ..devices import Device, PeakMemory
from ..extra_kernels import cost_kernel
from ..passes import Pass
from ..plan import Plan
from ..real_layer import RealLayer

TOLERANCE = 0.01
"""Share of the predicted peak: libraries round sizes up and hold a few scalars."""
SEEDS = 32
"""Bytes of the random number generator's state, which fused kernels return and the formulas leave out."""
ALLOCATED = "the layer's peak in the blocks of torch's allocator, which are larger than the tensors"
RESERVED = "all memory that torch's allocator holds for this process, weights and free blocks included"
DRIVER = "memory in use on the whole GPU: with CUDA's context, libraries and other processes"
UNPREDICTED = "what the kernel allocates by itself; its size is chosen at run time, so it is measured only"
LIBRARIES = "workspaces of cuBLAS; measured only, and not part of the peak memory above"
NOT_SEEN = "partial outputs and accumulators; not seen here, so they are predicted only"
UNPREDICTED_INSIDE = ("cudnn", "flash_attn3")
"""Kernels whose own buffers have no formula: cuDNN chooses a plan at run time."""
ATTENTION_OPERATORS = ("_scaled_dot_product", "_flash_attention", "flash_attn", "flex_attention")
"""Parts of the names of operators that are attention kernels. Others are matmuls and element-wise operators."""

PredictedActivations = dict[tuple[str, str], LayerActivations]
"""Activations by case and phase."""


class PeakChecks(NamedTuple):
    """What the peak of one pass shows.

    Attributes:
        checks: predictions with their measurements.
        reported: measurements without a prediction.
        peak: the peak memory that is shown: the tensors, and on a CPU everything.
    """

    checks: tuple[Check, ...]
    reported: tuple[Reported, ...]
    peak: int


def predicted_activations(model: ModelSpec, plan: Plan, machine: Machine) -> PredictedActivations:
    """Return the predictions of `attncalc memory` for every case and phase of the plan."""
    predicted: PredictedActivations = {}
    planned_phases = {phase for _, phase in plan.kernels}
    for phase, workload in (("prefill", plan.request.prefill()), ("decode", plan.request.decode())):
        if phase in planned_phases:
            predicted |= {(layer.name, phase): layer for layer in activations(model, workload, machine)}
    return predicted


def peak(layer_pass: Pass, layer: RealLayer, device: Device, predicted: PredictedActivations) -> PeakChecks:
    """Measure the peak memory of one pass and compare it with its prediction."""
    phase, kernel = layer_pass.phase, layer_pass.kernel
    activation = predicted[layer.case.cost_name, phase]
    return peak_checks(phase, f"{phase}, {kernel}", kernel, activation, device.peak(layer_pass.run))


def peak_checks(name: str, label: str, kernel: str, predicted: LayerActivations, measured: PeakMemory) -> PeakChecks:
    """Return the checks of one peak. `name` and `label` tell it from others of the same layer."""
    like = cost_kernel(kernel)
    with_buffers = predicted.peaks[like]
    if measured.tensors is None:
        assert measured.requested is not None
        tolerance = TOLERANCE * with_buffers.size
        check = _peak_check(name, label, kernel, with_buffers, measured.requested, tolerance)
        return PeakChecks((check,), (), measured.requested)
    tensors = predicted.tensor_peaks[like]
    tolerance = SEEDS + (0 if measured.exact else TOLERANCE * tensors.size)
    checks = [_peak_check(name, label, kernel, tensors, measured.tensors, tolerance)]
    reported = list(_allocator_figures(name, label, kernel, with_buffers, measured))
    buffers = quantity(predicted.buffers[like])
    if measured.requested is None:
        if buffers:
            reported.append(_reported("inside kernels", f"buffers_{name}_{kernel}", label, None, NOT_SEEN, buffers))
    else:
        inside = _bytes_inside(measured, attention=True)
        if kernel in UNPREDICTED_INSIDE:
            reported.append(_reported("inside kernels", f"workspace_{name}_{kernel}", label, inside, UNPREDICTED))
        else:
            checks.append(
                Check(
                    "kernel buffers",
                    f"buffers_{name}_{kernel}",
                    label,
                    buffers,
                    inside,
                    SEEDS + TOLERANCE * with_buffers.size,
                    BYTES,
                    "bytes that the kernel allocates inside: partial outputs, an accumulator",
                    "the kernel splits its work in another way than the formula",
                )
            )
        libraries = _bytes_inside(measured, attention=False)
        if libraries:
            reported.append(_reported("inside matmuls", f"libraries_{name}_{kernel}", label, libraries, LIBRARIES))
    return PeakChecks(tuple(checks), tuple(reported), measured.tensors)


def _peak_check(name: str, label: str, kernel: str, moment: Moment, measured: int, tolerance: float) -> Check:
    """Return the check of a peak; its note names the moment of the peak and the tensors of at least 1 % of it."""
    large = sorted((t for t in moment.tensors if t.size * 100 >= moment.size), key=lambda t: -int(t.size))
    return Check(
        "peak memory",
        f"peak_{name}_{kernel}",
        label,
        moment.total,
        measured,
        tolerance,
        BYTES,
        f"{moment.name}: {', '.join(t.name for t in large)}",
        "a tensor is held that the formula does not count, or one that it counts is not held",
    )


def _bytes_inside(measured: PeakMemory, *, attention: bool) -> int:
    """Return the bytes allocated inside attention kernels, or inside all other operators: the largest single call."""
    sizes = [
        size for operator, size in measured.inside if attention == any(part in operator for part in ATTENTION_OPERATORS)
    ]
    return max(sizes, default=0)


def _allocator_figures(
    name: str, label: str, kernel: str, predicted: Moment, measured: PeakMemory
) -> Iterator[Reported]:
    """Yield what the allocator and the driver show for the same run, where people look first."""
    figures = (
        ("allocated", "max_memory_allocated", measured.allocated, ALLOCATED),
        ("reserved", "max_memory_reserved", measured.reserved, RESERVED),
        ("driver", "driver (nvidia-smi)", measured.driver, DRIVER),
    )
    for figure, section, value, note in figures:
        if value is not None:
            expected = predicted.size if figure == "allocated" else None
            yield _reported(section, f"{figure}_{name}_{kernel}", label, value, note, expected)


def _reported(
    section: str, name: str, label: str, measured: int | None, note: str, predicted: int | None = None
) -> Reported:
    return Reported(section, name, label, measured, BYTES, note, predicted=predicted)
