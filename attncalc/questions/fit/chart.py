"""The charts of `attncalc fit`: the memory of a GPU as a stack, and its roofline with a prefill and
a decode step.
"""

from ...serving.roofline import Roofline
from ...serving.roofline import Step as BoundStep
from ...show.bar import Bar, gib, gib_range
from ...show.plot.chart import Mark, Piece, Roof, Stack, Step
from ...show.plot.scale import Axis
from ...show.report import number
from ...units import (
    BYTES,
    BYTES_PER_SECOND,
    FLOP_PER_SECOND,
    NO_UNIT,
    SECONDS,
    count,
    quotient,
    short,
)


def memory_chart(bar: Bar) -> Stack:
    """Return how weights, runtime memory and cache share the memory, with both ends of what is
    estimated.
    """
    low, high = bar.runtime
    after_weights = bar.weights + low
    after_runtime = bar.weights + high
    pieces = [Piece("weights", f"{gib(bar.weights)} GiB", 0, bar.weights, "weights")]
    if high > low:
        pieces += [Piece("", "", bar.weights, after_weights, "runtime")] if low else []
        pieces.append(
            Piece(
                "runtime", f"{gib(low)} to {gib(high)} GiB", after_weights, after_runtime, "range"
            )
        )
    elif low:
        pieces.append(Piece("runtime", f"{gib(low)} GiB", bar.weights, after_weights, "runtime"))
    if bar.usable > after_runtime:
        left = gib_range(*(max(0, size) for size in bar.cache))
        rest = "KV cache" if bar.has_cache else "free"
        pieces.append(Piece(rest, f"{left} GiB", after_runtime, bar.usable, "cache"))
    marks = [Mark(bar.usable, f"{gib(bar.usable)} GiB for the engine, {bar.share} of the memory")]
    if bar.usable < bar.memory:
        marks.append(Mark(bar.memory, f"{gib(bar.memory)} GiB on {bar.owner}"))
    title = f"Memory of {bar.owner}"
    return Stack("memory", title, Axis(title, BYTES, "memory"), tuple(pieces), tuple(marks))


def roofline_chart(bounds: Roofline) -> Roof:
    """Return the roof of the dtype in which products run, and each step at the speed that it
    allows.

    The points of a mixture are where the expected experts put them; they are no bounds.
    """
    math = bounds.math
    time = "at least" if bounds.prefill_expected is None else "with expected experts"
    steps = {
        "prefill": bounds.prefill_expected or bounds.prefill,
        "decode": bounds.decode_expected or bounds.decode,
    }
    return Roof(
        "roofline",
        f"Roofline of one {bounds.gpu.title}",
        math.flops,
        f"{short(math.flops, FLOP_PER_SECOND)} in {math.dtype}",
        bounds.gpu.bandwidth,
        short(bounds.gpu.bandwidth, BYTES_PER_SECOND),
        f"compute-bound from {number(float(bounds.ridge))} FLOP/byte",
        Axis("FLOP per byte", NO_UNIT, "flop_per_byte"),
        Axis("speed", FLOP_PER_SECOND, "flop_per_second"),
        tuple(_step(label, step, time) for label, step in steps.items() if step),
    )


def _step(label: str, step: BoundStep, time: str) -> Step:
    intensity = float(step.intensity)
    seconds = float(step.seconds)
    details = (
        f"{number(intensity)} FLOP/byte, {step.bound_by}-bound",
        f"{time} {quotient(seconds, SECONDS)}",
    )
    return Step(label, intensity, int(step.flops) / seconds, details)


def batch_fact(bounds: Roofline) -> str:
    """Return from which batch a decode step is compute-bound."""
    if bounds.decode is None:
        return ""
    if bounds.compute_bound_batch is None:
        return "decode is memory-bound at every batch"
    experts = ", with expected experts" if bounds.decode_expected else ""
    return f"decode is compute-bound from batch {count(bounds.compute_bound_batch)}{experts}"
