"""Peak memory: what `memory` predicts beside what the device held."""

from __future__ import annotations

from ..check import Check
from ..cost.activations import LayerActivations, activations
from ..cost.kernels import Machine, Moment
from ..model import ModelSpec
from ..units import BYTES
from .device import Device
from .passes import Pass
from .plan import Plan, decode, prefill
from .subject import Layer

TOLERANCE = 0.01
"""Of what is predicted: libraries round, and keep a few scalars."""

Predicted = dict[tuple[str, str], LayerActivations]
"""Activations by subject and phase."""


def predicted(model: ModelSpec, plan: Plan, machine: Machine) -> Predicted:
    """What `memory` says of every subject and phase that is run."""
    found: Predicted = {}
    for phase, workload in (("prefill", prefill(plan.asked)), ("decode", decode(plan.asked, plan.asked.context))):
        if any(asked_phase == phase for _, asked_phase in plan.kernels):
            found |= {(layer.name, phase): layer for layer in activations(model, workload, machine)}
    return found


def peak(one: Pass, layer: Layer, device: Device, known: Predicted) -> Check:
    """The peak of one pass beside its prediction; the note says what is alive."""
    moment = known[layer.subject.layer_name, one.phase].peaks[one.kernel]
    return peak_check(one.phase, f"{one.phase}, {one.kernel}", one.kernel, moment, device.peak(one.run))


def peak_check(of: str, label: str, kernel: str, moment: Moment, measured: int) -> Check:
    """A peak beside its prediction; the note says what is alive."""
    large = sorted((t for t in moment.live if t.size * 100 >= moment.size), key=lambda t: -int(t.size))
    live = ", ".join(t.name for t in large)
    return Check(
        "peak memory",
        f"peak_{of}_{kernel}",
        label,
        moment.total,
        measured,
        TOLERANCE * moment.size,
        BYTES,
        f"{moment.name}: {live}",
        "a tensor that is not in the formula is alive, or one that is in it is not",
    )
