"""Checks of peak memory: the prediction of `attncalc memory`, and the device's measurement.

On a GPU, kernels and libraries allocate workspaces too. Where their source gives the size it is
part of the prediction; otherwise it is measured, reported, and left out of the peak that is
compared.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from ...check import Check, Reported
from ...cost.activations import LayerActivations, activations
from ...cost.kernels import Machine, Moment
from ...model import ModelSpec
from ...quantity import quantity
from ...records import NamedTuple
from ...units import BYTES, human
from ..devices import Block, Device, PeakMemory
from ..extra_kernels import cost_kernel, has_split_buffers
from ..passes import Pass
from ..plan import Plan
from ..real_layer import RealLayer

# Share of the predicted peak: libraries round sizes up and hold a few scalars.
TOLERANCE = 0.01
# Bytes of the random number generator's state, which fused kernels return and the formulas leave
# out.
SEEDS = 32
ALLOCATED = "the layer's peak in the blocks of torch's allocator, which are larger than the tensors"
RESERVED = (
    "all memory that torch's allocator holds for this process, weights and free blocks included"
)
DRIVER = "memory in use on the whole GPU: with CUDA's context, libraries and other processes"
UNPREDICTED = (
    "what the kernel allocates by itself; its size is chosen at run time, so it is measured only"
)
LIBRARIES = "workspaces of cuBLAS; measured only, and left out of the peak memory above"
NOT_SEEN = "partial outputs and accumulators; not seen here, so they are predicted only"
# Kernels whose own buffers have no formula: cuDNN chooses a plan at run time.
UNPREDICTED_INSIDE = ("cudnn", "flash_attn3")
# Operators of torch that call cuBLAS, without the overload: 'addmm' for 'addmm.default'. What
# others allocate inside, as `_safe_softmax` does, is counted by the formulas: without a dispatch
# mode they are several operators.
MATMUL_OPERATORS = ("mm", "addmm", "bmm", "baddbmm", "linear")
# Moments of a pass that are matmuls, in which cuBLAS may hold a workspace.
MATMULS = ("the projections", "QK", "PV", "the output projection")
# Parts of the names of operators that are attention kernels.
ATTENTION_OPERATORS = ("_scaled_dot_product", "_flash_attention", "flash_attn", "flex_attention")

# Activations by case and phase.
PredictedActivations = dict[tuple[str, str], LayerActivations]


class PeakChecks(NamedTuple):
    """What the peak of one pass shows."""

    checks: tuple[Check, ...]  # predictions with their measurements
    reported: tuple[Reported, ...]  # measurements without a prediction
    peak: int  # the peak memory that was compared


def predicted_activations(model: ModelSpec, plan: Plan, machine: Machine) -> PredictedActivations:
    """Return the predictions of `attncalc memory` for every case and phase of the plan."""
    predicted: PredictedActivations = {}
    planned_phases = {phase for _, phase in plan.kernels}
    for phase, workload in (("prefill", plan.request.prefill()), ("decode", plan.request.decode())):
        if phase in planned_phases:
            predicted |= {
                (layer.name, phase): layer for layer in activations(model, workload, machine)
            }
    return predicted


def peak(
    layer_pass: Pass, layer: RealLayer, device: Device, predicted: PredictedActivations
) -> PeakChecks:
    """Measure the peak memory of one pass and compare it with its prediction."""
    phase = layer_pass.phase
    kernel = layer_pass.kernel
    activation = predicted[layer.case.cost_name, phase]
    found = peak_checks(
        phase, f"{phase}, {kernel}", kernel, activation, device.peak(layer_pass.run)
    )
    compared, *others = found.checks
    if compared.ok:
        return found
    failure = compared.failure + _unpredicted(
        device.blocks_at_peak(layer_pass.run), activation, kernel
    )
    return found._replace(checks=(compared._replace(failure=failure), *others))


def _unpredicted(blocks: Sequence[Block], predicted: LayerActivations, kernel: str) -> str:
    """Name the largest block at the peak that is not a tensor of the prediction; '' if all are."""
    expected = Counter(int(tensor.size) for tensor in predicted.peaks[cost_kernel(kernel)].tensors)
    for block in sorted(blocks, key=lambda block: -block.size):
        if not expected[block.size]:
            where = f", made in {block.where}" if block.where else ""
            return (
                f"; the largest block that is not predicted has {human(block.size, BYTES)}{where}"
            )
        expected[block.size] -= 1
    return ""


def peak_checks(
    name: str, label: str, kernel: str, predicted: LayerActivations, measured: PeakMemory
) -> PeakChecks:
    """Return the checks of one peak. `name` and `label` tell it from others of the same layer."""
    like = cost_kernel(kernel)
    splits = has_split_buffers(kernel)
    buffers = quantity(predicted.buffers[like] if splits else 0)
    if measured.simulated:
        tensors = predicted.tensor_peaks[like]
        check = _peak_check(name, label, kernel, tensors, measured.requested, SEEDS)
        reported = list(_allocator_figures(name, label, kernel, tensors, measured))
        if buffers:
            reported.append(
                _reported(
                    "inside kernels", f"buffers_{name}_{kernel}", label, None, NOT_SEEN, buffers
                )
            )
        return PeakChecks((check,), tuple(reported), measured.requested)
    moment = (predicted.peaks if splits else predicted.tensor_peaks)[like]
    moments = [each if splits else each.without_buffers for each in predicted.moments[like]]
    inside = _most_inside(
        measured, lambda operator: any(part in operator for part in ATTENTION_OPERATORS)
    )
    libraries = _most_inside(
        measured, lambda operator: operator.partition(".")[0] in MATMUL_OPERATORS
    )
    is_predicted = kernel not in UNPREDICTED_INSIDE
    workspace = _workspace_at_peak(moments, 0 if is_predicted else inside, libraries)
    peak_without = measured.requested - workspace
    tolerance = TOLERANCE * moment.size + (SEEDS if measured.allocated is not None else 0)
    checks = [_peak_check(name, label, kernel, moment, peak_without, tolerance)]
    reported = list(_allocator_figures(name, label, kernel, moment, measured))
    if not is_predicted:
        reported.append(
            _reported("inside kernels", f"workspace_{name}_{kernel}", label, inside, UNPREDICTED)
        )
    elif measured.inside is not None and (buffers or inside):
        note = "bytes that the kernel allocates inside: partial outputs, an accumulator"
        failure = "the kernel splits its work in another way than the formula"
        figures = (buffers, inside, tolerance)
        checks.append(
            Check(
                "kernel buffers", f"buffers_{name}_{kernel}", label, *figures, BYTES, note, failure
            )
        )
    if libraries:
        reported.append(
            _reported("inside matmuls", f"libraries_{name}_{kernel}", label, libraries, LIBRARIES)
        )
    return PeakChecks(tuple(checks), tuple(reported), peak_without)


def _workspace_at_peak(moments: Sequence[Moment], inside: int, libraries: int) -> int:
    """Return by how much measured workspaces raise the highest moment.

    Args:
        inside: bytes measured inside an attention kernel whose buffers have no formula.
        libraries: bytes measured inside matmuls.
    """
    extra = {"the kernel": inside, **dict.fromkeys(MATMULS, libraries)}
    with_workspaces = max(moment.size + extra.get(moment.name, 0) for moment in moments)
    return with_workspaces - max(moment.size for moment in moments)


def _peak_check(
    name: str, label: str, kernel: str, moment: Moment, measured: int, tolerance: float
) -> Check:
    """Return the check of a peak; its note names the moment of the peak and the tensors of at least
    1 % of it.
    """
    large = sorted(
        (t for t in moment.tensors if t.size * 100 >= moment.size), key=lambda t: -int(t.size)
    )
    note = f"{moment.name}: {', '.join(t.name for t in large)}"
    failure = "a tensor is held that the formula does not count, or one that it counts is not held"
    figures = (moment.total, measured, tolerance)
    return Check("peak memory", f"peak_{name}_{kernel}", label, *figures, BYTES, note, failure)


def _most_inside(measured: PeakMemory, is_counted: Callable[[str], bool]) -> int:
    """Return the most bytes that one call of such an operator allocated inside."""
    return max(
        (size for operator, size in measured.inside or () if is_counted(operator)), default=0
    )


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
    section: str,
    name: str,
    label: str,
    measured: int | None,
    note: str,
    predicted: int | None = None,
) -> Reported:
    return Reported(section, name, label, measured, BYTES, note, predicted=predicted)
