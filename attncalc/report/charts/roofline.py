"""The roofline of a GPU, with a prefill and a decode step on it."""

from __future__ import annotations

from ...plot.chart import Roof, Step
from ...plot.scale import Axis
from ...serving.roofline import Roofline
from ...serving.roofline import Step as BoundStep
from ...units import BYTES_PER_SECOND, FLOP_PER_SECOND, NO_UNIT, SECONDS, count, quotient, short
from ..report import number

NAME = "roofline"


def roofline_chart(bounds: Roofline) -> Roof:
    """Return the roof of the dtype in which products run, and each step at the speed that it allows."""
    math = bounds.math
    # A mixture's points are where the expected experts put them: they are no bounds.
    expected = bounds.prefill_expected is not None
    steps = [
        ("prefill", bounds.prefill_expected or bounds.prefill),
        ("decode", bounds.decode_expected or bounds.decode),
    ]
    return Roof(
        NAME,
        f"Roofline of one {bounds.gpu.title}",
        math.flops,
        f"{short(math.flops, FLOP_PER_SECOND)} in {math.dtype}",
        bounds.gpu.bandwidth,
        short(bounds.gpu.bandwidth, BYTES_PER_SECOND),
        f"compute-bound from {number(float(bounds.ridge))} FLOP/byte",
        Axis("FLOP per byte", NO_UNIT, "flop_per_byte"),
        Axis("FLOP/s", FLOP_PER_SECOND, "flop_per_second"),
        tuple(_step(label, step, "with expected experts" if expected else "at least") for label, step in steps if step),
    )


def _step(label: str, step: BoundStep, time: str) -> Step:
    intensity, seconds = float(step.intensity), float(step.seconds)
    return Step(
        label,
        intensity,
        int(step.flops) / seconds,
        (f"{number(intensity)} FLOP/byte, {step.bound_by}-bound", f"{time} {quotient(seconds, SECONDS)}"),
    )


def batch_fact(bounds: Roofline) -> str:
    """Return from which batch a decode step is compute-bound."""
    if bounds.decode is None:
        return ""
    if bounds.compute_bound_batch is None:
        return "decode is memory-bound at every batch"
    experts = ", with expected experts" if bounds.decode_expected else ""
    return f"decode is compute-bound from batch {count(bounds.compute_bound_batch)}{experts}"
