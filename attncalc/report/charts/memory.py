"""The memory of a GPU as a stack: weights, runtime memory and cache."""

from __future__ import annotations

from ...plot.chart import Mark, Piece, Stack
from ...plot.scale import Axis
from ...units import BYTES, GIB
from ..bar import Bar

NAME = "memory"


def memory_chart(bar: Bar) -> Stack:
    """Return how weights, runtime memory and cache share the memory, with both ends of what is estimated."""
    low, high = bar.runtime
    after_weights, after_runtime = bar.weights + low, bar.weights + high
    estimated = high > low
    pieces = [Piece("weights", f"{_gib(bar.weights)} GiB", 0, bar.weights, "weights")]
    if low:
        text = "" if estimated else f"{_gib(low)} GiB"
        pieces.append(Piece("" if estimated else "runtime", text, bar.weights, after_weights, "runtime"))
    if estimated:
        pieces.append(Piece("runtime", f"{_gib(low)} to {_gib(high)} GiB", after_weights, after_runtime, "range"))
    if bar.usable > after_runtime:
        least, most = (_gib(max(0, size)) for size in bar.cache)
        text = f"{most} GiB" if least == most else f"{least} to {most} GiB"
        pieces.append(Piece("KV cache", text, after_runtime, bar.usable, "cache"))
    marks = [Mark(bar.usable, f"{_gib(bar.usable)} GiB for the engine, {bar.share} of the memory")]
    if bar.usable < bar.memory:
        marks.append(Mark(bar.memory, f"{_gib(bar.memory)} GiB on the GPU"))
    title = "Memory of each GPU" if bar.gpus > 1 else "Memory of the GPU"
    return Stack(NAME, title, Axis("", BYTES, NAME), tuple(pieces), tuple(marks))


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}"
