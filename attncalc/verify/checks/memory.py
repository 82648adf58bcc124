"""Peak memory: what `attncalc memory` predicts, and what the device measured."""

from __future__ import annotations

from ...check import Check
from ...cost.activations import LayerActivations, activations
from ...cost.kernels import Machine, Moment
from ...model import ModelSpec
from ...units import BYTES
from ..device import Device
from ..passes import Pass
from ..plan import Plan
from ..real_layer import RealLayer

TOLERANCE = 0.01
"""Share of the predicted peak: libraries round sizes up and hold a few scalars."""

PredictedActivations = dict[tuple[str, str], LayerActivations]
"""Activations by case and phase."""


def predicted_activations(model: ModelSpec, plan: Plan, machine: Machine) -> PredictedActivations:
    """Return the predictions of `attncalc memory` for every case and phase of the plan."""
    predicted: PredictedActivations = {}
    planned_phases = {phase for _, phase in plan.kernels}
    for phase, workload in (("prefill", plan.request.prefill()), ("decode", plan.request.decode())):
        if phase in planned_phases:
            predicted |= {(layer.name, phase): layer for layer in activations(model, workload, machine)}
    return predicted


def peak(layer_pass: Pass, layer: RealLayer, device: Device, predicted: PredictedActivations) -> Check:
    """Measure the peak memory of one pass and compare it with its prediction."""
    phase, kernel = layer_pass.phase, layer_pass.kernel
    moment = predicted[layer.case.cost_name, phase].peaks[kernel]
    return peak_check(phase, f"{phase}, {kernel}", kernel, moment, device.peak(layer_pass.run))


def peak_check(phase: str, label: str, kernel: str, moment: Moment, measured: int) -> Check:
    """Return the check of a peak; its note names the moment of the peak and the tensors of at least 1 % of it."""
    large = sorted((t for t in moment.tensors if t.size * 100 >= moment.size), key=lambda t: -int(t.size))
    return Check(
        "peak memory",
        f"peak_{phase}_{kernel}",
        label,
        moment.total,
        measured,
        TOLERANCE * moment.size,
        BYTES,
        f"{moment.name}: {', '.join(t.name for t in large)}",
        "a tensor is held that the formula does not count, or one that it counts is not held",
    )
